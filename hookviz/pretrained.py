"""torchvision's models with their trained weights, or a clear word why not."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torchvision
from torch import nn

from .layers import close_names


def pretrained(name: str, weights: Any = None) -> tuple[nn.Module, Any]:
    """Build a torchvision model with trained weights, downloading them if need be.

    Parameters
    ----------
    name : str
        Such as ``"resnet34"``, see ``torchvision.models.list_models()``.
    weights : torchvision weights entry, optional
        The model's default weights if left out.

    Returns
    -------
    model : torch.nn.Module
        In eval mode.
    weights
        The entry that was loaded, with ``transforms()`` and ``meta["categories"]``.

    Raises
    ------
    ValueError
        No such model, or weights of another model.
    RuntimeError
        The weights could not be downloaded, the message names the model that needs none; or
        their file holds more than weights.

    Examples
    --------
    >>> from hookviz.pretrained import pretrained
    >>> pretrained("resnet3")
    Traceback (most recent call last):
    ...
    ValueError: torchvision has no model 'resnet3'; close to it: 'resnet34', 'resnet50', 'resnet18'.
    """
    names = torchvision.models.list_models()
    if name not in names:
        raise ValueError(f"torchvision has no model {name!r}; {close_names(name, names)}.")
    kinds = torchvision.models.get_model_weights(name)
    weights = weights or kinds["DEFAULT"]
    if not isinstance(weights, kinds):
        raise ValueError(
            f"{weights!r} are no weights of {name!r}: take one of {kinds.__name__}: "
            f"{', '.join(kind.name for kind in kinds)}."
        )
    try:
        with _weights_only():
            model = torchvision.models.get_model(name, weights=weights)
    except OSError as error:  # urllib's errors, time-outs and a full disk among them
        raise RuntimeError(
            f"The weights {weights} could not be downloaded ({error}): try again with a network "
            "connection, or use hookviz.demo_model(), which ships with its weights."
        ) from error
    except pickle.UnpicklingError as error:
        raise RuntimeError(
            f"The downloaded weights {weights} hold more than weights and were not read: delete "
            f"the file in {torch.hub.get_dir()!r} and try again."
        ) from error
    return model.eval(), weights


@contextmanager
def _weights_only() -> Iterator[None]:
    """Within the block torch reads files as data: torchvision would let it run what is in them."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        del os.environ[names[0]]
        os.environ.update(before)
