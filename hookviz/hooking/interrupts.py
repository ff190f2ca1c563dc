"""Defer Ctrl-C during critical sections: changing a model and restoring it is never cut short.

Python raises ``KeyboardInterrupt`` between any two steps of the main thread: also halfway through
a ``finally``, or on the way into ``__exit__``, which is then never run. Functions decorated with
`defer_interrupts` run to their end first. Code in them that may take long, such as the model
itself, is called through `allow_interrupts` and can be interrupted at once. Where not even that may
be cut short, as in torch's tracing, `uninterrupted` calls it.

A counter of running functions would not do: the interrupt may come after ``__exit__`` was entered
and before it has counted itself. So the signal handler looks at the stack, where the innermost of
the two kinds of functions decides. The handler is installed only while such a function or a
``with capture(...)`` block runs, and calls the previous handler.

Other threads never get an interrupt from Python, so nothing is done there. Within `stoppable`,
however, the main thread passes its interrupt on, and the next hook or recorded operation raises it.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from types import CodeType, FrameType
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# `_signal` is used because `signal` wraps its results in enums, which would be the slowest part of
# a block.

# Code object -> 0 if it allows interrupts during its calls; else they are deferred.
_defers: dict[CodeType, int] = {}


class _State:
    holds = 0  # how many functions and blocks need the handler
    deferred = False  # True if an interrupt waits to be raised
    previous: Any = None  # the handler that was replaced


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

    def deferring(*args: P.args, **kwargs: P.kwargs) -> R:
        held = hold()
        try:
            result = function(*args, **kwargs)
        except BaseException:
            if held:
                release()
                _raise_deferred(sys._getframe().f_back)
            raise
        try:
            if held:
                release()
                _raise_deferred(sys._getframe().f_back)
        except BaseException:
            if undo is not None:
                undo(result)
            raise
        return result

    _defers[deferring.__code__] = 1
    return wraps(function)(deferring)


def allow_interrupts(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the function; an interrupt is raised at once, also within `defer_interrupts`."""
    _raise_deferred(sys._getframe())
    return function(*args, **kwargs)


def uninterrupted(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that must not be interrupted, within a `Block`.

    Unlike `defer_interrupts`, it also holds for what the function calls by `allow_interrupts`.
    """
    return function(*args, **kwargs)


def always_defer(function: Any) -> None:
    """Defer interrupts within a function, as `defer_interrupts` does, but at no cost for each call.

    It runs only within blocks of hookviz, and begins with `raise_if_stopped`.
    """
    _defers[function.__code__] = 1


@contextmanager
def deferring_within(function: Any) -> Iterator[None]:
    """Defer interrupts within a Python function of another library, too, during this block."""
    code = function.__code__
    _defers[code] = _defers.get(code, 0) + 1
    try:
        yield
    finally:
        _defers[code] -= 1
        if not _defers[code]:
            del _defers[code]


class Block:
    """A ``with`` block whose entry and exit no interrupt cuts short.

    The body of the block can be interrupted at once. A subclass may enter its contexts in
    `_begin`, on `exit_stack`, and override `_leave`, but not ``__exit__``: an interrupt could come
    before its first step.

    Parameters
    ----------
    contexts : iterable of context managers, optional
        Entered in this order; each is taken from the iterable when those before it are active.
    """

    def __init__(self, contexts: Iterable[AbstractContextManager[Any]] = ()) -> None:
        self.exit_stack, self.active = ExitStack(), False
        self._contexts = contexts

    def _begin(self) -> None:
        """Enter all contexts on `exit_stack`."""
        for context in self._contexts:
            self.exit_stack.enter_context(context)

    def _enter(self) -> Self:
        if self.active:
            raise RuntimeError("This block is already active: make a second one.")
        try:
            if hold():  # keeps the handler until the exit, for an interrupt on the way into it
                self.exit_stack.callback(release)
            self.active = True
            self._begin()
        except BaseException as error:
            self._leave(type(error), error, None)
            raise
        return self

    def _leave(self, *error: Any) -> None:
        """Exit all contexts."""
        self.active = False
        self.exit_stack.__exit__(*error)

    __enter__ = defer_interrupts(_enter, undo=lambda block: block._leave(None, None, None))

    @defer_interrupts
    def __exit__(self, *error: Any) -> None:
        self._leave(*error)


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def hold() -> bool:
    """Install the handler until `release`; return False where that is unnecessary."""
    if not _in_main_thread():
        return False
    handler = _signal.getsignal(signal.SIGINT)
    if handler is not _interrupted:  # none yet, or other code, such as IPython, has replaced it
        if not callable(handler):  # interrupts are ignored, or not handled by Python
            return False
        _State.previous = handler
        _State.deferred = _State.deferred and _State.holds > 0
        _signal.signal(signal.SIGINT, _interrupted)
    _State.holds += 1
    return True


def release() -> None:
    """Undo one `hold`."""
    _State.holds -= 1
    if _State.holds or not _in_main_thread():
        return
    if _signal.getsignal(signal.SIGINT) is _interrupted:
        _signal.signal(signal.SIGINT, _State.previous)


def is_deferred(frame: FrameType | None) -> bool:
    """Return whether an interrupt that comes in a frame waits."""
    defers = None
    while frame is not None and frame.f_code is not uninterrupted.__code__:
        if defers is None:
            defers = _defers.get(frame.f_code)
        frame = frame.f_back
    return frame is not None or bool(defers)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if is_deferred(frame):
        _State.deferred = True
    else:
        _State.previous(number, frame)


def _raise_deferred(frame: FrameType | None) -> None:
    """Raise the deferred interrupt, unless ``frame`` defers it too."""
    if _State.deferred and _in_main_thread():
        _State.deferred = False
        _interrupted(signal.SIGINT, frame)


# JupyterLab handles widget messages in a separate thread, while the idle kernel ignores SIGINT.

_stoppable: set[int] = set()  # identifiers of threads
_stopped: set[int] = set()  # those of them that were interrupted


@contextmanager
def stoppable(in_main_thread: Callable[[Callable[[], None]], Any]) -> Iterator[None]:
    """Let an interrupt of the idle main thread end the work of this thread.

    Parameters
    ----------
    in_main_thread : callable
        Runs a function in the main thread as soon as that has nothing else to do.
    """
    thread = threading.get_ident()
    _stoppable.add(thread)
    in_main_thread(_listen_for_interrupts)
    try:
        yield
    finally:
        _stoppable.discard(thread)
        _stopped.discard(thread)
        in_main_thread(_ignore_interrupts)


def raise_if_stopped() -> None:
    """Raise ``KeyboardInterrupt`` if this thread was stopped; see `stoppable`.

    An interrupt that was deferred is raised, too, unless the function that called the caller
    defers it.
    """
    if _State.deferred:
        _raise_deferred(sys._getframe(1).f_back)
    if _stopped and threading.get_ident() in _stopped:
        _stopped.discard(threading.get_ident())
        raise KeyboardInterrupt


def _listen_for_interrupts() -> None:
    if _stoppable and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _stop)


def _ignore_interrupts() -> None:
    if not _stoppable and signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    _stopped.update(_stoppable)


_defers |= {hold.__code__: 1, allow_interrupts.__code__: 0}
