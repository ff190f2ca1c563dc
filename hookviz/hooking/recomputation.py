"""Activation checkpointing runs layers again during backward: which run is it that is repeated?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

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
