"""Two explorers beside each other, under the same settings: the one way to pair two runs."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from ..view.runs import runner
from ..view.settings import SETTINGS
from .gallery import Given, sample_of
from .lifecycle import close_tree
from .linked import Link


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
        view = explorer.displayed()
        self._right = type(explorer)(
            explorer.session_for(image),
            Given(image),
            runner(list(view.cache)),
            target=view.settings.target,
            beside=view.session,
        )
        self._right.shown_run = "edited"
        self._which = key, sample
        Link(explorer, self._right, [name for name in SETTINGS if name not in OWN])
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
