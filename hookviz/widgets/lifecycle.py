"""Lifecycle of a widget: it is closed when the cell that made it runs again.

A widget lives until it is closed: ipywidgets keeps it for the page, and IPython keeps a cell's
result in ``Out``. A cell that runs a hundred times would hold a hundred caches. So each run of a
cell is registered with the widgets that it made; when that cell runs again and makes another
widget, they are closed, unless they were displayed by another cell, too.

JupyterLab, Notebook 7 and VS Code send the id of the cell with each request to run it, as
``metadata["cellId"]``, Colab as ``metadata["colab"]["cell_id"]``. Where no id comes (Notebook 6,
nbclient, Voilà, a terminal) nothing is closed. A copy of a notebook has the same ids: give it a
kernel of its own.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

import ipywidgets as widgets
import traitlets
from IPython import get_ipython
from IPython.display import HTML, display
from ipywidgets.widgets import widget as registry

from ..draw.document import IN_NOTEBOOK, in_frame, in_place_of_error
from ..files import with_texts, without_half_characters
from ..hooking.interrupts import defer_interrupts
from ..tables import escape, for_terminal

AGAIN = (
    "This {} is closed, because the cell that made it ran again: run that cell once more and use "
    "what it makes, or make this one in a cell of its own."
)

NO_CORE_WIDGETS = (
    "marimo shows no core ipywidgets, which this {} is made of: here is a still picture of it. "
    "It moves in JupyterLab, Notebook, VS Code and Colab."
)


def in_front_end(widget: widgets.Widget) -> bool:
    """Return whether a browser may show a widget: a program without a kernel has none.

    Its comm is a dummy then or, once ipykernel is imported, has no kernel to write to.
    """
    comm = widget.comm
    return type(comm).__name__ != "DummyComm" and getattr(comm, "kernel", True) is not None


class LiveWidget(widgets.VBox):
    """A widget that is closed when the cell that made it runs again."""

    closed = True  # until __init__
    _connected = False
    closed_message = ""  # the error for using it afterwards
    _canvas: Any = None  # the anywidget that draws it, if any

    def __init__(self) -> None:
        replace_earlier(self)  # first, so that memory never holds both
        super().__init__()
        self.closed = False
        # Without a kernel, comms of ipywidgets 7 were never open.
        self._connected = not getattr(self.comm, "_closed", True)

    @property
    def disconnected(self) -> bool:
        """True if the front end has closed the connection."""
        return self._connected and getattr(self.comm, "_closed", False)

    def _alt(self) -> str:
        """Return a description of one line, without drawing a picture."""
        return "shown in a notebook"

    def _png(self) -> bytes | None:
        """Return a picture for places without a kernel; None if there is none."""
        return None

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the output for places without a kernel, and its metadata."""
        alt, png = self._alt(), self._png()
        if png is None:
            return {"text/plain": alt}, {}
        picture = base64.b64encode(png).decode()
        return {"text/plain": alt, "image/png": picture}, {"image/png": {"alt": alt}}

    def _page(self, max_bytes: float) -> str | None:
        """Return a page that needs no widgets; None if there is none."""
        return None

    def _display_(self) -> Any:
        """Return the display for marimo, which supports anywidgets but no core widgets."""
        if self.closed:
            return HTML(escape(self.closed_message))
        if self._canvas is not None:
            return self._canvas
        data, _ = self._output()
        if page := self._page(IN_NOTEBOOK):
            return HTML(in_frame(page, data["text/plain"]))
        alt = escape(data["text/plain"])
        picture = data.get("image/png")
        still = f'<img alt="{alt}" src="data:image/png;base64,{picture}">' if picture else alt
        return HTML(f"<div><p>{NO_CORE_WIDGETS.format(type(self).__name__)}</p>{still}</div>")

    def view(self) -> dict[str, Any]:
        """Return the live widget's part of a notebook's output; mark it as displayed there."""
        mark_displayed(self)
        return {"version_major": 2, "version_minor": 0, "model_id": self.model_id}

    # ipywidgets declares a narrower type than IPython accepts.
    def _repr_mimebundle_(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = with_texts(self._output(), without_half_characters)
        if "image/png" in data and hasattr(get_ipython(), "kernel"):
            name = f"hookviz-still-{self.model_id}"
            still = in_place_of_error(name, data["image/png"], data["text/plain"])
            display({"text/plain": data["text/plain"], "text/html": still}, raw=True)
        return data | {"application/vnd.jupyter.widget-view+json": self.view()}, metadata

    if hasattr(widgets.VBox, "_ipython_display_"):  # ipywidgets 7 displays itself

        def _ipython_display_(self, **kwargs: Any) -> None:
            data, metadata = self._repr_mimebundle_()
            display(data, metadata=metadata, raw=True)

    @for_terminal
    def __repr__(self) -> str:
        # That of ipywidgets holds everything within the widget, thousands of characters.
        return self.closed_message if self.closed else f"{type(self).__name__}: {self._alt()}"

    @defer_interrupts
    def close(self) -> None:
        """Release every widget that belongs to this one, and its links; may be called twice."""
        if self.closed:
            return
        self.closed = True
        if self._canvas is not None and self._canvas not in self.children:
            close_tree(self._canvas)
        close_tree(self, super().close)
        self._canvas = None
        self.set_trait("children", ())  # IPython's Out may keep this one for ever
        # A linked widget would go on setting traits of this one.
        kinds = [by_kind.values() for by_kind in self._trait_notifiers.values()]
        for notify in [each for lists in kinds for several in lists for each in several]:
            link = getattr(notify, "__self__", None)
            if isinstance(link, (traitlets.link, traitlets.dlink)):
                link.unlink()


def close_tree(widget: Any, close: Any = None) -> None:
    """Close a widget with its children, layouts and styles, which a VBox's close() leaves open."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    for part in ("layout", "style"):
        if hasattr(widget, part):
            getattr(widget, part).close()
    (close or widget.close)()


def visible(widget: widgets.DOMWidget, shown: bool) -> None:
    """Show or hide a widget."""
    widget.layout.display = None if shown else "none"


# The widgets of each cell


class _CellRun(NamedTuple):
    """One run of a cell, by its id, and the widgets that it made."""

    run: str
    widgets: WeakSet[LiveWidget]


_latest: dict[str, _CellRun] = {}  # cell -> its latest run that made widgets


def running_cell() -> tuple[str, str] | None:
    """Return the id of the running cell, and of this run; None if unknown."""
    if threading.current_thread() is not threading.main_thread():
        return None  # a thread may outlive the cell that started it
    parent: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)() or {}
    header, metadata = parent.get("header") or {}, parent.get("metadata") or {}
    if header.get("msg_type") != "execute_request":  # a slider was moved, say
        return None
    colab = metadata.get("colab")
    cell = metadata.get("cellId") or (colab.get("cell_id") if isinstance(colab, Mapping) else None)
    return (cell, header["msg_id"]) if cell else None


def replace_earlier(widget: LiveWidget) -> None:
    """Register a new widget with the running cell, and close those that it takes the place of.

    These are the ones that an earlier run of the cell made, unless they are displayed elsewhere.
    """
    for other in living():  # marimo disconnects a cell's widgets before it runs again
        if isinstance(other, LiveWidget) and other.disconnected:
            other.close()
    if (here := running_cell()) is None:
        return
    cell, run = here
    before = _latest.get(cell)
    if before is None or before.run != run:
        _latest[cell] = _CellRun(run, WeakSet())
        for other in list(before.widgets) if before else ():
            other.closed_message = AGAIN.format(type(other).__name__.lower())
            other.close()
    _latest[cell].widgets.add(widget)


def mark_displayed(widget: LiveWidget) -> None:
    """Keep a widget open that is displayed in another cell than its own."""
    here = running_cell()
    for cell, run in _latest.items():
        if here is None or here[0] != cell:
            run.widgets.discard(widget)


def living() -> list[Any]:
    """Return all open widgets of ipywidgets, which holds them."""
    every = getattr(registry, "_instances", None)
    return list((registry.Widget.widgets if every is None else every).values())  # ipywidgets 7
