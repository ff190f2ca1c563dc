"""What the model is called with, made of whatever a user has."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from ..hooking.select import check_model, is_convolution, module_names, unwrapped
from ..hooking.tensors import map_tensors, tensors_in

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Transform = Callable[[Any], Any]


def transform_for(model: nn.Module, weights: Any, checked: bool = True) -> Transform:
    if weights is not None:
        if not hasattr(weights, "transforms"):
            raise TypeError(
                f"weights={weights!r} has no transforms(): give a torchvision weights entry such "
                "as ResNet34_Weights.DEFAULT, or transform=."
            )
        return weights.transforms()
    from torchvision.transforms import v2  # the import takes seconds and only pictures need it

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
    """Return the number of input channels of the model's first convolution, for a picture."""
    first = first_convolution(model)
    if first is None:
        return 3
    channels = getattr(first, "in_channels", 0)
    if dimensions(first) != 2 or channels not in (0, 1, 3):
        raise ValueError(
            f"The model's first convolution takes {channels} channels in {dimensions(first)}d, "
            "not a picture: pass a tensor, or transform= to make one."
        )
    return channels or 3


def first_convolution(model: nn.Module) -> nn.Module | None:
    return next((m for m in module_names(model) if is_convolution(m)), None)


def dimensions(convolution: nn.Module) -> int:
    return len(convolution.kernel_size)  # type: ignore[arg-type]


def transformed(transform: Transform, picture: Image.Image) -> Tensor | dict[str, Any]:
    """Transform the picture into a tensor with a batch dimension, or into keyword arguments.

    A processor of transformers returns the latter, as lists of arrays.
    """
    tensor = transform(picture)
    if isinstance(tensor, Mapping):
        return {
            key: each if isinstance(each, Tensor) else torch.from_numpy(np.stack(each))
            for key, each in tensor.items()
        }
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"transform= returned {type(tensor).__name__}, not a tensor: end it with "
            "torchvision.transforms.ToTensor()."
        )
    return tensor[None] if tensor.ndim == 3 else tensor


def normalization_of(transform: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and std that a transform, or a step of it, subtracts and divides by."""
    if hasattr(transform, "image_mean") and hasattr(transform, "image_std"):  # a processor
        return tuple(map(float, transform.image_mean)), tuple(map(float, transform.image_std))
    if hasattr(transform, "mean") and hasattr(transform, "std"):
        return tuple(map(float, transform.mean)), tuple(map(float, transform.std))
    found = (normalization_of(step) for step in getattr(transform, "transforms", ()))
    return next((pair for pair in found if pair), None)


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
    """Convert a picture-like array to uint8 ``(H, W)`` or ``(H, W, 3 or 4)``."""
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


@dataclass(frozen=True)
class ModelInput:
    """What the model is called with, ``model(*args, **kwargs)``, and how to show it."""

    args: tuple[Any, ...]  #: the positional arguments
    kwargs: dict[str, Any] = field(default_factory=dict)  #: the keyword arguments
    name: str = ""  #: a file's name, or what kind of thing was given
    #: The normalization that the transform or the model's settings name; empty if none does.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()  #: of the same normalization
    normalized: bool = False  #: whether it is known to have been applied
    note: str = ""  #: what was done to it that its user should know
    sample: bool = False  #: whether it may lack a batch dimension; a session's first run decides

    def batched(self) -> ModelInput:
        """Return the one tensor with a batch dimension."""
        note = "a batch dimension was added"
        return replace(self, args=(self.args[0][None],), note=note, sample=False)

    @property
    def main(self) -> Tensor | None:
        """The first floating-point tensor, with a batch dimension: the one that is shown."""
        every = tensors_in([*self.args, *self.kwargs.values()])
        floating = [tensor for _, tensor in every if tensor.is_floating_point()]
        if not floating:
            return None
        first = floating[0]
        listed = any(isinstance(value, list) for value in self.args)
        return first[None] if listed and first.ndim == 3 else first


def prepare_input(
    inputs: Any,
    model: nn.Module,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    finite: bool = True,
) -> ModelInput:
    """Turn whatever a user has into what the model takes.

    Parameters
    ----------
    inputs
        A path, PIL image or array ``(H, W)``, ``(H, W, 3)`` or ``(H, W, 4)`` is a picture:
        uint8, uint16, or floats from 0 to 1. A tensor goes in as it is. A tuple is the model's
        positional arguments, a dict its keyword arguments, or one argument if it has none of these
        names, a list one argument (as detection models take). What this function returned stays
        as it is.
    model : torch.nn.Module
        Its first parameter's device is where the input goes.
    weights : torchvision weights entry, optional
        ``weights.transforms()`` turns the picture into a tensor.
    transform : callable, optional
        Picture (PIL, RGB) -> tensor, or what a processor of transformers returns; goes before
        ``weights``. Without either, it is what timm's ``model.pretrained_cfg`` says, or
        ImageNet's: resize to 256, centre crop of 224.
    finite : bool
        Whether NaN and Inf are refused.

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
    >>> hookviz.attribution.prepare_input(hookviz.demo_images()[0], hookviz.demo_model()).args[
    ...     0
    ... ].shape
    torch.Size([1, 3, 112, 112])
    """
    if isinstance(inputs, ModelInput):
        return inputs
    check_model(model)
    model, _ = unwrapped(model)
    prepared = _prepared(inputs, model, weights, transform)
    if finite:
        for _, tensor in tensors_in([prepared.args, prepared.kwargs]):
            _refuse_not_finite(tensor)
    return prepared


def _prepared(
    image: Any, model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput:
    device, dtype = where_inputs_go(model)
    if isinstance(image, (str, PathLike, Image.Image, np.ndarray)):
        name = fspath(image) if isinstance(image, (str, PathLike)) else type(image).__name__
        picture = load_picture(image)
        if transform is None:
            _refuse_too_long(picture, str(name))
            transform = transform_for(model, weights)
        made = transformed(transform, picture)
        given = {} if isinstance(made, Tensor) else made
        args = (made.to(device, dtype),) if isinstance(made, Tensor) else ()
        kwargs = map_tensors(given, lambda each: _moved(each, device, dtype))
        mean, std = normalization_of(transform) or ((), ())
        return ModelInput(args, kwargs, str(name), mean, std, normalized=bool(mean))
    args, kwargs = _as_given(image, model)
    args, kwargs = map_tensors((args, kwargs), lambda each: each.detach().to(device))
    normalization = None
    if transform or weights is not None or getattr(model, "pretrained_cfg", None):
        normalization = normalization_of(transform or transform_for(model, weights, checked=False))
    sample = not kwargs and len(args) == 1 and _may_be_sample(args[0], model)
    mean, std = normalization or ((), ())
    return ModelInput(args, kwargs, "tensor", mean, std, sample=sample)


def _may_be_sample(only: Any, model: nn.Module) -> bool:
    """Return whether a tensor may lack a batch dimension, by the model's first convolution."""
    first = first_convolution(model)
    if first is None or not isinstance(only, Tensor):
        return False
    channels = getattr(first, "in_channels", None)
    return only.ndim == dimensions(first) + 1 and only.shape[0] == channels


def where_inputs_go(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Return device and dtype of the model's first floating-point weights.

    Those of an offloaded model (accelerate) are elsewhere until it runs: its hooks say where to.
    """
    weights = [p for p in model.parameters() if p.is_floating_point()]
    first = next((p for p in weights if not p.is_meta), None)
    dtype = weights[0].dtype if weights else torch.float32
    where = (
        getattr(getattr(m, "_hf_hook", None), "execution_device", None) for m in model.modules()
    )
    hooked = next((device for device in where if device is not None), None)
    if hooked is not None:
        return torch.device(hooked), dtype
    return torch.device("cpu") if first is None else first.device, dtype


def as_the_model_takes(inputs: ModelInput, model: nn.Module) -> ModelInput:
    """Move the inputs to the device of the model's weights; floats get their dtype."""
    device, dtype = where_inputs_go(model)

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    args, kwargs = map_tensors((inputs.args, inputs.kwargs), move)
    return replace(inputs, args=args, kwargs=kwargs)


def _as_given(image: Any, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments; a dict is the latter if the names fit."""
    if isinstance(image, Mapping):
        named = {str(key): value for key, value in image.items()}
        return ((), named) if _takes(model, named) else ((image,), {})
    if isinstance(image, tuple):
        return image, {}
    if isinstance(image, (Tensor, list)):
        return (image,), {}
    raise TypeError(
        f"Cannot make an input of {type(image).__name__}: give a path, a PIL image, an array "
        "(H, W, 3), a tensor (N, C, H, W), or a tuple or dict of what the model takes."
    )


def _takes(model: nn.Module, named: Mapping[str, Any]) -> bool:
    """Return whether the model's forward has arguments of these names."""
    try:
        inspect.signature(model.forward).bind(**named)
    except TypeError:
        return False
    except ValueError:  # no signature to be had: a ScriptModule's, say
        return True
    return True


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)


def _refuse_too_long(picture: Image.Image, name: str) -> None:
    # The usual transforms resize by the shorter side, which a picture of 1×60000 turns into
    # gigabytes.
    if max(picture.size) > 100 * min(picture.size) and max(picture.size) > 1000:
        raise ValueError(
            f"{name!r} is {picture.width}×{picture.height} pixels, more than 100 times as long as "
            "it is wide, and resizing by the shorter side would blow it up: crop it first, or "
            "give transform=."
        )


def _refuse_not_finite(tensor: Tensor) -> None:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        nans, infs = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        raise ValueError(
            f"The input has {nans} NaN and {infs} infinite values of {tensor.numel()}: every layer "
            "would show NaN; clean it first, for example with torch.nan_to_num."
        )
