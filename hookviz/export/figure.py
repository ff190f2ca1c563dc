"""A frame as a matplotlib figure, with axes and colourbars, and as one small picture.

The small picture is composed of pixels, ten times as fast, for notebooks without a kernel; pyplot
is not involved.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image, ImageDraw, ImageFont

from ..draw.colours import COLOURS, colormap, palette, strip_height, to_levels
from ..draw.figures import ShownFigure, drawable, no_formula, quick_png
from ..files import check_folder, file_path, write_whole
from ..tables import number
from ..view.frame import Box, ChannelGrid, Frame, ImagePanel, Panel

TITLE = 36
"""Characters in a line of a title."""

NUMBERED = 5, 16
"""The most rows and columns of a mosaic whose tiles have room for their numbers."""

CHOSEN = "#ff8c00"
OUTLINE = "outline"
SUFFIXES = (".png", ".svg", ".pdf")

DPI = 90
SQUARE, GRID, LINES = 2.4, 3.0, 0.2
"""In inches: the side of a picture, the heights of the channels and of a line of a title."""

MARGIN, TICKS, BARS = 0.15, 0.4, 0.8
"""In inches beside a picture: nothing, numbers at ticks, and a colourbar."""


def shown_pictures(frame: Frame) -> list[Panel | ImagePanel]:
    """Return the input, the map, the gradient and the heatmap, if any."""
    given = frame.input and replace(frame.input, name="input", detail="", note="")
    found = [given, *frame.panels, frame.overlay]
    return [each for each in found if each is not None]


class Measures(NamedTuple):
    """The arrangement of a figure, in inches: columns of one picture each, above the channels."""

    lefts: list[float]  # from a column's edge to its picture
    widths: list[float]
    head: float  # the captions, or a little room for numbers
    upper: float  # everything above the channels

    @property
    def width(self) -> float:
        """The width of the figure."""
        return sum(self.widths)

    def cut(self, drawn: Image.Image) -> list[Image.Image]:
        """Cut a drawn figure into its columns and the channels."""
        upper, ends = round(DPI * self.upper), [round(DPI * x) for x in accumulate(self.widths)]
        columns = [(left, 0, right, upper) for left, right in pairwise([0, *ends])]
        return [drawn.crop(box) for box in (*columns, (0, upper, drawn.width, drawn.height))]


def measure(pictures: Sequence[Panel | ImagePanel], captions: bool = False) -> Measures:
    """Return the sizes of a figure of these pictures, with or without room for captions."""
    lefts = [TICKS if isinstance(each, Panel) else MARGIN for each in pictures]
    rights = [BARS if isinstance(each, Panel) else MARGIN for each in pictures]
    widths = [left + SQUARE + right for left, right in zip(lefts, rights, strict=True)]
    lines = max(_lines(each.caption).count("\n") for each in pictures) + 1
    head = LINES * (lines + 2 if captions else 1)
    return Measures(lefts, widths, head, head + SQUARE + TICKS)


def draw_figure(frame: Frame, captions: bool = True) -> Figure:
    """Draw the pictures and, below, the mosaic with one tile outlined; without a layout engine.

    A layout engine takes as long again as all else.

    Parameters
    ----------
    captions : bool
        False leaves out all words but the numbers, for a page that has them beside the pictures.
    """
    pictures = shown_pictures(frame)
    sizes, tiles = measure(pictures, captions), wide_tiles(frame)
    rows, columns = tiles.mosaic.levels.shape
    # In whole pixels, so that `Measures.cut` cuts between them.
    below = round(DPI * min(sizes.width * rows / columns, GRID)) / DPI
    width, height = sizes.width, sizes.upper + LINES * captions + below
    figure = ShownFigure(figsize=(width, height), dpi=DPI)
    starts = accumulate(sizes.widths, initial=0)
    bottom = 1 - (sizes.head + SQUARE) / height
    for column, (picture, start) in enumerate(zip(pictures, starts, strict=False)):
        left = (start + sizes.lefts[column]) / width
        axes = figure.add_axes((left, bottom, SQUARE / width, SQUARE / height))
        if captions:
            set_caption(picture.caption, axes)
        if isinstance(picture, Panel):
            draw_panel(picture, axes)
            continue
        axes.imshow(picture.pixels)
        axes.set_axis_off()
        fill(picture, axes)
    grid = figure.add_axes((0.01, 0.01, 0.98, below / height - 0.01))
    _draw_tiles(tiles, grid)
    if captions:
        set_caption(tiles.caption, grid, len(tiles.caption))
        figure.suptitle(no_formula(frame.title), fontsize="medium", y=1 - LINES / 4 / height)
    return figure


def wide_tiles(frame: Frame) -> ChannelGrid:
    """Return the frame's tiles in the rows that fill a grid below its pictures."""
    tiles, ratio = frame.tiles, measure(shown_pictures(frame)).width / GRID
    own, count = tiles.mosaic, len(tiles.channels)
    shape = (own.tile_height + 1) / (own.tile_width + 1)
    columns = min(count, max(own.columns, math.ceil(math.sqrt(count * shape * ratio))))
    wide = replace(own, columns=columns)
    return replace(tiles, mosaic=wide, box=wide.box(tiles.place))


def save_figure(figure: Figure, path: str | Path, **options: Any) -> None:
    """Write a figure to a file; raise ``ValueError`` for an unknown suffix."""
    check_folder(path)
    write_whole(path, figure_content(figure, file_path(path).suffix, **options))


def figure_content(figure: Figure, suffix: str, **options: Any) -> bytes:
    """Return the content of the file that `save_figure` writes."""
    if suffix.lower() not in SUFFIXES:
        raise ValueError(f"Cannot save as {suffix!r}: end the name in {', '.join(SUFFIXES)}.")
    content = io.BytesIO()
    how: dict[str, Any] = {"format": suffix[1:].lower(), **options}
    figure.savefig(content, **how)
    return content.getvalue()


def set_caption(caption: str, axes: Axes, letters: int = TITLE) -> None:
    """Write a caption above axes, in lines of at most ``letters`` characters."""
    # Without y=1, matplotlib would measure the ticks to keep the title clear of them.
    axes.set_title(_lines(caption, letters), fontsize="small", y=1)


def _lines(caption: str, letters: int = TITLE) -> str:
    return "\n".join(wrap(no_formula(caption), letters))


def draw_panel(panel: Panel, axes: Axes) -> None:
    """Draw a map with its colourbar, or a 1d map as a curve."""
    axes.tick_params(labelsize="x-small")
    if is_curve(panel):
        axes.plot(panel.values[0], lw=1)
        axes.axhline(0, color="gray", lw=0.5)
        # A power of ten stands above the other numbers, beside the caption and not under it.
        axes.yaxis.get_offset_text().set(x=0, ha="right", fontsize="x-small")
        return
    norm = Normalize(panel.low, panel.high)
    shown = axes.imshow(panel.values, colormap(panel.cmap), norm, interpolation="nearest")
    height, width = panel.values.shape
    axes.locator_params("x", nbins=1 if height > 4 * width else 5, integer=True)
    axes.locator_params("y", nbins=1 if _is_flat(panel) else 5, integer=True)
    # An inset is as high as the drawn map; a bar of its own would be as high as the grid's cell.
    place = axes.inset_axes((1.04, 0, 0.05, 1))
    bar = axes.figure.colorbar(shown, cax=place, ticks=MaxNLocator(5))
    bar.ax.tick_params(labelsize="x-small")
    fill(panel, axes)


def fill(picture: Panel | ImagePanel, axes: Axes) -> None:
    """Put a picture into axes that have one of the same kind, size and colours."""
    if isinstance(picture, Panel) and is_curve(picture):
        axes.clear()
        draw_panel(picture, axes)
        return
    (image,) = axes.images
    if isinstance(picture, ImagePanel):
        image.set_data(picture.pixels)
    else:
        image.set_data(_within_range(picture))
        image.set_clim(picture.low, picture.high)
        if image.colorbar is not None:
            if _is_flat(picture):
                ends = picture.low, picture.high
                image.colorbar.set_ticks(ends, labels=[number(end) for end in ends])
            # A colourbar with new ends puts it back, where it would reach into the caption.
            image.colorbar.ax.yaxis.get_offset_text().set(x=1, ha="left", fontsize="x-small")
    outline(picture.box, image.get_size(), axes)


def is_curve(panel: Panel) -> bool:
    """Return whether a panel is a 1d map."""
    return len(panel.values) == 1


def _is_flat(panel: Panel) -> bool:
    """Return whether the short side of a map has room for few ticks."""
    height, width = panel.values.shape
    return width > 4 * height


def _within_range(panel: Panel) -> np.ndarray:
    """Clip finite values to the colour range: only infinite ones get the special colours."""
    clipped = np.clip(panel.values, panel.low, panel.high)
    return np.where(np.isfinite(panel.values), clipped, panel.values)


def _draw_tiles(tiles: ChannelGrid, axes: Axes) -> None:
    levels = tiles.mosaic.levels
    axes.imshow(palette(tiles.cmap)[levels], interpolation="nearest")
    outline(tiles.box, levels.shape, axes)
    columns = tiles.mosaic.columns
    if columns <= NUMBERED[1] and len(tiles.channels) <= NUMBERED[0] * columns:
        height, width = levels.shape
        for index, channel in enumerate(tiles.channels):
            left, top, wide, high = tiles.mosaic.box(index)
            corner = (left + wide) * width - 0.5, (top + high) * height - 0.5
            ground = {"fc": "white", "alpha": 0.75, "lw": 0, "pad": 0.6}
            axes.text(
                *corner, str(channel), fontsize="x-small", ha="right", va="bottom", bbox=ground
            )
    axes.set_axis_off()


def outline(box: Box | None, size: Sequence[int], axes: Axes) -> None:
    """Outline this part only of a picture, given as fractions of its size."""
    for patch in [*axes.patches]:
        if patch.get_label() == OUTLINE:
            patch.remove()
    if box is not None:
        (left, top, wide, high), (height, width) = box, size
        corner = (left * width - 0.5, top * height - 0.5)
        # Above the numbers of tiles, which are drawn before it.
        look: dict[str, Any] = {"fill": False, "ec": CHOSEN, "lw": 2, "zorder": 4}
        axes.add_patch(Rectangle(corner, wide * width, high * height, label=OUTLINE, **look))


# The small picture

COLUMN, SIDE, BAR = 264, 190, 10
"""Pixels: the width of a column, the longest side of a picture in it, the width of a colourbar."""

LINE, GAP = 14, 8
TILES = 430
"""Maximum height of the mosaic."""


def still_png(frame: Frame) -> bytes:
    """Compose the pictures and, below, the mosaic with one tile outlined."""
    columns = [_column(picture) for picture in shown_pictures(frame)]
    width = COLUMN * len(columns)
    levels, colours = frame.tiles.mosaic.levels, _colours(frame.tiles.cmap)
    colours[-1] = 255  # the gaps
    grid = _fit(Image.fromarray(colours[levels]), width - 2 * GAP, TILES, frame.tiles.box)
    top = 3 * LINE + columns[0].height
    whole = Image.new("RGB", (width, top + LINE + grid.height + GAP), "white")
    _write(whole, frame.title, (width // 2, 8), width, 13)
    for index, column in enumerate(columns):
        whole.paste(column, (index * COLUMN, 2 * LINE))
    _write(whole, frame.tiles.caption, (width // 2, top - LINE // 2), width, 10)
    whole.paste(grid, ((width - grid.width) // 2, top + LINE // 2))
    return quick_png(whole, compress_level=4)  # notebooks that hold it stay small


def _column(picture: Panel | ImagePanel) -> Image.Image:
    """Draw a picture below its title, and a map with its colourbar."""
    column = Image.new("RGB", (COLUMN, 3 * LINE + SIDE), "white")
    lines = wrap(picture.caption, TITLE, max_lines=3, placeholder=" …")
    for index, line in enumerate(lines):
        at = SIDE // 2 + GAP, (index + 3 - len(lines)) * LINE
        _write(column, line, at, SIDE + 2 * GAP, 10)
    if isinstance(picture, ImagePanel):
        drawn = _fit(Image.fromarray(picture.pixels), SIDE, SIDE, picture.box)
    else:
        colours = _colours(picture.cmap)
        levels = to_levels(picture.values, picture.low, picture.high)
        drawn = Image.fromarray(colours[levels])
        if drawn.height == 1:  # not as high as a long signal is wide
            wide = min(drawn.width, SIDE)
            drawn = drawn.resize((wide, 1), Image.Resampling.BOX)
            drawn = drawn.resize((wide, strip_height(wide)), Image.Resampling.NEAREST)
        drawn = _fit(drawn, SIDE, SIDE, picture.box)
        bar, right = Image.fromarray(colours[np.arange(COLOURS)[::-1]][:, None]), SIDE + 2 * GAP
        column.paste(bar.resize((BAR, drawn.height)), (right, 3 * LINE))
        for value, down in ((picture.high, 0), (picture.low, drawn.height - LINE + 2)):
            at = right + BAR + 3, 3 * LINE + down
            _write(column, number(value), at, COLUMN - right - BAR - 4, 9, "la")
    column.paste(drawn, (GAP + (SIDE - drawn.width) // 2, 3 * LINE))
    return column


def _colours(cmap: str) -> np.ndarray:
    return palette(cmap)[:, :3].copy()


def _fit(picture: Image.Image, width: int, height: int, box: Box | None) -> Image.Image:
    """Scale a picture to fit, with a part outlined that is given as fractions of its size."""
    scale = min(width / picture.width, height / picture.height)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    how = Image.Resampling.BOX if scale < 1 else Image.Resampling.NEAREST
    fitted = picture.convert("RGB").resize(size, how)
    if box is not None:
        left, top, wide, high = (share * side for share, side in zip(box, size * 2, strict=True))
        # A cell of a long map may be narrower than a pixel.
        corners = (left, top, left + max(wide - 1, 0), top + max(high - 1, 0))
        ImageDraw.Draw(fitted).rectangle([*map(round, corners)], None, CHOSEN, 2)
    return fitted


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
    ImageDraw.Draw(image).text(at, text, "black", font, anchor)
