"""Which notebook cell runs: the explorers that it makes take the place of those it made before.

A widget lives until it is closed: ipywidgets keeps it for the page, and IPython keeps what a cell
returned in ``Out``. A cell that runs a hundred times would hold a hundred caches. So an explorer
remembers the cell that made it, and is closed when that cell runs again and makes another.

JupyterLab, Notebook 7 and VS Code send the id of the cell with each request to run it, as
``metadata["cellId"]``, Colab as ``metadata["colab"]["cell_id"]``. Where no id comes (Notebook 6,
nbclient, Voilà, a terminal) nothing is closed; nor is what may still be seen elsewhere. A copy of
a notebook has the same ids: give it a kernel of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from IPython import get_ipython
from ipywidgets.widgets import widget as registry

AGAIN = (
    "This explorer is closed, because the cell that made it ran again: run that cell once "
    "more and use what it makes, or make this one in a cell of its own."
)

_made: dict[str, tuple[str, WeakSet[Any]]] = {}  # cell -> its latest run, and what that made


def running() -> tuple[str, str] | None:
    """The id of the cell that runs, and of this run of it; None where nobody says."""
    if threading.current_thread() is not threading.main_thread():
        return None  # a thread may outlive the cell that started it
    parent: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)() or {}
    header, metadata = parent.get("header") or {}, parent.get("metadata") or {}
    if header.get("msg_type") != "execute_request":  # a slider was moved, say
        return None
    colab = metadata.get("colab")
    cell = metadata.get("cellId") or (colab.get("cell_id") if isinstance(colab, Mapping) else None)
    return (cell, header["msg_id"]) if cell else None


def close_earlier() -> None:
    """Close what earlier runs of the running cell made, and is not to be seen anywhere else."""
    here = running()
    if here is None or here[0] not in _made or _made[here[0]][0] == here[1]:
        return
    for explorer in _made.pop(here[0])[1]:
        if not _in_a_box(explorer):
            explorer._closed = AGAIN
            explorer.close()


def made(explorer: Any) -> None:
    """Note that the running cell made this explorer."""
    if here := running():
        cell, run = here
        if _made.get(cell, ("", ()))[0] != run:
            _made[cell] = run, WeakSet()
        _made[cell][1].add(explorer)


def shown(explorer: Any) -> None:
    """Note that it is shown here: if that is not in its own cell, it will not be closed."""
    here = running()
    for cell, (_, explorers) in _made.items():
        if here is None or here[0] != cell:
            explorers.discard(explorer)


def _in_a_box(explorer: Any) -> bool:
    """Whether it is part of another widget, of which nobody knows where it is shown."""
    every = getattr(registry, "_instances", None)
    if every is None:  # ipywidgets 7
        every = registry.Widget.widgets
    return any(explorer in getattr(widget, "children", ()) for widget in every.values())
