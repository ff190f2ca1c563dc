"""What Grad-CAM of every layer costs beside the peers, and what it costs to change one's mind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

import hookviz

from .capture import CLASS, Contenders, convolutions, input_gradient
from .drawing import new_explorer, steps
from .race import print_table, race

METHODS = ("gradcam", "layercam", "eigencam")
EARLY, LATE = "conv1", "layer4.2.conv3"


def run(*, quick: bool = False) -> None:
    """Race heatmaps of resnet50's 53 convolutions, random weights, at 1×3×224×224."""
    rounds, slow_rounds = (2, 1) if quick else (30, 2)
    torch.manual_seed(0)
    model = torchvision.models.resnet50().eval()
    image = torch.randn(1, 3, 224, 224)

    title = f"resnet50: Grad-CAM of all {len(convolutions(model))} convolutions"
    contenders = one_call(model, image)
    print_table(title, race(contenders, rounds))
    baseline = next(iter(contenders))
    slow = one_layer_at_a_time(model, image)
    if slow:
        slow = {baseline: contenders[baseline], **slow}
        print_table(f"{title}, captum", race(slow, slow_rounds, warmups=0))
    else:
        print(f"\n{title}, captum: not installed")

    explorer = new_explorer()
    contenders = {
        baseline: contenders[baseline],
        "another target: explorer.target = k": steps(explorer, "target", range(1000)),
        "another layer: explorer.layer = name": steps(explorer, "layer", (LATE, EARLY)),
        "another method: explorer.heatmap = name": steps(explorer, "heatmap", METHODS[::-1]),
        **other_methods(explorer.cache),
    }
    print_table("resnet50: another target, layer or method", race(contenders, rounds))
    explorer.close()


def one_call(model: nn.Module, image: Tensor) -> Contenders:
    """Everybody who can do all layers at once, each as its makers mean it to be called."""
    layers = [module for _, module in convolutions(model)]
    contenders: Contenders = {
        "plain forward and backward, no heatmap": lambda: input_gradient(model, image),
        "hookviz: capture, heatmap of each": lambda: by_hookviz(model, image),
    }
    for name, make in {"torchcam": by_torchcam, "pytorch-grad-cam": by_grad_cam}.items():
        try:
            contenders[f"{name}, a list of all layers"] = make(model, image, layers)
        except ImportError:
            print(f"\n{name}: not installed")
    return contenders


def by_hookviz(model: nn.Module, image: Tensor) -> dict[str, Tensor]:
    with hookviz.capture(model) as cache:
        input_gradient(model, image)
    return {name: hookviz.heatmap(record) for name, record in cache.items()}


def by_torchcam(model: nn.Module, image: Tensor, layers: list[nn.Module]) -> Callable[[], Any]:
    from torchcam.methods import GradCAM

    def heatmaps() -> list[Tensor]:
        with GradCAM(model, list(layers)) as cam:
            return cam(CLASS, model(image))

    return heatmaps


def by_grad_cam(model: nn.Module, image: Tensor, layers: list[nn.Module]) -> Callable[[], Any]:
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    def heatmaps() -> Any:
        with GradCAM(model, layers) as cam:  # their mean, of the picture's size
            heat = cam(image, [ClassifierOutputTarget(CLASS)])
        model.zero_grad()  # it goes backward into the weights, too
        return heat

    return heatmaps


def one_layer_at_a_time(model: nn.Module, image: Tensor) -> Contenders:
    """Grad-CAM by captum, which runs the model for each layer; {} without captum."""
    try:
        from captum.attr import LayerGradCam
    except ImportError:
        return {}

    def heatmaps() -> list[Tensor]:
        with warnings.catch_warnings():  # that it sets requires_grad on the input
            warnings.simplefilter("ignore")
            # A copy, for captum leaves .requires_grad changed on what it is given.
            at = image.clone()
            return [
                LayerGradCam(model, module).attribute(at, CLASS, relu_attributions=True)
                for _, module in convolutions(model)
            ]

    return {"captum, a loop over the layers": heatmaps}


def other_methods(cache: hookviz.results.FeatureCache) -> Contenders:
    """What is captured already is only computed with."""
    return {
        f"another method: {method} of {layer}": (
            lambda layer=layer, method=method: hookviz.heatmap(cache[layer], method)
        )
        for layer in (EARLY, LATE)
        for method in METHODS
    }
