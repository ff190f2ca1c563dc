"""The result of a watched training: a table, records, strips and a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...files import page_to
from ...tables import Row, Tabular, call_name, counted, megabytes, number, some
from ..diagnosis.findings import Diagnosis
from ..showing import widget
from .log import PHASES, FirstNonFinite, History, TrainingLog, step_records, write_log
from .verdicts import LOOKED, verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = (
    *("layer", "type", "mean", "standard deviation", "min", "max", "zeros", "NaN, Inf"),
    *("gradient standard deviation", "weight norm", "update ratio"),
)

SPARE = ("type", "min", "max", "weight norm", "mean")
"""Columns that a terminal can do without, the first ones first."""


class Training(Tabular):
    """The statistics of layers in the recorded steps of a training.

    Made by `hookviz.watch` and `hookviz.load`.

    Attributes
    ----------
    log : hookviz.studies.watch.log.TrainingLog
        The records.
    """

    def __init__(self, log: TrainingLog) -> None:
        self.log = log

    # Records

    @property
    def steps(self) -> list[int]:
        """The numbers of the recorded steps of training, from 0."""
        return [step.number for step in self.history().steps]

    @property
    def every(self) -> int:
        """The current interval of the recorded steps."""
        return self.log.histories["train"].every

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded steps, at most ``max_bytes``."""
        return self.log.nbytes

    @property
    def first_trouble(self) -> FirstNonFinite | None:
        """The first NaN or Inf, also if its step was dropped since."""
        return self.log.first_trouble

    def history(self, phase: str = "train") -> History:
        """Return the recorded steps of ``"train"`` or of ``"eval"``."""
        if phase not in PHASES:
            raise ValueError(f'phase={phase!r} is neither "train" nor "eval".')
        return self.log.histories[phase]

    def _drawn(self, phase: str) -> tuple[str, History, FirstNonFinite | None]:
        """Return what is drawn of a phase; raise ValueError, with what to do, without any step."""
        if (history := self.history(phase)).steps:
            return self.title, history, self.first_trouble if phase == "train" else None
        (other,) = set(PHASES) - {phase}
        advice = "put `with watch:` around a step"
        if self.history(other).steps:
            advice = (
                f"pass phase={other!r}, of which there are some, or call model.{phase}() before "
                "`with watch:`"
            )
        raise ValueError(f"No step of {phase} has been recorded: {advice}.")

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each layer and call in each recorded step, for ``pandas.DataFrame``.

        Returns
        -------
        list of dict
            With ``step``, ``phase``, ``layer``, ``call``, ``path`` and ``type``; ``mean``, ``std``,
            ``min``, ``max``, ``zeros`` (a fraction), ``nans``, ``infs`` and ``count`` of the
            output; the same of the gradient that reached it, as in ``gradient_mean``; ``dead``,
            the fraction of channels that were zero everywhere; and the layer's ``weight_norm``,
            ``weight_gradient_norm`` and ``update_ratio``. Missing values are None. Strict JSON: NaN
            is None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return [
            record
            for phase in PHASES
            for step in self.history(phase).steps
            for record in step_records(self.log.types, step, phase)
        ]

    @property
    def findings(self) -> Diagnosis:
        """The findings in the recorded steps, as `hookviz.diagnose` returns them.

        NaN and Inf, a learning rate that is far too high, also from a later step on, layers that do
        not change although they have a gradient, gradients that add up from step to step, a model
        that no gradient reaches, and several steps in one block. Findings on weights need three
        recorded steps; a healthy training has none.
        """
        found = Diagnosis(self.log.model)
        learns = self.log.histories["train"].steps
        found.set_findings(verdicts(self.log), LOOKED if learns else LOOKED[: self.nbytes > 0])
        return found

    # Shown

    @property
    def verdict(self) -> str:
        """The first NaN or Inf, or that there is none, and the worst finding, in one line."""
        if (trouble := self.first_trouble) is not None:
            return str(trouble)
        count = sum(len(self.history(phase).steps) for phase in PHASES)
        steps = counted(count, "recorded step")
        worst = next((f"; {each.title}" for each in self.findings if each.severity != "note"), "")
        return f"no NaN or Inf in {steps}{worst}" if count else "no step has been recorded"

    @property
    def title(self) -> str:
        """The model, the recorded steps and their cost, in one line."""
        log, (history, validations) = self.log, self.log.histories.values()
        layers, steps = counted(len(log.types), "layer"), counted(history.seen, "step")
        what = f"Watch of {log.model}: {layers}, {steps}"
        facts = [f"{what}, {len(history.steps):,} recorded (every {history.every:,})"]
        facts.append(f"{megabytes(self.nbytes)} of at most {megabytes(log.max_bytes)}")
        if validations.seen:
            times = counted(validations.seen, "validation")
            facts.append(f"{times}, {len(validations.steps):,} recorded")
        if log.first_trouble is not None:
            facts.append(str(log.first_trouble))
        if log.left_out:
            facts.append(f"left out: {some(f'{n} ({why})' for n, why in log.left_out.items())}")
        return "; ".join(facts)

    def _title(self) -> str:
        return self.title

    def _as_table(self) -> tuple[Row, Sequence[Row], Sequence[str]]:
        """Return the latest recorded step."""
        last = self.history().steps[-1:]
        rows = [_row(each) for step in last for each in step_records(self.log.types, step, "train")]
        return HEADER, rows, SPARE

    def show(self) -> Any:
        """Return a widget with strips and each step's numbers, which is live while a cell trains.

        Show it, then train, in the same cell or the next.
        """
        return widget("LiveTraining", self)

    def figure(
        self,
        statistic: str | Sequence[str] = ("std", "gradient_std", "update_ratio"),
        *,
        phase: str = "train",
    ) -> Figure:
        """Draw strips, layers × steps.

        Parameters
        ----------
        statistic : str or sequence of str
            The statistic of the colours: a number of `records`, such as ``"zeros"``, ``"dead"`` or
            ``"gradient_mean"``. Several have a strip each.
        phase : {"train", "eval"}

        Returns
        -------
        matplotlib.figure.Figure
            NaN and Inf are magenta; where they were first seen there is a cross.

        Raises
        ------
        ValueError
            No such statistic or phase, or no step recorded.
        """
        from .strips import draw_strips

        names = [statistic] if isinstance(statistic, str) else statistic
        return draw_strips(*self._drawn(phase), names)

    def to_html(
        self,
        path: str | os.PathLike | None = None,
        *,
        phase: str = "train",
        max_bytes: float = 10e6,
        title: str | None = None,
    ) -> str | None:
        """Write a page with a slider over the steps, which needs no kernel and no network.

        It has strips of any statistic, and the numbers, histograms and probe maps of each step. If
        it exceeds ``max_bytes``, every second step is left out, and the page says so. Without a
        path the page is returned.

        Raises
        ------
        ValueError
            No such phase, no step recorded, or too few bytes for two steps.
        """
        from .strips import facts_of, write_page

        drawn = self._drawn(phase)
        steps, figure = drawn[1].steps, self.figure(phase=phase)
        return page_to(path, write_page(facts_of(*drawn), steps, figure, title, max_bytes))

    def save(self, path: str | os.PathLike) -> None:
        """Write the records to one file, see `hookviz.load`."""
        self.history()  # measures the last update
        write_log(self.log, path)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    """Return a record as text."""

    def said(name: str) -> str:
        return "–" if record[name] is None else number(float(record[name]))

    def wrong(side: str) -> str:
        counts = {"NaN": record[f"{side}nans"], "Inf": record[f"{side}infs"]}
        return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)

    return (
        call_name(record["layer"], record["call"], record["path"]),
        record["type"],
        *map(said, ("mean", "std", "min", "max")),
        "–" if record["zeros"] is None else f"{100 * record['zeros']:.3g} %",
        wrong("") or "0",
        wrong("gradient_") or said("gradient_std"),  # which is that of the finite values
        *map(said, ("weight_norm", "update_ratio")),
    )
