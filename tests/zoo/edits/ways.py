"""Ways to edit: hookviz, hooks as tutorials write them, nnsight and TorchLens.

Each makes the edit and returns logits and gradients, or None if the tool has no such edit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, distributed, nn

import hookviz

from ..running import score
from .written import Edit, made


def ask(model: nn.Module, given: Tensor) -> list[Tensor]:
    """Return logits, and the score's gradient for the input and every parameter."""
    given = given.clone().requires_grad_()
    return graded(model(given), model, given)


def graded(output: Tensor, model: nn.Module, given: Tensor) -> list[Tensor]:
    """Return the same for an output that the model has returned."""
    sources = [given, *(each for each in model.parameters() if each.requires_grad)]
    found = torch.autograd.grad(score(output), sources, materialize_grads=True)
    return [output.detach(), *found]


def by_reference(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor]:
    """Make the edit in the model's code."""
    with made(model, edit):
        return ask(model, given)


def by_hookviz(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor]:
    """``hookviz.edit(model, layer, change, channels=channels, gradient=gradient)``."""
    change, channels, gradient = edit.change, edit.channels, edit.gradient
    with hookviz.edit(model, edit.layer, change, channels=channels, gradient=gradient):
        return ask(model, given)


def by_returning(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor]:
    """A forward hook returns the new tensor, made from a clone; of a gradient, it sets a tensor
    hook on the output, ``output.register_hook(change)``.
    """

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if not edit.gradient:
            return changed(output, edit)
        output.register_hook(lambda gradient: changed(gradient, edit))
        return None

    return hooked(model.get_submodule(edit.layer).register_forward_hook(hook), model, given)


def by_overwriting(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor]:
    """A forward hook writes into ``output``; of a gradient, ``register_full_backward_pre_hook``
    returns the new one.
    """

    def forward(module: nn.Module, args: Any, output: Tensor) -> None:
        if callable(edit.change):
            output.copy_(edit.change(output))
        else:
            output[edit.part] = changed(output, edit)[edit.part]

    def backward(module: nn.Module, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (changed(gradients[0], edit),)

    layer = model.get_submodule(edit.layer)
    if edit.gradient:
        return hooked(layer.register_full_backward_pre_hook(backward), model, given)
    return hooked(layer.register_forward_hook(forward), model, given)


def hooked(handle: Any, model: nn.Module, given: Tensor) -> list[Tensor]:
    """Run the model and remove the hook."""
    try:
        return ask(model, given)
    finally:
        handle.remove()


def changed(tensor: Tensor, edit: Edit) -> Tensor:
    """Compute the edit as a user would write it."""
    if callable(edit.change):
        return edit.change(tensor)
    new = tensor.clone()
    if isinstance(edit.change, Tensor):
        new[edit.part] = edit.change[edit.part]
    else:
        new[edit.part] *= edit.change
    return new


def by_nnsight(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor]:
    """``with NNsight(model).trace(x): layer.output = new``; of a gradient, in the trace,
    ``with score.backward(): output.grad = new``.
    """
    from nnsight import NNsight

    net, given = NNsight(model), given.clone().requires_grad_()
    layer = net.get(edit.layer)
    if not edit.gradient:
        with net.trace(given):
            layer.output = changed(layer.output, edit)
            logits = net.output.save()
        return graded(logits, model, given)
    with net.trace(given):
        old = layer.output
        logits = net.output.save()
        with score(logits).backward():
            old.grad = changed(old.grad, edit)
    sources = [given, *(each for each in model.parameters() if each.requires_grad)]
    found = [torch.zeros_like(each) if each.grad is None else each.grad for each in sources]
    for each in sources:
        each.grad = None
    return [logits.detach(), *found]


def by_torchlens(model: nn.Module, given: Tensor, edit: Edit) -> list[Tensor] | None:
    """``trace(model, x, intervene=when(module(name), new))``. It has hooks for what an operation's
    backward returns, and none for the gradient that reaches a layer's output.
    """
    if edit.gradient:
        return None
    import torchlens

    become_rank_0()
    given = given.clone().requires_grad_()
    # Otherwise its wrappers of torch's functions stay.
    options = torchlens.options.CaptureOptions(unwrap_when_done=True)
    where = torchlens.module(edit.layer)
    what = torchlens.when(where, lambda tensor, *, hook: changed(tensor, edit))
    trace = torchlens.trace(model, given, capture=options, intervene=what)
    return graded(trace[trace.output_layers[0]].out, model, given)


def become_rank_0() -> None:
    """Become rank 0 of a process group, since TorchLens runs in a child process only as a rank."""
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)


@dataclass(frozen=True)
class Way:
    """A way to edit.

    Attributes
    ----------
    run : callable
        Returns logits and gradients, or None if the tool has no such edit.
    package : str
        The package that must be installed.
    most : float
        The largest number of a model's parameters for which it is tested.
    """

    run: Callable[[nn.Module, Tensor, Edit], list[Tensor] | None]
    package: str = "hookviz"
    most: float = float("inf")

    @property
    def there(self) -> bool:
        """Return whether the package is installed."""
        return find_spec(self.package) is not None


HOOKVIZ = "hookviz.edit"

WAYS = {
    HOOKVIZ: Way(by_hookviz),
    "hook that returns": Way(by_returning, most=60e6),
    "hook that overwrites": Way(by_overwriting, most=60e6),
    "nnsight": Way(by_nnsight, "nnsight", 30e6),
    "TorchLens": Way(by_torchlens, "torchlens", 2.5e6),
}
