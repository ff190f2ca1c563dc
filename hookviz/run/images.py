"""Pictures of any kind, from files, arrays or PIL, as RGB."""

from __future__ import annotations

import warnings
from os import PathLike, fspath

import numpy as np
from PIL import Image, ImageOps


def load_picture(image: str | PathLike | Image.Image | np.ndarray) -> Image.Image:
    """Read a picture of any kind as RGB: upright, the first frame, alpha over white.

    More than 8 bits are scaled, not clipped: 65535 is white for whole numbers, 1 for floats; or
    the largest value, if that is more. ``ValueError`` for what is not a picture, broken, too large
    (a decompression bomb), or an array of a wrong shape, type or range.
    """
    if isinstance(image, np.ndarray):
        return load_picture(Image.fromarray(_picture_array(image)))
    if not isinstance(image, Image.Image):
        path = fspath(image)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(path) as opened:
                    return _as_rgb(opened)
        except FileNotFoundError:
            raise FileNotFoundError(f"There is no file {path!r}: check the path.") from None
        except IsADirectoryError:
            raise ValueError(f"{path!r} is a folder: give the path of one picture.") from None
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise ValueError(f"{path!r} is too large to open safely: {error}") from None
        except Exception as error:  # what broken files make Pillow raise is of many kinds
            raise _unreadable(path, error) from None
    try:
        return _as_rgb(image)
    except Exception as error:  # one that Pillow opened, but has not read yet
        raise _unreadable(getattr(image, "filename", "") or "The image", error) from None


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
    """Any picture-like array as uint8 ``(H, W)`` or ``(H, W, 3 or 4)``."""
    shape = array.shape
    if array.ndim == 3 and shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in (3, 4)) or 0 in shape:
        raise ValueError(
            f"An array of shape {shape} is no picture: give (H, W) or (H, W, 3), or a tensor "
            "(N, C, H, W)."
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
