"""The widget's sliders and menus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..view.frame import Frame
from . import menus


class Controls(widgets.VBox):
    """Sliders over names and numbers, and menus, one for each setting. `show` sets them.

    ``on_user`` is called with a setting's name and its new value when the user moves a control; not
    when `show` does.
    """

    def __init__(self, on_user: Callable[[str, Any], None]) -> None:
        self._on_user = on_user
        self._frame: Frame | None = None  # None while it shows one
        self._options: dict[str, menus.Options] = {}  # as they are on the page
        # Options are (label, position): None as a value would mean that nothing is chosen.
        sliders = {"layer": widgets.SelectionSlider(options=[("", 0)])}
        sliders |= {name: widgets.IntSlider(min=0, max=0) for name in menus.SLIDERS}
        choices = {name: widgets.Dropdown() for name in menus.MENUS}
        self._controls = sliders | choices
        for name, control in self._controls.items():
            control.description = menus.LABELS.get(name, name)
            control.style.description_width = "64px"
            control.layout.width = "210px" if name in menus.MENUS else "660px"
            control.layout.max_width = "100%"
            control.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        row = widgets.HBox(list(choices.values()))
        row.layout.flex_flow = "row wrap"
        super().__init__([*sliders.values(), row])

    def _moved(self, name: str, position: int) -> None:
        if self._frame is None:
            return
        if name in self._options:
            self._on_user(name, self._options[name][position][1])
        else:
            self._on_user(name, menus.set_to(name, position, self._frame))

    def show(self, frame: Frame) -> None:
        """Set all controls; those with nothing to choose from are hidden."""
        self._frame, self._options = None, menus.options(frame)
        index = frame.settings.order == "index"
        self._controls["channel"].description = "channel" if index else "rank"
        try:
            for name, (count, position) in menus.positions(frame).items():
                self._show_one(name, "max", count - 1, position, count)
            for name, options in self._options.items():
                labelled = tuple((label, place) for place, (label, _) in enumerate(options))
                now = getattr(frame.settings, name)
                place = next(p for p, (_, value) in enumerate(options) if value == now)
                self._show_one(name, "options", labelled, place, len(options))
        finally:
            self._frame = frame

    def _show_one(self, name: str, trait: str, extent: Any, value: int, choices: int) -> None:
        control = self._controls[name]
        control.layout.display = None if choices > 1 else "none"
        if choices <= 1:
            return
        if getattr(control, trait) != extent:  # the same options again would reset the value
            setattr(control, trait, extent)
        control.value = value


class Unfolding(widgets.VBox):
    """A button that shows a text below it, and hides it again.

    ``what`` it is, in the button's words; ``make`` returns it as HTML, called only while shown.
    """

    def __init__(self, what: str, make: Callable[[], str]) -> None:
        self._what, self._make = what, make
        self._button, self._text = widgets.ToggleButton(), widgets.HTML()
        self._button.observe(lambda change: self.show(), "value")
        super().__init__([self._button, self._text])

    def show(self, frame: Frame | None = None) -> None:
        """Bring the text to what it is now."""
        shown = self._button.value
        self._button.description = f"{'hide' if shown else 'show'} {self._what}"
        self._text.layout.display = None if shown else "none"
        if shown:
            self._text.value = self._make()
