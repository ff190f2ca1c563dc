"""The model's input, made from a user's picture, tensor, path or arguments.

Pictures are recognised among any arguments, and read.
"""

from __future__ import annotations

import inspect
import io
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from mimetypes import guess_type
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor, nn

from ..hooking.select import check_model, is_convolution, unwrapped
from ..hooking.tensors import map_tensors, tensors

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
        column, kind = inputs.to_numpy(), type(inputs).__name__
        if column.ndim != 1:
            raise TypeError(
                f"Cannot make an input of a {kind}: give one column of paths, such as "
                "frame['path'], or its numbers as torch.tensor(frame.to_numpy())."
            )
        for row, each in enumerate(column.tolist()):
            if not _is_picture(each):
                raise TypeError(
                    f"Row {row} of the {kind} holds {each!r}, which is not a picture: give a path "
                    "in each row, or numbers as torch.tensor(column.to_numpy())."
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

    Such are bytes ``(H, W)``, ``(C, H, W)``, ``(H, W, C)`` or a batch of the last two, and floats
    from 0 to 1 with the channels last.
    """
    bytes_, shape = given.dtype == torch.uint8, given.shape
    if bytes_ and given.ndim == 2 and given.numel():
        return [given.detach().cpu().numpy()]
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
            name = getattr(picture, "filename", "")
            raise _unreadable(repr(name) if name else "The image", error) from None
    named = repr(name_of(picture))
    if is_url(picture):
        picture = io.BytesIO(_downloaded(str(picture)))
    elif isinstance(picture, (str, PathLike)):
        picture = expanded(picture)
    elif isinstance(picture, (bytes, bytearray, memoryview)):
        data = bytes(picture)
        picture, named = io.BytesIO(data), f"{_begin(data)} ({len(data)} bytes)"
    return _opened(picture, named)


def _begin(data: bytes) -> str:
    return repr(data) if len(data) <= 20 else f"{data[:20]!r}…"


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


def _opened(file: Any, named: str) -> Image.Image:
    if getattr(file, "closed", False) or isinstance(file, io.TextIOBase):
        state = "closed" if file.closed else "open for reading text"
        raise ValueError(f"{named} is {state}: open it for reading bytes, open(path, 'rb').")
    if isinstance(file, str) and (guess_type(file)[0] or "").startswith("video/"):
        raise ValueError(
            f"{named} is a video: read its frames and give them as a list of pictures."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as opened:
                return _as_rgb(opened)
    except FileNotFoundError:
        raise FileNotFoundError(f"Missing file {named}: check the path.") from None
    except IsADirectoryError:
        raise ValueError(
            f"{named} is a folder: give the path of one picture, or a list of paths."
        ) from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ValueError(f"{named} is too large to open safely: {error}") from None
    except Exception as error:  # what broken files make Pillow raise is of many kinds
        raise _unreadable(named, error) from None


def _unreadable(named: str, error: Exception) -> ValueError:
    reason = str(error) or type(error).__name__
    if isinstance(error, UnidentifiedImageError):  # Pillow names the file's object, and its address
        reason = "not a format that Pillow reads"
    return ValueError(
        f"{named} cannot be read as a picture ({reason}): give a whole PNG, JPEG or other "
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
            f"An array of shape {shape} is not a picture: give (H, W), (H, W, 3) or (3, H, W), or "
            "a tensor (N, C, H, W)."
        )
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "uif":
        raise ValueError(
            f"An array of type {array.dtype} is not a picture: give uint8, uint16 or floats."
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
    # A ScriptModule may list anything as a module.
    modules = (m for m in model.modules() if isinstance(m, nn.Module))
    return next((m for m in modules if is_convolution(m)), None)


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


@dataclass(frozen=True)
class ModelInput:
    """The arguments of the model's call, ``model(*args, **kwargs)``, and how to show them."""

    args: tuple[Any, ...]  #: the positional arguments
    kwargs: dict[str, Any] = field(default_factory=dict)  #: the keyword arguments
    name: str = ""  #: a file's name, or what kind of thing was given
    #: The normalization that the transform or the model's settings name; empty if none does.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()  #: of the same normalization
    normalized: bool = False  #: whether it is known to have been applied
    note: str = ""  #: what was done to it that its user should know
    transform: str = ""  #: how pictures became the tensor, in words; empty for tensors
    guessed: bool = False  #: whether nothing said which transform belongs to the model
    function: Transform | None = None  #: the transform itself; None for tensors
    #: The pictures as they were given, one a sample, made smaller where they are large.
    pictures: tuple[Image.Image, ...] = ()
    #: Goes in where the model cannot take the input as it is; a session's first run decides.
    instead: ModelInput | None = None

    @property
    def main(self) -> Tensor | None:
        """The first floating-point tensor, with a batch dimension: the one that is shown."""
        every = tensors([self.args, self.kwargs])
        floating = [tensor for tensor in every if tensor.is_floating_point()]
        if not floating:
            return None
        first = floating[0]
        listed = any(isinstance(value, list) for value in self.args)
        return first[None] if listed and first.ndim == 3 else first

    @property
    def samples(self) -> int:
        """The number of samples of the tensor that is shown; 1 without one."""
        return 1 if (main := self.main) is None else len(main)


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
        A path, the URL of a file, a PIL image, bytes, an open file or an array ``(H, W)``,
        ``(H, W, C)`` or ``(C, H, W)`` is a picture: uint8, uint16, or floats from 0 to 1. A list
        of these, an array ``(N, H, W, C)`` and a data frame's column of paths are a batch. A tensor
        goes in as it is; where the model cannot take it, one without a batch dimension gets one,
        and one of bytes, or with its channels last and values from 0 to 1, is taken as a picture.
        A tuple is the model's positional arguments, a dict its keyword arguments, or one argument
        if it has none of these names, a list of tensors one argument (as detection models take).
        What this function returned stays as it is.
    model : torch.nn.Module
        Its first parameter's device is where the input goes.
    weights : torchvision weights entry, optional
        ``weights.transforms()`` turns the picture into a tensor.
    transform : callable, optional
        Picture (PIL, RGB) -> tensor, or what a processor of transformers returns; goes before
        ``weights``. Without either, it is what timm's ``model.pretrained_cfg`` says, or
        ImageNet's: resize to 256, centre crop of 224.
    finite : bool
        True if NaN and Inf are refused.

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
        for tensor in tensors([prepared.args, prepared.kwargs]):
            _refuse_not_finite(tensor)
    return prepared


def _prepared(
    inputs: Any, model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput:
    pictures = pictures_in(inputs)
    if pictures is not None:
        return _of_pictures(pictures, model, weights, transform)
    device, _ = where_inputs_go(model)
    args, kwargs = _as_given(inputs, model)
    args, kwargs = map_tensors((args, kwargs), lambda each: each.detach().to(device))
    normalization = None
    if transform or weights is not None or getattr(model, "pretrained_cfg", None):
        normalization = normalization_of(transform or transform_for(model, weights, checked=False))
    mean, std = normalization or ((), ())
    prepared = ModelInput(args, kwargs, "tensor", mean, std)
    if kwargs or len(args) != 1 or not isinstance(args[0], Tensor):
        return prepared
    return replace(prepared, instead=_instead(prepared, model, weights, transform))


def _of_pictures(
    given: list[Any], model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput:
    """Make a batch of pictures, each transformed."""
    device, dtype = where_inputs_go(model)
    origin = _origin(model, weights, transform)
    made, shown = [], []
    for each in given:
        picture, name = load_picture(each), name_of(each)
        if transform is None:
            _refuse_too_long(picture, name)
            transform = transform_for(model, weights)
        made.append(transformed(transform, picture))
        shown.append(_small(picture))
    assert transform is not None
    joined = _joined(made)
    kwargs = {} if isinstance(joined, Tensor) else joined
    args = (joined.to(device, dtype),) if isinstance(joined, Tensor) else ()
    kwargs = map_tensors(kwargs, lambda each: _moved(each, device, dtype))
    mean, std = normalization_of(transform) or ((), ())
    name = name_of(given[0]) if len(given) == 1 else f"{len(given)} pictures"
    return ModelInput(
        args,
        kwargs,
        name,
        mean,
        std,
        normalized=bool(mean),
        transform=f"{origin}: {transform_words(transform) or 'to values from 0 to 1'}",
        guessed=origin == GUESS,
        function=transform,
        pictures=tuple(shown),
    )


def _instead(
    prepared: ModelInput, model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput | None:
    """Return a replacement for a rejected tensor: a batch, or transformed pictures."""
    tensor, first = prepared.args[0], first_convolution(model)
    channels = getattr(first, "in_channels", None)
    spatial = 0 if first is None else dimensions(first)
    sample = spatial and tensor.ndim == spatial + 1 and tensor.shape[0] == channels
    if sample and tensor.is_floating_point():
        return replace(prepared, args=(tensor[None],), note="a batch dimension was added")
    pictures = pictures_of_tensor(tensor) if spatial == 2 and channels in (0, 1, 3) else None
    if pictures is None:
        return None
    kind = "bytes" if tensor.dtype == torch.uint8 else "channels last"
    what = "a picture" if len(pictures) == 1 else f"{len(pictures)} pictures"
    note = f"a tensor of {kind} was taken as {what}"
    return replace(_of_pictures(list(pictures), model, weights, transform), note=note)


def cure_words(inputs: ModelInput, model: nn.Module, error: BaseException | None) -> str:
    """Return the cure in words where the form of an input explains its error; else empty."""
    given = inputs.args[0] if len(inputs.args) == 1 and not inputs.kwargs else None
    if isinstance(given, Tensor):
        return _tensor_cure(given, model)
    if not isinstance(error, (AttributeError, TypeError)):  # the model takes this type
        return ""
    if len(inputs.args) > 1 and all(map(_is_picture, inputs.args)):
        return "A tuple is the model's arguments: give a list for a batch of pictures."
    if isinstance(given, Mapping):
        names = ", ".join(inspect.signature(model.forward).parameters)
        return f"The keys {', '.join(map(repr, given))} are not arguments of forward({names})."
    if not isinstance(given, list):
        return ""
    if all(isinstance(each, Tensor) for each in given):
        return "A list of tensors is one argument: give torch.stack(tensors) for a batch."
    kinds = [type(each).__name__ for each in given if not _is_picture(_array_of_bytes(each))]
    return f"A batch is a list of pictures and paths: {kinds[0]} is neither."


def _tensor_cure(tensor: Tensor, model: nn.Module) -> str:
    first = first_convolution(model)
    if first is None or dimensions(first) != 2:
        return ""
    if not tensor.is_floating_point() and not tensor.is_complex():
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"The tensor is of type {kind}: give floats, or a picture's bytes as torch.uint8."
    channels = getattr(first, "in_channels", None)
    if tensor.ndim not in (3, 4) or tensor.shape[-1] != channels or tensor.shape[-3] == channels:
        return ""
    order = "2, 0, 1" if tensor.ndim == 3 else "0, 3, 1, 2"
    return f"The tensor has its channels last: give tensor.permute({order})."


GUESS = "ImageNet's transform, a guess"


def _origin(model: nn.Module, weights: Any, transform: Transform | None) -> str:
    """Return the source of the transform, in words."""
    if transform is not None:
        return "transform= as given"
    if weights is not None:
        return f"transform of the weights {getattr(weights, 'name', type(weights).__name__)}"
    known = getattr(model, "pretrained_cfg", None)
    return "transform of the model's pretrained_cfg" if known else GUESS


def transform_words(transform: Any) -> str:
    """Return the steps of a transform in words.

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
    normalized = _normalization_words(transform)
    name = getattr(transform, "__name__", kind)
    return ", ".join(normalized) or name


def _sizes(given: Any, square: bool = False) -> str:
    sizes = list(given) if isinstance(given, (list, tuple)) else [given]
    return "×".join(map(str, 2 * sizes if square and len(sizes) == 1 else sizes))


def _normalization_words(transform: Any) -> list[str]:
    known = normalization_of(transform)
    return [f"(x − {_numbers(known[0])}) ÷ {_numbers(known[1])}"] if known else []


def _numbers(values: tuple[float, ...]) -> str:
    every = [f"{value:.3g}" for value in values]
    return every[0] if len(set(every)) == 1 else f"({', '.join(every)})"


def _joined(made: list[Tensor | dict[str, Any]]) -> Tensor | dict[str, Any]:
    """Join the tensors of several pictures into one batch."""
    if len(made) == 1:
        return made[0]
    named = [each for each in made if not isinstance(each, Tensor)]
    if named:
        return {key: torch.cat([each[key] for each in named]) for key in named[0]}
    sizes = sorted({tuple(each.shape[1:]) for each in made if isinstance(each, Tensor)})
    if len(sizes) > 1:
        raise ValueError(
            f"The pictures became tensors of {len(sizes)} sizes, such as {sizes[0]} and "
            f"{sizes[1]}: give transform= with one size for all, such as Resize([224, 224])."
        )
    return torch.cat([each for each in made if isinstance(each, Tensor)])


def _small(picture: Image.Image) -> Image.Image:
    """Shrink a picture to the size of a panel."""
    if max(picture.size) <= SHOWN_SIDE:
        return picture
    small = picture.copy()
    small.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    return small


SHOWN_SIDE = 640


def where_inputs_go(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Return device and dtype of the model's first floating-point weights.

    Those of an offloaded model (accelerate) are elsewhere until it runs: its hooks say where to.
    """
    weights = (p for p in model.parameters() if p.is_floating_point())
    first = next(weights, None)
    dtype = torch.float32 if first is None else first.dtype
    hooks = (vars(module).get("_hf_hook") for module in model.modules())
    where = (getattr(hook, "execution_device", None) for hook in hooks)
    hooked = next((device for device in where if device is not None), None)
    if hooked is not None:
        return torch.device(hooked), dtype
    if first is not None and first.is_meta:
        first = next((p for p in weights if not p.is_meta), None)
    return torch.device("cpu") if first is None else first.device, dtype


def as_the_model_takes(inputs: ModelInput, model: nn.Module) -> ModelInput:
    """Move the inputs to the device of the model's weights; floats get their dtype."""
    return moved(inputs, *where_inputs_go(model))


def moved(inputs: ModelInput, device: torch.device, dtype: torch.dtype) -> ModelInput:
    """Move the inputs to a device; floats get the dtype."""
    given = inputs.args, inputs.kwargs
    args, kwargs = map_tensors(given, lambda each: _moved(each, device, dtype))
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
        "(H, W, 3), a list of these, a tensor (N, C, H, W), or a tuple or dict of what the model "
        "takes."
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
            "it is wide, and resizing by the shorter side would make it too large: crop it first, "
            "or give transform=."
        )


def _refuse_not_finite(tensor: Tensor) -> None:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        nans, infs = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        raise ValueError(
            f"The input has {nans} NaN and {infs} infinite values of {tensor.numel()}: every layer "
            "would show NaN; clean it first, for example with torch.nan_to_num."
        )
