"""A progress bar that appears only if the work takes more than half a second.

tqdm is not used: its bar in a notebook is an ipywidget, which becomes a dead output ("model not
found") when the notebook is saved. This one is HTML and ends as a line of text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..tables import visible

PATIENCE = 0.5  # seconds before the bar appears
STOP = "interrupt the kernel to stop"
_PAUSE = 0.1  # seconds between two updates of the bar

_redirection: ContextVar[Callable[[float | None], None] | None] = ContextVar(
    "redirection", default=None
)


@contextmanager
def shown_by(show: Callable[[float | None], None]) -> Iterator[None]:
    """Redirect bars within the block: ``show`` gets the fraction done, and None at the end.

    >>> with shown_by(print), Progress() as bar:
    ...     bar._next = 0
    ...     bar.update(0.5)
    0.5
    None
    """
    previous = _redirection.set(show)
    try:
        yield
    finally:
        _redirection.reset(previous)


class Progress:
    """A bar from 0 to 1 in the output of the running notebook cell; see also `shown_by`.

    With ``terminal`` it is also shown in a terminal.
    """

    def __init__(self, terminal: bool = False) -> None:
        self._terminal = terminal and sys.stderr.isatty() and not _in_notebook()
        self._start = time.monotonic()
        self._next = self._start + PATIENCE
        self._handle: Any = None  # of the output that shows the bar

    def __enter__(self) -> Progress:
        return self

    def update(self, fraction: float, text: str = "") -> None:
        """Show the fraction done, 0 to 1, followed by a text."""
        show = _redirection.get()
        if time.monotonic() < self._next or not (show or _in_notebook() or self._terminal):
            return
        self._next = time.monotonic() + _PAUSE
        if show is not None:
            self._handle = show
            show(fraction)
            return
        words = f"{100 * fraction:.0f} %" + f", {text}" * bool(text)
        if self._terminal:
            print(f"\r{visible(words)}\x1b[K", end="", file=sys.stderr, flush=True)
            self._handle = sys.stderr
            return
        bar = (
            f'<progress max="1" value="{fraction:.3f}" aria-label="work done" style="width: 300px">'
        )
        stop = f'; <span style="opacity: 0.6">{STOP}</span>'
        self._show({"text/plain": words, "text/html": f"{bar}</progress> {words}{stop}"})

    def __exit__(self, *error: object) -> None:
        if (show := _redirection.get()) is not None and self._handle is show:
            show(None)
        elif self._handle is sys.stderr:
            print(file=sys.stderr)
        elif self._handle is not None:
            # An output cannot be removed, but an empty one takes no room beside the result.
            self._show({"text/plain": "", "text/html": ""})

    def _show(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_notebook() -> bool:
    # In a notebook, IPython is always loaded already.
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
