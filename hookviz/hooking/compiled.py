"""What torch.compile has compiled runs past hooks: within a block it runs as plain Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


def force_eager() -> AbstractContextManager[Any]:
    """Within the block, what torch.compile has compiled runs as plain Python.

    Blocks may overlap in any order: the first switches, the last one switches back.
    """
    # Nothing is compiled yet where the compiler has not been imported, which takes a second.
    return _Eager() if "torch._dynamo" in sys.modules else nullcontext()


class _Eager:
    blocks = 0
    stance: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> None:
        if not _Eager.blocks:
            if hasattr(torch.compiler, "set_stance"):  # works from here on, without __enter__
                _Eager.stance = torch.compiler.set_stance("force_eager")
            else:
                _Eager.stance = _without_callback()
                _Eager.stance.__enter__()
        _Eager.blocks += 1

    def __exit__(self, *error: object) -> None:
        _Eager.blocks -= 1
        if not _Eager.blocks:
            _Eager.stance.__exit__(None, None, None)
            _Eager.stance = nullcontext()


@contextmanager
def _without_callback() -> Iterator[None]:
    """What ``set_stance("force_eager")`` does, for torch 2.4 and 2.5, which do not have it.

    Compiled code is reached through a callback that the compiled module sets before it calls the
    eager one. Within the block it is not set.
    """
    frames = sys.modules["torch._dynamo.eval_frame"]
    set_callback = frames.set_eval_frame
    frames.set_eval_frame = lambda callback: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        frames.set_eval_frame = set_callback  # type: ignore[attr-defined]
