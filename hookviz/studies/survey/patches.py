"""The pieces of a data set's pictures that a channel responds to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...draw.mosaic import Piece
from ...draw.overlay import picture_of
from ...tables import number
from .fingerprint import names_of
from .layer import RULE, LayerSurvey, TopInput
from .reading import Reader

CACHE_BYTES = 64_000_000
"""Pictures that are kept in memory."""

_WHOLE = (0.0, 0.0, 1.0, 1.0)


class _Picture(NamedTuple):
    pixels: np.ndarray | None
    size: tuple[int, ...]  # of the model's input
    problem: str  # why there are no pixels


class Patches:
    """Cuts pieces out of a data set's pictures, and keeps the last pictures that it read."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._names = reader, names_of(reader.data)
        # By index and depth: a volume has another picture at each depth.
        self._pictures: OrderedDict[tuple[int, float], _Picture] = OrderedDict()
        self._bytes = 0

    def of(self, layer: LayerSurvey, channel: int, count: int | None = None) -> list[Piece]:
        """Make the pieces for a channel's top inputs, the strongest first."""
        labels = layer.statistics.labels[channel].tolist()
        tops = zip(layer.top(channel, count), labels, strict=False)
        return [self._piece(layer, top, label) for top, label in tops]

    def _piece(self, layer: LayerSurvey, top: TopInput, label: int) -> Piece:
        position = top.position
        depth = position[0] / max(layer.shape[0] - 1, 1) if len(position) == 3 else 0.0
        picture = self._picture(top.index, depth)
        class_name = str(layer.class_of(label)) if label >= 0 else ""
        name = f"{self._names[top.index]!r}" if self._names else f"input {top.index}"
        place = ", ".join(map(str, position))
        words = (
            f"{name}{f' ({class_name})' if class_name else ''}: {number(top.value)} at ({place})"
        )
        part, centre = _WHOLE, None
        if len(picture.size) == len(position) and max(layer.shape) > 1:
            centre = _fractions([at + 0.5 for at in position], layer.shape, 0.5)
            if top.box is not None and layer.field is not None:
                half, (sizes, strides, starts) = len(position), (layer.field[n] for n in RULE[:3])
                rule = zip(starts, strides, sizes, position, strict=True)
                middle = [start + stride * at + n / 2 for start, stride, n, at in rule]
                centre = _fractions(middle, picture.size, 0.5)
                first = _fractions(top.box[:half], picture.size, 0.0)
                part = first + _fractions(top.box[half:], picture.size, 1.0)
        caption = " ".join(filter(None, (number(top.value), class_name)))
        words = "; ".join(filter(None, (words, picture.problem)))
        return Piece(picture.pixels, part, centre, caption, words)

    def _picture(self, index: int, depth: float) -> _Picture:
        key = index, depth
        if key in self._pictures:
            self._pictures.move_to_end(key)
            return self._pictures[key]
        try:
            inputs = self._reader.input(index)
            pixels, _ = picture_of(inputs, 0, depth)
            size = () if inputs.main is None else tuple(inputs.main.shape[2:])
            picture = _Picture(pixels, size, "" if pixels is not None else "it is not a picture")
        except ValueError as error:
            picture = _Picture(None, (), str(error))
        self._pictures[key] = picture
        self._bytes += _bytes(picture)
        while self._bytes > CACHE_BYTES and len(self._pictures) > 1:
            self._bytes -= _bytes(self._pictures.popitem(last=False)[1])
        return picture


def _bytes(picture: _Picture) -> int:
    return 0 if picture.pixels is None else picture.pixels.nbytes


def _fractions(numbers: Sequence[float], size: Sequence[int], row: float) -> tuple[float, float]:
    """Return fractions of a picture's height and width; a signal lies at height ``row``."""
    found = [min(max(a / n, 0.0), 1.0) for a, n in zip(numbers, size, strict=True)]
    return (found[-2] if len(found) > 1 else row, found[-1])
