"""Turn paths, pictures, arrays, tensors and batches into the arguments of a model's call.

`prepare_input` looks for pictures first (`pictures_in`), which `pictures.py` reads and
`transforms.py` turns into a tensor; everything else is an argument of the model already.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..hooking.select import all_modules, check_model, dimensions, first_convolution, unwrapped
from ..hooking.tensors import map_tensors, tensors
from .pictures import MODES, is_picture, load_picture, name_of
from .transforms import (
    Arguments,
    Preprocessing,
    Transform,
    normalization_of,
    preprocessing_for,
    transform_for,
    undoing,
)


@dataclass(frozen=True)
class ModelInput:
    """The arguments of the model's call, ``model(*args, **kwargs)``, and how to show them."""

    args: tuple[Any, ...]  #: the positional arguments
    kwargs: dict[str, Any] = field(default_factory=dict)  #: the keyword arguments
    name: str = ""  #: the file's name, or the type of the user's input
    #: Mean and std of the normalization in the transform or the model's settings.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()  #: of the same normalization
    normalized: bool = False  #: True if this normalization has certainly been applied
    note: str = ""  #: a change of the input that the user should know
    preprocessing: Preprocessing | None = None  #: how pictures became tensors; None for tensors
    #: The pictures as RGB, one per sample; large ones are shrunk.
    pictures: tuple[Image.Image, ...] = ()
    #: Used instead of this input if the model raises on it; a session's first run decides.
    replacement: ModelInput | None = None
    #: The error to raise if the input's NaN or Inf reach the model's output; usually empty.
    nonfinite: str = ""

    @property
    def main(self) -> Tensor | None:
        """The tensor that is shown: the first dense floating-point one, as a batch."""
        dense = (t for t in tensors(self.args, self.kwargs) if t.layout is torch.strided)
        first = next((tensor for tensor in dense if tensor.is_floating_point()), None)
        return None if first is None else self.batched(first)

    def batched(self, tensor: Tensor) -> Tensor:
        """Return an input tensor with a batch dimension, as a view.

        Detection models take a list of pictures, whose elements have none.
        """
        listed = any(isinstance(value, list) for value in self.args)
        return tensor[None] if listed and tensor.ndim == 3 else tensor

    @property
    def samples(self) -> int:
        """The number of samples of the tensor that is shown; 1 without one."""
        return 1 if (main := self.main) is None else len(main)

    def undoing(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        """Return scale and offset that turn values ``(C, H, W)`` into a picture, and a note."""
        return undoing(values, self.mean, self.std, self.normalized)


def prepare_input(
    inputs: Any,
    model: nn.Module,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    finite: bool = True,
) -> ModelInput:
    """Turn a user's input into the arguments of the model.

    Parameters
    ----------
    inputs
        A path, the URL of a file, a PIL image, bytes, an open file or an array ``(H, W)``,
        ``(H, W, C)`` or ``(C, H, W)`` is a picture: uint8, uint16, or floats from 0 to 1. A list
        of these, an array ``(N, H, W, C)`` and a data frame's column of paths are a batch. A tensor
        is passed to the model unchanged. If the model raises on it, a tensor without a batch
        dimension gets one, and a tensor of bytes is read as a picture. A tuple holds the model's
        positional arguments, a dict its keyword arguments, or one argument if the names do not fit;
        a list of tensors is one argument (as detection models take), unless the model's forward
        needs as many arguments. The result of this function is returned unchanged.
    model : torch.nn.Module
        Its first parameter's device is where the input goes.
    weights : torchvision weights entry, optional
        ``weights.transforms()`` turns the picture into a tensor.
    transform : callable, optional
        Picture -> tensor, or what a processor of transformers returns; goes before ``weights``.
        It gets a PIL image, upright, in the picture's own mode (gray files as ``L``); if it
        raises, or its result does not have the channels of the model's first convolution, one
        that is converted to these channels. Without either, the picture gets as many channels as
        the first convolution takes (1, 3 or 4), and the transform is that of timm's
        ``model.pretrained_cfg``, or ImageNet's: resize to 256, centre crop of 224.
    finite : bool
        True if an empty batch is refused, and an input with NaN or Inf when it makes the model's
        output NaN or infinite. A model that handles such values itself is run in any case.

    Raises
    ------
    FileNotFoundError
        The file is missing.
    ValueError
        Not a picture, a shape or range of values that no picture has, or an empty batch.
    TypeError
        A type that no model takes.

    Examples
    --------
    >>> import hookviz
    >>> made = hookviz.attribution.prepare_input(hookviz.demo_images()[0], hookviz.demo_model())
    >>> made.args[0].shape
    torch.Size([1, 3, 112, 112])
    """
    if isinstance(inputs, ModelInput):
        return inputs
    check_model(model)
    if transform is not None and not callable(transform):
        raise TypeError(f"transform={transform!r} is not a function of a PIL image: give one.")
    model, _ = unwrapped(model)
    pictures = pictures_in(inputs)
    if pictures is not None:
        prepared = _from_pictures(pictures, model, weights, transform)
    else:
        prepared = _from_arguments(inputs, model, weights, transform)
    if finite:
        refuse_empty(prepared)
    return _with_nonfinite(prepared, finite)


# Pictures


def pictures_in(inputs: Any) -> list[Any] | None:
    """Return the pictures in an input, one or a batch; None for other inputs.

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
    if is_picture(inputs):
        return [inputs]
    if isinstance(inputs, np.ndarray) and inputs.ndim > 0:
        return list(inputs)
    if hasattr(inputs, "to_numpy"):
        return _from_column(inputs)
    return _from_list(inputs) if isinstance(inputs, list) else None


def _from_list(values: list[Any]) -> list[Any] | None:
    if not values:
        raise ValueError("The input is an empty list: give one picture at least.")
    values = [_array_of_bytes(value) for value in values]
    return values if all(map(is_picture, values)) else None


def _array_of_bytes(value: Any) -> Any:
    """Convert a tensor of bytes to an array; lists of floats go to detection models unchanged."""
    if isinstance(value, Tensor) and value.dtype == torch.uint8:
        return value.detach().cpu().numpy()
    return value


def _from_column(column: Any) -> list[Any]:
    """List the pictures in a column of pandas or polars."""
    values = column.to_numpy().tolist()
    other = next((value for value in values if not is_picture(value)), None)
    if other is not None or None in values:
        raise TypeError(
            f"The {type(column).__name__} holds {other!r}, which is not a picture: give a column "
            "of paths, such as frame['path'], or its numbers as torch.tensor(frame.to_numpy())."
        )
    return values


def _from_pictures(
    sources: list[Any], model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput:
    """Read and transform pictures; join them into one batch."""
    pictures = [load_picture(source) for source in sources]
    preprocessing = preprocessing_for(model, weights, transform)
    made, notes = zip(*map(preprocessing.apply, pictures), strict=True)
    batch = joined(made)
    args, kwargs = ((batch,), {}) if isinstance(batch, Tensor) else ((), batch)
    mean, std = preprocessing.normalization or ((), ())
    prepared = ModelInput(
        args,
        kwargs,
        name_of(sources[0]) if len(sources) == 1 else f"{len(sources)} pictures",
        mean,
        std,
        normalized=bool(mean),
        note="; ".join(filter(None, dict.fromkeys(notes))),
        preprocessing=preprocessing,
        pictures=tuple(picture.small() for picture in pictures),
    )
    return as_the_model_takes(prepared, model)


def joined(made: Sequence[Arguments]) -> Arguments:
    """Join the tensors, or keyword arguments, of several pictures into one batch."""
    if len(made) == 1:
        return made[0]
    named = [one for one in made if not isinstance(one, Tensor)]
    if named:
        return {key: torch.cat([one[key] for one in named]) for key in named[0]}
    batch = [one for one in made if isinstance(one, Tensor)]
    sizes = sorted({tuple(tensor.shape[1:]) for tensor in batch})
    if len(sizes) > 1:
        raise ValueError(
            f"The pictures became tensors of {len(sizes)} sizes, such as {sizes[0]} and "
            f"{sizes[1]}: give transform= with one size for all, such as Resize([224, 224])."
        )
    return torch.cat(batch)


# Arguments of the model


def _from_arguments(
    inputs: Any, model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput:
    device, _ = where_inputs_go(model)
    args, kwargs = _arguments(inputs, model)
    args, kwargs = map_tensors((args, kwargs), lambda t: _moved(t.detach(), device, t.dtype))
    normalization = None
    if transform or weights is not None or getattr(model, "pretrained_cfg", None):
        normalization = normalization_of(transform or transform_for(model, weights))
    mean, std = normalization or ((), ())
    prepared = ModelInput(args, kwargs, "tensor", mean, std)
    if kwargs or len(args) != 1 or not isinstance(args[0], Tensor):
        return prepared
    return replace(prepared, replacement=_replacement(prepared, model, weights, transform))


def _arguments(inputs: Any, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments; a dict is the latter if the names fit."""
    if isinstance(inputs, Mapping):
        named = {str(key): value for key, value in inputs.items()}
        return ((), named) if binds(model, (), named) else ((inputs,), {})
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, list) and all(isinstance(value, Tensor) for value in inputs):
        # A model that needs as many arguments cannot take the list as one of them.
        apart = binds(model, tuple(inputs), {}) and not binds(model, (inputs,), {})
        return (tuple(inputs) if apart else (inputs,)), {}
    if isinstance(inputs, (Tensor, list)):
        return (inputs,), {}
    if isinstance(inputs, DataLoader):
        raise TypeError(
            "A DataLoader holds many batches: give the inputs of one, next(iter(loader))[0]."
        )
    if isinstance(inputs, Dataset):
        raise TypeError("A data set holds many samples: give the input of one, dataset[0][0].")
    raise TypeError(
        f"Cannot make an input of {type(inputs).__name__}: give a path, a PIL image, an array "
        "(H, W, 3), a list of these, a tensor (N, C, H, W), or a tuple or dict of what the model "
        "takes."
    )


def binds(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the model's forward takes these arguments."""
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # no signature, as of a ScriptModule
        return True
    return True


def _replacement(
    prepared: ModelInput, model: nn.Module, weights: Any, transform: Transform | None
) -> ModelInput | None:
    """Return the replacement for a tensor on which the model raises: a batch, or pictures."""
    tensor, first = prepared.args[0], first_convolution(model)
    channels = getattr(first, "in_channels", None)
    spatial = 0 if first is None else dimensions(first)
    sample = spatial and tensor.ndim == spatial + 1 and tensor.shape[0] == channels
    if sample and tensor.is_floating_point():
        return replace(prepared, args=(tensor[None],), note="a batch dimension was added")
    array = _array_of_bytes(tensor)
    takes_pictures = spatial == 2 and (channels == 0 or channels in MODES)
    if array is tensor or not takes_pictures or array.ndim not in (2, 3, 4):
        return None
    try:
        pictures = _from_pictures(
            list(array) if array.ndim == 4 else [array], model, weights, transform
        )
    except ValueError:  # of another shape than a picture has
        return None
    return replace(pictures, note="a tensor of bytes was taken as pictures")


# Empty batches, NaN and Inf


def refuse_empty(inputs: ModelInput) -> None:
    """Raise ``ValueError`` if the input holds no values; an empty tensor beside others may be."""
    main = inputs.main
    given = tensors(inputs.args, inputs.kwargs) if main is None else [main]
    if given and not any(tensor.numel() for tensor in given):
        raise ValueError(
            f"The input, shape {tuple(given[0].shape)}, is empty: give a batch of one or more."
        )


def _with_nonfinite(prepared: ModelInput, finite: bool) -> ModelInput:
    """Add a note on NaN and Inf; a session refuses them if they reach the model's output."""
    values = [_stored(t) for t in tensors(prepared.args, prepared.kwargs) if t.numel()]
    # A sum is finite only if all its terms are, and is much faster to check.
    values = [
        t
        for t in values
        if t.is_floating_point() and not t.sum().isfinite() and not t.isfinite().all()
    ]
    if not values:
        return prepared
    nans = sum(int(tensor.isnan().sum()) for tensor in values)
    infs = sum(int(tensor.isinf().sum()) for tensor in values)
    words = f"{nans} NaN and {infs} infinite values of {sum(tensor.numel() for tensor in values)}"
    note = "; ".join(filter(None, (prepared.note, f"the input has {words}")))
    error = (
        f"The input has {words}, and so the model's output is not finite: clean it first, for "
        "example with torch.nan_to_num."
    )
    return replace(prepared, note=note, nonfinite=error if finite else "")


def _stored(tensor: Tensor) -> Tensor:
    """Return the values that a sparse or nested tensor stores; other tensors unchanged."""
    if tensor.layout is torch.sparse_coo:
        return tensor.detach().coalesce().values()
    plain = tensor.layout is torch.strided and not tensor.is_nested
    return tensor.detach() if plain else tensor.detach().values()


def refuse_nonfinite(inputs: ModelInput, output: Any) -> None:
    """Raise ``ValueError`` if the input's NaN or Inf have reached the model's output."""
    if not inputs.nonfinite:
        return
    dense = (tensor for tensor in tensors(output) if tensor.layout is torch.strided)
    if any(tensor.is_floating_point() and not tensor.isfinite().all() for tensor in dense):
        raise ValueError(inputs.nonfinite)


# Advice for an input on which the model raises


def cure_words(inputs: ModelInput, model: nn.Module, error: BaseException) -> str:
    """Return advice if the form of the input explains the model's error; else empty."""
    args = inputs.args
    argument = args[0] if len(args) == 1 and not inputs.kwargs else None
    if isinstance(argument, Tensor) and (words := _tensor_cure(argument, model)):
        return words
    if not isinstance(error, (AttributeError, TypeError)):  # the model takes this type
        return ""
    values = argument if isinstance(argument, list) else args
    if not isinstance(argument, Tensor) and is_loader_batch(values):
        return LOADER_BATCH
    if len(args) > 1 and all(map(is_picture, args)):
        return "A tuple is the model's arguments: give a list for a batch of pictures."
    if isinstance(argument, list):
        return (
            "A list is one argument: give torch.stack(tensors), which takes tensors of one size, "
            "or a list of pictures and paths."
        )
    return _arguments_cure(inputs, model, argument)


def _arguments_cure(inputs: ModelInput, model: nn.Module, argument: Any) -> str:
    if not isinstance(argument, Mapping) and binds(model, inputs.args, inputs.kwargs):
        return ""
    names = inspect.signature(model.forward).parameters
    forward = f"forward({', '.join(names)})"
    if not isinstance(argument, Mapping):
        alone = "; give one argument that is a tuple as ((a, b),)" if len(inputs.args) > 1 else ""
        return f"Give a dict of the arguments of {forward}{alone}."
    if others := [repr(key) for key in argument if key not in names]:
        return f"The keys {', '.join(others)} are not arguments of {forward}."
    return f"The dict lacks arguments of {forward}."


LOADER_BATCH = "These look like inputs and labels, as a DataLoader gives them: give batch[0]."


def is_loader_batch(values: Sequence[Any]) -> bool:
    """Return whether these are inputs and their labels, as data sets and loaders give them."""
    first, *labels = values or (None,)
    if not isinstance(first, Tensor) or first.ndim < 2:
        return is_picture(first) and len(labels) == 1 and isinstance(labels[0], (int, Tensor))
    tensors = [label for label in labels if isinstance(label, Tensor)]
    if first.ndim == 3 and any(tensor.ndim == 3 for tensor in tensors):
        return False  # pictures (C, H, W) of several sizes
    of_samples = all(len(first) == len(t) and first.shape != t.shape for t in tensors if t.ndim)
    return of_samples and (bool(labels) or first.ndim > 3)  # a data set without labels gives [x]


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


# Device and dtype


def where_inputs_go(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Return device and dtype of the model's first floating-point weights.

    An offloaded model (accelerate) moves its weights when it runs: its hooks name the device.
    """
    weights = (p for p in model.parameters() if p.is_floating_point())
    first = next(weights, None)
    dtype = torch.float32 if first is None else first.dtype
    hooks = (vars(module).get("_hf_hook") for module in all_modules(model))
    devices = (getattr(hook, "execution_device", None) for hook in hooks)
    offloaded = next((device for device in devices if device is not None), None)
    if offloaded is not None:
        return torch.device(offloaded), dtype
    if first is not None and first.is_meta:
        first = next((p for p in weights if not p.is_meta), None)
    return torch.device("cpu") if first is None else first.device, dtype


def as_the_model_takes(inputs: ModelInput, model: nn.Module) -> ModelInput:
    """Move the inputs to the device of the model's weights, and floats to their dtype."""
    return moved(inputs, *where_inputs_go(model))


def moved(inputs: ModelInput, device: torch.device, dtype: torch.dtype) -> ModelInput:
    """Move the inputs to a device, and floats to a dtype."""
    arguments = inputs.args, inputs.kwargs
    args, kwargs = map_tensors(arguments, lambda tensor: _moved(tensor, device, dtype))
    return replace(inputs, args=args, kwargs=kwargs)


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    if tensor.is_meta:
        raise ValueError(
            "The input is on the meta device and has no values: give a tensor with values, and "
            "make it outside of torch.device('meta')."
        )
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
