"""A training drawn by the browser: it gets each recorded step once."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from ..render.bundle import script, style
from ..training.payload import bytes_of, facts_of
from ..training.training import Training


class StepsCanvas(anywidget.AnyWidget):
    """Shows a training in the browser.

    Attributes
    ----------
    alive : bool
        Set by the browser once it can draw.
    """

    _esm = script("live")
    _css = style("style", "steps")

    alive = traitlets.Bool(False).tag(sync=True)

    def __init__(self, training: Training) -> None:
        self._training = training
        self._sent: set[int] = set()
        super().__init__()
        self.on_msg(self._asked)

    def push(self) -> None:
        """Send the steps that have come since."""
        self._tell(self._sent)

    def _asked(self, widget: Any, content: Any, buffers: Any) -> None:
        """A view is there, which has nothing yet."""
        self._tell(set())

    def _tell(self, had: set[int]) -> None:
        steps = self._training.history().steps
        # How far a step took the weights is known when the next one begins.
        new = [step for step in steps if step.at not in had or step is steps[-1]]
        last = [step for step in steps[-2:-1] if step not in new]
        new = last + new
        self._sent = {step.at for step in steps}
        self.send(
            {"facts": facts_of(self._training), "steps": [step.at for step in new]},
            [bytes_of(step) for step in new],
        )
