"""The summary of a tensor: a few numbers, a histogram and the mean of each channel.

Tensors are summed up on their device, in the hook, before a later layer can overwrite them. The
sums of all tensors are merged together at the end of the step: most tensors of a network are small,
and each call of torch costs time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...hooking.tensors import count_nonzero
from ...run.statistics import Extremes, LogBins, Moments, are_exact, as_real

STATISTICS = ("mean", "std", "min", "max", "zeros", "nans", "infs", "count")
"""Statistics of a layer's activations, or of the gradients that reach it. NaN and Inf enter the
last three alone; ``zeros`` is a fraction."""

BINS = LogBins(-40, 24)
"""The bins of the histograms: one for each power of two, of either sign."""

_COUNTED = 1 << 11  # values of a tensor that its histogram looks at, at most
_NOTHING = (0.0,) * 7 + (math.inf, -math.inf)  # the numbers of no tensor


class TensorSums(NamedTuple):
    """The sums of one tensor, in the processor's memory."""

    numbers: tuple[float, ...]  #: those of `Moments`, the number of −Inf, minimum and maximum
    some: Tensor  #: the values that the histogram looks at, ``(S,)``
    channels: Tensor  #: sum of each channel with its NaN and Inf, ``(C,)``


def sums_of(tensor: Tensor, channel: int | None) -> TensorSums:
    """Sum up a tensor that is not empty; ``channel`` is the dimension of its channels, if any."""
    values = as_real(tensor)
    if not values.is_contiguous():
        # In the order in which they lie in memory, as in channels_last: then nothing is copied.
        order = sorted(range(values.ndim), key=values.stride().__getitem__, reverse=True)
        channel = None if channel is None else order.index(channel)
        values = values.permute(order)
    flat, others = values.reshape(-1), [axis for axis in range(values.ndim) if axis != channel]
    channels, size = values.sum(others).reshape(-1), len(flat)
    sums = channels.sum(), torch.linalg.vector_norm(flat), flat.amin(), flat.amax()
    total, norm, low, high = torch.stack(sums).tolist()
    nonzero, raw, minus = int(count_nonzero(flat)), norm * norm, 0
    if not nonzero or are_exact(size, total, raw, values.dtype):
        numbers = [size, total / size, raw - total * total / size, size - nonzero, 0, 0]
    else:
        numbers = [*map(float, Moments.of(flat))]
        low, high = map(float, Extremes.of(flat))
        minus = int((flat == -math.inf).sum())
    # An odd step does not meet the same columns in all rows of a map.
    some = flat[:: math.ceil(size / _COUNTED) | 1].to("cpu", copy=True)
    return TensorSums((*numbers, minus, low, high), some, channels.cpu())


class Summaries(NamedTuple):
    """The summaries of G groups of tensors."""

    statistics: np.ndarray  #: ``(G, 8)`` in the order of `STATISTICS`; NaN for an empty group
    bins: np.ndarray  #: number of values in each of `BINS`, ``(G, BINS.size)``
    channels: list[np.ndarray]  #: mean of each channel, ``(C,)``; empty for an empty group


def merged(groups: Sequence[Sequence[TensorSums]], scales: Sequence[float]) -> Summaries:
    """Merge the sums of each group of tensors, whose values are divided by the group's scale.

    Examples
    --------
    >>> import torch
    >>> tensor = torch.tensor([[0.0, 1.0], [2.0, float("nan")]])
    >>> found = merged([[sums_of(tensor, 1)]], [1.0])
    >>> dict(zip(STATISTICS, found.statistics[0].tolist()))  # doctest: +ELLIPSIS
    {'mean': 1.0, 'std': 0.816..., 'min': 0.0, 'max': 2.0, 'zeros': 0.25, 'nans': 1.0, ...}
    >>> found.channels[0].tolist(), found.bins[0].nonzero()[0].tolist()
    ([1.0, nan], [65, 106, 107, 131])
    """
    most = max(map(len, groups))
    rows = [[*(each.numbers for each in one), *[_NOTHING] * (most - len(one))] for one in groups]
    *counts, minus, low, high = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    moments, extremes = Moments(*counts).merged(1), Extremes(low, high).merged(1)
    whole, scale = moments.size, torch.tensor(scales, dtype=torch.float64)
    values = [
        each.where(moments.count > 0, math.nan) / scale
        for each in (moments.mean, moments.std, *extremes)
    ]
    counts = [moments.zeros / whole, moments.nans, moments.infs, whole]
    statistics = torch.stack([*values, *counts], 1).masked_fill(whole[:, None] == 0, math.nan)

    # One histogram for all: the values of each group have bins of their own.
    several = [(index, each) for index, one in enumerate(groups) for each in one]
    lengths = torch.tensor([len(each.some) for _, each in several])
    sizes = torch.tensor([sum(each.numbers[i] for i in (0, 4, 5)) for _, each in several])
    group = torch.tensor([index for index, _ in several]).repeat_interleave(lengths)
    some = torch.cat([each.some for _, each in several]) / scale[group]
    bins = (BINS.index(some) + group * BINS.size).bincount(
        (sizes / lengths).repeat_interleave(lengths), minlength=len(groups) * BINS.size
    )
    bins = bins.view(len(groups), BINS.size)
    # Every NaN and Inf counts, also between the values that the histogram looks at.
    negative, infs, nans = minus.sum(1), moments.infs, moments.nans
    bins[:, [0, -2, -1]] = torch.stack([negative, infs - negative, nans], 1).to(bins)
    return Summaries(statistics.numpy(), bins.numpy(), _channel_means(groups, whole * scale))


def _channel_means(groups: Sequence[Sequence[TensorSums]], divisors: Tensor) -> list[np.ndarray]:
    """Return the mean of each channel; ``divisors`` are the sizes of the groups, scaled."""
    sums = torch.cat([each.channels for one in groups for each in one]).double().numpy()
    lengths = [sum(len(each.channels) for each in one) for one in groups]
    parts = np.split(sums, np.cumsum(lengths)[:-1])
    return [
        part.reshape(len(one), -1).sum(0) * (len(part) / len(one) / size) if one else part
        for part, one, size in zip(parts, groups, divisors.tolist(), strict=True)
    ]
