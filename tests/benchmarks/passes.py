"""The cost of hookviz relative to one forward, or one forward and backward, of a network."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import partial
from itertools import cycle

import torch
import torchvision
from captum.attr import LayerGradCam
from pytorch_grad_cam import GradCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import Tensor, nn
from torchcam.methods import GradCAM as TorchCam

import hookviz
from benchmarks.race import raced
from hookviz.view.map import map_payload
from hookviz.view.messages import WhyQuestion
from hookviz.view.reason import why_answer

CLASS = 0
TAKEN_APART = {
    "resnet18": "layer3.0.conv1",
    "resnet152": "layer3.0.conv1",
    "densenet121": "features.denseblock3.denselayer1.conv1",
    "efficientnet_b0": "features.4.0.block.0.0",
    "googlenet": "inception4a.branch2.0.conv",
    "vit_b_16": "encoder.layers.encoder_layer_3.mlp.0",
}
"""Network -> a layer in which a value is explained."""


def network(name, **options):
    """Return a network of torchvision with random weights, the same at every call."""
    torch.manual_seed(0)
    if name == "googlenet":
        options["init_weights"] = False
    return torchvision.models.get_model(name, **options).eval()


def picture(quick):
    side = 64 if quick else 224
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))


def capture(quick):
    """Capture every convolution's output and the gradient that reaches it."""
    rounds = 2 if quick else 15
    for name in ("vgg11",) if quick else ("resnet50", "vgg11"):
        model, x = network(name), picture(quick)
        plain = partial(input_gradient, model, x)
        yield raced(f"{name}: all convolutions, forward", forwards(model, x), rounds)
        both = {
            "plain": plain,
            "tensor hooks, gradients by reference": lambda m=model, x=x: by_hand(
                m, x, torch.Tensor.detach
            ),
            "tensor hooks, gradients cloned": lambda m=model, x=x: by_hand(m, x, torch.clone),
            "hookviz.capture": lambda m=model, x=x: captured(m, partial(input_gradient, m, x)),
        }
        yield raced(f"{name}: forward, and backward to the input", both, rounds)


def forwards(model, x):
    """Return several ways to store the outputs of one forward."""

    def by_hooks(keep):
        kept: list[Tensor] = []

        def after(module, args, output):
            kept.append(keep(output))

        with hooked(convolutions(model), after):
            return model(x), kept

    return {
        "plain": lambda: model(x),
        "hooks, by reference (wrong where the next layer works in place)": lambda: by_hooks(
            Tensor.detach
        ),
        "hooks, clones": lambda: by_hooks(lambda output: output.detach().clone()),
        "hookviz.capture": lambda: captured(model, lambda: model(x)),
    }


def captured(model, act):
    with hookviz.capture(model) as cache:
        return act(), cache


def by_hand(model, x, keep_gradient):
    """Store the outputs and gradients of one forward and backward with hand-written hooks."""
    kept: list[Tensor] = []

    def after(module, args, output):
        kept.append(output.detach().clone())
        output.register_hook(lambda gradient: kept.append(keep_gradient(gradient)))

    with hooked(convolutions(model), after):
        return input_gradient(model, x), kept


def input_gradient(model, x):
    """Run a forward, and a backward from one class to the picture."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x)[0, CLASS], x)[0]


def forward(model, x):
    with torch.no_grad():
        return model(x)


def convolutions(model):
    return modules_of(model, nn.Conv2d)


def modules_of(model, *kinds):
    return [module for module in model.modules() if isinstance(module, kinds)]


@contextmanager
def hooked(modules, after):
    """Register a forward hook on each module within the block."""
    handles = [module.register_forward_hook(after) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def heatmaps(quick):
    """Compute Grad-CAM for every layer."""
    rounds, slow_rounds = (2, 1) if quick else (10, 1)
    model, x = network("resnet50"), picture(quick)
    layers, plain = convolutions(model), partial(input_gradient, model, x)

    def by_hookviz():
        with hookviz.capture(model) as cache:
            input_gradient(model, x)
        return [hookviz.heatmap(record) for record in cache.values()]

    def by_torchcam():
        with TorchCam(model, list(layers)) as cam:
            return cam(CLASS, model(x))

    def by_grad_cam():
        with GradCAM(model, layers) as cam:
            heat = cam(x, [ClassifierOutputTarget(CLASS)])
        model.zero_grad()  # GradCAM also computes gradients of the weights
        return heat

    def by_captum():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [LayerGradCam(model, layer).attribute(x.clone(), CLASS) for layer in layers]

    all_at_once = {
        "plain forward and backward, no heatmap": plain,
        "hookviz.capture, heatmap of each": by_hookviz,
        "torchcam, a list of all layers (wrong where a layer works in place)": by_torchcam,
        "pytorch-grad-cam, a list of all layers": by_grad_cam,
    }
    title = f"resnet50: Grad-CAM of all {len(layers)} convolutions"
    yield raced(title, all_at_once, rounds)
    yield raced(
        f"{title}, captum", {"plain": plain, "captum, layer by layer": by_captum}, slow_rounds
    )


def explaining(view, layer, width, row, **how):
    """Return a function that explains another value of a row of a layer's map at each call.

    A value that was traced back once is not traced back again.
    """
    columns = cycle(range(width))

    def answer():
        column = next(columns)
        position = [row, column] if "encoder" not in layer else [width * row + column]
        at = {"layer": layer, "call": 0, "channel": 3, "position": position}
        return why_answer(view, WhyQuestion(key="", **at, **how), seconds=0)

    return answer


def graph(quick):
    """Record a network's graph and explain a value. The ratios are relative to one forward."""
    for name in [*TAKEN_APART][: 1 if quick else None]:
        model, x, layer = network(name), picture(quick), TAKEN_APART[name]
        where = {"channel": 3, "position": (3,) if name.startswith("vit") else (3, 3)}
        explorer = hookviz.explore(model, x, layers=[layer], face="plain")
        explorer.contributions(layer, **where)  # keeps a run
        width = 4 if quick else 14  # as many columns as the smallest map has
        why = partial(explaining, explorer.displayed(), layer, width)
        contenders = {
            "plain": partial(forward, model, x),
            "hookviz.graph": partial(hookviz.graph, model, x),
            "hookviz.contributions": partial(hookviz.contributions, model, x, layer, **where),
            "explorer.contributions, again": partial(explorer.contributions, layer, **where),
            "why? of another position": why(1),
            "why? of another position, with one term traced back": why(0, traced=0),
            "why? of another position, with eight terms traced back": why(3, traced=7),
            "the map": partial(map_payload, explorer.displayed()),
        }
        yield raced(f"{name}: graph and contributions", contenders, 2 if quick else 7)
        explorer.close()
