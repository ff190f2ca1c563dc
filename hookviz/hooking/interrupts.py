"""Ctrl-C at a bad moment waits: what changes a model or puts it back is not cut in two.

Python raises ``KeyboardInterrupt`` between any two steps of the main thread: also halfway through
a ``finally``, or on the way into ``__exit__``, which is then never run. Functions decorated with
`defer_interrupts` are spared that. What may take long within them, such as the model itself, goes
through `allow_interrupts` and is interrupted at once.

The handler of the signal tells by the stack where it came in: the innermost of the two decides.
It is there only while such a function runs, or a ``with capture(...)`` block, and otherwise does
what the handler from before did. Nothing of this happens in other threads, to which Python
gives no interrupt.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from types import CodeType, FrameType
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# `signal` makes enums of what `_signal` returns: that would take longer than all else for a block.

# Whether an interrupt waits that comes while this code, or what it calls, runs.
_waits: dict[CodeType, bool] = {}


class _State:
    holds = 0
    waiting = False  # an interrupt came at a bad moment
    before: Any = None  # the handler from before


def defer_interrupts(
    function: Callable[P, R], undo: Callable[[R], object] | None = None
) -> Callable[P, R]:
    """An interrupt that comes while the function runs is raised when it is done.

    ``undo`` is called with what the function returned if an interrupt takes it from the caller.

    >>> @defer_interrupts
    ... def both():
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("done")
    >>> try:
    ...     both()
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    done
    interrupted
    """

    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        held = hold()
        try:
            result = function(*args, **kwargs)
        except BaseException:
            if held:
                release()
                _deliver(sys._getframe().f_back)
            raise
        try:
            if held:
                release()
                _deliver(sys._getframe().f_back)
        except BaseException:
            if undo is not None:
                undo(result)
            raise
        return result

    _waits[whole.__code__] = True
    return wraps(function)(whole)


def allow_interrupts(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the function; an interrupt is raised at once, also within what defers them."""
    _deliver(sys._getframe())
    return function(*args, **kwargs)


class Block:
    """A ``with`` block that no interrupt cuts in two, on its way in or on its way out.

    A subclass begins in `_begin` what `around`, an ``ExitStack``, ends. What is within the block
    is interrupted at once.
    """

    def __init__(self) -> None:
        self.around, self.on = ExitStack(), False

    def _begin(self) -> None:
        """Enter everything into `around`."""

    def _enter(self) -> Self:
        if self.on:
            raise RuntimeError("This block is on already: make a second one.")
        try:
            if hold():  # for an interrupt on the way into __exit__
                self.around.callback(release)
            self.on = True
            self._begin()
        except BaseException as error:
            self._leave(type(error), error, None)
            raise
        return self

    def _leave(self, *error: Any) -> None:
        self.on = False
        self.around.__exit__(*error)

    __enter__ = defer_interrupts(_enter, undo=lambda block: block._leave(None, None, None))
    __exit__ = defer_interrupts(_leave)


def hold() -> bool:
    """Put the handler in place, until `release`; False where there is nothing to be done."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _State.holds:  # asking takes longer than all else here
        here = _signal.getsignal(signal.SIGINT)
        if not callable(here):  # ignored, or none of Python's
            return False
        _State.before, _State.waiting = here, False
        _signal.signal(signal.SIGINT, _interrupted)
    _State.holds += 1
    return True


def release() -> None:
    """Take back one `hold`."""
    _State.holds -= 1
    if _State.holds or threading.current_thread() is not threading.main_thread():
        return
    if _signal.getsignal(signal.SIGINT) is _interrupted:
        _signal.signal(signal.SIGINT, _State.before)


def _interrupted(number: int, frame: FrameType | None) -> None:
    at = frame
    while at is not None and at.f_code not in _waits:
        at = at.f_back
    if at is not None and _waits[at.f_code]:
        _State.waiting = True
    else:
        _State.before(number, frame)


def _deliver(frame: FrameType | None) -> None:
    """Raise the interrupt that waits, or let it wait on if ``frame`` is a bad moment, too."""
    if _State.waiting and threading.current_thread() is threading.main_thread():
        _State.waiting = False
        _interrupted(signal.SIGINT, frame)


_waits |= {hold.__code__: True, allow_interrupts.__code__: False}
