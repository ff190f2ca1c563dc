"""The model's input as a picture, the normalization undone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..run.inputs import ModelInput
from .arrays import shown_size


def picture_of(inputs: ModelInput, sample: int = 0, depth: float = 0.0) -> np.ndarray | None:
    """Draw the input as the network saw it, the normalization undone.

    Parameters
    ----------
    sample : int
        Index in the batch.
    depth : float
        For a volume, the slice to show: 0 the first, 1 the last.

    Returns
    -------
    numpy.ndarray or None
        uint8 ``(H, W, 3)``; a 1d signal is a strip of one row per channel. None for what
        is no picture, signal or volume. What is longer than `hookviz.render.arrays.SHOWN_SIDE` is
        averaged down.

    Notes
    -----
    Values from 0 to 1 are shown as they are. Otherwise ``x * std + mean`` if that lies
    within 0 to 1, else ``(x - min) / (max - min)``.
    """
    main = inputs.main
    if main is None or main.ndim not in (3, 4, 5) or not main.numel():
        return None
    values = main[min(sample, len(main) - 1)].detach().float().cpu().numpy()
    if values.ndim == 4:  # (C, D, H, W)
        values = values[:, round(depth * (values.shape[1] - 1))]
    if values.ndim == 2:  # (C, L): each channel a band
        values = shown_size(values[:, None])[:, 0]
        band = math.ceil(max(8, values.shape[1] / 6) / len(values))
        values = np.repeat(values, band, axis=0)[None]
    values = shown_size(_undone(values, inputs.mean, inputs.std))
    if len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def _undone(values: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    if values.min() >= 0 and values.max() <= 1:
        return values
    if len(mean) in (1, len(values)):
        shape = (-1, 1, 1)
        undone = values * np.reshape(std, shape) + np.reshape(mean, shape)
        if undone.min() > -0.02 and undone.max() < 1.02:
            return undone
    return (values - values.min()) / max(float(np.ptp(values)), 1e-12)
