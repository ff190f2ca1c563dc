"""All channels of a layer as tiles of one picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .colours import GAP, averaged, strip_height, to_levels

_SIDE = 900  # approximate pixels of the longer side
_MOST = 1000  # limit of the longer side, for very many channels

PAGE = 128
"""Number of channels shown at once: so many tiles of 32 px fit a small screen."""


@dataclass(frozen=True, eq=False)
class Mosaic:
    """All channels in one picture, uint8 ``(height, width)``: tiles one pixel apart, in rows."""

    levels: np.ndarray
    columns: int
    tile_height: int
    tile_width: int

    def box(self, position: int) -> tuple[float, float, float, float]:
        """Return left, top, width and height of a tile, as fractions of the whole picture."""
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
    _, tall, wide = levels.shape
    if silent is not None and silent.any():
        levels[silent] = np.where(_cross(tall, wide), GAP, levels[silent])
    rows = math.ceil(count / columns)
    sheet = np.full((rows * columns, tall + 1, wide + 1), GAP, np.uint8)
    sheet[:count, :tall, :wide] = levels
    sheet = sheet.reshape(rows, columns, tall + 1, wide + 1).swapaxes(1, 2)
    whole = sheet.reshape(rows * (tall + 1), columns * (wide + 1))[:-1, :-1]
    return Mosaic(np.ascontiguousarray(whole), columns, tall, wide)


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
