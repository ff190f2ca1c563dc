"""The list of checks: each looks at one examination, and says what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .findings import Finding
from .magnitudes import scales
from .model_error import raised
from .nonfinite import nan_and_inf
from .observation import Observation
from .train_eval import batchnorm, dropout, in_place, training_mode
from .unused import hooks_left_behind, no_gradient, unused
from .values import half_precision, silent_maps

Check = Callable[[Observation], Iterator[Finding]]

CHECKS: dict[Check, str] = {
    raised: "whether the model runs",
    nan_and_inf: "NaN and Inf in {operations} operations, forward and backward",
    half_precision: "half precision",
    silent_maps: "dead, constant and saturated channels",
    scales: "the size of activations and gradients along {looks} calls of layers",
    no_gradient: "parameters that no gradient reaches",
    unused: "layers that never ran",
    batchnorm: "BatchNorm's variances",
    dropout: "dropout in eval mode",
    training_mode: "the mode",
    in_place: "outputs that are overwritten in place",
    hooks_left_behind: "hooks on the model",
}
"""Each check, and what it looks at in words."""


def findings_in(seen: Observation) -> list[Finding]:
    """All that the checks find."""
    return [finding for check in CHECKS for finding in check(seen)]


def looked_at(seen: Observation) -> list[str]:
    """What the checks looked at, in words."""
    counts = {"operations": len(seen.operations), "looks": len(seen.calls)}
    return [words.format(**counts) for words in CHECKS.values()]
