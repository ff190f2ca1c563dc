"""A heatmap over the input: upsampled smoothly, coloured, blended."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import interpolate

from .maps import all_finite
from .render import DIVERGING, palette, to_levels

HEAT = "inferno"  # for heatmaps without negative values; signed ones get the diverging map


def heat_colours(heat: np.ndarray) -> tuple[str, float, float] | None:
    """Colormap and range of a heatmap: 0 to its maximum, or symmetric about zero.

    Returns
    -------
    tuple or None
        None if there is nothing to show: all values are zero, or none is finite.

    Examples
    --------
    >>> heat_colours(np.array([[0.0, 2.0]]))
    ('inferno', 0.0, 2.0)
    >>> heat_colours(np.array([[-3.0, 2.0]]))
    ('RdBu_r', -3.0, 3.0)
    >>> heat_colours(np.zeros((2, 2))) is None
    True
    """
    finite = heat if all_finite(heat) else heat[np.isfinite(heat)]
    most = float(np.abs(finite).max()) if finite.size else 0.0
    if most == 0:
        return None
    return (HEAT, 0.0, most) if finite.min() >= 0 else (DIVERGING, -most, most)


def upsample(heat: np.ndarray, height: int, width: int) -> np.ndarray:
    """A heatmap ``(h, w)`` at the picture's size, bilinear between the pixels' centres.

    Examples
    --------
    >>> upsample(np.array([[0.0, 1.0]]), 1, 4).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    grid = torch.from_numpy(np.ascontiguousarray(heat))[None, None]
    return interpolate(grid, (height, width), mode="bilinear", align_corners=False)[0, 0].numpy()


def blend(picture: np.ndarray, heat: np.ndarray, alpha: float) -> np.ndarray:
    """Lay a heatmap over a picture.

    Parameters
    ----------
    picture : numpy.ndarray
        uint8 ``(H, W, 3)``.
    heat : numpy.ndarray
        Float ``(h, w)``, of any size.
    alpha : float
        How much of the heatmap is seen: 0 none, 1 nothing else.

    Returns
    -------
    numpy.ndarray
        uint8 ``(H, W, 3)``: ``(1 - alpha) * picture + alpha * colour``; the picture itself where
        there is nothing to show.
    """
    colours = heat_colours(heat)
    if colours is None:
        return picture
    name, low, high = colours
    levels = to_levels(upsample(heat, *picture.shape[:2]), low, high)
    coloured = palette(name)[levels, :3].astype(np.float32)
    return np.round(picture + np.float32(alpha) * (coloured - picture)).astype(np.uint8)


def contact_sheet(pictures: list[np.ndarray], columns: int) -> np.ndarray:
    """Pictures of one size in rows, uint8 ``(rows * H, columns * W, 3)``; the rest is white."""
    height, width, _ = pictures[0].shape
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows * columns, height, width, 3), 255, np.uint8)
    sheet[: len(pictures)] = pictures
    sheet = sheet.reshape(rows, columns, height, width, 3).swapaxes(1, 2)
    return sheet.reshape(rows * height, columns * width, 3)
