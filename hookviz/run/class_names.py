"""What the classes are called: the argument, the weights, or what the model itself knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from ..hooking.select import unwrapped


def class_names_of(
    model: nn.Module, weights: Any = None, class_names: Sequence[str] | None = None
) -> list[str]:
    """Class names, in the order of the classes; empty where nobody says any.

    Looked for in the argument, the categories of torchvision's weights, ``model.class_names``,
    ``model.config.id2label`` (transformers), ``model.names`` (ultralytics), and timm's own lists.
    """
    if class_names is not None:
        if isinstance(class_names, str) or not all(isinstance(each, str) for each in class_names):
            raise TypeError("class_names must be a list of strings, one for each class in order.")
        return list(class_names)
    model, _ = unwrapped(model)
    return next((names for given in _known(model, weights) if (names := _listed(given))), [])


def _known(model: nn.Module, weights: Any) -> Iterator[Any]:
    yield (getattr(weights, "meta", None) or {}).get("categories")
    yield getattr(model, "class_names", None)
    yield getattr(getattr(model, "config", None), "id2label", None)
    yield getattr(model, "names", None)
    if "timm" in sys.modules and hasattr(model, "pretrained_cfg"):
        from timm.data import ImageNetInfo, infer_imagenet_subset

        subset = infer_imagenet_subset(model)
        info = ImageNetInfo(subset) if subset else None
        count = info.num_classes() if info else 0
        if info and count == getattr(model, "num_classes", None):
            yield [info.index_to_description(index) for index in range(count)]


def _listed(names: Any) -> list[str]:
    """Names as a list, of a list or of number -> name; empty if they are neither."""
    if isinstance(names, Mapping):
        names = [names.get(index) for index in range(len(names))]
    if isinstance(names, str) or not isinstance(names, Sequence):
        return []
    # What transformers makes up for a model without labels says nothing.
    made_up = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    return list(names) if all(isinstance(n, str) for n in names) and not made_up else []
