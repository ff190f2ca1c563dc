"""Pictures of any kind: which of the things that are given are pictures, and their reading."""

from __future__ import annotations

import io
import warnings
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

CHANNELS = 1, 3, 4
"""The numbers of channels that a picture may have: gray, RGB, RGB and alpha."""

LARGEST_FILE = 200_000_000
"""The most bytes that are read from a URL."""


def pictures_in(inputs: Any) -> list[Any] | None:
    """Return the pictures that were given, one or a batch; None for what holds none.

    Parameters
    ----------
    inputs
        A path, a URL, a PIL image, an array, bytes or an open file is one picture. A list of these,
        an array ``(N, H, W, C)`` or ``(N, C, H, W)``, and a column of a data frame are a batch.

    Examples
    --------
    >>> pictures_in(["cat.jpg", "dog.jpg"])
    ['cat.jpg', 'dog.jpg']
    >>> len(pictures_in(np.zeros((5, 8, 8, 3), np.uint8)))
    5
    >>> pictures_in(torch.zeros(1, 3, 8, 8)) is None
    True
    """
    if _is_picture(inputs):
        return [inputs]
    if isinstance(inputs, np.ndarray):
        return list(inputs)
    if hasattr(inputs, "to_numpy"):  # a column of pandas or polars
        column = inputs.to_numpy()
        if column.ndim != 1:
            raise TypeError(
                f"Cannot make an input of a {type(inputs).__name__}: give one column of paths, "
                "such as frame['path']."
            )
        return pictures_in(column.tolist())
    if isinstance(inputs, list):
        if not inputs:
            raise ValueError("The input is an empty list: give one picture at least.")
        as_arrays = [_array_of_bytes(each) for each in inputs]
        if all(_is_picture(each) for each in as_arrays):
            return as_arrays
    return None


def pictures_of_tensor(given: Tensor) -> list[np.ndarray] | None:
    """Return the pictures in a tensor that has a picture's values; None if it does not.

    Such are bytes ``(C, H, W)``, ``(H, W, C)`` or a batch of these, and floats from 0 to 1 with the
    channels last.
    """
    bytes_, shape = given.dtype == torch.uint8, given.shape
    if given.ndim not in (3, 4) or not given.numel():
        return None
    last = shape[-1] in CHANNELS and shape[-3] not in CHANNELS
    first = shape[-3] in CHANNELS
    if not last and not (bytes_ and first):
        return None
    if not bytes_:
        if not given.is_floating_point() or not (given.min() >= 0 and given.max() <= 1):
            return None
        given = given.float()
    array = given.detach().cpu().numpy()
    return [array] if array.ndim == 3 else list(array)


def _array_of_bytes(each: Any) -> Any:
    """Convert a tensor of bytes to an array; detection models take lists of floats."""
    if isinstance(each, Tensor) and each.dtype == torch.uint8:
        return each.detach().cpu().numpy()
    return each


def _is_picture(given: Any) -> bool:
    if isinstance(given, np.ndarray):
        return given.dtype.kind not in "USO" and given.ndim < 4
    kinds = str, PathLike, Image.Image, bytes, bytearray, memoryview
    return isinstance(given, kinds) or hasattr(given, "read")


def name_of(picture: Any) -> str:
    """Return a file's name, or which kind of thing was given."""
    if isinstance(picture, (str, PathLike)):
        return str(fspath(picture))
    name = getattr(picture, "name", None)
    return name if isinstance(name, str) else type(picture).__name__


def load_picture(picture: Any) -> Image.Image:
    """Read a picture of any kind as RGB: upright, the first frame, alpha over white.

    More than 8 bits are scaled, not clipped: 65535 is white for whole numbers, 1 for floats; or
    the largest value, if that is more. ``ValueError`` for what is not a picture, broken, too large
    (a decompression bomb), or an array of a wrong shape, type or range.

    Parameters
    ----------
    picture
        A path (``~`` is the home folder), a URL of a file, a PIL image, an array, bytes, or a file
        that is open for reading bytes.
    """
    if isinstance(picture, np.ndarray):
        return load_picture(Image.fromarray(_picture_array(picture)))
    if isinstance(picture, Image.Image):
        try:
            return _as_rgb(picture)
        except Exception as error:  # one that Pillow opened, but has not read yet
            raise _unreadable(getattr(picture, "filename", "") or "The image", error) from None
    name = name_of(picture)
    if is_url(picture):
        picture = io.BytesIO(_downloaded(str(picture)))
    elif isinstance(picture, (str, PathLike)):
        picture = expanded(picture)
    elif isinstance(picture, (bytes, bytearray, memoryview)):
        picture = io.BytesIO(bytes(picture))
    return _opened(picture, name)


def expanded(path: str | PathLike) -> str:
    """Return a path with the home folder in place of ``~``."""
    text = fspath(path)
    return str(Path(text).expanduser()) if text.startswith("~") else text


def is_url(picture: Any) -> bool:
    """Return whether this is the URL of a file."""
    schemes = "http://", "https://", "file://", "data:image/"
    return isinstance(picture, str) and picture.lower().startswith(schemes)


def _downloaded(url: str) -> bytes:
    try:
        # Some servers refuse a client without a name.
        with urlopen(Request(url, headers={"User-Agent": "hookviz"}), timeout=30) as answer:
            data = answer.read(LARGEST_FILE + 1)
    except (URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise RuntimeError(
            f"{_short(url)} could not be downloaded ({why}): give the path of a file."
        ) from None
    if len(data) > LARGEST_FILE:
        raise ValueError(
            f"{_short(url)} is larger than 200 MB: give the path of a smaller picture."
        )
    return data


def _short(url: str) -> str:
    return repr(url if len(url) < 200 else f"{url[:100]}…")


def _opened(file: Any, name: str) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as opened:
                return _as_rgb(opened)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {name!r}: check the path.") from None
    except IsADirectoryError:
        raise ValueError(
            f"{name!r} is a folder: give the path of one picture, or a list of paths."
        ) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ValueError(f"{name!r} is too large to open safely: {error}") from None
    except Exception as error:  # what broken files make Pillow raise is of many kinds
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> ValueError:
    reason = str(error) or type(error).__name__
    return ValueError(
        f"{name!r} cannot be read as a picture ({reason}): give a whole PNG, JPEG or other "
        "image file."
    )


def _as_rgb(image: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":  # 16 and 32 bits
        values = np.asarray(image, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"{int((~np.isfinite(values)).sum())} values are NaN or infinite")
        top = max(1.0 if image.mode == "F" else 65535.0, float(values.max()))
        image = Image.fromarray(np.round(np.clip(values / top, 0, 1) * 255).astype(np.uint8))
    if image.has_transparency_data:
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA"))
    return image.convert("RGB")


def _picture_array(array: np.ndarray) -> np.ndarray:
    """Any picture-like array as uint8 ``(H, W)`` or ``(H, W, 3 or 4)``; channels may be first."""
    shape = array.shape
    if array.ndim == 3 and shape[2] not in CHANNELS and shape[0] in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in shape:
        raise ValueError(
            f"An array of shape {shape} is no picture: give (H, W), (H, W, 3) or (3, H, W), or a "
            "tensor (N, C, H, W)."
        )
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "uif":
        raise ValueError(
            f"An array of type {array.dtype} is no picture: give uint8, uint16 or floats."
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError(
                f"The picture has {int((~np.isfinite(array)).sum())} NaN or infinite values of "
                f"{array.size}: clean it first, for example with numpy.nan_to_num."
            )
        low, high, span = 0, 1, 255.0
    elif (array.dtype.kind, array.dtype.itemsize) == ("u", 2):
        low, high, span = 0, 65535, 255 / 65535
    else:
        low, high, span = 0, 255, 1.0
    if array.min() < low or array.max() > high:
        raise ValueError(
            f"A picture of type {array.dtype} has values from {array.min():g} to {array.max():g}: "
            f"scale them to {low} to {high}."
        )
    return np.round(array * span).astype(np.uint8)
