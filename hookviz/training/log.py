"""All that is kept of a training, within its budget: what a file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .history import SIDES, History, Step
from .measured import STATISTICS
from .recorder import Row
from .weights import NORMS

PHASES = ("train", "eval")


@dataclass(frozen=True)
class Trouble:
    """The first NaN or Inf in a recorded step."""

    step: int
    phase: str  #: ``"forward"``, or ``"backward"`` for a gradient
    layer: str
    call: int
    path: str
    nans: int
    infs: int
    after: int | None  #: the recorded step before it, in which there was none

    def __str__(self) -> str:
        word = "NaN" if self.nans else "Inf"
        what = "what" if self.phase == "forward" else "the gradient of what"
        seen = "" if self.after is None else f", not yet at step {self.after:,}"
        layer = repr(self.layer) if self.layer else "the model"
        call = f" (call {self.call})" if self.call else ""
        return f"{word} first seen at step {self.step:,}{seen}, in {what} {layer}{call} returned"


@dataclass(eq=False)
class Log:
    """Recorded steps, of which model and layers they are, and what is never let go.

    Attributes
    ----------
    model : str
        The model's class.
    types : dict of str to str
        Each watched layer's class.
    max_bytes : int
    asked : int
        The ``every`` that was asked for.
    histories : dict of str to History
        By phase.
    first_trouble : Trouble or None
    left_out : dict of str to str
        Layers that could not be summed up, with the reason.
    """

    model: str
    types: dict[str, str]
    max_bytes: int
    asked: int
    histories: dict[str, History]
    first_trouble: Trouble | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(history.nbytes for history in self.histories.values())

    def add(self, phase: str, step: Step) -> None:
        """Keep a step, and let others go where there is no room for it."""
        history = self.histories[phase]
        if self.first_trouble is None:
            self.first_trouble = first_trouble(
                step, history.steps[-1].at if history.steps else None
            )
        history.add(step)
        while self.nbytes > self.max_bytes:
            largest = max(self.histories.values(), key=lambda each: each.nbytes)
            if len(largest.steps) < 2:
                break
            largest.thin()

    def differences(self, other: Log) -> str:
        """What differs, in words; empty if one may go on with the other."""
        if self.model != other.model:
            return f"its model is {self.model}, not {other.model}"
        if self.types != other.types:
            odd = dict(self.types.items() ^ other.types.items())
            return f"its layers differ, as in {min(odd)!r}"
        return f"its every= is {self.asked}, not {other.asked}" if self.asked != other.asked else ""


def first_trouble(step: Step, after: int | None) -> Trouble | None:
    """The first NaN or Inf in a step: forward before backward, backward from the last layer on."""
    counts = step.statistics()[:, :, [STATISTICS.index("nans"), STATISTICS.index("infs")]]
    for side, phase in enumerate(("forward", "backward")):
        places = np.flatnonzero(np.nan_to_num(counts[:, side]).any(1))
        if len(places):
            place = int(places[0 if phase == "forward" else -1])
            row, (nans, infs) = step.layout.rows[place], counts[place, side].tolist()
            return Trouble(step.at, phase, *row, int(nans), int(infs), after)
    return None


def step_records(types: Mapping[str, str], step: Step, phase: str) -> Iterator[dict[str, Any]]:
    """What is known of each layer and call in a step, see `Training.records`."""
    weights = dict(zip(step.layout.weighted, step.weights().tolist(), strict=True))
    silent = dict.fromkeys(step.layout.weighted)  # layers whose weights others use
    known = zip(step.layout.rows, step.statistics().tolist(), step.dead().tolist(), strict=True)
    for row, numbers, dead in known:
        silent.pop(row.layer, None)
        yield _record(types, step, phase, row, numbers, weights) | {"dead": dead}
    for layer in silent:
        yield _record(types, step, phase, Row(layer), [[np.nan] * len(STATISTICS)] * 2, weights)


def _record(
    types: Mapping[str, str],
    step: Step,
    phase: str,
    row: Row,
    numbers: list[list[float]],
    weights: dict[str, Any],
) -> dict[str, Any]:
    found: dict[str, Any] = {"step": step.at, "phase": phase, **row._asdict()}
    found["type"] = types.get(row.layer, "")
    for side, values in zip(SIDES, numbers, strict=True):
        before = "gradient_" if side == "gradient" else ""
        there = values[-1] == values[-1]  # counted
        for name, value in zip(STATISTICS, values, strict=True):
            whole = name in ("nans", "infs", "count") and there
            found[before + name] = int(value) if whole else value if there else None
    found["dead"] = None
    own = weights.get(row.layer, [np.nan] * len(NORMS))
    return found | {
        name: value if value == value else None for name, value in zip(NORMS, own, strict=True)
    }
