"""One layer, call, sample and depth as arrays and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..draw.colours import to_numpy
from ..hooking.maps import as_maps
from ..hooking.records import FeatureCache, LayerRecord
from ..hooking.tensors import at_least_float32
from ..run.statistics import Moments, extremes_of


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
    values = torch.from_numpy(maps.reshape(len(maps), -1))
    moments, (low, high) = Moments.of(values), extremes_of(values)
    unknown = moments.count == 0
    norm = moments.norm
    if not norm.isfinite().all():  # squares overflow long before their root does
        most = torch.maximum(-low, high).clamp(min=1)
        norm = most * Moments.of(values / most[:, None]).norm
    known = (low, high, moments.mean, norm)
    least, largest, mean, length = (each.masked_fill(unknown, torch.nan).numpy() for each in known)
    zeros = (moments.zeros / values.shape[1]).numpy()
    nans, infs = moments.nans.numpy(), moments.infs.numpy()
    return ChannelStatistics(least, largest, mean, zeros, length, nans, infs, values.shape[1])


SCORE_DROP, SIMILARITY = "score drop", "similarity"
VALUE, CONTRAST, CONTRIBUTION = HERE = ("value", "contrast", "contribution")
GRADIENT, WEIGHT = "gradient", "gradcam weight"
FIXED = ("index", "mean", "max", "zeros", GRADIENT, WEIGHT)
ORDERS = (*FIXED, SCORE_DROP, *HERE, SIMILARITY)
"""Channel orders: by index, or the largest mean, maximum, fraction of zeros, gradient norm or
Grad-CAM weight first; or the largest drop of the target's score without the channel, for which
the model runs. At the chosen position: the largest value, the value most standard deviations above
the channel's mean, or the largest activation × gradient. Or the maps most like one channel's."""

ORDER_NAMES = {
    "index": "number",
    "mean": "largest mean",
    "max": "largest maximum",
    "zeros": "most zeros",
    GRADIENT: "largest gradient",
    WEIGHT: "Grad-CAM weight",
    SCORE_DROP: "score lost if switched off (runs the model)",
    VALUE: "value here",
    CONTRAST: "z-score here",
    CONTRIBUTION: "value × gradient here",
    SIMILARITY: "similarity",
}
"""Order -> its words in a menu."""


def channel_order(view: LayerView, order: str, scores: np.ndarray | None = None) -> np.ndarray:
    """Return channel numbers in the order in which they are stepped through, ``(C,)``.

    ``scores``, ``(C,)``, are those of an order that is not `FIXED`.
    """
    gradients = view.gradient_statistics
    if order in ("mean", "max", "zeros"):
        scores = getattr(view.statistics, order)
    elif order in FIXED:
        of_gradient = {
            WEIGHT: view.weights,
            GRADIENT: None if gradients is None else gradients.norm,
        }
        scores = of_gradient.get(order)
    if scores is None:
        return np.arange(len(view.maps))
    # NaN, a channel without any finite value, goes last; equals stay in order.
    return np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")


def contributions_in(layer: LayerView) -> np.ndarray | None:
    """Return each channel's sum of activation × gradient, ``(C,)``; None without gradients.

    To first order, this is what the score loses without the channel.

    Examples
    --------
    >>> maps = np.array([[[1.0, 2.0]], [[3.0, 0.0]]])
    >>> contributions_in(LayerView(maps, -maps, None, 1, 1)).tolist()
    [-5.0, -9.0]
    """
    if layer.gradients is None:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        products = layer.maps.astype(np.float64) * layer.gradients
        return np.nan_to_num(products.sum((1, 2)), nan=-np.inf)


def scores_at(view: LayerView, order: str, row: int, column: int) -> np.ndarray | None:
    """Return each channel's score at a position for one of the orders `HERE`, ``(C,)`` doubles.

    The value; its distance from the channel's mean in standard deviations of the channel, over the
    finite values, 0 where all are the same; or activation × gradient, None without gradients.

    Examples
    --------
    >>> maps = np.array([[[0.0, 4.0, 8.0]], [[5.0, 5.0, 5.0]]])
    >>> view = LayerView(maps, -maps, None, 1, 1)
    >>> [scores_at(view, order, 0, 1).tolist() for order in HERE]
    [[4.0, 5.0], [0.0, 0.0], [-16.0, -25.0]]
    """
    values = view.maps[:, row, column].astype(np.float64)
    if order == VALUE:
        return values
    if order == CONTRIBUTION:
        return None if view.gradients is None else values * view.gradients[:, row, column]
    flat = view.maps.reshape(len(view.maps), -1).astype(np.float64)
    finite = np.isfinite(flat)
    count, known = np.maximum(finite.sum(1), 1), np.where(finite, flat, 0)
    means = known.sum(1) / count
    away = np.where(finite, flat - means[:, None], 0)
    deviations = np.sqrt((away**2).sum(1) / count)
    least, most = view.statistics.min, view.statistics.max
    deviations[least == most], means[least == most] = 1, least[least == most]
    deviations[np.isnan(least)] = np.nan  # no finite value
    return (values - means) / deviations


def similarities(maps: np.ndarray, like: int) -> np.ndarray:
    """Return the cosine of each map ``(C, H, W)`` with one of them, ``(C,)`` doubles.

    NaN where a map is zero or not finite; infinite for the map itself, so that it is first.

    Examples
    --------
    >>> similarities(np.array([[[1.0, 0.0]], [[3.0, 4.0]], [[0.0, 0.0]]]), 0).tolist()
    [inf, 0.6, nan]
    """
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    most = np.abs(flat).max(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        flat = flat / most  # squares overflow long before their root does
        found = flat @ flat[like] / np.sqrt((flat**2).sum(1) * (flat[like] ** 2).sum())
    found[like] = np.inf
    return found


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
    text = ["×".join(_sizes(module, "kernel_size"))]
    for name in ("stride", "dilation"):
        sizes = _sizes(module, name)
        if alike := set(sizes) - {"1"}:
            text.append(f"{name} {'×'.join(sizes if len(set(sizes)) > 1 else alike)}")
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


def _sizes(module: nn.Module | None, name: str) -> list[str]:
    """Return a kernel's size or stride in each dimension."""
    sizes = getattr(module, name, None)
    numbers = sizes if isinstance(sizes, tuple) else (sizes,)
    return [str(each) for each in numbers] if all(isinstance(n, int) for n in numbers) else []
