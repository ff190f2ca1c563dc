"""A receptive field for pictures and pages: one place in words, all places as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .field import ReceptiveField

Shares = tuple[float, float, float, float]

AXES = (("places",), ("rows", "columns"), ("slices", "rows", "columns"))
"""What is counted in the dimensions of a signal, a picture, a volume."""

MOST_PLACES = 4096
"""Of a map without a rule, so many places have their boxes sent one by one."""


def place_in(field: ReceptiveField, depth: int, row: int, column: int) -> tuple[int, ...]:
    """The field's place, by where it is in a shown map."""
    return (depth, row, column)[3 - len(field.map_size) :]


def outline(field: ReceptiveField, place: Sequence[int]) -> Shares | None:
    """What a place sees, as left, top, width and height in shares of the input's picture.

    None where it is not known, or nothing.
    """
    if not field.known:
        return None
    box, half = field.box(*place), len(field.input_size)
    if half == 1:  # a signal's picture is a band
        left, right, top, bottom = *box, 0, 1
    else:
        left, right, top, bottom = (box[n] for n in (half - 1, -1, half - 2, -2))
    high, wide = (1, *field.input_size)[-2:]
    found = left / wide, top / high, (right - left) / wide, (bottom - top) / high
    return found if right > left else None


def words(field: ReceptiveField, place: Sequence[int]) -> str:
    """What a place sees.

    Examples
    --------
    >>> import hookviz, torch
    >>> layer = torch.nn.Conv2d(1, 1, 5, padding=2)
    >>> field = hookviz.receptive_field(torch.nn.Sequential(layer), "0", torch.zeros(1, 1, 9, 9))
    >>> words(field, (0, 4))
    'rows 0–2 and 2 in the padding, columns 2–6'
    """
    if not field.known:
        return f"{field.status}: {field.why}"
    if field.status == "whole input":
        return "the whole input"
    box, half, said = field.box(*place), len(field.input_size), []
    if box[0] >= box[half]:
        return "nothing of the input"
    for axis, name in enumerate(AXES[half - 1]):
        hidden = sum(box.padding[axis]) if box.padding else 0
        part = f"{name} {box[axis]}–{box[half + axis] - 1}"
        said.append(part + (f" and {hidden} in the padding" if hidden else ""))
    return ", ".join(said)


def payload(field: ReceptiveField) -> dict[str, Any]:
    """All places' boxes, as JSON.

    Returns
    -------
    dict
        ``status`` and ``why`` as the field's; ``input`` and ``map``, its sizes; ``size``, pixels a
        place sees where that is by a rule, else None; ``ends``, for each dimension of the input
        ``along``, ``from``, ``to``: two lists, by the place's number in the dimension ``along`` of
        the map, or among all places if that is None. ``ends`` is None where it would be too long.
    """
    half, boxes = len(field.input_size), field.boxes
    ruled = field.known and None not in field.start
    ends = [_ends(boxes[axis], boxes[half + axis]) for axis in range(half)] if field.known else []
    return {
        "status": field.status,
        "why": field.why,
        "input": field.input_size,
        "map": field.map_size,
        "axes": AXES[half - 1],
        "size": field.size if ruled else None,
        "ends": ends if ends and all(ends) else None,
    }


def _ends(begin: Tensor, end: Tensor) -> dict[str, Any] | None:
    """Of one dimension of the input: by one dimension of the map, if they depend on no other."""
    for along in range(begin.ndim):
        line = tuple(slice(None) if axis == along else slice(0, 1) for axis in range(begin.ndim))
        if all((each == each[line]).all() for each in (begin, end)):
            return _lists(begin[line], end[line], along)
    return _lists(begin, end, None) if begin.numel() <= MOST_PLACES else None


def _lists(begin: Tensor, end: Tensor, along: int | None) -> dict[str, Any]:
    return {"along": along, "from": begin.flatten().tolist(), "to": end.flatten().tolist()}
