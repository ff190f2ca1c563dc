"""Pictures in: load, transform, and undo the normalization to show what the network saw."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torchvision.transforms import v2

from ..hooking.capture import tensors_in
from ..hooking.select import CONVOLUTIONS, module_names
from ..render.arrays import shown_size

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Transform = Callable[[Any], Any]


@dataclass(frozen=True)
class ModelInput:
    """What the model is called with, and how to show it.

    Attributes
    ----------
    args, kwargs
        The model is called as ``model(*args, **kwargs)``.
    name : str
        A file's name, or what kind of thing was given.
    mean, std : tuple of float
        The normalization that was applied, as far as known: it is undone for showing.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    @property
    def main(self) -> Tensor | None:
        """The tensor that is shown, the first floating-point one, with a batch dimension."""
        every = tensors_in([*self.args, *self.kwargs.values()])
        floating = [tensor for _, tensor in every if tensor.is_floating_point()]
        if not floating:
            return None
        first = floating[0]
        listed = any(isinstance(value, list) for value in self.args)
        return first[None] if listed and first.ndim == 3 else first


def prepare_input(
    image: Any,
    model: nn.Module,
    *,
    weights: Any = None,
    transform: Transform | None = None,
) -> ModelInput:
    """Turn whatever a user has into what the model takes.

    Parameters
    ----------
    image
        A path, PIL image or array ``(H, W)``, ``(H, W, 3)`` or ``(H, W, 4)`` is a picture:
        uint8, uint16, or floats from 0 to 1. A tensor goes in as it is; only a batch dimension is
        added to one ``(C, *spatial)``. A tuple is the model's positional arguments, a dict
        its keyword arguments, a list one argument (as detection models take). What this
        function returned stays as it is.
    model : torch.nn.Module
        Its first parameter's device is where the input goes.
    weights : torchvision weights entry, optional
        ``weights.transforms()`` turns the picture into a tensor.
    transform : callable, optional
        Picture (PIL, RGB) -> tensor; goes before ``weights``. Without either, it is what
        timm's ``model.pretrained_cfg`` says, or ImageNet's: resize to 256, centre crop of 224.

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        Not a picture, a shape or range of values that no picture has, NaN or Inf in the input.
    TypeError
        Something that no model takes.

    Examples
    --------
    >>> import hookviz
    >>> from hookviz import prepare_input
    >>> prepare_input(hookviz.demo_images()[0], hookviz.demo_model()).args[0].shape
    torch.Size([1, 3, 112, 112])
    """
    if isinstance(image, ModelInput):
        return image
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(image, (str, PathLike, Image.Image, np.ndarray)):
        name = fspath(image) if isinstance(image, (str, PathLike)) else type(image).__name__
        picture = load_picture(image)
        if transform is None:
            _refuse_too_long(picture, str(name))
            transform = transform_for(model, weights)
        tensor = _apply(transform, picture)
        mean, std = _normalization(transform) or (IMAGENET_MEAN, IMAGENET_STD)
        given: tuple[Any, ...] = (tensor.to(like.device, like.dtype),)
        prepared = ModelInput(given, {}, str(name), mean, std)
    else:
        known = transform if transform else transform_for(model, weights, checked=False)
        mean, std = _normalization(known) or (IMAGENET_MEAN, IMAGENET_STD)
        prepared = _as_given(image, model, like.device, mean, std)
    for _, tensor in tensors_in([prepared.args, prepared.kwargs]):
        _refuse_not_finite(tensor)
    return prepared


def load_picture(image: str | PathLike | Image.Image | np.ndarray) -> Image.Image:
    """Read a picture of any kind as RGB: upright, the first frame, alpha over white.

    More than 8 bits are scaled, not clipped: 65535 is white for whole numbers, 1 for floats; or
    the largest value, if that is more.

    Raises
    ------
    FileNotFoundError
        No such file.
    ValueError
        Not a picture, broken, too large (a decompression bomb), or an array of a
        wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from hookviz.run.inputs import load_picture
    >>> load_picture(np.zeros((4, 6), "uint8")).size
    (6, 4)
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


def _refuse_too_long(picture: Image.Image, name: str) -> None:
    # The usual transforms resize by the shorter side, which a picture of 1×60000 turns into
    # gigabytes.
    if max(picture.size) > 100 * min(picture.size) and max(picture.size) > 1000:
        raise ValueError(
            f"{name!r} is {picture.width}×{picture.height} pixels, more than 100 times as long as "
            "it is wide, and resizing by the shorter side would blow it up: crop it first, or "
            "give transform=."
        )


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


def picture_of(inputs: ModelInput, sample: int = 0, depth: float = 0.0) -> np.ndarray | None:
    """Draw the input as the network saw it, the normalization undone.

    Parameters
    ----------
    sample : int
        Index in the batch.
    depth : float
        For a volume, the slice to show: 0 the first, 1 the last.

    Returns
    -------
    numpy.ndarray or None
        uint8 ``(H, W, 3)``; a 1d signal is a strip of one row per channel. None for what
        is no picture, signal or volume. What is longer than `hookviz.render.arrays.SHOWN_SIDE` is
        averaged down.

    Notes
    -----
    Values from 0 to 1 are shown as they are. Otherwise ``x * std + mean`` if that lies
    within 0 to 1, else ``(x - min) / (max - min)``.
    """
    main = inputs.main
    if main is None or main.ndim not in (3, 4, 5) or not main.numel():
        return None
    values = main[min(sample, len(main) - 1)].detach().float().cpu().numpy()
    if values.ndim == 4:  # (C, D, H, W)
        values = values[:, round(depth * (values.shape[1] - 1))]
    if values.ndim == 2:  # (C, L): each channel a band
        values = shown_size(values[:, None])[:, 0]
        band = math.ceil(max(8, values.shape[1] / 6) / len(values))
        values = np.repeat(values, band, axis=0)[None]
    values = shown_size(_undone(values, inputs.mean, inputs.std))
    if len(values) != 3:
        values = np.repeat(values.mean(0, keepdims=True), 3, axis=0)
    return np.round(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def class_names_of(
    model: nn.Module, weights: Any = None, class_names: Sequence[str] | None = None
) -> list[str]:
    """Class names, from the argument, the weights' categories or ``model.class_names``."""
    if class_names is None:
        meta = getattr(weights, "meta", None) or {}
        class_names = meta.get("categories") or getattr(model, "class_names", None) or ()
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
        raise TypeError("class_names must be a list of strings, one for each class in order.")
    return list(class_names)


def _undone(values: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    if values.min() >= 0 and values.max() <= 1:
        return values
    if len(mean) in (1, len(values)):
        shape = (-1, 1, 1)
        undone = values * np.reshape(std, shape) + np.reshape(mean, shape)
        if undone.min() > -0.02 and undone.max() < 1.02:
            return undone
    return (values - values.min()) / max(float(np.ptp(values)), 1e-12)


def transform_for(model: nn.Module, weights: Any, checked: bool = True) -> Transform:
    if weights is not None:
        if not hasattr(weights, "transforms"):
            raise TypeError(
                f"weights={weights!r} has no transforms(): give a torchvision weights entry such "
                "as ResNet34_Weights.DEFAULT, or transform=."
            )
        return weights.transforms()
    channels = _channels_taken(model) if checked else 3
    cfg = getattr(model, "pretrained_cfg", None) or {}
    size = tuple(cfg.get("input_size") or (channels, 224, 224))[-2:]
    mean, std = cfg.get("mean") or IMAGENET_MEAN, cfg.get("std") or IMAGENET_STD
    if channels == 1:
        mean, std = (sum(mean) / len(mean),), (sum(std) / len(std),)
    crop = cfg.get("crop_pct") or 0.875
    kind = v2.InterpolationMode(cfg.get("interpolation") or "bilinear")
    return v2.Compose(
        [
            *([v2.Grayscale()] if channels == 1 else []),
            v2.Resize([math.floor(min(size) / crop)], kind),
            v2.CenterCrop(list(size)),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(mean), list(std)),
        ]
    )


def _channels_taken(model: nn.Module) -> int:
    """How many channels of a picture the model takes, by its first convolution."""
    first = _first_convolution(model)
    if first is None:
        return 3
    channels = getattr(first, "in_channels", 0)
    if _dimensions(first) != 2 or channels not in (0, 1, 3):
        raise ValueError(
            f"The model's first convolution takes {channels} channels in {_dimensions(first)}d, "
            "not a picture: pass a tensor, or transform= to make one."
        )
    return channels or 3


def _first_convolution(model: nn.Module) -> nn.Module | None:
    return next((m for m in module_names(model) if isinstance(m, CONVOLUTIONS)), None)


def _dimensions(convolution: nn.Module) -> int:
    return len(convolution.kernel_size)  # type: ignore[arg-type]


def _apply(transform: Transform, picture: Image.Image) -> Tensor:
    tensor = transform(picture)
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"transform= returned {type(tensor).__name__}, not a tensor: end it with "
            "torchvision.transforms.ToTensor()."
        )
    return tensor[None] if tensor.ndim == 3 else tensor


def _normalization(transform: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The mean and std that a transform, or a step of it, subtracts and divides by."""
    if hasattr(transform, "mean") and hasattr(transform, "std"):
        return tuple(map(float, transform.mean)), tuple(map(float, transform.std))
    found = (_normalization(step) for step in getattr(transform, "transforms", ()))
    return next((pair for pair in found if pair), None)


def _as_given(
    image: Any, model: nn.Module, device: torch.device, mean: Any, std: Any
) -> ModelInput:
    if isinstance(image, Tensor):
        first = _first_convolution(model)
        lacks_batch = first is not None and (
            image.ndim == _dimensions(first) + 1
            and image.shape[0] == getattr(first, "in_channels", None)
        )
        image = (image[None] if lacks_batch else image,)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(image, Mapping):
        kwargs = {str(key): value for key, value in image.items()}
    elif isinstance(image, (tuple, list)):
        args = image if isinstance(image, tuple) else (image,)
    else:
        raise TypeError(
            f"Cannot make an input of {type(image).__name__}: give a path, a PIL image, an array "
            "(H, W, 3), a tensor (N, C, H, W), or a tuple or dict of what the model takes."
        )
    args, kwargs = change_tensors((args, kwargs), lambda tensor: tensor.detach().to(device))
    return ModelInput(args, kwargs, "tensor", mean, std)


def change_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same lists, tuples and dicts with each tensor changed; the old ones stay as they are.

    Examples
    --------
    >>> change_tensors(({"x": torch.ones(1)}, 3), lambda tensor: tensor + 1)
    ({'x': tensor([2.])}, 3)
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: change_tensors(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [change_tensors(each, change) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _refuse_not_finite(tensor: Tensor) -> None:
    if not tensor.is_floating_point() or tensor.isfinite().all():
        return
    raise ValueError(
        f"The input has {int(tensor.isnan().sum())} NaN and {int(tensor.isinf().sum())} infinite "
        f"values of {tensor.numel()}: every layer would show NaN; clean it first, for example "
        "with torch.nan_to_num."
    )


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
