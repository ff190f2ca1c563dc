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


def causes_alone(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what another finding explains.

    Numbers that grow from layer to layer come to Inf, and then to NaN, wherever that happens to be;
    what a layer of zeros makes is told of that layer.
    """
    found = list(findings)
    grows = [e for e in found if e.kind == "exploding" and e.evidence.get("everywhere")]
    lost = [each for each in found if each.kind in ("nan", "inf") and _overflown(each)]
    if grows and lost:
        found = [each for each in found if each not in lost and each not in grows]
        worst = [replace(each, severity="error", message=each.message + _TO_INF) for each in grows]
        found = worst + [each for each in found if each.kind not in ("half precision", "dead")]
    if any(each.severity != "note" and _closed(each) for each in found):
        found = [each for each in found if each.kind != "vanishing"]
    return found


def _closed(finding: Finding) -> bool:
    """Whether nothing comes through a layer, forward or back."""
    whole = finding.evidence.get("channels") == finding.evidence.get("of")
    return finding.kind == "zero weights" or (finding.kind == "dead" and whole)


_TO_INF = " In the end it is more than the type holds, and NaN comes of it."


def _overflown(finding: Finding) -> bool:
    """Whether it says that a result was too large, or what comes of that."""
    given = " ".join(finding.evidence.get("given", ()))
    too_large = "than its type holds" in finding.message or "its sums are larger" in finding.message
    return too_large or finding.phase == "backward" or "e+" in given


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
