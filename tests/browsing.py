"""A simulated browser that sends messages to an explorer and stores the replies."""

from __future__ import annotations

from typing import Any

import numpy as np

from hookviz.view.messages import Coding, read
from hookviz.widgets.canvas import Canvas

KINDS = {"f4": np.float32, "f8": np.float64, "u4": np.uint32, "b1": np.uint8, "f2": np.float16}


class Browser:
    """The browser that shows an explorer with ``face="canvas"``."""

    def __init__(self, explorer):
        self.canvas: Canvas = explorer.children[0]
        self.answers: list[dict[str, Any]] = []
        self.arrays: list[dict[str, np.ndarray]] = []
        self.canvas.send = self._arrived  # type: ignore[method-assign]
        self._asked = 0

    def _arrived(self, answer, buffers=None):
        left = iter(buffers or ())
        for each in answer.get("answers", [answer]):
            self.answers.append(each)
            codings = [read(Coding, coding) for coding in each["arrays"]]
            self.arrays.append({coding.name: _decoded(coding, next(left)) for coding in codings})
        assert not list(left)

    def ask(self, ask, **fields):
        """Send a question; return the answer and its arrays."""
        self._asked += 1
        fields.setdefault("key", f"{self.canvas.facts['run']} {self._asked}")
        self.canvas._handle_custom_msg({"ask": ask, **fields}, [])
        return self.answers[-1], self.arrays[-1]

    def request(self, set, data=None, **fields):
        """Send a request with optional binary data."""
        buffers = [] if data is None else [memoryview(data)]
        self.canvas._handle_custom_msg({"set": set, **fields}, buffers)

    def move(self, **settings):
        """Change settings, as sliders and clicks do in the browser."""
        moved = {"count": self.canvas.seen + 1, "names": list(settings)}
        self.canvas.moved = moved
        self.canvas.settings = {**self.canvas.settings, **settings}


def _decoded(coding, data):
    values = np.frombuffer(data, KINDS[coding.kind]).reshape(coding.shape)
    return values * (coding.scale or 1)
