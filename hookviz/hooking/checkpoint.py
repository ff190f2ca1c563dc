"""The modules that are running, by thread, and the calls that a backward runs again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import nn

T = TypeVar("T")

FORWARD = -1
"""The number of the backward in a thread that runs none."""


current_backward: Callable[[], int] = torch._C._current_graph_task_id
"""Return the number of the backward that this thread runs, as torch's checkpointing does."""


class Reruns(Generic[T]):
    """The calls that activation checkpointing runs again during a backward.

    Such a run of a layer is not a new call; no other code decides this.

    Examples
    --------
    >>> calls, reruns = ["first", "second"], Reruns()
    >>> def loss(x):  # a hook in a backward runs while that does
    ...     x.register_hook(lambda gradient: print(reruns.first(calls, lambda call: True)))
    ...     return 2 * x
    >>> reruns.first(calls, lambda call: True)  # None, in a forward
    >>> loss(torch.ones((), requires_grad=True)).backward()
    second
    """

    def __init__(self) -> None:
        self._found: set[tuple[int, int]] = set()  # backward and call

    def first(self, calls: Sequence[T], same: Callable[[T], bool]) -> T | None:
        """Return the call that is being run again; None in a forward, or if there are no calls.

        Of several, it is the last one with the ``same`` values that this backward has not yet run
        again, because a backward begins at the end.
        """
        task = current_backward()
        if task == FORWARD or not calls:
            return None
        remaining = [call for call in calls if (task, id(call)) not in self._found] or calls
        rerun = remaining[0]
        if len(remaining) > 1:
            rerun = next((call for call in reversed(remaining) if same(call)), remaining[-1])
        self._found.add((task, id(rerun)))
        return rerun


class ModuleCallStack(Generic[T]):
    """The modules that are running, by thread and innermost last.

    It matches each module's forward hook to its own forward-pre hook.

    Examples
    --------
    >>> running, outer, inner = ModuleCallStack(), nn.ReLU(), nn.ReLU()
    >>> running.begin(outer, "outer's"), running.begin(inner, "inner's")
    (0, 1)
    >>> running.end(outer)  # the inner one raised, and the exception was caught
    "outer's"
    """

    def __init__(self) -> None:
        self._stacks: dict[int, list[tuple[nn.Module, T]]] = {}

    def begin(self, module: nn.Module, note: T) -> int:
        """Push a module that begins, with a note; return how many are running around it."""
        stack = self._stacks.setdefault(threading.get_ident(), [])
        stack.append((module, note))
        return len(stack) - 1

    def innermost(self) -> T | None:
        """Return the note of the innermost running module; None if none is running."""
        stack = self._stacks.get(threading.get_ident())
        return stack[-1][1] if stack else None

    def end(self, module: nn.Module) -> T | None:
        """Pop a module that has ended, and return its note; None if it has none."""
        stack = self._stacks.get(threading.get_ident(), [])
        if stack and stack[-1][0] is module:
            return stack.pop()[1]
        if not any(running is module for running, _ in stack):
            return None
        while True:
            running, note = stack.pop()
            if running is module:
                return note
