"""The list of checks: each looks at one examination, and says what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from .findings import Finding, also
from .loss import idle_samples, wiring
from .magnitudes import overflows, scales
from .model_error import raised
from .nonfinite import nan_and_inf
from .observation import Observation
from .train_eval import batchnorm, dropout, in_place, other_mode, training_mode
from .unused import hooks_left_behind, no_gradient, unused
from .values import (
    attention,
    half_precision,
    input_scale,
    not_registered,
    one_under_many_names,
    same_channels,
    saturated,
    silent_maps,
    zero_weights,
)

Check = Callable[[Observation], Iterator[Finding]]

CHECKS: dict[Check, str] = {
    raised: "whether the model runs",
    nan_and_inf: "NaN and Inf in {operations} operations, forward and backward",
    half_precision: "half precision",
    wiring: "how losses and softmaxes are wired",
    idle_samples: "samples without a gradient",
    input_scale: "the scale of the input",
    zero_weights: "weights that are zero",
    same_channels: "channels with the same weights",
    not_registered: "weights that are in no module",
    one_under_many_names: "modules under several names",
    silent_maps: "dead and constant channels",
    saturated: "sigmoids and tanhs at their ends",
    attention: "where {heads} heads of attention look",
    scales: "the size of activations and gradients along {looks} calls of layers",
    overflows: "recurrent layers step by step",
    no_gradient: "parameters that no gradient reaches",
    unused: "layers that never ran",
    batchnorm: "BatchNorm's variances",
    other_mode: "BatchNorm and dropout in another mode than the model",
    dropout: "dropout as a function",
    training_mode: "the mode",
    in_place: "outputs that are overwritten in place",
    hooks_left_behind: "hooks on the model",
}
"""Each check, and what it looks at in words."""


def findings_in(seen: Observation) -> list[Finding]:
    """All that the checks find, one finding a cause, without what follows from another."""
    found = [finding for check in CHECKS for finding in check(seen)]
    return one_a_cause(causes_alone(found))


def looked_at(seen: Observation) -> list[str]:
    """Say in words which parts of the run were checked."""
    counts = {
        "operations": len(seen.operations) + seen.counted,
        "looks": len(seen.calls),
        "heads": len(seen.heads),
    }
    checks = [words for check, words in CHECKS.items() if check is not attention or seen.heads]
    return [words.format(**counts) for words in checks]


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
    if grows and (lost or any(each.evidence.get("lost") for each in grows)):
        found = [each for each in found if each not in lost and each not in grows]
        worst = [replace(each, severity="error", message=each.message + _TO_INF) for each in grows]
        found = worst + [each for each in found if each.kind not in ("half precision", "dead")]
    runs = [each for each in grows if each.evidence.get("recurrence")]
    if any(each.phase == "forward" for each in runs):  # the gradient runs back through the same
        found = [each for each in found if each not in runs or each.phase == "forward"]
    if any(each.severity != "note" and _lets_nothing_through(each) for each in found):
        found = [each for each in found if each.kind != "vanishing"]
    if any(each.evidence.get("slope") == 0 and each.severity != "note" for each in found):
        found = [each for each in found if not _without_slope(each)]  # the operation is named
    if any(map(_same_whatever, found)):
        kinds = ("input scale", "batchnorm", "constant", "dead", "silent")
        found = [e for e in found if e.kind not in kinds or _same_whatever(e)]
    if any(each.kind == "input scale" and _same_whatever(each) for each in found):
        found = [each for each in found if each.kind not in ("exploding", "vanishing")]
    if any(each.severity != "note" and _closed(each) for each in found):
        found = [each for each in found if each.cause != "flat"]
    if any(_too_large(each) for each in found):
        found = [each for each in found if not _of_large_numbers(each)]
    norms = {each.layer for each in found if each.kind == "input scale"}
    found = [e for e in found if not (e.layer in norms and e.kind in ("exploding", "vanishing"))]
    return [each for each in found if not _goes_back(each, found)]


def _same_whatever(finding: Finding) -> bool:
    """Return whether it says why a layer returns the same whatever it is given."""
    alike = finding.kind in ("zero weights", "same channels") and finding.severity == "warning"
    return alike or finding.evidence.get("everywhere the same", False)


def _goes_back(finding: Finding, found: Sequence[Finding]) -> bool:
    """Return whether a layer is told to change a gradient as it changes what runs forward."""
    if finding.phase == "forward" or finding.kind not in ("exploding", "vanishing"):
        return False
    same = [e for e in found if (e.kind, e.layer) == (finding.kind, finding.layer)]
    return any(each.phase == "forward" for each in same)


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


_TO_INF = " In the end it is more than the type holds, and NaN comes of it."


def _overflown(finding: Finding) -> bool:
    """Return True if it says that a result was too large, or what comes of that."""
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
