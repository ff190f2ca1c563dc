"""What a survey found: of each layer, of each channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as having
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..hooking.select import close_names
from ..hooking.tables import html_table, number, text_table
from ..run.targets import class_index
from .channels import NONE, Channels, Column
from .marks import Mark, differences
from .rows import quantiles, unpacked
from .spans import Spans

Key = str | tuple[str, int]
Top = tuple[int, float, tuple[int, ...], Any]
HEADER = ("layer", "channels", "map", "mean", "std", "zeros", "dead", "NaN", "classes")


@dataclass(frozen=True, eq=False)
class Survey(Mapping):
    """Of every channel of every layer: what it answers to most, and how its values are spread.

    Made by `hookviz.survey` or `hookviz.load_survey`. A mapping, layer name -> `LayerSurvey`; a
    layer that runs several times in a forward is there for each run, ``survey["relu", 1]``. What
    two shards found is put together by ``+``.

    Attributes
    ----------
    mark : hookviz.wide.marks.Mark
        Which model, data set and settings it is of.
    channels : hookviz.wide.channels.Channels
        All that is known, as one table.
    done : hookviz.wide.spans.Spans
        The indices that have been taken in.
    unread : dict of int to str
        Inputs that could not be read, with the reason.
    left_out : dict of str to str
        Layers whose output is no maps of the inputs, with the reason.
    class_names : list of str
        Empty if none are known.
    """

    mark: Mark
    channels: Channels
    done: Spans
    unread: dict[int, str] = having(default_factory=dict)
    left_out: dict[str, str] = having(default_factory=dict)
    class_names: list[str] = having(default_factory=list)

    # A mapping of layers

    @cached_property
    def _layers(self) -> dict[Key, LayerSurvey]:
        found: dict[Key, LayerSurvey] = {}
        moments = self.channels.moments()
        for column, here in self.channels.slices().items():
            key = (column.name, column.call) if column.call else column.name
            data = {name: each[..., here].cpu() for name, each in self.channels.data.items()}
            shape = self.channels.layout[column]
            found[key] = LayerSurvey(column, shape, data, moments[:, here], self.class_names)
        return found

    def __getitem__(self, key: Key) -> LayerSurvey:
        if isinstance(key, tuple) and key[1:] == (0,):
            key = key[0]
        try:
            return self._layers[key]
        except (KeyError, TypeError):
            name = key[0] if isinstance(key, tuple) and key else key
            if name in self.left_out:
                raise KeyError(f"Layer {name!r} was left out: {self.left_out[name]}.") from None
            names = [each if isinstance(each, str) else each[0] for each in self._layers]
            raise KeyError(
                f"This survey has no layer {key!r}; {close_names(str(name), names)}."
            ) from None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self.channels.layout)

    def __add__(self, other: Survey) -> Survey:
        """What both found together.

        Raises
        ------
        ValueError
            They are of different models, data sets or settings, or have inputs in common.
        """
        if not isinstance(other, Survey):
            return NotImplemented
        if found := differences(self.mark, other.mark):
            raise ValueError(f"These surveys cannot be added: {found}.")
        if common := self.done & other.done:
            raise ValueError(
                f"These surveys cannot be added: both have the inputs {common}; add shards that "
                "have none in common."
            )
        return replace(
            self,
            channels=self.channels + other.channels,
            done=self.done | other.done,
            unread=dict(sorted((self.unread | other.unread).items())),
            left_out=self.left_out | other.left_out,
            class_names=self.class_names or other.class_names,
        )

    @property
    def complete(self) -> bool:
        """Whether the whole data set has been taken in."""
        return len(self.done) == self.mark.length

    @property
    def seen(self) -> int:
        """How many inputs the model was given."""
        return len(self.done) - len(self.unread)

    def find(self, name: str | int, share: float = 1.0) -> list[tuple[Key, int, int]]:
        """The channels whose top inputs are of one class.

        Parameters
        ----------
        name : str or int
            The class, by name or number.
        share : float
            Of the top inputs, how large a part must be of this class, above 0 to 1.

        Returns
        -------
        list of (layer, channel, count)
            Those with the most top inputs of the class first, then in the model's order.

        Raises
        ------
        ValueError
            There is no such class, or the data set came without labels.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share={share} is no part of the top inputs: give 0 < share <= 1.")
        labels = self.channels.data["labels"]
        highest = int(labels.max()) if labels.numel() else -1
        if highest < 0:
            raise ValueError(
                "This survey knows of no classes: the items of the data set must be (input, class "
                "number), or the pictures lie in one folder for each class."
            )
        count = max(highest + 1, len(self.class_names))
        wanted = class_index(name, count, self.class_names)
        found = []
        for key, layer in self.items():
            ranked = (layer.data["indices"] != NONE).sum(0)
            of_it = (layer.data["labels"] == wanted).sum(0)
            good = ((of_it > 0) & (of_it >= share * ranked)).nonzero()[:, 0].tolist()
            found += [(key, channel, int(of_it[channel])) for channel in good]
        return sorted(found, key=lambda each: -each[2])

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each channel, as ``pandas.DataFrame`` takes them.

        Returns
        -------
        list of dict
            With the keys of `LayerSurvey.records`.
        """
        return [record for layer in self.values() for record in layer.records()]

    def save(self, path: str) -> None:
        """Write it as one file, see `hookviz.load_survey`."""
        from .survey_file import write

        write(self, path)

    # Shown

    @property
    def title(self) -> str:
        """Of what, how much of it, and what there is to be known about it."""
        of = f"{len(self.done):,} of {self.mark.length:,}"
        facts = [f"Survey of {self.mark.model}: {len(self)} layers, {self.channels.width:,} "]
        facts[0] += f"channels, {f'{self.mark.length:,}' if self.complete else of} inputs"
        if self.unread:
            which = ", ".join(map(str, list(self.unread)[:5])) + ", …" * (len(self.unread) > 5)
            facts.append(f"{len(self.unread)} could not be read ({which})")
        for name, why in list(self.left_out.items())[:3]:
            facts.append(f"{name} was left out ({why})")
        if (more := len(self.left_out)) > 3:
            facts.append(f"and {more - 3} more")
        for layer in self.values():
            if layer.nans.any():
                facts.append(layer.said_of_nans)
        return "; ".join(facts)

    def __repr__(self) -> str:
        return text_table(self.title, HEADER, [layer.row() for layer in self.values()])

    def _repr_html_(self) -> str:
        return html_table(self.title, HEADER, [layer.row() for layer in self.values()])


@dataclass(frozen=True, eq=False)
class LayerSurvey:
    """One layer of a `Survey`, in one of its runs."""

    column: Column
    shape: tuple[int, ...]  #: of a map; the largest, if they differ
    data: dict[str, Tensor]  #: see `hookviz.wide.channels.Channels`
    moments: Tensor
    class_names: list[str]

    @property
    def name(self) -> str:
        """The layer's."""
        return self.column.name

    def __len__(self) -> int:
        return self.column.channels

    @property
    def mean(self) -> Tensor:
        """Of each channel's values over all inputs and places, ``(C,)`` in float64."""
        return self.moments[1].where(self.moments[0] > 0, torch.nan)

    @property
    def std(self) -> Tensor:
        """Their standard deviation, ``(C,)`` in float64; divided by the count, not one less."""
        return (self.moments[2] / self.moments[0]).clamp(min=0).sqrt()

    @property
    def zeros(self) -> Tensor:
        """The share of values that are zero, ``(C,)`` in float64."""
        return self.data["zeros"] / self.moments[0]

    @property
    def nans(self) -> Tensor:
        """How many of each channel's values were NaN, ``(C,)``; they are in nothing else."""
        return self.data["nans"]

    @property
    def dead(self) -> Tensor:
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

    def box(self, position: tuple[int, ...]) -> Any:
        """The receptive field of a place of the map, in the input; None if it is not known."""
        return None  # THE SEAM: receptive fields, when `field.py` has them, answer here

    def classes(self, channel: int) -> list[tuple[str | int, int]]:
        """The classes of the channel's top inputs, with how many are of each, most first."""
        self._check(channel)
        labels = self.data["labels"][:, channel].tolist()
        known = Counter(each for each in labels if each >= 0)
        ranked = sorted(known.items(), key=lambda each: (-each[1], each[0]))
        return [(self._class(label), count) for label, count in ranked]

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

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each channel.

        Returns
        -------
        list of dict
            With the keys layer, call, channel, max, index, position, mean, std, zeros, dead, nans,
            first_nan, median, and, where labels are known, class and class_count: the most
            frequent class among the top inputs.
        """
        columns: dict[str, list[Any]] = {
            **{name: getattr(self, name).tolist() for name in ("mean", "std", "zeros", "dead")},
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

    @property
    def said_of_nans(self) -> str:
        """Where there were NaN, in words."""
        channels = self.nans.nonzero()[:, 0].tolist()
        which = ", ".join(map(str, channels[:3])) + ", …" * (len(channels) > 3)
        first = int(self.data["first_nan"].min())
        return (
            f"{int(self.nans.sum()):,} NaN in {self.name or 'the model'}, channel"
            f"{'s' * (len(channels) > 1)} {which}, first in input {first}"
        )

    def row(self) -> tuple[str, ...]:
        """The layer in a line of the table."""
        values, (count, mean, _) = self.moments[0].sum(), self.moments
        middle = float((count * mean).sum() / values)
        spread = float(((count * (mean - middle) ** 2 + self.moments[2]).sum() / values) ** 0.5)
        pure = [self.classes(channel) for channel in range(len(self))]
        of_one = sum(len(each) == 1 for each in pure)
        call = f" (run {self.column.call})" if self.column.call else ""
        return (
            f"{self.name or '(model)'}{call}",
            str(len(self)),
            "×".join(map(str, self.shape)),
            number(middle),
            number(spread),
            f"{100 * float(self.data['zeros'].sum() / values):.3g} %",
            str(int(self.dead.sum())),
            str(int(self.nans.sum())),
            f"{of_one} of one class" if any(pure) else "–",
        )

    def __repr__(self) -> str:
        header = ("channel", "max", "mean", "std", "zeros", "top inputs", "classes")
        rows = []
        for each in self.records():
            best = ", ".join(str(index) for index, *_ in self.top(each["channel"], 5))
            said = ", ".join(f"{name} {count}" for name, count in self.classes(each["channel"])[:3])
            top = "–" if each["max"] is None else number(each["max"])
            rows.append(
                (
                    *(str(each["channel"]), top, number(each["mean"]), number(each["std"])),
                    *(f"{100 * each['zeros']:.3g} %", best, said or "–"),
                )
            )
        return text_table(f"{self.name}, {self.column.kind}", header, rows)

    def _class(self, label: int) -> str | int:
        return self.class_names[label] if label < len(self.class_names) else label

    def _check(self, channel: int) -> None:
        if not 0 <= channel < len(self):
            raise ValueError(
                f"Layer {self.name!r} has no channel {channel}: its channels are 0 to "
                f"{len(self) - 1}."
            )
