"""Running transforms of torch.func, within which hooks cannot read the values of tensors."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 (torch's types do not name it)

VMAP, GRAD, JVP = "torch.vmap", "torch.func.grad", "torch.func.jvp"
FORWARD_MODE = "forward-mode differentiation (torch.func.jvp or torch.autograd.forward_ad)"
TRANSFORMS = frozenset((VMAP, GRAD, JVP, FORWARD_MODE))
"""The other transforms of torch.func consist of these: ``hessian`` of ``jvp`` and ``grad``."""

_NAMES = {"Vmap": VMAP, "Grad": GRAD, "Jvp": JVP}


class TransformError(RuntimeError):
    """A layer runs within a transform that cannot be followed."""


def refuse_transforms(followed: Container[str] = ()) -> None:
    """Raise `TransformError` if a transform is running that is not among the ``followed`` ones.

    Examples
    --------
    >>> def score(x):
    ...     refuse_transforms(followed=[GRAD])
    ...     return x.sum()
    >>> torch.func.grad(score)(torch.zeros(2))
    tensor([1., 1.])
    >>> torch.vmap(score)(torch.zeros(2, 3))
    Traceback (most recent call last):
      ...
    hookviz.hooking.transforms.TransformError: The model runs layers within torch.vmap, which ...
    """
    if name := hiding_transform(followed):
        raise TransformError(
            f"The model runs layers within {name}, which hides their values from hooks: run them "
            f"{without(name)}."
        )


def without(transform: str) -> str:
    """Say how to run layers outside of a transform."""
    return "on the whole batch, without it" if transform == VMAP else "without it"


def hiding_transform(followed: Container[str] = ()) -> str:
    """Return the name of a running transform that is not ``followed``; empty if there is none."""
    dual = forward_ad._current_level >= 0
    stack = _functorch.get_interpreter_stack()
    if not dual and stack is None:
        return ""
    running = [_NAMES.get(interpreter.key().name, "") for interpreter in stack or ()]
    if dual and JVP not in running:  # jvp sets the level, too
        running.append(FORWARD_MODE)
    return next((name for name in running if name and name not in followed), "")


def is_wrapped(tensor: Tensor) -> bool:
    """Return whether a transform, such as vmap or grad, has wrapped the tensor."""
    return _functorch.is_functorch_wrapped_tensor(tensor) or is_batched(tensor)


def is_batched(tensor: Tensor) -> bool:
    """Return whether the tensor stands for a batch within torch.vmap or a batched backward."""
    if _functorch.is_batchedtensor(tensor):
        return True
    return torch._C._dispatch_keys(tensor).has(_BATCHED_BACKWARD)


# torch.autograd's is_grads_batched= and vectorize= use an older vmap, which is not functorch's.
_BATCHED_BACKWARD: Any = torch._C._dispatch_key_parse("Batched")


def without_wrappers(tensor: Tensor) -> Tensor:
    """Return the tensor inside the wrappers of torch.func, which are unusable outside of it."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor
