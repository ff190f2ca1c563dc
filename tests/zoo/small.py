"""Small models with features that the zoo lacks: several inputs, reused layers, signals, text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .weights import fill


@dataclass(frozen=True)
class Small:
    """A model of this file, with its arguments.

    Attributes
    ----------
    name : str
        ``"small/twins"``.
    make : callable
        Builds the model.
    draw : callable
        Generator -> the arguments, as a tuple or dict.
    """

    name: str
    make: Callable[[], nn.Module]
    draw: Callable[[torch.Generator], Any]
    kind = "small"

    def build(self, gain=1.0):
        """Build the model with random weights, see `fill`, in eval mode."""
        model = self.make()
        fill(model, gain)
        return model.eval()

    def input(self):
        """Draw the arguments, the same each time."""
        return self.draw(torch.Generator().manual_seed(1))


class Twins(nn.Module):
    """Two pictures through one shared trunk, joined with a vector."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(inplace=True))
        self.joined, self.vector = nn.Conv2d(16, 8, 3, padding=1), nn.Linear(4, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, left, right, vector):
        x = self.joined(torch.cat([self.trunk(left), self.trunk(right)], 1))
        return self.head(F.relu(x + self.vector(vector)[..., None, None]).mean((2, 3)))


class Reused(nn.Module):
    """A block that runs three times, with one activation module throughout and split channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.act, self.head = nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Linear(8, 5)

    def forward(self, x):
        x = self.act(self.stem(x))
        for _ in range(3):
            first, second = x.chunk(2, 1)
            x = self.act(x + self.norm(self.block(torch.cat([second, first], 1))))
        return self.head(F.dropout(x.mean((2, 3)), 0.5, self.training))


class Signals(nn.Module):
    """Convolutions over time, an LSTM in both directions, and a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.lstm = nn.Conv1d(2, 8, 5, 2, 2), nn.LSTM(8, 6, 2, True, True, 0.1, True)
        self.up, self.head = nn.ConvTranspose1d(12, 4, 4, 2, 1), nn.Linear(4, 3)

    def forward(self, x):
        x, _ = self.lstm(F.gelu(self.conv(x)).mT)
        return self.head(self.up(x.mT).amax(2))


class Text(nn.Module):
    """Tokens with a padding mask through two encoder layers with tied embedding weights."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, padding):
        x = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        return self.head(x[:, 0])


def _pair(generator):
    return tuple(torch.randn(*shape, generator=generator) for shape in _PAIR)


def _tokens(generator):
    tokens = torch.randint(20, (2, 7), generator=generator)
    return {"tokens": tokens, "padding": torch.arange(7) >= torch.tensor([[7], [5]])}


_PAIR = ((2, 3, 24, 24), (2, 3, 24, 24), (2, 4))

SMALL = {
    case.name: case
    for case in (
        Small("small/twins", Twins, _pair),
        Small("small/reused", Reused, lambda g: torch.randn(2, 3, 20, 20, generator=g)),
        Small("small/signals", Signals, lambda g: torch.randn(2, 2, 64, generator=g)),
        Small("small/text", Text, _tokens),
    )
}
