"""Parts that do not take part, and layers in the wrong mode."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .fault import fault, own, patch


@fault("torchvision/resnet18", "unused", "layer3.1")
def block_left_out(model):
    """A stage's forward does not call its second block."""
    patch(model.layer3, lambda self, x: self[0](x))


@fault("timm/vit_tiny_patch16_224", "unused", "auxiliary", options={"img_size": 64})
def head_that_is_not_called(model):
    """A second head that no forward calls."""
    model.auxiliary = nn.Linear(192, 10)


@fault("torchvision/mobilenet_v2", "no gradient", "features.5.conv.0", phase="backward")
def detached_within_a_block(model):
    """A block's first layer is detached, and so is its shortcut."""

    def forward(self, x):
        return x + self.conv[1:](self.conv[0](x).detach())

    patch(model.features[5], forward)


@fault("timm/resnet10t", "no gradient", "layer3.0.conv1", phase="backward")
def layer_under_no_grad(model):
    """A convolution that runs under ``torch.no_grad()``."""

    class Quiet(nn.Conv2d):
        def forward(self, x):
            with torch.no_grad():
                return super().forward(x)

    model.layer3[0].conv1.__class__ = Quiet


@fault("torchvision/efficientnet_b0", "no gradient", "", phase="backward")
def frozen_throughout(model):
    """Every parameter is frozen."""
    model.requires_grad_(False)


@fault(
    "torchvision/googlenet",
    "no gradient",
    "aux1",
    phase="backward",
    options={"init_weights": False, "aux_logits": True},
)
def auxiliary_output_not_used(model):
    """Nothing in the model: the loss uses only the logits, not the auxiliary heads."""


@fault("torchvision/shufflenet_v2_x0_5", "no gradient", "conv1", phase="backward")
def taken_out_of_the_graph(model):
    """``x.data`` between two stages: no layer before it gets a gradient, "conv1" is the first."""

    def forward(self, x):
        return own(self, x).data  # planted

    patch(model.stage2, forward)


@fault("torchvision/alexnet", "dropout", "classifier.3", training=False)
def dropout_in_eval(model):
    """One dropout layer is in training mode, in a model in eval mode."""
    model.classifier[3].train()


@fault("timm/convnext_atto", "dropout", "stages.2.blocks.0.mlp", training=False)
def functional_dropout_in_eval(model):
    """``F.dropout(x)``, which drops by default, in a model in eval."""

    def forward(self, x):
        return F.dropout(own(self, x), 0.2)  # planted

    patch(model.stages[2].blocks[0].mlp, forward)


@fault("torchvision/resnet18", "batchnorm", "layer2.0.bn2", training=False)
def variance_of_zero(model):
    """A BatchNorm's running variance is 0 in eval."""
    model.layer2[0].bn2.running_var.zero_()


@fault("torchvision/mnasnet0_5", "zero weights", "layers.9.0.layers.0")
def constant_before_a_norm(model):
    """A convolution of zeros before a BatchNorm in training."""
    nn.init.zeros_(model.layers[9][0].layers[0].weight)
