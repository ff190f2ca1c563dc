"""A progress bar that shows itself only when the work takes more than a second."""

from __future__ import annotations

import sys
import time
from typing import Any

PATIENCE = 1.0  # seconds before the bar appears
_PAUSE = 0.1  # seconds between two updates of it


class Progress:
    """A bar from 0 to 1, in the output of the notebook cell that is running."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._next = self._start + PATIENCE
        self._handle: Any = None  # of the output that shows the bar

    def __enter__(self) -> Progress:
        return self

    def tick(self, share: float) -> None:
        """Say how much is done, 0 to 1."""
        if time.monotonic() < self._next or not _in_notebook():
            return
        self._next = time.monotonic() + _PAUSE
        words = f"{100 * share:.0f} %"
        bar = f'<progress max="1" value="{share:.3f}" aria-label="work done" style="width: 300px">'
        self._show({"text/plain": words, "text/html": f"{bar}</progress> {words}"})

    def __exit__(self, *error: object) -> None:
        if self._handle is not None:
            # An output cannot be taken back, and an empty one would be saved with the notebook.
            self._show({"text/plain": f"done in {time.monotonic() - self._start:.1f} s"})

    def _show(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_notebook() -> bool:
    # Without IPython loaded there is no notebook, and nothing to load it for.
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
