"""The summary of a tensor: a few numbers, a histogram and the mean of each channel.

Tensors are summed up on their device, in the hook, before a later layer can overwrite them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...run.statistics import (
    Extremes,
    LogBins,
    Moments,
    are_exact,
    as_real,
    count_nonzero,
    wide,
)

STATISTICS = ("mean", "std", "min", "max", "zeros", "nans", "infs", "count")
"""Statistics of a layer's activations, or of the gradients that reach it. NaN and Inf enter the
last three alone; ``zeros`` is a fraction."""

BINS = LogBins(-40, 24)
"""The bins of the histograms: one for each power of two, of either sign."""

_COUNTED = 1 << 12  # values of a tensor that its histogram looks at, about


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


def _by_channel(values: Tensor, channel: int | None) -> Tensor:
    """Return the sum of each channel, ``(C,)``; one number without channels."""
    if channel is None:
        return values.sum().reshape(1)
    others = [axis for axis in range(values.ndim) if axis != channel]
    return values.sum(others) if others else values.clone()


def _some(flat: Tensor) -> Tensor:
    """Return the values that the histogram looks at."""
    # An odd step does not meet the same columns in all rows of a map.
    return flat[:: math.ceil(len(flat) / _COUNTED) | 1]


def summary_of(values: Tensor, channel: int | None, scale: float = 1.0) -> TensorSummary:
    """Return the summary of a tensor, real and not empty.

    ``channel`` is the dimension of the channels; None if there are none. The values are divided by
    ``scale`` in the histogram alone.
    """
    flat = values.reshape(-1)
    moments, extremes = Moments.of(flat), Extremes.of(flat)
    some = _some(flat)
    histogram = BINS.histogram(some / scale) * (len(flat) / len(some))
    minus = (flat == -math.inf).sum()
    # Every NaN and Inf counts, also between the values that the histogram looks at.
    special = torch.stack([minus, moments.infs - minus, moments.nans])
    histogram[[0, -2, -1]] = special.to(histogram.dtype)
    return TensorSummary(moments, extremes, histogram, _by_channel(values, channel))


@dataclass(eq=False)
class Pending:
    """The summary of a tensor, None until `Summarizer.finish`."""

    mark: str  #: equal for equal tensors
    summary: TensorSummary | None = None


class Sums(NamedTuple):
    """Sums of a tensor whose values are finite, from which its summary is made later."""

    pending: Pending
    size: int
    total: float
    raw: float  #: sum of the squares
    nonzero: int
    low: float
    high: float
    some: Tensor  #: values for the histogram, divided by the scale
    channels: Tensor


class Summarizer:
    """Sums up tensors: `take` makes the few sums that need all values, `finish` the rest.

    Most tensors of a network are small, and each call of torch costs time: so `finish` treats them
    together.
    """

    def __init__(self) -> None:
        self._waiting: list[Sums] = []

    def take(self, tensor: Tensor, channel: int | None, scale: float = 1.0) -> Pending:
        """Begin to sum up a tensor, which may change from then on."""
        values = as_real(tensor)
        if not values.is_contiguous():
            # In the order in which they lie in memory, as in channels_last: then nothing is copied.
            order = sorted(range(values.ndim), key=values.stride().__getitem__, reverse=True)
            channel = None if channel is None else order.index(channel)
            values = values.permute(order)
        flat, channels = values.reshape(-1), _by_channel(values, channel)
        size = len(flat)
        sums = channels.sum(), torch.linalg.vector_norm(flat), flat.amin(), flat.amax()
        total, norm, low, high = torch.stack(sums).tolist()
        nonzero, raw = int(count_nonzero(flat)), norm * norm
        pending = Pending(str((size, nonzero, low, high)))  # as text, NaN is equal to itself
        if not nonzero or are_exact(size, total, raw, values.dtype):
            some = _some(flat) / scale  # a copy, also where the scale is 1
            waits = Sums(pending, size, total, raw, nonzero, low, high, some, channels)
            self._waiting.append(waits)
        else:
            pending.summary = summary_of(values, channel, scale)
        return pending

    def finish(self) -> None:
        """Sum up the tensors that wait: those together whose histograms are of one size."""
        groups: dict[tuple, list[Sums]] = {}
        for waits in self._waiting:
            key = len(waits.some), waits.some.dtype, waits.some.device
            groups.setdefault(key, []).append(waits)
        self._waiting = []
        for group in groups.values():
            _finish(group)


def _finish(group: list[Sums]) -> None:
    """Make the summaries of tensors with as many values for their histograms."""
    some = torch.stack([waits.some for waits in group])
    dtype = wide(some.device)
    numbers = torch.tensor([waits[1:7] for waits in group], dtype=dtype, device=some.device)
    size, total, raw, nonzero, low, high = numbers.unbind(1)
    size, nonzero = size.long(), nonzero.long()
    moments = Moments.of_sums(size, total, raw, nonzero).unbound()
    histograms = BINS.histogram(some) * (size / some.shape[1])[:, None]
    rows = zip(group, moments, low, high, histograms, strict=True)
    for waits, own, least, most, histogram in rows:
        ends = Extremes(least, most)
        waits.pending.summary = TensorSummary(own, ends, histogram, waits.channels)


@dataclass(frozen=True, eq=False)
class Summary:
    """The statistics of a layer's tensors in a step, as arrays."""

    statistics: np.ndarray  #: in the order of `STATISTICS`, float32
    bins: np.ndarray  #: number of values in each of `BINS`, float32
    channels: np.ndarray  #: mean of each channel, with its NaN and Inf, float32

    def missing(self) -> Summary:
        """Return a summary of the same size for tensors that are missing."""
        return Summary(
            np.full_like(self.statistics, np.nan),
            np.zeros_like(self.bins),
            np.full_like(self.channels, np.nan),
        )


def collected(groups: Sequence[Sequence[TensorSummary]], scales: Sequence[float]) -> list[Summary]:
    """Merge the summaries of each group, divide the values by its scale, and move all to the CPU.

    Examples
    --------
    >>> import torch
    >>> tensor = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])
    >>> (found,) = collected([[summary_of(tensor, 1)]], [1.0])
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
