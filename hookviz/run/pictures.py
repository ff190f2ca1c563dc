"""Read a picture from a path, a URL, bytes, an open file, a PIL image or an array.

Every loader in `LOADERS` returns a `LoadedPicture`: upright, the first frame, in its original mode.
`LoadedPicture.converted` gives it the number of channels that a model takes.
"""

from __future__ import annotations

import io
import os
import stat
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, url2pathname, urlopen

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..hooking.interrupts import Block

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Number of channels -> the mode of a picture with these channels of 8 bits."""

MAX_DOWNLOAD_BYTES = 200_000_000
MAX_DOWNLOAD_SECONDS = 30
MAX_SHOWN_SIDE = 640
"""The longest side of `LoadedPicture.small`, in pixels."""


@dataclass(frozen=True)
class LoadedPicture:
    """A picture with the mode and precision of its file or array.

    Attributes
    ----------
    image : PIL.Image.Image
        Upright, the first frame, in its original mode.
    name : str
        The file's name, or the type of the source.
    deep : numpy.ndarray or None
        Float32 ``(C, H, W)`` from 0 to 1, if the picture has more than 8 bits.
    note : str
        How the values were scaled, or a loss of precision; usually empty.
    """

    image: Image.Image
    name: str = ""
    deep: np.ndarray | None = None
    note: str = ""

    def rgb(self) -> Image.Image:
        """Return the picture as RGB with 8 bits, transparent parts over white."""
        if self.deep is not None:
            levels = np.round(self.deep * 255).astype(np.uint8)
            channels_last = levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
            return LoadedPicture(Image.fromarray(channels_last)).rgb()
        if not self.image.has_transparency_data:
            return self.image.convert("RGB")
        ground = Image.new("RGBA", self.image.size, "white")
        return Image.alpha_composite(ground, self.image.convert("RGBA")).convert("RGB")

    def in_channels(self, channels: int) -> Image.Image:
        """Return the picture as 8 bits in 1 (gray), 3 (RGB) or 4 (RGBA) channels."""
        if channels == 4 and self.image.has_transparency_data:
            return self.image.convert("RGBA")
        if channels == 1 and self.image.mode == "L" and not self.image.has_transparency_data:
            return self.image
        return self.rgb().convert(MODES[channels])

    def converted(self, channels: int) -> Image.Image | Tensor:
        """Return the picture in as many channels, without loss.

        It is a tensor ``(C, H, W)`` from 0 to 1 if it has more than 8 bits, because PIL has no
        mode for such colours. torchvision's transforms and presets take both.
        """
        if self.deep is None:
            return self.in_channels(channels)
        values = torch.from_numpy(self.deep)
        if channels == 1 and len(values) > 1:
            luma = torch.tensor([0.299, 0.587, 0.114]).view(-1, 1, 1)  # as PIL's convert("L")
            return (values[:3] * luma).sum(0, keepdim=True)
        if len(values) == 1 and channels > 1:
            values = values.expand(3, -1, -1)
        if channels == 4 and len(values) == 3:
            values = torch.cat([values, torch.ones_like(values[:1])])
        return values[:channels]

    def small(self) -> Image.Image:
        """Return the picture as RGB, shrunk to the size of a panel."""
        picture = self.rgb()
        picture.thumbnail((MAX_SHOWN_SIDE, MAX_SHOWN_SIDE))
        return picture


def load_picture(source: Any) -> LoadedPicture:
    """Read a picture of any kind in `LOADERS`.

    Values of more than 8 bits keep their precision. Integers of 16 bits are scaled so that 65535 is
    white; if they use less than half of that range, as 12-bit scans do, they are stretched from the
    smallest to the largest, with a note.

    Parameters
    ----------
    source
        A path (``~`` is the home folder), a URL of a file, a PIL image, an array, bytes, or a file
        that is open for reading bytes.

    Raises
    ------
    FileNotFoundError
        The file is missing.
    RuntimeError
        The URL could not be downloaded.
    ValueError
        Not a picture, broken, too large (a decompression bomb), not a regular file, or an array of
        a wrong shape, type or range.
    """
    for accepts, load in LOADERS:
        if accepts(source):
            return load(source)
    raise TypeError(
        f"A value of type {type(source).__name__} is not a picture: give a path or a PIL image."
    )


def is_picture(source: Any) -> bool:
    """Return whether this may be a picture, without opening it."""
    return any(accepts(source) for accepts, _ in LOADERS)


def name_of(source: Any) -> str:
    """Return the file's name, or the type of the source."""
    if isinstance(source, (str, os.PathLike)):
        return str(os.fspath(source))
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else type(source).__name__


# Files


class FileBytes(bytes):
    """A file's content, with its name for messages."""

    name: str = ""


def expanded(path: str | os.PathLike) -> str:
    """Return a path with the home folder in place of ``~``."""
    text = os.fspath(path)
    return str(Path(text).expanduser()) if text.startswith("~") else text


def _from_path(path: str | os.PathLike) -> LoadedPicture:
    name, path = name_of(path), expanded(path)
    try:
        kind = Path(path).stat().st_mode
    except (OSError, ValueError):
        kind = stat.S_IFREG  # opening it below raises the error to report
    # A pipe or a device may never end; opening it already waits for a writer.
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise ValueError(f"{name!r} is a pipe or a device, not a file: give the path of a picture.")
    return _opened(path, name)


def _from_bytes(source: bytes | bytearray | memoryview) -> LoadedPicture:
    data = bytes(source)
    if isinstance(source, FileBytes):
        return _opened(io.BytesIO(data), source.name)
    start = repr(data) if len(data) <= 20 else f"{data[:20]!r}…"
    return _opened(io.BytesIO(data), type(source).__name__, f"{start} ({len(data)} bytes)")


def _from_open_file(file: Any) -> LoadedPicture:
    return _opened(file, name_of(file))


def _opened(file: Any, name: str, named: str = "") -> LoadedPicture:
    """Read a picture; ``named`` describes the file in errors, where that is not by its name."""
    named = named or repr(name)
    try:
        with Block([warnings.catch_warnings()]):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                return _of_image(image, name)
    except FileNotFoundError:
        raise FileNotFoundError(f"Missing file {named}: check the path.") from None
    except IsADirectoryError:
        raise ValueError(
            f"{named} is a folder: give the path of one picture, or a list of paths."
        ) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ValueError(f"{named} is too large to open safely: {error}") from None
    except Exception as error:  # Pillow raises many types for broken files, also MemoryError
        raise _unreadable(named, error) from None


def _unreadable(named: str, error: Exception) -> ValueError:
    reason = str(error) or type(error).__name__
    if isinstance(error, UnidentifiedImageError):  # Pillow's message holds the file's address
        reason = "not a format that Pillow reads"
    return ValueError(
        f"{named} cannot be read as a picture ({reason}): give a whole PNG, JPEG or other "
        "image file."
    )


# URLs


def is_url(source: Any) -> bool:
    """Return whether this is the URL of a file."""
    schemes = "http://", "https://", "file://", "data:image/"
    return isinstance(source, str) and source.lower().startswith(schemes)


def _from_url(url: str) -> LoadedPicture:
    short = repr(url if len(url) < 200 else f"{url[:100]}…")
    if url.lower().startswith("file://"):
        # Not through urlopen, which would read pipes and devices.
        return _from_path(url2pathname(urlsplit(url).path))
    try:
        data = _downloaded_in_time(url)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error).strip() or type(error).__name__
        raise RuntimeError(
            f"{short} could not be downloaded ({reason}): give the path of a file."
        ) from None
    return _opened(io.BytesIO(data), url, short)


def _downloaded_in_time(url: str) -> bytes:
    """Download a file in a thread, which is left alone when the time is over.

    A socket's own timeout starts again with each byte, also of the header.
    """
    result: list[bytes | Exception] = []

    def download() -> None:
        try:
            result.append(_downloaded(url))
        except Exception as error:  # raised in the caller's thread
            if isinstance(error, HTTPError):  # it holds the open connection
                error.close()
            result.append(error)

    thread = Thread(target=download, daemon=True)
    thread.start()
    thread.join(MAX_DOWNLOAD_SECONDS)
    answer = result[0] if result else TimeoutError(f"more than {MAX_DOWNLOAD_SECONDS} seconds")
    if isinstance(answer, Exception):
        raise answer
    return answer


def _downloaded(url: str) -> bytes:
    """Download a file, with limits on its size and on the time of its body."""
    # A browser quotes spaces and umlauts too. Some servers refuse a client without a name.
    quoted = quote(url, safe="%/:=&?~#+!$,;'@()*[]")
    request = Request(quoted, headers={"User-Agent": "hookviz"})
    deadline, data = time.monotonic() + MAX_DOWNLOAD_SECONDS, bytearray()
    with urlopen(request, timeout=MAX_DOWNLOAD_SECONDS) as answer:
        # read() would wait for all bytes, read1() returns those that have arrived.
        while chunk := answer.read1(65536):
            data += chunk
            if len(data) > MAX_DOWNLOAD_BYTES:
                raise ValueError(f"it is larger than {MAX_DOWNLOAD_BYTES / 1e6:g} MB")
            if time.monotonic() > deadline:
                raise TimeoutError(f"more than {MAX_DOWNLOAD_SECONDS} seconds")
    return bytes(data)


# PIL images


def _from_image(image: Image.Image) -> LoadedPicture:
    try:
        return _of_image(image, name_of(image))
    except Exception as error:  # the user has opened it, but the pixels are read only now
        name = getattr(image, "filename", "")
        raise _unreadable(repr(name) if name else "The image", error) from None


def _of_image(image: Image.Image, name: str) -> LoadedPicture:
    # Pillow reads PNG and TIFF files with 16-bit colours as 8 bits; the raw mode tells them apart.
    raw = [str(tile[3]) for tile in getattr(image, "tile", ())]
    lossy = not image.mode.startswith("I") and any(";16" in mode for mode in raw)
    image = ImageOps.exif_transpose(image)
    if not image.mode.startswith("I") and image.mode != "F":
        return LoadedPicture(
            image, name, note="16-bit colours were read as 8 bits" if lossy else ""
        )
    values = np.asarray(image, np.float32)
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(f"{bad} values are NaN or infinite")
    scaled, note = _scaled(values, white=1.0 if image.mode == "F" else 65535.0)
    return LoadedPicture(image, name, scaled[None], note)


def _scaled(values: np.ndarray, white: float) -> tuple[np.ndarray, str]:
    """Scale values to 0 to 1 in float32; return a note if they were stretched.

    Floats (``white`` 1) stay unchanged unless they leave 0 to 1.

    >>> _scaled(np.array([0.0, 1000.0, 4000.0]), 65535)
    (array([0.  , 0.25, 1.  ], dtype=float32), 'values 0 to 4000 stretched to 0 to 1')
    """
    low, high = float(values.min()), float(values.max())
    enough = white == 1 or low == high or high - low >= white // 2
    if low >= 0 and high <= white and enough:
        return (values / white).astype(np.float32), ""
    stretched = (values - low) / (high - low or 1.0)
    return stretched.astype(np.float32), f"values {low:g} to {high:g} stretched to 0 to 1"


# Arrays


def _from_array(array: np.ndarray) -> LoadedPicture:
    """Make a picture of ``(H, W)``, ``(H, W, C)`` or ``(C, H, W)`` with 1, 3 or 4 channels."""
    shape, name = array.shape, type(array).__name__
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise ValueError(
                f"The array has {np.ma.count_masked(array)} masked values of {array.size}: fill "
                "them first, for example with array.filled(0)."
            )
        array = array.data
    if array.ndim == 3 and shape[2] not in MODES and shape[0] in MODES:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in shape:
        raise ValueError(
            f"An array of shape {shape} is not a picture: give (H, W), (H, W, 3) or (3, H, W), or "
            "a tensor (N, C, H, W)."
        )
    if array.dtype == bool:
        return LoadedPicture(Image.fromarray(array.astype(np.uint8) * 255), name)
    if array.dtype.kind not in "uif":
        raise ValueError(
            f"An array of type {array.dtype} is not a picture: give uint8, uint16 or floats."
        )
    sixteen = (array.dtype.kind, array.dtype.itemsize) == ("u", 2)
    white = 1 if array.dtype.kind == "f" else 65535 if sixteen else 255
    _refuse_range(array, white)
    if white == 255:
        return LoadedPicture(Image.fromarray(array.astype(np.uint8)), name)
    values, note = _scaled(array.astype(np.float32), white)
    if array.ndim == 3:  # PIL has no mode for these
        image = Image.fromarray(np.round(values * 255).astype(np.uint8))
        return LoadedPicture(image, name, values.transpose(2, 0, 1), note)
    image = Image.fromarray(array.astype(np.uint16 if sixteen else np.float32))
    return LoadedPicture(image, name, values[None], note)


def _refuse_range(array: np.ndarray, white: int) -> None:
    if not np.isfinite(array).all():
        raise ValueError(
            f"The picture has {int((~np.isfinite(array)).sum())} NaN or infinite values of "
            f"{array.size}: clean it first, for example with numpy.nan_to_num."
        )
    if array.min() < 0 or array.max() > white:
        raise ValueError(
            f"A picture of type {array.dtype} has values from {array.min():g} to {array.max():g}: "
            f"scale them to 0 to {white}, or give a tensor, torch.from_numpy(array), to use them "
            "unchanged."
        )


LOADERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], LoadedPicture]], ...] = (
    (is_url, _from_url),
    (lambda source: isinstance(source, (str, os.PathLike)), _from_path),
    (lambda source: isinstance(source, (bytes, bytearray, memoryview)), _from_bytes),
    (lambda source: isinstance(source, Image.Image), _from_image),
    (
        lambda source: (
            isinstance(source, np.ndarray) and source.ndim < 4 and source.dtype.kind not in "USO"
        ),
        _from_array,
    ),
    (lambda source: hasattr(source, "read"), _from_open_file),
)
"""For each kind of picture, a test of the source and the function that reads it."""
