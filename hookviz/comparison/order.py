"""In which order a model's layers return, before any number is looked at."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from ..hooking.handles import HookSet
from ..hooking.nested import tensors_in
from ..hooking.select import Layers, select_layers
from .pairs import Ran


class Order(HookSet):
    """While its hooks are on it notes what runs.

    Attributes
    ----------
    layers : list of Ran
        Each layer that ran, in the order in which they first returned.
    calls : list of (str, int)
        Each run of each, by the layer's name and the run's number, in order.
    """

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        chosen = select_layers(model, layers)
        super().__init__([(m, "forward", partial(self._after, n[0])) for m, n in chosen.items()])
        self.layers: list[Ran] = []
        self.calls: list[tuple[str, int]] = []
        self._runs: dict[str, int] = {}

    def runs(self, name: str) -> int:
        """How often a layer ran."""
        return self._runs.get(name, 0)

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        shapes = [tuple(tensor.shape) for _, tensor in tensors_in(output)]
        if not shapes:  # nothing that could be compared
            return
        if name not in self._runs:
            self.layers.append(Ran(name, module, shapes[0]))
        self.calls.append((name, self.runs(name)))
        self._runs[name] = self.runs(name) + 1
