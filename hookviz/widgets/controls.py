"""The widget's sliders, menus, buttons and fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..view.frame import Frame
from ..view.predictions import TOP as BUTTONS
from . import menus

HIDDEN_LABEL = "hookviz-hidden-label"  # it has a name, which is heard and not seen


class Controls:
    """All controls; where they stand is for others to say. `show` sets them to a frame.

    Parameters
    ----------
    on_user : callable
        Called with a setting's name and its new value when the user moves a control; not when
        `show` does.
    on_error : callable
        Called with what was wrong with words that the user has typed.

    Attributes
    ----------
    by_name : dict of str to ipywidgets.Widget
        ``layer``, ``channel``, ... as in `menus.SLIDERS` and `menus.MENUS`; ``target``, ``find``
        and ``place``, where words are typed; ``strip``.
    targets : list of ipywidgets.Button
        One for each of the top predictions.
    """

    def __init__(
        self, on_user: Callable[[str, Any], None], on_error: Callable[[str], None]
    ) -> None:
        self._on_user, self._on_error = on_user, on_error
        self._frame: Frame | None = None  # None while it shows one
        self._options: dict[str, menus.Options] = {}  # as they are on the page
        self._listed: Any = None  # the layers and classes whose lists are on the page
        # Options are (label, position): None as a value would mean that nothing is chosen.
        sliders = {name: widgets.IntSlider(min=0, max=0) for name in menus.SLIDERS}
        self.by_name: dict[str, Any] = sliders | {name: widgets.Dropdown() for name in menus.MENUS}
        for name, control in self.by_name.items():
            control.description = menus.LABELS.get(name, name)
            control.style.description_width = "initial"
            control.layout.width = "auto"
            control.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        for name in ("layer", *menus.MENUS):
            if name != "order":
                self.by_name[name].add_class(HIDDEN_LABEL)
        for name in ("layer", "alpha"):
            self.by_name[name].readout = False
        for name in ("layer", "channel"):
            self.by_name[name].add_class(f"hookviz-by-{name}")
        self.by_name["target"] = self._field("any class", "target", menus.typed_target)
        self.by_name["find"] = self._field("find a layer", "layer", menus.typed_layer)
        self.by_name["place"] = self._field("place: row, column", "place", menus.typed_place)
        strip = widgets.ToggleButton(description="heatmaps of all layers")
        strip.layout.width = "auto"
        strip.observe(lambda change: self._moved("strip", change["new"]), "value")
        self.by_name["strip"] = strip
        self.targets = [widgets.Button() for _ in range(BUTTONS)]
        for place, button in enumerate(self.targets):
            button.add_class("hookviz-pred")
            button.on_click(lambda _, place=place: self._clicked(place))

    def _field(
        self, name: str, setting: str, understood: Callable[[str, Frame], Any]
    ) -> widgets.Combobox:
        """Where words are typed, with a list of what there is; empty again once they are taken."""
        field = widgets.Combobox(description=name, placeholder=f"{name} …", continuous_update=False)
        field.layout.width = "auto"
        field.add_class(HIDDEN_LABEL)

        def typed(change: dict) -> None:
            frame, text = self._frame, change["new"]
            if not text or frame is None:
                return
            field.value = ""
            try:
                value = understood(text, frame)
            except ValueError as error:
                self._on_error(str(error))
            else:
                self._on_user(setting, value)

        field.observe(typed, "value")
        return field

    def _moved(self, name: str, position: int) -> None:
        if self._frame is None:
            return
        if name in self._options:
            self._on_user(name, self._options[name][position][1])
        elif name == "strip":
            self._on_user(name, bool(position))
        else:
            self._on_user(*menus.set_to(name, position, self._frame))

    def _clicked(self, place: int) -> None:
        if self._frame is not None:
            self._on_user("target", self._frame.predictions[place].number)

    def show(self, frame: Frame) -> None:
        """Set all controls; those with nothing to choose from are hidden."""
        self._frame, self._options = None, menus.options(frame)
        self.by_name["channel"].description = (
            "channel" if frame.settings.order == "index" else "rank"
        )
        try:
            for name, (least, most, position) in menus.positions(frame).items():
                self._show_slider(self.by_name[name], least, most, position)
            for name, options in self._options.items():
                labelled = tuple((label, place) for place, (label, _) in enumerate(options))
                now = getattr(frame.settings, name)
                place = next(p for p, (_, value) in enumerate(options) if value == now)
                _set(self.by_name[name], options=labelled)
                self.by_name[name].value = place
            self._show_targets(frame)
            if self._listed is not frame.words:  # long lists, which change with the run alone
                self._listed = frame.words
                _set(self.by_name["find"], options=tuple(menus.layer_lines(frame)))
                _set(self.by_name["target"], options=(menus.TOP, *frame.classes))
            _visible(self.by_name["find"], len(frame.layers) > 1)
            self.by_name["strip"].value = frame.settings.strip
        finally:
            self._frame = frame

    def _show_slider(self, slider: Any, least: int, most: int, position: int) -> None:
        _visible(slider, most > least)
        if most <= least:
            return
        # The range first where the position lies beyond it, so that it is never cut.
        if (slider.min, slider.max) != (least, most):
            with slider.hold_trait_notifications():
                slider.min, slider.max, slider.value = least, most, position
        slider.value = position

    def _show_targets(self, frame: Frame) -> None:
        target = frame.settings.target
        found = target is None and not frame.predictions
        for place, button in enumerate(self.targets):
            there = place < len(frame.predictions)
            _visible(button, there)
            if not there:
                continue
            each = frame.predictions[place]
            _set(button, description=each.name, tooltip=f"{each.name}: {each.words}")
            on = each.number == target if isinstance(target, int) else each.name == frame.target
            found = found or on
            (button.add_class if on else button.remove_class)("hookviz-on")
        field = self.by_name["target"]
        _visible(field, bool(frame.classes))
        _set(field, placeholder="any class …" if found else f"target: {frame.target}")
        (field.remove_class if found else field.add_class)("hookviz-on")


def _set(widget: widgets.Widget, **values: Any) -> None:
    """Set only what is another: the same options again would reset a menu's value."""
    for name, value in values.items():
        if getattr(widget, name) != value:
            setattr(widget, name, value)


def _visible(widget: widgets.Widget, visible: bool) -> None:
    widget.layout.display = None if visible else "none"


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
