"""The matplotlib picture of the plain face, in parts."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
from PIL import Image

from ..draw import html
from ..draw.figures import quick_png
from ..export.figure import DPI, measure, shown_pictures
from ..export.kept import KeptFigure
from ..view.frame import Frame
from .lifecycle import visible


class Pictures(widgets.VBox):
    """A frame's figure: a part for each picture, and one for the grid of channels.

    A narrow window wraps the parts, and only those that have changed are encoded and sent.
    """

    def __init__(self) -> None:
        self._figure = KeptFigure()
        self._shown: dict[widgets.HTML, tuple[Any, ...]] = {}
        self._columns = widgets.Box()
        self._caption, self._grid, self._outline = (widgets.HTML() for _ in range(3))
        self._tiles = widgets.Box([self._grid, self._outline])
        self._tiles.layout.max_width = "100%"
        self._columns.add_class("hookviz-pictures")
        self._tiles.add_class("hookviz-tiles")
        super().__init__([self._columns, self._caption, self._tiles])

    def show(self, frame: Frame) -> None:
        """Draw a frame, and update the parts that differ."""
        pictures = shown_pictures(frame)
        *drawn, grid = self._figure.draw(frame)
        missing = len(drawn) - len(self._columns.children)
        if missing > 0:
            more = [widgets.HTML() for _ in range(missing)]
            self._columns.children = (*self._columns.children, *more)
        for part in self._columns.children[len(drawn) :]:
            visible(part, False)
        columns = zip(
            self._columns.children, pictures, drawn, measure(pictures).lefts, strict=False
        )
        for part, own, picture, left in columns:
            # The map's description tells which view this is.
            alt = frame.description if own is frame.panels[0] else own.alt
            self._update(part, picture, alt, own.caption, DPI * left / picture.width)
            # It shrinks a little before a line wraps, and grows to its own size.
            part.layout.flex = f"{picture.width} 1 {round(0.8 * picture.width)}px"
            part.layout.max_width = f"{picture.width}px"
            visible(part, True)
        tiles = frame.tiles
        self._caption.value = html.plain(tiles.caption)
        self._update(self._grid, grid, tiles.alt)
        self._tiles.layout.width = f"{grid.width}px"
        self._outline.value = html.outline(self._figure.box(frame))

    def _update(self, part: widgets.HTML, picture: Image.Image, *words: Any) -> None:
        if self._shown.get(part) != (picture, *words):
            self._shown[part] = (picture, *words)
            part.value = html.image(quick_png(picture, compress_level=1), *words)
