"""Only in the backward: the forward is finite, a gradient is not."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .fault import cross_entropy, fault, own, patch


def masked(x):
    """Set the first column of maps to 0, like a mask for padding."""
    return x * (torch.arange(x.shape[-1]) > 0)


@fault("torchvision/resnet18", "inf", "layer1.1", "sqrt", phase="backward")
def root_of_zero(model):
    """A norm over channels written as ``sqrt(sum(x²))``, 0 where a mask is."""

    def forward(self, x):
        x = masked(own(self, x))
        return x + torch.sqrt(x.square().sum(1, keepdim=True))  # planted

    patch(model.layer1[1], forward)


@fault("torchvision/squeezenet1_1", "nan", "features.6", "log", phase="backward")
def where_around_a_log(model):
    """``torch.where(x > 0, log(x), 0)``: its −Inf is not taken, its gradient is 0 / 0."""

    def forward(self, x):
        x = self.squeeze(x)
        energy = masked(x).square()
        logs = torch.log(energy)  # planted
        x = torch.where(energy > 0, logs, 0.0)
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1)

    patch(model.features[6], forward)


@fault("timm/convnext_atto", "nan", "stages.1.blocks.1.mlp.act", "div", phase="backward")
def function_of_ones_own(model):
    """A ``torch.autograd.Function`` whose backward divides by 0."""

    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sign() * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * (F.relu(x) / F.relu(x))  # planted

    patch(model.stages[1].blocks[1].mlp.act, lambda self, x: Sign.apply(x))  # planted


@fault("timm/resnet10t", "inf", "layer2.0.act2", "mul", phase="backward")
def straight_through_scale(model):
    """``x + (x − x.detach())`` times 1e38, twice: 0 in the forward, Inf in the backward."""

    def forward(self, x):
        x = own(self, x)
        return x + (x - x.detach()) * 1e30 * 1e30  # planted

    patch(model.layer2[0].act2, forward)


@fault("torchvision/regnet_y_400mf", "inf", "trunk_output.block1", "rsqrt", phase="backward")
def tiny_under_a_root(model):
    """``rsqrt(x + 1e-36)``: finite, while its slope, x to the −1.5, is not."""

    def forward(self, x):
        x = masked(own(self, x))
        return x * (x.square() + 1e-36).rsqrt() + 1e-20 * (x + 1e-36).rsqrt()[..., :1]  # planted

    patch(model.trunk_output[0], forward)


def root_of_error(output):
    """Return a loss with the root of a mean square error of 0."""
    error = (output - output.detach()).square().mean()
    return cross_entropy(output) + torch.sqrt(error)  # planted


@fault(
    "torchvision/mobilenet_v3_small",
    "inf",
    "",
    "sqrt",
    phase="backward",
    line=True,
    loss=root_of_error,
)
def loss_is_a_root(model):
    """Nothing in the model: the loss has a square root of 0."""
