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


@fault("torchvision/mobilenet_v2", "inf", "features.2", "pow", phase="backward")
def power_below_one(model):
    """``|x| ** 0.3``, 0 where a mask is."""

    def forward(self, x):
        x = masked(own(self, x))
        return x + x.abs().pow(0.3)  # planted

    patch(model.features[2], forward)


@fault("torchvision/shufflenet_v2_x0_5", "nan", "stage3.1", "sqrt", phase="backward")
def where_trap(model):
    """``torch.where(x > 0, sqrt(x), 0)``: the branch not taken has 0 / 0 as its gradient."""

    def forward(self, x):
        energy = masked(own(self, x)).square()
        root = torch.sqrt(energy)  # planted
        return torch.where(energy > 0, root, 0.0)

    patch(model.stage3[1], forward)


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


@fault(
    "timm/vit_tiny_patch16_224",
    "inf",
    "blocks.5.attn.q_norm",
    "acos",
    phase="backward",
    options={"img_size": 64},
)
def angle_of_one(model):
    """``torch.acos`` of a cosine that is 1: its slope is infinite."""

    def forward(self, x):
        cosine = x / x.detach()
        return x + torch.acos(cosine)  # planted

    patch(model.blocks[5].attn.q_norm, forward)


@fault("torchvision/mnasnet0_5", "nan", "layers.10.0", "linalg_eigh", phase="backward")
def equal_eigenvalues(model):
    """``torch.linalg.eigh`` of a covariance whose eigenvalues are equal."""

    def forward(self, x):
        x = own(self, x)
        tokens = F.pad(x.flatten(2), (0, 64))
        values, vectors = torch.linalg.eigh(tokens @ tokens.transpose(1, 2) * 0)  # planted
        return x + vectors.mean() + values.mean()

    patch(model.layers[10][0], forward)


@fault("torchvision/regnet_y_400mf", "inf", "trunk_output.block1", "rsqrt", phase="backward")
def tiny_under_a_root(model):
    """``rsqrt(x + 1e-36)``: finite, while its slope, x to the −1.5, is not."""

    def forward(self, x):
        x = masked(own(self, x))
        return x * (x.square() + 1e-36).rsqrt() + 1e-20 * (x + 1e-36).rsqrt()[..., :1]  # planted

    patch(model.trunk_output[0], forward)


@fault("timm/mobilevit_xxs", "nan", "stages.2.1.transformer.1.mlp", "xlogy", phase="backward")
def entropy_of_zeros(model):
    """``torch.xlogy(p, p)``: 0 at p = 0, where its slope is 0 / 0."""

    def forward(self, x):
        p = own(self, x).square() * (torch.arange(x.shape[-1]) > 0)
        return torch.xlogy(p, p)  # planted

    patch(model.stages[2][1].transformer[1].mlp, forward)


@fault("torchvision/efficientnet_b0", "inf", "features.2.0.block.2", "div", phase="backward")
def divided_by_tiny(model):
    """Divided by 1e-30: the quotient is finite, the divisor's gradient is not."""

    def forward(self, x):
        tiny = 1e-30 + 0 * x.mean((2, 3), keepdim=True)
        return own(self, x) + (1e-8 * x.sign()) / tiny * 1e-22  # planted

    patch(model.features[2][0].block[2], forward)


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
