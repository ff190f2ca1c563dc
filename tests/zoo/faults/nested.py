"""Dictionaries and tuples: as input, as output."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .checkpointed import root_of_zeros
from .fault import fault, own, patch, picture

SEGMENTATION = {"weights_backbone": None, "num_classes": 5}


def pair():
    """Return two consecutive pictures, the input of a model of optical flow."""
    return picture(1, 3, 128, 128), picture(1, 3, 128, 128).flip(-1)


def named_pair():
    """Return the same pictures by name, the second with a NaN."""
    first, second = pair()
    second[0, 0, 5, 5] = torch.nan
    return {"image1": first, "image2": second}


def last_flow(flows):
    """Return the loss of a model of optical flow."""
    return flows[-1].abs().mean()


def boxes():
    """Return a picture and its boxes, a detector's input in training."""
    target = {"boxes": torch.tensor([[10.0, 12.0, 60.0, 70.0]]), "labels": torch.tensor([1])}
    return [picture(3, 96, 128).sigmoid()], [target]


def all_losses(losses):
    """Return the sum of a detector's losses."""
    return sum(losses.values())


def both(outputs):
    """Return the loss of a segmentation with an auxiliary head."""
    return outputs["out"].square().mean() + 0.4 * outputs["aux"].square().mean()


@fault(
    "torchvision/lraspp_mobilenet_v3_large",
    "inf",
    "classifier.cbr",
    "log",
    options=SEGMENTATION,
)
def dict_output(model):
    """A logarithm of zeros in a segmentation's head, which returns a dictionary."""

    def forward(self, x):
        return torch.log(own(self, x))  # planted

    patch(model.classifier.cbr, forward)


@fault(
    "torchvision/deeplabv3_mobilenet_v3_large",
    "inf",
    "aux_classifier",
    "sqrt",
    phase="backward",
    options=SEGMENTATION | {"aux_loss": True},
    loss=both,
    line=True,
)
def one_of_two_outputs(model):
    """A root of zeros in the auxiliary head: only one of two outputs' gradient is not finite."""
    patch(model.aux_classifier, root_of_zeros)


@fault(
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn",
    "inf",
    "rpn.head",
    "exp",
    given=boxes,
    loss=all_losses,
    options={"weights_backbone": None, "num_classes": 3, "min_size": 96, "max_size": 128},
)
def list_input_and_losses(model):
    """``exp`` in a detector's proposals, which takes pictures and boxes and returns its losses."""

    def forward(self, features):
        logits, deltas = own(self, features)
        return [torch.exp(each + 100) for each in logits], deltas  # planted

    patch(model.rpn.head, forward)


@fault("torchvision/raft_small", "nan", "feature_encoder", "div", given=pair, loss=last_flow)
def tuple_input(model):
    """Correlations divided by a norm that is 0, in a model of two pictures."""

    def forward(self, x):
        x = F.relu(own(self, x) - 1e6)
        return x / x.norm(dim=1, keepdim=True)  # planted

    patch(model.feature_encoder, forward)


@fault("torchvision/raft_small", "nan", "", given=named_pair, loss=last_flow)
def nan_in_one_of_two_inputs(model):
    """Nothing in the model: the second picture, passed by name, has a NaN."""


@fault("timm/resnet10t", "nan", "layer2.0.conv2.tuple", "div")
def module_that_returns_a_tuple(model):
    """A wrapper around a convolution returns a tuple with a dictionary that contains 0 / 0."""

    class Inner(nn.Module):
        def forward(self, x):
            zero = F.relu(x - 1e6)
            return x, {"weight": zero / zero}  # planted

    class Outer(nn.Module):
        def __init__(self, convolution):
            super().__init__()
            self.convolution, self.tuple = convolution, Inner()

        def forward(self, x):
            x, more = self.tuple(self.convolution(x))
            return x * more["weight"]

    model.layer2[0].conv2 = Outer(model.layer2[0].conv2)
