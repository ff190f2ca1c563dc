"""The running statistics of one layer over a data set.

A forward hook reduces the maps of a batch to a few numbers for each input and channel, before a
later layer can overwrite them. These numbers are then merged into those of the earlier batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...run.statistics import NONE, REDUCTIONS, LogBins, Moments, TopK, in_blocks

BINS = LogBins(-24, 24, 4)
"""The bins of the histograms: four to each octave from 2⁻²⁴ to 2²⁴, of either sign."""

_PICKED = 2  # values of each map that are counted in the histogram, at least
_WANTED = 1024  # values of a channel that are counted, even in a small data set
_GOLDEN = (math.sqrt(5) - 1) / 2


class SurveyedRun(NamedTuple):
    """A layer in one of its runs; they sort in the order of the model."""

    order: int  #: index among the surveyed layers
    name: str
    kind: str  #: the module's type
    call: int  #: which run of the layer within one forward


@dataclass(frozen=True, eq=False)
class BatchStatistics:
    """The maps of a layer for N inputs: C channels with D spatial dimensions."""

    shape: tuple[int, ...]  #: of a map
    top: Tensor  #: the largest value of each map, ``(N, C)``; −Inf if all are NaN
    places: Tensor  #: its index in the flat map, ``(N, C)``
    moments: Moments  #: of each map, ``(N, C)``
    sampled: Tensor  #: a few values of each map, ``(N, C, P)``

    def numel(self) -> int:
        """Return the number of numbers, about: those of a channel with three sampled values."""
        return 12 * self.top.numel()

    @staticmethod
    def joined(parts: Sequence[BatchStatistics]) -> BatchStatistics:
        """Return the statistics of the inputs of several batches, of maps of one shape."""
        return BatchStatistics(
            parts[0].shape,
            torch.cat([part.top for part in parts]),
            torch.cat([part.places for part in parts]),
            Moments(*map(torch.cat, zip(*(part.moments for part in parts), strict=True))),
            torch.cat([part.sampled for part in parts]),
        )


def reduce_maps(maps: Tensor, indices: Tensor, length: int) -> BatchStatistics:
    """Reduce maps ``(N, C, *spatial)`` of the inputs ``indices`` out of ``length``."""
    shape = tuple(maps.shape[2:])
    flat = maps.detach().flatten(2) if shape else maps.detach()[..., None]
    places, *reduced = in_blocks(flat, _argmax, *REDUCTIONS)
    moments = Moments.of_reduced(flat, *reduced)
    top = flat.gather(2, places[..., None])[..., 0]
    if bool((partly := moments.nans > 0).any()):
        known = flat[partly]
        top[partly], places[partly] = known.masked_fill(known.isnan(), -math.inf).max(-1)
    sampled = flat.gather(2, _picked(indices, length, flat.shape))
    return BatchStatistics(shape, top, places, moments, sampled)


def _argmax(flat: Tensor) -> Tensor:
    """Return the first index of the largest value along the last dimension."""
    if flat.device.type != "cpu":
        return flat.argmax(-1)
    # NumPy finds it with vector instructions, ten times faster than torch on the CPU.
    return torch.from_numpy(flat.numpy().argmax(-1))


def _picked(indices: Tensor, length: int, shape: torch.Size) -> Tensor:
    """Return the places in each flat map that the histogram looks at, ``(N, C, P)``.

    Multiples of the golden ratio spread them evenly over the data set. They depend on the input's
    index alone, so that the result is the same however the data set is cut.
    """
    count, channels, size = shape
    number = min(size, max(_PICKED, math.ceil(_WANTED / length)))
    turns = (indices.cpu().double()[:, None] * number + torch.arange(number)) * _GOLDEN
    places = (turns.frac() * size).long().clamp(max=size - 1).to(indices.device)
    return places[:, None].expand(count, channels, number)


@dataclass(eq=False)
class LayerStatistics:
    """The statistics of a layer's C channels over the inputs so far.

    Attributes
    ----------
    shape : tuple of int
        Of a map; the largest, if they differ.
    top : TopK
        The k inputs with the largest values of each channel, with ``positions (C, k, D)`` and
        their ``labels (C, k)``.
    moments : Moments
        Of all values of each channel.
    histogram : torch.Tensor
        ``(C, BINS.size)`` in int32, of some values of each map.
    first_nan : torch.Tensor
        Index of the first input with NaN in each channel; ``NONE`` if there is none.
    """

    shape: tuple[int, ...]
    top: TopK
    moments: Moments
    histogram: Tensor
    first_nan: Tensor

    @classmethod
    def of(cls, batch: BatchStatistics, indices: Tensor, labels: Tensor, k: int) -> LayerStatistics:
        """Return the statistics of a batch."""
        top = batch.top.T + 0.0  # −0 becomes 0: both are one value in a ranking
        positions = torch.stack(torch.unravel_index(batch.places.T, batch.shape or (1,)), -1).int()
        starts = torch.arange(len(top), device=top.device)[:, None] * BINS.size
        bins = (BINS.index(batch.sampled) + starts).flatten()
        histogram = torch.zeros(len(top), BINS.size, dtype=torch.int32, device=top.device)
        histogram.view(-1).index_add_(0, bins, torch.ones_like(bins, dtype=torch.int32))
        with_nan = indices[:, None].where(batch.moments.nans > 0, NONE)
        return cls(
            batch.shape,
            TopK.of(top, indices, positions, labels.expand(top.shape), k),
            batch.moments.merged(),
            histogram,
            with_nan.amin(0),
        )

    def __len__(self) -> int:
        return len(self.first_nan)

    @property
    def labels(self) -> Tensor:
        """Classes of the top inputs, ``(C, k)``; −1 where there is none."""
        return self.top.labels.where(self.top.indices != NONE, -1)

    def __add__(self, other: LayerStatistics) -> LayerStatistics:
        return LayerStatistics(
            tuple(map(max, self.shape, other.shape)),
            self.top + other.top,
            self.moments + other.moments,
            self.histogram + other.histogram,
            self.first_nan.minimum(other.first_nan),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, by their names in a survey's file."""
        own = {"histogram": self.histogram, "first_nan": self.first_nan}
        return self.top._asdict() | self.moments._asdict() | own

    @classmethod
    def of_tensors(cls, shape: tuple[int, ...], tensors: dict[str, Tensor]) -> LayerStatistics:
        """Return the statistics that consist of these tensors."""
        top = TopK(*(tensors[name] for name in TopK._fields))
        moments = Moments(*(tensors[name] for name in Moments._fields))
        return cls(shape, top, moments, tensors["histogram"], tensors["first_nan"])
