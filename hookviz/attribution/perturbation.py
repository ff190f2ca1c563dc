"""Score-CAM, Ablation-CAM, occlusion: change a channel or a window and measure the score.

The methods of `cam.py` are functions of one activation and one gradient. These run the model once
for every channel of the layer, or every window over the picture, and need no gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import torch
from torch import Tensor, nn

from ..hooking.arguments import check_finite, whole_number
from ..hooking.capture import capture
from ..hooking.handles import HookManager
from ..hooking.maps import as_maps, enlarged
from ..hooking.select import module_names, select_layer
from ..hooking.tensors import at_least_float32, tensors
from ..hooking.transforms import TransformError
from ..run.inputs import Transform
from ..run.origins import NO_PICTURE, PictureSource, call_origins, picture_tensors
from ..run.progress import Progress
from ..run.replay import Replay
from ..run.session import Session
from ..run.target import Target
from .cam import as_pairs
from .scorer import Scorer


def scorecam(
    model: nn.Module,
    inputs: Any,
    layer: str | nn.Module,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Tensor:
    """Compute Score-CAM: channels weighted by the score of the picture masked by them.

    ``relu(sum_c w_c * A_c)`` with ``w = softmax_c(score(x * mask_c))``, where ``mask_c`` is the
    channel ``A_c`` enlarged to the picture's size and scaled to 0..1; Wang et al. 2020,
    "Score-CAM: Score-Weighted Visual Explanations for Convolutional Neural Networks".

    Parameters
    ----------
    model : torch.nn.Module
        Runs forward only, in eval mode, once for every channel; its state is restored exactly,
        also after an exception or an interrupt.
    inputs
        A float tensor ``(N, C, *spatial)`` with one to three spatial dimensions, or whatever
        `hookviz.attribution.prepare_input` takes. Of several inputs the one that the layer sees
        is masked; the first floating-point one if it sees several.
    layer : str or torch.nn.Module
        One layer. Its activation is its output before any in-place operation; if the layer runs
        several times, that of the last call.
    target : optional
        None: each sample's own top class. A class number or name. A tuple of classes: the score
        of the first less the mean of the others'. A list: one of these for each sample. A
        function output -> one number: then the model runs one row at a time, so that the
        function gets the output for one picture. One of these as a text, as in
        `hookviz.explore`.
    weights, transform, class_names : optional
        As for `hookviz.explore`.
    batch_size : int
        Number of masked pictures that go through the model at a time.

    Returns
    -------
    torch.Tensor
        ``(N, *spatial)`` at the layer's own size, raw, float32 or float64.

    Raises
    ------
    ValueError
        Unknown layer or more than one, unknown class, no class scores to choose from, maps that
        cannot be laid over the input, or a layer that sees no picture.
    RuntimeError
        The model raised; the message names the layer.

    Notes
    -----
    The paper subtracts the score of the whole picture from each: the softmax takes that out
    again. Scores are logits, if the model gives logits, as in pytorch-grad-cam and torchcam; the
    softmax over channels is the paper's algorithm 1, while the authors' code has the class's
    probability there instead.

    Masks are enlarged first (``align_corners=False``) and scaled after, which is the paper's
    formula and the authors' code to the letter. Both peers differ by half: pytorch-grad-cam
    enlarges with ``align_corners=True``, which shifts the mask by up to half a cell of the layer;
    torchcam scales before it enlarges, so that the mask's peak is below 1. At a layer of the
    input's own size all three are the same. A constant channel becomes a mask of zeros, as in
    both peers; the authors' code leaves it out.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> hookviz.attribution.scorecam(model, picture, "stem", "ball").shape
    torch.Size([1, 56, 56])
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    picture = _picture_of(session, layer)
    with session.active(grad=False):
        scorer = Scorer(session, target, batch_size, picture=picture)
        maps, pictures = _layer_of(scorer, layer).maps, scorer.pictures
        if maps.is_complex():
            maps = as_pairs(maps)
        if maps.ndim != pictures.ndim:
            raise ValueError(
                f"Layer {layer!r} gives maps in {maps.ndim - 2}d, which cannot be laid over an "
                f"input of shape {tuple(pictures.shape)}: choose an earlier layer, or ablationcam."
            )

        def seen_through(samples: Tensor, channels: Tensor) -> Tensor:
            masks = _masks(maps[samples, channels], pictures.shape[2:])
            return scorer.score(pictures[samples] * masks.to(pictures), samples)

        return _weighted(scorer.table(maps.shape[1], seen_through).softmax(1), maps)


def _picture_of(session: Session, layer: str | nn.Module) -> int | None:
    """Return the index of the input tensor that a layer sees in its last call.

    None stands for the main input. It is returned if there is only one input, if the layer sees
    several, and if it is not known which one it sees.
    """
    inputs = session.inputs
    if len(tensors(inputs.args, inputs.kwargs)) < 2 or not picture_tensors(inputs):
        return None
    module, _ = select_layer(session.given, layer)
    name = module_names(session.model)[module][0]
    try:
        calls = call_origins(session, [name])
    except TransformError:
        return None
    rows = calls[max(calls)] if calls else ()
    if NO_PICTURE in rows:
        raise ValueError(
            f"Layer {layer!r} depends on no input picture that Score-CAM could mask: choose "
            "another layer, or ablationcam."
        )
    sources = {row.input if isinstance(row, PictureSource) else None for row in rows}
    return sources.pop() if len(sources) == 1 else None


def ablationcam(
    model: nn.Module,
    inputs: Any,
    layer: str | nn.Module,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Tensor:
    """Compute Ablation-CAM: channels weighted by how far the score drops without them.

    ``relu(sum_c w_c * A_c)`` with ``w_c = (y - y_c) / |y|``, where ``y`` is the score and ``y_c``
    the score with channel ``c`` of the layer's output set to zero; Desai and Ramaswamy 2020,
    "Ablation-CAM: Visual Explanations for Deep Convolutional Network via Gradient-free
    Localization".

    Parameters
    ----------
    model, inputs, target, weights, transform, class_names : optional
        As for `scorecam`.
    layer : str or torch.nn.Module
        One layer, which returns a tensor. Its output is ablated before any in-place operation; if
        the layer runs several times, in the last call. In a vision transformer only the patches are
        ablated, not the class token.
    batch_size : int
        Number of channels that are ablated at a time, one in each row of the batch.

    Returns
    -------
    torch.Tensor
        ``(N, *spatial)`` at the layer's own size, raw, float32 or float64.

    Raises
    ------
    ValueError
        Unknown layer or more than one, unknown class, no class scores to choose from, or a
        layer that returns no single tensor.
    RuntimeError
        The model raised; the message names the layer.

    Notes
    -----
    The paper divides by ``y``. As long as the score is positive that is the same; a negative one
    would turn the map around, so that it showed what speaks against the class. A score of
    exactly 0 leaves the drop unchanged.

    pytorch-grad-cam agrees where the layer's smallest value is exactly 0, as behind a ReLU, and the
    score is positive. Elsewhere, by its own words "deviating from the paper", it replaces the
    channel by the minimum less 1e7, and a negative score turns its map around.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> hookviz.attribution.ablationcam(model, picture, "stem.0", "ball").shape
    torch.Size([1, 56, 56])
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    with session.active(grad=False):
        ablation = Ablation(session, layer, target, batch_size)
        if ablation.maps.is_complex():
            raise ValueError(
                f"Layer {layer!r} returns complex numbers, and Ablation-CAM is not defined for "
                "them: take scorecam, or heatmap(…, 'gradcam')."
            )
        drops, score = ablation.all_scores(), ablation.score
        return _weighted(drops / torch.where(score != 0, score.abs(), 1), ablation.maps)


def occlusion(
    model: nn.Module,
    inputs: Any,
    target: Target = None,
    *,
    window: int | None = None,
    stride: int | None = None,
    value: float = 0.0,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Tensor:
    """Compute occlusion: how far the score drops while a window of the picture is covered.

    The window moves over the picture; a pixel's value is the mean of the drops of all windows over
    it; Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks". The same as
    captum's ``Occlusion`` of all channels at once.

    Parameters
    ----------
    model, inputs, target, weights, transform, class_names : optional
        As for `scorecam`.
    window : int, optional
        The side of the window; if left out, an eighth of the picture's shorter side.
    stride : int, optional
        How far the window moves at a time; half a window if left out.
    value : float
        The value of covered pixels, after preprocessing: 0 is the mean colour if the transform
        subtracts it.
    batch_size : int
        Number of covered pictures that go through the model at a time.

    Returns
    -------
    torch.Tensor
        ``(N, *spatial)`` at the picture's own size, float32 or float64. Negative where the score
        rises when the position is covered; 0 where no window has been.

    Raises
    ------
    ValueError
        Unknown class, no class scores to choose from, an input without positions, or a window or
        stride below 1.
    RuntimeError
        The model raised; the message names the layer.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> hookviz.attribution.occlusion(model, picture, "ball", window=28).shape
    torch.Size([1, 112, 112])
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    with session.active(grad=False):
        scorer = Scorer(session, target, batch_size)
        pictures = scorer.pictures
        sizes = pictures.shape[2:]
        if not sizes:
            raise ValueError(
                f"Occlusion covers positions, and an input of shape {tuple(pictures.shape)} has "
                "none: use hookviz.attribute."
            )
        side = -(-min(sizes) // 8) if window is None else whole_number("window", window)
        step = -(-side // 2) if stride is None else whole_number("stride", stride)
        check_finite("value", value)
        boxes = list(product(*(_windows(size, side, step) for size in sizes)))

        def covered(samples: Tensor, places: Tensor) -> Tensor:
            changed = pictures[samples]
            for row, place in enumerate(places.tolist()):
                changed[(row, slice(None), *boxes[place])] = value
            return scorer.score(changed, samples)

        score = scorer.scores()[:, None]
        drops = score - scorer.table(len(boxes), covered)
        total = drops.new_zeros(len(pictures), *sizes)
        over = drops.new_zeros(sizes)
        for place, box in enumerate(boxes):
            total[(slice(None), *box)] += drops[:, place].view(-1, *[1] * len(sizes))
            over[box] += 1
        return total / over.clamp(min=1)


def _windows(size: int, side: int, step: int) -> list[slice]:
    """Return where a window stands along an axis; the last one is cut off at the end.

    >>> _windows(10, 4, 4)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    number = -(-max(size - side, 0) // step) + 1
    return [slice(each * step, min(each * step + side, size)) for each in range(number)]


def ablation_scores(session: Session, layer: str, target: Target = None) -> Tensor:
    """Compute the drop of the score without each channel of a layer, ``(N, C)``."""
    return Ablation(session, layer, target).all_scores()


class Ablation:
    """The work of `ablation_scores` in parts: between two of them the model is untouched.

    Examples
    --------
    >>> import hookviz
    >>> parts = Ablation(Session.of(hookviz.demo_model(), hookviz.demo_images()[0]), "stem.0")
    >>> while parts.work(seconds=0) < 1:
    ...     pass
    >>> parts.scores().shape
    torch.Size([1, 24])
    """

    def __init__(
        self,
        session: Session,
        layer: str | nn.Module,
        target: Target = None,
        batch_size: int = 8,
    ) -> None:
        with session.active(grad=False):
            self._scorer = scorer = Scorer(session, target, batch_size)
            self._layer = _layer_of(scorer, layer)
            if not self._layer.plain:
                raise ValueError(
                    f"Layer {layer!r} does not return a tensor but several, or a container: choose "
                    "a layer within it."
                )
            self.score = scorer.scores()[:, None]  # with all channels
        self.maps, self._replay = self._layer.maps, Replay(session.model, [self._layer.module])
        every = torch.arange(self.maps.shape[:2].numel())
        self._batches, self._found = every.split(scorer.batch_size), list[Tensor]()

    def work(
        self, seconds: float = math.inf, update: Callable[[float], None] = lambda fraction: None
    ) -> float:
        """Run the model for one batch of channels or more; return the fraction done, 0 to 1."""
        end = time.monotonic() + seconds
        with self._scorer.session.active(grad=False):
            for batch in self._batches[len(self._found) :]:
                self._found.append(self._ablated(batch))
                update(len(self._found) / len(self._batches))
                if time.monotonic() >= end:
                    break
        return len(self._found) / len(self._batches)

    def scores(self) -> Tensor:
        """Return the drop of the score without each channel, ``(N, C)``, when all is done."""
        return self.score - torch.cat(self._found).view(-1, self.maps.shape[1])

    def all_scores(self) -> Tensor:
        """Do all the work and return the scores."""
        with Progress() as progress:
            self.work(update=progress.update)
        return self.scores()

    def _ablated(self, batch: Tensor) -> Tensor:
        """Return the scores without one channel each."""
        count, size = self.maps.shape[1], self._scorer.batch_size
        samples, hook = batch // count, _without(batch % count, self._layer)

        def without() -> Tensor:
            with HookManager([(self._layer.module, "forward", hook)]):
                return self._scorer.score(None, samples)

        # A recording pays where many batches are of the same sample.
        if len(samples) < size or count < 4 * size or samples[0] != samples[-1]:
            return without()
        return self._replay.run(without, lambda: self._scorer.score(None, samples), int(samples[0]))


@dataclass(frozen=True, eq=False)
class _Layer:
    """One layer's maps on the unchanged input."""

    module: nn.Module
    maps: Tensor  # (N, C, *spatial), of the last call
    grid: tuple[int, ...] | None
    calls: int
    plain: bool  # True if it returns a tensor, not a container


def _layer_of(scorer: Scorer, layer: str | nn.Module) -> _Layer:
    module, name = select_layer(scorer.session.given, layer)
    with capture(scorer.session.model, module) as cache:
        scorer.run(None, torch.arange(len(scorer.pictures)))
    if not cache:
        raise ValueError(f"Layer {name!r} did not run in eval mode: choose one that does.")
    (record,) = cache.values()
    grid = record.last.grid
    maps = at_least_float32(as_maps(record.activation, module, grid))
    if len(maps) != len(scorer.pictures):
        raise ValueError(
            f"Layer {name!r} returned maps of {len(maps)} samples for an input of "
            f"{len(scorer.pictures)}: choose a layer that keeps the batch."
        )
    plain = [taken.path for taken in record.calls[-1].outputs] == [""]
    return _Layer(module, maps, grid, len(record.calls), plain)


def _without(channels: Tensor, layer: _Layer) -> Callable[..., Tensor | None]:
    """Return a forward hook that zeroes one channel per row, in the layer's last call."""
    calls = count(1)

    def after(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        if next(calls) != layer.calls:
            return None
        changed = output.clone()
        # as_maps returns a view, whatever the layout of the channels.
        maps = as_maps(changed, module, layer.grid)
        maps[torch.arange(len(channels)), channels] = 0
        return changed

    return after


def _masks(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Turn channels, ``(B, *spatial)``, into masks 0..1 for the pictures, ``(B, 1, *size)``."""
    large = enlarged(maps, size)[:, None]
    places = tuple(range(2, large.ndim))
    low, high = large.amin(places, keepdim=True), large.amax(places, keepdim=True)
    # Tested on the small map: interpolation rounds, and rounding errors would be scaled to 0..1.
    flat = maps.flatten(1).amin(1) == maps.flatten(1).amax(1)
    span = torch.where(flat.view(-1, *(1,) * (large.ndim - 1)), torch.inf, high - low)
    return (large - low) / span


def _weighted(weights: Tensor, maps: Tensor) -> Tensor:
    shape = (*weights.shape, *(1,) * (maps.ndim - 2))
    return (weights.view(shape).to(maps.device) * maps).sum(1).relu()
