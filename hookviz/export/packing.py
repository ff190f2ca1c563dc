"""Arrays as bytes: unchanged for the canvas, compressed for a page at the best level that fits."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

import numpy as np

from ..draw.colours import GAP, averaged, to_levels
from ..view.messages import Coding, as_json

Packed = tuple[Coding, bytes]
"""An array's bytes, and the words with which `web/arrays.ts` reads them."""

PROBE = 1 << 13
"""The size of the samples, in bytes, that decide whether differences compress better."""

COMPRESSION = 1
"""zlib's: 3 takes a quarter longer for half a percent, 6 twice as long for two."""

_WHOLE = {
    np.dtype(name): kind
    for name, kind in {"float32": "f4", "float64": "f8", "uint32": "u4", "uint8": "b1"}.items()
}


def raw(name: str, array: np.ndarray, *, planes: bool = False) -> Packed:
    """Encode an array unchanged; ``planes`` groups bytes of equal significance, for compression.

    Examples
    --------
    >>> list(raw("x", np.array([1, 2], np.uint32), planes=True)[1])
    [1, 2, 0, 0, 0, 0, 0, 0]
    """
    return _coded(name, _WHOLE[array.dtype], array, planes)


def _coded(
    name: str, kind: str, array: np.ndarray, planes: bool, scale: float | None = None
) -> Packed:
    shape, size = list(array.shape), array.nbytes
    coding = Coding(
        name=name, kind=kind, shape=shape, bytes=size, scale=scale, planes=planes or None
    )
    return coding, _planes(array) if planes else array.tobytes()


def picture(name: str, pixels: np.ndarray) -> Packed:
    """Encode a picture ``(H, W, 3)``, uint8, as differences from the pixel before.

    >>> list(picture("x", np.array([[[1, 2, 3], [4, 6, 8]]], np.uint8))[1])
    [1, 2, 3, 3, 4, 5]
    """
    coding, _ = raw(name, pixels)
    before = np.zeros((1, pixels.shape[-1]), np.uint8)
    rows = pixels.reshape(-1, pixels.shape[-1])
    differences = np.diff(rows, axis=0, prepend=before)
    return replace(coding, step=pixels.shape[-1]), differences.tobytes()


def half(name: str, array: np.ndarray, *, planes: bool = False) -> Packed:
    """Encode in half precision, scaled against overflow and underflow."""
    most = np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0)
    scale = 2.0 ** (np.floor(np.log2(most)) - 14) if most > 0 else 1.0
    data = (array / array.dtype.type(scale)).astype(np.float16)
    return _coded(name, "f2", data, planes, float(scale))


def quantize(
    name: str,
    maps: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    smooth: bool = False,
) -> list[Packed]:
    """Round maps ``(C, H, W)`` to 252 levels between each one's ends: ends, then one byte a value.

    The steps are the palette's levels, so colours between these ends do not change. Zeros, NaN and
    infinite values are kept. ``smooth`` states that neighbours differ little; otherwise a sample
    decides.
    """
    levels = to_levels(maps, low[:, None, None], high[:, None, None])
    np.copyto(levels, GAP, where=maps == 0)
    differences = np.diff(levels.ravel(), prepend=np.uint8(0))
    some = levels.ravel()[: PROBE // 2], differences[: PROBE // 2]
    plain, delta = (1, 0) if smooth else (len(zlib.compress(each.tobytes(), 1)) for each in some)
    coding, data = _coded(name, "u1", differences if delta < plain else levels, planes=False)
    ends = raw(f"{name} ends", np.array([low, high], np.float32), planes=True)
    return [ends, (replace(coding, shape=list(maps.shape), delta=delta < plain), data)]


def _planes(array: np.ndarray) -> bytes:
    """Return an array's bytes, all least significant ones first."""
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
    return values.view(np.uint8).reshape(-1, values.itemsize).T.tobytes()


@dataclass
class Stream:
    """Arrays that are compressed together."""

    codings: list[Coding]
    data: bytes

    @classmethod
    def of(cls, arrays: Iterable[Packed]) -> Stream:
        every = list(arrays)
        return cls([c for c, _ in every], zlib.compress(b"".join(d for _, d in every), COMPRESSION))

    @property
    def size(self) -> int:
        """The number of bytes in a page: base64, and the codings as JSON."""
        return 4 * math.ceil(len(self.data) / 3) + len(json.dumps(as_json(self.codings))) + 10


class Level(NamedTuple):
    """One of three qualities of a page's numbers.

    ``most`` is the number of values that a layer's maps may have at the level ``"reduced"``: larger
    ones are averaged over squares of positions.
    """

    kind: Literal["exact", "half", "reduced"]
    most: int = 0

    def factor(self, shape: tuple[int, ...]) -> int:
        """Return the side of the squares over which maps ``(C, H, W)`` are averaged.

        >>> Level("reduced", 100_000).factor((64, 112, 112)), Level("exact").factor((9, 99, 99))
        (3, 1)
        """
        channels, height, width = shape
        # Below seven positions a side nothing would be recognised.
        largest = max(1, max(height, width) // 7) if self.kind == "reduced" else 1
        return next(
            side
            for side in count(1)
            if side == largest
            or channels * math.ceil(height / side) * math.ceil(width / side) <= self.most
        )


EXACT, HALF, SMALLEST = Level("exact"), Level("half"), Level("reduced", 0)


@dataclass(eq=False)
class MapsPart:
    """Maps or gradients of a layer.

    Attributes
    ----------
    block : str
        The name of the page's element in which they are.
    name : str
        ``"maps"`` or ``"gradients"``.
    values : numpy.ndarray
        ``(C, H, W)``.
    low, high : numpy.ndarray
        The range of each map, ``(C,)``.
    percentiles : numpy.ndarray
        ``(2, C)``.
    """

    block: str
    name: str
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    percentiles: np.ndarray

    def stream(self, level: Level) -> Stream:
        """Encode and compress the numbers at a level."""
        kind = np.float64 if level == EXACT else np.float32
        percentiles = raw(f"{self.name} percentiles", self.percentiles.astype(kind), planes=True)
        if level == EXACT:
            maps = [raw(self.name, self.values, planes=True)]
        elif level == HALF:
            maps = [half(self.name, self.values, planes=True)]
        else:
            reduced = averaged(self.values, level.factor(self.values.shape))
            maps = quantize(self.name, reduced, self.low, self.high)
        return Stream.of([*maps, percentiles])


Streams = dict[MapsPart, Stream]


def compressed(parts: Sequence[MapsPart], level: Level, room: float) -> Streams | None:
    """Compress parts; None as soon as they take more than ``room`` bytes of a page."""
    made: Streams = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # zlib releases the interpreter's lock
        streams = pool.map(lambda part: part.stream(level), parts)
        for part, stream in zip(parts, streams, strict=True):
            made[part] = stream
            room -= stream.size
            if room < 0:
                pool.shutdown(cancel_futures=True)
                return None
    return made


def size_of(streams: Streams) -> int:
    """Return the number of bytes that streams take in a page."""
    return sum(stream.size for stream in streams.values())


def best_level(parts: Sequence[MapsPart], room: float) -> tuple[Level, Streams] | None:
    """Compress parts at the best level at which they fit; None if there is none."""
    for level in (EXACT, HALF):
        # One layer's size shows at once where the whole would be more than twice too large.
        share = parts[0].values.size / sum(part.values.size for part in parts) if parts else 1
        if parts and parts[0].stream(level).size > 2 * share * room:
            continue
        streams = compressed(parts, level, room)
        if streams is not None:
            return level, streams
    level = Level("reduced", fair_share(parts, room))
    streams = compressed(parts, level, room)
    return None if streams is None else (level, streams)


def fair_share(parts: Sequence[MapsPart], room: float) -> int:
    """Return how many rounded values each part may have; large ones get what small ones leave.

    Rounded values hardly compress: each takes a byte, or 4/3 in a page.
    """
    # Beside the values, a part has names and sizes, and four float32 for each channel.
    left = 0.74 * room - sum(250 + 16 * len(part.values) for part in parts)
    sizes = sorted(part.values.size for part in parts)
    for number, size in enumerate(sizes):
        share = max(0, int(left / (len(sizes) - number)))
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)
