"""The reference: an edit as part of the model's code, without hooks and hookviz.

A module replaces the layer; it calls the layer and changes its output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import hookviz

from ..running import score


@dataclass(frozen=True)
class Edit:
    """A change of a layer's output, or of its gradient.

    Attributes
    ----------
    label : str
    layer : str
        Its name.
    dimension : int
        The dimension of the channels in the layer's output, 1 or −1.
    change : float, torch.Tensor or callable
        As in `hookviz.edit`; a tensor has the output's shape.
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
    def part(self):
        """Return the index of the channels."""
        return (slice(None), self.channels) if self.dimension == 1 else (..., self.channels)

    def by_hand(self, tensor):
        """Compute the new tensor with products and sums only."""
        if callable(self.change):
            return self.change(tensor).clone()  # an in-place ReLU may follow
        meant = torch.zeros_like(tensor)
        meant[self.part] = 1
        if isinstance(self.change, Tensor):
            return tensor * (1 - meant) + self.change * meant
        return tensor * (1 + (self.change - 1) * meant)


class Written(nn.Module):
    """A layer with a change in its forward; other attributes are the layer's."""

    def __init__(self, layer, change):
        super().__init__()
        self.layer, self.change = layer, change

    def forward(self, *args, **kwargs):
        """Return the layer's output with the change."""
        return self.change(self.layer(*args, **kwargs))

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["layer"], name)


class Backward(torch.autograd.Function):
    """The identity, with a change of the gradient."""

    @staticmethod
    def forward(context, tensor, change):
        context.change = change
        return tensor.clone()

    @staticmethod
    def backward(context, gradient):
        return context.change(gradient), None


@contextmanager
def written(model, changes):
    """Within the block, replace the named layers by changed ones."""
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
def made(model, edit):
    """Within the block, make the edit part of the model's code."""
    change = edit.by_hand
    if edit.gradient:
        change = lambda tensor: Backward.apply(tensor, edit.by_hand)  # noqa: E731
    with written(model, {edit.layer: change}):
        yield


def ask(model, given):
    """Return logits, and the score's gradient for the input and every parameter."""
    given = given.clone().requires_grad_()
    output = model(given)
    sources = [given, *(each for each in model.parameters() if each.requires_grad)]
    found = torch.autograd.grad(score(output), sources, materialize_grads=True)
    return [output.detach(), *found]


def by_reference(model, given, edit):
    """Make the edit in the model's code."""
    with made(model, edit):
        return ask(model, given)


def by_hookviz(model, given, edit):
    """Make the edit by `hookviz.edit`."""
    change, channels, gradient = edit.change, edit.channels, edit.gradient
    with hookviz.edit(model, edit.layer, change, channels=channels, gradient=gradient):
        return ask(model, given)
