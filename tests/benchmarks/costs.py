"""What the studies cost beside the run that they look at, in one run: ratios and their goals."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import hookviz

from .race import race

DEPTHS = 250, 1000
Case = tuple[str, str, float, dict[str, Callable[[], Any]], int]
"""A title, the unit, the goal, two contenders, the first of which is the unit, and rounds."""


def run(*, quick: bool = False) -> None:
    """Race each study against its unit, and print the ratio of the medians."""
    print("processor time, one thread", flush=True)
    for title, unit, goal, contenders, rounds in cases(quick):
        ratio, seconds = _ratio(contenders, rounds)
        print(
            f"  {title}: {ratio:.2f} × {unit} ({1e3 * seconds:.1f} ms); goal {goal:g}", flush=True
        )
    print_growth(quick=quick)


def _ratio(contenders: dict[str, Callable[[], Any]], rounds: int) -> tuple[float, float]:
    """Return how many times the first one's median the second one's is, and the first one's."""
    found = race(contenders, rounds, warmups=1, clock=time.process_time)
    plain, other = (statistics.median(each) for each in found.values())
    return other / plain, plain


def cases(quick: bool) -> Iterator[Case]:
    """Each study on the network that its goal is of."""
    torch.manual_seed(0)
    step = "forward and backward"
    if not quick:
        model, x = torchvision.models.resnet50().train(), torch.randn(4, 3, 224, 224)
        yield "diagnose, ResNet50", step, 1.5, diagnosed(model, x), 7
        yield "the guard, ResNet50", step, 1.1, guarded(model, x), 7
    model, x = digits_net().train(), torch.randn(64, 1, 8, 8)
    yield "the guard, a tiny net", step, 2.0, guarded(model, x), 3 if quick else 41
    # The sums of a small tensor take longer than its layer, whose time is that of calling torch.
    yield "watch every=1, a tiny net", "training step", 3.0, watched(model, x), 3 if quick else 81
    pictures = list(torch.randn(256 if quick else 4096, 1, 8, 8))
    yield "survey, a tiny net", "plain pass", 2.0, surveyed(model.eval(), pictures), 3
    a, b = resnet20().eval(), resnet20().eval()
    both = compared(a, b, torch.randn(64, 3, 32, 32))
    yield "compare, ResNet20", "two forwards and backwards", 2.5, both, 1 if quick else 9


def digits_net() -> nn.Sequential:
    """As the tests train it on digits of 8×8."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def resnet20() -> nn.Module:
    """ResNet20 for pictures of 32×32: three stages of three blocks, 16, 32 and 64 wide."""
    block, widths = torchvision.models.resnet.BasicBlock, (16, 16, 32, 64)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
    ]  # fmt: skip
    for before, width in pairwise(widths):
        wider = nn.Sequential(
            nn.Conv2d(before, width, 1, 2, bias=False), nn.BatchNorm2d(width)
        )  # fmt: skip
        first = block(before, width, 2, wider) if before != width else block(width, width)
        layers += [first, block(width, width), block(width, width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def stepped(model: nn.Module, x: Tensor) -> Callable[[], None]:
    def once() -> None:
        model.zero_grad()
        cross_entropy(model(x), torch.arange(len(x)) % 10).backward()

    return once


def diagnosed(model: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    loss = lambda output: cross_entropy(output, torch.arange(len(x)) % 10)  # noqa: E731
    return {"plain": stepped(model, x), "diagnose": lambda: hookviz.diagnose(model, x, loss)}


def guarded(model: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    plain = stepped(model, x)

    def once() -> None:
        with hookviz.diagnose(model):
            plain()

    return {"plain": plain, "guard": once}


def watched(model: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    plain, optimizer = stepped(model, x), torch.optim.SGD(model.parameters(), 1e-4)
    watch = hookviz.watch(model, every=1)

    def alone() -> None:
        plain()
        optimizer.step()

    def within() -> None:
        with watch:
            plain()
        optimizer.step()

    return {"plain": alone, "watch": within}


def surveyed(model: nn.Module, pictures: list[Tensor]) -> dict[str, Callable[[], Any]]:
    def plain() -> None:
        with torch.no_grad():
            for batch in DataLoader(pictures, 64):  # type: ignore[arg-type]
                model(batch)

    return {"plain": plain, "survey": lambda: hookviz.survey(model, pictures, batch_size=64)}


def compared(a: nn.Module, b: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    one, other = stepped(a, x), stepped(b, x)
    return {"plain": lambda: (one(), other()), "compare": lambda: hookviz.compare(a, b, x)}


def chain(depth: int) -> nn.Sequential:
    """So many convolutions, each with BatchNorm and ReLU."""
    blocks = [
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        for _ in range(depth)
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(8 * 256, 10))


def print_growth(*, quick: bool) -> None:
    """How a look grows with the layers: time for each of few, and of many."""
    depths, times = (20, 80) if quick else DEPTHS, []
    for depth in depths:
        torch.manual_seed(0)
        model, x = chain(depth), torch.randn(4, 8, 16, 16)
        ratio, plain = _ratio(diagnosed(model, x), 1 if quick else 3)
        times.append(ratio * plain / depth)
        print(
            f"  diagnose, {depth} × conv, BatchNorm, ReLU: {1e3 * times[-1]:.2f} ms a block, "
            f"{ratio:.2f} × forward and backward", flush=True,
        )  # fmt: skip
    print(f"  a block of {depths[1]} ÷ one of {depths[0]}: {times[1] / times[0]:.2f}; goal 1.2")
