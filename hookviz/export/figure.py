"""A frame as a matplotlib figure, with axes and colourbars, and as one small picture.

The small picture is composed of pixels, for notebooks without a kernel; pyplot is not involved.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, ImageDraw, ImageFont

from ..draw.colours import COLOURS, colormap, palette, to_levels
from ..draw.figures import ShownFigure, drawable, no_formula
from ..files import check_folder, write_whole
from ..tables import number
from ..view.frame import Box, ChannelGrid, Frame, ImagePanel, Panel

TITLE = 40
"""Characters in a line of a title."""

NUMBERED = 16
"""The most columns of a mosaic whose tiles have room for their numbers."""

BOX, CHOSEN = "#ffd400", "#ff8c00"
NAMED = 5
"""The boxes that have their names written at them."""

SUFFIXES = (".png", ".svg", ".pdf")


WIDE, GRID = 13.0, 3.0
"""The width of the quick figure and the height of its channels, in inches."""

QUICK_DPI = 90
"""At this resolution the quick figure is about as wide as a notebook's output."""


def draw_panels(frame: Frame) -> Figure:
    """Draw what `draw_figure` does, as wide as a notebook and without a layout engine: quickly."""
    draw = _pictures(frame)
    tiles = _wide_tiles(frame.tiles)
    rows, columns = tiles.mosaic.levels.shape
    above, below = min(WIDE / len(draw), 4.2), min(WIDE * rows / columns, GRID)
    height = above + below + 0.65
    figure = ShownFigure(figsize=(WIDE, height), dpi=QUICK_DPI)
    # Room for the numbers of the colourbars, and above for titles of two lines.
    edges = {"left": 0.01, "right": 0.945, "wspace": 0.36}
    bottom, top = (below + 0.7) / height, 1 - 0.6 / height
    upper = figure.add_gridspec(1, len(draw), bottom=bottom, top=top, **edges)
    for column, draw_one in enumerate(draw):
        draw_one(figure.add_subplot(upper[0, column]))
    lower = figure.add_gridspec(1, 1, left=0.01, right=0.99, bottom=0.01, top=below / height)
    _draw_tiles(tiles, figure.add_subplot(lower[0, 0]))
    for axes in figure.axes:  # larger than in a figure that is printed
        axes.title.set_fontsize("medium")
        for part in (axes, *axes.child_axes):
            part.tick_params(labelsize="small")
    return figure


def _wide_tiles(tiles: ChannelGrid) -> ChannelGrid:
    """Return the same tiles in the rows that fill the width of the quick figure."""
    own, count = tiles.mosaic, len(tiles.channels)
    shape = (own.tile_height + 1) / (own.tile_width + 1)
    columns = min(count, max(own.columns, math.ceil(math.sqrt(count * shape * WIDE / GRID))))
    wide = own.rearranged(columns)
    return replace(tiles, mosaic=wide, box=wide.box(tiles.place))


def _pictures(frame: Frame) -> list[Callable[[Axes], None]]:
    draw: list[Callable[[Axes], None]] = [partial(draw_panel, panel) for panel in frame.panels]
    for output in frame.outputs:
        if isinstance(output, Panel):
            draw.insert(1, partial(draw_panel, output))
        else:
            draw.insert(1, partial(_draw_picture, output, output.caption))
    if frame.input is not None:
        draw.insert(0, partial(_draw_input, frame))
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
    check_folder(path)
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise ValueError(f"Cannot save as {suffix!r}: end the name in {', '.join(SUFFIXES)}.")
    content = io.BytesIO()
    how: dict[str, Any] = {"format": suffix[1:].lower(), **options}
    draw_figure(frame).savefig(content, **how)
    write_whole(path, content.getvalue())


def _draw_input(frame: Frame, axes: Axes) -> None:
    """Draw the input, with the best boxes and their keypoints over it."""
    assert frame.input is not None
    _draw_picture(frame.input, "input", axes)
    height, width = frame.input.pixels.shape[:2]
    for index, box in enumerate(frame.boxes):
        left, top, right, bottom = box.corners
        chosen = str(box.at) == frame.target
        colour = CHOSEN if chosen else BOX
        corner = left * width - 0.5, top * height - 0.5
        size = (right - left) * width, (bottom - top) * height
        axes.add_patch(Rectangle(corner, *size, fill=False, ec=colour, lw=2 if chosen else 1))
        if index < NAMED or chosen:
            words = no_formula(f"{box.label} {100 * box.score:.0f} %")
            ground = {"fc": colour, "lw": 0, "pad": 0.6}
            axes.text(*corner, words, fontsize="xx-small", va="top", bbox=ground, clip_on=True)
            marks = [(x * width - 0.5, y * height - 0.5) for x, y in box.points]
            if marks:
                axes.plot(*zip(*marks, strict=True), ".", color="#00e5ff", ms=4)
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)


def _draw_picture(sheet: ImagePanel, title: str, axes: Axes) -> None:
    axes.imshow(sheet.pixels)
    _outline(sheet.box, sheet.pixels.shape[:2], axes)
    _set_title(axes, title)
    axes.set_axis_off()


def _set_title(axes: Axes, title: str) -> None:
    """Write a title in lines about as long as the picture is wide."""
    axes.set_title("\n".join(wrap(no_formula(title), TITLE)), fontsize="small")


MOST_TOKENS = 40
"""Tokens whose words are written beside a matrix."""


def draw_panel(panel: Panel, axes: Axes) -> None:
    """Draw a map with its colourbar, or a 1d map as a curve."""
    _set_title(axes, panel.caption)
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
    height, width = panel.values.shape
    flat = width > 4 * height  # a short side has room for few ticks
    axes.locator_params("x", nbins=1 if height > 4 * width else 5, integer=True)
    axes.locator_params("y", nbins=1 if flat else 5, integer=True)
    for axis, words in zip((axes.yaxis, axes.xaxis), panel.tokens, strict=True):
        if 0 < len(words) <= MOST_TOKENS:
            axis.set_ticks(range(len(words)), [no_formula(each) for each in words])
    if panel.tokens[1]:
        axes.tick_params(axis="x", rotation=90)
    _outline(panel.box, panel.values.shape, axes)
    # An inset is as high as the drawn map; a bar of its own would be as high as the grid's cell.
    bar = axes.figure.colorbar(shown, cax=axes.inset_axes((1.04, 0, 0.05, 1)))
    if flat:
        ends = panel.low, panel.high
        bar.set_ticks(ends, labels=[number(end) for end in ends])
    bar.ax.tick_params(labelsize="x-small")


def _draw_tiles(tiles: ChannelGrid, axes: Axes) -> None:
    levels = tiles.mosaic.levels
    axes.imshow(palette(tiles.cmap)[levels], interpolation="nearest")
    _outline(tiles.box, levels.shape, axes)
    if tiles.mosaic.columns <= NUMBERED:
        height, width = levels.shape
        for index, channel in enumerate(tiles.channels):
            left, top, wide, high = tiles.mosaic.box(index)
            corner = (left + wide) * width - 0.5, (top + high) * height - 0.5
            ground = {"fc": "white", "alpha": 0.75, "lw": 0, "pad": 0.6}
            axes.text(
                *corner, str(channel), fontsize="xx-small", ha="right", va="bottom", bbox=ground
            )
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


COLUMN, SIDE, BAR = 264, 190, 10
"""Pixels: the width of a column, the longest side of a picture in it, the width of a colourbar."""

TOP, LINE, GAP, LEFT = 30, 14, 8, 8
TILES = 430
"""Maximum height of the mosaic."""

INK, FRAME = (0, 0, 0), (255, 140, 0)


def still_png(frame: Frame) -> bytes:
    """Compose the input, the panels, the heatmap and, below, the mosaic with one tile outlined."""
    columns = [_picture(frame.input, "input")] if frame.input is not None else []
    if frame.input is not None and frame.boxes:
        _frame_boxes(columns[0], frame)
    columns += [_panel(panel) for panel in frame.panels]
    for output in frame.outputs:
        made = _panel(output) if isinstance(output, Panel) else _picture(output, output.caption)
        columns.insert(1 + (frame.input is not None), made)
    if frame.overlay is not None:
        columns.append(_picture(frame.overlay, frame.overlay.caption))
    width = COLUMN * len(columns)
    tiles = _tiles(frame.tiles, width - 2 * GAP)
    row = max(column.height for column in columns)
    whole = Image.new("RGB", (width, TOP + row + GAP + tiles.height + GAP), "white")
    _write(whole, frame.title, (width // 2, 8), width - 2 * GAP, 13)
    for index, column in enumerate(columns):
        whole.paste(column, (index * COLUMN, TOP))
    whole.paste(tiles, ((width - tiles.width) // 2, TOP + row + GAP))
    buffer = io.BytesIO()
    # Few colours: notebooks that hold it stay small.
    few = whole.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


def _frame_boxes(column: Image.Image, frame: Frame) -> None:
    assert frame.input is not None
    height, width = frame.input.pixels.shape[:2]
    wide, high = _size((width, height))
    left, top = LEFT + (SIDE - wide) // 2, 3 * LINE
    draw = ImageDraw.Draw(column)
    for box in reversed(frame.boxes):
        shares = [min(max(share, 0.0), 1.0) for share in box.corners]
        ends = [
            round(start + share * size)
            for share, start, size in zip(
                shares, (left, top) * 2, (wide - 1, high - 1) * 2, strict=True
            )
        ]
        if ends[2] >= ends[0] and ends[3] >= ends[1]:
            draw.rectangle(ends, outline=CHOSEN if str(box.at) == frame.target else BOX)


def _picture(sheet: ImagePanel, title: str) -> Image.Image:
    return _column(Image.fromarray(sheet.pixels), title, sheet.box)


def _panel(panel: Panel) -> Image.Image:
    """Draw a map with its colourbar, or a 1d map as a curve."""
    if len(panel.values) == 1:
        return _column(_curve(panel.values[0]), panel.caption, None)
    levels = to_levels(panel.values, panel.low, panel.high)
    colours = palette(panel.cmap)[:, :3]
    column = _column(Image.fromarray(colours[levels]), panel.caption, panel.box)
    shown = _size(levels.shape[::-1])
    left, top = LEFT + SIDE + 6, column.height - SIDE
    bar = colours[np.arange(COLOURS)[::-1]][:, None]
    column.paste(Image.fromarray(bar).resize((BAR, shown[1])), (left, top))
    for value, at in ((panel.high, top), (panel.low, top + shown[1] - LINE + 2)):
        _write(column, number(value), (left + BAR + 3, at), COLUMN - left - BAR - 4, 9, "la")
    return column


def _column(picture: Image.Image, title: str, box: Box | None) -> Image.Image:
    """Draw a picture below its title, scaled to fit, with an outlined part."""
    width = SIDE + 2 * LEFT  # as far as it may reach to the left
    lines = _wrapped(title, width, 10)[:3]
    column = Image.new("RGB", (COLUMN, 3 * LINE + SIDE), "white")
    for index, line in enumerate(lines):
        _write(column, line, (LEFT + SIDE // 2, (index + 3 - len(lines)) * LINE), width, 10)
    size = _size(picture.size)
    smaller = size[0] < picture.width
    how = Image.Resampling.BOX if smaller else Image.Resampling.NEAREST
    left, top = LEFT + (SIDE - size[0]) // 2, 3 * LINE
    column.paste(picture.convert("RGB").resize(size, how), (left, top))
    _frame_box(column, box, (left, top, *size))
    return column


def _tiles(tiles: ChannelGrid, width: int) -> Image.Image:
    levels = tiles.mosaic.levels
    scale = min(width / levels.shape[1], TILES / levels.shape[0])
    size = max(1, round(levels.shape[1] * scale)), max(1, round(levels.shape[0] * scale))
    colours = palette(tiles.cmap)[:, :3].copy()
    colours[-1] = 255  # the gaps
    how = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
    picture = Image.fromarray(colours[levels]).resize(size, how)
    whole = Image.new("RGB", (width, LINE + 4 + size[1]), "white")
    left = (width - size[0]) // 2
    whole.paste(picture, (left, LINE + 4))
    _write(whole, tiles.caption, (width // 2, 0), width, 10)
    _frame_box(whole, tiles.box, (left, LINE + 4, *size))
    return whole


def _curve(values: np.ndarray) -> Image.Image:
    """Draw the finite values of a signal, and a line at zero."""
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(picture)
    finite = np.isfinite(values)
    if not finite.any():
        return picture
    low, high = min(0.0, float(values[finite].min())), max(0.0, float(values[finite].max()))
    span = (high - low) or 1.0
    down = (SIDE - 3) * (1 - (np.where(finite, values, low) - low) / span) + 1
    along = np.linspace(1, SIDE - 2, len(values))
    zero = (SIDE - 3) * (1 + low / span) + 1
    draw.line((0, zero, SIDE, zero), "gray")
    draw.line([*zip(along.tolist(), down.tolist(), strict=True)], (31, 119, 180))
    _write(picture, number(high), (1, 0), SIDE, 9, "la")
    _write(picture, number(low), (1, SIDE - LINE), SIDE, 9, "la")
    return picture


def _size(size: tuple[int, int]) -> tuple[int, int]:
    """Return width and height with the longer side `SIDE`."""
    scale = SIDE / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _frame_box(image: Image.Image, box: Box | None, area: tuple[int, int, int, int]) -> None:
    """Outline a part of an area of the image, given as fractions of the area."""
    if box is None:
        return
    (left, top, wide, high), (x, y, width, height) = box, area
    corners = (x + left * width, y + top * height)
    ends = (corners[0] + wide * width - 1, corners[1] + high * height - 1)
    ImageDraw.Draw(image).rectangle((*map(round, corners), *map(round, ends)), None, FRAME, 2)


@lru_cache(maxsize=8)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return the font that matplotlib ships, which has all the characters used here."""
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size)


def _write(
    image: Image.Image, text: str, at: tuple[int, int], width: int, size: int, anchor: str = "ma"
) -> None:
    """Write one line of text; the middle of a long one is left out."""
    font, text = _font(size), drawable(text)
    while font.getlength(text) > width and len(text) > 8:
        half = (len(text) - 2) // 2
        text = f"{text[:half]}…{text[-half + 1 :]}"
    ImageDraw.Draw(image).text(at, text, INK, font, anchor)


def _wrapped(text: str, width: int, size: int) -> list[str]:
    """Break a text between words into lines that fit."""
    lines: list[str] = []
    for word in drawable(text).split():
        if lines and _font(size).getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
