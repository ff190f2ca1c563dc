"""An operation and its tensors, as those see it who add facts to its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ...run.recorder import Operation
from .operations import OperationRecord


@dataclass(frozen=True, eq=False)
class Seen:
    """An operation that has just run: what it was given, as it was, and who made that."""

    record: OperationRecord
    operation: Operation
    given: Sequence[Tensor]
    makers: Sequence[OperationRecord | None]
    first: bool  # whether no BatchNorm has run before

    @property
    def output(self) -> Tensor:
        return self.operation.outputs[0]

    @property
    def maker(self) -> OperationRecord | None:
        return self.makers[0] if self.makers else None
