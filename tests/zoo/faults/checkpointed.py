"""Inside activation checkpointing: the layer runs again in the backward."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .fault import fault, own, patch


def checkpointed(module, reentrant):
    """Checkpoint a module as a whole."""

    def forward(self, x):
        return checkpoint(partial(own, self), x, use_reentrant=reentrant)

    patch(module, forward)


def log_of_relu(self, x):
    """Take the logarithm of a tensor with zeros."""
    return torch.log(F.relu(own(self, x)))  # planted


def root_of_zeros(self, x):
    """Take the root of a tensor with a column of zeros, which is finite in the forward."""
    x = own(self, x)
    x = x * (torch.arange(x.shape[-1]) > 0)
    return x.square().sqrt()  # planted


@fault(
    "torchvision/densenet121",
    "inf",
    "features.denseblock1.denselayer3.relu1",
    "log",
    line=True,
    options={"memory_efficient": True},
)
def forward_in_a_memory_efficient_model(model):
    """A logarithm of zeros, in the library's own checkpointing."""
    patch(model.features.denseblock1.denselayer3.relu1, log_of_relu)


@fault("torchvision/resnet18", "inf", "layer2.1", "log", line=True)
def forward_reentrant(model):
    """A logarithm of zeros, ``use_reentrant=True``."""
    patch(model.layer2[1], log_of_relu)
    checkpointed(model.layer2, reentrant=True)


@fault("torchvision/mobilenet_v2", "inf", "features.3", "log", line=True)
def forward_not_reentrant(model):
    """A logarithm of zeros, ``use_reentrant=False``."""

    def forward(self, x):
        return checkpoint(partial(log_of_relu, self), x, use_reentrant=False)

    patch(model.features[3], forward)


@fault(
    "torchvision/densenet121",
    "inf",
    "features.denseblock2.denselayer1.relu1",
    "div",
    phase="backward",
    options={"memory_efficient": True},
)
def backward_in_a_memory_efficient_model(model):
    """``where(x > 0, 1 / x, 0)``: 1 / 0² in the gradient."""

    def forward(self, x):
        x = x.square() - x.square().amin((2, 3), keepdim=True)
        return torch.where(x > 0, torch.ones_like(x) / x, 0.0)  # planted

    patch(model.features.denseblock2.denselayer1.relu1, forward)


@fault(
    "timm/vit_tiny_patch16_224",
    "inf",
    "blocks.2.mlp.act",
    "sqrt",
    phase="backward",
    options={"img_size": 64},
)
def backward_in_a_vision_transformer(model):
    """A root of zeros, with ``model.set_grad_checkpointing()``."""

    def forward(self, x):
        energy = (x - x.amin(-1, keepdim=True)).square()
        return energy.sqrt()  # planted

    patch(model.blocks[2].mlp.act, forward)
    model.set_grad_checkpointing()


@fault("torchvision/resnet18", "inf", "layer3.1", "sqrt", phase="backward", line=True)
def backward_reentrant(model):
    """A root of zeros, ``use_reentrant=True``."""
    patch(model.layer3[1], root_of_zeros)
    checkpointed(model.layer3, reentrant=True)


@fault("timm/resnet10t", "inf", "layer3.0", "sqrt", phase="backward", line=True)
def backward_not_reentrant(model):
    """A root of zeros, ``use_reentrant=False``."""
    patch(model.layer3[0], root_of_zeros)
    checkpointed(model.layer3, reentrant=False)
