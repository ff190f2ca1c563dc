"""Sigmoids and tanhs at their ends, where hardly any gradient passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..ranges import range_of
from ..records import OperationRecord
from .zero_weights import VANISHING

ENDS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
NEAR = 0.01
"""Distance to its end at which a value counts as saturated, as a fraction of the whole range."""
STUCK = 16.0
"""Beyond it a sigmoid is 1 in single precision."""
MOST = 0.9
"""The fraction of saturated values that is reported."""


@dataclass
class Saturated(Check):
    """Report saturated sigmoids and tanhs.

    Outputs and gates live at the ends once they are trained. Between layers with weights, or before
    a norm, it is a fault, and so is a gate that no input moves.
    """

    looks_at = "sigmoids and tanhs at their ends"
    operations = tuple(ENDS)

    #: The fraction of its values at the ends, and whether no input moves them.
    gates: dict[OperationRecord, tuple[float, bool]] = field(default_factory=dict)

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        if not record.finite or not operation.outputs[0].numel():
            return
        low, high = ENDS[record.name]
        edge = NEAR * (high - low)
        at_ends = (operation.outputs[0] <= low + edge) | (operation.outputs[0] >= high - edge)
        fraction = at_ends.float().mean().item()
        if fraction > MOST:
            before = range_of(given[0])
            stuck = before is not None and (before.low > STUCK or before.high < -STUCK)
            self.gates[record] = fraction, stuck

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        products = [each for each in run.operations if each.name == "mul"]
        scaling = {each for product in products for each in product.makers}
        for record, (fraction, stuck) in self.gates.items():
            if run.uses.get(record) or (record in scaling and stuck):
                yield Finding(
                    "saturated",
                    "warning",
                    f"{100 * fraction:.3g} % of the values that {record.name} returned are at "
                    f"its ends, over {run.samples} input{'s' * (run.samples != 1)}: hardly any "
                    "gradient passes.",
                    "Make its input smaller: a normalization before it, or smaller weights.",
                    **record.place,
                    evidence={"fraction": fraction, "after": record.maker_layer},
                    cause="saturated",
                    explains=VANISHING,
                )
