"""The list of all checks, and the findings that remain once consequences are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...run.errors import first_line
from .check import Check, RunRecord
from .checks.batchnorm import BatchNormVariance
from .checks.half_precision import HalfPrecision
from .checks.in_place import InPlace
from .checks.input_scale import InputScale
from .checks.leftover_hooks import LeftoverHooks
from .checks.loss import Wiring
from .checks.magnitudes import Magnitudes
from .checks.model_error import ModelError
from .checks.modes import Dropout, OtherMode, TrainingMode
from .checks.no_gradient import NoGradient
from .checks.no_slope import NoSlope
from .checks.nonfinite import NonFinite
from .checks.not_examined import NotExamined
from .checks.optimizer import Optimizers
from .checks.registration import NotRegistered, OneModule
from .checks.same_channels import SameChannels
from .checks.saturated import Saturated
from .checks.silent import SilentChannels
from .checks.targets import Targets
from .checks.unused import Unused
from .checks.zero_weights import ZeroWeights
from .findings import Finding, also

CHECKS: tuple[type[Check], ...] = (
    ModelError,
    NonFinite,
    HalfPrecision,
    Wiring,
    Targets,
    InputScale,
    ZeroWeights,
    SameChannels,
    NotRegistered,
    OneModule,
    SilentChannels,
    Saturated,
    Magnitudes,
    NoGradient,
    NoSlope,
    Unused,
    NotExamined,
    BatchNormVariance,
    OtherMode,
    Dropout,
    TrainingMode,
    InPlace,
    LeftoverHooks,
    Optimizers,
)


def new_checks(*, live: bool = False) -> list[Check]:
    """Make the checks of one run; only those for a step that is watched, if it is ``live``."""
    return [each() for each in CHECKS if each.live or not live]


def findings_of(run: RunRecord) -> list[Finding]:
    """Return all findings of a run's checks, with their consequences."""
    found: list[Finding] = []
    for check in run.checks:
        try:
            found += check.findings(run)
        except Exception as error:
            run.broken.setdefault(type(check), error)
    return found + [_broken(check, error) for check, error in run.broken.items()]


def _broken(check: type[Check], error: Exception) -> Finding:
    """Note a check that failed itself."""
    return Finding(
        "not examined",
        "note",
        f"hookviz's own check of {check.looks_at or check.__name__} failed "
        f"({type(error).__name__}: {first_line(error)}).",
        "The model is not to blame: please report this to hookviz.",
    )


def looked_at(run: RunRecord) -> list[str]:
    """Say what the checks of a run examined."""
    whole = (check for check in run.checks if type(check) not in run.broken)
    return [words for check in whole if (words := check.looked_at(run))]


def causes(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each cause, without those that follow from others.

    Examples
    --------
    >>> dead = Finding("dead", "warning", "It is.", "", "a", explains=frozenset({"vanishing"}))
    >>> small = Finding("vanishing", "warning", "It shrinks.", "", "b")
    >>> [each.kind for each in causes([small, dead])]
    ['dead']
    >>> two = [Finding("dead", "note", "It is.", "", layer, cause="x") for layer in ("a", "b")]
    >>> [(each.layers, each.message) for each in causes(two)]
    [(['a', 'b'], "It is. The same holds for 'b'.")]
    """
    found = list(findings)
    groups: dict[object, list[Finding]] = {}
    for each in found:
        name = each.symptom or each.kind
        if any(name in other.explains for other in found if other is not each):
            continue
        key = (each.kind, each.severity, each.phase, each.cause) if each.cause else id(each)
        groups.setdefault(key, []).append(each)
    return [_merged(group) for group in groups.values()]


def _merged(group: list[Finding]) -> Finding:
    first = group[0]
    layers = list(dict.fromkeys(name for each in group for name in each.layers))
    if len(layers) == 1:
        return first
    others = also(layers[1:]) if len(group) > 1 else ""
    return replace(first, message=first.message + others, layers=layers)
