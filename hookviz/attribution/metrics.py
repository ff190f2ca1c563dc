"""Measures of a heatmap: is it on the object, and does the model need the marked pixels?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..edits import blurred
from ..hooking.arguments import check_number, whole_number
from ..hooking.maps import enlarged
from ..run.inputs import Transform
from ..run.session import Session
from ..run.target import Target
from ..tables import Tabular, counted, number, plain
from .gradients import baseline_like
from .scorer import Scorer

Heatmap = Tensor | np.ndarray
Mask = Tensor | np.ndarray | Image.Image
Baseline = float | str | Tensor


def pointing_game(heatmap: Heatmap, mask: Mask, tolerance: float = 0) -> bool | Tensor:
    """Return whether a heatmap's largest value lies on the object.

    Zhang et al. 2018, "Top-down Neural Attention by Excitation Backprop".

    Parameters
    ----------
    heatmap : torch.Tensor or numpy.ndarray
        ``(H, W)`` or ``(N, H, W)``; enlarged to the mask's size, bilinear, with
        ``align_corners=False``.
    mask : torch.Tensor, numpy.ndarray or PIL.Image.Image
        The object in the picture as the model saw it, after any crop: ``(H, W)``, or one for
        each heatmap, ``(N, H, W)``. Boolean, or one number on the object and 0 elsewhere.
    tolerance : float
        In pixels of the mask: a miss by no more than that counts as a hit; the paper has 15.

    Returns
    -------
    bool or torch.Tensor
        For ``(H, W)`` a bool, for ``(N, H, W)`` a boolean tensor ``(N,)``. A map that is the same
        everywhere, such as all zero, has no largest value and never hits, nor does one with NaN
        or infinite values. If several values are largest, the first counts, row by row.

    Raises
    ------
    ValueError
        Shapes that do not fit, or an empty or invalid mask.

    Examples
    --------
    >>> import torch, hookviz
    >>> heatmap = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    >>> mask = torch.zeros(4, 4)
    >>> mask[3, 3] = 1
    >>> hookviz.metrics.pointing_game(heatmap, mask)
    True
    """
    check_number("tolerance", tolerance)
    maps, masks, single = _fitting(heatmap, mask)
    large = enlarged(maps, masks.shape[1:])
    hits = []
    for values, inside in zip(large, masks, strict=True):
        row, column = divmod(int(values.argmax()), values.shape[1])
        rows, columns = inside.nonzero(as_tuple=True)
        distance = torch.hypot((rows - row).double(), (columns - column).double()).min()
        informative = bool(values.isfinite().all()) and bool(values.min() < values.max())
        hits.append(informative and float(distance) <= tolerance)
    return hits[0] if single else torch.tensor(hits)


class _Curve(NamedTuple):
    fractions: Tensor
    scores: Tensor
    area: float | Tensor


class Curve(Tabular, _Curve):
    """The score as pixels are removed or inserted; also the tuple of its three attributes.

    Attributes
    ----------
    fractions : torch.Tensor
        ``(steps + 1,)``, the fraction of pixels that is changed, 0 to 1.
    scores : torch.Tensor
        ``(steps + 1,)``, or ``(N, steps + 1)`` for a batch of heatmaps.
    area : float or torch.Tensor
        Under the curve, by the trapezoidal rule; ``(N,)`` for a batch.
    """

    _header = ("sample", "fraction of pixels", "score")

    @property
    def verdict(self) -> str:
        """The area in one line."""
        areas = torch.as_tensor(self.area)
        of = f", mean of {counted(len(areas), 'sample')}" if areas.ndim else ""
        return f"Area under the curve: {number(float(areas.mean()))}{of}"

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per sample and step: ``sample fraction score``."""
        return [
            plain({"sample": sample, "fraction": fraction, "score": score})
            for sample, scores in enumerate(torch.atleast_2d(self.scores).tolist())
            for fraction, score in zip(self.fractions.tolist(), scores, strict=True)
        ]

    def _cells(self) -> list[tuple[str, ...]]:
        rows = zip(self.records(), self.scores.flatten().tolist(), strict=True)
        return [(str(row["sample"]), number(row["fraction"]), number(score)) for row, score in rows]


def deletion_curve(
    model: nn.Module,
    inputs: Any,
    heatmap: Heatmap,
    target: Target = None,
    *,
    steps: int = 50,
    baseline: Baseline = 0.0,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Curve:
    """Measure how fast the class's probability falls as the most important pixels are removed.

    Petsiuk et al. 2018, "RISE: Randomized Input Sampling for Explanation of Black-box Models".
    The smaller the area the better the heatmap.

    Parameters
    ----------
    model : torch.nn.Module
        Runs forward only, in eval mode, ``steps + 1`` times; its state is restored exactly.
    inputs
        A float tensor ``(N, C, *spatial)``, or whatever `hookviz.attribution.prepare_input`
        takes. With several inputs, the first floating-point one is changed.
    heatmap : torch.Tensor or numpy.ndarray
        ``(*spatial)`` for one picture or ``(N, *spatial)``; enlarged to the input's size as in
        `pointing_game`. Equal values are taken row by row.
    target : optional
        None: the top class of the whole picture. A class number or name. A tuple of classes: the
        probability of the first less the mean of the others'. A list: one of these for each
        sample. A function output -> one number: then its value takes the place of the
        probability, and the model runs one row at a time.
    steps : int
        Number of equal parts of the pixels that are removed one after the other; RISE removes
        224 pixels at a time, which is ``steps=224`` for 224×224.
    baseline : float, torch.Tensor or "blur"
        The replacement of a pixel: a value or a tensor that broadcasts to the input (0, as
        RISE, is mid-grey or the data set's mean after the usual normalization), or "blur": the
        picture blurred by RISE's Gaussian, 11 pixels wide with sigma 5, edges repeated.
    weights, transform, class_names : optional
        As for `hookviz.explore`.
    batch_size : int
        How many pictures go through the model at a time.

    Returns
    -------
    Curve
        ``fractions``, ``scores`` and ``area``.

    Raises
    ------
    ValueError
        Shapes that do not fit, NaN in the heatmap, unknown class, or ``steps`` below 1.
    RuntimeError
        The model raised; the message names the layer.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> curve = hookviz.metrics.deletion_curve(
    ...     model, picture, picture.info["mask"], "ball", steps=4
    ... )
    >>> curve.fractions
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    return _curve(session, heatmap, target, steps, baseline, batch_size, put_in=False)


def insertion_curve(
    model: nn.Module,
    inputs: Any,
    heatmap: Heatmap,
    target: Target = None,
    *,
    steps: int = 50,
    baseline: Baseline = "blur",
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Curve:
    """Measure how fast the class's probability rises as the most important pixels are inserted.

    Petsiuk et al. 2018, `deletion_curve` reversed: begins with the baseline, as in
    RISE the blurred picture, and ends with the picture. The larger the area the better the
    heatmap.

    Parameters
    ----------
    model, inputs, heatmap, target, steps, baseline, weights, transform, class_names, batch_size
        As in `deletion_curve`.

    Returns
    -------
    Curve
        As for `deletion_curve`, which raises the same errors.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.demo_model(), hookviz.demo_images()[0]
    >>> curve = hookviz.metrics.insertion_curve(
    ...     model, picture, picture.info["mask"], "ball", steps=4
    ... )
    >>> bool(curve.scores[-1] > curve.scores[0])
    True
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    return _curve(session, heatmap, target, steps, baseline, batch_size, put_in=True)


def _curve(
    session: Session,
    heatmap: Heatmap,
    target: Target,
    steps: int,
    baseline: Baseline,
    batch_size: int,
    put_in: bool,
) -> Curve:
    """Compute scores as pixels, the most important first, are removed or inserted."""
    whole_number("steps", steps)
    values = _numbers(heatmap, "heatmap")
    with session.active(grad=False):
        scorer = Scorer(session, target, batch_size, as_probability=True)
        whole, empty = scorer.pictures, _baseline(baseline, scorer.pictures)
        first, last = (empty, whole) if put_in else (whole, empty)
        count, size = len(whole), whole.shape[2:]
        rank = _ranks(values, count, size).to(whole.device)
        fractions = torch.linspace(0, 1, steps + 1)
        changed = (fractions.double() * size.numel()).round().long().to(whole.device)

        def changed_at(samples: Tensor, step: Tensor) -> Tensor:
            there = rank[samples] < changed[step].view(-1, *(1,) * (rank.ndim - 1))
            pictures = torch.where(there[:, None], last[samples], first[samples])
            return scorer.score(pictures, samples).cpu()

        together = scorer.table(steps + 1, changed_at)
    area = torch.trapezoid(together, fractions.to(together.dtype))
    if values.ndim == len(size):
        return Curve(fractions, together[0], float(area[0]))
    return Curve(fractions, together, area)


def _ranks(values: Tensor, count: int, size: torch.Size) -> Tensor:
    """Return the rank of each pixel by decreasing importance, ``(N, *spatial)``."""
    maps = values[None] if values.ndim == len(size) else values
    if maps.ndim != len(size) + 1 or len(maps) != count:
        raise ValueError(
            f"A heatmap of shape {tuple(values.shape)} does not fit an input of {count} samples of "
            f"size {tuple(size)}: give one map for each sample, (N, *spatial)."
        )
    if not maps.isfinite().all():
        raise ValueError(
            f"The heatmap has {int((~maps.isfinite()).sum())} NaN or infinite values of "
            f"{maps.numel()}, which have no order: clean it first, for example with "
            "torch.nan_to_num."
        )
    order = enlarged(maps, size).flatten(1).argsort(dim=1, descending=True, stable=True)
    return order.argsort(dim=1).view(count, *size)


def _baseline(baseline: Baseline, pictures: Tensor) -> Tensor:
    if isinstance(baseline, str):
        if baseline != "blur":
            raise ValueError(f"Unknown baseline={baseline!r}: give 'blur', a value or a tensor.")
        return blurred(pictures, sigma=5, reach=5)
    return baseline_like("baseline", baseline, pictures)


def _fitting(heatmap: Heatmap, mask: Mask) -> tuple[Tensor, Tensor, bool]:
    """Return heatmaps ``(N, h, w)``, boolean masks ``(N, H, W)``, and True for a single heatmap."""
    values, inside = _numbers(heatmap, "heatmap"), _inside(mask)
    maps, masks = (each[None] if each.ndim == 2 else each for each in (values, inside))
    if (
        not maps.ndim == masks.ndim == 3
        or len(masks) not in (1, len(maps))
        or maps.shape[1] > masks.shape[1]
        or maps.shape[2] > masks.shape[2]
    ):
        raise ValueError(
            f"A heatmap of shape {tuple(values.shape)} does not fit a mask of shape "
            f"{tuple(inside.shape)}: give (H, W) or (N, H, W), one mask or one for each heatmap, "
            "at the size of the model's input."
        )
    return maps, masks.expand(len(maps), -1, -1), values.ndim == 2


def _inside(mask: Mask) -> Tensor:
    """Convert a mask with 0 outside of the object and one larger number inside to booleans."""
    values = _numbers(mask, "mask")
    inside = values > 0
    if values[~inside].any() or len(values[inside].unique()) > 1:
        low, high = (number(float(each)) for each in values.aminmax())
        raise ValueError(
            "A mask is true or one number, such as 1 or 255, on the object, and 0 elsewhere; this "
            f"one has {counted(len(values.unique()), 'value')}, from {low} to {high}. For a map of "
            "labels, give mask == label."
        )
    marked = inside.flatten(-2).any(-1) if values.ndim > 1 else inside.any()
    if not marked.all():
        which = f" of sample {int(marked.byte().argmin())}" if marked.ndim else ""
        raise ValueError(
            f"The mask{which} is 0 everywhere, so that it marks no object: give one that is true "
            "on the object, or leave the picture out."
        )
    return inside


def _numbers(values: Any, name: str) -> Tensor:
    """Convert numbers of any kind to a tensor of float32 or float64 on the CPU."""
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(np.array(values))
        except (TypeError, ValueError):
            raise TypeError(
                f"The {name} is of type {type(values).__name__}: give a tensor or a numpy array."
            ) from None
    values = values.detach().cpu()
    if values.is_complex():
        raise TypeError(f"The {name} is complex: take its absolute value first.")
    if not values.numel():
        raise ValueError(f"The {name} of shape {tuple(values.shape)} has no values.")
    return values if values.dtype == torch.float64 else values.float()
