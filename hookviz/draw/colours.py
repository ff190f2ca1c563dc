"""Tensor -> array -> levels of a palette.

A live picture is one byte a pixel at the map's own size, scaled by the browser. The palette holds
252 colours of a matplotlib colormap and one each for −Inf, +Inf, NaN and the gap between tiles.
"""

from __future__ import annotations

import base64
import math
from functools import lru_cache

import matplotlib
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap
from torch import Tensor

from ..hooking.tensors import as_real

SHOWN_SIDE = 640
"""Longer or wider pictures and maps are averaged down for display, see `shown_size`; heatmaps,
statistics and colour ranges are computed from the full size.
"""


def shown_size(maps: np.ndarray) -> np.ndarray:
    """Average large maps ``(C, H, W)`` over squares of whole pixels, for display.

    >>> shown_size(np.zeros((1, 2048, 1024))).shape, shown_size(np.zeros((1, 640, 9))).shape
    ((1, 512, 256), (1, 640, 9))
    """
    return averaged(maps, math.ceil(max(maps.shape[1:]) / SHOWN_SIDE))


def averaged(maps: np.ndarray, factor: int) -> np.ndarray:
    """Average over squares of ``factor`` pixels; those at an edge may be smaller.

    >>> averaged(np.array([[[1.0, 3.0, 5.0]]]), 2)
    array([[[2., 5.]]])
    >>> averaged(np.array([[[3e38, 3e38, np.inf, -np.inf]]], np.float32), 2)
    array([[[3.e+38,    nan]]], dtype=float32)
    """
    if factor <= 1:
        return maps
    with np.errstate(over="ignore", invalid="ignore"):  # Inf and −Inf together have no mean
        means = _means(maps, factor)
        if all_finite(means):
            return means
        return _means(maps.astype(np.float64), factor).astype(maps.dtype)  # sums may overflow


def _means(maps: np.ndarray, factor: int) -> np.ndarray:
    for axis in (1, 2):
        rows = maps.swapaxes(1, axis)
        # Sums of strided slices: several times faster than np.add.reduceat.
        sums = rows[:, ::factor].copy()
        for start in range(1, factor):
            part = rows[:, start::factor]
            sums[:, : part.shape[1]] += part
        sizes = np.full(sums.shape[1], factor, maps.dtype)
        sizes[-1] = (rows.shape[1] - 1) % factor + 1
        maps = (sums / sizes[:, None]).swapaxes(1, axis)
    return maps


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Convert a tensor to float32, from any device; doubles and integers to float64."""
    return as_real(tensor).cpu().numpy()


def all_finite(values: np.ndarray) -> bool:
    """Return whether no value is NaN or infinite; in one pass, by the sum.

    A sum that overflows also gives False, which only costs time.
    """
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))


COLOURS = 252
MINUS_INF, PLUS_INF, NAN, GAP = 252, 253, 254, 255
_SPECIAL = {"under": "#00e5ff", "over": "#39ff14", "bad": "#ff00ff"}

SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"
DARK = "dark"
"""The name of the diverging colormap on a dark page."""

NORMALIZATIONS = ("channel", "layer", "percentile", "symmetric")
"""The ways to choose the ends of the colour range, see `colour_ranges`."""


@lru_cache(maxsize=32)
def colormap(name: str) -> Colormap:
    """Return a matplotlib colormap in 252 colours, with colours for −Inf, +Inf and NaN."""
    return matplotlib.colormaps[name].resampled(COLOURS).with_extremes(**_SPECIAL)


@lru_cache(maxsize=32)
def palette(name: str) -> np.ndarray:
    """Return the RGBA colour of each level, uint8 ``(256, 4)``."""
    chosen = colormap(name)
    colours = chosen(np.arange(COLOURS), bytes=True)
    special = [chosen.get_under(), chosen.get_over(), chosen.get_bad(), np.zeros(4)]
    return np.vstack([colours, np.round(np.array(special) * 255).astype(np.uint8)])


def colour_ranges(
    maps: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    normalize: str,
    *,
    diverging: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values with the first and the last colour, for every map ``(C, H, W)``.

    Parameters
    ----------
    maps : numpy.ndarray
        ``(C, H, W)``.
    low, high : numpy.ndarray
        Least and largest finite value of each map, ``(C,)``.
    normalize : {"channel", "layer", "percentile", "symmetric"}
        From the least to the largest finite value of the map; of all maps; from the 1st to the
        99th percentile of the map; or from −m to m, with m the largest magnitude in it.
    diverging : bool
        If true, zero is in the middle: the range is widened to −m to m.

    Low is below high: for a map of one value, or none, the range is 1 wide from that value up, or
    −1 to 1 around zero.

    Examples
    --------
    >>> maps = np.array([[[-1.0, 3.0]], [[0.0, 9.0]]])
    >>> low, high = maps.min((1, 2)), maps.max((1, 2))
    >>> colour_ranges(maps, low, high, "channel", diverging=False)
    (array([-1.,  0.]), array([3., 9.]))
    >>> colour_ranges(maps, low, high, "layer", diverging=True)
    (array([-9., -9.]), array([9., 9.]))
    """
    if normalize == "percentile":
        low, high = percentiles(maps)
    elif normalize == "layer":
        low = np.full(len(maps), np.fmin.reduce(low))
        high = np.full(len(maps), np.fmax.reduce(high))
    low, high = np.nan_to_num(low), np.nan_to_num(high)
    if diverging or normalize == "symmetric":
        most = np.maximum(np.abs(low), np.abs(high))
        most = np.where(most > 0, most, 1)
        return -most, most
    return low, np.where(low < high, high, low + 1)


def percentiles(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 1st and 99th percentile of each map's finite values, ``(C,)``; 0 without any."""
    flat = maps.reshape(len(maps), -1)
    if all_finite(flat):  # many times faster
        low, high = _finite_percentiles(flat)
    else:
        flat = np.where(np.isfinite(flat), flat, np.nan)
        flat = np.where(np.isnan(flat).all(1, keepdims=True), 0, flat)
        low, high = np.nanpercentile(flat, (1, 99), axis=1)
    return low.astype(np.float64), high.astype(np.float64)


def _finite_percentiles(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `numpy.percentile` of 1 and 99, in a fraction of its time.

    NumPy sorts with the processor's vector instructions; a partition takes several times as long
    where many values are equal, as after a ReLU.
    """
    ordered, last = np.sort(rows, axis=1), rows.shape[1] - 1
    first, part = divmod(0.01 * last, 1)
    end, beside = int(first), min(int(first) + 1, last)
    low, high = (
        (1 - part) * side[:, end] + part * side[:, beside] for side in (ordered, ordered[:, ::-1])
    )
    return low, high


def robust_end(values: np.ndarray, most: float) -> float | None:
    """Return a smaller colour range for a signed map with a few extreme values; else None.

    The 99th percentile's magnitude, or the 1st's if that is more, where the largest magnitude
    ``most`` is more than twice that. A few places would leave the rest without colour.

    Examples
    --------
    >>> values = np.linspace(-1, 1, 400).reshape(20, 20)
    >>> robust_end(values, 1.0) is None
    True
    >>> values[3, 3] = 50
    >>> round(robust_end(values, 50.0), 2)
    0.99
    """
    low, high = (float(end[0]) for end in percentiles(values[None]))
    end = max(abs(low), abs(high))
    return end if 0 < 2 * end < most else None


def to_levels(values: np.ndarray, low: float | np.ndarray, high: float | np.ndarray) -> np.ndarray:
    """Convert values to palette levels, uint8: low and below to 0, high and above to 251.

    The same as ``colormap(Normalize(low, high, clip=True)(values))`` for finite values.
    """
    span = np.subtract(high, low, dtype=np.float64)
    if np.min(span) < 1e-30 or np.max(span) > 1e30:  # single precision would over- or underflow
        values, low, high = values.astype(np.float64), np.float64(low), np.float64(high)
    scaled = (values - low) * (COLOURS / np.subtract(high, low))
    if all_finite(scaled):
        return np.clip(scaled, 0, COLOURS - 1).astype(np.uint8)
    levels = np.clip(np.nan_to_num(scaled), 0, COLOURS - 1).astype(np.uint8)
    levels[np.isnan(values)] = NAN
    levels[np.isposinf(values)] = PLUS_INF
    levels[np.isneginf(values)] = MINUS_INF
    return levels


def strip_height(length: int) -> int:
    """Return the height of the strip of a 1d map of this length, in pixels."""
    return max(1, round(length / 6))


# RdBu with a dark middle for dark pages, where white would be the brightest colour.
_DARK = ("#cfe6ff", "#6bb3f2", "#2b78bd", "#143f6b", "#0c0d10", "#6b1a24", "#bf3a3f", "#f2806b")
_DARK_MAPS = {DIVERGING: LinearSegmentedColormap.from_list("dark", (*_DARK, "#ffdccb"), COLOURS)}


@lru_cache(maxsize=32)
def dark_palette(name: str) -> np.ndarray | None:
    """Return the `palette` of a colormap for a dark page; None if it is the same.

    Diverging maps, white at zero, become near-black there.
    """
    if name not in _DARK_MAPS:
        return None
    colours = _DARK_MAPS[name](np.arange(COLOURS), bytes=True)
    return np.vstack([colours, palette(name)[COLOURS:]])


def palette_text(name: str) -> str:
    """Encode the RGBA colours of all levels in base64, for a browser; `DARK` is a name, too."""
    colours = dark_palette(DIVERGING) if name == DARK else palette(name)
    return base64.b64encode(np.asarray(colours).tobytes()).decode()
