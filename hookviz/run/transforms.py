"""How a picture becomes a model's input, and which normalization that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..hooking.select import is_convolution, module_names

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
    from torchvision.transforms import v2  # takes seconds, and only pictures have need of it

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
    """The picture as a tensor with a batch dimension, or as keyword arguments.

    The latter are what a processor of transformers returns, as lists of arrays.
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
    """The mean and std that a transform, or a step of it, subtracts and divides by."""
    if hasattr(transform, "image_mean") and hasattr(transform, "image_std"):  # a processor
        return tuple(map(float, transform.image_mean)), tuple(map(float, transform.image_std))
    if hasattr(transform, "mean") and hasattr(transform, "std"):
        return tuple(map(float, transform.mean)), tuple(map(float, transform.std))
    found = (normalization_of(step) for step in getattr(transform, "transforms", ()))
    return next((pair for pair in found if pair), None)
