"""The input as a picture, the normalization undone, and a heatmap over it, coloured and blended."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..hooking.maps import enlarged
from ..run.inputs import ModelInput
from ..run.origins import picture_tensors
from ..run.transforms import finite_range
from .colours import DIVERGING, all_finite, palette, shown_size, to_levels, to_numpy


def picture_of(
    inputs: ModelInput, sample: int = 0, depth: float = 0.0, tensor: int | None = None
) -> tuple[np.ndarray | None, str]:
    """Return the input as a picture, uint8 ``(H, W, 3)``, and a note, see `ModelInput.undoing`.

    ``tensor`` is the place of one of several input tensors, the main one if left out.

    NaN is shown black. A volume is shown by the slice at ``depth``, 0 the first and 1 the last; a
    1d signal by a strip of one row per channel. None for other inputs.
    """
    values = _values(inputs, sample, depth, tensor)
    if values is None:
        return None, ""
    scale, offset, words = inputs.undoing(values)
    values = shown_size(np.nan_to_num(values * scale + offset, nan=0.0))
    if len(values) == 4 and inputs.pictures:  # RGBA: transparent parts over white
        values = values[:3] * values[3:] + 1 - values[3:]
    elif len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0), words


def as_fed(
    inputs: ModelInput, sample: int = 0, depth: float = 0.0, tensor: int | None = None
) -> dict[str, Any] | None:
    """Return how the numbers that the network gets come from the picture of `picture_of`.

    Returns
    -------
    dict or None
        ``gain`` and ``shift`` of each colour: ``picture * gain + shift``, from 0 to 1, are the
        numbers stretched from the least to the largest; and ``words``. None where they are not
        three colours or one, or where they are a picture's numbers or were stretched to be one.
    """
    values = _values(inputs, sample, depth, tensor)
    if values is None or len(values) not in (1, 3):
        return None
    scale, offset, _ = inputs.undoing(values)
    least, most = finite_range(values)
    span = max(most - least, 1e-12)
    scale, offset = (np.broadcast_to(each.ravel(), 3) for each in (scale, offset))
    if (scale == 1).all() and (offset == 0).all():
        return None
    stretched = np.allclose(scale, 1 / span) and np.allclose(offset, -least / span)
    if stretched and not inputs.normalized:
        return None
    shift = (-offset / scale - least) / span
    return {
        "gain": [float(each) for each in 1 / (scale * span)],
        "shift": [float(each) for each in shift],
        "words": f"{least:.3g} (black) to {most:.3g} (white)".replace("-", "−"),
    }


def _values(
    inputs: ModelInput, sample: int, depth: float, tensor: int | None = None
) -> np.ndarray | None:
    """Return one sample as ``(C, H, W)``: a slice of a volume, a band per channel of a signal."""
    main = inputs.main if tensor is None else picture_tensors(inputs).get(tensor)
    if main is None or main.ndim not in (3, 4, 5) or not main.numel():
        return None
    # With channels last in memory, numpy would scale them three numbers at a time.
    values = np.ascontiguousarray(to_numpy(main[min(sample, len(main) - 1)]))
    if values.ndim == 4:  # (C, D, H, W)
        values = values[:, round(depth * (values.shape[1] - 1))]
    if values.ndim == 2:  # (C, L): each channel a band
        values = shown_size(values[:, None])[:, 0]
        band = math.ceil(max(8, values.shape[1] / 6) / len(values))
        values = np.repeat(values, band, axis=0)[None]
    return values


# A heatmap over it

HEAT = "inferno"  # for heatmaps without negative values; signed ones get the diverging map


def heat_colours(heat: np.ndarray) -> tuple[str, float, float] | None:
    """Return colormap and range of a heatmap: 0 to its maximum, or symmetric about zero.

    None if all values are zero, or none is finite.
    """
    finite = heat if all_finite(heat) else heat[np.isfinite(heat)]
    most = float(np.abs(finite).max()) if finite.size else 0.0
    if most == 0:
        return None
    return (HEAT, 0.0, most) if finite.min() >= 0 else (DIVERGING, -most, most)


def upsample(heat: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize a heatmap ``(h, w)`` to the picture's size, bilinear between the pixels' centres."""
    return enlarged(torch.from_numpy(np.ascontiguousarray(heat))[None], (height, width))[0].numpy()


LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)
GAMMA = 2.2
_LIGHT = (np.arange(256, dtype=np.float32) / 255) ** np.float32(GAMMA)


def muted(picture: np.ndarray, amount: float) -> np.ndarray:
    """Reduce the colour of a picture at the same luminance: uint8 to float32, 0 to 255.

    Examples
    --------
    >>> muted(np.full((1, 1, 3), 9, np.uint8), 0.5).round().tolist()
    [[[9.0, 9.0, 9.0]]]
    """
    light = _LIGHT[picture]
    light += np.float32(amount) * ((light @ LUMINANCE)[..., None] - light)
    return 255 * light ** np.float32(1 / GAMMA)


def blend(picture: np.ndarray, heat: np.ndarray, alpha: float) -> np.ndarray:
    """Blend a heatmap over a picture: the larger the value, the more opaque.

    Parameters
    ----------
    picture : numpy.ndarray
        uint8 ``(H, W, 3)``.
    heat : numpy.ndarray
        Float ``(h, w)``, of any size.
    alpha : float
        Opacity of the heatmap where it is largest, 0 to 1.

    Returns
    -------
    numpy.ndarray
        uint8 ``(H, W, 3)``: ``(1 - o) * ground + o * colour``, where the opacity ``o`` is ``alpha``
        times `shares` and ``ground`` the picture, `muted` by ``alpha``. So unimportant areas keep
        their brightness. The picture itself if the heatmap is empty.
    """
    colours = heat_colours(heat)
    if colours is None:
        return picture
    name, low, high = colours
    values = upsample(heat, *picture.shape[:2])
    coloured = palette(name)[to_levels(values, low, high), :3].astype(np.float32)
    share = shares(values, high)
    ground = muted(picture, alpha)
    return np.round(ground + np.float32(alpha) * share[..., None] * (coloured - ground)).astype(
        np.uint8
    )


def shares(values: np.ndarray, most: float) -> np.ndarray:
    """Return the opacity of each value, 0 to 1: from the least magnitude to the largest, ``most``.

    The smallest value is transparent, so that a heatmap without zeros does not hide the picture;
    the same value everywhere is transparent, too. Values that are not finite are opaque.

    Examples
    --------
    >>> shares(np.array([[1.0, 2.0, -3.0]]), 3.0).tolist()
    [[0.0, 0.5, 1.0]]
    """
    sizes = np.abs(values)
    least = float(np.min(sizes, where=np.isfinite(sizes), initial=most))
    span = most - least
    scaled = (sizes - least) / span if span > 1e-6 * most else np.zeros_like(sizes)
    scaled = np.where(np.isfinite(sizes), scaled, 1.0)
    return np.clip(scaled, 0, 1).astype(np.float32)
