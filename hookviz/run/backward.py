"""The backward: what the gradient is asked of, so that it passes every layer and no ``.grad``."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..hooking.tensors import map_tensors

GradientSource = Literal["inputs", "parameters", "everything"]
"""What the gradient is asked of: the input; the parameters too; or all, by backward()."""


def clone_inputs(model: nn.Module, args: Any, kwargs: Any) -> tuple[list, dict, list[Tensor]]:
    """The call's arguments, as tensors of our own that ask for a gradient, and those tensors.

    Without any floating-point input (a text model), the parameters are asked instead, frozen ones
    too; `preserved_state` freezes them again.
    """
    sources: list[Tensor] = []

    def own(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        if not copy.is_floating_point():
            return copy
        sources.append(copy.requires_grad_())
        return copy.clone()  # no leaf: a first layer may work in place

    args, kwargs = map_tensors((list(args), dict(kwargs)), own)
    if not sources:
        sources = [p.requires_grad_() for p in model.parameters() if p.is_floating_point()]
    return args, kwargs, sources


def run_backward(
    score: Tensor, sources: list[Tensor], model: nn.Module, goal: GradientSource
) -> GradientSource | None:
    """Send the gradient through the layers; the goal to run again with, if this one cannot be."""
    if goal == "everything":
        for parameter in model.parameters():
            parameter.grad = None  # `preserved_state` puts it back
        score.backward()
        return None
    if goal == "parameters":
        sources = sources + [p for p in model.parameters() if p.requires_grad]
    try:
        torch.autograd.grad(score, sources, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        return "everything"  # reentrant checkpointing knows backward() only
    return None
