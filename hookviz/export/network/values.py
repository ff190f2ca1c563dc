"""Refuse models for which the graph of a page would be right for the traced input only.

A trace takes shapes and NumPy arrays as constants, although they may depend on the input's values.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from ...run.follow import Follower, detect_escapes, follow
from ...run.recorder import ModuleCall, Operation, OperationRecorder
from ...run.session import Session
from .traced import refusal


def refuse_baked_values(session: Session) -> None:
    """Raise `NetworkError` if a trace would take values that depend on the input as constants.

    Values that leave torch are harmless where the model only stores or prints them. So the model
    runs again with other values in their place, and is refused if its output changes.
    """
    try:
        values = follow(session, partial(_InputValues, session))
    except Exception:  # such as a transform of torch.func, which hides the operations
        return
    if values.operation:
        why = "the shape of an operation's result depends on a tensor's values"
        raise refusal(session.name, why, values.operation)
    if values.method and not _same_with_other_values(session, values.returned):
        why = "its code computes with a tensor's values outside torch"
        raise refusal(session.name, why, f"Tensor.{values.method}")


def _same_with_other_values(session: Session, returned: list[Tensor]) -> bool:
    """Return whether the output stays the same if other values leave torch."""
    try:
        others = follow(session, partial(_InputValues, session, change=True)).returned
    except Exception:  # for example an index out of range
        return False
    return len(others) == len(returned) and all(map(torch.equal, returned, others))


class _InputValues(Follower[bool]):
    """Follows the values of the model's input to where a graph loses them.

    Attributes
    ----------
    operation : str
        The first operation whose result has a shape that depends on them; empty if none.
    method : str
        The first method by which they leave torch; empty if none.
    returned : list of torch.Tensor
        The model's output.
    """

    modules = ()

    def __init__(self, session: Session, change: bool = False) -> None:
        super().__init__()
        self.operation = self.method = ""
        self.returned: list[Tensor] = []
        self._model, self._change = session.model, change

    def begin(self, recorder: OperationRecorder) -> None:
        """Detect values that leave torch, and change them if that is requested."""
        recorder.exit_stack.enter_context(detect_escapes(self._escape))

    def _escape(self, name: str, tensor: Tensor) -> Tensor | None:
        if tensor not in self.marks:
            return None
        self.method = self.method or name
        return _other_values(tensor) if self._change else None

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Mark the model's input."""
        if call.module is self._model:
            for tensor in given:
                self.marks[tensor] = True

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Store the model's output."""
        if call.module is self._model:
            self.returned = [tensor.clone() for tensor in returned]

    def after(self, operation: Operation) -> None:
        """Detect a shape that depends on values, and pass marks on."""
        function = operation.function
        dynamic = torch.Tag.dynamic_output_shape in function.tags
        if dynamic and any(tensor in self.marks for tensor in _shaping(operation)):
            by = " by a mask" if "indices" in operation.argument else ""
            self.operation = self.operation or f"aten.{function.overloadpacket.__name__}{by}"
        super().after(operation)

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, bool]]
    ) -> bool:
        """Mark each result."""
        return True

    def mark_of_mixture(self, operation: Operation, old: bool | None, new: bool | None) -> bool:
        """Mark memory if any of its values is from the input."""
        return True


def _shaping(operation: Operation) -> Iterable[Tensor]:
    """Return the tensors whose values determine the shape of an operation's result."""
    arguments = operation.argument
    if "mask" in arguments:
        return [arguments["mask"]]
    if "indices" in arguments:
        masks = torch.bool, torch.uint8
        return [each for each in arguments["indices"] if each is not None and each.dtype in masks]
    return operation.reads


def _other_values(tensor: Tensor) -> Tensor:
    """Return different values of the same shape and type, in new memory."""
    tensor = tensor.detach()
    return ~tensor if tensor.dtype == torch.bool else tensor * 2 + 1
