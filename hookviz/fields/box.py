"""A part of the input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Box(tuple[int, ...]):
    """A part of the input: where it begins in each dimension, then where it ends (half-open).

    In a picture ``(top, left, bottom, right)``, in a signal ``(begin, end)``.

    Attributes
    ----------
    padding : tuple of (int, int), or None
        How many pixels of the field's size are missing before and behind the box, in each
        dimension: they lie in the padding. None where the field has no one size.
    """

    padding: tuple[tuple[int, int], ...] | None

    def __new__(cls, begin: Iterable[int], end: Iterable[int], padding: Any = None) -> Box:
        """Of where it begins and where it ends."""
        box = super().__new__(cls, (*begin, *end))
        box.padding = padding
        return box

    @property
    def slices(self) -> tuple[slice, ...]:
        """What cuts it out: ``x[(..., *box.slices)]``."""
        half = len(self) // 2
        return tuple(map(slice, self[:half], self[half:]))
