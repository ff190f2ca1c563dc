"""Controls that change the network: the shown channel's factor, and the edits that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..view.frame import Frame
from .pictures import visible

MOST = 2.0


class Hands(widgets.Box):
    """A line of what is edited; `factor` and `off` stand elsewhere. `show` sets all to a frame.

    Parameters
    ----------
    on_edit : callable
        Called with ``"factor"`` and what the shown channel is multiplied by, or with ``"drop"``
        and the number of the edit that goes.
    version : ipywidgets.Widget
        The menu that says whose pictures are shown.
    """

    def __init__(self, on_edit: Callable[[str, Any], None], version: widgets.Widget) -> None:
        self._on_edit = on_edit
        self._quiet = False
        self._said: list[str] = []  # the edits that have buttons
        self.factor = widgets.FloatSlider(1.0, min=0.0, max=MOST, step=0.05)
        self.factor.continuous_update, self.factor.readout_format = False, ".2f"
        self.factor.style.description_width = "initial"
        self.factor.add_class("hookviz-by-factor")
        self.off = widgets.ToggleButton(description="off")
        self.off.layout.width = "auto"
        self.factor.observe(lambda change: self._moved(change["new"]), "value")
        self.off.observe(lambda change: self._moved(0.0 if change["new"] else 1.0), "value")
        self.edits = widgets.Box()
        self.edits.add_class("hookviz-edits")
        super().__init__([version, self.edits])  # a line that is there where something is edited
        self.add_class("hookviz-line")

    def _moved(self, factor: float) -> None:
        if not self._quiet:
            self._on_edit("factor", factor)

    def show(self, frame: Frame) -> None:
        """Set all controls."""
        self._quiet = True
        try:
            self.factor.description = f"factor of {frame.settings.channel}"
            self.factor.value, self.off.value = min(frame.factor, MOST), frame.factor == 0
            visible(self, bool(frame.edits))
            self._show_edits(frame.edits)
        finally:
            self._quiet = False

    def _show_edits(self, edits: list[str]) -> None:
        if edits == self._said:
            return
        self._said, before = list(edits), self.edits.children
        buttons = []
        for number, words in enumerate(edits):
            button = widgets.Button(description=f"{words} ✕", tooltip=f"take out: {words}")
            button.layout.width = "auto"
            button.on_click(lambda _, number=number: self._on_edit("drop", number))
            buttons.append(button)
        self.edits.children = buttons
        for button in before:
            button.close()
