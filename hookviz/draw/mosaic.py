"""All channels of a layer as tiles of one picture; parts of pictures in a row or on a sheet."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image, ImageDraw

from ..tables import escape
from .colours import COLOURS, GAP, averaged, strip_height, to_levels

_SIDE = 900  # approximate pixels of the longer side
_MOST = 1000  # limit of the longer side, for very many channels

PAGE = 128
"""Number of channels shown at once: so many tiles of 32 px fit a small screen."""


@dataclass(frozen=True, eq=False)
class Mosaic:
    """All channels in one picture: tiles one pixel apart, in rows."""

    tiles: np.ndarray  #: uint8 ``(C, h, w)``
    columns: int

    @cached_property
    def levels(self) -> np.ndarray:
        """The picture, uint8 ``(height, width)``."""
        count, columns = len(self.tiles), self.columns
        rows, tall, wide = math.ceil(count / columns), self.tile_height + 1, self.tile_width + 1
        sheet = np.full((rows * columns, tall, wide), GAP, np.uint8)
        sheet[:count, :-1, :-1] = self.tiles
        in_rows = sheet.reshape(rows, columns, tall, wide).swapaxes(1, 2)
        return np.ascontiguousarray(in_rows.reshape(rows * tall, columns * wide)[:-1, :-1])

    @property
    def tile_height(self) -> int:
        return self.tiles.shape[1]

    @property
    def tile_width(self) -> int:
        return self.tiles.shape[2]

    def box(self, position: int) -> tuple[float, float, float, float]:
        """Return left, top, width and height of a tile, as fractions of the whole picture.

        >>> mosaic(np.zeros((6, 2, 2)), np.zeros(6), np.ones(6)).box(0)[:2]
        (0.0, 0.0)
        """
        row, column = divmod(position, self.columns)
        height, width = self.levels.shape
        return (
            column * (self.tile_width + 1) / width,
            row * (self.tile_height + 1) / height,
            self.tile_width / width,
            self.tile_height / height,
        )


def mosaic(
    maps: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    silent: np.ndarray | None = None,
    order: np.ndarray | None = None,
) -> Mosaic:
    """Lay out all maps of a layer, ``(C, H, W)``, as tiles, large ones averaged down.

    Parameters
    ----------
    maps : numpy.ndarray
        ``(C, H, W)``.
    low, high : numpy.ndarray
        Colour range of each map, ``(C,)``.
    silent : numpy.ndarray, optional
        ``(C,)`` of bool: these tiles are crossed out.
    order : numpy.ndarray, optional
        The channel of each tile; all, by number, if left out.
    """
    if order is not None and (len(order) != len(maps) or (np.diff(order) != 1).any()):
        maps, low, high = maps[order], low[order], high[order]
        silent = None if silent is None else silent[order]
    count, height, width = maps.shape
    if height == 1 < width:  # 1d layers: strips, so more rows than columns
        columns = max(1, round(math.sqrt(count / 6)))
    else:
        columns = math.ceil(math.sqrt(count * height / width))
    columns = min(count, columns)
    room = max(_SIDE // columns - 1, min(4, _MOST // columns - 1), 1)
    tiles = averaged(maps, math.ceil(max(height, width) / room))
    levels = to_levels(tiles, low[:, None, None], high[:, None, None])
    levels = _enlarge(levels, room)
    if silent is not None and silent.any():
        # In the colour at the far end: a gap is invisible on a white zero of a diverging colormap.
        ink = np.where(levels[silent] < COLOURS // 2, COLOURS - 1, 0)
        levels[silent] = np.where(_cross(*levels.shape[1:]), ink, levels[silent])
    return Mosaic(levels, columns)


def _enlarge(levels: np.ndarray, room: int) -> np.ndarray:
    """Repeat pixels of tiles that would be too small to see beside the gap."""
    _, height, width = levels.shape
    times = max(1, min(room, 12) // max(height, width))
    tall = strip_height(width) if height == 1 < width else times
    return levels.repeat(max(tall, times), 1).repeat(times, 2)


def _cross(height: int, width: int) -> np.ndarray:
    """Return the pixels of both diagonals."""
    y, x = np.mgrid[0:height, 0:width]
    along = np.round(x * (height - 1) / max(width - 1, 1))
    return (along == y) | (along == height - 1 - y)


ACCENT, EDGE = (255, 140, 0), (20, 20, 20)
GREY = 128  # around pictures that are not square; fits bright and dark pages
FEW = 32  # up to this side, single pixels stay visible
LARGE = 224  # the longest side of a piece


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a picture, or words in its place."""

    picture: np.ndarray | None  #: the whole, uint8 ``(H, W, 3)``
    box: tuple[float, float, float, float]  #: top, left, bottom, right, as fractions of the picture
    centre: tuple[float, float] | None  #: the position, row and column, as fractions
    caption: str  #: below it
    words: str  #: full description

    @property
    def is_part(self) -> bool:
        """True if it is less than the whole picture."""
        return self.box != (0.0, 0.0, 1.0, 1.0)

    def drawn(self, whole: bool = False) -> Image.Image:
        """Return the cut-out part, or the whole picture with the box and the position marked."""
        if self.picture is None:
            return Image.new("RGB", (LARGE, LARGE), (GREY,) * 3)
        height, width = self.picture.shape[:2]
        picture = Image.fromarray(self.picture)
        top, left, bottom, right = np.array(self.box) * [height, width, height, width]
        if not whole:
            ends = math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)
            part = picture.crop(ends)
            return _resized(part, LARGE) if max(part.size) > LARGE else part
        factor = LARGE / max(height, width)
        picture = _resized(picture, LARGE)
        pen = ImageDraw.Draw(picture)
        if self.is_part:
            box = [round(each * factor) for each in (left, top, right, bottom)]
            box[2:] = max(box[2] - 1, box[0]), max(box[3] - 1, box[1])  # at least one pixel
            pen.rectangle([box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1], None, EDGE, 5)
            pen.rectangle(box, None, ACCENT, 3)
        if self.centre is not None:
            x, y = self.centre[1] * picture.width, self.centre[0] * picture.height
            for radius, colour in ((6, EDGE), (4, ACCENT)):
                pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
        return picture


def row(pieces: Sequence[Piece], *, whole: bool = False, side: int = 104) -> str:
    """Return pieces side by side as HTML, each with its caption; all text is escaped.

    Parameters
    ----------
    side : int
        Maximum width of one piece, in CSS pixels.
    """
    made = []
    for piece in pieces:
        shown = f'<div class="none">{escape(piece.words)}</div>'
        if piece.picture is not None:
            drawn = piece.drawn(whole)
            css = "" if max(drawn.size) <= FEW else ' class="smooth"'
            shown = f'<img{css} alt="{escape(piece.words)}" src="{data_url(drawn)}">'
        made.append(
            f'<figure title="{escape(piece.words)}"><div class="piece">{shown}</div>'
            f"<figcaption>{escape(piece.caption)}</figcaption></figure>"
        )
    style = f"grid-template-columns: repeat({len(made)}, minmax(0, {side}px))"
    return f'<div class="hookviz"><div class="pieces" style="{style}">{"".join(made)}</div></div>'


STYLE = """<style>.hookviz .pieces {display: grid; gap: 4px 8px; margin: 2px 0 4px}
.hookviz .pieces figure {margin: 0; min-width: 0}
.hookviz .piece {aspect-ratio: 1; overflow: hidden; border-radius: 2px; background: #80808030;
  display: grid; place-items: center; font-size: 10px; line-height: 13px; text-align: center}
.hookviz .pieces img {width: 100%; height: 100%; object-fit: contain}
.hookviz .pieces figcaption {display: block; height: auto; line-height: 15px; font-size: 11px;
  color: var(--hv-dim); text-overflow: ellipsis}
.hookviz .facts {display: flex; flex-wrap: wrap; gap: 0 12px; align-items: baseline}
.hookviz .facts b {font-weight: 600}
.hookviz .facts span {color: var(--hv-dim)}
</style>"""


def facts(name: str, words: Sequence[str]) -> str:
    """Return a line above a row: a name, then facts."""
    said = "".join(f"<span>{escape(each)}</span>" for each in words)
    return f'<div class="hookviz"><div class="facts"><b>{escape(name)}</b>{said}</div></div>'


def strip(pieces: Sequence[Piece], side: int, *, whole: bool = False) -> Image.Image:
    """Draw pieces side by side in one picture, each in a square."""
    sheet = Image.new("RGB", (side * max(len(pieces), 1), side), (GREY,) * 3)
    for index, piece in enumerate(pieces):
        if piece.picture is None:
            continue
        drawn = _resized(piece.drawn(whole), side)
        corner = index * side + (side - drawn.width) // 2, (side - drawn.height) // 2
        sheet.paste(drawn, corner)
    return sheet


def sheet(rows: Sequence[tuple[str, Sequence[Piece]]], side: int = 96) -> Image.Image:
    """Draw rows of pieces with words above each, for places that show only pictures."""
    gap, line = 4, 22
    most = max((len(pieces) for _, pieces in rows), default=1)
    size = max(most * (side + gap) - gap, 400), max(len(rows) * (side + line + gap) - gap, 1)
    whole = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(whole)
    for number, (words, pieces) in enumerate(rows):
        top = number * (side + line + gap)
        # Pillow's own font has no real minus sign.
        pen.text((0, top + 3), words.replace("−", "-"), "black", font_size=13)
        for index, piece in enumerate(pieces):
            whole.paste(strip([piece], side), (index * (side + gap), top + line))
    return whole


def data_url(picture: Image.Image, quality: int = 85) -> str:
    """Encode a picture for HTML: a small one as PNG, others as JPEG."""
    held = io.BytesIO()
    if max(picture.size) <= FEW:
        kind = "png"
        picture.save(held, "PNG")
    else:
        kind = "jpeg"
        picture.save(held, "JPEG", quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(held.getvalue()).decode()}"


def _resized(picture: Image.Image, side: int) -> Image.Image:
    """Resize to this longer side; in a small picture single pixels stay visible."""
    longest = max(picture.size)
    enlarging = Image.Resampling.NEAREST if longest <= FEW else Image.Resampling.BICUBIC
    size = [max(1, round(each * side / longest)) for each in picture.size]
    return picture.resize(size, Image.Resampling.BOX if side < longest else enlarging)
