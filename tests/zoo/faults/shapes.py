"""Shapes that do not fit: the model raises."""

from __future__ import annotations

import torch
from torch import nn

from .fault import fault, heads, joined, own, patch, picture, replace

VIT = {"img_size": 64}


@fault("torchvision/resnet18", "shape", "layer2.0.conv1", "convolution")
def convolution_of_other_channels(model):
    """A convolution that takes 32 channels where there are 64."""
    replace(model, "layer2.0.conv1", nn.Conv2d(32, 128, 3, 2, 1))


@fault("torchvision/alexnet", "shape", "classifier.1", "addmm")
def flattened_to_other_features(model):
    """The pooling before the first linear layer is missing."""
    replace(model, "avgpool", nn.Identity())


@fault("torchvision/densenet121", "shape", "features.denseblock1.denselayer2.norm2", "batch_norm")
def norm_of_other_channels(model):
    """A BatchNorm of 64 channels where there are 128."""
    replace(model, "features.denseblock1.denselayer2.norm2", nn.BatchNorm2d(64))


@fault(
    "torchvision/swin_t",
    "shape",
    "features.1.0.norm2",
    "layer_norm",
    given=lambda: picture(2, 3, 32, 32),
)
def layer_norm_of_other_features(model):
    """A LayerNorm of 64 features where there are 96."""
    replace(model, "features.1.0.norm2", nn.LayerNorm(64))


@fault("torchvision/resnet18", "shape", "layer3.0", "add")
def residual_without_downsampling(model):
    """A block halves its maps without a layer in its shortcut."""
    model.layer3[0].downsample = None


@fault("torchvision/squeezenet1_1", "shape", "features.3", "cat")
def cat_of_other_sizes(model):
    """One of a Fire module's two convolutions has no padding."""
    model.features[3].expand3x3.padding = (0, 0)


@fault("timm/vit_tiny_patch16_224", "shape", "blocks.2.attn", "bmm", options=VIT)
def keys_not_transposed(model):
    """Attention multiplies queries and keys without transposing."""

    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = heads(self, x)
        scores = q @ k  # planted
        return joined(self, scores @ v)

    patch(model.blocks[2].attn, forward)


@fault("timm/resnet10t", "shape", "layer4", "view")
def view_of_a_permuted_tensor(model):
    """``view`` of a permuted tensor, which is not contiguous."""

    def forward(self, x):
        x = own(self, x)
        return x.permute(0, 2, 3, 1).view(len(x), -1)  # planted

    patch(model.layer4, forward)


@fault("torchvision/mobilenet_v2", "shape", "features.4", "view")
def view_of_other_size(model):
    """``view`` to a size with a different number of values."""

    def forward(self, x):
        x = own(self, x)
        return x.view(len(x), 7, -1, 8)  # planted

    patch(model.features[4], forward)


@fault("timm/convnext_atto", "shape", "stem.0", "convolution", given=lambda: picture(2, 1, 64, 64))
def grey_pictures(model):
    """Nothing in the model: the pictures have one channel."""


@fault("torchvision/resnet18", "shape", "layer1.1.bn1", "batch_norm", call=1)
def shared_norm_of_other_channels(model):
    """A BatchNorm is shared by two blocks, the second of which has twice the channels."""
    model.layer2[0].bn1 = model.layer1[1].bn1


@fault(
    "torchvision/lraspp_mobilenet_v3_large",
    "shape",
    "classifier",
    "mul",
    options={"weights_backbone": None},
)
def gate_of_other_channels(model):
    """A segmentation's gate has 64 channels, its maps 128."""
    model.classifier.scale[1] = nn.Conv2d(960, 64, 1, bias=False)


@fault("timm/mixer_s32_224", "shape", "head_drop", "einsum", options=VIT)
def einsum_of_other_sizes(model):
    """``torch.einsum`` with a matrix of the wrong size."""

    def forward(self, x):
        return torch.einsum("nc,kc->nk", x, torch.ones(7, 5))  # planted

    patch(model.head_drop, forward)


@fault(
    "torchvision/mnasnet0_5",
    "batchnorm",
    "classifier.norm",
    "batch_norm",
    given=lambda: picture(1, 3, 64, 64),
)
def one_value_a_channel(model):
    """A BatchNorm after pooling, in training, with a batch of one."""

    class Head(nn.Sequential):
        def __init__(self, linear):
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(1280), linear

    replace(model, "classifier", Head(model.classifier[1]))
