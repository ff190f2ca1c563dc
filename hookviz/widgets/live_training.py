"""The live view of a training, in the running cell and afterwards."""

from __future__ import annotations

import os
import time
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets
from IPython import get_ipython

from ..draw.document import IN_NOTEBOOK, in_frame, script, style
from ..draw.figures import small_png
from ..draw.html import ROOT_CLASS
from ..studies.watch.strips import bytes_of, facts_of
from ..studies.watch.training import Training
from .lifecycle import LiveWidget, close_tree


class StepsCanvas(anywidget.AnyWidget):
    """The training's view drawn by the browser.

    Attributes
    ----------
    alive : bool
        Set by the browser once it can draw.
    """

    _esm = script("live")
    _css = style("steps")

    alive = traitlets.Bool(False).tag(sync=True)

    def __init__(self, training: Training) -> None:
        self._training = training
        self._sent: set[int] = set()
        super().__init__()
        self.on_msg(self._asked)

    def push(self) -> None:
        """Send the steps that were recorded since the last time."""
        self._tell(self._sent)

    def _asked(self, widget: Any, content: Any, buffers: Any) -> None:
        """Send all steps to a new view."""
        self._tell(set())

    def _tell(self, had: set[int]) -> None:
        training, history = self._training, self._training.history()
        steps = history.steps
        # A step's weight update is measured when the next one begins.
        new = [step for step in steps if step.at not in had or step is steps[-1]]
        last = [step for step in steps[-2:-1] if step not in new]
        new = last + new
        self._sent = {step.at for step in steps}
        facts = facts_of(training.title, history, training.first_trouble)
        self.send(
            {"facts": facts, "steps": [step.at for step in new]},
            [bytes_of(step) for step in new],
        )


PAUSE = 0.4  # seconds between two pushes, at least
SHARE = 0.02  # maximum fraction of the training's time for drawing it


class LiveTraining(LiveWidget):
    """The widget that `hookviz.results.Watch.show` returns, updated while the training runs.

    While a cell trains, new steps are sent a few times a second at most, and this takes no more
    than a fiftieth of the time. The browser scrubs through steps, layers and statistics without
    asking the kernel, also while a cell runs. Where the canvas cannot run, a page in a frame shows
    the steps recorded until the cell ended.

    Parameters
    ----------
    training : Training
        A watch, or a training loaded from a file.
    """

    closed_message = "This view of a training is closed: call its show() again."

    def __init__(self, training: Training) -> None:
        super().__init__()
        self._training = training
        self._next, self._pushed = 0.0, -1
        self._frame = widgets.HTML()
        self.children = (self._frame,)
        self.add_class(ROOT_CLASS)
        if os.environ.get("HOOKVIZ_CANVAS") != "off":
            self._canvas = StepsCanvas(training)
            self._canvas.observe(self._take_place, "alive")
        self.push(now=True)
        self._shell: Any = get_ipython()  # at exit, nothing can be imported to ask again
        if self._shell:
            self._shell.events.register("post_run_cell", self._cell_ran)

    def push(self, now: bool = False) -> None:
        """Send new steps, unless some were sent a moment ago.

        A page is written only if ``now``, since it takes longer than a step.
        """
        start = time.monotonic()
        if self.closed or (start < self._next and not now):
            return
        if self._canvas is not None:
            self._canvas.push()
        if now and (self._canvas is None or self._canvas not in self.children):
            self._draw()
        self._next = time.monotonic() + max(PAUSE, (time.monotonic() - start) / SHARE)
        self._pushed = self._last

    @property
    def _last(self) -> int:
        """The last recorded step, from the log, since a watch would measure its update."""
        steps = self._training.log.histories["train"].steps
        return steps[-1].at if steps else -1

    def _cell_ran(self, *result: Any) -> None:
        """Send the steps since the last push, when the training's cell has ended."""
        if not self.closed and self._last != self._pushed:
            self.push(now=True)

    def _draw(self) -> None:
        page = self._page(IN_NOTEBOOK)
        title = self._training.title
        self._frame.value = in_frame(page, title) if page else "Nothing has been recorded yet."

    def _take_place(self, change: dict[str, Any]) -> None:
        if self.closed or self._canvas in self.children:
            return
        self.set_trait("children", (self._canvas,))
        close_tree(self._frame)
        self._next = 0.0  # the canvas costs less than the page that was measured

    def _alt(self) -> str:
        return self._training.title

    def _png(self) -> bytes | None:
        return small_png(self._training.figure()) if self._training.steps else None

    def _page(self, max_bytes: float) -> str | None:
        return self._training.to_html(max_bytes=max_bytes) if self._training.steps else None

    def close(self) -> None:
        """Release all its widgets; the training goes on."""
        if not self.closed and self._shell:
            self._shell.events.unregister("post_run_cell", self._cell_ran)
        super().close()
