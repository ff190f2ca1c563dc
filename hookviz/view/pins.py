"""Pins: channels and places that the user keeps, each with a note."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

from ..files import write_whole
from ..tables import html_table, text_table


@dataclass(frozen=True)
class Pin:
    """A kept channel.

    Attributes
    ----------
    layer, channel, call, sample, depth
        As the explorer's settings.
    position : tuple of int or None
        Row and column in the layer's maps; None if no place was chosen.
    place : tuple of float or None
        The same as fractions, how far down and right.
    target : str
        The name of the target.
    note : str
        The user's.
    """

    layer: str
    channel: int
    call: int = 0
    sample: int = 0
    depth: int = 0
    position: tuple[int, int] | None = None
    place: tuple[float, float] | None = None
    target: str = ""
    note: str = ""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Pin:
        """Make a pin of what the browser sent; a ``TypeError`` says what it lacks."""
        known: dict[str, Any] = {
            each.name: said[each.name] for each in fields(cls) if each.name in said
        }
        pairs: dict[str, Any] = {
            name: tuple(known[name]) for name in ("position", "place") if known.get(name)
        }
        return cls(**(known | pairs))


class Pins(Sequence[Pin]):
    """The pins of an explorer, in the order in which they were set.

    Examples
    --------
    >>> pins = Pins([Pin("conv1", 17, position=(3, 5), note="an eye")])
    >>> pins
    1 pin
    layer  channel  position  target  note
    conv1  17       3, 5              an eye
    >>> pins.records()[0]["position"]
    [3, 5]
    """

    def __init__(self, pins: Iterable[Pin] = ()) -> None:
        self._pins = tuple(pins)

    @overload
    def __getitem__(self, index: int) -> Pin: ...
    @overload
    def __getitem__(self, index: slice) -> Pins: ...
    def __getitem__(self, index: int | slice) -> Pin | Pins:
        found = self._pins[index]
        return Pins(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(self._pins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pins) and self._pins == other._pins

    def __hash__(self) -> int:
        return hash(self._pins)

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each pin, as strict JSON."""
        found = [asdict(each) for each in self._pins]
        for each in found:
            for name in ("position", "place"):
                each[name] = None if each[name] is None else [*each[name]]
        return found

    def to_csv(self, path: str | os.PathLike | None = None) -> str | None:
        """Write the pins as a table of comma-separated values; return it without a path.

        Examples
        --------
        >>> print(Pins([Pin("conv1", 17, place=(0.5, 0.25), position=(3, 1))]).to_csv())
        layer,channel,call,sample,depth,row,column,down,right,target,note
        conv1,17,0,0,0,3,1,0.5,0.25,,
        <BLANKLINE>
        """
        held = io.StringIO()
        writer = csv.writer(held, lineterminator="\n")
        indices = ("layer", "channel", "call", "sample", "depth")
        writer.writerow([*indices, "row", "column", "down", "right", "target", "note"])
        for each in self._pins:
            spot = (each.position or ("", "")) + (each.place or ("", ""))
            own = [getattr(each, name) for name in indices]
            writer.writerow([*own, *spot, each.target, each.note])
        if path is None:
            return held.getvalue()
        write_whole(path, held.getvalue().encode())
        return None

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                each.layer or "(model)",
                str(each.channel),
                "" if each.position is None else "{}, {}".format(*each.position),
                each.target,
                each.note,
            )
            for each in self._pins
        ]

    @property
    def _title(self) -> str:
        return "no pins" if not self else f"{len(self)} pin{'s' * (len(self) > 1)}"

    def __repr__(self) -> str:
        return text_table(self._title, _HEADER, self._rows()) if self else self._title

    def _repr_html_(self) -> str:
        return html_table(self._title, _HEADER, self._rows())


_HEADER = ("layer", "channel", "position", "target", "note")
