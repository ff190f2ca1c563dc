"""What the model is called with, made of whatever a user has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    IMAGENET_MEAN,
    IMAGENET_STD,
    Transform,
    dimensions,
    first_convolution,
    normalization_of,
    transform_for,
    transformed,
)


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
    model, _ = unwrapped(model)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if isinstance(image, (str, PathLike, Image.Image, np.ndarray)):
        name = fspath(image) if isinstance(image, (str, PathLike)) else type(image).__name__
        picture = load_picture(image)
        if transform is None:
            _refuse_too_long(picture, str(name))
            transform = transform_for(model, weights)
        tensor = transformed(transform, picture)
        mean, std = normalization_of(transform) or (IMAGENET_MEAN, IMAGENET_STD)
        given: tuple[Any, ...] = (tensor.to(like.device, like.dtype),)
        prepared = ModelInput(given, {}, str(name), mean, std)
    else:
        known = transform if transform else transform_for(model, weights, checked=False)
        mean, std = normalization_of(known) or (IMAGENET_MEAN, IMAGENET_STD)
        prepared = _as_given(image, model, like.device, mean, std)
    for _, tensor in tensors_in([prepared.args, prepared.kwargs]):
        _refuse_not_finite(tensor)
    return prepared


def class_names_of(
    model: nn.Module, weights: Any = None, class_names: Sequence[str] | None = None
) -> list[str]:
    """Class names, from the argument, the weights' categories or ``model.class_names``."""
    if class_names is None:
        model, _ = unwrapped(model)
        meta = getattr(weights, "meta", None) or {}
        class_names = meta.get("categories") or getattr(model, "class_names", None) or ()
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
        raise TypeError("class_names must be a list of strings, one for each class in order.")
    return list(class_names)


def _as_given(
    image: Any, model: nn.Module, device: torch.device, mean: Any, std: Any
) -> ModelInput:
    if isinstance(image, Tensor):
        first = first_convolution(model)
        lacks_batch = first is not None and (
            image.ndim == dimensions(first) + 1
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
    if not tensor.is_floating_point() or tensor.isfinite().all():
        return
    raise ValueError(
        f"The input has {int(tensor.isnan().sum())} NaN and {int(tensor.isinf().sum())} infinite "
        f"values of {tensor.numel()}: every layer would show NaN; clean it first, for example "
        "with torch.nan_to_num."
    )
