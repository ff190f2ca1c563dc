"""The model's input as a picture, the normalization undone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..run.inputs import IMAGENET_MEAN, IMAGENET_STD, ModelInput
from .arrays import shown_size, to_numpy


def picture_of(
    inputs: ModelInput, sample: int = 0, depth: float = 0.0
) -> tuple[np.ndarray | None, str]:
    """The input as the network saw it, uint8 ``(H, W, 3)``, and what was undone, see `undoing`.

    Of a volume it is the slice at ``depth``, 0 the first and 1 the last; a 1d signal is a strip of
    one row per channel. None for what is no picture, signal or volume.
    """
    values = _values(inputs, sample, depth)
    if values is None:
        return None, ""
    scale, offset, words = undoing(values, inputs)
    values = shown_size(values * scale + offset)
    if len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0), words


def undoing(values: np.ndarray, inputs: ModelInput) -> tuple[np.ndarray, np.ndarray, str]:
    """How values ``(C, H, W)`` become a picture from 0 to 1: ``values * scale + offset``.

    The words say what was undone; none for what is shown as it is.

    What is known is undone: the normalization that was applied, or that the model's own settings
    name, if that gives values from 0 to 1. Values from 0 to 1, else, are shown as they are, and
    those from −1 to 1 as ``(x + 1) / 2``. ImageNet's normalization is a guess, taken where it
    fits; where nothing does, the picture is stretched from its least to its largest value.

    >>> scale, offset, words = undoing(np.array([[[-1.0, 1.0]]]), ModelInput(()))
    >>> (np.array([-1.0, 1.0]) * scale + offset).ravel().tolist(), words
    ([0.0, 1.0], 'shown as (x + 1) / 2')
    """
    least, most = float(values.min()), float(values.max())
    known = _fitting(values, inputs.mean, inputs.std)
    if known and (inputs.normalized or least < 0 or most > 1):
        return *known, UNDONE
    if least >= 0 and most <= 1:
        return _ONE, 0 * _ONE, ""
    if least >= -1 and most <= 1:
        return _ONE / 2, _ONE / 2, "shown as (x + 1) / 2"
    if not inputs.mean and (guess := _fitting(values, IMAGENET_MEAN, IMAGENET_STD)):
        return *guess, "ImageNet's normalization undone, a guess"
    span = max(most - least, 1e-12)
    return _ONE / span, -least * _ONE / span, f"stretched from {least:.3g} to {most:.3g}"


UNDONE = "normalization undone"
_ONE = np.ones((1, 1, 1), np.float32)


def _fitting(
    values: np.ndarray, mean: Sequence[float], std: Sequence[float]
) -> tuple[np.ndarray, np.ndarray] | None:
    """A normalization as scale and offset, if undone it gives a picture."""
    if len(mean) not in (1, len(values)):
        return None
    scale, offset = (np.reshape(each, (-1, 1, 1)).astype(np.float32) for each in (std, mean))
    undone = values * scale + offset
    return (scale, offset) if undone.min() > -0.02 and undone.max() < 1.02 else None


def _values(inputs: ModelInput, sample: int, depth: float) -> np.ndarray | None:
    """One sample as ``(C, H, W)``: of a volume a slice, of a signal a band for each channel."""
    main = inputs.main
    if main is None or main.ndim not in (3, 4, 5) or not main.numel():
        return None
    values = to_numpy(main[min(sample, len(main) - 1)])
    if values.ndim == 4:  # (C, D, H, W)
        values = values[:, round(depth * (values.shape[1] - 1))]
    if values.ndim == 2:  # (C, L): each channel a band
        values = shown_size(values[:, None])[:, 0]
        band = math.ceil(max(8, values.shape[1] / 6) / len(values))
        values = np.repeat(values, band, axis=0)[None]
    return values
