"""Gradients of 0: behind operations without a slope, and of the whole score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....run.operations import CLAMPS, STEPS
from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..ranges import range_of
from ..records import OUTSIDE, OperationRecord
from .no_gradient import GraphBreak, backward_place, break_at, place_of
from .zero_weights import CONSTANT

SOME = 16
"""This many numbers are not all beyond a clamp by chance."""


@dataclass
class NoSlope(Check):
    """Report layers with a gradient of 0, since the slope of what follows is 0, or the score's."""

    looks_at = "whether the score has a gradient"
    needs_backward = True
    live = True
    operations = (*CLAMPS, *STEPS, "mul")

    flat: list[GraphBreak] = field(default_factory=list)

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        step = operation.name in STEPS and operation.inputs[0].requires_grad
        if _is_beyond(record, given[0]) or (record.file and (step or _by_zero(operation))):
            self.flat.append(break_at(record, operation, run))

    def finish(self, score: Tensor | None, run: RunRecord) -> None:
        if all(run.gradient_norms.values()):
            self.flat.clear()
        for each in self.flat:
            each.find_layers()

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        """Report the last layer before it, if its gradient is 0: others may have another way."""
        if run.error is not None or not run.backward:
            return
        norms, gradient = run.gradient_norms, run.output_gradient
        begins = any(map(run.learns, run.zero_layers))  # then all before it gets none
        some = (gradient.nonzero and run.finite_score) or any(norms.values())
        for each in self.flat if some else ():
            record = each.record
            ran = dict.fromkeys(call.layer for call in run.calls[: each.after])
            sums = {
                name: sum(norms.get(parameter, 0.0) for parameter in own)
                for name in ran
                if name in each.behind and (own := run.own_parameters(name))
            }
            layers = [name for name in sums if sums[name] == 0]
            # A branch may be left out at random by a factor of 0.
            meant = run.drew and run.root.training if record.name == "mul" else begins
            if layers and next(reversed(sums)) == layers[-1] and not meant:
                begun = record.layer == OUTSIDE and len(layers) < len(sums)
                yield _without_slope(record, layers, begun=begun)
        if run.finite_score and gradient.arrived and not gradient.nonzero:
            # A loss with a margin is 0 once all answers are right beyond it, and a ranking loss
            # needs two samples.
            settled = run.samples == 1 or run.score == 0
            outside = [each.record for each in self.flat if each.record.layer == OUTSIDE]
            yield Finding(
                "no gradient",
                "note" if settled and not outside else "warning",
                f"The gradient of the score is 0 for all {run.samples} samples: this step changes "
                "nothing.",
                "Look for a factor of 0 in the loss, or a clamp or ReLU whose input is out of "
                "range; no fix is needed if the loss has a margin that all answers keep.",
                **{**(outside[-1].place if outside else {}), "phase": "backward"},
                evidence={"samples": run.samples},
                symptom="no slope",
            )


def _without_slope(record: OperationRecord, layers: list[str], *, begun: bool) -> Finding:
    zero, clamped = record.name == "mul", record.name in CLAMPS
    why = "it is multiplied by 0" if zero else f"the slope of {record.name} is 0 everywhere"
    advice = "Let the gradient pass it: x + (x.round() - x).detach(), with your operation."
    if begun:
        advice = "No fix is needed if a part of the loss begins with the weight 0."
    elif zero:
        advice = "Remove the factor 0; what is added to the product has no graph."
    elif clamped:
        advice = "Compare its bounds with its input, all of which lies beyond them."
    consequences = {"gradient of 0", "no slope"} | (CONSTANT if zero or clamped else set())
    return Finding(
        "no gradient",
        "note" if begun else "warning",
        f"The gradient that reaches {layers[-1]!r} is 0: {why} in {place_of(record)}.",
        advice,
        **backward_place(record, layers[-1]),
        layers=layers[::-1],
        symptom="factor of 0" if zero else "",
        explains=frozenset() if begun else frozenset(consequences),
    )


def _is_beyond(clamp: OperationRecord, given: Tensor) -> bool:
    """Return True for a clamp whose whole input is out of range; one that returns 0 is "dead"."""
    if clamp.name not in CLAMPS or not clamp.uniform or not given.requires_grad:
        return False
    made, extent = clamp.made[0], range_of(given)
    some = made.low != 0 and math.prod(made.shape) >= SOME and torch.is_grad_enabled()
    return some and extent is not None and (extent.low > made.high or extent.high < made.low)


def _by_zero(operation: Operation) -> bool:
    """Return True if a tensor with a gradient is multiplied by the number 0."""
    if operation.name != "mul" or not any(each.requires_grad for each in operation.inputs):
        return False
    other = operation.args[1]
    return isinstance(other, (int, float)) and other == 0
