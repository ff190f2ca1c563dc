"""The largest networks and inputs of the tests, with random weights."""

from __future__ import annotations

import torch
import torchvision
from torch import nn


class ManyConvolutions(nn.Module):
    """A residual chain of convolutions: ``(N, 3, H, W)`` to 10 classes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(499))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = self.first(x)
        for conv in self.convs:
            x = x + 0.1 * conv(x).relu()
        return self.head(x.mean((2, 3)))


def many_channels():
    """Return a network with one layer of very many channels."""
    return nn.Sequential(
        nn.Conv2d(3, 4096, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(4096, 16, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def narrow():
    """Return the start of a ResNet with fewer channels, for pictures of very many pixels."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 7, stride=2, padding=3), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    for channels, stride in ((16, 1), (16, 2), (32, 2), (32, 2), (64, 2)):
        layers += [nn.LazyConv2d(channels, 3, stride, padding=1), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model(torch.zeros(1, 3, 64, 64))  # initializes the lazy layers
    return model


NETWORKS = {
    "resnet18": torchvision.models.resnet18,
    "resnet50": torchvision.models.resnet50,
    "resnet152": torchvision.models.resnet152,
    "narrow": narrow,
    "500 convolutions": ManyConvolutions,
    "4096 channels": many_channels,
}


def network(name):
    """Return one of `NETWORKS` in eval mode, the same at each call."""
    torch.manual_seed(0)
    return NETWORKS[name]().eval()


def pictures(batch, side):
    """Return noise ``(batch, 3, side, side)``, which cannot be compressed."""
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(1))
