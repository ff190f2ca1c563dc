"""The processes of a survey, for tests: forked, since a fresh one would import torch anew."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import hookviz

LENGTH, BATCH, K = 41, 4, 3


class Pictures:
    """Drawn by chance, with ties, each with a class; may kill its process at one of them."""

    classes = ["a", "b", "c"]

    def __init__(self, deadly: int = -1) -> None:
        drawn = torch.randint(-2, 3, (LENGTH, 2, 7, 7), generator=torch.manual_seed(3))
        self.inputs, self.deadly = drawn.float(), deadly

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inputs[index], index % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 6, 3, stride=2)
    ).eval()


def run(folder: Path, count: int, *, dies: bool = False) -> list[tuple[int, str]]:
    """Survey `Pictures` in so many processes; the exit code of each, and what it said at its end.

    The last one kills itself at one of its last batches if it ``dies``.
    """
    started = []
    for rank in range(count):
        fork = multiprocessing.get_context("fork")
        started.append(fork.Process(target=_process, args=(folder, rank, count, dies)))
        started[-1].start()
    for each in started:
        each.join()
    said = [folder / f"said-by-{rank}.txt" for rank in range(count)]
    return [
        (process.exitcode or 0, path.read_text() if path.exists() else "")
        for process, path in zip(started, said, strict=True)
    ]


def _process(folder: Path, rank: int, count: int, dies: bool) -> None:
    said = folder / f"said-by-{rank}.txt"
    said.unlink(missing_ok=True)
    try:
        if count > 1:
            store = f"file://{folder / f'meeting-{dies}'}"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
        pictures = Pictures(deadly=33 if dies and rank == count - 1 else -1)
        given = {"k": K, "batch_size": BATCH, "path": folder / "survey.npz", "save_every": 0.0}
        hookviz.survey(network(), pictures, nn.Conv2d, **given)
    except Exception:
        said.write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)
