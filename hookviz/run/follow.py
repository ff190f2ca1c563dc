"""Follow tensors through a run: marks that operations pass on from their inputs to their results.

A `Follower` is a listener to the recorder. Its rule computes the mark of an operation's result from
the marks of the tensors that the operation has read. The stages of a layer's output, the BatchNorm
behind a layer, attention weights and the input pictures of a call are such rules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from torch import Tensor

from ..hooking.functions import standing_in
from ..hooking.interrupts import Block
from ..hooking.select import first_names
from ..hooking.storage import StorageMap
from .operations import Kind
from .recorder import Listener, Operation, OperationRecorder
from .session import Session

M = TypeVar("M")


class Follower(Listener, Generic[M]):
    """Carries a mark from tensor to tensor.

    Marks belong to the memory of tensors, so that views share them. A subclass sets the first
    marks, for example in `leave`, and implements the rule `mark_of_result`.

    Attributes
    ----------
    marks : StorageMap
    """

    def __init__(self) -> None:
        self.marks: StorageMap[M] = StorageMap()

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, M]]
    ) -> M | None:
        """Return the mark of a tensor that an operation has made or overwritten; None for no mark.

        ``reads`` lists the marked tensors whose values the operation has read, with their marks; it
        is not empty. The rule is not called for views, which share their base's mark.
        """
        raise NotImplementedError

    def mark_of_mixture(self, operation: Operation, old: M | None, new: M | None) -> M | None:
        """Return the mark of partly overwritten memory from its old and new marks; default None."""
        return None

    def after(self, operation: Operation) -> None:
        """Pass marks on."""
        self.mark_results(operation)

    def mark_results(self, operation: Operation) -> M | None:
        """Mark the results of an operation; return the mark of the first, None for a view."""
        if operation.kind is Kind.VIEW:
            return None
        marked, mutates = self.marks.get, operation.mutates
        reads = [(t, mark) for t in operation.values_read if (mark := marked(t)) is not None]
        if not reads and not mutates:
            return None
        results = operation.results if mutates else operation.outputs
        marks = [self._mark(operation, tensor, reads) for tensor in results]
        return marks[0] if marks else None

    def _mark(self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, M]]) -> M | None:
        """Set and return the mark of one result."""
        old, mutates = self.marks.get(made), operation.mutates
        # Memory that is marked before it is made is an undeclared view, as unsafe_view makes one.
        if not mutates and (old is not None or not made.numel()):
            return old
        mark = self.mark_of_result(operation, made, reads) if reads else None
        if mark is old:
            return old
        if mutates and not fills_its_memory(made):
            mark = self.mark_of_mixture(operation, old, mark)
        if mark is not None:
            self.marks[made] = mark
        elif old is not None:
            self.marks.pop(made)
        return mark


def fills_its_memory(tensor: Tensor) -> bool:
    """Return whether a tensor covers all of its storage."""
    try:
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):  # a sparse tensor has no single storage
        return True


_ESCAPES = {"numpy", "tolist", "__array__", "__deepcopy__", "__dlpack__", "to_dlpack", "data_ptr"}
"""The names of the methods of a tensor by which its values leave torch."""


def detect_escapes(report: Callable[[str, Tensor], Tensor | None]) -> Block:
    """Return a block that reports tensors whose values leave torch, where none can follow them.

    Parameters
    ----------
    report : callable
        Called with the name of the method, such as ``"numpy"``, and the tensor. It may return
        another tensor, whose values leave torch instead.
    """

    def call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = getattr(function, "__name__", "")
        if name in _ESCAPES and (other := report(name, args[0])) is not None:
            args = other, *args[1:]
        return function(*args, **kwargs)

    return standing_in(call)


class StopForward(BaseException):
    """A hook raises this to end a forward early."""


F = TypeVar("F", bound=Listener)


def follow(session: Session, make: Callable[[], F]) -> F:
    """Run a model once, without gradients, under a listener that ``make`` returns; return it.

    If the model runs again on a replacement of its input, ``make`` is called again. The listener
    may end the run with a `StopForward`, from within its `enter` or `leave`.
    """
    listeners: list[F] = []

    def observe() -> OperationRecorder:
        listeners.append(make())
        return OperationRecorder(listeners[-1], names=first_names(session.model), backward=False)

    with suppress(StopForward):
        session.forward(observe, grad=False)
    return listeners[-1]
