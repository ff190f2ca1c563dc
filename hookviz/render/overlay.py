"""A heatmap over the input: upsampled smoothly, coloured, blended."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image

from ..hooking.layout import enlarged
from .arrays import all_finite
from .colours import DIVERGING, palette, to_levels

HEAT = "inferno"  # for heatmaps without negative values; signed ones get the diverging map


def heat_colours(heat: np.ndarray) -> tuple[str, float, float] | None:
    """Colormap and range of a heatmap: 0 to its maximum, or symmetric about zero.

    None if there is nothing to show: all values are zero, or none is finite.
    """
    finite = heat if all_finite(heat) else heat[np.isfinite(heat)]
    most = float(np.abs(finite).max()) if finite.size else 0.0
    if most == 0:
        return None
    return (HEAT, 0.0, most) if finite.min() >= 0 else (DIVERGING, -most, most)


def upsample(heat: np.ndarray, height: int, width: int) -> np.ndarray:
    """A heatmap ``(h, w)`` at the picture's size, bilinear between the pixels' centres."""
    return enlarged(torch.from_numpy(np.ascontiguousarray(heat))[None], (height, width))[0].numpy()


def blend(picture: np.ndarray, heat: np.ndarray, alpha: float) -> np.ndarray:
    """Lay a heatmap ``(h, w)`` of any size over a picture, uint8 ``(H, W, 3)``.

    ``(1 - alpha) * picture + alpha * colour``; the picture itself where there is nothing to show.
    """
    colours = heat_colours(heat)
    if colours is None:
        return picture
    name, low, high = colours
    levels = to_levels(upsample(heat, *picture.shape[:2]), low, high)
    coloured = palette(name)[levels, :3].astype(np.float32)
    return np.round(picture + np.float32(alpha) * (coloured - picture)).astype(np.uint8)


STRIP_SIDE, STRIP_WIDTH = 72, 1008
STRIP_PIXELS = 400_000
"""How many pixels a strip has at most: the more layers, the smaller their pictures."""


def draw_strip(
    picture: np.ndarray | None, heats: list[np.ndarray], alpha: float
) -> np.ndarray | None:
    """Several heatmaps over one small picture, or a gray ground, in rows; None without heatmaps.

    Each gets its own colour range. The side of one is 72, or less where there are more than 77.
    """
    if not heats:
        return None
    length, rows, columns = _layout(len(heats))
    side = (length, length)
    ground = np.full((*side, 3), 128, np.uint8)
    if picture is not None:
        ground = np.asarray(Image.fromarray(picture).resize(side))
    sheet = np.full((rows * columns, *side, 3), 128, np.uint8)
    sheet[: len(heats)] = [blend(ground, heat, alpha) for heat in heats]
    sheet = sheet.reshape(rows, columns, *side, 3).swapaxes(1, 2)
    return sheet.reshape(rows * length, columns * length, 3)


def strip_box(place: int, count: int) -> tuple[float, float, float, float]:
    """Where one of ``count`` pictures is: left, top, width and height as shares of the strip."""
    _, rows, columns = _layout(count)
    row, column = divmod(place, columns)
    return column / columns, row / rows, 1 / columns, 1 / rows


def _layout(count: int) -> tuple[int, int, int]:
    """Side of one picture, rows and columns, the rows as equally full as can be."""
    side = max(1, min(STRIP_SIDE, math.isqrt(STRIP_PIXELS // count)))
    rows = math.ceil(count / (STRIP_WIDTH // side))
    return side, rows, math.ceil(count / rows)
