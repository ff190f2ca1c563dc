"""The widget's sliders and menus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

Options = tuple[tuple[str, Any], ...]
OnUser = Callable[[str, Any], None]


class Controls(widgets.VBox):
    """Sliders over names and numbers, and menus, each by the name of the setting it stands for.

    Parameters
    ----------
    name_sliders, sliders, menus : sequence of str
        The settings.
    labels : dict
        Setting -> its label, where that is another word.
    on_user : callable
        Called with the setting's name and its new value when the user moves a control; not
        when `show` does. For a number slider the value is its position.
    """

    def __init__(
        self,
        name_sliders: Sequence[str],
        sliders: Sequence[str],
        menus: Sequence[str],
        labels: dict[str, str],
        on_user: OnUser,
    ) -> None:
        self._options: dict[str, Options] = {}
        self._showing = False
        self._on_user = on_user
        self.by_name: dict[str, widgets.Widget] = {}
        for name in name_sliders:
            # Options are (label, position): None as a value would mean that nothing is chosen.
            self._add(widgets.SelectionSlider(options=[("", 0)]), name, labels, "660px")
        for name in sliders:
            self._add(widgets.IntSlider(min=0, max=0), name, labels, "660px")
        for name in menus:
            self._add(widgets.Dropdown(), name, labels, "210px")
        row = widgets.HBox([self.by_name[name] for name in menus])
        row.layout.flex_flow = "row wrap"
        super().__init__([*(self.by_name[name] for name in (*name_sliders, *sliders)), row])

    def _add(self, control: widgets.Widget, name: str, labels: dict[str, str], width: str) -> None:
        control.description = labels.get(name, name)
        control.style.description_width = "64px"
        control.layout.width, control.layout.max_width = width, "100%"
        control.observe(lambda change: self._moved(name, change["new"]), "value")
        self.by_name[name] = control

    def _moved(self, name: str, position: int) -> None:
        if not self._showing:
            options = self._options.get(name)
            self._on_user(name, options[position][1] if options else position)

    def show(
        self, values: dict[str, Any], counts: dict[str, int], options: dict[str, Options]
    ) -> None:
        """Set all controls; those with nothing to choose from are hidden.

        Parameters
        ----------
        values : dict
            Setting -> value; of a number slider, its position.
        counts : dict
            Number slider -> how many positions it has.
        options : dict
            Name slider or menu -> (label, value) pairs.
        """
        self._showing = True
        try:
            for name, count in counts.items():
                self._show_one(name, "max", count - 1, values[name], count)
            for name, pairs in options.items():
                self._options[name] = pairs
                labelled = tuple((label, place) for place, (label, _) in enumerate(pairs))
                place = next(p for p, (_, value) in enumerate(pairs) if value == values[name])
                self._show_one(name, "options", labelled, place, len(pairs))
        finally:
            self._showing = False

    def _show_one(self, name: str, trait: str, extent: Any, value: int, choices: int) -> None:
        control = self.by_name[name]
        control.layout.display = None if choices > 1 else "none"
        if choices <= 1:
            return
        if getattr(control, trait) != extent:  # the same options again would reset the value
            setattr(control, trait, extent)
        control.value = value


class Unfolding(widgets.VBox):
    """A button that shows a text below it, and hides it again.

    Parameters
    ----------
    what : str
        What is shown, in the button's words.
    make : callable
        Returns the text as HTML; called only while it is shown.
    """

    def __init__(self, what: str, make: Callable[[], str]) -> None:
        self._what, self._make = what, make
        self.button, self.text = widgets.ToggleButton(), widgets.HTML()
        self.button.observe(lambda change: self.update(), "value")
        super().__init__([self.button, self.text])

    def update(self) -> None:
        """Bring the text to what it is now."""
        shown = self.button.value
        self.button.description = f"{'hide' if shown else 'show'} {self._what}"
        self.text.layout.display = None if shown else "none"
        if shown:
            self.text.value = self._make()


def close_tree(widget: widgets.Widget) -> None:
    """Close a widget with its children, layouts and styles: a VBox's close() leaves them."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    for part in ("layout", "style"):
        if hasattr(widget, part):
            getattr(widget, part).close()
    widget.close()
