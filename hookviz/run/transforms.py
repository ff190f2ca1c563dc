"""Find the transform that turns a picture into a model's input, describe it, and undo it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..hooking.select import dimensions, first_convolution
from .errors import takes
from .pictures import MODES, LoadedPicture

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Transform = Callable[[Any], Any]
Arguments = Tensor | dict[str, Any]
"""The result of a transform: a tensor with a batch dimension, or keyword arguments."""


@dataclass(frozen=True)
class Preprocessing:
    """The transform that turns a picture into a model's input.

    Attributes
    ----------
    transform : callable
        Picture -> tensor.
    channels : int or None
        Input channels of the model's first convolution; None if it is not in 2d.
    origin : str
        The source of the transform, in words.
    given : bool
        True for the user's ``transform=``, which gets the picture in its original mode.
    guessed : bool
        True if neither the user nor the model names a transform.
    """

    transform: Transform
    channels: int | None
    origin: str
    given: bool = False
    guessed: bool = False

    @property
    def normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        return normalization_of(self.transform)

    @property
    def words(self) -> str:
        """The origin, and the steps of the transform."""
        return f"{self.origin}: {transform_words(self.transform) or 'to values from 0 to 1'}"

    def apply(self, picture: LoadedPicture) -> tuple[Arguments, str]:
        """Transform a picture; return the model's input and a note, which is usually empty."""
        if not self.given:
            _refuse_too_long(picture)
            note = GRAY_GUESS if self.guessed and self.channels == 1 else ""
            made = _batched(self.transform(picture.converted(self.channels or 3)))
            return made, "; ".join(filter(None, (picture.note, note)))
        return self._apply_own(picture)

    def _apply_own(self, picture: LoadedPicture) -> tuple[Arguments, str]:
        """Apply the user's transform to the picture in its original mode; if need be, convert it.

        Transforms often expect RGB also for gray, transparent and palette files, because the data
        loader of the training had converted them. So the picture is converted if the transform
        raises, or if its result does not have the channels that the first convolution takes.
        """
        errors: list[Exception] = []
        misfits: list[tuple[Arguments, str]] = []
        for image, note in self._forms(picture):
            try:
                made = _batched(self.transform(image))
            except Exception as error:  # the user's code may raise anything
                errors.append(error)
                continue
            if self._fits(made):
                return made, note
            misfits.append((made, note))
        if misfits:
            return misfits[0]  # the model's error will name the channels that it takes
        raise errors[0]

    def _forms(self, picture: LoadedPicture) -> list[tuple[Image.Image, str]]:
        """Return the picture in its original mode, then in modes that fit the model's channels."""
        image, channels, deep = picture.image, self.channels or 3, picture.deep
        reduced = [] if deep is None else ["reduced to 8 bits for transform="]
        # A gray picture of more bits is given as it is; one in colours has 8 bits already.
        exact = deep is not None and image.mode not in MODES.values()
        forms = [(image, [] if exact else [picture.note, *reduced])]
        if deep is not None and len(deep) == channels == 1:
            forms.append((Image.fromarray(deep[0]), [picture.note]))
        if image.mode != MODES[channels]:
            notes = [f"converted from mode {image.mode} to {MODES[channels]}", picture.note]
            forms.append((picture.in_channels(channels), [*notes, *reduced]))
        return [(form, "; ".join(filter(None, notes))) for form, notes in forms]

    def _fits(self, made: Arguments) -> bool:
        if not isinstance(made, Tensor):
            return True
        # ToTensor() does not scale 16-bit pictures: it returns integers, which no layer takes.
        if not made.is_floating_point() and made.dtype is not torch.uint8:
            return False
        return self.channels is None or made.ndim < 4 or made.shape[-3] == self.channels


GUESS = "ImageNet's transform, a guess"

# Networks for ImageNet take colours, so that the guess is probably wrong for a gray picture.
GRAY_GUESS = (
    "resized and normalized as for ImageNet, a guess: give transform=, or a tensor to use unchanged"
)


def preprocessing_for(
    model: nn.Module,
    weights: Any = None,
    transform: Transform | None = None,
    advice: str = "pass a tensor, or transform= to make one.",
) -> Preprocessing:
    """Return the preprocessing of a picture for a model.

    ``advice`` ends the error of a model that takes no pictures.

    Raises
    ------
    ValueError
        Without ``transform``, if the first convolution does not take 1, 3 or 4 channels in 2d.
    TypeError
        ``weights`` has no transforms.
    """
    channels = _picture_channels(model)
    if transform is not None:
        return Preprocessing(transform, channels, "transform= as given", given=True)
    if weights is not None:
        name = getattr(weights, "name", type(weights).__name__)
        made = transform_for(model, weights)
        return Preprocessing(made, 3, f"transform of the weights {name}")
    first = first_convolution(model)
    if first is not None and channels is None:
        raise ValueError(
            f"The model's first convolution takes {takes(first)}, not a picture: {advice}"
        )
    config = getattr(model, "pretrained_cfg", None)
    origin = "transform of the model's pretrained_cfg" if config else GUESS
    return Preprocessing(transform_for(model), channels, origin, guessed=not config)


def _picture_channels(model: nn.Module) -> int | None:
    """Return the input channels of the first convolution; None if pictures do not fit them."""
    first = first_convolution(model)
    if first is None or dimensions(first) != 2:
        return None
    channels = getattr(first, "in_channels", 0) or 3  # a lazy convolution has 0
    return channels if channels in MODES else None


def transform_for(model: nn.Module, weights: Any = None, size: int | None = None) -> Transform:
    """Return the transform of the weights or of the model's settings; else ImageNet's.

    The size, in pixels of a side, replaces that of the settings.
    """
    if weights is not None:
        if not hasattr(weights, "transforms"):
            raise TypeError(
                f"weights={weights!r} has no transforms(): give a torchvision weights entry such "
                "as ResNet34_Weights.DEFAULT, or transform=."
            )
        return weights.transforms()
    from torchvision.transforms import v2  # the import takes seconds and only pictures need it

    channels = _picture_channels(model) or 3
    config = getattr(model, "pretrained_cfg", None) or {}
    sides = (size, size) if size else tuple(config.get("input_size") or (224, 224))[-2:]
    mean = list(config.get("mean") or IMAGENET_MEAN)
    std = list(config.get("std") or IMAGENET_STD)
    if channels == 1:
        mean, std = [sum(mean) / len(mean)], [sum(std) / len(std)]
    if channels == 4 and len(mean) == 3:  # there are no statistics of transparency
        mean, std = [*mean, 0.0], [*std, 1.0]
    crop = config.get("crop_pct") or 0.875
    interpolation = v2.InterpolationMode(config.get("interpolation") or "bilinear")
    return v2.Compose(
        [
            *([v2.Grayscale()] if channels == 1 else []),
            v2.Resize([math.floor(min(sides) / crop)], interpolation),
            v2.CenterCrop(list(sides)),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean, std),
        ]
    )


def _batched(made: Any) -> Arguments:
    """Add the batch dimension to a transform's result.

    A processor of transformers returns a mapping, of lists of arrays.
    """
    if isinstance(made, Mapping):
        return {
            key: value if isinstance(value, Tensor) else torch.from_numpy(np.stack(value))
            for key, value in made.items()
        }
    if not isinstance(made, Tensor):
        raise TypeError(
            f"transform= returned {type(made).__name__}, not a tensor: end it with "
            "torchvision.transforms.ToTensor()."
        )
    return made[None] if made.ndim == 3 else made


def _refuse_too_long(picture: LoadedPicture) -> None:
    # The usual transforms resize by the shorter side: a picture of 1×60000 would take gigabytes.
    width, height = picture.image.size
    longer, shorter = max(width, height), min(width, height)
    if longer > 100 * shorter and longer > 1000:
        raise ValueError(
            f"{picture.name!r} is {width}×{height} pixels, more than 100 times as long as it is "
            "wide, and resizing by the shorter side would make it too large: crop it first, or "
            "give transform=."
        )


# Description


def transform_words(transform: Any) -> str:
    """Describe the steps of a transform.

    Examples
    --------
    >>> from torchvision.transforms import v2
    >>> steps = [v2.Resize([256]), v2.CenterCrop([224, 224]), v2.Normalize([0.5], [0.25])]
    >>> transform_words(v2.Compose(steps))
    'resize to 256, crop 224×224, (x − 0.5) ÷ 0.25'
    """
    steps = getattr(transform, "transforms", None)
    if isinstance(steps, (list, tuple)):
        return ", ".join(filter(None, map(transform_words, steps))) or "to values from 0 to 1"
    if hasattr(transform, "resize_size") and hasattr(transform, "crop_size"):  # a preset
        words = [f"resize to {_sizes(transform.resize_size)}"] if transform.resize_size else []
        words += [f"crop {_sizes(transform.crop_size, square=True)}"] if transform.crop_size else []
        return ", ".join([*words, *_normalization_words(transform)])
    kind = type(transform).__name__
    if kind == "Resize":
        return f"resize to {_sizes(transform.size)}"
    if kind == "CenterCrop":
        return f"crop {_sizes(transform.size, square=True)}"
    if kind in ("PILToTensor", "ToImage", "ToTensor", "ToDtype", "ConvertImageDtype"):
        return ""
    return ", ".join(_normalization_words(transform)) or getattr(transform, "__name__", kind)


def _sizes(size: Any, square: bool = False) -> str:
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    return "×".join(map(str, 2 * sizes if square and len(sizes) == 1 else sizes))


def _normalization_words(transform: Any) -> list[str]:
    if (pair := normalization_of(transform)) is None:
        return []
    return [f"(x − {_numbers(pair[0])}) ÷ {_numbers(pair[1])}"]


def _numbers(values: tuple[float, ...]) -> str:
    texts = [f"{value:.3g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else f"({', '.join(texts)})"


# Normalization and its undoing


def normalization_of(transform: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and std that a transform, or a step of it, subtracts and divides by."""
    for mean, std in (("image_mean", "image_std"), ("mean", "std")):  # a processor's, torchvision's
        if hasattr(transform, mean) and hasattr(transform, std):
            return _floats(getattr(transform, mean)), _floats(getattr(transform, std))
    pairs = (normalization_of(step) for step in getattr(transform, "transforms", ()))
    return next((pair for pair in pairs if pair), None)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))


UNDONE = "normalization undone"
_ONE = np.ones((1, 1, 1), np.float32)


def undoing(
    values: np.ndarray,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalized: bool = False,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return scale and offset that turn values ``(C, H, W)`` into a picture 0..1, and a note.

    The picture is ``values * scale + offset``; the note is empty if nothing was changed.

    The normalization ``(x - mean) / std`` is undone if the result is in 0..1. Otherwise values from
    0 to 1 are shown unchanged, and those from −1 to 1 as ``(x + 1) / 2``. Next, ImageNet's
    normalization is tried; if that does not fit either, the picture is stretched from its smallest
    to its largest value. NaN and Inf are ignored.

    Parameters
    ----------
    normalized : bool
        True if this normalization has certainly been applied.

    Examples
    --------
    >>> scale, offset, words = undoing(np.array([[[-1.0, 1.0]]]))
    >>> (np.array([-1.0, 1.0]) * scale + offset).ravel().tolist(), words
    ([0.0, 1.0], 'shown as (x + 1) / 2')
    """
    least, most = finite_range(values)
    fitting = _fitting(values, mean, std)
    if fitting and (normalized or least < 0 or most > 1):
        return *fitting, UNDONE
    if least >= 0 and most <= 1:
        return _ONE, 0 * _ONE, ""
    if least >= -1 and most <= 1:
        return _ONE / 2, _ONE / 2, "shown as (x + 1) / 2"
    if not mean and (guess := _fitting(values, IMAGENET_MEAN, IMAGENET_STD)):
        return *guess, "ImageNet's normalization undone, a guess"
    span = max(most - least, 1e-12)
    return _ONE / span, -least * _ONE / span, f"stretched from {least:.3g} to {most:.3g}"


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 0 if no value is finite.

    >>> finite_range(np.array([3.0, np.nan, -1.0]))
    (-1.0, 3.0)
    """
    least, most = float(values.min()), float(values.max())
    if math.isfinite(least) and math.isfinite(most):
        return least, most
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _fitting(
    values: np.ndarray, mean: Sequence[float], std: Sequence[float]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a normalization's scale and offset, if undoing it gives values in 0..1."""
    if len(mean) not in (1, len(values)):
        return None
    scale, offset = (np.reshape(numbers, (-1, 1, 1)).astype(np.float32) for numbers in (std, mean))
    least, most = finite_range(values * scale + offset)
    return (scale, offset) if least > -0.02 and most < 1.02 else None
