"""Held before anything ran: NaN and Inf in weights, buffers and inputs."""

from __future__ import annotations

import torch
from torch import nn

from .fault import fault, picture


def with_nan():
    """Return pictures, one value of which is NaN."""
    x = picture()
    x[1, 0, 3, 3] = torch.nan
    return x


@fault("torchvision/resnet18", "nan", "layer3.0.conv2")
def nan_in_a_weight(model):
    """One of a convolution's weights is NaN."""
    with torch.no_grad():
        model.layer3[0].conv2.weight[3, 2, 1, 1] = torch.nan


@fault("torchvision/alexnet", "inf", "classifier.4", training=False)
def inf_in_a_bias(model):
    """One of a linear layer's biases is Inf."""
    with torch.no_grad():
        model.classifier[4].bias[7] = torch.inf


@fault("timm/resnet10t", "nan", "layer1.0.bn1", training=False)
def nan_in_a_buffer(model):
    """A BatchNorm's running mean is NaN, in eval."""
    model.layer1[0].bn1.running_mean[0] = torch.nan


@fault(
    "torchvision/mobilenet_v3_small", "nan", "features.3.block.0.1", "batch_norm", training=False
)
def negative_variance(model):
    """A BatchNorm's running variance is below 0, as a bad average leaves it, in eval."""
    model.features[3].block[0][1].running_var[5] = -1.0


@fault("timm/vit_tiny_patch16_224", "nan", "", options={"img_size": 64})
def nan_in_a_token(model):
    """The class token, a parameter of the model itself, is NaN."""
    nn.init.constant_(model.cls_token, torch.nan)


@fault("torchvision/shufflenet_v2_x0_5", "nan", "", given=with_nan)
def nan_in_the_input(model):
    """Nothing in the model: the input contains a NaN."""
