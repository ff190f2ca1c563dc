"""A progress bar that shows itself only when the work takes more than a second."""

from __future__ import annotations

import time
from typing import Any

import ipywidgets as widgets
from IPython import get_ipython
from IPython.display import display

from ..hooking.interrupts import unbroken

PATIENCE = 1.0  # seconds before the bar appears
_PAUSE = 0.1  # seconds between two updates of it


class Progress:
    """A bar from 0 to 1, in the output of the notebook cell that is running.

    Examples
    --------
    >>> with Progress() as progress:
    ...     progress.tick(0.5)  # too soon to show anything
    """

    def __init__(self) -> None:
        self._next = time.monotonic() + PATIENCE
        self._bar: widgets.FloatProgress | None = None
        self._handle: Any = None

    def __enter__(self) -> Progress:
        return self

    @unbroken
    def tick(self, share: float) -> None:
        """Say how much is done, 0 to 1."""
        if time.monotonic() < self._next or get_ipython() is None:
            return
        self._next = time.monotonic() + _PAUSE
        if self._bar is None:
            self._bar = widgets.FloatProgress(description="capturing", min=0, max=1)
            self._handle = display(self._bar, display_id=True)
        self._bar.value = share

    @unbroken
    def __exit__(self, *error: object) -> None:
        if self._bar is None:
            return
        # A closed widget would be an error in the saved notebook: leave nothing in its place.
        self._handle.update({"text/plain": ""}, raw=True)
        for part in (self._bar.layout, self._bar.style, self._bar):
            part.close()
