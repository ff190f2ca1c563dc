"""What it costs to keep every convolution's output, and the gradient that reaches it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

import hookviz

from .race import print_table, race

Contenders = dict[str, Callable[[], Any]]
Keep = Callable[[str, Tensor], None]

MODELS = ("resnet50", "vgg11")
CLASS = 0


def run(*, quick: bool = False) -> None:
    """Race captures of all convolutions on random weights, at 1×3×224×224."""
    rounds, slow_rounds = (4, 1) if quick else (40, 3)
    for name in MODELS:
        torch.manual_seed(0)
        model = torchvision.models.get_model(name).eval()
        image = torch.randn(1, 3, 224, 224)
        forward, both = forward_contenders(model, image), backward_contenders(model, image)
        print_table(f"{name}: forward", race(forward, rounds))
        with torch.no_grad():
            print_table(f"{name}: forward within no_grad", race(forward, rounds))
        title = f"{name}: forward, and backward to the input"
        print_table(title, race(both, rounds))
        slow = captum_contenders(model, image)
        if slow:
            slow = {"plain": both["plain"], **slow}
            print_table(f"{title}, captum", race(slow, slow_rounds, warmups=1))
        else:
            print(f"\n{title}, captum: not installed")


def forward_contenders(model: nn.Module, image: Tensor) -> Contenders:
    """Ways to keep the outputs of one forward."""

    def by_reference() -> Any:
        # The cheapest, but wrong where the next layer works in place, as in vgg11.
        kept: dict[str, Tensor] = {}
        with hooks(model, lambda name, output: kept.update({name: output})):
            return model(image), kept

    def clones() -> Any:
        kept: dict[str, Tensor] = {}
        with hooks(model, lambda name, output: kept.update({name: output.detach().clone()})):
            return model(image), kept

    def captured() -> Any:
        with hookviz.capture(model) as cache:
            return model(image), cache

    return {
        "plain": lambda: model(image),
        "raw hooks, by reference": by_reference,
        "raw hooks, clones": clones,
        "hookviz.capture": captured,
    }


def backward_contenders(model: nn.Module, image: Tensor) -> Contenders:
    """Ways to keep outputs and gradients of one forward and one backward."""

    def raw(keep_gradient: Callable[[Tensor], Tensor]) -> Any:
        kept: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}

        def keep(name: str, output: Tensor) -> None:
            kept[name] = output.detach().clone()
            output.register_hook(lambda g: gradients.update({name: keep_gradient(g)}))

        with hooks(model, keep):
            return input_gradient(model, image), kept, gradients

    def captured() -> Any:
        with hookviz.capture(model) as cache:
            return input_gradient(model, image), cache

    return {
        "plain": lambda: input_gradient(model, image),
        "raw tensor hooks, gradients by reference": lambda: raw(lambda gradient: gradient),
        "raw tensor hooks, gradients cloned": lambda: raw(torch.clone),
        "hookviz.capture": captured,
    }


def captum_contenders(model: nn.Module, image: Tensor) -> Contenders:
    """Activation and gradient by captum, layer by layer and all at once; {} without captum."""
    try:
        from captum.attr import LayerActivation, LayerGradientXActivation
    except ImportError:
        return {}
    layers = [module for _, module in convolutions(model)]

    def of(which: nn.Module | list[nn.Module]) -> Any:
        gradient = LayerGradientXActivation(model, which, multiply_by_inputs=False)
        with warnings.catch_warnings():  # that it sets requires_grad on the input
            warnings.simplefilter("ignore")
            # A copy, for captum leaves .requires_grad changed on what it is given.
            at = image.clone()
            return LayerActivation(model, which).attribute(at), gradient.attribute(at, CLASS)

    return {
        "captum, a loop over the layers": lambda: [of(layer) for layer in layers],
        "captum, a list of all layers": lambda: of(layers),
    }


def input_gradient(model: nn.Module, image: Tensor) -> Tensor:
    """Forward, and backward from one class to the image."""
    image = image.clone().requires_grad_()
    return torch.autograd.grad(model(image)[0, CLASS], image)[0]


def convolutions(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d)]


@contextmanager
def hooks(model: nn.Module, keep: Keep) -> Iterator[None]:
    """Forward hooks as one writes them by hand: ``keep(name, output)`` after every convolution."""
    handles = [
        module.register_forward_hook(lambda module, args, output, name=name: keep(name, output))
        for name, module in convolutions(model)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
