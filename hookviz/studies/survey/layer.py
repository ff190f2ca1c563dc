"""One layer of a survey: its channels, their top inputs, statistics and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...hooking.arguments import check_number, is_index, is_position, whole_number
from ...run.statistics import NONE
from ...tables import Row, Tabular, call_name, number, plain, some
from .running import BINS, LayerStatistics, SurveyedRun

Key = str | tuple[str, int]
"""A layer's name; for one that runs several times in a forward, also the run, from 1 on."""

ORDERS = ("number", "largest value", "purity", "zeros")
"""The orders of channels; purity is the fraction of the top inputs that are of one class."""

RULE = ("size", "stride", "start", "input_size")
"""A layer's receptive field, per dimension: position p sees ``size`` from start + stride · p."""

NO_SOURCE = -1
"""In place of the index of an input tensor, for a layer that sees none."""

HEADER = (
    *("layer", "channels", "map size", "mean", "standard deviation", "zeros", "never above 0"),
    *("NaN", "one class"),
)
SPARE = ("standard deviation", "map size", "mean")
"""Columns that a narrow terminal can do without, the first ones first."""


class TopInput(NamedTuple):
    """An input of the data set that a channel responds to."""

    index: int  # type: ignore[assignment]  #: in the data set
    value: float  #: the largest value of the channel's map
    position: tuple[int, ...]  #: where in the map it is
    box: tuple[int, ...] | None  #: its receptive field in the input, see `LayerSurvey.box`


@dataclass(frozen=True, eq=False, repr=False)
class LayerSurvey(Tabular):
    """One layer of a `Survey`, in one of its runs."""

    run: SurveyedRun
    statistics: LayerStatistics
    class_names: list[str]
    field: Mapping[str, Sequence[int]] | None = None  #: what a position sees, see `RULE`
    source: int | None = None  #: as in `Survey.sources`; None is the main input

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self.run.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a map; the largest if they differ."""
        return self.statistics.shape

    def __len__(self) -> int:
        return len(self.statistics)

    @property
    def mean(self) -> Tensor:
        """Mean of each channel over all inputs and positions, ``(C,)`` in float64."""
        moments = self.statistics.moments
        return moments.mean.where(moments.count > 0, torch.nan)

    @property
    def std(self) -> Tensor:
        """Standard deviation of each channel, divided by the count, ``(C,)`` in float64."""
        return self.statistics.moments.std

    @property
    def zeros(self) -> Tensor:
        """Fraction of each channel's values that are zero, ``(C,)`` in float64."""
        return self.statistics.moments.zeros.double() / self.statistics.moments.count

    @property
    def nans(self) -> Tensor:
        """Number of NaN in each channel, ``(C,)``; no other statistic includes them."""
        return self.statistics.moments.nans

    @property
    def never_positive(self) -> Tensor:
        """Mask of the channels that never had a value above zero, ``(C,)``: a ReLU stops them."""
        return (self.largest <= 0) & (self.statistics.moments.count > 0)

    @property
    def largest(self) -> Tensor:
        """Largest value of each channel, ``(C,)``."""
        return self.statistics.top.values[:, 0]

    def top(self, channel: int, count: int | None = None) -> list[TopInput]:
        """Return the inputs that a channel responds to most, the strongest first.

        Parameters
        ----------
        channel : int
        count : int, optional
            How many; all k by default.

        Returns
        -------
        list of (index, value, position, box)
            Named tuples: the input's index in the data set, the largest value of its map, where
            in the map that is, and the box of its receptive field in the input, None if unknown.
            Equal values are in the order of their indices.
        """
        self._check(channel)
        count = None if count is None else whole_number("count", count)
        top = self.statistics.top
        columns = (top.indices, top.values, top.positions)
        rows = zip(*(column[channel, :count].tolist() for column in columns), strict=True)
        known = [(i, value, tuple(position)) for i, value, position in rows if i != NONE]
        return [TopInput(*row, self.box(row[2])) for row in known]

    def box(self, position: Sequence[int]) -> tuple[int, ...] | None:
        """Return the pixels of the input that a position depends on; None if unknown.

        ``(top, left, bottom, right)`` in a picture, ``(begin, end)`` in a signal: half-open, and
        cut off at the border.
        """
        if not is_position(position, self.shape):
            size = "×".join(map(str, self.shape))
            raise ValueError(
                f"Layer {self.name!r} has no position {position!r}: its maps are {size}."
            )
        if self.field is None:
            return None
        rule = list(zip(*(self.field[name] for name in RULE), position, strict=True))
        begins = [max(0, start + stride * at) for _, stride, start, _, at in rule]
        ends = [min(whole, start + stride * at + size) for size, stride, start, whole, at in rule]
        return (*begins, *ends)

    def classes(self, channel: int) -> list[tuple[str | int, int]]:
        """Return the classes of the channel's top inputs with their counts, most first."""
        self._check(channel)
        labels = self.statistics.labels[channel].tolist()
        counts = Counter(label for label in labels if label >= 0)
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return [(self.class_of(label), count) for label, count in ranked]

    def quantile(self, q: float) -> Tensor:
        """Return the value below which a fraction ``q`` of each channel's values lies.

        It is estimated from a histogram of some values of each map, at evenly spread positions. The
        bins are a quarter to an eighth of their values wide; values are taken to be spread evenly
        within a bin. The largest value, ``q=1``, is exact.

        Parameters
        ----------
        q : float
            0 to 1.

        Returns
        -------
        torch.Tensor
            ``(C,)`` in float64; NaN for a channel without values.

        Raises
        ------
        ValueError
            ``q`` is not from 0 to 1.
        """
        check_number("q", q, 0, 1)
        found = largest = self.largest.double()
        if q < 1:
            found = BINS.quantile(self.statistics.histogram, q).minimum(largest)
        return found.where(self.statistics.moments.size > self.nans, torch.nan)

    def order(self, by: str = "number") -> list[int]:
        """Sort the channels by one of ``ORDERS``: by number, or the largest first.

        Raises
        ------
        ValueError
            Unknown order.
        """
        if by not in ORDERS:
            raise ValueError(f"Unknown order {by!r}: give one of {', '.join(ORDERS)}.")
        if by == "number":
            return list(range(len(self)))
        if by == "purity":
            keys = torch.tensor([self.purity(channel) for channel in range(len(self))])
        else:
            keys = self.zeros if by == "zeros" else self.largest
        return keys.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True).tolist()

    def purity(self, channel: int) -> float:
        """Return the fraction of the channel's top inputs in one class; 0 without classes."""
        self._check(channel)
        ranked = int((self.statistics.top.indices[channel] != NONE).sum())
        return next((count / ranked for _, count in self.classes(channel)), 0.0)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict for each channel.

        Returns
        -------
        list of dict
            With the keys layer, call, channel, max, index, position, mean, std, zeros,
            never_positive, nans, first_nan, median, and, where labels are known, class and
            class_count: the most frequent class among the top inputs. Strict JSON: NaN is None,
            an infinity is ``"inf"`` or ``"-inf"``.
        """
        columns = {
            **{name: getattr(self, name) for name in ("mean", "std", "zeros", "never_positive")},
            **{"nans": self.nans, "first_nan": self.statistics.first_nan},
            "median": self.quantile(0.5),
        }
        records = []
        for channel in range(len(self)):
            best = next(iter(self.top(channel, 1)), None)
            index, value, position = best[:3] if best else (None, None, None)
            named, count = next(iter(self.classes(channel)), (None, None))
            record = {"layer": self.name, "call": self.run.call, "channel": channel}
            record |= {"max": value, "index": index, "position": position}
            record |= {name: column[channel] for name, column in columns.items()}
            if not self.nans[channel]:
                record["first_nan"] = None
            records.append(plain(record | {"class": named, "class_count": count}))
        return records

    def _title(self) -> str:
        return f"{self.name or '(model)'}, {self.run.kind}"

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        """Return a row for each channel."""
        rows = [
            (
                str(channel),
                number(float(self.largest[channel])),
                ", ".join(str(top.index) for top in self.top(channel, 5)),
                ", ".join(channel_words(self, channel)),
            )
            for channel in range(len(self))
        ]
        header = ("channel", "largest value", "top inputs", "their classes, and all values")
        return header, rows, ()

    def class_of(self, label: int) -> str | int:
        """Return a class's name, or its number if it has none."""
        return self.class_names[label] if is_index(label, len(self.class_names)) else label

    def _check(self, channel: int) -> None:
        if not is_index(channel, len(self)):
            raise ValueError(
                f"Layer {self.name!r} has no channel {channel!r}: its channels are 0 to "
                f"{len(self) - 1}."
            )


def key_words(key: Key) -> str:
    """Return a layer's name, with its run if it has several."""
    return call_name(key) if isinstance(key, str) else call_name(*key)


def layer_row(layer: LayerSurvey) -> tuple[str, ...]:
    """Return the layer as a row of the survey's table."""
    whole = layer.statistics.moments.merged()
    classes = [layer.classes(channel) for channel in range(len(layer))]
    of_one = sum(len(names) == 1 for names in classes)
    return (
        call_name(layer.name, layer.run.call),
        str(len(layer)),
        "×".join(map(str, layer.shape)),
        number(float(whole.mean)),
        number(float(whole.std)),
        f"{100 * float(whole.zeros / whole.count):.3g} %",
        str(int(layer.never_positive.sum())),
        str(int(whole.nans)),
        str(of_one) if any(classes) else "–",
    )


def channel_words(layer: LayerSurvey, channel: int) -> list[str]:
    """Describe a channel in few words: its classes and the spread of its values."""
    classes = [f"{name} {count}" for name, count in layer.classes(channel)[:4]]
    facts = [", ".join(classes)] if classes else []
    facts += [f"mean {number(float(layer.mean[channel]))}"]
    facts += [f"std {number(float(layer.std[channel]))}"]
    facts += [f"zeros {100 * float(layer.zeros[channel]):.3g} %"] if layer.zeros[channel] else []
    facts += ["never above 0"] if layer.never_positive[channel] else []
    facts += [f"{int(layer.nans[channel]):,} NaN"] if layer.nans[channel] else []
    return facts


def nan_words(layer: LayerSurvey) -> str:
    """Describe where NaN occurred."""
    channels = some(layer.nans.nonzero()[:, 0].tolist())
    first = int(layer.statistics.first_nan.min())
    where = f"{layer.name or 'the model'} (channels {channels})"
    return f"{int(layer.nans.sum()):,} NaN in {where}, first in input {first}"
