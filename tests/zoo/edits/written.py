"""The reference: an edit written into the model's own code, with no hook and without hookviz.

A module that stands in the layer's place calls the layer and changes what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Edit:
    """What is done to what a layer returns, or to the gradient that reaches it.

    Attributes
    ----------
    label : str
    layer : str
        Its name.
    dimension : int
        Of the layer's output, where the channels are: 1 or −1.
    change : float, torch.Tensor or callable
        As in `hookviz.edit`; a tensor is of the output's shape.
    channels : list of int or None
    gradient : bool
    """

    label: str
    layer: str
    dimension: int
    change: float | Tensor | Callable[[Tensor], Tensor]
    channels: list[int] | None = None
    gradient: bool = False

    @property
    def part(self) -> tuple[Any, ...]:
        """The index of the channels."""
        return (slice(None), self.channels) if self.dimension == 1 else (..., self.channels)

    def by_hand(self, tensor: Tensor) -> Tensor:
        """The new tensor, as products and sums alone."""
        if callable(self.change):
            return self.change(tensor).clone()  # an in-place ReLU may come behind
        meant = torch.zeros_like(tensor)
        meant[self.part] = 1
        if isinstance(self.change, Tensor):
            return tensor * (1 - meant) + self.change * meant
        return tensor * (1 + (self.change - 1) * meant)


class Written(nn.Module):
    """A layer with a change in its code; whatever else is asked of it, the layer answers."""

    def __init__(self, layer: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.change = layer, change

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer returns, changed."""
        return self.change(self.layer(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["layer"], name)


class Backward(torch.autograd.Function):
    """The tensor itself, but its gradient is changed on its way."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        context.change = change
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.change(gradient), None


@contextmanager
def written(model: nn.Module, changes: Mapping[str, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Within the block, the layers of these names have the changes in their code."""
    stand = {model.get_submodule(name): change for name, change in changes.items()}
    stand = {layer: Written(layer, change) for layer, change in stand.items()}
    places = [
        (parent, key, child)
        for parent in list(model.modules())
        for key, child in parent._modules.items()
        if child in stand
    ]
    for parent, key, child in places:
        parent._modules[key] = stand[child]
    try:
        yield
    finally:
        for parent, key, child in places:
            parent._modules[key] = child


@contextmanager
def made(model: nn.Module, edit: Edit) -> Iterator[None]:
    """Within the block, the edit is in the model's code."""
    change = edit.by_hand
    if edit.gradient:
        change = lambda tensor: Backward.apply(tensor, edit.by_hand)  # noqa: E731
    with written(model, {edit.layer: change}):
        yield
