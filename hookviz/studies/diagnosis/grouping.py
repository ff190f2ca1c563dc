"""One finding a cause: what several layers show for one reason is told once, with all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .findings import Finding

NAMED = 4
"""So many of the other layers are named in the text; `Finding.layers` has all."""


def one_a_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Put together findings of one kind, severity and phase that have the same cause.

    >>> two = [Finding("dead", "note", "It is.", "", layer, cause="x") for layer in ("a", "b")]
    >>> [(each.layers, each.message) for each in one_a_cause(two)]
    [(['a', 'b'], "It is. So it is in 'b'.")]
    """
    groups: dict[object, list[Finding]] = {}
    for each in findings:
        same = (each.kind, each.severity, each.phase, each.cause)
        groups.setdefault(same if each.cause else id(each), []).append(each)
    return [_together(group) for group in groups.values()]


def _together(group: list[Finding]) -> Finding:
    first = group[0]
    layers = list(dict.fromkeys(name for each in group for name in each.layers))
    if len(layers) == 1:
        return first
    said = also(layers[1:]) if len(group) > 1 else ""
    return replace(first, message=first.message + said, layers=layers)


def also(names: list[str]) -> str:
    """Name other layers that show the same, in a sentence."""
    more = len(names) - NAMED
    said = ", ".join(repr(each) if each else "the model itself" for each in names[:NAMED])
    return f" So it is in {said}" + (f" and {more} more layers." if more > 0 else ".")
