"""What the model is called with, made of whatever a user has."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..hooking.nested import change_tensors, tensors_in
from ..hooking.select import unwrapped
from .images import load_picture
from .transforms import (
    Transform,
    dimensions,
    first_convolution,
    normalization_of,
    transform_for,
    transformed,
)


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
    image: Any, model: nn.Module, *, weights: Any = None, transform: Transform | None = None
) -> ModelInput:
    """Turn whatever a user has into what the model takes.

    Parameters
    ----------
    image
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
    >>> hookviz.prepare_input(hookviz.demo_images()[0], hookviz.demo_model()).args[0].shape
    torch.Size([1, 3, 112, 112])
    """
    prepared = as_model_input(image, model, weights=weights, transform=transform)
    if prepared is not image:
        for _, tensor in tensors_in([prepared.args, prepared.kwargs]):
            _refuse_not_finite(tensor)
    return prepared


def as_model_input(
    image: Any, model: nn.Module, *, weights: Any = None, transform: Transform | None = None
) -> ModelInput:
    """The same as `prepare_input`, with NaN and Inf let through."""
    if isinstance(image, ModelInput):
        return image
    model, _ = unwrapped(model)
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
        kwargs = change_tensors(given, lambda each: _moved(each, device, dtype))
        mean, std = normalization_of(transform) or ((), ())
        return ModelInput(args, kwargs, str(name), mean, std, normalized=bool(mean))
    args, kwargs = _as_given(image, model)
    args, kwargs = change_tensors((args, kwargs), lambda each: each.detach().to(device))
    normalization = None
    if transform or weights is not None or getattr(model, "pretrained_cfg", None):
        normalization = normalization_of(transform or transform_for(model, weights, checked=False))
    return ModelInput(args, kwargs, "tensor", *(normalization or ()))


def with_batch(inputs: ModelInput, model: nn.Module) -> ModelInput | None:
    """The input with a batch dimension, if its one tensor may be a sample that has none."""
    first, only = first_convolution(model), inputs.args[0] if len(inputs.args) == 1 else None
    if first is None or inputs.kwargs or not isinstance(only, Tensor):
        return None
    channels = getattr(first, "in_channels", None)
    if only.ndim != dimensions(first) + 1 or only.shape[0] != channels:
        return None
    return replace(inputs, args=(only[None],), note="a batch dimension was added")


def where_inputs_go(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and type of the model's first floating-point weights.

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
    """The same on the device of a model's weights, floating-point numbers in their type."""
    device, dtype = where_inputs_go(model)

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    args, kwargs = change_tensors((inputs.args, inputs.kwargs), move)
    return replace(inputs, args=args, kwargs=kwargs)


def _as_given(image: Any, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments: of a dict, by name, or as one if the model takes it whole."""
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
    """Whether the model's forward has arguments of these names."""
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
