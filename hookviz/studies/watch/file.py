"""A watched training as one .npz file of plain numbers, without pickle.

========================  =====================================================================
about                     text, JSON: format, model, layers, ``every``, and which steps and
                          layouts the arrays are of
statistics 0, ...         (steps, rows × 2 × 8) float32, see `measured.STATISTICS`
bins 0, ...               (steps, rows × 2 × 132) uint16: the upper half of float32 numbers
channels 0, ...           (steps, 2 × channels) uint16, the same
weights 0, ...            (steps, layers × 3) float32, see `measured.NORMS`
maps 0, ends 0, ...       uint8 and float32: the probe's maps, and what their ends stand for
========================  =====================================================================

A number is that of a layout; steps in which other layers ran have another one.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...files import read_arrays, write_arrays
from .log import KINDS, PHASES, FirstNonFinite, History, Layout, TrainingLog, TrainingStep
from .recorder import Row

FORMAT = "hookviz watch 1"


def read(path: str | os.PathLike) -> TrainingLog:
    """What a file holds."""
    return read_arrays(path, {FORMAT: unpack}, "watch")


def write(log: TrainingLog, path: str | os.PathLike) -> None:
    """Write it whole or not at all: beside the old file, which it then replaces."""
    groups: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    about: dict[str, Any] = {"format": FORMAT, "model": log.model, "groups": groups}
    for phase, history in log.histories.items():
        about[phase] = {"every": history.every, "seen": history.seen}
        for layout in dict.fromkeys(step.layout for step in history.steps):
            own = [step for step in history.steps if step.layout == layout]
            for name in KINDS:
                arrays[f"{name} {len(groups)}"] = np.stack([step.arrays[name] for step in own])
            steps = [[step.number, step.at] for step in own]
            groups.append({"phase": phase, "steps": steps, **vars(layout)})
    about |= {name: getattr(log, name) for name in ("types", "max_bytes", "asked", "left_out")}
    about["holes"] = [list(each) for each in log.holes]
    about["carried"] = {str(step): each for step, each in log.carried.items()}
    about["first_trouble"] = None if log.first_trouble is None else asdict(log.first_trouble)
    write_arrays(path, about, arrays, small=False)  # the training waits meanwhile


def unpack(about: dict[str, Any], held: dict[str, np.ndarray]) -> TrainingLog:
    """The log that a file's content is of; many kinds of errors if it is of none."""
    histories = {phase: History(**about[phase]) for phase in PHASES}
    for place, group in enumerate(about["groups"]):
        rows = tuple(Row(*row) for row in group["rows"])
        maps = tuple((layer, *shape) for layer, *shape in group["maps"])
        layout = Layout(rows, tuple(group["channels"]), tuple(group["weighted"]), maps)
        stacks = {name: held[f"{name} {place}"].astype(KINDS[name]) for name in KINDS}
        for name, width in layout.widths().items():
            if stacks[name].shape != (len(group["steps"]), width):
                raise ValueError(f"{name} {place} has shape {stacks[name].shape}")
        for row, (number, at) in enumerate(group["steps"]):
            arrays = {name: stack[row].copy() for name, stack in stacks.items()}
            histories[group["phase"]].add(TrainingStep(number, at, layout, arrays))
    for history in histories.values():
        history.steps.sort(key=lambda step: step.number)
    trouble = about["first_trouble"]
    return TrainingLog(
        about["model"],
        about["types"],
        about["max_bytes"],
        about["asked"],
        histories,
        None if trouble is None else FirstNonFinite(**trouble),
        about["left_out"],
        {int(step): each for step, each in about.get("carried", {}).items()},  # since 0.3
        [(first, last) for first, last in about.get("holes", [])],
    )


class AutoSaver:
    """Writes a log to a file: the first record at once, then at most once in a while.

    Parameters
    ----------
    path : path
        If there is a file, it is gone on with.
    pause : float
        So many seconds are between two writes.

    Raises
    ------
    ValueError
        There is no folder for the file, or it is broken.
    """

    def __init__(self, path: str | os.PathLike, pause: float = 60.0) -> None:
        self._path = Path(path).absolute()  # another folder may be the current one by then
        if not self._path.parent.is_dir():
            raise ValueError(
                f"There is no folder {str(self._path.parent)!r} for path={str(path)!r}: make it."
            )
        self.had = read(path) if self._path.exists() else None
        self._pause = pause
        self._seen, self._written = -1, -math.inf

    def keep(self, log: TrainingLog, *, now: bool = False) -> None:
        """Write it if it is time, or ``now`` if there is anything new."""
        seen = sum(history.seen for history in log.histories.values())
        if seen == self._seen or not (now or time.monotonic() - self._written >= self._pause):
            return
        self._seen, self._written = seen, time.monotonic()
        try:
            write(log, self._path)
        except OSError as error:  # a training does not end for its watcher's sake
            warnings.warn(
                f"The watch could not be written to {str(self._path)!r} ({error}); it tries again "
                f"in {self._pause:g} seconds.",
                RuntimeWarning,
                stacklevel=2,
            )
