"""Arrays as bytes: unchanged for the canvas, compressed into a budget for a page."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..draw.colours import COLOURS, GAP, averaged, to_levels

Coding = dict[str, Any]
"""The header with which `hookviz/static/arrays.js` reads an array: name, kind, shape, coding."""

PROBE = 1 << 13
"""The size of the samples, in bytes, from which the compressed size is estimated."""

LEVEL = 1
"""zlib's: 3 takes a quarter longer for half a percent, 6 twice as long for two."""

_WHOLE = {
    np.dtype(name): kind
    for name, kind in {"float32": "f4", "float64": "f8", "uint32": "u4", "uint8": "b1"}.items()
}


def raw(name: str, array: np.ndarray, *, planes: bool = False) -> tuple[Coding, bytes]:
    """Encode an array unchanged; ``planes`` groups bytes of equal significance, for compression.

    Examples
    --------
    >>> list(raw("x", np.array([1, 2], np.uint32), planes=True)[1])
    [1, 2, 0, 0, 0, 0, 0, 0]
    """
    kind = _WHOLE[array.dtype]
    data = np.ascontiguousarray(array)
    coding = {"name": name, "kind": kind, "shape": list(array.shape), "bytes": data.nbytes}
    if not planes:
        return coding, data.tobytes()
    return coding | {"planes": True}, _planes(data)


def picture(name: str, pixels: np.ndarray) -> tuple[Coding, bytes]:
    """Encode a picture ``(H, W, 3)``, uint8, as differences from the pixel before.

    >>> list(picture("x", np.array([[[1, 2, 3], [4, 6, 8]]], np.uint8))[1])
    [1, 2, 3, 3, 4, 5]
    """
    coding, _ = raw(name, pixels)
    before = np.zeros((1, pixels.shape[-1]), np.uint8)
    rows = pixels.reshape(-1, pixels.shape[-1])
    return coding | {"step": pixels.shape[-1]}, np.diff(rows, axis=0, prepend=before).tobytes()


def half(name: str, array: np.ndarray, *, planes: bool = False) -> tuple[Coding, bytes]:
    """Encode in half precision, scaled against overflow and underflow."""
    most = np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0)
    scale = 2.0 ** (np.floor(np.log2(most)) - 14) if most > 0 else 1.0
    data = (array / array.dtype.type(scale)).astype(np.float16)
    coding = {"name": name, "kind": "f2", "shape": list(array.shape), "bytes": data.nbytes}
    coding["scale"] = float(scale)
    return (coding | {"planes": True}, _planes(data)) if planes else (coding, data.tobytes())


def quantize(
    name: str,
    maps: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    steps: int = COLOURS,
    *,
    smooth: bool = False,
) -> list[tuple[Coding, bytes]]:
    """Quantize maps ``(C, H, W)`` in steps between each one's ends: ends, then one byte a value.

    252 steps are the palette's levels: colours between these ends do not change. Zeros, NaN and
    infinite values are kept. ``smooth`` tells that differences of neighbours are smaller, which
    is tried otherwise.
    """
    levels = to_levels(maps, low[:, None, None], high[:, None, None])
    if steps != COLOURS:
        coarse = (levels.astype(np.uint16) * steps // COLOURS).astype(np.uint8)
        levels = np.where(levels < COLOURS, coarse, levels)
    np.copyto(levels, GAP, where=maps == 0)
    differences = np.diff(levels.ravel(), prepend=np.uint8(0))
    some = levels.ravel()[: PROBE // 2], differences[: PROBE // 2]
    plain, delta = (1, 0) if smooth else (len(zlib.compress(each.tobytes(), 1)) for each in some)
    coding: Coding = {"name": name, "kind": "u1", "shape": list(maps.shape), "steps": steps}
    coding |= {"bytes": levels.nbytes, "delta": delta < plain}
    ends = raw(f"{name} ends", np.array([low, high], np.float32), planes=True)
    return [ends, (coding, (differences if delta < plain else levels).tobytes())]


def _planes(array: np.ndarray) -> bytes:
    return _bytes_of_values(array).T.tobytes()


def _bytes_of_values(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes as ``(values, bytes of a value)``, the least significant first."""
    own = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return own.reshape(-1).view(np.uint8).reshape(-1, own.itemsize)


@dataclass
class Stream:
    """Arrays that are compressed together."""

    codings: list[Coding]
    data: bytes

    @classmethod
    def of(cls, arrays: Iterable[tuple[Coding, bytes]]) -> Stream:
        every = list(arrays)
        return cls([c for c, _ in every], zlib.compress(b"".join(d for _, d in every), LEVEL))


EXACT, ROUNDED, AVERAGED, OUT = range(4)
"""Quality levels of maps, each smaller than the one before. Rounded maps have the same colours as
exact ones."""


@dataclass
class PackedTensor:
    """Maps or gradients of one layer, at a quality that fits the budget.

    Attributes
    ----------
    name : str
        ``"maps"``, ``"gradients"`` or ``"queries"``.
    values : numpy.ndarray
        ``(C, H, W)``.
    low, high : numpy.ndarray
        The range of each map, ``(C,)``.
    percentiles : numpy.ndarray or None
        ``(2, C)``: rounded to single precision where the values are rounded.
    first : bool
        Of the layer that is shown first: it is reduced last.
    quality : int
    """

    name: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    percentiles: np.ndarray | None = None
    first: bool = False
    quality: int = EXACT
    _made: dict[int, Stream] = field(default_factory=dict)
    _guessed: dict[int, int] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        if self.quality not in self._made:
            arrays = [*self._arrays(), *self._percentiles()]
            self._made = {self.quality: Stream.of(arrays)}  # one at a time
        return self._made[self.quality]

    @property
    def size(self) -> int:
        """An estimate of the bytes of `stream`, for a fraction of its work."""
        if self.quality not in self._guessed:
            exact = sum(len(data) for _, data in self._percentiles())  # hardly compressed
            self._guessed[self.quality] = self._estimated() + exact
        return self._guessed[self.quality]

    def _estimated(self) -> int:
        if self.quality == OUT:
            return 0
        if self.quality == EXACT:  # most bytes, and not all have to be arranged
            return _guess_planes(self.values)
        return _guess_levels(self.values, self.low, self.high, *self._reduction)

    def _percentiles(self) -> list[tuple[Coding, bytes]]:
        if self.percentiles is None or self.quality == OUT:
            return []
        kind = np.float64 if self.quality == EXACT else np.float32
        return [raw(f"{self.name} percentiles", self.percentiles.astype(kind), planes=True)]

    @property
    def _reduction(self) -> tuple[int, int]:
        """The factor by which maps are averaged, and the steps."""
        return (2, 64) if self.quality == AVERAGED else (1, COLOURS)

    def _arrays(self) -> list[tuple[Coding, bytes]]:
        if self.quality == OUT:
            return []
        if self.quality == EXACT:
            return [raw(self.name, self.values, planes=True)]
        factor, steps = self._reduction
        return quantize(self.name, averaged(self.values, factor), self.low, self.high, steps)

    def can(self, quality: int) -> bool:
        """Return whether ``quality`` would shrink this part: small maps are not averaged."""
        small = quality == AVERAGED and min(self.values.shape[1:]) < 14
        return quality > self.quality and not small


@dataclass
class PackedTerms(PackedTensor):
    """A layer's weights, and what it was given, which are of use together.

    Attributes
    ----------
    values : numpy.ndarray
        The weights, ``(outputs, inputs of a group, taps)``; ``low`` and ``high`` are of an output.
    given : numpy.ndarray
        ``(inputs, H, W)``.
    """

    given: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0), np.float32))

    def _estimated(self) -> int:
        if self.quality in (EXACT, OUT):
            return super()._estimated() + (
                _guess_planes(self.given) if self.quality == EXACT else 0
            )
        return super()._estimated() + _guess_levels(self.given, *ends_of(self.given))

    def _arrays(self) -> list[tuple[Coding, bytes]]:
        if self.quality == OUT:
            return []
        if self.quality == EXACT:
            return [raw("weight", self.values, planes=True), raw("given", self.given, planes=True)]
        return [
            *quantize("weight", self.values, self.low, self.high),
            *quantize("given", self.given, *ends_of(self.given)),
        ]

    def can(self, quality: int) -> bool:
        return quality > self.quality and quality != AVERAGED


def ends_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest finite number of each first index, never the same.

    >>> ends_of(np.array([[[1.0, 3.0]], [[np.nan, 0.0]]], np.float32))[0].tolist()
    [1.0, 0.0]
    """
    rows = values.reshape(len(values), -1)
    known = np.isfinite(rows)
    low = np.where(known, rows, np.inf).min(1)
    high = np.where(known, rows, -np.inf).max(1)
    low, high = np.where(np.isfinite(low), low, 0), np.where(np.isfinite(high), high, 0)
    return low, np.maximum(high, low + np.maximum(np.abs(low) * 1e-6, 1e-20))


QUALITY_LEVELS = (
    ("queries", ROUNDED, "queries are rounded to 252 steps, as far as they are not shown"),
    ("gradients", ROUNDED, "gradients are rounded to 252 steps between their least and largest"),
    ("maps", ROUNDED, "maps are rounded to 252 steps between their least and largest value"),
    ("queries", OUT, "queries other than the shown one are left out: they need the notebook"),
    ("terms", ROUNDED, "weights and inputs for “why?” are rounded to 252 steps"),
    ("gradients", AVERAGED, "gradients are averaged over 2×2 positions, in 64 steps"),
    ("maps", AVERAGED, "maps are averaged over 2×2 positions, in 64 steps"),
    ("gradients", OUT, "gradients are left out"),
    ("terms", OUT, "weights and inputs for “why?” are left out"),
    ("maps", OUT, "maps are left out"),
)
"""The reductions in order; each is applied from the layer with the most values on."""


def fit_to_budget(parts: list[PackedTensor], budget: int) -> list[str]:
    """Lower the quality of parts until they fit the budget in bytes; return the reductions."""
    # Among equals more channels first: large maps lose most by averaging.
    order = sorted(parts, key=lambda part: (part.first, -part.values.size, part.values.shape[1]))
    aim = budget
    while True:
        _lower(order, aim)
        with ThreadPoolExecutor() as pool:  # zlib lets other threads run
            size = sum(pool.map(lambda part: len(part.stream.data), parts))
        if size <= budget or all(part.quality == OUT for part in parts):
            return _said(parts)
        aim = min(aim - 1, int(0.99 * aim * budget / size))  # the estimate was too small


def _lower(order: list[PackedTensor], aim: int) -> None:
    """Lower the quality of one part after another until the estimate is within ``aim``."""
    steps, start = _steps(order), [part.quality for part in order]

    def fits(count: int) -> bool:
        """Take so many of the steps; return whether they are enough."""
        for part, quality in [*zip(order, start, strict=True), *steps[:count]]:
            part.quality = quality
        return sum(part.size for part in order) <= aim

    # Most estimates are of qualities that are passed over: halving leaves them out. Numbers hardly
    # ever shrink to half of their bytes: those of a large network are not tried as they are.
    small = sum(part.values.nbytes for part in order) < 2 * aim
    fits(0 if small and fits(0) else bisect_left(range(len(steps)), True, key=fits))


def _steps(order: list[PackedTensor]) -> list[tuple[PackedTensor, int]]:
    """Return all reductions of parts, in their order."""
    steps: list[tuple[PackedTensor, int]] = []
    # The page opens with maps and gradient of one layer: they are left out when all others are.
    for last in (False, True):
        for name, quality, _ in QUALITY_LEVELS:
            for part in order:
                kept = part.first and quality == OUT and name in ("maps", "gradients")
                if part.name == name and part.can(quality) and kept == last:
                    steps.append((part, quality))
    return steps


def _guess_levels(
    values: np.ndarray, low: np.ndarray, high: np.ndarray, factor: int = 1, steps: int = COLOURS
) -> int:
    """Estimate as `_guess` does the size of rounded maps, from some of them."""
    count = -(-PROBE // max(math.prod(values.shape[1:]), 1))
    middle, end = (len(values) - count) // 2, len(values) - count
    if 3 * count >= len(values):
        chosen = np.arange(len(values))
    else:
        chosen = np.concatenate([np.arange(at, at + count) for at in (0, middle, end)])
    part = quantize("", averaged(values[chosen], factor), low[chosen], high[chosen], steps)
    size = sum(_guess(data) for _, data in part)
    return size * len(values) // max(len(chosen), 1)


def _guess(data: bytes) -> int:
    """Estimate the compressed size from samples at the beginning, middle and end."""
    if len(data) <= 3 * PROBE:
        return len(zlib.compress(data, LEVEL))
    middle = len(data) // 2
    parts = data[:PROBE], data[middle : middle + PROBE], data[-PROBE:]
    return len(data) * sum(len(zlib.compress(part, LEVEL)) for part in parts) // (3 * PROBE)


def _guess_planes(array: np.ndarray) -> int:
    """Estimate as `_guess` does the size of an array whose bytes are grouped by significance."""
    if array.nbytes <= 3 * PROBE:
        return _guess(_planes(array))
    values = _bytes_of_values(array)
    parts = values[:PROBE, 0], values[:PROBE, values.shape[1] // 2], values[-PROBE:, -1]
    packed = sum(len(zlib.compress(part.tobytes(), LEVEL)) for part in parts)
    return array.nbytes * packed // sum(map(len, parts))


def _said(parts: list[PackedTensor]) -> list[str]:
    """Return a sentence for each reduction, with the number of layers."""
    found = []
    for name, quality, words in QUALITY_LEVELS:
        own = [part for part in parts if part.name == name]
        count = sum(part.quality == quality for part in own)
        if count:
            where = "" if count == len(own) else f" of {count} of {len(own)} layers"
            first = "inputs" if name == "terms" else name
            found.append(f"{words.replace(first, first + where, 1)}")
    return found
