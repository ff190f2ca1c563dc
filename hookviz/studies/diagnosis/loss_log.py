"""The log of a loss that the user computes outside of the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor

from ...run.recorder import Operation
from .check import RunRecord
from .operation_log import OperationLog
from .ranges import range_of
from .records import OperationRecord


class LossLog(OperationLog):
    """Records a loss that is computed outside of the model, and its part of the backward."""

    root: Tensor | None = None  #: what backward() was called on
    last: OperationRecord | None = None  #: what made the last single number with a gradient

    def __init__(self, run: RunRecord) -> None:
        super().__init__(run)
        self.lost: list[OperationRecord] = []  # outputs of the model with NaN or Inf

    def returned(self, outputs: Sequence[Tensor]) -> None:
        """Note which operation made the model's outputs; its layer is not known."""
        for tensor in outputs:
            name, extent = _maker(tensor.grad_fn), range_of(tensor)
            if extent is not None:
                self.makers[tensor] = source = OperationRecord(-1, name, "", made=(extent,))
                if not extent.finite:
                    self.lost.append(source)

    def before(self, operation: Operation) -> None:
        if operation.phase == "backward" and not operation.labelled:  # the model's part
            operation.notes[self] = None
        else:
            super().before(operation)

    def after(self, operation: Operation) -> None:
        given = operation.inputs
        if operation.phase == "forward" and operation.name == "ones_like" and not given[0].ndim:
            # backward() makes the gradient that it begins with. So does torch.func.grad, whose
            # graph is hidden: its loss requires no gradient here.
            self.root = given[0] if given[0].requires_grad else self.root
            return
        super().after(operation)
        outputs = operation.outputs
        graded = any(each.requires_grad for each in given)
        if operation.phase == "forward" and outputs and not outputs[0].ndim and graded:
            self.last = self.makers.get(outputs[0]) or self.last


def _maker(node: Any) -> str:
    """Name the operation that made the values of a tensor, by its node in autograd's graph."""
    while node is not None and _VIEW.match(type(node).__name__) and node.next_functions:
        node = node.next_functions[0][0]
    return _title(type(node).__name__)


@cache
def _title(name: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Backward0")).lower()


_VIEW = re.compile(
    "(View|UnsafeView|ReshapeAlias|Squeeze|Unsqueeze|Select|Slice|Transpose|Permute|T|Alias)"
    r"Backward\d$"
)
