"""The log of a loss that the user computes outside of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...run.recorder import Operation
from ..graph.origins import operation_of
from .checks.loss import WIRED
from .operation_log import OperationLog
from .records import OperationRecord, range_of


class LossLog(OperationLog):
    """Records a loss that is computed outside of the model, and its part of the backward."""

    root: Tensor | None = None  #: what backward() was called on
    last: OperationRecord | None = None  #: what made the last single number with a gradient

    def returned(self, outputs: Sequence[Tensor]) -> None:
        """Note which operation made the model's outputs; its layer is not known."""
        for tensor in outputs:
            name, extent = _maker(tensor.grad_fn), range_of(tensor)
            if extent is not None:
                made = name if name in _SOURCES else "output"
                self.makers[tensor] = OperationRecord(-1, made, "", made=(extent,))

    def before(self, operation: Operation) -> None:
        if operation.phase == "backward" and not operation.labelled:  # the model's part
            operation.notes[self] = None
        else:
            super().before(operation)

    def after(self, operation: Operation) -> None:
        given = operation.inputs
        if operation.phase == "forward" and operation.name == "ones_like" and not given[0].ndim:
            self.root = given[0]  # backward() makes the gradient that it begins with
            return
        super().after(operation)
        outputs = operation.outputs
        graded = any(each.requires_grad for each in given)
        if operation.phase == "forward" and outputs and not outputs[0].ndim and graded:
            self.last = self.makers.get(outputs[0]) or self.last


_SOURCES = {source for sources, _, _ in WIRED.values() for source in sources}


def _maker(node: Any) -> str:
    """Name the operation that made the values of a tensor, by its node in autograd's graph."""
    while node is not None and operation_of(node) in _VIEWS:
        node = node.next_functions[0][0]
    return "" if node is None else operation_of(node)


_VIEWS = {"view", "unsafe_view", "reshape_alias", "squeeze", "unsqueeze", "select", "slice"}
_VIEWS |= {"transpose", "permute", "t", "alias"}
