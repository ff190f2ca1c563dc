"""A widget that is a page in a frame: interactive in the browser, without the kernel."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from ..draw.document import IN_NOTEBOOK, in_frame
from ..draw.style import ROOT_CLASS
from .lifecycle import LiveWidget, close_earlier, register


class FramedPage(LiveWidget):
    """A widget that shows a page; a subclass writes it in `_page` and calls `_draw` on changes."""

    def __init__(self) -> None:
        close_earlier()
        super().__init__()
        self._frame = widgets.HTML()
        self.children = (self._frame,)
        self.add_class(ROOT_CLASS)
        register(self)

    def _draw(self) -> None:
        """Write the page again, beginning at the present settings."""
        if not self.closed:
            self._frame.value = in_frame(self._page(IN_NOTEBOOK) or "", self._alt())

    def _alt(self) -> str:
        """Return a description of the page, without drawing a picture."""
        return self._output()[0]["text/plain"]

    def _page(self, max_bytes: float) -> Any:
        raise NotImplementedError
