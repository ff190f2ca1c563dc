"""What is known of every channel: its largest values, and running statistics.

Two shards can be added in any order. Counts are whole numbers, and the largest values are ordered
by value and then by index: both are the same to the bit, however the data set was cut. Means and
squares are float64 sums, which round by the order in which they are added: they agree to 12 digits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .batch_statistics import BINS, BatchStatistics

NONE = torch.iinfo(torch.int64).max
"""In place of an index, where there is none."""


class Column(NamedTuple):
    """One layer's channels, in one of its runs."""

    order: int  #: among the model's layers
    name: str
    kind: str
    call: int  #: which of its runs in a forward
    channels: int
    dimensions: int  #: of a map


RANKED = ("values", "indices", "places", "labels")
_BLANK = {"values": -math.inf, "indices": NONE, "places": 0, "labels": -1}
_BLANK |= {"zeros": 0, "nans": 0, "first_nan": NONE, "bins": 0, "moments": 0}
_TYPES = {"values": torch.float32, "labels": torch.int32, "bins": torch.int32}
_TYPES["moments"] = torch.float64


class RunningStatistics:
    """The table; of each tensor the last dimension is all layers' channels, one after the other.

    Parameters
    ----------
    k : int
        How many of the largest values are kept.
    device : torch.device, optional
        Where it is kept.

    Attributes
    ----------
    layout : dict
        ``Column`` -> the largest shape of its maps, in the order of the columns.
    data : dict of str to torch.Tensor
        values, indices, places, labels ``(k, C)``, largest first; zeros, nans, first_nan ``(C,)``;
        bins ``(BINS + 1, C)``, the last row of NaN; moments ``(3, C)``: count, mean and squares
        about the mean.
    """

    def __init__(self, k: int, device: torch.device | str = "cpu") -> None:
        self.k, self.layout = k, dict[Column, tuple[int, ...]]()
        high = {**dict.fromkeys(RANKED, (k, 0)), "bins": (BINS + 1, 0), "moments": (3, 0)}
        self.data = {
            name: torch.empty(high.get(name, (0,)), dtype=_TYPES.get(name, torch.int64)).to(device)
            for name in _BLANK
        }

    @property
    def width(self) -> int:
        """How many channels all layers have."""
        return sum(column.channels for column in self.layout)

    def slices(self) -> dict[Column, slice]:
        """Where each layer's channels are."""
        found, start = {}, 0
        for column in self.layout:
            found[column] = slice(start, start + column.channels)
            start += column.channels
        return found

    def add(
        self,
        indices: Tensor,
        labels: Tensor,
        found: Mapping[Column, BatchStatistics],
        *,
        in_order: bool = False,
    ) -> None:
        """Take in a batch: the inputs ``indices``; ``in_order`` if all others are before them."""
        self._align({column: rows.shape for column, rows in found.items()})
        count, moments = len(indices), self.data["moments"]
        top = torch.full((count, self.width), -math.inf, device=indices.device)
        where = torch.zeros(count, self.width, dtype=torch.int64, device=indices.device)
        for column, here in self.slices().items():
            if (rows := found.get(column)) is None:  # did not run this time
                continue
            if rows.top.dtype == torch.float64 and top.dtype != rows.top.dtype:
                top, self.data["values"] = top.double(), self.data["values"].double()
            moments[:, here] = pooled(torch.cat([moments[:, None, here], rows.moments], 1))
            top[:, here], where[:, here] = rows.top, rows.place
            self.data["zeros"][here] += rows.zeros.sum(0)
            self._sketch(here, rows)
            self._note_nans(here, rows, indices)
        self._rank(top, where, indices, labels, in_order)

    def __add__(self, other: RunningStatistics) -> RunningStatistics:
        one, two = copy.copy(self), copy.copy(other)
        for each in (one, two):
            each.data, each.layout = dict(each.data), dict(each.layout)
        one._align(two.layout)
        two._align(one.layout)
        pairs = {name: torch.cat([one.data[name], two.data[name]]) for name in RANKED}
        one.data |= _largest(pairs, self.k)
        for name in ("zeros", "nans", "bins"):
            one.data[name] = one.data[name] + two.data[name]
        one.data["first_nan"] = torch.minimum(one.data["first_nan"], two.data["first_nan"])
        both = torch.stack([one.data["moments"], two.data["moments"]], 1)
        one.data["moments"] = pooled(both)
        return one

    def to(self, device: torch.device | str) -> RunningStatistics:
        """A copy of it elsewhere."""
        twin = copy.copy(self)
        twin.data = {name: each.to(device, copy=True) for name, each in self.data.items()}
        twin.layout = dict(self.layout)
        return twin

    # The largest values

    def _rank(
        self, top: Tensor, place: Tensor, indices: Tensor, labels: Tensor, in_order: bool
    ) -> None:
        own = self.data
        last, tied = own["values"][-1], indices[:, None] < own["indices"][-1]
        enters = (top > last) | (top == last) & tied & (top > -math.inf)
        columns = enters.any(0).nonzero()[:, 0]
        if not len(columns):
            return
        top = top[:, columns]
        index = indices[:, None].expand_as(top).masked_fill(top == -math.inf, NONE)
        new = {"values": top, "indices": index, "places": place[:, columns]}
        new["labels"] = labels[:, None].expand_as(top)
        pairs = {name: torch.cat([own[name][:, columns], new[name]]) for name in RANKED}
        for name, best in _largest(pairs, self.k, in_order).items():
            own[name][:, columns] = best

    def _note_nans(self, here: slice, rows: BatchStatistics, indices: Tensor) -> None:
        self.data["nans"][here] += rows.nans.sum(0)
        with_nan = torch.where(rows.nans > 0, indices[:, None], NONE)
        first = self.data["first_nan"]
        first[here] = torch.minimum(first[here], with_nan.amin(0))

    def _sketch(self, here: slice, rows: BatchStatistics) -> None:
        channel = torch.arange(here.start, here.stop, device=rows.bins.device)[:, None]
        flat = (rows.bins * self.width + channel).flatten()
        one = self.data["bins"].new_ones(()).expand(len(flat))
        self.data["bins"].view(-1).scatter_add_(0, flat, one)

    # Layers that are new

    def _align(self, layout: Mapping[Column, Sequence[int]]) -> None:
        """Make room for layers that are not here yet."""
        merged = dict(self.layout)
        for column, shape in layout.items():
            merged[column] = tuple(map(max, shape, merged.get(column, shape)))
        before = self.slices()
        self.layout = {column: merged[column] for column in sorted(merged)}
        if list(before) == list(self.layout):
            return
        for name, old in self.data.items():
            self.data[name] = self._spread(old, before, _BLANK[name])

    def _spread(self, old: Tensor, before: Mapping[Column, slice], blank: float) -> Tensor:
        new = old.new_full((*old.shape[:-1], self.width), blank)
        for column, here in self.slices().items():
            if column in before:
                new[..., here] = old[..., before[column]]
        return new


def pooled(parts: Tensor) -> Tensor:
    """Count, mean and squares about the mean of N sets together, ``(3, N, C)`` -> ``(3, C)``.

    Chan, Golub and LeVeque, 1979: no squares of large means are subtracted.
    """
    count, mean, squares = parts
    total = count.sum(0)
    middle = (count * mean).sum(0) / total.clamp(min=1)
    away = (mean - middle).where(count > 0, 0)
    return torch.stack([total, middle, (squares + count * away * away).sum(0)])


def _largest(pairs: Mapping[str, Tensor], k: int, in_order: bool = False) -> dict[str, Tensor]:
    """The k largest of each channel, ties by index; ``in_order`` if equal values are so already."""
    if not in_order:
        order = pairs["indices"].argsort(dim=0, stable=True)
        pairs = {name: each.gather(0, order) for name, each in pairs.items()}
    order = pairs["values"].argsort(dim=0, descending=True, stable=True)[:k]
    return {name: each.gather(0, order) for name, each in pairs.items()}
