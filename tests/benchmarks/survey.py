"""What it costs to ask a data set what each channel answers to, beside a plain pass over it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader

import hookviz

from .race import print_table, race

MODELS = {"resnet18": (96, 224), "resnet50": (64, 224), "demo": (256, 112)}
"""Name -> how many pictures, and their side."""
K, BATCH = 9, 16
LARGE = 32
"""Pictures are surveyed as one part of so many: of a small set more values go into the sketch."""
SURVEY, FIRST = "hookviz.survey", "its first batch alone"


def run(*, quick: bool = False) -> None:
    """Race a survey of all convolutions against a plain pass over the same loader."""
    for name, (count, side) in MODELS.items():
        torch.manual_seed(0)
        demo = name == "demo"
        model = hookviz.demo_model() if demo else torchvision.models.get_model(name).eval()
        pictures = list(torch.randn(2 * BATCH if quick else count, 3, side, side))
        title = f"{name}, CPU time: {len(pictures)} pictures 3×{side}×{side}, {BATCH} at once"
        rounds, warmups = (1, 0) if quick else (5, 1)
        found = race(contenders(model, pictures), rounds, warmups, time.process_time)
        print_table(title, found)
        print_costs(len(pictures), found)
        print_merge(model, side)


def print_costs(count: int, found: dict[str, list[float]]) -> None:
    """What is done once, before the first batch, has no part in a ratio for a whole data set."""
    plain, whole, first = (statistics.median(found[name]) for name in ("plain", SURVEY, FIRST))
    each = (whole - first) / (count - BATCH)
    once = first - BATCH * each
    print(
        f"  each further picture: {1000 * each:.1f} ms, {each * count / plain:.2f} of a plain one;",
        end=" ",
    )
    print(f"once: {once:.2f} s", flush=True)


def print_merge(model: nn.Module, side: int) -> None:
    """Print what it costs to add two parts, and how large a file is."""
    pictures = list(torch.randn(4 * K, 3, side, side))
    halves = [
        hookviz.survey(model, pictures, k=K, batch_size=2 * K, shard=(n, 2)) for n in range(2)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "survey.npz"
        (halves[0] + halves[1]).save(str(path))
        size = path.stat().st_size / 1e6
        ways = {
            "two parts added": lambda: halves[0] + halves[1],
            "written": lambda: halves[0].save(str(path)),
            "read": lambda: hookviz.load(path),
        }
        seconds = race(ways, 5, 1, time.process_time)
    said = [f"{name} {1000 * statistics.median(each):.0f} ms" for name, each in seconds.items()]
    print(f"  {'; '.join(said)}; the file {size:.1f} MB")


def contenders(model: nn.Module, pictures: list[Tensor]) -> dict[str, Callable[[], Any]]:
    """Ways to find each channel's top inputs; the first one does not."""
    given: dict[str, Any] = {"k": K, "batch_size": BATCH}

    def part(some: list[Tensor]) -> dict[str, Any]:
        return given | {"inputs": some * LARGE, "shard": (0, LARGE)}

    found: dict[str, Callable[[], Any]] = {
        "plain": lambda: plain(model, pictures),
        SURVEY: lambda: hookviz.survey(model, **part(pictures)),
        FIRST: lambda: hookviz.survey(model, **part(pictures[:BATCH])),
        "maxima in a hook, then sorted": lambda: maxima(model, pictures),
        "all that hookviz finds, in a hook": lambda: everything(model, pictures),
    }
    try:
        from crp.attribution import CondAttribution
        from crp.concepts import ChannelConcept
        from crp.visualization import FeatureVisualization
    except ImportError:
        print("zennit-crp: not installed")
        return found

    def concepts() -> None:
        layers = [name for name, each in model.named_modules() if isinstance(each, nn.Conv2d)]
        labelled = [(picture, 0) for picture in pictures]
        with tempfile.TemporaryDirectory() as folder:
            seen = FeatureVisualization(
                CondAttribution(model),
                labelled,
                dict.fromkeys(layers, ChannelConcept()),
                path=str(Path(folder) / "crp"),
            )
            seen.run(None, 0, len(pictures), BATCH, BATCH, on_device="cpu")

    return found | {"zennit-crp, with its backward": concepts}


def plain(model: nn.Module, pictures: list[Tensor]) -> None:
    """One forward over all pictures."""
    with torch.no_grad():
        for batch in DataLoader(pictures, BATCH):  # type: ignore[arg-type]
            model(batch)


def maxima(model: nn.Module, pictures: list[Tensor]) -> dict[str, Any]:
    """The straightforward way: no statistics, and memory that grows with the data set."""
    kept: dict[str, list[Any]] = {}

    def hook(name: str) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Tensor) -> None:
            kept.setdefault(name, []).append(output.flatten(2).max(2))

        return after

    run_with(model, pictures, hook)
    values = {name: torch.cat([each.values for each in found]) for name, found in kept.items()}
    return {
        name: torch.sort(each, dim=0, descending=True, stable=True) for name, each in values.items()
    }


def everything(model: nn.Module, pictures: list[Tensor]) -> dict[str, Any]:
    """The straightforward way to all that a survey has but the sketch."""
    kept: dict[str, list[Any]] = {}

    def hook(name: str) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Tensor) -> None:
            flat = output.flatten(2)
            found = flat.max(2), torch.var_mean(flat, 2), (flat == 0).sum(2), flat.isnan().sum(2)
            kept.setdefault(name, []).append(found)

        return after

    run_with(model, pictures, hook)
    values = {n: torch.cat([each[0].values for each in found]) for n, found in kept.items()}
    return {
        name: torch.sort(each, dim=0, descending=True, stable=True) for name, each in values.items()
    }


def run_with(
    model: nn.Module, pictures: list[Tensor], hook: Callable[[str], Callable[..., None]]
) -> None:
    """A plain pass with a hook on every convolution."""
    handles = [
        each.register_forward_hook(hook(name))
        for name, each in model.named_modules()
        if isinstance(each, nn.Conv2d)
    ]
    try:
        plain(model, pictures)
    finally:
        for handle in handles:
            handle.remove()
