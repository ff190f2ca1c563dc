"""A layer that runs several times: the fault is in its second call, or in a later one."""

from __future__ import annotations

import torch
from torch import nn

from .fault import fault, own, patch, replace
from .nested import last_flow, pair


@fault("torchvision/squeezenet1_1", "inf", "features.1", "exp", call=1)
def activation_in_two_places(model):
    """``exp`` as the activation in two places; it overflows only after the second convolution."""

    class Exp(nn.Module):
        def forward(self, x):
            return torch.exp(x)  # planted

    shared = Exp()
    replace(model, "features.1", shared)
    replace(model, "features.3.squeeze_activation", shared)
    with torch.no_grad():
        model.features[3].squeeze.weight.mul_(1000)


@fault("torchvision/resnet18", "nan", "layer3.1.relu", "log", call=1)
def activation_of_a_block(model):
    """A block's only activation, which runs twice, is a logarithm; its first input is 100."""

    def forward(self, x):
        return torch.log(x)  # planted

    nn.init.constant_(model.layer3[1].bn1.bias, 100.0)
    patch(model.layer3[1].relu, forward)


@fault("torchvision/resnet18", "inf", "layer2.1.relu", "sqrt", call=1, phase="backward")
def root_of_a_blocks_sum(model):
    """``sqrt(x²)`` as a block's only activation: only its second input has a 0."""

    def forward(self, x):
        return x.square().sqrt()  # planted

    block = model.layer2[1]
    nn.init.constant_(block.bn1.bias, 100.0)
    nn.init.zeros_(block.bn2.weight)
    patch(block.relu, forward)


@fault("timm/vit_tiny_patch16_224", "inf", "blocks.3", "pow", call=1, options={"img_size": 64})
def shared_block(model):
    """Two blocks share their weights, and raise to the power of 12."""

    def forward(self, x, **options):
        return own(self, x).pow(12)  # planted

    patch(model.blocks[3], forward)
    model.blocks[4] = model.blocks[3]


@fault(
    "torchvision/raft_small",
    "inf",
    "update_block.recurrent_block.convgru1",
    "mul",
    call=3,
    given=pair,
    loss=last_flow,
)
def fourth_iteration(model):
    """The state of RAFT's recurrent unit times 1e10 in each of its iterations."""

    def forward(self, h, x):
        return own(self, h, x) * 1e10  # planted

    patch(model.update_block.recurrent_block.convgru1, forward)


@fault(
    "torchvision/raft_small",
    "nan",
    "update_block.flow_head",
    "div",
    call=2,
    given=pair,
    loss=last_flow,
)
def third_iteration(model):
    """A counter, kept as a buffer, that is 0 in the third iteration: 0 / 0."""
    head = model.update_block.flow_head
    head.register_buffer("left", torch.tensor(2.0))

    def forward(self, x):
        weight = self.left / self.left  # planted
        self.left -= 1
        return own(self, x) * weight

    patch(head, forward)
