"""What the numbers of a watched training say in words: as findings, see `hookviz.diagnose`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hooking.tables import number
from ..diagnosis.findings import Finding, also
from .log import TrainingLog, TrainingStep
from .measured import NORMS

TOO_FAR = 0.5
"""A step that takes a layer's weights by this fraction of their norm is far too long."""
FEW = 2
"""Of fewer steps than so many nothing is said."""

LOOKED = (
    "NaN and Inf in the recorded steps",
    "how far each step takes the weights",
    "gradients that add up from step to step",
)


def verdicts(log: TrainingLog) -> list[Finding]:
    """All that the recorded steps of training show."""
    steps = log.histories["train"].steps
    checks = (_not_finite(log), _too_far(steps), _still(steps), _adds_up(log))
    return [finding for check in checks for finding in check]


def _not_finite(log: TrainingLog) -> Iterator[Finding]:
    first = log.first_trouble
    if first is not None:
        yield Finding(
            "nan" if first.nans else "inf",
            "error",
            f"{first}.",
            "Put `with hookviz.diagnose(model) as findings:` around that step: it names the "
            "operation.",
            first.layer,
            first.call,
            first.phase,
        )


def _norms(steps: list[TrainingStep], name: str) -> dict[str, np.ndarray]:
    """By layer, a number of its weights in each step, NaN where there is none."""
    found: dict[str, list[float]] = {}
    for place, step in enumerate(steps):
        column = step.weights()[:, NORMS.index(name)].tolist()
        for layer, value in zip(step.layout.weighted, column, strict=True):
            found.setdefault(layer, [np.nan] * place).append(value)
    longest = len(steps)
    return {
        layer: np.array(each + [np.nan] * (longest - len(each))) for layer, each in found.items()
    }


def _too_far(steps: list[TrainingStep]) -> Iterator[Finding]:
    ratios = _norms(steps, "update_ratio")
    sizes = _norms(steps, "weight_norm")
    known = {layer: each[(sizes[layer] > 0) & np.isfinite(each)] for layer, each in ratios.items()}
    known = {layer: each for layer, each in known.items() if len(each) >= FEW}
    middles = {layer: float(np.median(each)) for layer, each in known.items()}
    if not middles or np.median([*middles.values()]) <= TOO_FAR:
        return
    far = [layer for layer, middle in middles.items() if middle > TOO_FAR]
    yield Finding(
        "learning rate",
        "warning",
        f"In the middle of the recorded steps each step takes the weights of {far[0]!r} by "
        f"{number(middles[far[0]])} of their norm: the learning rate is far too high."
        + (also(far[1:]) if far[1:] else ""),
        "Make it a hundred times smaller: about a hundredth of the norm a step, or less.",
        far[0],
        phase="backward",
        layers=far,
        evidence={"update ratios": middles},
    )


def _still(steps: list[TrainingStep]) -> Iterator[Finding]:
    """Layers that stay as they are although a gradient comes."""
    ratios, slopes = _norms(steps, "update_ratio"), _norms(steps, "weight_gradient_norm")
    still, moves = [], 0
    for layer, each in ratios.items():
        known = np.isfinite(each) & (slopes[layer] > 0)
        if known.sum() >= FEW:
            moved = bool((each[known] > 0).any())
            moves += moved
            still += [] if moved else [layer]
    if still:
        yield Finding(
            "does not move",
            "warning",
            f"The weights of {still[0]!r} have a gradient and stay as they are."
            + (also(still[1:]) if still[1:] else ""),
            "Look whether the optimizer holds them: hookviz.diagnose(model, x, loss, optimizer=…)."
            if moves
            else "Look whether optimizer.step() is called, with a learning rate above 0, and "
            "whether the gradients are clipped to 0 before.",
            still[0],
            phase="backward",
            layers=still,
        )


def _adds_up(log: TrainingLog) -> Iterator[Finding]:
    """Each recorded step but the first began with the gradients of the one before."""
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
