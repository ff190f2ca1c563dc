"""Defer Ctrl-C during critical sections: changing a model and restoring it is never cut short.

Python raises ``KeyboardInterrupt`` between any two steps of the main thread: also halfway through
a ``finally``, or on the way into ``__exit__``, which is then never run. Functions decorated with
`defer_interrupts` run to their end first. Code in them that may take long, such as the model
itself, is called through `allow_interrupts` and can be interrupted at once.

The signal handler looks at the stack: the innermost of the two decides. The handler is installed
only while such a function or a ``with capture(...)`` block runs, and calls the previous handler.
Other threads never get an interrupt from Python, so nothing is done there; but within `stoppable`
the main thread hands it on, and the next hook or recorded operation raises it.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import CodeType, FrameType
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# `signal` wraps the results of `_signal` in enums, which would be the slowest part of a block.

# Code object -> True if it defers interrupts during its calls, False if it allows them.
_waits: dict[CodeType, bool] = {}


class _State:
    holds = 0
    waiting = False  # an interrupt was deferred
    before: Any = None  # the previous handler


def defer_interrupts(
    function: Callable[P, R], undo: Callable[[R], object] | None = None
) -> Callable[P, R]:
    """Decorate a function so that an interrupt during its run is raised when it has ended.

    If the interrupt keeps the result from the caller, ``undo`` is called with that result.

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
    """Call the function; an interrupt is raised at once, also within `defer_interrupts`."""
    _deliver(sys._getframe())
    return function(*args, **kwargs)


class Block:
    """A ``with`` block whose entry and exit no interrupt cuts short.

    A subclass enters its contexts in `_begin`, on `exit_stack`. The body of the block is
    interrupted at once.
    """

    def __init__(self) -> None:
        self.exit_stack, self.active = ExitStack(), False

    def _begin(self) -> None:
        """Enter all contexts on `exit_stack`."""

    def _enter(self) -> Self:
        if self.active:
            raise RuntimeError("This block is already active: make a second one.")
        try:
            if hold():  # for an interrupt on the way into __exit__
                self.exit_stack.callback(release)
            self.active = True
            self._begin()
        except BaseException as error:
            self._leave(type(error), error, None)
            raise
        return self

    def _leave(self, *error: Any) -> None:
        self.active = False
        self.exit_stack.__exit__(*error)

    __enter__ = defer_interrupts(_enter, undo=lambda block: block._leave(None, None, None))
    __exit__ = defer_interrupts(_leave)


def hold() -> bool:
    """Install the handler until `release`; return False where that is unnecessary."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _State.holds:  # the slowest step here
        here = _signal.getsignal(signal.SIGINT)
        if not callable(here):  # ignored, or not installed by Python
            return False
        _State.before, _State.waiting = here, False
        _signal.signal(signal.SIGINT, _interrupted)
    _State.holds += 1
    return True


def release() -> None:
    """Undo one `hold`."""
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
    """Raise the deferred interrupt, unless ``frame`` defers it too."""
    if _State.waiting and threading.current_thread() is threading.main_thread():
        _State.waiting = False
        _interrupted(signal.SIGINT, frame)


# JupyterLab answers widgets in a thread of their own, while an idle kernel ignores SIGINT.

_stoppable: set[int] = set()  # threads
_stopped: set[int] = set()  # those of them that were interrupted


@contextmanager
def stoppable(in_main_thread: Callable[[Callable[[], None]], Any]) -> Iterator[None]:
    """Let an interrupt that the idle main thread gets end the work of this one.

    Parameters
    ----------
    in_main_thread : callable
        Runs a function in the main thread as soon as that has nothing else to do.
    """
    own = threading.get_ident()
    _stoppable.add(own)
    in_main_thread(_hear)
    try:
        yield
    finally:
        _stoppable.discard(own)
        _stopped.discard(own)
        in_main_thread(_ignore)


def heed() -> None:
    """Raise KeyboardInterrupt if this thread was stopped."""
    if _stopped and threading.get_ident() in _stopped:
        _stopped.discard(threading.get_ident())
        raise KeyboardInterrupt


def _hear() -> None:
    if _stoppable and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _stop)


def _ignore() -> None:
    if not _stoppable and signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    _stopped.update(_stoppable)


_waits |= {hold.__code__: True, allow_interrupts.__code__: False}
