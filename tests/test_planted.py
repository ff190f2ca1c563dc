"""Faults planted in trained networks, EfficientNet-Lite0 and digit classifiers, are found."""

import copy

import pytest
import torch
from digits import NETS, digits, trained
from heavy import heavy_but
from test_healthy import lite0, photographs
from torch import nn
from torch.nn import functional as F

import hookviz

__all__ = ["lite0", "photographs"]  # fixtures


def convolutions(model):
    return [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]


def norms(model):
    return [n for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)]


def middle(names):
    return names[len(names) // 2]


def to_255(model, x):
    return model, (x - x.min()) / (x.max() - x.min()) * 255


def one_norm_in_training(model, x):
    model.get_submodule(middle(norms(model))).train()
    return model, x


def zero_convolution(model, x):
    layer = model.get_submodule(middle(convolutions(model)))
    for each in layer.parameters():
        nn.init.zeros_(each)
    return model, x


def same_channels(model, x):
    layer = model.get_submodule(convolutions(model)[0])
    with torch.no_grad():
        layer.weight.copy_(layer.weight[:1].expand_as(layer.weight))
    return model, x


def no_variance(model, x):
    model.get_submodule(middle(norms(model))).running_var.zero_()
    return model, x


def bias_far_below(model, x):
    nn.init.constant_(model.get_submodule(norms(model)[0]).bias, -100.0)
    return model, x


def nan_weight(model, x):
    with torch.no_grad():
        model.get_submodule(middle(convolutions(model))).weight.view(-1)[0] = torch.nan
    return model, x


def softmax_at_the_end(model, x):
    return nn.Sequential(model, nn.Softmax(1)), x


def channels_last(model, x):
    return model, x.permute(0, 2, 3, 1)


def detached(model, x):
    name = middle(norms(model))
    layer = model.get_submodule(name)
    own = layer.forward
    layer.forward = lambda given: own(given).detach()
    return model, x


PLANTS = {
    to_255: "input scale",
    one_norm_in_training: "batchnorm",
    zero_convolution: "zero weights",
    same_channels: "same channels",
    no_variance: "batchnorm",
    bias_far_below: "dead",
    nan_weight: "nan",
    softmax_at_the_end: "loss",
    channels_last: "shape",
    detached: "no gradient",
}


def alarm_kinds(model, x, y):
    """Return the kinds of all errors and warnings."""
    findings = hookviz.diagnose(model, x, lambda output: F.cross_entropy(output, y))
    return [each.kind for each in findings if each.severity != "note"]


QUICK = {"to_255"}
NETWORKS = ["batchnorm", "depthwise", "resnet", "squeeze-excite"]


@pytest.mark.parametrize("plant", heavy_but(QUICK, PLANTS, lambda plant: plant.__name__))
def test_faults_planted_in_lite0_are_found(lite0, photographs, plant):
    model = copy.deepcopy(lite0).eval()
    labels = torch.tensor([282, 967])
    assert alarm_kinds(model, photographs, labels) == []
    assert PLANTS[plant] in alarm_kinds(*plant(model, photographs), labels)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("name", heavy_but({"batchnorm"}, NETWORKS))
def test_faults_planted_in_digit_classifiers_are_found(name, plant):
    model = copy.deepcopy(trained(name).stages["the end"]).eval()
    pictures, labels, _, _ = digits()
    x, y = NETS[name].given(pictures[:32]), labels[:32]
    assert alarm_kinds(model, x, y) == []
    model, x = plant(model, x)
    if plant is channels_last:
        model[0] = nn.Conv2d(3, 16, 3, padding=1)
        x = x.expand(-1, -1, -1, 3)
    silent = "constant" if any(isinstance(m, nn.SiLU) for m in model.modules()) else "dead"
    kind = silent if plant is bias_far_below else PLANTS[plant]
    assert kind in alarm_kinds(model, x, y)
