"""The facts that the code of a view is written from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from keyword import iskeyword

from torch import Tensor

from ...hooking.select import unwrapped
from ...hooking.tensors import as_maps
from ...run.inputs import ModelInput
from ...view.heatmaps import ShownHeatmap
from ...view.view import View
from .inputs import Given, Preparation, preparation_of, quoted

WIDTH = 88
"""The length at which lines are broken where that is easy."""


class CodeContext:
    """A view, and the source text of its model, layer, input and maps."""

    def __init__(self, view: View, given: Given) -> None:
        self.view, self.given, self.settings = view, given, view.settings
        self.record, self.call, self.run = view.record, view.call, view.run
        self.user_model, self.inputs = view.session.given, view.session.inputs
        self.class_names = view.session.class_names
        self.core, path = unwrapped(self.user_model)
        self.model = f"model.{path}" if path else "model"  # how the code reaches `core`
        # The only input tensor (None if there are other arguments), and its path.
        self.x, self.x_at, self.calling = _call_of(self.inputs, self.model)
        self.maps = as_maps(self.call.activation, self.record.module, self.call.grid)
        self.spatial = self.maps.ndim - 2  # the dimensions of a map
        self.graded = self.call.gradient is not None
        self.takes: list[str] = []  # comments on names that the user has to define

    @cached_property
    def heatmap(self) -> ShownHeatmap:
        return ShownHeatmap(self.view)

    @cached_property
    def method(self) -> str | None:
        """The heatmap's name, if it is drawn."""
        return self.settings.heatmap if self.heatmap.values is not None else None

    @property
    def scored(self) -> bool:
        """True if the code runs a backward."""
        return self.graded or self.method == "saliency"

    def layer(self, name: str) -> str:
        """Return the expression for a layer."""
        return f"{self.model}.get_submodule({quoted(name)})" if name else self.model

    def take(self, name: str, meaning: str) -> None:
        """Add a name that the user has to define, and its meaning."""
        if (line := f"# {name}: {meaning}") not in self.takes:
            self.takes.append(line)

    @cached_property
    def preparation(self) -> Preparation | None:
        """The lines that make the input from the picture; None if they are too complex."""
        x, given = self.x, self.given
        if x is None or len(x) != 1 or not self.inputs.args:
            return None
        make = lambda: preparation_of(given, x, self.user_model)  # noqa: E731
        return self.view.memo.get_or_compute("preparation", (self.inputs, given), make)

    @property
    def logits(self) -> str:
        """The expression for the model's class scores."""
        if issubclass(self.run.returned, Tensor):
            return self.calling
        end = '["logits"]' if issubclass(self.run.returned, Mapping) else ".logits"
        return self.calling + end

    @property
    def arrangement(self) -> str | None:
        """The calls that arrange the output as maps; None for an output without a batch."""
        given, maps = self.call.activation, self.maps
        if maps is given:
            return ""
        if maps.shape == (1, *given.shape):
            return None
        if given.ndim == 2:
            return "[..., None]"
        if given.ndim == 4:
            return ".movedim(-1, 1)"
        places = tuple(maps.shape[2:])
        before = given.shape[1] - math.prod(places)
        return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {places})"


def as_drawn(tensor: Tensor) -> str:
    """Return the calls that move a tensor to the CPU in a dtype that matplotlib can draw."""
    text = ".float()" if tensor.element_size() < 4 else ""
    return text + (".cpu()" if tensor.device.type != "cpu" else "")


def _call_of(inputs: ModelInput, model: str) -> tuple[Tensor | None, str, str]:
    """Return the only input tensor, its path in the inputs, and the model's call as source."""
    if len(inputs.args) == 1 and not inputs.kwargs and isinstance(inputs.args[0], Tensor):
        return inputs.args[0], "args[0]", f"{model}(x)"
    if len(inputs.kwargs) == 1 and not inputs.args:
        ((name, value),) = inputs.kwargs.items()
        if isinstance(value, Tensor) and name.isidentifier() and not iskeyword(name):
            return value, f"kwargs[{quoted(name)}]", f"{model}({name}=x)"
    return None, "", ""
