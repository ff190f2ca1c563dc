"""A heatmap over the input: upsampled smoothly, coloured, blended."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image

from ..hooking.tensors import enlarged
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


LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)
GAMMA = 2.2
_LIGHT = (np.arange(256, dtype=np.float32) / 255) ** np.float32(GAMMA)


def muted(picture: np.ndarray, amount: float) -> np.ndarray:
    """A picture, uint8 ``(H, W, 3)``, with less colour and the same luminance, as float32 0 to 255.

    Examples
    --------
    >>> muted(np.full((1, 1, 3), 9, np.uint8), 0.5).round().tolist()
    [[[9.0, 9.0, 9.0]]]
    """
    light = _LIGHT[picture]
    light += np.float32(amount) * ((light @ LUMINANCE)[..., None] - light)
    return 255 * light ** np.float32(1 / GAMMA)


def blend(picture: np.ndarray, heat: np.ndarray, alpha: float) -> np.ndarray:
    """Lay a heatmap over a picture: the larger the value, the less of the picture is seen.

    Parameters
    ----------
    picture : numpy.ndarray
        uint8 ``(H, W, 3)``.
    heat : numpy.ndarray
        Float ``(h, w)``, of any size.
    alpha : float
        How much of the heatmap is seen where it is largest: 0 none, 1 nothing else.

    Returns
    -------
    numpy.ndarray
        uint8 ``(H, W, 3)``: ``(1 - o) * ground + o * colour``, where the opacity ``o`` is ``alpha``
        times the share that the value's magnitude has of the largest, and ``ground`` the picture,
        `muted` by ``alpha``. So what does not matter stays as bright as it was. The picture itself
        where there is nothing to show.
    """
    colours = heat_colours(heat)
    if colours is None:
        return picture
    name, low, high = colours
    values = upsample(heat, *picture.shape[:2])
    coloured = palette(name)[to_levels(values, low, high), :3].astype(np.float32)
    share = np.clip(np.nan_to_num(np.abs(values) / high, nan=1.0), 0, 1).astype(np.float32)
    ground = muted(picture, alpha)
    return np.round(ground + np.float32(alpha) * share[..., None] * (coloured - ground)).astype(
        np.uint8
    )


STRIP_SIDE, STRIP_WIDTH = 72, 1008
STRIP_PIXELS = 400_000
"""How many pixels a strip has at most: the more layers, the smaller their pictures."""


def draw_strip(
    picture: np.ndarray | None, heats: list[np.ndarray], alpha: float
) -> np.ndarray | None:
    """Several heatmaps over one small picture, or a gray ground, in rows; None without heatmaps.

    Parameters
    ----------
    picture : numpy.ndarray or None
        uint8 ``(H, W, 3)``; None for the heatmaps by themselves.
    heats : list of numpy.ndarray
        ``(h, w)`` each, of any sizes; each gets its own colour range.

    Returns
    -------
    numpy.ndarray or None
        uint8 ``(rows * side, columns * side, 3)``, where ``side`` is 72, or less where there are
        more than 77; None without heatmaps.
    """
    if not heats:
        return None
    length, rows, columns = _layout(len(heats))
    side = (length, length)
    sheet = np.zeros((rows * columns, *side, 3), np.uint8)
    if picture is not None:
        ground = np.asarray(Image.fromarray(picture).resize(side))
        sheet[: len(heats)] = [blend(ground, heat, alpha) for heat in heats]
    else:
        sheet[: len(heats)] = [_alone(heat, length) for heat in heats]
    sheet = sheet.reshape(rows, columns, *side, 3).swapaxes(1, 2)
    return sheet.reshape(rows * length, columns * length, 3)


def _alone(heat: np.ndarray, side: int) -> np.ndarray:
    """One heatmap without a picture, uint8 ``(side, side, 3)``."""
    name, low, high = heat_colours(heat) or (HEAT, 0.0, 1.0)
    return palette(name)[to_levels(upsample(heat, side, side), low, high), :3]


def strip_box(place: int, count: int) -> tuple[float, float, float, float]:
    """Where one of ``count`` pictures is: left, top, width and height as shares of the strip."""
    _, rows, columns = _layout(count)
    row, column = divmod(place, columns)
    return column / columns, row / rows, 1 / columns, 1 / rows


def strip_columns(count: int) -> int:
    """How many pictures stand in a row of the strip."""
    return _layout(count)[2]


def _layout(count: int) -> tuple[int, int, int]:
    """Side of one picture, rows and columns, the rows as equally full as can be."""
    side = max(1, min(STRIP_SIDE, math.isqrt(STRIP_PIXELS // count)))
    rows = math.ceil(count / (STRIP_WIDTH // side))
    return side, rows, math.ceil(count / rows)
