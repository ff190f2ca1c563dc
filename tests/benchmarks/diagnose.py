"""What one look costs, beside a forward and a backward; and how it grows with the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hookviz

from .race import print_table, race

DEPTHS = 50, 200, 1000


def run(*, quick: bool = False) -> None:
    """Race `hookviz.diagnose` against a step without it, on ResNet50 and on chains of blocks."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().train()
    _race("resnet50", model, torch.randn(4, 3, 224, 224), 3 if quick else 9)
    for depth in DEPTHS[:2] if quick else DEPTHS:
        _race(f"{depth} × conv, BatchNorm, ReLU", chain(depth), torch.randn(4, 8, 16, 16), 3)


def chain(depth: int) -> nn.Sequential:
    """As deep as can be, of next to nothing."""
    blocks = [
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        for _ in range(depth)
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(8 * 256, 10))


def _race(title: str, model: nn.Module, x: Tensor, rounds: int) -> None:
    loss = lambda output: cross_entropy(output, torch.arange(len(x)))  # noqa: E731

    def plain() -> None:
        model.zero_grad()
        loss(model(x)).backward()

    contenders: dict[str, Callable[[], Any]] = {
        "forward and backward": plain,
        "hookviz.diagnose": lambda: hookviz.diagnose(model, x, loss),
    }
    print_table(title, race(contenders, rounds, warmups=1))
