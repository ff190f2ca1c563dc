"""What is kept of a layer's maps in one batch: a few numbers for each input and channel.

They are taken in the hook, when nothing has overwritten the maps yet, on the maps' own device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

OCTAVES, PARTS = 48, 4
BINS = 2 * OCTAVES * PARTS
"""Of the sketch: four to each power of two from 2⁻²⁴ to 2²⁴, of either sign."""

PICKED = 2  # values of a map that go into the sketch, at least
_WANTED = 1024  # values of a channel that are wanted there, of a small data set too
_CHUNK = 1 << 17  # numbers that stay in a core's cache from one look to the next
_GOLDEN = (math.sqrt(5) - 1) / 2
_BITS = 21  # of a coordinate in a place's number


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """One layer in one batch: N inputs, C channels."""

    top: Tensor  #: the largest value, ``(N, C)``; −Inf if all are NaN
    place: Tensor  #: where, see `packed`
    moments: Tensor  #: count, mean, and sum of squares about the mean, ``(3, N, C)`` in float64
    zeros: Tensor  #: how many values are zero, ``(N, C)``
    nans: Tensor  #: how many are NaN, ``(N, C)``
    bins: Tensor  #: the bins of picked values, ``(N, C, P)``; ``BINS`` for NaN
    shape: tuple[int, ...]  #: of a map


def rows_of(maps: Tensor, indices: Tensor, length: int, careful: bool) -> BatchStatistics:
    """Sum up maps ``(N, C, *spatial)`` of the inputs ``indices`` out of ``length``.

    NaN are left out only where ``careful``; else they end up in ``top``.
    """
    count, channels, *shape = maps.shape
    flat = maps.detach().reshape(count * channels, -1)
    place, mean, squares, nonzeros = reduced(flat)
    top = flat.gather(1, place[:, None])[:, 0] + 0.0  # −0 is 0
    nans = torch.zeros_like(place)
    if careful and len(bad := top.isnan().nonzero()[:, 0]):
        top[bad], place[bad], mean[bad], squares[bad], nonzeros[bad], nans[bad] = _among_nans(
            flat[bad]
        )
    values = (flat.shape[1] - nans).double()
    moments = torch.stack([values, mean, squares]).view(3, count, channels)

    def by_input(each: Tensor) -> Tensor:
        return each.view(count, channels)

    zeros = flat.shape[1] - nans - nonzeros
    picks = picked(indices, length, flat.shape[1])[:, None].expand(count, channels, -1)
    bins = bin_of(flat.view(count, channels, -1).gather(2, picks))
    where = packed(by_input(place), shape)
    return BatchStatistics(
        by_input(top), where, moments, by_input(zeros), by_input(nans), bins, tuple(shape)
    )


def reduced(rows: Tensor) -> tuple[Tensor, ...]:
    """Of each row the place of its largest value, mean, squares about the mean, and nonzeros."""
    if rows.device.type != "cpu":
        mean = rows.mean(1, dtype=torch.float64)
        squares = (rows - mean[:, None].to(rows.dtype)).square().sum(1, dtype=torch.float64)
        return rows.argmax(1), mean, squares, rows.count_nonzero(1)
    count, size = rows.shape
    place, nonzeros = torch.empty(count, dtype=torch.int64), torch.full((count,), size)
    total, norm = rows.new_empty(count), rows.new_empty(count)
    step = max(1, _CHUNK // size)
    flags, ones = bytearray(min(step, count) * size), rows.new_ones(size)
    for start in range(0, count, step):
        here = slice(start, start + step)
        part, values = rows[here], rows[here].numpy()
        # numpy's argmax is ten times as fast as torch's, and has the first place of several.
        values.argmax(1, out=place[here].numpy())
        torch.sum(part, 1, out=total[here])
        torch.linalg.vector_norm(part, dim=1, out=norm[here])
        np.not_equal(values, 0, out=np.frombuffer(flags, bool, values.size).reshape(values.shape))
        if flags.find(0, 0, values.size) >= 0:  # counted as floats, exact up to 2²⁴: much faster
            nonzeros[here] = (part.ne(0).to(part.dtype) @ ones).long()
    return place, *_spread(rows, total.double(), norm.double(), nonzeros), nonzeros


def _spread(rows: Tensor, total: Tensor, norm: Tensor, nonzeros: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, and squares about it: by their difference, but where that would lose digits."""
    mean, raw = total / rows.shape[1], norm.square()
    if rows.shape[1] == 1:
        return mean, torch.zeros_like(mean)
    squares = raw - total * mean
    lossy = ~(squares > 0.01 * raw) & (nonzeros > 0) | ~raw.isfinite()
    if len(again := lossy.nonzero()[:, 0]):
        mean[again], squares[again] = _about(rows[again], mean[again])
    return mean, squares


def _about(rows: Tensor, about: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and squares, by the differences from a number near the mean."""
    about = about.to(rows.dtype)[:, None]
    away = (rows - about).double()
    further = away.mean(1)
    return about[:, 0].double() + further, (away - further[:, None]).square().sum(1)


def _among_nans(rows: Tensor) -> tuple[Tensor, ...]:
    """The same for rows that have NaN, of their other values."""
    nan = rows.isnan()
    nans = nan.sum(1)
    top, place = rows.masked_fill(nan, -math.inf).max(1)
    filled = rows.masked_fill(nan, 0).double()
    mean = filled.sum(1) / (rows.shape[1] - nans).clamp(min=1)
    squares = (filled - mean[:, None]).masked_fill(nan, 0).square().sum(1)
    return top, place, mean, squares, filled.count_nonzero(1), nans


# A place as one number


def packed(place: Tensor, shape: Sequence[int]) -> Tensor:
    """Places in flattened maps as numbers from which `unpacked` has the coordinates.

    Maps of one data set may differ in size: a place in the flattened map would not do.

    >>> unpacked(int(packed(torch.tensor(7), (3, 5))), 2)
    (1, 2)
    """
    number, left = torch.zeros_like(place), place
    for axis, size in enumerate(reversed(shape)):
        inner = left if axis == len(shape) - 1 else left % size
        number, left = number | inner << _BITS * axis, left // size
    return number


def unpacked(number: int, dimensions: int) -> tuple[int, ...]:
    """The coordinates of a place, outermost first."""
    if dimensions == 1:
        return (number,)
    mask = (1 << _BITS) - 1
    return tuple(number >> _BITS * axis & mask for axis in reversed(range(dimensions)))


# The sketch


def picked(indices: Tensor, length: int, size: int) -> Tensor:
    """Which places of each input's map are looked at, ``(N, P)``: spread evenly, by its index."""
    count = min(size, max(PICKED, math.ceil(_WANTED / length)))
    step = torch.arange(count, device=indices.device)
    turn = (indices[:, None] * count + step).double() * _GOLDEN
    return ((turn - turn.floor()) * size).long().clamp(max=size - 1)


def bin_of(values: Tensor) -> Tensor:
    """The bin of each value; ``BINS`` for NaN.

    >>> bin_of(torch.tensor([-1.0, 0.0, 1.0, 1.25, float("nan")])).tolist()
    [95, 192, 288, 289, 384]
    """
    return _bins(values.device)[_leading(values)]


def _leading(values: Tensor) -> Tensor:
    """Sign, exponent and two bits of the mantissa: in the values' order, within a sign."""
    return (values.float().contiguous().view(torch.int32) >> 21) + 1024


@cache
def _bins(device: torch.device) -> Tensor:
    """The bin of each `_leading`."""
    size = torch.arange(1024) - ((127 - OCTAVES // 2) * PARTS)
    size = size.clamp(0, BINS // 2 - 1)
    size[1021:] = BINS // 2  # NaN
    negative = BINS // 2 - 1 - size
    negative[0], negative[1021:] = BINS // 2, BINS  # −0
    return torch.cat([negative, BINS // 2 + size]).to(device)


def edges() -> list[float]:
    """Where the bins begin and end, ``BINS + 1`` values."""
    octave = [2.0**power for power in range(-OCTAVES // 2, OCTAVES // 2)]
    upper = [start * (1 + part / PARTS) for start in octave for part in range(PARTS)]
    upper = [0.0, *upper[1:], 2.0 ** (OCTAVES // 2)]
    return [-each for each in reversed(upper[1:])] + upper


def quantiles(bins: Tensor, q: float) -> Tensor:
    """Below which value a share ``q`` of the counted ones lie, of each channel; NaN of none.

    ``bins`` is ``(BINS + 1, C)``, its last row of NaN. Within a bin the values are taken to be
    spread evenly.
    """
    counts = bins[:BINS].double()
    below, total = counts.cumsum(0), counts.sum(0)
    wanted = q * total
    place = ((below < wanted) | (below == 0)).sum(0).clamp(max=BINS - 1)
    inside = counts.gather(0, place[None])[0]
    before = below.gather(0, place[None])[0] - inside
    part = ((wanted - before) / inside.clamp(min=1)).clamp(0, 1)
    edge = torch.tensor(edges(), dtype=torch.float64)
    found = edge[place] + part * (edge[place + 1] - edge[place])
    return found.where(total > 0, torch.nan)
