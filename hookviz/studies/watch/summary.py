"""The summary of a tensor: a few numbers, a histogram and the mean of each channel.

Tensors are summed up on their device, in the hook, before a later layer can overwrite them. The
sums of all tensors are moved to the CPU and merged together at the end of the step: most tensors of
a network are small, each call of torch costs time, and an accelerator would wait for each transfer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...hooking.tensors import as_real, count_nonzero, on_cpu, wide
from ...run.statistics import LogBins, Moments, are_exact

STATISTICS = ("mean", "std", "min", "max", "zeros", "nans", "infs", "count")
"""Statistics of a layer's activations, or of the gradients that reach it. NaN and Inf enter the
last three alone; ``zeros`` is a fraction."""

BINS = LogBins(-40, 24)
"""The bins of the histograms: one for each power of two, of either sign."""

_COUNTED = 1 << 11  # values of a tensor that its histogram looks at, at most
_NOTHING = (0.0,) * 7 + (math.inf, -math.inf)  # the size and the numbers of no tensor


class TensorSums(NamedTuple):
    """The sums of one tensor, on its device."""

    size: int  #: the number of values
    #: Mean and variance, with 0 in place of NaN and Inf; the numbers of values other than 0, of
    #: NaN, Inf and −Inf; minimum and maximum without these: ``(8,)``.
    numbers: Tensor
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
    channels = values.sum(others).reshape(-1)
    # Only a CPU can look at the sums at once without losing time.
    numbers = _quick_numbers(flat, channels) if flat.device.type == "cpu" else None
    # An odd step does not meet the same columns in all rows of a map.
    some = flat[:: math.ceil(len(flat) / _COUNTED) | 1].clone()
    numbers = _numbers(flat) if numbers is None else numbers
    return TensorSums(len(flat), numbers, some, channels)


def _quick_numbers(flat: Tensor, channels: Tensor) -> Tensor | None:
    """Return the numbers of values on the CPU; None if their sums do not determine them."""
    sums = channels.sum(), torch.linalg.vector_norm(flat), flat.amin(), flat.amax()
    total, norm, low, high = torch.stack(sums).tolist()
    size, nonzero, raw = len(flat), int(count_nonzero(flat)), norm * norm
    if nonzero and not are_exact(size, total, raw, flat.dtype):
        return None
    variance = (raw - total * total / size) / size
    numbers = [total / size, variance, nonzero, 0, 0, 0, low, high]
    return torch.tensor(numbers, dtype=torch.float64)


def _numbers(flat: Tensor) -> Tensor:
    """Return the numbers of any values, in few operations and without a look at them."""
    finite = flat.nan_to_num(0.0, 0.0, 0.0)
    variance, mean = torch.var_mean(finite.to(wide(flat.device)), correction=0)
    masks = [finite != 0, flat != flat, flat == math.inf, flat == -math.inf]
    counts = torch.stack(masks).sum(1)
    low = flat.nan_to_num(math.inf, math.inf, math.inf).amin()
    high = flat.nan_to_num(-math.inf, -math.inf, -math.inf).amax()
    return torch.stack([mean, variance, *counts.to(mean), low.to(mean), high.to(mean)])


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
    several = [each for one in groups for each in one]
    lengths, *parts = zip(*several, strict=True)
    numbers, some, channels = map(on_cpu, parts)
    group = torch.tensor([index for index, one in enumerate(groups) for _ in one])
    index = torch.tensor([index for one in groups for index in range(len(one))])
    table = torch.tensor(_NOTHING, dtype=torch.float64).repeat(len(groups), int(index.max()) + 1, 1)
    size = torch.tensor(lengths, dtype=torch.float64)
    table[group, index] = torch.cat([size[:, None], torch.stack(numbers)], 1)
    *columns, low, high = table.unbind(-1)
    moments, minus = _moments(*columns)
    moments, minus = moments.merged(1), minus.sum(1)
    whole, scale = moments.size, torch.tensor(scales, dtype=torch.float64)
    scaled = [
        each.where(moments.count > 0, math.nan) / scale
        for each in (moments.mean, moments.std, low.amin(1), high.amax(1))
    ]
    counts = [moments.zeros / whole, moments.nans, moments.infs, whole]
    statistics = torch.stack([*scaled, *counts], 1).masked_fill(whole[:, None] == 0, math.nan)

    # One histogram for all: the values of each group have bins of their own.
    counted = torch.tensor([*map(len, some)])
    owner = group.repeat_interleave(counted)
    values = torch.cat(some) / scale[owner]
    bins = (BINS.index(values) + owner * BINS.size).bincount(
        (size / counted).repeat_interleave(counted), minlength=len(groups) * BINS.size
    )
    bins = bins.view(len(groups), BINS.size)
    # Every NaN and Inf counts, also between the values that the histogram looks at.
    special = [minus, moments.infs - minus, moments.nans]
    bins[:, [0, -2, -1]] = torch.stack(special, 1).to(bins)
    sums = torch.cat(channels).double().numpy()
    means = _channel_means(groups, sums, whole * scale)
    return Summaries(statistics.numpy(), bins.numpy(), means)


def _moments(
    size: Tensor,
    mean: Tensor,
    variance: Tensor,
    nonzero: Tensor,
    nans: Tensor,
    plus: Tensor,
    minus: Tensor,
) -> tuple[Moments, Tensor]:
    """Return the moments of the finite values, and the number of −Inf."""
    others = nans + plus + minus
    count = size - others
    own = size * mean / count.clamp(min=1)
    squares = variance * size - count * (own - mean).square() - others * mean.square()
    zeros = count - nonzero
    return Moments(count, own, squares, zeros, nans, plus + minus), minus


def _channel_means(
    groups: Sequence[Sequence[TensorSums]], sums: np.ndarray, divisors: Tensor
) -> list[np.ndarray]:
    """Return the mean of each channel; ``divisors`` are the sizes of the groups, scaled."""
    lengths = [sum(len(each.channels) for each in one) for one in groups]
    parts = np.split(sums, np.cumsum(lengths)[:-1])
    return [
        part.reshape(len(one), -1).sum(0) * (len(part) / len(one) / size) if one else part
        for part, one, size in zip(parts, groups, divisors.tolist(), strict=True)
    ]
