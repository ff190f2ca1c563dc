"""Half precision: under autocast, and of models in half."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from .fault import cross_entropy, fault, heads, joined, own, patch, picture

float16 = partial(torch.autocast, "cpu", torch.float16)
bfloat16 = partial(torch.autocast, "cpu", torch.bfloat16)
VIT = "timm/vit_tiny_patch16_224"
SMALL = {"img_size": 64}


def half_pictures():
    """Return pictures in half precision."""
    return picture().half()


@fault("torchvision/resnet18", "inf", "layer3.0.conv1", "convolution", around=float16)
def convolution_beyond_65504(model):
    """A convolution's weights of 1000, autocast to float16."""
    nn.init.constant_(model.layer3[0].conv1.weight, 1000.0)


@fault(VIT, "inf", "blocks.2.mlp.fc2", "addmm", around=float16, options=SMALL)
def linear_beyond_65504(model):
    """A linear layer's weights of 1000 after a bias of 10, autocast to float16."""
    nn.init.constant_(model.blocks[2].mlp.fc2.weight, 1000.0)
    nn.init.constant_(model.blocks[2].mlp.fc1.bias, 10.0)


@fault("timm/convnext_atto", "half precision", "stages.2.blocks.1.norm", "pow", given=half_pictures)
def squares_in_half(model):
    """A custom norm squares values of 300, in a model in half; x / Inf is 0 everywhere."""

    def forward(self, x):
        x = 300 + x
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt()  # planted

    patch(model.stages[2].blocks[1].norm, forward)
    model.half()


@fault("timm/mixer_s32_224", "nan", "blocks.1.norm1", "div", given=half_pictures, options=SMALL)
def eps_lost_in_half(model):
    """An eps of 1e-8, which float16 rounds to 0, in a division of 0."""

    def forward(self, x):
        x = F.relu(x - 1000)
        return x / (x.amax(-1, keepdim=True) + 1e-8)  # planted

    patch(model.blocks[1].norm1, forward)
    model.half()


@fault("torchvision/mobilenet_v2", "inf", "features.5", "log", around=bfloat16)
def probability_rounded_to_one(model):
    """``log(1 − p)`` of a p that bfloat16 rounds to 1."""

    def forward(self, x):
        x = own(self, x)
        p = torch.sigmoid(8 + 0 * x).bfloat16()
        return x + torch.log(1 - p)  # planted

    patch(model.features[5], forward)


@fault(VIT, "inf", "blocks.4.attn", "bmm", given=half_pictures, options=SMALL)
def scores_without_scale(model):
    """Attention in half without a scale, of large queries and keys."""

    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = heads(self, x)
        scores = (q + 100) @ (k + 100).transpose(-2, -1)  # planted
        return joined(self, scores.softmax(-1) @ v)

    patch(model.blocks[4].attn, forward)
    model.half()


@fault("torchvision/shufflenet_v2_x0_5", "inf", "stage2.2", "sum", given=half_pictures)
def sum_in_half(model):
    """A sum over a map with values of 2000, in a model in half."""

    def forward(self, x):
        x = own(self, x)
        return x + (2000 + x * 0).sum((2, 3), keepdim=True)  # planted

    patch(model.stage2[2], forward)
    model.half()


@fault("torchvision/mnasnet0_5", "half precision", "layers.8.0.layers.0", "to_copy", around=float16)
def weights_that_become_zero(model):
    """A convolution's weights of 1e-9, which float16 rounds to 0."""
    with torch.no_grad():
        model.layers[8][0].layers[0].weight.mul_(1e-8)


@fault("torchvision/squeezenet1_1", "half precision", "features.5", "add", around=float16)
def about_to_overflow(model):
    """Activations of more than half of float16's maximum."""

    def forward(self, x):
        x = own(self, x) + 50000  # planted
        return x - 50000

    patch(model.features[5], forward)


@fault(
    VIT,
    "half precision",
    "",
    "to_copy",
    phase="backward",
    around=float16,
    options=SMALL,
    loss=lambda output: cross_entropy(output) * 1e-6,
)
def gradients_that_become_zero(model):
    """Nothing in the model: the loss's gradient is so small that it is 0 in float16."""
