"""A frame as a matplotlib figure, with axes and colourbars; pyplot is not involved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..draw.colours import colormap, palette
from ..draw.shown import ShownFigure, no_formula
from ..view.frame import Box, ChannelGrid, Frame, ImagePanel, Panel

SUFFIXES = (".png", ".svg", ".pdf")


def draw_panels(frame: Frame) -> Figure:
    """Draw the input, the panels and the heatmap in a row: small, and quick to draw."""
    draw = _pictures(frame)
    figure = ShownFigure(figsize=(3 * len(draw), 3.1), dpi=80)
    figure.subplots_adjust(left=0.01, right=0.96, bottom=0.06, top=0.84, wspace=0.18)
    for draw_one, axes in zip(draw, figure.subplots(1, len(draw), squeeze=False)[0], strict=True):
        draw_one(axes)
        axes.title.set_wrap(True)
    return figure


def _pictures(frame: Frame) -> list[Callable[[Axes], None]]:
    draw: list[Callable[[Axes], None]] = [partial(draw_panel, panel) for panel in frame.panels]
    if frame.input is not None:
        draw.insert(0, partial(_draw_picture, frame.input, "input"))
    if frame.overlay is not None:
        draw.append(partial(_draw_picture, frame.overlay, frame.overlay.caption))
    return draw


def draw_figure(frame: Frame) -> Figure:
    """Draw the input, the panels, the heatmap and, below, the mosaic with one tile outlined."""
    draw = _pictures(frame)
    columns = len(draw)
    height, width = frame.tiles.mosaic.levels.shape
    below = min(3.4 * columns * height / width, 6.0)
    figure = ShownFigure(figsize=(3.4 * columns, 3.2 + below), layout="constrained")
    figure.suptitle(no_formula(frame.title), fontsize="medium")
    grid = figure.add_gridspec(2, columns, height_ratios=[2.8, below])
    for column, draw_one in enumerate(draw):
        draw_one(figure.add_subplot(grid[0, column]))
    _draw_tiles(frame.tiles, figure.add_subplot(grid[1, :]))
    return figure


def save_figure(frame: Frame, path: str | Path, **options: Any) -> None:
    """Write `draw_figure` to a file; raise ``ValueError`` for an unknown suffix."""
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise ValueError(f"Cannot save as {suffix!r}: end the name in {', '.join(SUFFIXES)}.")
    draw_figure(frame).savefig(path, **options)


def _draw_picture(sheet: ImagePanel, title: str, axes: Axes) -> None:
    axes.imshow(sheet.pixels)
    _outline(sheet.box, sheet.pixels.shape[:2], axes)
    axes.set_title(no_formula(title), fontsize="small")
    axes.set_axis_off()


def draw_panel(panel: Panel, axes: Axes) -> None:
    """Draw a map with its colourbar, or a 1d map as a curve."""
    axes.set_title(no_formula(panel.caption), fontsize="small")
    axes.tick_params(labelsize="x-small")
    if len(panel.values) == 1:
        axes.plot(panel.values[0], lw=1)
        axes.axhline(0, color="gray", lw=0.5)
        return
    # Values beyond the range get its last colour; only infinite ones get the special colours.
    finite = np.isfinite(panel.values)
    values = np.where(finite, np.clip(panel.values, panel.low, panel.high), panel.values)
    shown = axes.imshow(
        values, colormap(panel.cmap), Normalize(panel.low, panel.high), interpolation="nearest"
    )
    axes.locator_params(integer=True)  # rows and columns
    _outline(panel.box, panel.values.shape, axes)
    bar = axes.figure.colorbar(shown, ax=axes, shrink=0.85)
    bar.ax.tick_params(labelsize="x-small")


def _draw_tiles(tiles: ChannelGrid, axes: Axes) -> None:
    levels = tiles.mosaic.levels
    axes.imshow(palette(tiles.cmap)[levels], interpolation="nearest")
    _outline(tiles.box, levels.shape, axes)
    axes.set_title(tiles.caption, fontsize="small")
    axes.set_axis_off()


def _outline(box: Box | None, size: tuple[int, ...], axes: Axes) -> None:
    """Outline a part of a picture, given as fractions of its size."""
    if box is not None:
        (left, top, wide, high), (height, width) = box, size
        corner = (left * width - 0.5, top * height - 0.5)
        axes.add_patch(
            Rectangle(corner, wide * width, high * height, fill=False, ec="#ff8c00", lw=2)
        )
