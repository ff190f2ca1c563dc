"""What it costs to watch a training, and how many bytes it keeps."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hookviz

from .race import print_table, race

BATCH, SIDE = 8, 128
LAYERS = nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU
SIMULATED = (1_000, 10_000, 100_000)


def run(*, quick: bool = False) -> None:
    """Race watchers around a step of training; then simulate long ones."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18().train()
    given = torch.randn(BATCH, 3, SIDE, SIDE), torch.arange(BATCH)
    steps = {name: step(model, *given, one) for name, one in contenders(model).items()}
    title = f"resnet18: a recorded step of training, {BATCH}×3×{SIDE}×{SIDE}, CPU time"
    found = race(steps, 3 if quick else 15, clock=time.process_time)
    print_table(title, found)
    medians = {name: sorted(times)[len(times) // 2] for name, times in found.items()}
    share = medians["hookviz.watch"] / medians["plain"] - 1
    block = empty_block(model)
    whole = 1 + share / 50 + block / medians["plain"]
    print(f"  a block that is not recorded: {1e6 * block:.0f} µs; so at every=50: {whole:.3f}")
    if not quick:
        race_fifty(model, *given)
    for count in SIMULATED[: 1 if quick else None]:
        simulate(count)


def race_fifty(model: nn.Module, *given: Tensor, rounds: int = 3) -> None:
    """The same without arithmetic: watched steps, of fifty one recorded, each by a plain one."""
    plain, watched = (step(model, *given, a) for a in (nullcontext(), hookviz.watch(model)))
    seconds: dict[str, list[float]] = {"plain": [], "recorded": [], "not recorded": []}
    for number in range(50 * rounds):
        kind = "not recorded" if number % 50 else "recorded"
        both = [("plain", plain), (kind, watched)]
        for name, once in both if number % 2 else reversed(both):
            start = time.process_time()
            once()
            seconds[name].append(time.process_time() - start)
    print_table("every=50, step after step", seconds)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    fifty = medians["recorded"] + 49 * medians["not recorded"]
    print(f"  fifty of them: {fifty / 50 / medians['plain']:.3f} of plain ones")


def empty_block(model: nn.Module, count: int = 2000) -> float:
    """Seconds of the processor: as a part of a step they would be lost in its noise."""
    watch = hookviz.watch(model, every=10**9)
    start = 0.0
    for number in range(count + 1):
        if number == 1:  # the first one is recorded
            start = time.process_time()
        with watch:
            pass
    return (time.process_time() - start) / count


def step(
    model: nn.Module, pictures: Tensor, classes: Tensor, around: AbstractContextManager[Any]
) -> Callable[[], Any]:
    """One step within a block."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def once() -> Tensor:
        optimizer.zero_grad()
        with around:
            loss = cross_entropy(model(pictures), classes)
            loss.backward()
        optimizer.step()
        return loss

    return once


def contenders(model: nn.Module) -> dict[str, AbstractContextManager[Any]]:
    """Ways to record what layers do; the first one does not."""
    found: dict[str, AbstractContextManager[Any]] = {
        "plain": nullcontext(),
        "hookviz.watch": hookviz.watch(model, every=1),
        "hookviz.watch of convolutions": hookviz.watch(model, nn.Conv2d, every=1),
        "fastai-like: mean, std, histc in a hook": Hooked(model, fastai_like),
    }
    try:
        found["TensorBoard: histograms of weights, gradients, activations"] = TensorBoard(model)
    except ImportError:
        print("TensorBoard: not installed")
    try:
        found["wandb.watch: weights and gradients, offline"] = Wandb(model)
    except ImportError:
        print("wandb: not installed")
    return found


def fastai_like(tensor: Tensor) -> tuple[float, float, Tensor]:
    """As fastai's ActivationStats with ``with_hist``."""
    values = tensor.detach().float()
    return values.mean().item(), values.std().item(), values.cpu().histc(40, 0, 10)


class Hooked:
    """A forward hook on each layer."""

    def __init__(self, model: nn.Module, take: Callable[[Tensor], Any]) -> None:
        self.model, self.take, self.taken = model, take, []

    def __enter__(self) -> None:
        def after(module: nn.Module, args: Any, output: Tensor) -> None:
            self.taken.append(self.take(output))

        self.taken.clear()
        layers = [each for each in self.model.modules() if isinstance(each, LAYERS)]
        self.handles = [each.register_forward_hook(after) for each in layers]

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()


class TensorBoard(Hooked):
    """Histograms as its users write them."""

    def __init__(self, model: nn.Module) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer, self.number = SummaryWriter(tempfile.mkdtemp()), 0
        super().__init__(model, self.write)

    def write(self, tensor: Tensor) -> None:
        self.writer.add_histogram(f"activation {len(self.taken)}", tensor.detach(), self.number)

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        for name, parameter in self.model.named_parameters():
            self.writer.add_histogram(name, parameter, self.number)
            self.writer.add_histogram(f"{name} gradient", parameter.grad, self.number)
        self.number += 1


class Wandb:
    """``wandb.watch`` with ``log="all"`` at each step, without a network."""

    def __init__(self, model: nn.Module) -> None:
        import wandb

        self.model, self.wandb = model, wandb
        self.run = wandb.init(mode="offline", dir=tempfile.mkdtemp())

    def __enter__(self) -> None:
        self.wandb.watch(self.model, log="all", log_freq=1)

    def __exit__(self, *error: object) -> None:
        self.run.log({"step": 1})
        self.wandb.unwatch(self.model)


def simulate(count: int) -> None:
    """So many steps, each of which is asked for, of a small model, in a small budget."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    watch, x, most = hookviz.watch(model, every=1, max_bytes=2e6), torch.randn(1, 3, 8, 8), 0
    for _ in range(count):
        with watch:
            if watch.active and (watch.step - 1) % watch.every == 0:
                model(x).sum().backward()
        most = max(most, watch.nbytes)
    print(
        f"  {count:,} steps, max_bytes=2e6: {len(watch.steps)} recorded, every={watch.every}, "
        f"{watch.nbytes:,} bytes, {most:,} at most"
    )
