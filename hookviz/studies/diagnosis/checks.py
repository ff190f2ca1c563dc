"""The list of checks: each looks at one examination, and says what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .causes import causes_alone, one_a_cause
from .findings import Finding
from .loss import no_slope_of_score, wiring
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
    no_slope_of_score: "whether the score has a gradient",
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
