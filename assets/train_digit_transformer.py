"""Train the small vision transformer that the documentation looks into; writes assets/digits.pt.

A handwritten digit of scikit-learn, 8×8, lies anywhere in a noisy picture of 24×24; which one is
it? To answer, the class token has to look at the patches that the digit covers, and at no others:
so what it attends to can be checked.

    python assets/train_digit_transformer.py

One thread, some minutes. The weights in the repository are those after 3,500 of the 6,000 steps:
93 % of the test's digits are told.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torchvision.models import VisionTransformer

WEIGHTS = Path(__file__).parent / "digits.pt"
SIDE, DIGIT = 24, 8


def transformer() -> VisionTransformer:
    """Return the network, untrained: 6×6 patches and a class token, 3 blocks with 4 heads."""
    return VisionTransformer(SIDE, 4, 3, 4, 32, 64, num_classes=10)


def trained() -> VisionTransformer:
    """Return the trained network in eval mode."""
    model = transformer()
    model.load_state_dict({k: v.float() for k, v in torch.load(WEIGHTS, weights_only=True).items()})
    return model.eval()


def digits(train: bool) -> tuple[Tensor, Tensor]:
    """Return digits ``(N, 8, 8)`` from 0 to 1, and which ones they are; each fifth is a test."""
    data = load_digits()
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


def main(steps: int = 6000, batch: int = 128) -> None:
    """Train, and write the weights in half precision."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, draw = transformer(), torch.Generator().manual_seed(0)
    nn.init.trunc_normal_(model.heads[0].weight, std=0.02)
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


if __name__ == "__main__":
    main()
