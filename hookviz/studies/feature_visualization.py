"""Pictures that excite a channel most, made by gradient ascent, beside natural pictures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ..draw.mosaic import STYLE, Piece, facts, row
from ..draw.overlay import picture_of
from ..hooking.arguments import is_index, plain_index, whole_number
from ..hooking.handles import HookManager
from ..hooking.maps import PatchGrid, as_maps
from ..hooking.select import is_convolution, select_layer, type_name
from ..hooking.tensors import tensors
from ..models import demo_images, photographs
from ..run.error_messages import is_of_reentrant_checkpoint
from ..run.inputs import ModelInput, binds, where_inputs_go
from ..run.pictures import load_picture
from ..run.progress import Progress
from ..run.session import Session
from ..run.transforms import Transform, preprocessing_for, transform_for
from ..tables import Tabular, cut, escape, for_terminal, html_table, number, plain, text_table
from .showing import widget
from .survey.run import survey as survey_of
from .survey.survey import Survey, check_survey

if TYPE_CHECKING:
    from ..draw.figures import ShownFigure

SMALL = 128
"""Pixels of a side where the model takes pictures of any size: a third of the work of 224."""

COLOURS = [[0.26, 0.09, 0.02], [0.27, 0.00, -0.05], [0.27, -0.09, 0.03]]
"""The root of the covariance of colours in ImageNet (Olah et al. 2017): red, green and blue of
three independent directions."""

RATE, SHIFT, SCALE, ANGLE = 0.05, 0.06, 0.1, 10.0
"""Learning rate; largest shift (of the side), change of scale (of 1) and rotation (in degrees)."""

START = 0.5
"""Standard deviation of the first coefficients. From grey pictures (0.01, as in lucid) some classes
of a small network are never found: its ReLUs give no gradient there."""

NATURAL = 4
"""Natural pictures that are shown for a channel."""

CAPTION = 26
"""Characters above a picture of the figure."""


def feature_visualization(
    model: nn.Module,
    layer: str | nn.Module,
    channel: int | Sequence[int],
    *,
    size: int | None = None,
    steps: int = 256,
    seed: int = 0,
    survey: Survey | None = None,
    weights: Any = None,
    transform: Transform | None = None,
) -> FeatureVisualization:
    """Make the picture that excites a channel most, and compare it with natural pictures.

    Gradient ascent on the Fourier coefficients of a picture, in decorrelated colours (Olah et al.
    2017, "Feature Visualization"). The picture is shifted, scaled and rotated at random in each
    step, so that it does not exploit single pixels.

    Parameters
    ----------
    model : torch.nn.Module
        Its first convolution is two-dimensional. It runs in eval mode, on its device, and stays
        unchanged.
    layer : str or torch.nn.Module
        Any layer that returns maps, tokens or features; of several calls the last one counts.
    channel : int or sequence of int
        Several channels run as one batch: memory grows with them.
    size : int, optional
        Pixels of a side. By default 128 or the size of the model's own transform, whichever is
        smaller; its own size if the model takes no other. The natural pictures get this size, too,
        if neither the model nor the arguments name a transform.
    steps : int
        More steps make a stronger and sharper picture.
    seed : int
        Two pictures are made for each channel, from the random numbers of ``seed`` and
        ``seed + 1``: features that both show belong to the channel.
    survey : hookviz.results.Survey, optional
        A survey of the same model that includes the layer; its inputs are the natural pictures. By
        default these are the 32 pictures that ship with hookviz.
    weights, transform : optional
        As in `hookviz.explore`. Their normalization, or that of ``model.pretrained_cfg``, tells
        the range of the pixels; where it is unknown, the input has mean 0 and variance 1.

    Returns
    -------
    FeatureVisualization
        After an interrupt, the result of the steps so far, with a warning.

    Raises
    ------
    ValueError
        Unknown layer or channel; ``size`` or ``steps`` below 1; the model takes no picture; the
        layer does not run, or no gradient leads from it to the input; the survey is of another
        model.
    RuntimeError
        The model raised; the message names the layer.

    Warns
    -----
    RuntimeWarning
        It was interrupted.

    Notes
    -----
    The ascent maximizes the mean of the largest quarter of the map's values. The stated activation
    is the largest value of the map for the picture as it is shown, neither shifted nor scaled.

    Examples
    --------
    >>> import hookviz
    >>> seen = hookviz.feature_visualization(hookviz.demo_model(), "stem.0", 5, size=32, steps=8)
    >>> seen.inputs.shape, seen.activation.shape
    (torch.Size([1, 2, 3, 32, 32]), torch.Size([1, 2]))
    """
    whole_number("steps", steps)
    whole_number("seed", seed, 0)
    if size is not None:
        whole_number("size", size)
    one: Any = plain_index(channel)  # a tensor of one number is iterable, too
    channels: list[int] = [*map(plain_index, one)] if isinstance(one, Iterable) else [one]
    if not channels:
        raise ValueError(f"channel={channel!r} names no channel: give a number, or several.")
    module, name = select_layer(model, layer)
    session = Session(model, ModelInput(()), weights=weights)
    shipped = [*demo_images(), *photographs().values()]
    if survey is not None:
        check_survey(survey, session.model)
    refused = "only pictures of 1, 3 or 4 channels can be made."
    preprocessing = preprocessing_for(session.model, weights, transform, advice=refused)
    natural, _ = preprocessing.apply(load_picture(shipped[0]))
    if not isinstance(natural, Tensor):
        raise ValueError("No picture can be made: the transform returns several inputs.")
    if not binds(session.model, (natural,), {}):
        raise ValueError(
            f"{type_name(session.model)} takes more than a picture: wrap it in a module that gives "
            "the other arguments."
        )
    colours, own = natural.shape[1], natural.shape[-1]
    sizes = sorted({min(SMALL, own), own}) if size is None else [size]
    mean, std = preprocessing.normalization or ((0.0,), (1.0,))
    if preprocessing.guessed:
        mean, std = (), ()
        transform = transform_for(session.model, size=size) if size else None
    ascent = _Ascent(session, module, name, channels)
    try:
        ascent.try_sizes(sizes, colours)
    except RuntimeError as error:
        if size is not None or not preprocessing.guessed:
            raise
        raise RuntimeError(
            f"{str(error).rstrip('.')}. Pictures of {own}×{own} were assumed: give size= if the "
            "model takes others."
        ) from error
    ascent.draw(seed, mean, std)
    try:
        ascent.climb(steps)
    except KeyboardInterrupt:
        if not ascent.done:
            raise
        said = f"Interrupted after {ascent.done} of {steps} steps: the pictures may be weak."
        warnings.warn(said, RuntimeWarning, stacklevel=2)
    inputs, activation = ascent.result()
    if survey is None:
        preparation: dict[str, Any] = {"weights": weights, "transform": transform}
        survey = survey_of(model, shipped, [module], k=NATURAL, batch_size=8, **preparation)
    made = ModelInput((inputs,), name="optimised", mean=mean, std=std, normalized=bool(mean))
    return FeatureVisualization(
        name,
        ascent.calls - 1,
        channels,
        (seed, seed + 1),
        ascent.done,
        activation,
        survey,
        made,
        model,
    )


class _Ascent:
    """Gradient ascent on the Fourier coefficients of two pictures for each channel."""

    def __init__(
        self, session: Session, module: nn.Module, name: str, channels: Sequence[int]
    ) -> None:
        self.session, self.name, self.channels = session, name, channels
        self.calls, self.done, self._maps, self._grid = 0, 0, torch.empty(0), PatchGrid()
        self._hooks = [*self._grid.hooks(session.model), (module, "forward", self._keep)]
        self.device, self._dtype = where_inputs_go(session.model)

    def _keep(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        tensor = tensors(output)[0]
        self._maps = as_maps(tensor, module, self._grid.of(tensor.shape))
        self.calls += 1

    def try_sizes(self, sizes: Sequence[int], colours: int) -> None:
        """Take the first size on which the model runs; check layer and channels."""
        for size in sizes:
            self._shape = colours, size, size
            inputs = torch.zeros(1, *self._shape, device=self.device, dtype=self._dtype)
            self.session.inputs, self.calls = ModelInput((inputs,)), 0
            with nullcontext() if size == sizes[-1] else suppress(Exception):
                self.session.forward(lambda: HookManager(self._hooks), grad=False)
                break
        if not self.calls:
            raise ValueError(f"Layer {self.name!r} does not run: take another one.")
        count = self._maps.shape[1]
        for channel in self.channels:
            if not is_index(channel, count):
                raise ValueError(
                    f"Layer {self.name!r} has no channel {channel!r}: there are {count}, counted "
                    "from 0."
                )

    def draw(self, seed: int, mean: Sequence[float], std: Sequence[float]) -> None:
        """Begin with the same two pictures of noise for each channel."""
        # The numbers come from the CPU, so that a seed means the same on every device.
        self._random = [torch.Generator().manual_seed(seed + n) for n in (0, 1)]
        colours, height, width = self._shape
        rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)
        # In natural pictures amplitudes fall with the frequency.
        self._fall = (1 / (rows**2 + columns**2).sqrt().clamp(min=1 / height)).to(self.device)
        self._statistics = tuple(
            torch.tensor(n, device=self.device).view(-1, 1, 1) for n in (mean, std)
        )
        roots = torch.tensor(COLOURS, device=self.device)
        self._colours = roots / roots.norm(dim=0).max()
        noise = self._pair(
            lambda random: torch.randn(colours, *self._fall.shape, 2, generator=random)
        )
        self._coefficients = (START * noise).requires_grad_()
        self._adam = torch.optim.Adam([self._coefficients], lr=RATE)

    def _pair(self, number: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Draw numbers for two pictures; all channels get the same."""
        pair = torch.stack([number(random) for random in self._random])
        return pair.repeat(len(self.channels), *[1] * (pair.ndim - 1)).to(self.device)

    def _inputs(self) -> Tensor:
        """Return the pictures as the model's input."""
        spectrum = torch.view_as_complex(self._coefficients) * self._fall
        pictures = torch.fft.irfft2(spectrum, s=self._shape[1:], norm="ortho") / 4
        if self._shape[0] == 3:
            pictures = torch.einsum("dc,nchw->ndhw", self._colours, pictures)
        mean, std = self._statistics
        if mean.numel():
            return (pictures.sigmoid() - mean) / std
        flat = pictures.flatten(1)
        return ((flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)).view_as(pictures)

    def _moved(self, inputs: Tensor) -> Tensor:
        """Shift, scale and rotate each picture at random; the border is filled with 0, the mean."""
        uniform = self._pair(lambda random: torch.rand(4, generator=random)) * 2 - 1
        angle, scale = uniform[:, 0] * math.radians(ANGLE), 1 + SCALE * uniform[:, 1]
        sine, cosine = scale * angle.sin(), scale * angle.cos()
        turn = torch.stack([cosine, -sine, sine, cosine], 1).view(-1, 2, 2)
        affine = torch.cat([turn, 2 * SHIFT * uniform[:, 2:, None]], 2)
        grid = F.affine_grid(affine, list(inputs.shape), align_corners=False)
        return F.grid_sample(inputs, grid, align_corners=False)

    def _map_of(self, inputs: Tensor) -> Tensor:
        """Return the values ``(pictures, positions)`` of the channel of each picture."""
        self.calls = 0
        self.session.call(inputs.to(self._dtype))
        which = [channel for channel in self.channels for _ in self._random]
        return self._maps.flatten(2)[range(len(which)), which].float()

    def climb(self, steps: int) -> None:
        """Make the steps; an interrupt leaves those that were made."""
        self.session.observed(lambda: self._climb(steps))

    def _climb(self, steps: int) -> None:
        with Progress() as progress, self.session.active(), HookManager(self._hooks):
            for step in range(1, steps + 1):
                values = self._map_of(self._moved(self._inputs()))
                if not values.requires_grad:
                    raise ValueError(
                        f"No gradient leads from layer {self.name!r} to the input: see whether the "
                        "model detaches it, or runs it under torch.no_grad() or in "
                        "checkpoint(…, use_reentrant=True)."
                    )
                score = values.topk(-(-values.shape[1] // 4)).values.mean(1).sum()
                try:
                    (self._coefficients.grad,) = torch.autograd.grad(-score, self._coefficients)
                except RuntimeError as error:
                    if not is_of_reentrant_checkpoint(error):
                        raise
                    raise ValueError(
                        f"Between the input and layer {self.name!r} is checkpoint(…, "
                        "use_reentrant=True), through which no gradient with respect to a picture "
                        "leads: set use_reentrant=False."
                    ) from None
                self._adam.step()
                self.done = step
                progress.update(step / steps)

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the pictures as inputs, and the largest value of each map, ``(channels, 2)``."""
        with self.session.active(grad=False), HookManager(self._hooks):
            inputs = self._inputs()
            largest = self._map_of(inputs).amax(1)
        return inputs.detach(), largest.view(-1, 2).cpu()


@dataclass(frozen=True, eq=False)
class FeatureVisualization(Tabular):
    """Pictures that excite channels most; `hookviz.feature_visualization` makes them."""

    layer: str
    call: int  #: the last call of the layer, from 0 on
    channels: list[int]
    seeds: tuple[int, int]  #: those of the two pictures of each channel
    steps: int  #: the number of steps that were made
    activation: Tensor  #: ``(channels, 2)``, the largest value of the map for each picture
    survey: Survey  #: of the natural pictures
    _made: ModelInput
    _model: nn.Module

    @property
    def natural(self) -> Tensor:
        """The largest value of each channel for a natural picture, ``(channels,)``."""
        return self.survey[self.layer, self.call].largest[self.channels]

    @property
    def inputs(self) -> Tensor:
        """The pictures as the model's input, ``(channels, 2, C, H, W)``."""
        return self._made.args[0].unflatten(0, (-1, 2))

    @property
    def image(self) -> Image.Image:
        """The picture of the first channel with the first seed."""
        return self.images[0]

    @property
    def images(self) -> list[Image.Image]:
        """All pictures, two for each channel."""
        return [Image.fromarray(self._pixels(n)) for n in range(2 * len(self.channels))]

    def _pixels(self, index: int) -> np.ndarray:
        pixels, _ = picture_of(self._made, index)
        assert pixels is not None
        return pixels

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per picture: ``layer channel seed activation natural above``.

        ``above`` says by how many standard deviations of the channel's natural values the
        activation lies above ``natural``, the largest of them.
        """
        std = self.survey[self.layer, self.call].std[self.channels]
        above = (self.activation - self.natural[:, None]) / std[:, None]
        return plain(
            [
                {"layer": self.layer, "channel": channel, "seed": seed}
                | {"activation": float(self.activation[n, index])}
                | {"natural": float(self.natural[n]), "above": float(above[n, index])}
                for n, channel in enumerate(self.channels)
                for index, seed in enumerate(self.seeds)
            ]
        )

    @property
    def verdict(self) -> str:
        """The comparison with natural pictures, in one line."""
        numbers = ", ".join(map(str, self.channels[:5])) + ", …" * (len(self.channels) > 5)
        what = f"{self.layer or '(model)'}, channel{'s' * (len(self.channels) > 1)} {numbers}"
        above = int((self.activation > self.natural[:, None]).sum())
        return (
            f"{what}: {above} of {self.activation.numel()} pictures excite the channel more than "
            f"any of {self.survey.seen:,} natural pictures"
        )

    def pieces(self, channel: int) -> list[Piece]:
        """Return the pictures of a channel: of both seeds, then its strongest natural ones."""
        if channel not in self.channels:
            raise ValueError(f"No pictures of channel {channel!r}: give one of {self.channels}.")
        n = self.channels.index(channel)
        found = []
        for index, seed in enumerate(self.seeds):
            caption = f"seed {seed}: {number(float(self.activation[n, index]))}"
            words = f"channel {channel} of {self.layer}, {caption}"
            found.append(Piece(self._pixels(2 * n + index), (0, 0, 1, 1), None, caption, words))
        if self.survey.dataset is not None:
            found += self.survey.patches((self.layer, self.call), channel, NATURAL)
        return found

    def _heading(self) -> str:
        return f"What excites {self.layer or 'the model'}"

    def _repr_html_(self) -> str:
        rows = (facts(f"channel {n}", []) + row(self.pieces(n), side=160) for n in self.channels)
        return (
            f"{STYLE}<p>{escape(self.verdict)}</p>{''.join(rows)}{html_table('', *self._table())}"
        )

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self.verdict, *self._table())

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = ("channel", "seed", "activation", "largest natural", "above it, in std")
        rows = [tuple(each.values())[1:] for each in self.records()]
        return header, [(str(n), str(seed), *map(_number, more)) for n, seed, *more in rows]

    def figure(self) -> ShownFigure:
        """Draw a row for each channel: the pictures of both seeds, then natural ones."""
        from ..draw.figures import ShownFigure, no_formula  # matplotlib

        rows = [self.pieces(channel) for channel in self.channels]
        columns = max(map(len, rows))
        figure = ShownFigure(figsize=(1.7 * columns, 1.9 * len(rows) + 0.3), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for line, pieces in zip(grid, rows, strict=True):
            for axes, piece in zip(line, pieces, strict=False):
                axes.imshow(piece.drawn())
                axes.set_title(no_formula(cut(piece.caption, CAPTION)), fontsize="x-small")
        figure.suptitle(no_formula(self.verdict), fontsize="small")
        return figure

    def show(self) -> Any:
        """Open the explorer on the first picture, at its layer and channel."""
        return widget(
            "explore",
            self._model,
            replace(self._made, args=(self._made.args[0][:1],)),
            layers=lambda name, module: name == self.layer or is_convolution(module),
            layer=self.layer,
            channel=self.channels[0],
        )


def _number(value: Any) -> str:
    return number(float("nan") if value is None else float(value))
