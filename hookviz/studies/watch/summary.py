"""The summary of a tensor: a few numbers, a histogram and the mean of each channel.

Tensors are summed up on their device, in the hook, before a later layer can overwrite them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from ...run.statistics import Extremes, LogBins, Moments, as_real

STATISTICS = ("mean", "std", "min", "max", "zeros", "nans", "infs", "count")
"""Statistics of a layer's activations, or of the gradients that reach it. NaN and Inf enter the
last three alone; ``zeros`` is a fraction."""

BINS = LogBins(-40, 24)
"""The bins of the histograms: one for each power of two, of either sign."""

_COUNTED = 1 << 12  # values of a tensor that its histogram looks at, about
_SMALL = 1 << 18  # numbers of a tensor that waits for others of its shape
_TOGETHER = 1 << 22  # numbers that wait


@dataclass(frozen=True, eq=False)
class TensorSummary:
    """The statistics of one tensor, or of several; on its device."""

    moments: Moments
    extremes: Extremes
    histogram: Tensor  #: ``(BINS.size,)``; if only some values were counted, scaled to all
    channels: Tensor  #: sum of each channel with its NaN and Inf, ``(C,)``

    def __add__(self, other: TensorSummary) -> TensorSummary:
        other = other.to(self.channels.device)
        return TensorSummary(
            self.moments + other.moments,
            self.extremes + other.extremes,
            self.histogram + other.histogram,
            self.channels + other.channels,
        )

    def each(self, function: Callable[[Tensor], Tensor]) -> TensorSummary:
        """Return the summary with a function applied to each tensor."""
        low, high = map(function, (self.extremes.low, self.extremes.high))
        moments = self.moments.each(function)
        channels = function(self.channels)
        return TensorSummary(moments, Extremes(low, high), function(self.histogram), channels)

    def to(self, device: torch.device) -> TensorSummary:
        """Return the summary on a device."""
        if self.channels.device == device:
            return self
        return self.each(lambda tensor: tensor.to(device))

    def matches(self, other: TensorSummary) -> bool:
        """Return True if both may be of equal tensors, whose sums may differ by rounding."""
        one, two = self.moments, other.moments
        pairs = [(getattr(one, n), getattr(two, n)) for n in ("count", "zeros", "nans", "infs")]
        pairs += [
            (self.extremes.low, other.extremes.low),
            (self.extremes.high, other.extremes.high),
        ]
        return all(torch.equal(*pair) for pair in [*pairs, (self.histogram, other.histogram)])


def summaries_of(values: Tensor, channel: int | None, scale: float = 1.0) -> list[TensorSummary]:
    """Return the summaries of T tensors of one shape, ``(T, *shape)``, real and not empty.

    ``channel`` is the dimension of the channels in the shape; None if there are none. The values
    are divided by ``scale`` in the histograms alone.
    """
    flat = values.reshape(len(values), -1)
    moments, extremes = Moments.of(flat), Extremes.of(flat)
    # An odd step does not meet the same columns in all rows of a map.
    some = flat[:, :: math.ceil(flat.shape[1] / _COUNTED) | 1]
    histogram = BINS.histogram(some if scale == 1 else some / scale)
    histogram = histogram * (flat.shape[1] / some.shape[1])
    if bool((moments.nans + moments.infs).any()):  # no single one may be missed
        minus = (flat == -math.inf).sum(1)
        special = torch.stack([minus, moments.infs - minus, moments.nans], 1)
        histogram[:, [0, -2, -1]] = special.to(histogram.dtype)
    if channel is None:
        channels = flat.sum(1, keepdim=True)
    else:
        others = [axis for axis in range(1, values.ndim) if axis != channel + 1]
        channels = values.sum(others) if others else values
    parts = zip(moments.unbound(), extremes.low, extremes.high, histogram, channels, strict=True)
    return [TensorSummary(m, Extremes(low, high), h, c) for m, low, high, h, c in parts]


@dataclass(eq=False)
class Pending:
    """The summary of a tensor, None until `Summarizer.finish`."""

    summary: TensorSummary | None = None


class Summarizer:
    """Sums up tensors, small ones of one shape together: each call of torch costs time."""

    def __init__(self) -> None:
        self._waiting: dict[tuple, list[tuple[Tensor, Pending]]] = {}
        self._numbers = 0

    def take(self, tensor: Tensor, channel: int | None, scale: float = 1.0) -> Pending:
        """Begin to sum up a tensor, which may change from then on."""
        values = as_real(tensor)
        if not values.is_contiguous():
            # In the order in which they lie in memory, as in channels_last: then nothing is copied.
            order = sorted(range(values.ndim), key=values.stride().__getitem__, reverse=True)
            channel = None if channel is None else order.index(channel)
            values = values.permute(order)
        pending = Pending()
        if values.numel() > _SMALL:
            (pending.summary,) = summaries_of(values[None], channel, scale)
            return pending
        if values.data_ptr() == tensor.data_ptr():
            values = values.clone()
        key = values.shape, channel, values.dtype, values.device, scale
        self._waiting.setdefault(key, []).append((values, pending))
        self._numbers += values.numel()
        if self._numbers > _TOGETHER:
            self.finish()
        return pending

    def finish(self) -> None:
        """Sum up the tensors that wait."""
        waiting, self._waiting, self._numbers = self._waiting, {}, 0
        for (_, channel, _, _, scale), several in waiting.items():
            values = torch.stack([one for one, _ in several])
            found = summaries_of(values, channel, scale)
            for (_, pending), summary in zip(several, found, strict=True):
                pending.summary = summary


@dataclass(frozen=True, eq=False)
class Summary:
    """The statistics of a layer's tensors in a step, as arrays."""

    statistics: np.ndarray  #: in the order of `STATISTICS`, float32
    bins: np.ndarray  #: number of values in each of `BINS`, float32
    channels: np.ndarray  #: mean of each channel, with its NaN and Inf, float32


def collected(groups: Sequence[Sequence[TensorSummary]], scales: Sequence[float]) -> list[Summary]:
    """Merge the summaries of each group, divide the values by its scale, and move all to the CPU.

    Examples
    --------
    >>> import torch
    >>> tensor = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])
    >>> (found,) = collected([summaries_of(tensor[None], 1)], [1.0])
    >>> dict(zip(STATISTICS, found.statistics.tolist()))  # doctest: +ELLIPSIS
    {'mean': 1.0, 'std': 0.816..., 'min': 0.0, 'max': 2.0, 'zeros': 0.25, 'nans': 1.0, ...}
    >>> found.channels.tolist(), found.bins.nonzero()[0].tolist()
    ([1.0, nan], [65, 106, 107, 131])
    """
    if not groups:
        return []
    merged = [reduce(add, group) for group in groups]
    device = merged[0].channels.device
    merged = [one.to(device) for one in merged]  # parts of a model may be on other devices
    moments = Moments.stacked([one.moments for one in merged])
    known, whole = moments.count > 0, moments.size
    divisor = torch.tensor(scales, device=device).to(moments.mean.dtype)
    extremes = [
        torch.stack([getattr(one.extremes, end) for one in merged]) for end in ("low", "high")
    ]
    values = [
        each.where(known, math.nan) / divisor for each in (moments.mean, moments.std, *extremes)
    ]
    counts = [moments.zeros / whole, moments.nans, moments.infs, whole]
    statistics = torch.stack([each.float() for each in (*values, *counts)], 1).cpu().numpy()
    bins = torch.stack([one.histogram.float() for one in merged]).cpu().numpy()
    sums = torch.cat([one.channels.to(moments.mean.dtype) for one in merged]).cpu().numpy()
    sizes = [len(one.channels) for one in merged]
    factors = np.array(sizes) / whole.cpu().numpy() / np.array(scales)
    means = (sums * np.repeat(factors, sizes)).astype(np.float32)
    channels = np.split(means, np.cumsum(sizes)[:-1])
    return [Summary(*each) for each in zip(statistics, bins, channels, strict=True)]
