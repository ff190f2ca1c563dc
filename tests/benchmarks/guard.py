"""What it costs to watch a training step for NaN and Inf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

import hookviz

from .race import print_table, race

MODELS = {"resnet18": (8, 224), "resnet50": (4, 224)}
"""Name -> batch, and pictures' side."""


def run(*, quick: bool = False) -> None:
    """Race guards around a step of training: forward, cross-entropy, backward."""
    for name, (batch, side) in MODELS.items():
        torch.manual_seed(0)
        model = torchvision.models.get_model(name).train()
        given = torch.randn(batch, 3, side, side), torch.arange(batch)
        guards = contenders(model)
        steps = {each: step(model, *given, guard) for each, guard in guards.items()}
        title = f"{name}: a step of training, {batch}×3×{side}×{side}"
        print_table(title, race(steps, 3 if quick else 15))


def step(
    model: nn.Module,
    pictures: Tensor,
    classes: Tensor,
    guard: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], Any]:
    """One step within a guard that is made for it."""

    def once() -> Tensor:
        model.zero_grad()
        with guard():
            loss = cross_entropy(model(pictures), classes)
            loss.backward()
        return loss

    return once


def contenders(model: nn.Module) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Ways to find out about NaN and Inf; the first one does not."""
    found: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext,
        "hookviz.diagnose": lambda: hookviz.diagnose(model),
        "isfinite in a hook of each leaf": lambda: leaves(model),
        "detect_anomaly": lambda: torch.autograd.detect_anomaly(),
        "a mode that looks at each operation": Every,
    }
    try:
        from transformers.debug_utils import DebugUnderflowOverflow
    except ImportError:
        print("transformers' debugger: not installed")
        return found
    return found | {"transformers' debugger": lambda: debugger(model, DebugUnderflowOverflow)}


@contextmanager
def leaves(model: nn.Module) -> Iterator[None]:
    """A forward hook on each leaf, which looks whether its output is finite."""

    def look(module: nn.Module, args: Any, output: Tensor) -> None:
        if not output.isfinite().all():
            raise ValueError(type(module).__name__)

    ends = [module for module in model.modules() if next(module.children(), None) is None]
    handles = [module.register_forward_hook(look) for module in ends]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Every(TorchDispatchMode):
    """Looks whether what each operation returns is finite."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if isinstance(output, Tensor) and output.is_floating_point():
            assert output.isfinite().all()
        return output


@contextmanager
def debugger(model: nn.Module, kind: Callable[..., Any]) -> Iterator[None]:
    """The one of transformers, with its hooks taken off again, which it does not do itself."""
    before = {module: dict(module._forward_hooks) for module in model.modules()}
    kind(model)
    try:
        yield
    finally:
        for module, hooks in before.items():
            module._forward_hooks.clear()
            module._forward_hooks.update(hooks)
