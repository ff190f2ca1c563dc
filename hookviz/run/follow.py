"""The one way to follow tensors through a run: marks that operations hand on to their results.

A `Follower` is a listener to the recorder. Its rule returns the mark of an operation's result from
the marks of what the operation read. The stages of a layer's output, the BatchNorm behind a layer
and the inputs of a call are such rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from torch import Tensor

from ..hooking.tensors import StorageMap
from .operations import Kind
from .recorder import Listener, Operation, OperationRecorder
from .session import Session

M = TypeVar("M")


class Follower(Listener, Generic[M]):
    """Carries a mark from tensor to tensor.

    Marks belong to the memory of tensors, so that views share them, and end with it. A subclass
    sets the first marks, for example in `leave`, and has the rule `mark_of_result`.

    Attributes
    ----------
    marks : StorageMap
    """

    def __init__(self) -> None:
        self.marks: StorageMap[M] = StorageMap()

    def mark_of_result(self, operation: Operation, reads: list[tuple[Tensor, M]]) -> M | None:
        """Return the mark of the result of an operation that has run; None for no mark.

        ``reads`` has each marked tensor whose values the operation has read, with its mark: one at
        least. Operations that make views do not get here.
        """
        raise NotImplementedError

    def mark_of_mixture(self, old: M | None, new: M | None) -> M | None:
        """Return the mark of memory of which a part was overwritten; none by default."""
        return None

    def after(self, operation: Operation) -> None:
        """Hand marks on."""
        if operation.kind is Kind.VIEW or not operation.outputs:
            return
        self.marks.prune(lazily=True)
        found = ((each, self.marks.get(each)) for each in operation.values_read)
        reads = [(tensor, mark) for tensor, mark in found if mark is not None]
        mark = self.mark_of_result(operation, reads) if reads else None
        if operation.mutates:
            for tensor in operation.written:
                self._overwrite(tensor, mark)
        elif mark is not None:
            for tensor in operation.outputs:
                # Some operations return a view without saying so, for example unsafe_view.
                if tensor not in self.marks:
                    self.marks[tensor] = mark

    def _overwrite(self, tensor: Tensor, mark: M | None) -> None:
        old = self.marks.pop(tensor)
        if not _fills_its_memory(tensor):
            mark = self.mark_of_mixture(old, mark)
        if mark is not None:
            self.marks[tensor] = mark


def _fills_its_memory(tensor: Tensor) -> bool:
    try:
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):  # a sparse tensor has no memory of its own
        return True


F = TypeVar("F", bound=Listener)


def follow(session: Session, make: Callable[[], F]) -> F:
    """Run a model once, without gradients, under a listener that ``make`` returns; return it.

    The model may run again on a replacement of its input, each time under a new listener.
    """
    listeners: list[F] = []

    def observe() -> OperationRecorder:
        listeners.append(make())
        return OperationRecorder(listeners[-1], model=session.model, backward=False)

    session.forward(observe, grad=False)
    return listeners[-1]


class SourceListener(Follower[frozenset[Hashable]]):
    """Carries a set of sources from tensor to tensor: those that its values depend on.

    An operation's result has the sources of everything that it read.

    Examples
    --------
    >>> import torch
    >>> one, two, listener = torch.ones(2), torch.ones(2), SourceListener()
    >>> listener.mark(one, "one")
    >>> listener.mark(two, "two")
    >>> with OperationRecorder(listener):
    ...     total, zeros = one.relu()[:1] + two, torch.zeros_like(one)
    >>> sorted(listener.of(total)), sorted(listener.of(one * 2)), sorted(listener.of(zeros))
    (['one', 'two'], [], [])
    """

    def mark(self, tensor: Tensor, source: Hashable) -> None:
        """Declare that a tensor's values come from this source."""
        self.marks[tensor] = frozenset([source])

    def of(self, *tensors: Tensor) -> frozenset[Hashable]:
        """Return the sources of all values of some tensors."""
        return frozenset[Hashable]().union(*(self.marks.get(each) or () for each in tensors))

    def mark_of_result(
        self, operation: Operation, reads: list[tuple[Tensor, frozenset[Hashable]]]
    ) -> frozenset[Hashable]:
        """Unite the sources."""
        return frozenset[Hashable]().union(*(mark for _, mark in reads))

    def mark_of_mixture(
        self, old: frozenset[Hashable] | None, new: frozenset[Hashable] | None
    ) -> frozenset[Hashable]:
        """Unite the sources of the part that was kept and of the part that was overwritten."""
        return (old or frozenset()) | (new or frozenset())
