"""Conversion of tensors to numpy arrays, and averaging of large ones for display."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

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
    """
    if factor <= 1:
        return maps
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
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    if tensor.is_complex():
        tensor = tensor.abs()
    exact = tensor.dtype in (torch.float64, torch.int32, torch.int64)
    return tensor.to("cpu", torch.float64 if exact else torch.float32).numpy()


def all_finite(values: np.ndarray) -> bool:
    """Return whether no value is NaN or infinite; in one pass, by the sum.

    A sum that overflows also gives False, which only costs time.
    """
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))
