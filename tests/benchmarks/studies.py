"""The cost of each study, relative to the step or pass that it examines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import hookviz
from benchmarks.passes import hooked, modules_of, network
from benchmarks.race import Table, race, raced, timed

Around = Callable[[], AbstractContextManager[Any]]
BATCH = 16
LARGE = 32
"""The pictures are repeated this many times, and one part of that many is surveyed: a survey puts
more values of each picture into its sketch if the data set is small."""
WATCHED = nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU


def tiny():
    """Build a network for pictures of digits, 8×8."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


class Residual(nn.Sequential):
    """Adds its result to its input, so that no gradient explodes, however many blocks there are."""

    def forward(self, x):
        return x + 0.1 * super().forward(x)


def chain(depth):
    """Build a network of ``depth`` blocks with very little arithmetic."""
    blocks = [
        Residual(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(depth)
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(8 * 256, 10))


def step(model, x, around=nullcontext, train=False):
    """Return a function that runs a forward and backward in a block and, with ``train``, SGD."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def once():
        optimizer.zero_grad()
        with around():
            loss = loss_of(model(x))
            loss.backward()
        if train:
            optimizer.step()
        return loss

    return once


def loss_of(output):
    return cross_entropy(output, torch.arange(len(output)) % 10)


def diagnose(quick):
    """Diagnose networks of several depths, compared with a plain forward and backward."""
    rounds, side, depths = (1, 64, (20, 80)) if quick else (5, 224, (250, 1000))
    cases = {"resnet50": (network("resnet50").train(), torch.randn(4, 3, side, side))}
    for depth in depths:
        cases[f"{depth} × conv, BatchNorm, ReLU"] = chain(depth), torch.randn(4, 8, 16, 16)
    block = []
    for title, (model, x) in cases.items():
        contenders = {
            "forward and backward": step(model, x),
            "hookviz.diagnose": partial(hookviz.diagnose, model, x, loss_of),
        }
        found = race(contenders, rounds if title == "resnet50" else 1)
        yield timed(f"{title}: diagnose", found)
        block.append(statistics.median(found["hookviz.diagnose"]))
    few, many = (each / depth for each, depth in zip(block[1:], depths, strict=True))
    head = ["", f"one of {depths[0]}", f"one of {depths[1]}", "ratio"]
    row = ["a block", f"{1e3 * few:.2f} ms", f"{1e3 * many:.2f} ms", f"{many / few:.2f}"]
    yield Table("diagnose: how it grows with the layers", head, [row])


def guard(quick):
    """Watch a training step for NaN and Inf."""
    cases = {
        "resnet18": (network("resnet18").train(), torch.randn(8, 3, 224, 224)),
        "resnet50": (network("resnet50").train(), torch.randn(4, 3, 224, 224)),
        "a tiny network": (tiny(), torch.randn(64, 1, 8, 8)),
    }
    for title, (model, x) in [*cases.items()][-1 if quick else 0 :]:
        ways: dict[str, Around] = {
            "plain": nullcontext,
            "with hookviz.diagnose(model)": partial(hookviz.diagnose, model),
            "torch.autograd.detect_anomaly": lambda: torch.autograd.detect_anomaly(),
        }
        steps = {name: step(model, x, around) for name, around in ways.items()}
        yield raced(f"{title}: a guarded step", steps, 2 if quick else 7)


def watch(quick):
    """Record a training."""
    model, x = network("resnet18").train(), torch.randn(8, 3, *([32, 32] if quick else [128, 128]))
    layers = modules_of(model, *WATCHED)
    kept: list[Any] = []

    def fastai_like(module, args, output):
        """Keep the statistics of fastai's ActivationStats with ``with_hist``."""
        values = output.detach().float()
        kept[:] = values.mean().item(), values.std().item(), values.cpu().histc(40, 0, 10)

    every, some = hookviz.watch(model, every=1), hookviz.watch(model, nn.Conv2d, every=1)
    ways: dict[str, Around] = {
        "plain": nullcontext,
        "hookviz.watch": lambda: every,
        "hookviz.watch of convolutions": lambda: some,
        "mean, std and histogram in hooks, as fastai": partial(hooked, layers, fastai_like),
    }
    steps = {name: step(model, x, around, train=True) for name, around in ways.items()}
    yield raced("resnet18: every step recorded", steps, 2 if quick else 7)
    seldom = hookviz.watch(model)
    seconds: dict[str, list[float]] = {"plain": [], "recorded": [], "not recorded": []}
    ways = {"plain": nullcontext, "watched": lambda: seldom}
    for number in range(3 if quick else 102):
        for name, around in ways.items():
            start = time.process_time()
            step(model, x, around, train=True)()
            kind = "not recorded" if number % 50 else "recorded"
            seconds[name if name == "plain" else kind].append(time.process_time() - start)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    fifty = (medians["recorded"] + 49 * medians["not recorded"]) / 50 / medians["plain"]
    note = f"Fifty steps, of which one is recorded: {fifty:.3f} of plain ones."
    yield replace(timed("resnet18: every 50th step recorded", seconds), note=note)


def survey(quick):
    """Find what each channel responds to in a data set, compared with a plain pass over it."""
    cases: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "a tiny network": (tiny().eval(), (4096, 1, 8, 8)),
        "demo": (hookviz.demo_model(), (256, 3, 112, 112)),
        "resnet18": (network("resnet18"), (96, 3, 224, 224)),
        "resnet50": (network("resnet50"), (48, 3, 224, 224)),
    }
    first = "its first batch alone"
    for name, (model, size) in [*cases.items()][: 1 if quick else None]:
        pictures = list(torch.randn(64 if quick else size[0], *size[1:]))

        def part(some, model=model):
            given = {"batch_size": BATCH, "shard": (0, LARGE)}
            return hookviz.survey(model, some * LARGE, **given)  # type: ignore[arg-type]

        contenders = {
            "plain": partial(plain_pass, model, pictures),
            "hookviz.survey": partial(part, pictures),
            first: partial(part, pictures[:BATCH]),
        }
        found = race(contenders, 1 if quick else 2)
        plain, whole, once = (
            statistics.median(found[each]) for each in ("plain", "hookviz.survey", first)
        )
        each = (whole - once) / (len(pictures) - BATCH)
        note = f"Each further picture takes {each * len(pictures) / plain:.2f} of a plain one."
        yield replace(timed(f"{name}: a survey of {len(pictures)} pictures", found), note=note)


def plain_pass(model, pictures):
    """Run the model on all pictures."""
    with torch.no_grad():
        for batch in DataLoader(pictures, BATCH):  # type: ignore[arg-type]
            model(batch)


def compare(quick):
    """Compare two networks. The baseline is a forward and backward of each."""
    a, b, x = resnet20(), resnet20(), torch.randn(64, 3, 32, 32)
    one, other = step(a, x), step(b, x)
    contenders = {
        "two forwards and backwards": lambda: (one(), other()),
        "hookviz.compare": lambda: hookviz.compare(a, b, x),
    }
    yield raced("resnet20: compare", contenders, 1 if quick else 5)


def resnet20():
    """Build ResNet20 for pictures of 32×32: three stages of three blocks, 16, 32 and 64 wide."""
    block, widths = torchvision.models.resnet.BasicBlock, (16, 16, 32, 64)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
    ]  # fmt: skip
    for before, width in pairwise(widths):
        first = block(before, width)
        if before != width:
            short = nn.Conv2d(before, width, 1, 2, bias=False), nn.BatchNorm2d(width)
            first = block(before, width, 2, nn.Sequential(*short))
        layers += [first, block(width, width), block(width, width)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model.eval()
