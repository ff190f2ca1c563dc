"""A score whose gradient is 0 for every sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....run.operations import RECTIFIERS
from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord


@dataclass
class ScoreGradient(Check):
    """Report a score that does not depend on the model's output, and why."""

    looks_at = "whether the score has a gradient"
    live = True

    times_zero: OperationRecord | None = None  # outside of the model

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        if record.layer == OUTSIDE and operation.call is None and by_zero(operation):
            self.times_zero = record

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        gradient = run.output_gradient
        if not run.backward or run.error is not None or not run.finite_score:
            return
        if not gradient.arrived or gradient.nonzero:
            return
        # A loss with a margin is 0 once all answers are right beyond it, and a ranking loss needs
        # two samples.
        settled = run.samples == 1 or (run.score == 0 and not _closed(run))
        meant = settled and self.times_zero is None
        place: dict[str, Any] = self.times_zero.place if self.times_zero is not None else {}
        yield Finding(
            "no gradient",
            "note" if meant else "warning",
            f"The gradient of the score is 0 for all {run.samples} samples: this step changes "
            "nothing.",
            "No fix is needed if the loss has a margin; else look for a clamp in it that is closed."
            if meant
            else "Look for a factor of 0 in the loss, or a clamp or ReLU whose input is out of "
            "range.",
            **{**place, "phase": "backward"},
            evidence={"samples": run.samples},
            symptom="no slope",
        )


def _closed(run: RunRecord) -> bool:
    """Return True if the loss, one number, went through a ReLU or a clamp that made 0 of it."""
    outside = (each for each in run.operations if each.layer == OUTSIDE and each.made)
    closed = (e for e in outside if e.name in RECTIFIERS and e.made[0].magnitude == 0)
    return any(math.prod(each.made[0].shape) == 1 for each in closed)


def by_zero(operation: Operation) -> bool:
    """Return True if a tensor with a gradient is multiplied by the number 0."""
    if operation.name != "mul" or not any(each.requires_grad for each in operation.inputs):
        return False
    other = operation.args[1]
    return isinstance(other, (int, float)) and other == 0
