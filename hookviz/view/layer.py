"""One layer, call, sample and depth as arrays, each channel's statistics; a layer in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..draw.arrays import all_finite, to_numpy
from ..hooking.records import FeatureCache, LayerRecord
from ..hooking.tensors import as_maps, at_least_float32


@dataclass(frozen=True, eq=False)
class ChannelStatistics:
    """Statistics of each channel's map, ``(C,)``; min, max, mean, norm over the finite values."""

    min: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    zeros: np.ndarray  # fraction, 0 to 1
    norm: np.ndarray  # sqrt(sum(x**2))
    nans: np.ndarray
    infs: np.ndarray
    positions: int  # of each map

    @property
    def silent(self) -> np.ndarray:
        """True for each channel that is zero everywhere."""
        return (self.min == 0) & (self.max == 0)

    @property
    def constant(self) -> np.ndarray:
        """True for each channel with the same value everywhere."""
        return self.min == self.max if self.positions > 1 else self.silent

    @property
    def still(self) -> str:
        """The number of such channels, in words: ``"3 silent, 1 constant"``; or empty."""
        silent = int(self.silent.sum())
        counts = {"silent": silent, "constant": int(self.constant.sum()) - silent}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


@dataclass(frozen=True, eq=False)
class LayerView:
    """One layer, call, sample and depth, ready to draw."""

    maps: np.ndarray  # float32 (C, H, W); a 1d layer's have H = 1
    gradients: np.ndarray | None  # the same shape
    weights: np.ndarray | None  # Grad-CAM's (C,): each channel's mean gradient
    samples: int  # the number to choose from
    depths: int

    # On demand: heatmaps of other classes need all layers' gradients but no statistics.
    @cached_property
    def statistics(self) -> ChannelStatistics:
        """Statistics of the maps."""
        return channel_statistics(self.maps)

    @cached_property
    def gradient_statistics(self) -> ChannelStatistics | None:
        """Statistics of the gradients."""
        return None if self.gradients is None else channel_statistics(self.gradients)

    @property
    def signed(self) -> bool:
        """True if any value is negative: then zero is in the middle of the colours."""
        return bool((self.statistics.min < 0).any())


def layer_view(
    activation: Tensor,
    gradient: Tensor | None,
    module: nn.Module | None = None,
    sample: int = 0,
    depth: int = 0,
    grid: tuple[int, ...] | None = None,
) -> LayerView:
    """Cut one sample, and one slice of a volume, out of a layer's tensors, see `as_maps`.

    ``sample`` and ``depth`` are clipped to the last one.
    """
    stacked = as_maps(activation, module, grid)
    if not stacked.numel():
        raise ValueError(f"The layer returned an empty tensor, shape {tuple(activation.shape)}.")
    sample = min(sample, len(stacked) - 1)
    depths = stacked.shape[2] if stacked.ndim == 5 else 1
    depth = min(depth, depths - 1)

    def cut(tensor: Tensor) -> np.ndarray:
        maps = as_maps(tensor, module, grid)[sample]
        if maps.ndim == 4:
            maps = maps[:, depth]
        return to_numpy(maps[:, None] if maps.ndim == 2 else maps)

    maps = cut(activation)
    gradients = weights = None
    if gradient is not None:
        gradients = cut(gradient)
        whole = at_least_float32(as_maps(gradient, module, grid)[sample])
        weights = to_numpy(whole.flatten(1).mean(1))
    return LayerView(maps, gradients, weights, len(stacked), depths)


def channel_statistics(maps: np.ndarray) -> ChannelStatistics:
    """Compute statistics of every map of ``(C, H, W)``; NaN where a map has no finite value."""
    flat = maps.reshape(len(maps), -1)
    zeros = 1 - np.count_nonzero(flat, axis=1) / flat.shape[1]
    nans = infs = np.zeros(len(flat), int)
    count: int | np.ndarray = flat.shape[1]
    if not all_finite(flat):
        finite = np.isfinite(flat)
        nans = np.isnan(flat).sum(1)
        infs = flat.shape[1] - finite.sum(1) - nans
        count = np.maximum(finite.sum(1), 1)
        flat = np.where(finite, flat, np.nan)
    # fmin and fmax ignore NaN, and give NaN without a warning for nothing but NaN.
    low, high = np.fmin.reduce(flat, 1), np.fmax.reduce(flat, 1)
    known = flat if not nans.any() and not infs.any() else np.nan_to_num(flat)
    mean = np.where(np.isnan(low), np.nan, known.sum(1) / count)
    norm = np.sqrt(np.einsum("ij,ij->i", known, known))
    if not np.isfinite(norm).all():  # squares overflow long before their root does
        most = np.maximum(np.abs(known).max(1), np.finfo(known.dtype).tiny)
        scaled = known / most[:, None]
        norm = most * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    norm = np.where(np.isnan(low), np.nan, norm)  # not 0 for nothing but NaN
    return ChannelStatistics(low, high, mean, zeros, norm, nans, infs, flat.shape[1])


ABLATION = "ablation"
ORDERS = ("index", "mean", "max", "zeros", "gradient", "weight", ABLATION)
"""Channel orders: by index, or the largest mean, maximum, fraction of zeros, gradient norm or
Grad-CAM weight first; or the largest drop of the target's score without the channel, for which
the model runs."""


def channel_order(
    view: LayerView, order: str, ablation_scores: np.ndarray | None = None
) -> np.ndarray:
    """Return channel numbers in the order in which they are stepped through, ``(C,)``.

    ``ablation_scores``, ``(C,)``, are the ablation_scores of the score without each.
    """
    gradients = view.gradient_statistics
    if order == ABLATION:
        return (
            np.arange(len(view.maps))
            if ablation_scores is None
            else np.argsort(-ablation_scores, kind="stable")
        )
    if order == "index" or (order in ("gradient", "weight") and gradients is None):
        return np.arange(len(view.maps))
    if gradients is not None and view.weights is not None and order in ("gradient", "weight"):
        key = gradients.norm if order == "gradient" else view.weights
    else:
        key = getattr(view.statistics, order)
    # NaN, a channel without any finite value, goes last; equals stay in order.
    return np.argsort(-np.nan_to_num(key, nan=-np.inf), kind="stable")


def showable(cache: FeatureCache) -> list[str]:
    """Return the layers whose (first) output can be arranged as maps and is not empty."""
    return [name for name in cache if not why_not_shown(cache[name])]


def why_not_shown(record: LayerRecord) -> str:
    """Return the reason why a layer cannot be shown; empty if it can."""
    call = record.last
    if not call.outputs:
        return "it returned no tensor"
    shape = call.outputs[0].shape
    if not math.prod(shape):
        return f"it returned an empty tensor, shape {tuple(shape)}"
    try:  # the shape is known without values
        as_maps(torch.empty(shape, device="meta"), call.module, call.grid)
    except ValueError as error:
        return str(error)
    return ""


# A layer in words


class LayerWords(NamedTuple):
    """The description of a layer.

    Attributes
    ----------
    kind : str
        Its type, such as ``Conv2d``.
    text : str
        Kernel, stride, channels, groups and parameters; only what it has.
    size : str
        The output's size for one sample, ``96×14×14``.
    """

    kind: str
    text: str
    size: str

    @property
    def line(self) -> str:
        """All of it, in one line."""
        return " · ".join(filter(None, (f"{self.kind} {self.text}".strip(), self.size)))


def layer_words(record: LayerRecord) -> LayerWords:
    """Describe a layer that has run.

    Examples
    --------
    >>> import torch
    >>> from hookviz import capture
    >>> conv = torch.nn.Conv2d(48, 96, 3, stride=2, padding=1, groups=4)
    >>> with capture(conv) as cache:
    ...     _ = conv(torch.zeros(1, 48, 28, 28))
    >>> layer_words(cache[""]).line
    'Conv2d 3×3, stride 2, 48 → 96 channels, groups 4, 10,464 parameters · 96×14×14'
    """
    module: Any = record.module
    text = [_sizes(getattr(module, "kernel_size", None), always=True)]
    for name in ("stride", "dilation"):
        if said := _sizes(getattr(module, name, None)):
            text.append(f"{name} {said}")
    ends = [
        (getattr(module, f"in_{what}", None), getattr(module, f"out_{what}", None), what)
        for what in ("channels", "features")
    ]
    text += [f"{a} → {b} {w}" for a, b, w in ends if isinstance(a, int) and isinstance(b, int)]
    groups = getattr(module, "groups", 1)
    text += [f"groups {groups}"] if isinstance(groups, int) and groups > 1 else []
    count = sum(parameter.numel() for parameter in module.parameters())
    text += [f"{count:,} parameters"] if count else []
    outputs = record.last.outputs
    size = outputs[0].shape if outputs else ()
    kernel = getattr(module, "kernel_size", None)
    unbatched = isinstance(kernel, tuple) and len(size) == len(kernel) + 1
    shown = size if unbatched else size[1:]
    return LayerWords(
        type(module).__name__, ", ".join(filter(None, text)), "×".join(map(str, shown))
    )


def _sizes(given: Any, always: bool = False) -> str:
    """Format a kernel's size as ``3×3``; a stride as ``2``, or empty if it is 1."""
    numbers = given if isinstance(given, tuple) else (given,)
    if not numbers or not all(isinstance(each, int) for each in numbers):
        return ""
    if always:
        return "×".join(map(str, numbers))
    if set(numbers) == {1}:
        return ""
    return str(numbers[0]) if len(set(numbers)) == 1 else "×".join(map(str, numbers))
