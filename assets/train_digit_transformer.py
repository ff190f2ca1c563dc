"""Train the small vision transformer that ships; writes its weights and its pictures.

A handwritten digit of scikit-learn, 8×8, lies anywhere in a noisy picture of 24×24; which one is
it? To answer, the class token has to look at the patches that the digit covers, and at no others:
so what it attends to can be checked.

    python assets/train_digit_transformer.py

One thread, some minutes. The weights in the repository are those after 3,500 of the 6,000 steps:
93 % of the test's digits are told.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from hookviz.models import transformer  # noqa: E402

WEIGHTS, PICTURES = HERE / "demo" / "transformer.pt", HERE / "demo" / "digits"
SIDE, DIGIT = 24, 8


def digits(train: bool) -> tuple[Tensor, Tensor]:
    """Return digits ``(N, 8, 8)`` from 0 to 1, and which ones they are; each fifth is a test."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    test = torch.arange(len(data.target)) % 5 == 0
    chosen = ~test if train else test
    pictures, labels = torch.tensor(data.images).float() / 16, torch.tensor(data.target)
    return pictures[chosen], labels[chosen]


def scattered(pictures: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Put digits into noise: return ``(N, 3, 24, 24)``, and row and column of their corners."""
    count = len(pictures)
    corners = torch.randint(0, SIDE - DIGIT + 1, (count, 2), generator=draw)
    canvas = torch.rand(count, SIDE, SIDE, generator=draw) * 0.35
    for one, picture, (row, column) in zip(canvas, pictures, corners.tolist(), strict=True):
        one[row : row + DIGIT, column : column + DIGIT] += picture
    return canvas[:, None].clamp(max=1).repeat(1, 3, 1, 1) - 0.3, corners


def accuracy(model: nn.Module) -> float:
    """Return the share of the test's digits that are told."""
    pictures, labels = digits(train=False)
    x, _ = scattered(pictures, torch.Generator().manual_seed(1))
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == labels).float().mean())


def write_pictures(count: int = 20) -> None:
    """Write the first test pictures as PNG; a name holds number, digit, and the corner."""
    PICTURES.mkdir(exist_ok=True)
    pictures, labels = digits(train=False)
    x, corners = scattered(pictures, torch.Generator().manual_seed(1))
    grey = ((x[:count, 0] + 0.3) * 255).round().byte().numpy()
    for number, (picture, (row, column)) in enumerate(zip(grey, corners.tolist(), strict=False)):
        name = f"{number:02}_{labels[number]}_{row}_{column}.png"
        Image.fromarray(picture).save(PICTURES / name, optimize=True)


def main(steps: int = 6000, batch: int = 128) -> None:
    """Train, and write the weights in half precision."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, draw = transformer(), torch.Generator().manual_seed(0)
    nn.init.trunc_normal_(model.get_parameter("heads.0.weight"), std=0.02)
    pictures, labels = digits(train=True)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    for step in range(steps):
        model.train()
        chosen = torch.randint(len(pictures), (batch,), generator=draw)
        x, _ = scattered(pictures[chosen], draw)
        loss = nn.functional.cross_entropy(model(x), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 500 == 499:
            print(step + 1, f"{loss.item():.3f}", f"{accuracy(model):.3f}", flush=True)
            torch.save({k: v.half() for k, v in model.state_dict().items()}, WEIGHTS)
    write_pictures()


if __name__ == "__main__":
    main()
