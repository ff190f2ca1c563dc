"""Forward: NaN and Inf that arise in a forward, mostly in functional operations."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .fault import fault, heads, joined, own, patch, picture, replace


@fault("torchvision/resnet18", "inf", "layer2.0", "log")
def log_of_zeros(model):
    """``torch.log`` of a block's output, which has zeros after a ReLU."""

    def forward(self, x):
        return torch.log(own(self, x))  # planted

    patch(model.layer2[0], forward)


@fault("torchvision/squeezenet1_1", "nan", "features.4", "pow")
def root_of_negative(model):
    """A squeeze convolution's output, of both signs, to the power of a half."""

    def forward(self, x):
        x = self.squeeze(x) ** 0.5  # planted
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1)

    patch(model.features[4], forward)


@fault("torchvision/mobilenet_v2", "nan", "features.3", "div")
def mean_over_an_empty_mask(model):
    """A mean over a mask that selects nothing: 0 / 0."""

    def forward(self, x):
        x = own(self, x)
        mask = (x > 1e6).float()
        return x + (x * mask).sum((2, 3), keepdim=True) / mask.sum((2, 3), keepdim=True)  # planted

    patch(model.features[3], forward)


@fault(
    "timm/vit_tiny_patch16_224",
    "nan",
    "blocks.3.attn",
    "softmax",
    options={"img_size": 64},
)
def row_masked_throughout(model):
    """Attention with a mask of −Inf that leaves no position in a row."""

    def forward(self, x, attn_mask=None, is_causal=False):
        q, k, v = heads(self, x)
        scores = q * self.scale @ k.transpose(-2, -1)
        mask = torch.zeros(scores.shape[-2:], dtype=torch.bool)
        mask[5] = True
        scores = scores.masked_fill(mask, -torch.inf)
        return joined(self, scores.softmax(-1) @ v)  # planted

    patch(model.blocks[3].attn, forward)


@fault("timm/convnext_atto", "inf", "stages.1.blocks.0.mlp", "exp")
def exp_of_large_numbers(model):
    """``torch.exp`` of an MLP's output times a thousand."""

    def forward(self, x):
        return torch.exp(1000 * own(self, x))  # planted

    patch(model.stages[1].blocks[0].mlp, forward)


@fault("torchvision/shufflenet_v2_x0_5", "nan", "stage2.1", "acos")
def angle_beyond_one(model):
    """``torch.acos`` of values larger than 1."""

    def forward(self, x):
        return own(self, x).mul(3).acos()  # planted

    patch(model.stage2[1], forward)


@fault("torchvision/mnasnet0_5", "inf", "layers.9.0", "reciprocal")
def one_divided_by_relu(model):
    """``1 / x`` of a block's output after a ReLU."""

    def forward(self, x):
        return 1 / F.relu(own(self, x))  # planted

    patch(model.layers[9][0], forward)


@fault("torchvision/efficientnet_b0", "nan", "features.3.0.block.2", "std")
def deviation_of_one_value(model):
    """Squeeze and excitation by ``torch.std``, of maps that were pooled to one value."""

    def forward(self, x):
        scale = self.avgpool(x)
        scale = scale.std((2, 3), keepdim=True)  # planted
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(scale))))

    patch(model.features[3][0].block[2], forward)


@fault("timm/resnet10t", "inf", "layer3.0.bn2", "rsqrt")
def norm_without_eps(model):
    """A custom norm instead of a BatchNorm, without eps, over pooled maps."""

    class Norm(nn.Module):
        def forward(self, x):
            centred = x - F.adaptive_avg_pool2d(x, 1)
            spread = F.adaptive_max_pool2d(centred, 1) * 0
            return centred * spread.rsqrt()  # planted

    replace(model, "layer3.0.bn2", Norm())


@fault("torchvision/regnet_y_400mf", "inf", "trunk_output.block2.block2-0.f.se", "logit")
def logit_of_one(model):
    """``torch.logit`` of a sigmoid that is 1."""

    def forward(self, x):
        gate = torch.sigmoid(100 + self.fc2(F.relu(self.fc1(self.avgpool(x)))))
        return x * gate.logit()  # planted

    patch(model.trunk_output[1][0].f.se, forward)


@fault("timm/mixer_s32_224", "inf", "blocks.2.mlp_tokens.fc1", "mm", options={"img_size": 64})
def weights_too_large(model):
    """A linear layer's weights of 1e38: its sums are beyond float32."""
    with torch.no_grad():
        model.blocks[2].mlp_tokens.fc1.weight.fill_(3e38)


@fault("torchvision/alexnet", "inf", "features.6", "convolution")
def convolution_overflows(model):
    """A convolution's weights of 1e38, after a convolution with weights times 1e10."""
    with torch.no_grad():
        model.features[3].weight.mul_(1e10)
        model.features[6].weight.fill_(1e38)


@fault("torchvision/swin_t", "nan", "features.1.0.attn", "div", given=lambda: picture(2, 3, 32, 32))
def cosine_of_zeros(model):
    """Windows are padded with zeros, and each vector is divided by its norm."""

    def forward(self, x):
        x = F.pad(x, (0, 0, 0, 1))
        x = x / x.norm(dim=-1, keepdim=True)  # planted
        return own(self, x)[:, :, :-1]

    patch(model.features[1][0].attn, forward)


@fault("timm/lcnet_050", "nan", "blocks.2.0", "div")
def in_place_division(model):
    """``x.div_`` by a count of 0, of a tensor with zeros."""

    def forward(self, x):
        x = F.relu(own(self, x))
        return x.div_((x > 1e6).sum(1, keepdim=True))  # planted

    patch(model.blocks[2][0], forward)


@fault("timm/poolformer_s12", "nan", "stages.1.blocks.1", "sub")
def inf_less_inf(model):
    """The difference of two maxima over values masked with −Inf."""

    def forward(self, x):
        x = own(self, x)
        away = x.masked_fill(x < 1e6, -torch.inf)
        return x + (away.amax((2, 3)) - away.amax((2, 3)))[..., None, None]  # planted

    patch(model.stages[1].blocks[1], forward)


@fault("timm/ghostnetv3_050", "inf", "blocks.1.0", "sum")
def sum_beyond_float(model):
    """Squares of 1e19, summed over a map."""

    def forward(self, x):
        x = own(self, x)
        power = torch.full_like(x, 1e19).square().sum((2, 3), keepdim=True)  # planted
        return x * power

    patch(model.blocks[1][0], forward)


@fault("timm/mobilevit_xxs", "nan", "stages.2.1.transformer.0.norm1", "layer_norm")
def layer_norm_without_eps(model):
    """A LayerNorm with eps 0, of tokens that are constant."""

    def forward(self, x):
        return F.layer_norm(torch.ones_like(x), self.normalized_shape, eps=0.0)  # planted

    patch(model.stages[2][1].transformer[0].norm1, forward)


@fault("timm/edgenext_xx_small", "inf", "head.fc", "log")
def log_of_softmax(model):
    """``torch.log(torch.softmax(x))`` in place of ``log_softmax``, of logits times a thousand."""

    class LogSoftmax(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            return torch.log(torch.softmax(1e3 * self.linear(x), 1))  # planted

    replace(model, "head.fc", LogSoftmax(model.head.fc))


@fault("torchvision/densenet121", "inf", "features.denseblock1.denselayer2", "log1p")
def log_of_the_rest(model):
    """``torch.log1p(-p)`` of a probability that is 1."""

    def forward(self, inputs):
        p = torch.sigmoid(100 + own(self, inputs))
        return torch.log1p(-p)  # planted

    patch(model.features.denseblock1.denselayer2, forward)
