"""Models of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..weights import fill


@dataclass(frozen=True)
class Foreign:
    """A model of a library that need not be installed.

    Attributes
    ----------
    name : str
        ``"monai/UNet, 3d"``. The part before the slash is the module imported first.
    shape : tuple of int
        The shape of the input, or of its single random tensor.
    make : callable
        Builds the model with its library's initialization.
    given : callable, optional
        Makes the model's input from that tensor: a tuple, dict or list.
    finish : callable, optional
        Changes the model once it has its weights: quantizes, wraps or offloads it.
    refused : str
        Part of hookviz's message if it cannot show the model.
    """

    name: str
    shape: tuple[int, ...]
    make: Callable[[], nn.Module]
    given: Callable[[Tensor], Any] = lambda x: x
    finish: Callable[[nn.Module], nn.Module] = lambda model: model
    refused: str = ""
    kind = "foreign"

    @property
    def library(self):
        """The module to import."""
        return self.name.partition("/")[0]

    def build(self, gain=1.0):
        """Build the model with random weights, see `fill`, in eval mode."""
        torch.manual_seed(0)
        model = self.make().eval()
        fill(model, gain)
        return self.finish(model)

    def input(self):
        """Return the model's input, the same each time."""
        return self.given(torch.randn(self.shape, generator=torch.Generator().manual_seed(1)))


def all_foreign():
    """Return every model of the ecosystem by its name, library by library."""
    return {case.name: case for case in _every()}


def _every():
    from . import huggingface, pictures, transformed

    for module in (pictures, huggingface, transformed):
        yield from module.cases()
