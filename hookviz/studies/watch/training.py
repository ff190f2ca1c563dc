"""The result of a watched training: a table, records, strips, a file, and findings in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...files import page_to
from ...hooking.select import close_names
from ...tables import for_terminal, html_table, megabytes, number, plain, text_table
from ..diagnosis.findings import Diagnosis, Finding, also
from ..showing import widget
from .log import PHASES, FirstNonFinite, History, TrainingLog, TrainingStep, step_records, write_log
from .recorder import Row
from .weights import NORMS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOO_FAR = 0.5
"""A step that takes a layer's weights by this fraction of their norm is far too long."""
FEW = 2
"""Fewer steps than this allow no statement."""
EARLY = 8
"""So many steps are the first ones."""
OUTGROWN = 20.0
"""Weights that grow by this factor, and did so by leaps, grow by steps that are too long."""

LOOKED = (
    "NaN and Inf in the recorded steps",
    "how far each step takes the weights",
    "gradients that add up from step to step",
)


def verdicts(log: TrainingLog) -> list[Finding]:
    """All that the recorded steps of training show."""
    steps = log.histories["train"].steps
    checks = (_not_finite(log), _too_far(steps), _still(steps), _adds_up(log))
    found = [finding for check in checks for finding in check]
    # An optimizer does not set to zero the gradients of what it does not hold.
    lacks = any(each.kind == "does not move" and each.evidence.get("others move") for each in found)
    return [each for each in found if not (lacks and each.kind == "adds up")]


def _not_finite(log: TrainingLog) -> Iterator[Finding]:
    first = log.first_trouble
    if first is not None:
        yield Finding(
            "nan" if first.nans else "inf",
            "error",
            f"{first}.",
            "Put `with hookviz.diagnose(model) as findings:` around that step: it names the "
            "operation.",
            first.layer,
            first.call,
            first.phase,
        )


def _norms(steps: list[TrainingStep], name: str) -> dict[str, np.ndarray]:
    """By layer, a number of its weights in each step, NaN where there is none."""
    found: dict[str, list[float]] = {}
    for index, step in enumerate(steps):
        column = step.weights()[:, NORMS.index(name)].tolist()
        for layer, value in zip(step.layout.weighted, column, strict=True):
            found.setdefault(layer, [np.nan] * index).append(value)
    longest = len(steps)
    return {
        layer: np.array(each + [np.nan] * (longest - len(each))) for layer, each in found.items()
    }


def _middles(ratios: dict[str, np.ndarray], part: slice) -> dict[str, float]:
    """Return the median of each layer's numbers, over some of the steps."""
    return {layer: float(np.median(each[part])) for layer, each in ratios.items()}


def _too_far(steps: list[TrainingStep]) -> Iterator[Finding]:
    ratios = _norms(steps, "update_ratio")
    sizes = _norms(steps, "weight_norm")
    known = {layer: each[(sizes[layer] > 0) & np.isfinite(each)] for layer, each in ratios.items()}
    known = {layer: each for layer, each in known.items() if len(each) >= FEW}
    middles, first = _middles(known, slice(None)), ""
    if middles and np.median([*middles.values()]) <= TOO_FAR:
        # Weights that have grown by steps that are too long make later ones short beside them.
        middles, first = _middles(known, slice(EARLY)), f"first {EARLY} "
    if not middles or np.median([*middles.values()]) <= TOO_FAR:
        yield from _outgrown(ratios, sizes)
        return
    far = [layer for layer, middle in middles.items() if middle > TOO_FAR]
    yield Finding(
        "learning rate",
        "warning",
        f"In the middle of the {first}recorded steps a step takes the weights of {far[0]!r} by "
        f"{number(middles[far[0]])} of their norm: the learning rate is far too high."
        + (also(far[1:]) if far[1:] else ""),
        "Make it a hundred times smaller: about a hundredth of the norm a step, or less.",
        far[0],
        phase="backward",
        layers=far,
        evidence={"update ratios": middles},
    )


def _outgrown(ratios: dict[str, np.ndarray], sizes: dict[str, np.ndarray]) -> Iterator[Finding]:
    """Weights that one step has made anew, and that are many times as large ever since."""
    known = [layer for layer, each in sizes.items() if each[0] > 0 and np.isfinite(each).all()]
    first = {layer: float(ratios[layer][0]) for layer in known if np.isfinite(ratios[layer][0])}
    grown = {layer: float(sizes[layer].max() / sizes[layer][0]) for layer in first}
    if not grown or np.median([*first.values()]) <= TOO_FAR:
        return
    if np.median([*grown.values()]) > OUTGROWN:
        layers = [layer for layer in grown if grown[layer] > OUTGROWN]
        yield Finding(
            "learning rate",
            "warning",
            f"The first recorded step takes the weights of {layers[0]!r} by "
            f"{number(first[layers[0]])} of their norm, and they become {number(grown[layers[0]])} "
            "times as large: the learning rate is far too high."
            + (also(layers[1:]) if layers[1:] else ""),
            "Make it a hundred times smaller: about a hundredth of the norm a step, or less.",
            layers[0],
            phase="backward",
            layers=layers,
            evidence={"update ratios": first, "growth": grown},
        )


def _still(steps: list[TrainingStep]) -> Iterator[Finding]:
    """Layers that stay as they are although a gradient comes."""
    ratios, slopes = _norms(steps, "update_ratio"), _norms(steps, "weight_gradient_norm")
    still, moves = [], 0
    for layer, each in ratios.items():
        known = np.isfinite(each) & (slopes[layer] > 0)
        if known.sum() >= FEW:
            moved = bool((each[known] > 0).any())
            moves += moved
            still += [] if moved else [layer]
    if still:
        yield Finding(
            "does not move",
            "warning",
            f"The weights of {still[0]!r} have a gradient and stay as they are."
            + (also(still[1:]) if still[1:] else ""),
            "Look whether the optimizer holds them: hookviz.diagnose(model, x, loss, optimizer=…)."
            if moves
            else "Look whether optimizer.step() is called, with a learning rate above 0, and "
            "whether the gradients are clipped to 0 before.",
            still[0],
            phase="backward",
            layers=still,
            evidence={"others move": moves},
        )


def _adds_up(log: TrainingLog) -> Iterator[Finding]:
    """Each recorded step but the first began with the gradients of the one before."""
    later = [log.carried[step] for step in sorted(log.carried) if step > 0]
    if len(later) > FEW and all(later):
        yield Finding(
            "adds up",
            "warning",
            f"In all of {len(later)} recorded steps backward added its gradients to those of the "
            "step before.",
            "Call optimizer.zero_grad() once a step, before backward().",
            phase="backward",
        )


HEADER = (
    *("layer", "type", "call", "mean", "std", "min", "max", "zeros", "NaN, Inf"),
    *("gradient std", "weight norm", "update ratio"),
)

SPARE = ("type", "call", "min", "max", "weight norm", "mean")
"""Columns that a terminal can do without, the first ones first."""


TOLD = "std", "gradient_std", "update_ratio", "dead"
"""The numbers of `Training.to_tensorboard`, if no others are named."""


class Training:
    """The layers' numbers in the recorded steps of a training.

    Made by `hookviz.watch` and `hookviz.load`.

    Attributes
    ----------
    log : hookviz.studies.watch.log.TrainingLog
        All that is known.
    """

    def __init__(self, log: TrainingLog) -> None:
        self.log = log

    # What is known

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps of training that were recorded, from 0."""
        return [step.number for step in self.history().steps]

    @property
    def every(self) -> int:
        """Interval of the recorded steps, as it is now."""
        return self.log.histories["train"].every

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded steps, at most ``max_bytes``."""
        return self.log.nbytes

    @property
    def first_trouble(self) -> FirstNonFinite | None:
        """The first NaN or Inf that was seen, known also when its step has been let go."""
        return self.log.first_trouble

    def history(self, phase: str = "train") -> History:
        """Return the recorded steps of ``"train"`` or of ``"eval"``."""
        if phase not in PHASES:
            raise ValueError(f'phase={phase!r} is neither "train" nor "eval".')
        return self.log.histories[phase]

    def recorded(self, phase: str = "train") -> list[TrainingStep]:
        """Return the recorded steps; raise ValueError, with what to do, without any."""
        if steps := self.history(phase).steps:
            return steps
        raise ValueError(_nothing(self, phase))

    def rows(self, phase: str = "train") -> list[Row]:
        """All that layers returned in any step, in the order in which it came."""
        found: dict[Row, int] = {}
        for step in self.history(phase).steps:
            for index, row in enumerate(step.layout.rows):
                found.setdefault(row, index)
        return sorted(found, key=found.__getitem__)

    def row(self, layer: str, call: int = 0, phase: str = "train") -> Row:
        """Return the row of a layer's output in a call; the first tensor of several."""
        for row in self.rows(phase):
            if (row.layer, row.call) == (layer, call):
                return row
        self.recorded(phase)  # or this says it
        names = list(dict.fromkeys(row.layer for row in self.rows(phase)))
        if layer in names:
            raise ValueError(f"Layer {layer!r} has no call {call}.")
        raise ValueError(f"No layer {layer!r} was watched; {close_names(layer, names)}.")

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each layer and call in each recorded step, for ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            With ``step``, ``phase``, ``layer``, ``call``, ``path`` and ``type``; ``mean``, ``std``,
            ``min``, ``max``, ``zeros`` (a fraction), ``nans``, ``infs`` and ``count`` of what it
            returned; the same of the gradient that reached it, as in ``gradient_mean``; ``dead``,
            the fraction of channels that were zero everywhere; and the layer's ``weight_norm``,
            ``weight_gradient_norm`` and ``update_ratio``. Missing values are None. Strict JSON: NaN
            is None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return [
            plain(record)
            for phase in PHASES
            for step in self.history(phase).steps
            for record in step_records(self.log.types, step, phase)
        ]

    @property
    def findings(self) -> Diagnosis:
        """The verdicts on what was recorded, as `hookviz.diagnose` returns them.

        NaN and Inf, a learning rate that is far too high, layers that do not move although they
        have a gradient, gradients that add up from step to step. Two recorded steps must be over
        before anything is said of weights; of a healthy training it holds nothing.
        """
        found = Diagnosis(self.log.model)
        steps = self.history().steps
        found.set_findings(verdicts(self.log), LOOKED if steps else ())
        return found

    # Shown

    @property
    def verdict(self) -> str:
        """The first NaN or Inf, or that none was seen, and what else is wrong, in one line."""
        if (trouble := self.first_trouble) is not None:
            return str(trouble)
        count = sum(len(self.history(phase).steps) for phase in PHASES)
        steps = f"{count:,} recorded step{'s' * (count != 1)}"
        worst = next((f"; {each.title}" for each in self.findings if each.severity != "note"), "")
        return f"no NaN or Inf in {steps}{worst}" if count else "no step has been recorded"

    @property
    def title(self) -> str:
        """The model, the recorded steps and their cost, in one line."""
        log, (history, validations) = self.log, self.log.histories.values()
        what = f"Watch of {log.model}: {len(log.types)} layers, {history.seen:,} steps"
        facts = [f"{what}, {len(history.steps):,} recorded (every {history.every:,})"]
        facts.append(f"{megabytes(self.nbytes)} of at most {megabytes(log.max_bytes)}")
        if validations.seen:
            facts.append(f"{validations.seen:,} validations, {len(validations.steps):,} recorded")
        if log.first_trouble is not None:
            facts.append(str(log.first_trouble))
        facts += [
            f"steps {first:,} to {last:,} are missing: the file ended before them"
            for first, last in log.holes
        ]
        facts += [f"{name} was left out ({why})" for name, why in list(log.left_out.items())[:3]]
        return "; ".join([*facts, *self._notes()])

    def _notes(self) -> Sequence[str]:
        """Return further remarks."""
        return []

    def table(self, step: TrainingStep | None = None) -> list[tuple[str, ...]]:
        """Return a recorded step as rows of text, under `HEADER`; the latest one if left out."""
        history = self.history()
        if step is None:
            step = history.steps[-1] if history.steps else None
        return (
            []
            if step is None
            else [_row(each) for each in step_records(self.log.types, step, "train")]
        )

    @for_terminal
    def __repr__(self) -> str:
        return text_table(self.title, HEADER, self.table(), SPARE)

    def _repr_html_(self) -> str:
        return html_table(self.title, HEADER, self.table())

    def show(self) -> Any:
        """Show it in a notebook, live while a cell trains: strips, and each step's numbers.

        A widget: show it, then train, in the same cell or the next.
        """
        return widget("LiveTraining", self)

    def figure(
        self,
        statistic: str | Sequence[str] = ("std", "gradient_std", "update_ratio"),
        layer: str | None = None,
        *,
        call: int = 0,
        phase: str = "train",
    ) -> Figure:
        """Draw strips, layers × steps; or all that is known of one layer.

        Parameters
        ----------
        statistic : str or sequence of str
            What the colours are of: a number of `records`, such as ``"zeros"``, ``"dead"`` or
            ``"gradient_mean"``. A strip for each.
        layer : str, optional
            Then the histogram of its values over the steps, that of its gradients, and each
            channel's mean.
        call : int
            Which run of the layer.
        phase : {"train", "eval"}

        Returns
        -------
        matplotlib.figure.Figure
            NaN and Inf are magenta; where they were first seen there is a cross.

        Raises
        ------
        ValueError
            No such statistic, layer or phase, or no step recorded.
        """
        from .strips import draw_layer, draw_strips

        if layer is not None:
            return draw_layer(self, self.row(layer, call, phase), phase)
        return draw_strips(self, [statistic] if isinstance(statistic, str) else statistic, phase)

    def to_html(
        self,
        path: str | os.PathLike | None = None,
        *,
        phase: str = "train",
        max_bytes: float = 10e6,
        title: str | None = None,
    ) -> str | None:
        """Write it as one file, in which steps are scrubbed without a kernel and without a network.

        Strips of any statistic, and each step's numbers, histograms and maps of the probe. Where
        that is more than ``max_bytes``, every second step is left out, and the page says so.
        ``title`` is the page's. Without a path the page is returned.

        Raises
        ------
        ValueError
            No such phase, no step recorded, or too few bytes for two steps.
        """
        from .strips import write_page

        return page_to(path, write_page(self, phase, max_bytes, title))

    def to_tensorboard(self, writer: Any, statistics: Sequence[str] = TOLD) -> None:
        """Give what was recorded to a ``SummaryWriter``, or anything with its ``add_scalar``.

        For wandb: ``for record in watch.records(): wandb.log(record)``.

        Parameters
        ----------
        writer : torch.utils.tensorboard.SummaryWriter
        statistics : sequence of str
            Which numbers of `records`. A tag is ``"std/layer1.0.conv1"``, with ``#1`` for a second
            run of the layer; those of validation begin with ``"eval/"``.
        """
        for record in self.records():
            run = f"#{record['call']}" if record["call"] else ""
            before = "eval/" if record["phase"] == "eval" else ""
            for name in statistics:
                if record[name] is not None:
                    tag = f"{before}{name}/{record['layer'] or 'model'}{run}{record['path']}"
                    writer.add_scalar(tag, float(record[name]), record["step"])

    def save(self, path: str | os.PathLike) -> None:
        """Write it as one file, see `hookviz.load`."""
        self.history()  # as it is by now
        write_log(self.log, path)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    """Return a record as text."""

    def said(name: str) -> str:
        return "–" if record[name] is None else number(record[name])

    wrong = [
        f"{record[name]:,} {word}"
        for name, word in (("nans", "NaN"), ("infs", "Inf"))
        if record[name]
    ]
    zeros = "–" if record["zeros"] is None else f"{100 * record['zeros']:.3g} %"
    call = f"{record['call']}{record['path']}"
    return (
        record["layer"] or "(model)",
        record["type"],
        call,
        *map(said, ("mean", "std", "min", "max")),
        zeros,
        ", ".join(wrong) or "0",
        *map(said, ("gradient_std", "weight_norm", "update_ratio")),
    )


def _nothing(training: Training, phase: str) -> str:
    """Say what to do where no step of a phase has been recorded."""
    (other,) = set(PHASES) - {phase}
    advice = "put `with watch:` around a step"
    if training.history(other).steps:
        advice = (
            f"pass phase={other!r}, of which there are some, or call model.{phase}() before "
            "`with watch:`"
        )
    return f"No step of {phase} has been recorded: {advice}."
