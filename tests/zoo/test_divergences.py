"""`hookviz.compare` names the layer in which two networks of torchvision begin to differ."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torchvision
from heavy import heavy_but
from torch import nn
from torch.nn import functional as F

import hookviz


@dataclass(frozen=True)
class Planted:
    """One model changed in one place."""

    name: str
    network: str  # a network of torchvision
    layer: str  # where the difference arises
    plant: Callable[[nn.Module], object]  # changes the layer or a module inside it
    side: int = 96


def flip_exponent(layer):
    """Flip one bit in the exponent of one weight, which doubles or halves it."""
    with torch.no_grad():
        bits = layer.weight.view(torch.int32).flatten()
        bits[int(layer.weight.abs().argmax())] ^= 1 << 23


def setting(name, value):
    return lambda layer: setattr(layer, name, value)


def returns(change):
    """Return a function that changes the forward of one module."""

    def plant(layer):
        layer.forward = lambda x, *rest: change(layer, x)

    return plant


def half_accumulation(layer, x):
    return F.conv2d(
        x.half(), layer.weight.half(), None, layer.stride, layer.padding, 1, layer.groups
    ).float()


def with_half_its_shortcut(block):
    """Join a block's branch and shortcut differently: in the block's code, not in any layer."""

    def forward(x):
        branch = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))
        return block.relu(branch + 0.5 * x)

    block.forward = forward


def nearest(model):
    """Upsample a segmentation's logits differently, in the model's code."""

    def forward(x):
        features = model.backbone(x)["out"]
        return {"out": F.interpolate(model.classifier(features), x.shape[-2:], mode="nearest")}

    model.forward = forward


def one_off(layer):
    """Pad only at the right and the bottom instead of all around."""
    pad = layer.padding[0]

    def forward(x):
        wide = F.pad(x, (pad - 1, pad + 1, pad - 1, pad + 1))
        return F.conv2d(wide, layer.weight, layer.bias, layer.stride, 0, 1, layer.groups)

    layer.forward = forward


PLANTED = [
    Planted("a weight, one bit of its exponent", "resnet18", "layer2.0.conv2", flip_exponent),
    Planted("epsilon of a BatchNorm", "resnet18", "layer3.0.bn1", setting("eps", 1e-3)),
    Planted("epsilon of a LayerNorm among tokens", "vit_b_16",
            "encoder.layers.encoder_layer_4.ln_1", setting("eps", 1e-2), 224),
    Planted("ReLU6 for ReLU", "squeezenet1_1", "features.3.squeeze_activation",
            returns(lambda m, x: x.clamp(0, 0.05))),
    Planted("mean pooling for max pooling", "googlenet", "maxpool2",
            returns(lambda m, x: F.avg_pool2d(x, 3, 2, ceil_mode=True))),
    Planted("padding off by one", "resnet18", "layer1.0.conv1", one_off),
    Planted("half-precision sums", "resnet18", "layer3.1.conv1", returns(half_accumulation)),
    Planted("the shortcut halved", "resnet18", "layer3.1", with_half_its_shortcut),
    Planted("another interpolation", "fcn_resnet50", "", nearest, 64),
    Planted("dropout left on", "alexnet", "classifier.3",
            returns(lambda m, x: F.dropout(x, 0.5, True))),
]  # fmt: skip

QUICK = {
    "a weight, one bit of its exponent",
    "half-precision sums",
    "the shortcut halved",
}
SAME: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": torch.compile,
    "channels last": lambda model: model.to(memory_format=torch.channels_last),
    "half precision": nn.Module.half,
    "bfloat16": nn.Module.bfloat16,
    "double precision": nn.Module.double,
}


def build(name):
    """Build a torchvision network with random weights large enough for every layer to matter."""
    torch.manual_seed(0)
    more = {"weights_backbone": None} if name.startswith("fcn") else {}
    if name in ("googlenet", "inception_v3"):
        more = {"init_weights": True, "aux_logits": name != "googlenet"}
    return torchvision.models.get_model(name, weights=None, **more).eval()


@pytest.mark.parametrize("planted", heavy_but(QUICK, PLANTED, lambda planted: planted.name))
def test_the_layer_of_a_planted_divergence_is_found(planted):
    model = build(planted.network)
    other = copy.deepcopy(model)
    planted.plant(other.get_submodule(planted.layer))
    x = torch.randn(1, 3, planted.side, planted.side)
    assert hookviz.compare(model, other, x).first().layer == planted.layer


@pytest.mark.heavy
@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("network", ["mobilenet_v2", "densenet121", "convnext_tiny", "vit_b_16"])
def test_a_network_and_itself_in_another_form_do_not_diverge(network, change):
    side = 224 if network.startswith("vit") else 96
    model, x = build(network), torch.randn(1, 3, side, side)
    other = SAME[change](copy.deepcopy(model))
    assert hookviz.compare(model, other, x).first() is None
