"""The model raised: which layer, what it was given, what it takes, and which layer made that."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from ...run.errors import first_line, innermost_call, takes
from .findings import Finding
from .observation import LayerCall, Observation
from .operations import OUTSIDE, OperationRecord

KINDS = {
    "batchnorm": re.compile("more than 1 value per channel"),
    "shape": re.compile(
        r"shape|size|dimension|channels|should contain|must match"
        r"|expected .*(batch|tensor|input|got)",
        re.I,
    ),
}
"""Kinds of findings -> what stands in torch's messages."""


def raised(seen: Observation) -> Iterator[Finding]:
    """The model's own error, and what led to it."""
    error = seen.error
    if error is None:
        return
    look = _innermost(seen, error)
    kind = next((kind for kind, words in KINDS.items() if words.search(str(error))), "error")
    file, line, function = _users_place(error)
    operation = seen.raised.name if seen.raised is not None else function
    name = look.layer if look is not None else ""
    given = " and ".join(map(_said, look.given)) if look is not None else ""
    words = [f"The model raised {type(error).__name__} in {_named(look)}"]
    if look is not None and given:
        made = " and ".join(map(_maker, look.made_by))
        words.append(f", which was given {given}" + (f", made by {made}" if made else ""))
        if wants := takes(look.module):
            words.append(f", and takes {wants}")
    yield Finding(
        kind,
        "error",
        "".join(words) + f": {first_line(error)}",
        _advice(look, kind),
        name,
        look.call if look is not None else 0,
        "backward" if _in_backward(seen) else "forward",
        operation,
        file,
        line,
        {"shapes": [(each.layer, each.type, each.shapes) for each in seen.calls if each.shapes]},
    )


def _innermost(seen: Observation, error: Exception) -> LayerCall | None:
    """The call in which the error arose: the innermost one that did not come to its end."""
    call = innermost_call(error, seen.names)
    unfinished = [look for look in seen.calls if not look.finished]
    if call is not None:
        unfinished = [look for look in unfinished if look.module is call[0]] or unfinished
    return unfinished[-1] if unfinished else None


def _in_backward(seen: Observation) -> bool:
    root = next((look for look in seen.calls if look.module is next(iter(seen.names))), None)
    return root is not None and root.finished


def _users_place(error: Exception) -> tuple[str, int, str]:
    """File and line of the innermost frame of the user's code, and torch's function within it."""
    foreign = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])
    frames = traceback.extract_tb(error.__traceback__)
    users = [place for place, each in enumerate(frames) if not each.filename.startswith(foreign)]
    inner = frames[users[-1] :] if users else frames
    functional = [each.name for each in inner if each.filename.endswith("functional.py")]
    file, line = (inner[0].filename, inner[0].lineno or 0) if users else ("", 0)
    return file, line, functional[0] if functional else ""


def _said(shape: tuple[int, ...]) -> str:
    return str(tuple(shape))


def _maker(operation: OperationRecord) -> str:
    if operation.index < 0:
        return f"the {operation.name}"
    line = f" at {operation.where}" if operation.where else ""
    return (
        f"{operation.name} in {operation.layer!r}{line}"
        if operation.layer
        else (f"{operation.name} in the model's forward{line}")
    )


def _named(look: LayerCall | None) -> str:
    if look is None or look.layer == OUTSIDE:
        return "the score"
    named = f"layer {look.layer!r} ({look.type})" if look.layer else f"{look.type}'s forward"
    return f"{named}, call {look.call}" if look.call else named


def _advice(look: LayerCall | None, kind: str) -> str:
    if kind == "batchnorm":
        return "Give a batch of two or more, call model.eval(), or use GroupNorm."
    if kind == "error" or look is None:
        return "Look at the end of the error's traceback; the line of your code is named here."
    if look.made_by and look.made_by[0].index >= 0:
        return (
            f"Make {look.layer or 'forward'!r} fit what it is given, or change what made that; "
            "finding.evidence['shapes'] lists the shapes up to there."
        )
    return "Give an input of the size that this layer takes."
