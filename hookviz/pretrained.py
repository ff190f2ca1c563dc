"""torchvision's models with their trained weights, or a clear word why not."""

from __future__ import annotations

from typing import Any

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
        The weights could not be downloaded; the message names the model that needs none.

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
        model = torchvision.models.get_model(name, weights=weights)
    except OSError as error:  # urllib's errors, time-outs and a full disk among them
        raise RuntimeError(
            f"The weights {weights} could not be downloaded ({error}): try again with a network "
            "connection, or use hookviz.demo_model(), which ships with its weights."
        ) from error
    return model.eval(), weights
