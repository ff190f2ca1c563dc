"""Torchvision networks with random weights and their picture sizes; small networks from parts."""

from __future__ import annotations

import torch
import torchvision
from perturbed import randomize
from torch import nn

MODELS = {
    "alexnet": 64,
    "convnext_tiny": 32,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "efficientnet_v2_s": 32,
    "fcn_resnet50": 32,
    "googlenet": 64,
    "inception_v3": 96,
    "lraspp_mobilenet_v3_large": 32,
    "mnasnet0_5": 32,
    "mobilenet_v2": 32,
    "mobilenet_v3_small": 32,
    "regnet_x_400mf": 32,
    "regnet_y_400mf": 32,
    "resnet18": 32,
    "resnext50_32x4d": 32,
    "shufflenet_v2_x0_5": 32,
    "squeezenet1_1": 48,
    "swin_t": 32,
    "vgg11_bn": 32,
    "vit_b_16": 32,
    "wide_resnet50_2": 32,
}

QUICK = {"resnet18", "squeezenet1_1"}


def built(name):
    """Build one of `MODELS` in double precision; return it with two pictures."""
    options = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": True}
    if name.startswith(("fcn", "lraspp")):
        options |= {"weights_backbone": None}
    if name == "vit_b_16":
        options |= {"image_size": 32}
    model = torchvision.models.get_model(name, **options).double().eval()
    randomize(model, torch.Generator().manual_seed(0), biases=True)
    side = MODELS[name]
    return model, torch.randn(2, 3, side, side, dtype=torch.float64)


def model_of(forward, **parts):
    """Return a module of these parts; `forward` gets the module and its inputs."""
    model = type("Model", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(model, name, part)
    return model
