"""Values that overflow in half precision, nearly do, or become 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ....run.recorder import Operation
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import HALF, OperationRecord

LOST = 0.1
"""The least fraction of values that become 0 that is reported."""


@dataclass
class HalfPrecision(Check):
    """Report the largest result in half precision, and the first in which numbers become 0."""

    looks_at = "half precision"
    operations = ("to_copy", "mul", "div", "pow")  # they make a number small, but never 0
    backward = True

    underflow: tuple[OperationRecord, float] | None = None  # the first one, and its lost fraction

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        # A backward's record has the name of its forward; a gradient of `mul` may be a sum.
        if operation.name not in self.operations or self.underflow is not None:
            return
        output = operation.outputs[0]
        if output.dtype in HALF and record.finite:
            nonzero = torch.ones_like(output, dtype=torch.bool)
            for each in given:
                nonzero &= each != 0
            if operation.name == "to_copy":
                nonzero &= ~_negligible(given[0])
            lost = int((nonzero & (output == 0)).sum()) / max(int(nonzero.sum()), 1)
            if lost > LOST:
                self.underflow = record, lost

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        forward = [each for each in run.operations if each.phase == "forward"]
        near = [(_fraction_of_largest(each), each) for each in forward]
        fraction, worst = max(near, key=lambda each: each[0], default=(0.0, None))
        if worst is not None and fraction > 0.5 and not worst.reached:  # else its Inf is told
            made = max(worst.made, key=lambda each: each.magnitude)
            largest = torch.finfo(made.dtype).max
            yield Finding(
                "half precision",
                "warning",
                f"{worst.called} reaches {number(made.magnitude)} of the {largest:g} "
                f"that {_name(made.dtype)} holds.",
                f"Scale down the input of this layer, or {_wider(made.dtype)}.",
                **worst.place,
                evidence={"share of the largest": fraction},
            )
        if self.underflow is not None:
            record, lost = self.underflow
            what = "gradients" if record.phase == "backward" else "numbers"
            yield Finding(
                "half precision",
                "warning",
                f"{100 * lost:.3g} % of the {what} other than 0 become 0 in "
                f"{_name(record.made[0].dtype)}.",
                "Scale them up before the cast, as GradScaler does gradients, or "
                f"{_wider(record.made[0].dtype)}.",
                **record.place,
                evidence={"lost": lost},
            )


def _fraction_of_largest(record: OperationRecord) -> float:
    """Return how near an operation's results came to the largest number of their type."""
    halves = [each for each in record.made if each.dtype in HALF]
    if not halves or record.constant or record.origin not in (None, record):
        return 0.0
    fractions = [each.magnitude / torch.finfo(each.dtype).max for each in halves if not each.nan]
    return max(fractions, default=0.0)


def _negligible(numbers: Tensor) -> Tensor:
    """Return the mask of numbers that float32 would lose in a sum with the largest of them.

    Attention makes such numbers of what its mask, often −100, is added to: they are meant to be 0.
    """
    size = numbers.abs()
    return size < torch.finfo(torch.float32).eps * size.max() if size.numel() else size.bool()


def _wider(dtype: torch.dtype) -> str:
    """Advise on a type in which large and small numbers have room."""
    return "compute it in float32" + (", or use bfloat16" if dtype is torch.float16 else "")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
