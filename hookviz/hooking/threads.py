"""Threads that use one model: each block hears its own thread, and runs do not overlap with blocks.

A run of hookviz's own switches a model's mode and puts its buffers back afterwards. While it lasts,
blocks of other threads wait, such as a watch around a training step, and it waits for theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

PATIENCE = 10.0
"""Seconds for which one thread waits for another; it may wait for this one in its turn."""

_Open = dict[int, list[frozenset[int]]]

_changed = threading.Condition()
_blocks: _Open = {}  # thread -> the ids of the modules of each open block
_runs: _Open = {}  # the same of runs that change a model's state


@contextmanager
def open_block(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Note a block of this thread; if another thread runs the model, wait until it has ended.

    It never raises, since it may stand around a training step.
    """
    with _noted(_blocks, modules, _runs, refuses=False):
        yield


@contextmanager
def open_run(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Note a run of this thread, which changes the model's state while it lasts.

    Raises
    ------
    RuntimeError
        Another thread has a block on the model that does not end in time.
    """
    with _noted(_runs, modules, _blocks, refuses=True):
        yield


@contextmanager
def _noted(
    own: _Open, modules: Iterable[nn.Module], others: _Open, *, refuses: bool
) -> Iterator[None]:
    here, these = threading.get_ident(), frozenset(map(id, modules))

    def is_free() -> bool:
        return not any(
            these & each for thread, held in others.items() if thread != here for each in held
        )

    with _changed:
        # Two threads that both have a block would wait for each other.
        both = refuses and here in _blocks
        free = is_free() if both else _changed.wait_for(is_free, PATIENCE)
        if refuses and not free:
            raise RuntimeError(
                "Another thread uses this model in a block such as hookviz.capture or watch: look "
                "at it when that block has ended."
            )
        own.setdefault(here, []).append(these)
    try:
        yield
    finally:
        with _changed:
            own[here].remove(these)
            if not own[here]:
                del own[here]
            _changed.notify_all()


def belongs_to_another(module: Any, owner: int) -> bool:
    """Return whether a module runs in a thread that has its own block on it.

    Other threads work for the ``owner``, the thread that has begun a block, as those of
    ``DataParallel`` do. Without a module, any block of the thread counts.
    """
    here = threading.get_ident()
    if here == owner or here not in _blocks:
        return False
    return module is None or any(id(module) in each for each in _blocks.get(here, ()))
