"""Two explorers beside each other, under the same settings: the one way to pair two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from ..hooking.select import Layers
from ..run.session import Session
from ..run.target import Target
from ..view.runs import runner
from ..view.settings import SETTINGS
from .gallery import Given, sample_of
from .lifecycle import close_tree
from .linked import Link


def compared_with(
    make: Any, first: Session, second: Session, given: Given, layers: Layers, target: Target
) -> Any:
    """Return an explorer of the second run, which also shows the first, and their difference.

    Only common layers, with maps of the same size, are in it.
    """
    return make(second, given, runner(layers), target=target, beside=first)


def side_by_side(left: widgets.Widget, right: widgets.Widget) -> widgets.Box:
    """Return a box with two columns of the same width."""
    columns = "repeat(2, minmax(0, 1fr))"
    layout = widgets.Layout(display="grid", grid_template_columns=columns, grid_gap="0 20px")
    return widgets.Box([left, right], layout=layout)


OWN = ("sample", "shown_run")
"""The settings that another picture has of its own: it is one sample, and may be the difference."""


class PictureBeside:
    """Another picture of an explorer's gallery, beside its own."""

    def __init__(self, explorer: Any) -> None:
        self._explorer = explorer
        self._right: Any = None
        self._box: widgets.Box | None = None
        self._which = -1, -1

    def toggle(self, key: int, sample: int) -> None:
        """Show a picture of the gallery; end it if it is shown already."""
        explorer, shown = self._explorer, self._right is not None and self._which == (key, sample)
        canvas = explorer.children[0] if self._box is None else self._box.children[0]
        self.end()
        if shown:
            return
        image = sample_of(explorer.gallery.given(key), sample)
        view, given = explorer.displayed(), Given(image)
        layers, target = list(view.cache), view.settings.target
        first, second = view.session, explorer.session_for(image)
        self._right = compared_with(type(explorer), first, second, given, layers, target)
        self._right.shown_run = "edited"
        self._which = key, sample
        shared: Sequence[str] = [name for name in SETTINGS if name not in OWN]
        Link(explorer, self._right, shared)
        self._box = side_by_side(canvas, self._right)
        explorer.set_trait("children", (self._box, *explorer.children[1:]))

    def end(self) -> None:
        """Take the other picture away."""
        right, box = self._right, self._box
        self._right = self._box = None
        if right is None:
            return
        if box is not None and box in self._explorer.children:
            canvas, _ = box.children
            self._explorer.set_trait("children", (canvas, *self._explorer.children[1:]))
            box.close()
        right.close()
        close_tree(right)
