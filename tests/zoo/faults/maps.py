"""Dead, constant, saturated, vanishing, exploding: the numbers are finite, and say nothing."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .fault import fault, own, patch, replace


@fault("torchvision/squeezenet1_1", "dead", "features.4.expand3x3_activation", "relu")
def bias_far_below_zero(model):
    """A convolution's bias of −100 before a ReLU."""
    nn.init.constant_(model.features[4].expand3x3.bias, -100.0)


@fault("torchvision/resnet18", "dead", "layer2.0.relu", "relu")
def norms_bias_far_below_zero(model):
    """A BatchNorm's bias of −100 before the first call of a block's ReLU."""
    nn.init.constant_(model.layer2[0].bn1.bias, -100.0)


@fault("torchvision/mobilenet_v2", "dead", "features.4.conv.0.2", "relu6")
def dead_relu6(model):
    """A BatchNorm's bias of −100 before a ReLU6."""
    nn.init.constant_(model.features[4].conv[0][1].bias, -100.0)


@fault("torchvision/shufflenet_v2_x0_5", "dead", "stage3.2", "relu")
def dead_by_a_function(model):
    """``F.relu(x − 100)`` in a block's forward."""

    def forward(self, x):
        return F.relu(own(self, x) - 100)  # planted

    patch(model.stage3[2], forward)


@fault("torchvision/squeezenet1_1", "zero weights", "features.6.squeeze")
def weights_of_zero(model):
    """A convolution's weights are 0, its bias is not."""
    nn.init.zeros_(model.features[6].squeeze.weight)
    nn.init.constant_(model.features[6].squeeze.bias, 0.5)


@fault(
    "torchvision/efficientnet_b0", "saturated", "features.4.0.block.2.scale_activation", "sigmoid"
)
def gate_that_is_open(model):
    """A squeeze and excitation's gate with a bias of 50."""
    nn.init.constant_(model.features[4][0].block[2].fc2.bias, 50.0)


@fault(
    "timm/mixer_s32_224", "saturated", "blocks.2.mlp_channels.act", "tanh", options={"img_size": 64}
)
def tanh_at_its_ends(model):
    """A tanh in an MLP, whose first layer's weights are times 1e4."""
    replace(model, "blocks.2.mlp_channels.act", nn.Tanh())
    with torch.no_grad():
        model.blocks[2].mlp_channels.fc1.weight.mul_(1e6)


@fault("torchvision/alexnet", "exploding", "features.6", training=False)
def weights_far_too_large(model):
    """A convolution's weights times 1e9."""
    with torch.no_grad():
        model.features[6].weight.mul_(1e9)


@fault("torchvision/squeezenet1_1", "vanishing", "features.7.squeeze", training=False)
def weights_far_too_small(model):
    """A convolution's weights times 1e-9; no biases."""
    with torch.no_grad():
        model.features[7].squeeze.weight.mul_(1e-9)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()


@fault("torchvision/squeezenet1_1", "vanishing", "features.5", phase="backward")
def gradient_that_vanishes(model):
    """A pooling multiplies its gradient by 1e-9; its forward is unchanged."""

    def forward(self, x):
        x = own(self, x)
        return x * 1e-9 + (x * (1 - 1e-9)).detach()

    patch(model.features[5], forward)


@fault(
    "timm/convnext_atto",
    "exploding",
    "stages.1.blocks.1.conv_dw",
    phase="backward",
    unnamed="it names the block before, where the gradient takes the shortcut",
)
def gradient_that_explodes(model):
    """A convolution multiplies its gradient by 1e14, on a branch scaled by 1e-6."""

    def forward(self, x):
        return own(self, x + 1e14 * (x - x.detach()))

    patch(model.stages[1].blocks[1].conv_dw, forward)


@fault("torchvision/squeezenet1_1", "vanishing", None, phase="backward", training=False)
def sigmoids_throughout(model):
    """A sigmoid instead of each ReLU."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.ReLU):
            replace(model, name, nn.Sigmoid())
