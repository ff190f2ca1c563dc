"""Causes of findings: one finding for each, without what follows from another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from .findings import Finding, also


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


def causes_alone(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out what another finding explains.

    Numbers that grow from layer to layer come to Inf, and then to NaN, wherever that happens to be;
    what a layer of zeros makes is told of that layer.
    """
    found = _until_overflow(list(findings))
    for cause, effect in _EXPLAINED:
        if any(map(cause, found)):
            found = [each for each in found if not effect(each)]
    norms = {each.layer for each in found if each.kind == "input scale"}
    found = [e for e in found if not (e.layer in norms and _in_magnitude(e))]
    return [each for each in found if not _goes_back(each, found)]


def _until_overflow(found: list[Finding]) -> list[Finding]:
    """Tell of NaN, Inf and half precision as the end of what grows from layer to layer."""
    grows = [e for e in found if e.kind == "exploding" and e.evidence.get("everywhere")]
    lost = [each for each in found if each.kind in ("nan", "inf") and _overflown(each)]
    if not grows or not (lost or any(each.evidence.get("lost") for each in grows)):
        return found
    worst = [replace(each, severity="error", message=each.message + _TO_INF) for each in grows]
    hidden = [*lost, *grows]
    kept = [e for e in found if e not in hidden and e.kind not in ("half precision", "dead")]
    return worst + kept


_TO_INF = " In the end it is more than the type holds, and NaN comes of it."


def _overflown(finding: Finding) -> bool:
    """Return True if it says that a result was too large, or what comes of that."""
    given = " ".join(finding.evidence.get("given", ()))
    too_large = finding.evidence.get("overflow", False)
    return too_large or finding.phase == "backward" or "e+" in given


def _same_whatever(finding: Finding) -> bool:
    """Return whether it says why a layer returns the same whatever it is given."""
    alike = finding.kind in ("zero weights", "same channels") and finding.severity == "warning"
    return alike or finding.evidence.get("everywhere the same", False)


def _closed(finding: Finding) -> bool:
    """Return whether a layer lets nothing through, or so little since its channels are alike."""
    whole = finding.evidence.get("channels") == finding.evidence.get("of")
    return finding.kind in ("zero weights", "same channels") or (
        finding.kind in ("dead", "constant") and whole
    )


def _lets_nothing_through(finding: Finding) -> bool:
    """Return whether it tells why a gradient, or what runs forward, comes to 0."""
    flat = finding.evidence.get("everywhere the same", False)
    return flat or finding.kind == "saturated" or _closed(finding)


def _without_slope(finding: Finding) -> bool:
    """Return whether it says that a gradient is 0 without the operation that makes it so."""
    gone = math.isinf(finding.evidence.get("factor", 0.0))
    told = finding.kind == "vanishing" and finding.phase == "backward" and gone
    return told or (finding.kind == "no gradient" and "samples" in finding.evidence)


def _too_large(finding: Finding) -> bool:
    """Return whether a BatchNorm, or the input, makes numbers far too large."""
    return finding.kind == "input scale" or (
        finding.kind == "batchnorm" and "factor" in finding.evidence
    )


def _of_large_numbers(finding: Finding) -> bool:
    """Return whether it is what numbers that are far too large lead to."""
    idle = finding.kind == "no gradient" and "samples" in finding.evidence
    return idle or (finding.kind == "saturated" and finding.severity == "warning")


def _in_magnitude(finding: Finding) -> bool:
    return finding.kind in ("exploding", "vanishing")


def _recurrent(finding: Finding) -> bool:
    """Return whether it says that what a recurrence returns grows from run to run."""
    everywhere = finding.kind == "exploding" and finding.evidence.get("everywhere", False)
    return everywhere and finding.evidence.get("recurrence", False)


def _goes_back(finding: Finding, found: Sequence[Finding]) -> bool:
    """Return whether a layer is told to change a gradient as it changes what runs forward."""
    if finding.phase == "forward" or not _in_magnitude(finding):
        return False
    same = [e for e in found if (e.kind, e.layer) == (finding.kind, finding.layer)]
    return any(each.phase == "forward" for each in same)


_BY_CONSTANTS = ("input scale", "batchnorm", "constant", "dead", "silent")

_Test = Callable[[Finding], bool]
_EXPLAINED: tuple[tuple[_Test, _Test], ...] = (
    # The gradient runs back through the same recurrence.
    (
        lambda each: _recurrent(each) and each.phase == "forward",
        lambda each: _recurrent(each) and each.phase != "forward",
    ),
    (
        lambda each: each.severity != "note" and _lets_nothing_through(each),
        lambda each: each.kind == "vanishing",
    ),
    # The operation without a slope is named.
    (
        lambda each: each.severity != "note" and each.evidence.get("slope") == 0,
        _without_slope,
    ),
    (
        _same_whatever,
        lambda each: each.kind in _BY_CONSTANTS and not _same_whatever(each),
    ),
    (
        lambda each: each.kind == "input scale" and _same_whatever(each),
        _in_magnitude,
    ),
    (
        lambda each: each.severity != "note" and _closed(each),
        lambda each: each.cause == "flat",
    ),
    (_too_large, _of_large_numbers),
)
"""Pairs: where the first is true of any finding, those of which the second is true are left out."""
