"""Keep threads that use one model apart: a block sees only the calls of its own thread.

A run by hookviz also does not overlap with another thread's block: it switches the model's mode
and restores its buffers afterwards. During the run, blocks of other threads wait, such as a watch
around a training step, and the run waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn

PATIENCE = 10.0
"""Seconds for which one thread waits for another, which may be waiting for this one."""

_Open = dict[int, list[frozenset[int]]]

_changed = threading.Condition()
_blocks: _Open = {}  # thread -> for each open block, the ids of its modules
_runs: _Open = {}  # the same for runs, which change a model's state


def open_block(modules: Iterable[nn.Module]) -> AbstractContextManager[None]:
    """Register a block of this thread; if another thread runs the model, wait for its end.

    It never raises, because a training step may be in the block.
    """
    return _registered(_blocks, modules, _runs, refuses=False)


def open_run(modules: Iterable[nn.Module]) -> AbstractContextManager[None]:
    """Register a run of this thread, which changes the model's state until it ends.

    Raises
    ------
    RuntimeError
        Another thread has a block on the model that does not end in time.
    """
    return _registered(_runs, modules, _blocks, refuses=True)


@contextmanager
def _registered(
    ours: _Open, modules: Iterable[nn.Module], theirs: _Open, *, refuses: bool
) -> Iterator[None]:
    thread, ids = threading.get_ident(), frozenset(map(id, modules))

    def is_free() -> bool:
        return not any(
            ids & block for other, blocks in theirs.items() if other != thread for block in blocks
        )

    with _changed:
        # If both threads have a block, they would wait for each other.
        both = refuses and thread in _blocks
        free = is_free() if both else _changed.wait_for(is_free, PATIENCE)
        if refuses and not free:
            raise RuntimeError(
                "Another thread uses this model in a block such as hookviz.capture or watch: look "
                "at it when that block has ended."
            )
        ours.setdefault(thread, []).append(ids)
    try:
        yield
    finally:
        with _changed:
            ours[thread].remove(ids)
            if not ours[thread]:
                del ours[thread]
            _changed.notify_all()


def belongs_to_another(module: Any, owner: int) -> bool:
    """Return whether a module runs in a thread that has its own block on it.

    Other threads work for the ``owner``, the thread that has begun a block, as those of
    ``DataParallel`` do. Without a module, any block of the thread counts.
    """
    thread = threading.get_ident()
    if thread == owner or thread not in _blocks:
        return False
    return module is None or any(id(module) in block for block in _blocks.get(thread, ()))
