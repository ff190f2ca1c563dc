"""What the code of a view is written from: each fact once, for all pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from keyword import iskeyword
from typing import Any

import torch
from torch import Tensor

from ...attribution.gradients import ATTRIBUTIONS
from ...hooking.select import unwrapped
from ...hooking.tensors import as_maps
from ...run.inputs import ModelInput
from ...view.heatmaps import ShownHeatmap
from ...view.view import View
from .inputs import Given, Preparation, preparation_of, quoted

WIDTH = 88
"""Longer lines are broken where that is easy."""


class CodeContext:
    """A view, and how to say what it is of."""

    def __init__(self, view: View, given: Given) -> None:
        self.view, self.given, self.at = view, given, view.at
        self.record, self.call, self.heatmap = view.record, view.call, ShownHeatmap(view)
        self.user_model, self.run = view.session.given, view.run
        self.inputs, self.class_names = view.session.inputs, view.session.class_names
        self.core, path = unwrapped(self.user_model)
        self.model = f"model.{path}" if path else "model"  # how the code reaches `core`
        # The call, the one tensor that goes in (or None), and where in the inputs it is.
        self.calling, self.x, self.x_at = _call_of(self.inputs, self.model)
        self.method = self.at.heatmap if self.heatmap.values is not None else None
        self.graded = self.call.gradient is not None
        self.scored = self.graded or self.method in ATTRIBUTIONS
        self.maps = as_maps(self.call.activation, self.record.module, self.call.grid)
        self.takes: list[str] = []  # comments on what the code takes

    def layer(self, name: str) -> str:
        """How the code reaches a layer."""
        return f"{self.model}.get_submodule({quoted(name)})" if name else self.model

    def take(self, name: str, what: str) -> None:
        """Note what the code takes, and what that is."""
        if (line := f"# {name}: {what}") not in self.takes:
            self.takes.append(line)

    @cached_property
    def preparation(self) -> Preparation | None:
        """How the input is made of the picture, if a few lines can say it."""
        x, given = self.x, self.given
        if x is None or len(x) != 1 or self.calling != f"{self.model}(x)":
            return None
        make = lambda: preparation_of(given, x, self.user_model)  # noqa: E731
        return self.view.memo.once("preparation", (self.inputs, given), make)

    @property
    def differentiable(self) -> bool:
        """Whether the gradient can be asked of the input."""
        return self.x is not None and self.x.is_floating_point()

    @property
    def logits(self) -> str:
        """The model's class scores."""
        if issubclass(self.run.returned, Tensor):
            return self.calling
        end = '["logits"]' if issubclass(self.run.returned, Mapping) else ".logits"
        return self.calling + end

    @property
    def spatial(self) -> int:
        """How many dimensions the layer's maps have."""
        return self.maps.ndim - 2

    def index(self, *indices: int) -> str:
        """Of a map in the layer; of a volume, with the slice."""
        return ", ".join(map(str, [*indices, *([self.at.depth] if self.spatial == 3 else [])]))

    @property
    def x_depth(self) -> list[int]:
        """The slice of the input, a volume, at the same share of the depth; else nothing."""
        if self.x is None or self.x.ndim != 5:
            return []
        return [round(self.view.depth_share * (self.x.shape[2] - 1))]

    @property
    def arrangement(self) -> str:
        """What `hookviz.hooking.tensors.as_maps` did to the layer's output."""
        given, maps = self.call.activation, self.maps
        if maps is given:
            return ""
        if maps.shape == (1, *given.shape):
            return "[None]"
        if given.ndim == 2:
            return "[..., None]"
        if given.ndim == 4:
            return ".movedim(-1, 1)"
        places = tuple(maps.shape[2:])
        before = given.shape[1] - math.prod(places)
        return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {places})"


def as_drawn(tensor: Tensor) -> str:
    """What brings a tensor to where, and to what, matplotlib can draw it."""
    text = ".float()" if tensor.dtype in (torch.half, torch.bfloat16) else ""
    return text + (".cpu()" if tensor.device.type != "cpu" else "")


def _call_of(inputs: ModelInput, model: str) -> tuple[str, Tensor | None, str]:
    """The call of the model as source, its one tensor, and where in the inputs that is."""
    given = [("", f"args[{place}]", value) for place, value in enumerate(inputs.args)]
    for name, value in inputs.kwargs.items():
        given.append((f"{name}=", f"kwargs[{quoted(name)}]", value))
    tensors = [(value, at) for _, at, value in given if isinstance(value, Tensor)]
    names = all(name.isidentifier() and not iskeyword(name) for name in inputs.kwargs)
    words = [_written(value) for _, _, value in given]
    if len(tensors) == 1 and names and None not in words:
        said = ", ".join(f"{name}{word}" for (name, *_), word in zip(given, words, strict=True))
        return f"{model}({said})", *tensors[0]
    return f"{model}(*args{', **kwargs' if inputs.kwargs else ''})", None, ""


def _written(value: Any) -> str | None:
    """An argument as source, if it can be said in a word."""
    if isinstance(value, Tensor):
        return "x"
    if isinstance(value, str):
        return quoted(value)
    plain = value is None or isinstance(value, int)
    return repr(value) if plain or (isinstance(value, float) and math.isfinite(value)) else None
