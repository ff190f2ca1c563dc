"""What is running: which module, by thread, and which backward, which may run a layer again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import nn

T = TypeVar("T")

FORWARD = -1
"""In place of a backward's number: this thread runs no backward."""


def current_backward() -> int:
    """The number of the backward that this thread is in, as torch's own checkpointing asks."""
    return torch._C._current_graph_task_id()


def repeated(calls: Sequence[T], same: Callable[[T], bool]) -> T | None:
    """Which of the calls, in the order in which they ran, is being run again.

    Of several it is the last one that had the ``same`` values, since a backward begins at the end.

    >>> repeated([3, 4, 3], lambda call: call == 3), repeated([], bool) is None
    (3, True)
    """
    if len(calls) < 2:
        return calls[0] if calls else None
    return next((call for call in reversed(calls) if same(call)), calls[-1])


class ModuleCallStack(Generic[T]):
    """What is running now, by thread and innermost last: a module's after meets its own before.

    Examples
    --------
    >>> running, outer, inner = ModuleCallStack(), nn.ReLU(), nn.ReLU()
    >>> running.begin(outer, "outer's"), running.begin(inner, "inner's")
    (0, 1)
    >>> running.end(outer)  # the inner one raised, and somebody caught it
    "outer's"
    """

    def __init__(self) -> None:
        self._stacks: dict[int, list[tuple[nn.Module, T]]] = {}

    def begin(self, module: nn.Module, note: T) -> int:
        """Note that a module begins; how many are running around it."""
        stack = self._stacks.setdefault(threading.get_ident(), [])
        stack.append((module, note))
        return len(stack) - 1

    def innermost(self) -> T | None:
        """What was noted when the innermost one that is running began; None if none is."""
        stack = self._stacks.get(threading.get_ident())
        return stack[-1][1] if stack else None

    def end(self, module: nn.Module) -> T | None:
        """What was noted when it began; None if nothing was."""
        stack = self._stacks.get(threading.get_ident(), [])
        if not any(each is module for each, _ in stack):
            return None
        while True:
            each, note = stack.pop()
            if each is module:
                return note
