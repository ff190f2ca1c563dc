"""One figure for many frames: where a slider moves, only the parts that change are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from ..draw.html import Box
from ..view.frame import Frame, ImagePanel, Panel
from .figure import draw_figure, fill, is_curve, measure, outline, shown_pictures, wide_tiles


class KeptFigure:
    """Draws frames with the pixels of `draw_figure`, most of them in a tenth of its time.

    Another channel changes the values of some pictures, and neither their sizes nor their ticks,
    which take most of the time. So what stays is drawn once, without the artists that move; these
    are drawn over a copy of it, which matplotlib calls blitting. The chosen channel is not outlined
    in the grid: see `box`.
    """

    def __init__(self) -> None:
        self._layout: tuple[Any, ...] = ()
        self._pictures: list[Panel | ImagePanel] = []
        self._background: Any = None

    def draw(self, frame: Frame) -> list[Image.Image]:
        """Return the pictures of a frame and the grid of its channels, RGB."""
        self._pictures, layout = shown_pictures(frame), _layout(frame)
        if layout != self._layout:
            figure = draw_figure(frame, captions=False)
            outline(None, (), figure.axes[-1])
            self._canvas = FigureCanvasAgg(figure)
            self._layout, self._background = layout, None
            self._mosaic = wide_tiles(frame).mosaic
        moving: list[Artist] = []
        for picture, axes in zip(self._pictures, self._canvas.figure.axes, strict=False):
            fill(picture, axes)
            moving += _artists(picture, axes)
        if self._background is None:
            for artist in moving:
                artist.set_animated(True)
            self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self._canvas.figure.bbox)
        self._canvas.restore_region(self._background)
        renderer = self._canvas.get_renderer()
        for artist in moving:
            artist.draw(renderer)
        whole = Image.fromarray(np.asarray(self._canvas.buffer_rgba())).convert("RGB")
        return measure(self._pictures).cut(whole)

    def box(self, frame: Frame) -> Box:
        """Return the place of the chosen channel in the grid of the frame drawn last."""
        left, top, width, height = self._mosaic.box(frame.tiles.place)
        axes, figure = self._canvas.figure.axes[-1].get_position(), self._canvas.figure
        # The grid is cut off below everything else.
        part = 1 - measure(self._pictures).upper / figure.get_figheight()
        return (
            axes.x0 + left * axes.width,
            1 - (axes.y1 - top * axes.height) / part,
            width * axes.width,
            height * axes.height / part,
        )


def _artists(picture: Panel | ImagePanel, axes: Axes) -> Iterator[Artist]:
    """Yield the artists that `fill` changes, and those above them, in drawing order."""
    if isinstance(picture, Panel) and is_curve(picture):
        yield axes  # its ticks follow its values
        return
    found = [*axes.images, *axes.patches, *axes.lines, *axes.texts]
    if axes.axison:
        found += axes.spines.values()
    yield from sorted(found, key=lambda artist: artist.get_zorder())
    yield from (bar.yaxis for bar in axes.child_axes)


def _layout(frame: Frame) -> tuple[Any, ...]:
    """Return everything that a figure must be built again for."""
    pictures, tiles = shown_pictures(frame), frame.tiles
    sizes = [
        (each.values.shape, each.cmap) if isinstance(each, Panel) else each.pixels.shape
        for each in pictures
    ]
    return sizes, tiles.mosaic, tiles.cmap
