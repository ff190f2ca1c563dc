"""Let a model set ``requires_grad`` of its input, as one does that computes forces."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..hooking.functions import standing_in
from ..hooking.interrupts import Block
from .recorder import graph_nodes

_SET: Any = Tensor.requires_grad.__set__  # type: ignore[attr-defined]


def inputs_like_leaves() -> Block:
    """Return a block within which ``x.requires_grad = True`` works on the model's input.

    A session's inputs require a gradient and are no leaves, so that a first layer may work in
    place. Torch sets the flag of a leaf alone, as the user's own input is.
    """
    return standing_in(_set_flag)


def _set_flag(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if function in (_SET, Tensor.requires_grad_):
        tensor, *rest = *args, *kwargs.values()
        if not tensor.is_leaf and _is_of_inputs(tensor):
            return tensor if rest in ([], [True]) else tensor.detach_()
    return function(*args, **kwargs)


def _is_of_inputs(tensor: Tensor) -> bool:
    """Return False for what was computed from weights, whose flag the user cannot set either."""
    variables = (getattr(node, "variable", None) for node in graph_nodes(tensor.grad_fn))
    return not any(isinstance(variable, nn.Parameter) for variable in variables)
