"""The widget that steps through the events of a trace."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from ..studies.trace.events import Event
from ..studies.trace.trace import write_page
from .lifecycle import FramedPage


class Player(FramedPage):
    """A timeline, a play button and a module tree over events; `Trace.show` makes it.

    The timeline has a tick for each event. Menus and words select events, and keys and play step
    through these. Choosing a module in the tree goes to its next event. All this happens in the
    browser; ``event`` is where it begins.

    Parameters
    ----------
    events : sequence of Event
        At least one.
    tree : sequence of (str, str)
        Name and type of every module, as ``named_modules()`` has them.
    title : str

    Attributes
    ----------
    event : int
        The first shown event, by its index in ``events``; may be set.
    closed : bool

    Raises
    ------
    ValueError
        ``events`` is empty.
    traitlets.TraitError
        ``event`` out of range.
    """

    event = traitlets.Int(0)
    closed_message = "This player is closed: call the trace's show() again."

    def __init__(
        self, events: Sequence[Event], tree: Sequence[tuple[str, str]], title: str
    ) -> None:
        if not len(events):
            raise ValueError("The trace part has no event: choose a longer part.")
        self._events, self._tree, self._title = events, tree, title
        super().__init__()
        self._draw()

    @traitlets.validate("event")
    def _in_range(self, proposal: dict) -> int:
        place = proposal["value"]
        if self.closed:
            raise traitlets.TraitError(self.closed_message)
        if not 0 <= place < len(self._events):
            raise traitlets.TraitError(
                f"event={place} is not in this trace: give 0 to {len(self._events) - 1}."
            )
        return place

    @traitlets.observe("event")
    def _moved(self, change: dict) -> None:
        self._draw()

    def _page(self, max_bytes: float) -> str:
        return write_page(self._events, self._title, self._tree, max_bytes, None, self.event)

    def close(self) -> None:
        """Release every widget that belongs to this one; may be called twice."""
        super().close()
        self._events = ()
