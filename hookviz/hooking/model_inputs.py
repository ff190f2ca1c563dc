"""The inputs of a model by name: "input", or one of several by its path."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor, nn

from .select import is_convolution, module_names, unwrapped
from .tensors import tensors_in

_NAME = re.compile(r"input((?:\[[^\]]+\]|\.\w+)*)$")


def is_input(name: object) -> bool:
    """Return whether a name stands for an input of the model.

    Examples
    --------
    >>> is_input("input"), is_input("input[0][2]"), is_input("inputs")
    (True, True, False)
    """
    return isinstance(name, str) and _NAME.match(name) is not None


class ModelInputs:
    """The inputs of a model, which are named as layers are.

    Attributes
    ----------
    model : torch.nn.Module
        Without its wrappers.
    first : torch.nn.Module or None
        The first convolution: its dimensions tell a batch from a single sample.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, _ = unwrapped(model)
        names = module_names(model)
        self._layers = {name for every in names.values() for name in every}
        self.first = next((module for module in names if is_convolution(module)), None)

    def split(self, layers: Any) -> tuple[Any, list[str]]:
        """Return the layers without the names of inputs, and those names."""
        entries = layers if isinstance(layers, (list, tuple)) else [layers]
        inputs = [each for each in entries if is_input(each) and each not in self._layers]
        if not inputs:
            return layers, []
        return [each for each in entries if each not in inputs], inputs

    def chosen(self, name: str, args: Any, kwargs: Any) -> Tensor:
        """Return the tensor that a name stands for; a ``ValueError`` lists the known names."""
        found = {**dict(tensors_in(tuple(args))), **dict(tensors_in(dict(kwargs)))}
        floating = {path: each for path, each in found.items() if each.is_floating_point()}
        path = name.removeprefix("input").replace('"', "'")
        if not path and floating:
            return next(iter(floating.values()))
        if path in floating:
            return floating[path]
        known = ", ".join(f"input{each}" for each in floating) or "none"
        raise ValueError(
            f"The model's inputs have no floating-point tensor {name!r}; known: {known}."
        )
