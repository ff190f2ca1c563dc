"""What a survey found of one layer: of each of its channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...hooking.tables import html_table, number, plain, text_table
from .channels import NONE, Column, quantiles, unpacked

HEADER = ("layer", "channels", "map", "mean", "std", "zeros", "≤ 0", "NaN", "classes")
SPARE = ("std", "map", "mean")
"""Columns that a terminal can do without, the first ones first."""


def key_words(key: Key) -> str:
    """A layer's name, with its run if it has several."""
    return key or "(model)" if isinstance(key, str) else f"{key[0] or '(model)'} (call {key[1]})"


def layer_row(layer: LayerSurvey) -> tuple[str, ...]:
    """The layer in a line of the table."""
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
    """What is known of a channel, in few words: classes, and how its values are spread."""
    named = ", ".join(f"{name} {count}" for name, count in layer.classes(channel)[:4])
    facts = [f"mean {number(float(layer.mean[channel]))}"]
    facts += [f"std {number(float(layer.std[channel]))}"]
    facts += [f"zeros {100 * float(layer.zeros[channel]):.3g} %"] if layer.zeros[channel] else []
    facts += ["never above 0"] if layer.never_positive[channel] else []
    facts += [f"{int(layer.nans[channel]):,} NaN"] if layer.nans[channel] else []
    return [*([named] if named else []), *facts]


def nan_words(layer: LayerSurvey) -> str:
    """Where there were NaN, in words."""
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
        """Of each channel's values over all inputs and places, ``(C,)`` in float64."""
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
        """How many of each channel's values were NaN, ``(C,)``; they are in nothing else."""
        return self.data["nans"]

    @cached_property
    def never_positive(self) -> Tensor:
        """Which channels never had a value above zero, ``(C,)``: no ReLU lets them through."""
        return (self.data["values"][0] <= 0) & (self.moments[0] > 0)

    def top(self, channel: int, count: int | None = None) -> list[Top]:
        """The inputs that the channel answers to most, the strongest first.

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
        """What a place of the map sees of the input, in its pixels; None if that is not known.

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
        """The classes of the channel's top inputs, with how many are of each, most first."""
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
            raise ValueError(f"q={q} is no share: give 0 for the smallest to 1 for the largest.")
        if channel is not None:
            self._check(channel)
        largest = self.data["values"][0].double()
        found = largest if q == 1 else quantiles(self.data["bins"], q).minimum(largest)
        found = found.where(self.moments[0] > 0, torch.nan)
        return found if channel is None else float(found[channel])

    def order(self, by: str = "number") -> list[int]:
        """The channels by one of ``ORDERS``: by number, or those with the most of it first.

        Raises
        ------
        ValueError
            There is no such order.
        """
        if by not in ORDERS:
            raise ValueError(f"There is no order {by!r}: give one of {', '.join(ORDERS)}.")
        if by == "number":
            return list(range(len(self)))
        share = {"zeros": self.zeros, "largest value": self.data["values"][0]}.get(by)
        found = [self.purity(channel) for channel in range(len(self))] if share is None else share
        sizes = torch.as_tensor(found, dtype=torch.float64).nan_to_num(nan=-torch.inf)
        return sizes.argsort(descending=True, stable=True).tolist()

    def purity(self, channel: int) -> float:
        """Which part of the channel's top inputs is of one class; 0 if no classes are known."""
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
        """A class's name, or its number if it has none."""
        return self.class_names[label] if label < len(self.class_names) else label

    def _check(self, channel: int) -> None:
        if not 0 <= channel < len(self):
            raise ValueError(
                f"Layer {self.name!r} has no channel {channel}: its channels are 0 to "
                f"{len(self) - 1}."
            )
