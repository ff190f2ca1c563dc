"""The record of a training, within its budget, and its file: one .npz of plain numbers, no pickle.

========================  =====================================================================
about                     text, JSON: format, model, layers, ``every``, and which steps and
                          layouts the arrays are of
statistics 0, ...         (steps, rows, 2, 8) float32, see `summary.STATISTICS`
bins 0, ...               (steps, rows, 2, 132) uint16: the upper half of float32 numbers
channels 0, ...           (steps, 2 × channels) uint16, the same
weights 0, ...            (steps, layers, 3) float32, see `weights.NORMS`
maps 0, ends 0, ...       uint8 and float32: the probe's maps, and what their ends stand for
========================  =====================================================================

A number is that of a layout; steps in which other layers ran have another one.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...files import file_path, read_arrays, write_arrays
from ...tables import plain
from .probe import Maps
from .recorder import Row
from .summary import BINS, STATISTICS, Summaries
from .weights import NORMS

SIDES = ("activation", "gradient")
_OWN = 200  # bytes that a step takes beside its arrays, about


@dataclass(frozen=True)
class Layout:
    """The rows of a step's numbers; steps with the same rows share it."""

    rows: tuple[Row, ...]  #: in the order in which they ran
    channels: tuple[int, ...]  #: of each row
    weighted: tuple[str, ...]  #: layers with parameters
    #: Of the probe: layer, channels, rows, columns.
    maps: tuple[tuple[str, int, int, int], ...] = ()


KINDS = {
    "statistics": np.float32,
    "bins": np.uint16,  # see `to_bfloat16`
    "channels": np.uint16,
    "weights": np.float32,
    "maps": np.uint8,
    "ends": np.float32,
}
"""The arrays of a step and their kinds."""


def to_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Return the upper half of each float32, rounded: 16 bits with the range of 32, as uint16."""
    rounded = torch.from_numpy(numbers).to(torch.bfloat16)
    return rounded.view(torch.int16).numpy().view(np.uint16)


def from_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Return the float32 numbers whose upper halves `to_bfloat16` kept.

    >>> from_bfloat16(to_bfloat16(np.array([1.0, 0.0, np.nan, 257.0]))).tolist()
    [1.0, 0.0, nan, 256.0]
    """
    return (halves.astype(np.uint32) << 16).view(np.float32)


@dataclass(eq=False)
class TrainingStep:
    """One recorded step.

    Attributes
    ----------
    number : int
        Number of steps of its phase before it.
    at : int
        Number of steps of training before it.
    layout : Layout
    arrays : dict of str to numpy.ndarray
        By the names in `KINDS`; bins, channels, maps and ends are packed.
    """

    number: int
    at: int
    layout: Layout
    arrays: dict[str, np.ndarray]

    @cached_property
    def nbytes(self) -> int:
        return _OWN + sum(each.nbytes for each in self.arrays.values())

    @property
    def has_gradients(self) -> bool:
        """True if any gradient arrived."""
        return bool((self.statistics[:, 1, -1] > 0).any())

    @property
    def statistics(self) -> np.ndarray:
        """``(rows, 2, statistics)`` of activations and gradients; NaN where there were none."""
        return self.arrays["statistics"]

    @property
    def weights(self) -> np.ndarray:
        """``(layers with parameters, 3)``, see `NORMS`."""
        return self.arrays["weights"]

    def bins(self) -> np.ndarray:
        """``(rows, 2, BINS.size)``, to three digits."""
        return from_bfloat16(self.arrays["bins"])

    def channels(self, row: int) -> np.ndarray:
        """Return each channel's mean of a row, to three digits, ``(2, C)``."""
        start, count = 2 * sum(self.layout.channels[:row]), 2 * self.layout.channels[row]
        return from_bfloat16(self.arrays["channels"][start : start + count]).reshape(2, -1)

    def dead(self) -> np.ndarray:
        """Return the fraction of each row's channels that were zero everywhere, ``(rows,)``."""
        rows = range(len(self.layout.rows))
        return np.array([(self.channels(row)[0] == 0).mean() for row in rows])

    def maps(self) -> Maps:
        """Return each layer's probe maps as levels, and the values of the first and last level."""
        found: Maps = {}
        levels, ends = self.arrays["maps"], self.arrays["ends"]
        for layer, *shape in self.layout.maps:
            here, levels = np.split(levels, [math.prod(shape)])
            (low, high), ends = ends[: 2 * shape[0]].reshape(2, -1), ends[2 * shape[0] :]
            found[layer] = here.reshape(shape), low, high
        return found


def step_of(
    number: int,
    at: int,
    rows: tuple[Row, ...],
    found: Summaries,
    norms: Mapping[str, tuple[float, float]],
    maps: Maps,
) -> TrainingStep:
    """Make a step from its summaries, norms and maps."""
    sides = iter(found.channels)
    # A gradient that did not come has as many channels as the activation.
    channels = [(one, two if two.size else one * np.nan) for one, two in zip(sides, sides)]  # noqa: B905
    layout = Layout(
        rows,
        tuple(len(one) for one, _ in channels),
        tuple(norms),
        tuple((layer, *levels.shape) for layer, (levels, _, _) in maps.items()),
    )
    arrays = {
        "statistics": found.statistics.reshape(len(rows), 2, -1),
        "bins": to_bfloat16(found.bins).reshape(len(rows), 2, -1),
        "channels": to_bfloat16(_joined(each for pair in channels for each in pair)),
        "weights": np.array([(*each, np.nan) for each in norms.values()]).reshape(-1, len(NORMS)),
        "maps": _joined(levels for levels, _, _ in maps.values()),
        "ends": _joined(each for _, *ends in maps.values() for each in ends),
    }
    arrays = {name: array.astype(KINDS[name]) for name, array in arrays.items()}
    return TrainingStep(number, at, layout, arrays)


def _joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *map(np.ravel, arrays)])


@dataclass(eq=False)
class History:
    """The recorded steps of a phase, training or validation.

    Attributes
    ----------
    every : int
        Interval of the recorded steps.
    seen : int
        Number of steps so far.
    steps : list of TrainingStep
    """

    every: int
    seen: int = 0
    steps: list[TrainingStep] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(step.nbytes for step in self.steps)

    @property
    def should_record(self) -> bool:
        """True if the next step is to be recorded."""
        return self.seen % self.every == 0

    def add(self, step: TrainingStep) -> None:
        """Store a step."""
        if self.steps and self.steps[-1].layout == step.layout:
            step.layout = self.steps[-1].layout
        self.steps.append(step)

    def subsample(self) -> None:
        """Drop every second recorded step, and double the interval."""
        self.every *= 2
        self.steps = [step for step in self.steps if step.number % self.every == 0]

    def cut(self, at: int) -> None:
        """Drop the steps from step ``at`` of training on."""
        kept = [step for step in self.steps if step.at < at]
        if len(kept) < len(self.steps):
            self.seen = self.steps[len(kept)].number
        self.steps = kept

    @property
    def rows(self) -> list[Row]:
        """The rows of all steps, in the order in which the layers ran."""
        found: dict[Row, int] = {}
        for step in self.steps:
            for index, row in enumerate(step.layout.rows):
                found.setdefault(row, index)
        return sorted(found, key=found.__getitem__)

    def table(self, statistic: str) -> tuple[list[Row], np.ndarray, np.ndarray]:
        """Return the rows of a statistic, one of `NAMES`, and its values in all steps.

        The values are ``(rows, steps)``, NaN where there is none, and a mask of the same shape
        marks where there were NaN or Inf.
        """
        name = statistic.removeprefix("gradient_")
        side, of_weights = int(name != statistic), statistic in NORMS
        if of_weights:
            rows = [Row(n) for n in dict.fromkeys(n for s in self.steps for n in s.layout.weighted)]
        else:
            rows = self.rows
        positions = {row: index for index, row in enumerate(rows)}
        values = np.full((len(rows), len(self.steps)), np.nan)
        wrong = np.zeros(values.shape, bool)
        for column, step in enumerate(self.steps):
            if of_weights:
                own = [positions[Row(layer)] for layer in step.layout.weighted]
                numbers = step.weights[:, NORMS.index(statistic)]
                bad = ~np.isfinite(step.weights[:, 0])
            else:
                own = [positions[row] for row in step.layout.rows]
                known = step.statistics[:, side]
                numbers = step.dead() if name == "dead" else known[:, STATISTICS.index(name)]
                bad = np.nan_to_num(known[:, _NONFINITE]).any(1)
            values[own, column], wrong[own, column] = numbers, bad
        return rows, values, wrong


PHASES = ("train", "eval")

_NONFINITE = [STATISTICS.index("nans"), STATISTICS.index("infs")]
_INF = BINS.size - 2  # the bin of Inf, without -Inf
_OF_ROWS = tuple(name for name in STATISTICS if name != "count")
NAMES = (*_OF_ROWS, "dead", *(f"gradient_{name}" for name in _OF_ROWS), *NORMS)
"""The statistics that a strip can show."""


@dataclass(frozen=True)
class FirstNonFinite:
    """The first NaN or Inf in a recorded step."""

    step: int
    phase: str  #: ``"forward"``, or ``"backward"`` for a gradient
    layer: str
    call: int
    path: str
    nans: int
    infs: int
    after: int | None  #: the recorded step before it, which had none
    #: The scale of the loss in the last step with it; a GradScaler skips such steps while it is
    #: above 1.
    scale: float = 1.0

    @property
    def row(self) -> Row:
        """The tensor in which it was."""
        return Row(self.layer, self.call, self.path)

    def __str__(self) -> str:
        word = "NaN" if self.nans else "Inf"
        what = "what" if self.phase == "forward" else "the gradient of what"
        seen = "" if self.after is None else f", not yet at step {self.after:,}"
        layer = repr(self.layer) if self.layer else "the model"
        call = f" (call {self.call})" if self.call else ""
        skipped = "; a GradScaler skips such a step" * (self.scale > 1)
        place = f"in {what} {layer}{call} returned"
        return f"{word} first seen at step {self.step:,}{seen}, {place}{skipped}"


@dataclass(eq=False)
class TrainingLog:
    """The recorded steps of a model, and facts about the steps that were dropped.

    Attributes
    ----------
    model : str
        The model's class.
    types : dict of str to str
        Each watched layer's class.
    max_bytes : int
    requested_every : int
        The value of ``every`` that the user passed.
    histories : dict of str to History
        By phase.
    first_trouble : FirstNonFinite or None
    left_out : dict of str to str
        Layers that could not be recorded, with the reason.
    carried : dict of int to bool
        Recorded steps of training, and whether they used gradients of the step before once more.
    merged : int
        The most steps of an optimizer in one block, if there were several.
    cut_off : int
        Number of recorded steps of training in which a gradient could come, and did not.
    """

    model: str
    types: dict[str, str]
    max_bytes: int
    requested_every: int
    histories: dict[str, History]
    first_trouble: FirstNonFinite | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    carried: dict[int, bool] = field(default_factory=dict)
    merged: int = 0
    cut_off: int = 0

    @property
    def nbytes(self) -> int:
        return sum(history.nbytes for history in self.histories.values())

    def add(self, phase: str, step: TrainingStep, scale: float = 1.0) -> None:
        """Store a step with its loss scale; drop others if the records exceed ``max_bytes``."""
        history, known = self.histories[phase], self.first_trouble
        trouble = first_trouble(step, history.steps[-1].at if history.steps else None, scale)
        if known is not None and known.scale > 1 and (trouble or step.has_gradients):
            # Finite gradients show that the GradScaler has skipped it.
            lasts = trouble is not None and trouble.phase == "backward"
            known = replace(known, scale=scale) if lasts else None
        self.first_trouble = known or trouble
        history.add(step)
        while self.nbytes > self.max_bytes:
            largest = max(self.histories.values(), key=lambda each: each.nbytes)
            if len(largest.steps) < 2:
                break
            largest.subsample()

    def difference(self, other: TrainingLog) -> str:
        """Describe the first difference; empty if one training can continue the other."""
        words = {
            "model": "its model differs",
            "types": "its layers differ",
            "requested_every": "its every= differs",
        }
        differ = (words[name] for name in words if getattr(self, name) != getattr(other, name))
        return next(differ, "")


def first_trouble(step: TrainingStep, after: int | None, scale: float) -> FirstNonFinite | None:
    """Return the first NaN or Inf in a step: forward, then backward from the last layer on."""
    counts = step.statistics[:, :, _NONFINITE]
    counts[step.bins()[:, 0, _INF] == 0, 0, 1] = 0  # -Inf of a mask, as before a softmax
    for side, phase in enumerate(("forward", "backward")):
        places = np.flatnonzero(np.nan_to_num(counts[:, side]).any(1))
        if len(places):
            place = int(places[0 if phase == "forward" else -1])
            row, (nans, infs) = step.layout.rows[place], counts[place, side].tolist()
            scale = scale if phase == "backward" else 1.0
            return FirstNonFinite(step.at, phase, *row, int(nans), int(infs), after, scale)
    return None


def step_records(
    types: Mapping[str, str], step: TrainingStep, phase: str
) -> Iterator[dict[str, Any]]:
    """Return the numbers of each layer and call in a step, see `Training.records`."""
    weights = dict(zip(step.layout.weighted, step.weights.tolist(), strict=True))
    rows = dict(zip(step.layout.rows, step.statistics.tolist(), strict=True))
    dead = dict(zip(rows, step.dead().tolist(), strict=True))
    ran, none = {row.layer for row in rows}, [[math.nan] * len(STATISTICS)] * 2
    rows |= {Row(layer): none for layer in weights if layer not in ran}  # others use their weights
    for row, sides in rows.items():
        record = {"step": step.at, "phase": phase, **row._asdict()}
        record["type"] = types.get(row.layer, "")
        for prefix, values in zip(("", "gradient_"), sides, strict=True):
            for name, value in zip(STATISTICS, values, strict=True):
                is_count = name in ("nans", "infs", "count") and value == value
                record[prefix + name] = int(value) if is_count else value
        norms = weights.get(row.layer, [math.nan] * len(NORMS))
        yield plain(record | {"dead": dead.get(row), **dict(zip(NORMS, norms, strict=True))})


FORMAT = "hookviz watch 2"
_PLAIN = ("model", "types", "max_bytes", "requested_every", "left_out", "merged", "cut_off")


def read_log(path: str | os.PathLike) -> TrainingLog:
    """Read the log in a file."""
    return read_arrays(path, {FORMAT: unpack_log}, "watch")


def write_log(log: TrainingLog, path: str | os.PathLike) -> None:
    """Write the log beside the old file, then replace that: never half of it."""
    groups: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    about: dict[str, Any] = {"format": FORMAT, "groups": groups}
    about |= {name: getattr(log, name) for name in _PLAIN}
    for phase, history in log.histories.items():
        about[phase] = {"every": history.every, "seen": history.seen}
        for layout in dict.fromkeys(step.layout for step in history.steps):
            own = [step for step in history.steps if step.layout == layout]
            for name in KINDS:
                arrays[f"{name} {len(groups)}"] = np.stack([step.arrays[name] for step in own])
            steps = [[step.number, step.at] for step in own]
            groups.append({"phase": phase, "steps": steps, **vars(layout)})
    about["carried"] = log.carried
    about["first_trouble"] = None if log.first_trouble is None else asdict(log.first_trouble)
    write_arrays(path, about, arrays, small=False)  # the training waits meanwhile


def unpack_log(about: dict[str, Any], held: dict[str, np.ndarray]) -> TrainingLog:
    """Rebuild the log from a file's content; other content raises various errors."""
    histories = {phase: History(**about[phase]) for phase in PHASES}
    for index, group in enumerate(about["groups"]):
        rows = tuple(Row(*row) for row in group["rows"])
        maps = tuple((layer, *shape) for layer, *shape in group["maps"])
        layout = Layout(rows, tuple(group["channels"]), tuple(group["weighted"]), maps)
        stacks = [held[f"{name} {index}"].astype(kind) for name, kind in KINDS.items()]
        steps = [
            TrainingStep(number, at, layout, dict(zip(KINDS, arrays, strict=True)))
            for (number, at), *arrays in zip(group["steps"], *stacks, strict=True)
        ]
        # Raises if the arrays have other shapes.
        _ = [*step_records({}, steps[0], "")], steps[0].bins(), steps[0].maps()
        for step in steps:
            histories[group["phase"]].add(step)
    for history in histories.values():
        history.steps.sort(key=lambda step: step.number)
    trouble, carried = about["first_trouble"], about["carried"].items()
    return TrainingLog(
        **{name: about[name] for name in _PLAIN if name in about},  # old files have no cut_off
        histories=histories,
        first_trouble=None if trouble is None else FirstNonFinite(**trouble),
        carried={int(step): each for step, each in carried},
    )


class AutoSaver:
    """Writes a log to a file: the first record at once, then after a pause.

    Parameters
    ----------
    path : path
        An existing file is continued.
    pause : float
        Minimum seconds between two writes.

    Raises
    ------
    ValueError
        The file's folder is missing, or the file is broken.
    """

    def __init__(self, path: str | os.PathLike, pause: float = 60.0) -> None:
        self._path = file_path(path).absolute()  # another folder may be the current one by then
        if not self._path.parent.is_dir():
            raise ValueError(
                f"Missing folder {str(self._path.parent)!r} for path={str(path)!r}: make it."
            )
        self.had = read_log(path) if self._path.exists() else None
        self._pause = pause
        self._seen, self._written = -1, -math.inf

    def keep(self, log: TrainingLog, *, now: bool = False) -> None:
        """Write new records after the pause, or ``now``."""
        seen = sum(history.seen for history in log.histories.values())
        if seen == self._seen or not (now or time.monotonic() - self._written >= self._pause):
            return
        self._seen, self._written = seen, time.monotonic()
        try:
            write_log(log, self._path)
        except OSError as error:  # errors while saving must not stop the training
            warnings.warn(
                f"The watch could not be written to {str(self._path)!r} ({error}); it tries again "
                f"in {self._pause:g} seconds.",
                RuntimeWarning,
                stacklevel=2,
            )
