"""The numbers of every channel, its largest values and running statistics; and of one layer.

A batch is reduced to a few numbers for each input and channel in the hook, when nothing has
overwritten the maps yet, on the maps' own device.

Two shards can be added in any order. Counts are whole numbers, and the largest values are ordered
by value and then by index: both are the same to the bit, however the data set was cut. Means and
squares are float64 sums, which round by the order in which they are added: they agree to 12 digits.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...tables import html_table, number, plain, text_table

OCTAVES, PARTS = 48, 4
BINS = 2 * OCTAVES * PARTS
"""Bins of the sketch: four to each power of two from 2⁻²⁴ to 2²⁴, of either sign."""

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
    size = flat.shape[1]
    top = flat.gather(1, place[:, None])[:, 0] + 0.0  # −0 is 0
    moments = torch.empty(3, count * channels, dtype=torch.float64, device=flat.device)
    nans = torch.zeros_like(place)
    if careful and len(bad := top.isnan().nonzero()[:, 0]):
        top[bad], place[bad], mean[bad], squares[bad], nonzeros[bad], nans[bad] = _among_nans(
            flat[bad]
        )
        moments[0] = size - nans
    else:
        moments[0] = size
    moments[1], moments[2] = mean, squares
    zeros = (size - nonzeros).sub_(nans) if careful else size - nonzeros
    picks = picked(indices, length, size)[:, None].expand(count, channels, -1)
    bins = bin_of(flat.view(count, channels, -1).gather(2, picks))
    by_input = (count, channels)
    return BatchStatistics(
        top.view(by_input), packed(place.view(by_input), shape), moments.view(3, *by_input),
        zeros.view(by_input), nans.view(by_input), bins, tuple(shape),
    )  # fmt: skip


def reduced(rows: Tensor) -> tuple[Tensor, ...]:
    """Return each row's index of its largest value, mean, squares about the mean, and nonzeros."""
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
    return place, *_spread(rows, total.numpy(), norm.numpy(), nonzeros.numpy()), nonzeros


def _spread(
    rows: Tensor, total: np.ndarray, norm: np.ndarray, nonzeros: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Mean, and squares about it: by their difference, but where that would lose digits.

    By numpy, whose calls cost less where there are few numbers.
    """
    total, norm = total.astype(np.float64), norm.astype(np.float64)
    with np.errstate(all="ignore"):
        mean, raw = total / rows.shape[1], norm * norm
        if rows.shape[1] == 1:
            return torch.from_numpy(mean), torch.zeros(len(mean), dtype=torch.float64)
        squares = raw - total * mean
        lossy = ~(squares > 0.01 * raw) & (nonzeros > 0) | ~np.isfinite(raw)
    found = torch.from_numpy(mean), torch.from_numpy(squares)
    if lossy.any():
        again = torch.from_numpy(np.flatnonzero(lossy))
        found[0][again], found[1][again] = _about(rows[again], found[0][again])
    return found


def _about(rows: Tensor, about: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and squares, by the differences from a number near the mean."""
    about = about.to(rows.dtype)[:, None]
    away = (rows - about).double()
    further = away.mean(1)
    return about[:, 0].double() + further, (away - further[:, None]).square().sum(1)


def _among_nans(rows: Tensor) -> tuple[Tensor, ...]:
    """Return the same for rows that have NaN, by their other values."""
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
    number, left = place, place
    for axis, size in enumerate(reversed(shape)):
        last = axis == len(shape) - 1
        outer = left if last else left // size
        inner = left if last else left - outer * size
        number = number | inner << _BITS * axis if axis else inner
        left = outer
    return number


def unpacked(number: int, dimensions: int) -> tuple[int, ...]:
    """Return the coordinates of a position, outermost first."""
    if dimensions == 1:
        return (number,)
    mask = (1 << _BITS) - 1
    return tuple(number >> _BITS * axis & mask for axis in reversed(range(dimensions)))


# The sketch


def picked(indices: Tensor, length: int, size: int) -> Tensor:
    """Choose the sampled positions of each input's map, ``(N, P)``: spread evenly, by its index."""
    count = min(size, max(PICKED, math.ceil(_WANTED / length)))
    turn = (indices.cpu().numpy()[:, None] * count + np.arange(count)) * _GOLDEN
    places = np.minimum(((turn - np.floor(turn)) * size).astype(np.int64), size - 1)
    return torch.from_numpy(places).to(indices.device)


def bin_of(values: Tensor) -> Tensor:
    """Return the bin of each value; ``BINS`` for NaN.

    >>> bin_of(torch.tensor([-1.0, 0.0, 1.0, 1.25, float("nan")])).tolist()
    [95, 192, 288, 289, 384]
    """
    leading = _leading(values)
    return _bins(values.device).index_select(0, leading.flatten()).view(leading.shape)


def _leading(values: Tensor) -> Tensor:
    """Sign, exponent and two bits of the mantissa: in the values' order, within a sign."""
    return (values.float().contiguous().view(torch.int32) >> 21) + 1024


@cache
def _bins(device: torch.device) -> Tensor:
    """Return the bin of each `_leading`."""
    size = torch.arange(1024) - ((127 - OCTAVES // 2) * PARTS)
    size = size.clamp(0, BINS // 2 - 1)
    size[1021:] = BINS // 2  # NaN
    negative = BINS // 2 - 1 - size
    negative[0], negative[1021:] = BINS // 2, BINS  # −0
    return torch.cat([negative, BINS // 2 + size]).to(device)


def edges() -> list[float]:
    """Return the edges of the bins, ``BINS + 1`` values."""
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


# The whole set

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
        """Number of channels of all layers."""
        return sum(column.channels for column in self.layout)

    def slices(self) -> dict[Column, slice]:
        """Slice of each layer's channels."""
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
        if not found:
            return
        slices = self.slices()
        order = sorted(found, key=lambda column: slices[column].start)
        rows, own = [found[column] for column in order], self.data
        if any(each.top.dtype == torch.float64 for each in rows):
            own["values"] = own["values"].double()
        # All at once, since there are many small layers; those that did not run are left alone.
        whole = len(rows) == len(slices)
        here: Any = slice(None)
        if not whole:
            spans = [torch.arange(slices[column].start, slices[column].stop) for column in order]
            here = torch.cat(spans).to(indices.device)
        new = torch.cat([each.moments for each in rows], 2)
        own["moments"][:, here] = pooled(torch.cat([own["moments"][:, None, here], new], 1))
        own["zeros"][here] += torch.cat([each.zeros for each in rows], 1).sum(0)
        self._sketch(rows, [slices[column].start for column in order])
        nans = torch.cat([each.nans for each in rows], 1)
        if bool(nans.any()):
            self._note_nans(here, nans, indices)
        top = torch.cat([each.top.to(own["values"].dtype) for each in rows], 1)
        self._rank(
            here, top, torch.cat([each.place for each in rows], 1), indices, labels, in_order
        )

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
        """Copy the statistics to a device."""
        twin = copy.copy(self)
        twin.data = {name: each.to(device, copy=True) for name, each in self.data.items()}
        twin.layout = dict(self.layout)
        return twin

    # The largest values

    def _rank(
        self,
        here: Any,
        top: Tensor,
        place: Tensor,
        indices: Tensor,
        labels: Tensor,
        in_order: bool,
    ) -> None:
        own = self.data
        last = own["values"][-1, here]
        enters = top > last
        if not in_order:
            tied = indices[:, None] < own["indices"][-1, here]
            enters |= (top == last) & tied & (top > -math.inf)
        columns = enters.any(0).nonzero()[:, 0]
        if not len(columns):
            return
        best = _first_largest(top[:, columns], self.k)  # of a batch, whose indices ascend
        top = top[:, columns].gather(0, best)
        mine = columns if isinstance(here, slice) else here[columns]
        new = {"values": top, "indices": indices[best].masked_fill(top == -math.inf, NONE)}
        new |= {"places": place[:, columns].gather(0, best), "labels": labels[best]}
        pairs = {name: torch.cat([own[name][:, mine], new[name]]) for name in RANKED}
        for name, best in _largest(pairs, self.k, in_order).items():
            own[name][:, mine] = best

    def _note_nans(self, here: Any, nans: Tensor, indices: Tensor) -> None:
        self.data["nans"][here] += nans.sum(0)
        with_nan = torch.where(nans > 0, indices[:, None], NONE)
        first = self.data["first_nan"]
        first[here] = torch.minimum(first[here], with_nan.amin(0))

    def _sketch(self, rows: Sequence[BatchStatistics], starts: Sequence[int]) -> None:
        table, width = self.data["bins"], self.width
        parts = []
        for each, start in zip(rows, starts, strict=True):
            channel = torch.arange(start, start + each.bins.shape[1], device=table.device)
            parts.append((each.bins * width).add_(channel[:, None]).flatten())
        flat = torch.cat(parts)
        table.view(-1).scatter_add_(0, flat, table.new_ones(()).expand(len(flat)))

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
    """Return each channel's k largest, ties by index; ``in_order``: equal ones are so already."""
    if not in_order:
        order = pairs["indices"].argsort(dim=0, stable=True)
        pairs = {name: each.gather(0, order) for name, each in pairs.items()}
    order = pairs["values"].argsort(dim=0, descending=True, stable=True)[:k]
    return {name: each.gather(0, order) for name, each in pairs.items()}


def _first_largest(values: Tensor, k: int) -> Tensor:
    """Return the places of each column's k largest, largest first, equal ones in their order."""
    place = None
    if values.device.type == "cpu" and len(values) > k:  # elsewhere the count would be waited for
        kept = ~(values < values.topk(k, 0).values[-1])  # NaN too
        count = int(kept.sum(0).max())
        if count < len(values) // 4:  # to sort all would take ten times as long
            place = kept.to(torch.int8).topk(count, 0).indices.sort(0).values
            values = values.gather(0, place)
    order = values.argsort(dim=0, descending=True, stable=True)[:k]
    return order if place is None else place.gather(0, order)


HEADER = ("layer", "channels", "map", "mean", "std", "zeros", "≤ 0", "NaN", "classes")
SPARE = ("std", "map", "mean")
"""Columns that a terminal can do without, the first ones first."""


def key_words(key: Key) -> str:
    """Return a layer's name, with its run if it has several."""
    return key or "(model)" if isinstance(key, str) else f"{key[0] or '(model)'} (call {key[1]})"


def layer_row(layer: LayerSurvey) -> tuple[str, ...]:
    """Return the layer as a line of the table."""
    values, (count, mean, _) = layer.moments[0].sum(), layer.moments
    middle = float((count * mean).sum() / values)
    spread = float(((count * (mean - middle) ** 2 + layer.moments[2]).sum() / values) ** 0.5)
    pure = [layer.classes(channel) for channel in range(len(layer))]
    of_one = sum(len(each) == 1 for each in pure)
    call = f" (call {layer.column.call})" if layer.column.call else ""
    return (
        f"{layer.name or '(model)'}{call}",
        str(len(layer)),
        "×".join(map(str, layer.shape)),
        number(middle),
        number(spread),
        f"{100 * float(layer.data['zeros'].sum() / values):.3g} %",
        str(int(layer.never_positive.sum())),
        str(int(layer.nans.sum())),
        f"{of_one} of one class" if any(pure) else "–",
    )


def layer_table(layer: LayerSurvey) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Title, header, and each channel in a line."""
    header = ("channel", "max", "mean", "std", "zeros", "top inputs", "classes")
    rows: list[tuple[str, ...]] = []
    for each in layer._facts():
        best = ", ".join(str(index) for index, *_ in layer.top(each["channel"], 5))
        said = ", ".join(f"{name} {count}" for name, count in layer.classes(each["channel"])[:3])
        top = "–" if each["max"] is None else number(each["max"])
        rows.append(
            (
                *(str(each["channel"]), top, number(each["mean"]), number(each["std"])),
                *(f"{100 * each['zeros']:.3g} %", best, said or "–"),
            )
        )
    return f"{layer.name or '(model)'}, {layer.column.kind}", header, rows


def channel_words(layer: LayerSurvey, channel: int) -> list[str]:
    """Describe a channel in few words: its classes and the spread of its values."""
    named = ", ".join(f"{name} {count}" for name, count in layer.classes(channel)[:4])
    facts = [f"mean {number(float(layer.mean[channel]))}"]
    facts += [f"std {number(float(layer.std[channel]))}"]
    facts += [f"zeros {100 * float(layer.zeros[channel]):.3g} %"] if layer.zeros[channel] else []
    facts += ["never above 0"] if layer.never_positive[channel] else []
    facts += [f"{int(layer.nans[channel]):,} NaN"] if layer.nans[channel] else []
    return [*([named] if named else []), *facts]


def nan_words(layer: LayerSurvey) -> str:
    """Say in words where NaN occurred."""
    channels = layer.nans.nonzero()[:, 0].tolist()
    which = ", ".join(map(str, channels[:3])) + ", …" * (len(channels) > 3)
    first = int(layer.data["first_nan"].min())
    return (
        f"{int(layer.nans.sum()):,} NaN in {layer.name or 'the model'}, channel"
        f"{'s' * (len(channels) > 1)} {which}, first in input {first}"
    )


Key = str | tuple[str, int]
"""A layer's name; of one that runs several times also which run, from 1 on."""

Top = tuple[int, float, tuple[int, ...], tuple[int, ...] | None]
RULE = ("size", "stride", "start", "input_size")
"""A layer's receptive field, in each dimension: place p sees ``size`` from start + stride · p."""

ORDERS = ("number", "largest value", "purity", "zeros")
"""By which channels can be ordered; purity is how many of the top inputs are of one class."""


@dataclass(frozen=True, eq=False)
class LayerSurvey:
    """One layer of a `Survey`, in one of its runs."""

    column: Column
    shape: tuple[int, ...]  #: of a map; the largest, if they differ
    data: dict[str, Tensor]  #: see `hookviz.studies.survey.channels.RunningStatistics`
    class_names: list[str]
    field: Mapping[str, Sequence[int]] | None = None  #: what a place sees, see `RULE`

    @property
    def name(self) -> str:
        """The layer's."""
        return self.column.name

    def __len__(self) -> int:
        return self.column.channels

    @property
    def moments(self) -> Tensor:
        """Count, mean and squares about the mean of each channel's values, ``(3, C)``."""
        return self.data["moments"]

    @cached_property
    def mean(self) -> Tensor:
        """Mean of each channel's values over all inputs and positions, ``(C,)`` in float64."""
        return self.moments[1].where(self.moments[0] > 0, torch.nan)

    @cached_property
    def std(self) -> Tensor:
        """Their standard deviation, ``(C,)`` in float64; divided by the count, not one less."""
        return (self.moments[2] / self.moments[0]).clamp(min=0).sqrt()

    @cached_property
    def zeros(self) -> Tensor:
        """The share of values that are zero, ``(C,)`` in float64."""
        return self.data["zeros"] / self.moments[0]

    @property
    def nans(self) -> Tensor:
        """Number of NaN among each channel's values, ``(C,)``; no other statistic includes them."""
        return self.data["nans"]

    @cached_property
    def never_positive(self) -> Tensor:
        """Mask of the channels that never had a value above zero, ``(C,)``: no ReLU passes them."""
        return (self.data["values"][0] <= 0) & (self.moments[0] > 0)

    def top(self, channel: int, count: int | None = None) -> list[Top]:
        """Return the inputs that the channel responds to most, the strongest first.

        Parameters
        ----------
        channel : int
        count : int, optional
            How many; all k.

        Returns
        -------
        list of (index, value, position, box)
            The input's index in the data set, the largest value of its map, where in the map that
            is, and the box of its receptive field in the input, None where that is not known.
            Equal values are in the order of their indices.
        """
        self._check(channel)
        columns = (self.data[name][:count, channel] for name in ("indices", "values", "places"))
        ranked = zip(*(each.tolist() for each in columns), strict=True)
        tops = [(i, v, unpacked(p, self.column.dimensions)) for i, v, p in ranked if i != NONE]
        return [(*each, self.box(each[2])) for each in tops]

    def box(self, position: Sequence[int]) -> tuple[int, ...] | None:
        """Return the box of the input, in pixels, that a position depends on; None if unknown.

        ``(top, left, bottom, right)``, half-open and cut off at the border, in a picture;
        ``(begin, end)`` in a signal.
        """
        if self.field is None:
            return None
        rule = list(zip(*(self.field[name] for name in RULE), position, strict=True))
        begins = [max(0, start + stride * at) for _, stride, start, _, at in rule]
        ends = [min(whole, start + stride * at + size) for size, stride, start, whole, at in rule]
        return (*begins, *ends)

    def classes(self, channel: int) -> list[tuple[str | int, int]]:
        """Return the classes of the channel's top inputs with their counts, most first."""
        self._check(channel)
        labels = self.data["labels"][:, channel].tolist()
        known = Counter(each for each in labels if each >= 0)
        ranked = sorted(known.items(), key=lambda each: (-each[1], each[0]))
        return [(self.class_of(label), count) for label, count in ranked]

    def quantile(self, q: float, channel: int | None = None) -> Tensor | float:
        """Below which value a share ``q`` of a channel's values lie; of all channels ``(C,)``.

        From a sketch: some values of each map, at places spread evenly, counted in bins a quarter
        to an eighth of their size wide; linear within a bin. The largest is exact, the smallest
        that of the values that were looked at.

        Raises
        ------
        ValueError
            ``q`` is not from 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(
                f"q={q} is not a quantile: give 0 for the smallest to 1 for the largest."
            )
        if channel is not None:
            self._check(channel)
        largest = self.data["values"][0].double()
        found = largest if q == 1 else quantiles(self.data["bins"], q).minimum(largest)
        found = found.where(self.moments[0] > 0, torch.nan)
        return found if channel is None else float(found[channel])

    def order(self, by: str = "number") -> list[int]:
        """Sort the channels by one of ``ORDERS``: by number, or those with the most of it first.

        Raises
        ------
        ValueError
            Unknown order.
        """
        if by not in ORDERS:
            raise ValueError(f"Unknown order {by!r}: give one of {', '.join(ORDERS)}.")
        if by == "number":
            return list(range(len(self)))
        share = {"zeros": self.zeros, "largest value": self.data["values"][0]}.get(by)
        found = [self.purity(channel) for channel in range(len(self))] if share is None else share
        sizes = torch.as_tensor(found, dtype=torch.float64).nan_to_num(nan=-torch.inf)
        return sizes.argsort(descending=True, stable=True).tolist()

    def purity(self, channel: int) -> float:
        """Return the fraction of the channel's top inputs in one class; 0 without classes."""
        ranked = int((self.data["indices"][:, channel] != NONE).sum())
        return next((count / ranked for _, count in self.classes(channel)), 0.0)

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each channel.

        Returns
        -------
        list of dict
            With the keys layer, call, channel, max, index, position, mean, std, zeros,
            never_positive, nans, first_nan, median, and, where labels are known, class and
            class_count: the most frequent class among the top inputs. Strict JSON: NaN is None,
            an infinity is ``"inf"`` or ``"-inf"``.
        """
        return plain(self._facts())

    def _facts(self) -> list[dict[str, Any]]:
        """One dict for each channel, NaN and infinities as they are."""
        columns: dict[str, list[Any]] = {
            **{
                name: getattr(self, name).tolist()
                for name in ("mean", "std", "zeros", "never_positive")
            },
            "nans": self.nans.tolist(),
            "first_nan": [None if i == NONE else i for i in self.data["first_nan"].tolist()],
            "median": self.quantile(0.5).tolist(),  # type: ignore[union-attr]
        }
        found = []
        for channel in range(len(self)):
            index, value, position = next((each[:3] for each in self.top(channel, 1)), (None,) * 3)
            named, count = next(iter(self.classes(channel)), (None, None))
            found.append(
                {"layer": self.name, "call": self.column.call, "channel": channel}
                | {"max": value, "index": index, "position": position}
                | {name: each[channel] for name, each in columns.items()}
                | {"class": named, "class_count": count}
            )
        return found

    def __repr__(self) -> str:
        return text_table(*layer_table(self), ("std", "mean"))

    def _repr_html_(self) -> str:
        return html_table(*layer_table(self))

    def class_of(self, label: int) -> str | int:
        """Return a class's name, or its number if it has none."""
        return self.class_names[label] if label < len(self.class_names) else label

    def _check(self, channel: int) -> None:
        if not 0 <= channel < len(self):
            raise ValueError(
                f"Layer {self.name!r} has no channel {channel}: its channels are 0 to "
                f"{len(self) - 1}."
            )
