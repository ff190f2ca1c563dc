"""The pictures of a survey's top inputs: what a channel answers to, to be looked at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...draw.input_picture import picture_of
from ...draw.pieces import Piece
from ...hooking.tables import number
from ...run.inputs import ModelInput
from .fingerprint import Fingerprint, names_of
from .layer_survey import RULE, Key, LayerSurvey, Top
from .reading import Reader

NO_PICTURES = (
    "This survey knows its inputs by their numbers only: load it with the data set, "
    "hookviz.load(path, inputs=…), to see them."
)

MOST = 64_000_000
"""Bytes of pictures that are remembered."""

SHOWN = 12
"""How many of a channel have room in a row."""

WHOLE = (0.0, 0.0, 1.0, 1.0)


class Patches:
    """Cuts pieces out of a data set's pictures, each of which is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._names = reader, names_of(reader.data)
        # (index, depth) -> the picture, and the size of the input that it is of; or why there is
        # none.
        self._known: OrderedDict[tuple[int, float], tuple[np.ndarray | None, tuple, str]]
        self._known = OrderedDict()
        self._bytes = 0

    def of(self, layer: LayerSurvey, channel: int, count: int | None = None) -> list[Piece]:
        """The pieces that a channel answers to most, the strongest first."""
        labels = layer.data["labels"][:, channel].tolist()
        tops = layer.top(channel, count)
        return [self._piece(layer, *each) for each in zip(tops, labels, strict=False)]

    def _piece(self, layer: LayerSurvey, top: Top, label: int) -> Piece:
        index, value, position, box = top
        depth = position[0] / max(layer.shape[0] - 1, 1) if len(position) == 3 else 0.0
        picture, size, why = self._picture(index, depth)
        named = str(layer.class_of(label)) if label >= 0 else ""
        name = f"{self._names[index]!r}" if self._names else f"input {index}"
        place = ", ".join(map(str, position))
        words = f"{name}{f' ({named})' if named else ''}: {number(value)} at ({place})"
        shares, centre = WHOLE, None
        if len(size) == len(position) and max(layer.shape) > 1:
            middle = [at + 0.5 for at in position]
            centre = _shares(middle, layer.shape, 0.5)
            if box is not None and layer.field is not None:
                half, (sizes, strides, starts) = len(size), (layer.field[n] for n in RULE[:3])
                rule = zip(starts, strides, sizes, position, strict=True)
                middle = [start + stride * at + n / 2 for start, stride, n, at in rule]
                centre = _shares(middle, size, 0.5)
                shares = _shares(box[:half], size, 0.0) + _shares(box[half:], size, 1.0)
        caption = " ".join(filter(None, (number(value), named)))
        return Piece(picture, shares, centre, caption, "; ".join(filter(None, (words, why))))

    def _picture(self, index: int, depth: float) -> tuple[np.ndarray | None, tuple, str]:
        if (index, depth) in self._known:
            self._known.move_to_end((index, depth))
            return self._known[index, depth]
        found: tuple[np.ndarray | None, tuple, str]
        try:
            inputs = self._reader.input(index)
            picture, _ = picture_of(inputs, 0, depth)
            found = picture, _size(inputs), "" if picture is not None else "it is no picture"
        except ValueError as error:
            found = None, (), str(error)
        self._known[index, depth] = found
        self._bytes += 0 if found[0] is None else found[0].nbytes
        while self._bytes > MOST and len(self._known) > 1:
            _, (old, *_) = self._known.popitem(last=False)
            self._bytes -= 0 if old is None else old.nbytes
        return found


def _size(inputs: ModelInput) -> tuple[int, ...]:
    return () if inputs.main is None else tuple(inputs.main.shape[2:])


def _shares(numbers: Sequence[float], size: Sequence[int], row: float) -> tuple[float, float]:
    """Of a picture's height and width; a signal is one ``row`` of it, a volume a slice."""
    found = [min(max(a / n, 0.0), 1.0) for a, n in zip(numbers, size, strict=True)]
    return (found[-2] if len(found) > 1 else row, found[-1])


class PatchMixin(Mapping[Key, LayerSurvey]):
    """A survey as far as it is looked at: its data set and its patches."""

    mark: Fingerprint
    reader: Reader | None

    @property
    def title(self) -> str:
        """The survey in one line."""
        raise NotImplementedError

    @property
    def dataset(self) -> Any:
        """The data set, as it was given; None for a survey from a file that came without it."""
        return None if self.reader is None else self.reader.data

    @cached_property
    def _patches(self) -> Patches:
        if self.reader is None:
            raise ValueError(NO_PICTURES)
        return Patches(self.reader)

    def patches(self, layer: Key, channel: int, count: int | None = None) -> list[Piece]:
        """The pictures that a channel answers to most, each with the box of what its place sees.

        Parameters
        ----------
        layer : str or (str, int)
        channel : int
        count : int, optional
            How many; all k.

        Returns
        -------
        list of hookviz.draw.pieces.Piece
            The strongest first. ``piece.drawn()`` is what the place sees, as a PIL image,
            ``piece.drawn(whole=True)`` the whole picture with a box around that.

        Raises
        ------
        KeyError, ValueError
            No such layer or channel; or the survey comes from a file, without its data set.
        """
        return self._patches.of(self[layer], channel, count)
