"""Findings in the recorded steps of a training, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...tables import number
from ..diagnosis.checks.optimizer import TOO_FAR, USUAL
from ..diagnosis.findings import Finding, also
from .log import History, TrainingLog

FEW = 2
"""The least number of steps for a statement."""
EARLY = 8
"""The number of steps that count as the first ones."""
JUMP = 10.0
"""A step this many times as long as those before it does not come from a small initialization:
after one, updates become shorter in comparison with the growing weights."""
OUTGROWN = 20.0
"""Weights that grow by this factor, beginning with a large update, have too large updates."""

LOOKED = (
    "NaN and Inf in the recorded steps",
    "how far each step changes the weights",
    "gradients that add up from step to step",
)


def verdicts(log: TrainingLog) -> list[Finding]:
    """Return the findings in the recorded steps of training."""
    history = log.histories["train"]
    checks = (_not_finite(log), _cut_off(log), _too_far(history), _still(history), _adds_up(log))
    return [finding for check in (*checks, _merged(log)) for finding in check]


def _not_finite(log: TrainingLog) -> Iterator[Finding]:
    first = log.first_trouble
    if first is not None:
        skipped = first.scale > 1
        yield Finding(
            "nan" if first.nans else "inf",
            "note" if skipped else "error",
            f"{first}.",
            "Call scaler.step(optimizer) and scaler.update(), which makes the scale smaller."
            if skipped
            else "Put `with hookviz.diagnose(model) as findings:` around that step: it names the "
            "operation.",
            first.layer,
            first.call,
            first.phase,
        )


def _cut_off(log: TrainingLog) -> Iterator[Finding]:
    """Find a training in which no gradient comes; a model without a graph, as a teacher, may."""
    if log.cut_off >= FEW and not any(s.has_gradients for s in log.histories["train"].steps):
        yield Finding(
            "no gradient",
            "warning",
            f"No gradient came in {log.cut_off:,} recorded steps.",
            "Call backward() within the block, with a loss that is made of the model's output "
            "without detach() or item(). If the model should not learn, use torch.no_grad().",
            phase="backward",
        )


def _norms(history: History, name: str) -> dict[str, np.ndarray]:
    """Return a norm of each layer's weights in all steps, NaN where there is none."""
    rows, values, _ = history.table(name)
    return {row.layer: own for row, own in zip(rows, values, strict=True)}


def _too_far(history: History) -> Iterator[Finding]:
    ratios = _norms(history, "update_ratio")
    # Weights that are zero, or overflow, have no ratio.
    sizes = {
        name: np.where((each > 0) & np.isfinite(each), each, np.nan)
        for name, each in _norms(history, "weight_norm").items()
    }
    usual = _usual_norms(history)
    floors = {layer: np.maximum(each, usual.get(layer, 0.0)) for layer, each in sizes.items()}
    lengths = {layer: each * sizes[layer] / floors[layer] for layer, each in ratios.items()}
    known = {layer: np.isfinite(each) for layer, each in lengths.items()}
    known = {layer: each for layer, each in known.items() if each.sum() >= FEW}
    # Large updates make the weights grow, and later updates small in comparison.
    for first, words in ((None, ""), (EARLY, f"first {EARLY} ")):
        middles = {layer: _middle(lengths[layer][each][:first]) for layer, each in known.items()}
        if middles and np.median([*middles.values()]) > TOO_FAR:
            far = [layer for layer, middle in middles.items() if middle > TOO_FAR]
            shown = {layer: _middle(ratios[layer][each][:first]) for layer, each in known.items()}
            yield _too_high(
                f"The median of the {words}recorded steps changes the weights of {far[0]!r} by "
                f"{number(shown[far[0]])} of their norm",
                far,
                {"update ratios": shown},
                _too_long_by(shown[far[0]]),
            )
            return
    yield from [*_jumped(history, ratios, lengths), *_outgrown(ratios, sizes, floors)][:1]


def _middle(ratios: np.ndarray) -> float:
    """Return the median; of an even number the lower one, since one of two steps is not most."""
    return float(np.quantile(ratios, 0.5, method="lower"))


def _usual_norms(history: History) -> dict[str, float]:
    """Return the norm of each layer's weights as usual initializations make them, or less."""
    return {
        row.layer: USUAL * math.sqrt(channels)
        for step in history.steps
        for row, channels in zip(step.layout.rows, step.layout.channels, strict=True)
    }


def _jumped(
    history: History, ratios: dict[str, np.ndarray], lengths: dict[str, np.ndarray]
) -> Iterator[Finding]:
    """Find the first step that is far longer than those before it, as when training diverges."""
    before: list[float] = []
    for index, step in enumerate(history.steps):
        moved = {layer: float(each[index]) for layer, each in lengths.items() if each[index] > 0}
        middle = float(np.median([*moved.values()])) if moved else math.nan
        usual = float(np.median(before)) if before else math.nan
        if before and middle > max(TOO_FAR, JUMP * usual):
            far = [layer for layer, length in moved.items() if length > TOO_FAR]
            shown = {layer: float(ratios[layer][index]) for layer in moved}
            most = shown[far[0]]
            share = (
                f"{number(most)} of their norm" if math.isfinite(most) else "too much for float32"
            )
            yield _too_high(
                f"Step {step.at:,} changes the weights of {far[0]!r} by {share}; in the recorded "
                f"steps before it, the median over the layers was {number(usual)}",
                far,
                {"update ratios": shown},
                "ten",  # weights that diverge grow by far more than the learning rate is too high
            )
            return
        before += [middle] * bool(moved)


def _too_long_by(ratio: float) -> str:
    """Return how many times as long as a hundredth of the norm a step is, to one digit.

    >>> _too_long_by(0.53), _too_long_by(1160.0)
    ('50', '100,000')
    """
    return f"{float(f'{100 * ratio:.1g}'):,.0f}"


def _too_high(what: str, layers: list[str], evidence: dict[str, Any], times: str) -> Finding:
    return Finding(
        "learning rate",
        "warning",
        f"{what}: the learning rate is far too high.{also(layers[1:])}",
        f"Make it {times} times smaller, and again until a step changes the weights by about a "
        "hundredth of their norm, or less.",
        layers[0],
        phase="backward",
        layers=layers,
        evidence=evidence,
    )


def _outgrown(
    ratios: dict[str, np.ndarray], sizes: dict[str, np.ndarray], floors: dict[str, np.ndarray]
) -> Iterator[Finding]:
    """Find weights that the first update replaced, and that are many times as large ever since."""
    known = [layer for layer, each in sizes.items() if np.isfinite([*each, ratios[layer][0]]).all()]
    first = {layer: float(ratios[layer][0]) for layer in known}
    grown = {layer: float(sizes[layer].max() / sizes[layer][0]) for layer in known}
    # Both are less beside the usual norm.
    begins = {layer: float(sizes[layer][0] / floors[layer][0]) for layer in known}
    if not known or np.median([first[layer] * begins[layer] for layer in known]) <= TOO_FAR:
        return
    if np.median([grown[layer] * begins[layer] for layer in known]) > OUTGROWN:
        layers = [layer for layer in known if grown[layer] * begins[layer] > OUTGROWN]
        yield _too_high(
            f"The first recorded step changes the weights of {layers[0]!r} by "
            f"{number(first[layers[0]])} of their norm, and they become {number(grown[layers[0]])} "
            "times as large",
            layers,
            {"update ratios": first, "growth": grown},
            _too_long_by(first[layers[0]]),
        )


def _still(history: History) -> Iterator[Finding]:
    """Find layers whose weights do not change although they have a gradient."""
    ratios, slopes = _norms(history, "update_ratio"), _norms(history, "weight_gradient_norm")
    still, moves = [], 0
    for layer, sizes in _norms(history, "weight_norm").items():
        known = (np.isfinite(sizes) & (slopes[layer] > 0))[:-1]
        if known.sum() >= FEW:
            # Where gradients accumulate, none of the recorded steps need have changed the weights.
            changed = (sizes[1:] != sizes[:-1])[known].any()
            moved = bool(changed or (ratios[layer] > 0).any())
            moves += moved
            still += [] if moved else [layer]
    if still:
        yield Finding(
            "does not move",
            "warning",
            f"The weights of {still[0]!r} have a gradient and do not change.{also(still[1:])}",
            "Check that the optimizer holds them: hookviz.diagnose(model, x, loss, optimizer=…)."
            if moves
            else "Check that optimizer.step() is called, with a learning rate above 0, and that "
            "gradients are not clipped to 0 before.",
            still[0],
            phase="backward",
            layers=still,
            evidence={"others move": moves},
        )


def _adds_up(log: TrainingLog) -> Iterator[Finding]:
    """Find out whether each step but the first began with the gradients of the one before."""
    later = [log.carried[step] for step in sorted(log.carried) if step > 0]
    if len(later) > FEW and all(later):
        yield Finding(
            "adds up",
            "warning",
            f"In all of {len(later)} recorded steps backward added its gradients to those of the "
            "step before.",
            "Call optimizer.zero_grad() once a step, before backward().",
            phase="backward",
        )


def _merged(log: TrainingLog) -> Iterator[Finding]:
    """Find a block around several steps, such as the whole loop."""
    if log.merged:
        yield Finding(
            "merged steps",
            "warning",
            f"One block held {log.merged:,} steps of the optimizer: they are recorded as one step, "
            "with merged numbers.",
            "Put `with watch:` around each step, within the loop.",
        )


def lost_weights(layers: list[str], step: int) -> Finding:
    """Report NaN or Inf in weights that were finite in the last recorded step."""
    return Finding(
        "nan",
        "error",
        f"The weights of {layers[0]!r} now hold NaN or Inf, and did not at step {step:,}, the last "
        f"recorded one.{also(layers[1:])}",
        "Put `with hookviz.diagnose(model) as findings:` around the steps after it: it names the "
        "operation.",
        layers[0],
        phase="backward",
        layers=layers,
    )
