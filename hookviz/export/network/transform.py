"""A model's transform as steps that a page can do: resize, crop, grey, normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from ...run.inputs import ModelInput
from ...run.transforms import normalization_of

FILTERS = "bilinear", "bicubic"
_NO_STEP = {"PILToTensor", "ToImage", "ToTensor", "ToDtype", "ConvertImageDtype", "Normalize"}


def page_transform(inputs: ModelInput, given: Tensor) -> tuple[dict[str, Any] | None, str]:
    """Return the steps that make the network's input of a picture, and a note.

    Parameters
    ----------
    inputs : ModelInput
        Its transform is translated; where it has none, or one with unknown steps, a picture is
        resized by its shorter side and cropped to the input's size.
    given : torch.Tensor
        The network's input, ``(1, C, H, W)``.

    Returns
    -------
    steps : dict or None
        JSON values: ``steps``, ``mean`` and ``std``; None where the input is not a picture.
    note : str
        What is not as in the notebook; empty if nothing.

    Examples
    --------
    >>> import torch
    >>> page_transform(ModelInput((torch.zeros(1, 7, 8, 8),)), torch.zeros(1, 7, 8, 8))
    (None, 'The network takes 7 channels, so no picture can be given to it.')
    >>> page_transform(ModelInput(()), torch.zeros(1, 1, 8, 8))[0]["steps"][0]
    {'kind': 'gray'}
    >>> page_transform(ModelInput(()), torch.zeros(1, 3, 6, 8))[0]["steps"]
    [{'kind': 'resize', 'size': [6, 8], 'filter': 'bilinear'}]
    """
    if given.ndim != 4 or given.shape[1] not in (1, 3):
        channels = given.shape[1] if given.ndim > 1 else 0
        return None, f"The network takes {channels} channels, so no picture can be given to it."
    height, width = map(int, given.shape[-2:])
    function, note = inputs.preprocessing and inputs.preprocessing.transform, ""
    steps = None if function is None else steps_of(function)
    mean, std = list(inputs.mean), list(inputs.std)
    unknown = steps is None
    if steps is None:
        steps = [_resize([min(height, width)], "bilinear"), _crop([height, width])]
        if height != width:
            steps = [_resize([height, width], "bilinear")]
    # A transform for gray pictures need not make them gray; the page's pictures have colours.
    gray = {"kind": "gray"}
    if given.shape[1] == 1 and gray not in steps:
        steps = [gray, *steps]
    if unknown:
        what = "had a tensor" if function is None else "has a transform of its own"
        how = "to values from 0 to 1" if not mean else "with the model's normalization"
        size = f"{height}×{width}"
        note = f"The notebook {what}: here a picture is resized and cropped to {size}, {how}."
    return {"steps": steps, "mean": mean, "std": std}, note


def is_transformed(
    pixels: np.ndarray, values: np.ndarray, transform: dict[str, Any] | None
) -> bool:
    """Return whether an input is its picture, normalized, to the bit; as in ``web/resize.ts``.

    Examples
    --------
    >>> pixels = np.zeros((1, 1, 3), np.uint8)
    >>> transform = {"mean": [0.5], "std": [2.0]}
    >>> [is_transformed(pixels, np.full((3, 1, 1), x, np.float32), transform) for x in (-0.25, 0)]
    [True, False]
    """
    if transform is None or values.dtype != np.float32 or pixels.shape[:2] != values.shape[1:]:
        return False
    mean, std = (
        np.array(transform[name] or [default], np.float32)[:, None, None]
        for name, default in (("mean", 0), ("std", 1))
    )
    share = pixels.transpose(2, 0, 1)[: len(values)] * np.float32(1 / 255)
    return np.array_equal((share - mean) / std, values)


def steps_of(transform: Any) -> list[dict[str, Any]] | None:
    """Return a transform of torchvision as steps; None if it has one that is unknown.

    Examples
    --------
    >>> from torchvision.transforms import v2
    >>> steps_of(v2.Compose([v2.Resize([64]), v2.CenterCrop(56)]))
    [{'kind': 'resize', 'size': [64], 'filter': 'bilinear'}, {'kind': 'crop', 'size': [56, 56]}]
    >>> steps_of(v2.RandomCrop(8)) is None
    True
    """
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, (list, tuple)):
        every = [steps_of(each) for each in inner]
        return None if None in every else [step for each in every for step in each or ()]
    kind = type(transform).__name__
    if hasattr(transform, "resize_size") and hasattr(transform, "crop_size"):  # a preset
        found = _of_resize(transform.resize_size, transform.interpolation)
        crop = transform.crop_size
        return None if found is None else [*found, *([_crop(_listed(crop))] if crop else [])]
    if kind == "Resize" and getattr(transform, "max_size", None) is None:
        return _of_resize(transform.size, transform.interpolation)
    if kind == "CenterCrop":
        return [_crop(_listed(transform.size))]
    if kind == "Grayscale":
        return [{"kind": "gray"}]
    known = kind in _NO_STEP and (kind != "Normalize" or normalization_of(transform) is not None)
    return [] if known else None


def _of_resize(size: Any, interpolation: Any) -> list[dict[str, Any]] | None:
    name = str(getattr(interpolation, "value", interpolation))
    if not size or name not in FILTERS:
        return [] if not size else None
    return [_resize(_listed(size), name)]


def _resize(size: list[int], name: str) -> dict[str, Any]:
    return {"kind": "resize", "size": size, "filter": name}


def _crop(size: list[int]) -> dict[str, Any]:
    return {"kind": "crop", "size": size if len(size) > 1 else 2 * size}


def _listed(size: Any) -> list[int]:
    return [int(each) for each in size] if isinstance(size, (list, tuple)) else [int(size)]
