"""The pieces of a data set's pictures that a channel responds to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...draw.mosaic import Piece
from ...draw.overlay import picture_of
from ...hooking.tensors import tensors
from ...run.origins import NO_PICTURE
from ...tables import number
from .fingerprint import names_of
from .layer import NO_SOURCE, RULE, LayerSurvey, TopInput
from .reading import Reader

CACHED = 256  # pictures cached in memory, 39 MB if they have 224×224 pixels

_WHOLE = (0.0, 0.0, 1.0, 1.0)


class _Picture(NamedTuple):
    pixels: np.ndarray | None
    size: tuple[int, ...]  # of the model's input
    problem: str  # why there are no pixels


class Patches:
    """Cuts pieces out of a data set's pictures, and keeps the last pictures that it read."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._names = reader, names_of(reader.data)
        self._picture = lru_cache(CACHED)(self._read)

    def of(self, layer: LayerSurvey, channel: int, count: int | None = None) -> list[Piece]:
        """Make the pieces for a channel's top inputs, the strongest first."""
        tops = layer.top(channel, count)
        labels = layer.statistics.labels[channel].tolist()
        rows = zip(tops, labels, strict=False)
        return [self._piece(layer, top, label) for top, label in rows]

    def _piece(self, layer: LayerSurvey, top: TopInput, label: int) -> Piece:
        position = top.position
        depth = position[0] / max(layer.shape[0] - 1, 1) if len(position) == 3 else 0.0
        picture = self._picture(top.index, depth, layer.source)
        class_name = str(layer.class_of(label)) if label >= 0 else ""
        name = f"{self._names[top.index]!r}" if self._names else f"input {top.index}"
        place = ", ".join(map(str, position))
        words = (
            f"{name}{f' ({class_name})' if class_name else ''}: {number(top.value)} at ({place})"
        )
        part, centre = _WHOLE, None
        if len(picture.size) == len(position) and max(layer.shape) > 1:
            middle, size = [at + 0.5 for at in position], layer.shape
            if top.box is not None and layer.field is not None:
                half, size = len(position), picture.size
                rule = zip(*(layer.field[name] for name in RULE[:3]), position, strict=True)
                middle = [start + stride * at + n / 2 for n, stride, start, at in rule]
                part = _fractions(top.box[:half], size, 0.0) + _fractions(top.box[half:], size, 1.0)
            centre = _fractions(middle, size, 0.5)
        caption = " ".join(filter(None, (number(top.value), class_name)))
        words = "; ".join(filter(None, (words, picture.problem)))
        return Piece(picture.pixels, part, centre, caption, words)

    def _read(self, index: int, depth: float, source: int | None) -> _Picture:
        """Return the picture of an input; a volume has another one at each depth.

        ``source`` is the index of the input tensor that the layer sees; None is the main one.
        """
        if source == NO_SOURCE:
            return _Picture(None, (), NO_PICTURE)
        try:
            inputs = self._reader.input(index)
            if source is not None:
                tensor = tensors(inputs.args, inputs.kwargs)[source]
                inputs = replace(inputs, args=(tensor,), kwargs={})
            pixels, _ = picture_of(inputs, 0, depth)
        except ValueError as error:
            return _Picture(None, (), str(error))
        size = () if inputs.main is None else tuple(inputs.main.shape[2:])
        what = "it" if source is None else f"input tensor {source}, which the layer sees,"
        return _Picture(pixels, size, "" if pixels is not None else f"{what} is not a picture")


def _fractions(numbers: Sequence[float], size: Sequence[int], row: float) -> tuple[float, float]:
    """Return fractions of a picture's height and width; a signal lies at height ``row``."""
    found = [min(max(a / n, 0.0), 1.0) for a, n in zip(numbers, size, strict=True)]
    return (found[-2] if len(found) > 1 else row, found[-1])
