"""A guard around the user's own step: watched cheaply, and examined if anything looks wrong.

While the block runs, `StepWatch` takes a sum of what each layer returns, and records the loss. If
a sum is not finite, if something raises, or if a check suspects the step, the model is run again
as it was called, and examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ...hooking.select import type_name, unwrapped
from ...hooking.tensors import tensors
from ...run.errors import first_sentence, message_of
from ...run.inputs import ModelInput
from ...run.session import Session
from ..graph.graph import failing
from ..graph.page import drawing
from .all_checks import causes, findings_of, looked_at, new_checks
from .check import RunRecord
from .checks.in_place import overwrite
from .checks.loss import Wiring
from .checks.model_error import no_graph, place_of, raised_outside
from .checks.no_gradient import NoGradient
from .checks.nonfinite import explaining_scale, origins
from .error_messages import NO_GRAPH, WRONG_ARGUMENTS
from .examination import examine
from .findings import Diagnosis, Finding, Ignored, checked, without
from .loss_scale import LossScale, loss_scale, made_half
from .records import OUTSIDE
from .watching import RecordedCall, StepWatch, Sum

LOST = "nan", "inf"


class Guard(Diagnosis):
    """A `Diagnosis` that fills itself when its block ends; `hookviz.diagnose` makes it."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Any] = (),
        scaler: Any = None,
        ignore: Ignored = (),
    ) -> None:
        self._model, self._core = model, unwrapped(model)[0]
        self._optimizers, self._scaler = list(optimizers), scaler
        super().__init__(type_name(self._core), partial(without, pairs=checked(ignore)))
        self._watch: StepWatch | None = None

    @property
    def active(self) -> bool:
        """True within the block."""
        return self._watch is not None and self._watch.active

    def __enter__(self) -> Guard:
        if self._watch is None:
            self._watch = StepWatch(self._model, self._core, new_checks(live=True))
        self._watch.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.__exit__(*error)
        if error[0] is None or issubclass(error[0], Exception):
            self._conclude(watch, error[1])
        watch.release()

    def _conclude(self, watch: StepWatch, error: BaseException | None) -> None:
        if not watch.count and error is None:
            return
        run, hits = watch.run, watch.hits()
        run.optimizers = self._optimizers
        watch.settle()
        if first := origins(run):
            run.scale = loss_scale(self._scaler, made_half(first[0]))
        if error is not None and watch.calls:
            hits = [each for each in hits if each.started is watch.calls[-1]]
        hit = _first(hits) if hits else None
        seen, why = self._replayed(watch, hit, error)
        if seen is not None:
            _locate(run, seen)
        found = _live(run, error) + _of_replay(run, seen, hit, error)
        lost = any(each.kind in (*LOST, "exploding") for each in found)
        if hit is not None and not lost and (error is None or seen is None or seen.error is None):
            found.append(_coarse(hit, why, self._scale_of(watch, hit)))
        if any(_is_empty(call) for call in watch.calls):
            found.insert(0, _EMPTY)
        found = causes(found)
        reported = any(e.severity == "error" and e.kind not in LOST for e in found)
        if error is not None and not reported:
            found.insert(0, self._outside(watch, error, seen))
        more = looked_at(seen) if seen is not None else []
        self.set_findings(found, [watch.looked_at, *looked_at(run), *more] if watch.count else [])

    def _replayed(
        self, watch: StepWatch, hit: Sum | None, error: BaseException | None
    ) -> tuple[RunRecord | None, str]:
        """Examine the call that looks wrong, if there is one; else say why it is not examined."""
        calls, run = watch.calls, watch.run
        if not calls:
            return None, "the model was not called within the block"
        started = calls[-1] if hit is None else hit.started or calls[0]
        ends = run.check(NoGradient)
        unknown = ends.cut_off and ends.last_break() is None
        wired = bool(run.check(Wiring).wired(run))
        if error is None and hit is None and not (unknown or wired or watch.suspect):
            return None, ""
        if hit is not None and hit.phase == "sent":
            return None, "it came from outside of the model"
        if why := watch.changed(started):
            return None, why
        try:
            seen = self._examined(started)
        except Exception as other:
            return None, f"running it again raised {type(other).__name__}: {first_sentence(other)}"
        if seen.error is not None and error is not None:
            self._draw(started)
        return seen, "it did not appear again when the call was repeated"

    def _examined(self, started: RecordedCall) -> RunRecord:
        inputs = ModelInput(tuple(started.args), dict(started.kwargs))
        kind, dtype, enabled = started.autocast
        with torch.autocast(kind, dtype, enabled=enabled):
            session = Session(self._model, inputs)
            again = partial(examine, session, checks=new_checks, begin=started.restore)

            def smaller(factor: float) -> RunRecord:
                return again(score_of=partial(started.score, scale=factor), record=False)

            seen = again(score_of=started.score, record=False)
            seen.scale = explaining_scale(seen, self._scaler, smaller)
            seen.optimizers = self._optimizers
        return seen

    def _draw(self, started: RecordedCall) -> None:
        """Draw the forward up to its error."""
        session = Session(self._model, ModelInput(tuple(started.args), dict(started.kwargs)))
        kind, dtype, enabled = started.autocast
        with torch.autocast(kind, dtype, enabled=enabled):
            ran = failing(session, begin=started.restore)
        if ran is not None:
            self.set_drawing(drawing(ran))

    def _outside(self, watch: StepWatch, error: BaseException, seen: RunRecord | None) -> Finding:
        """Report an error behind the model: in the loss, or in the backward."""
        calls = watch.calls
        within = [type_name(self._core)] if calls and not calls[-1].finished else []
        stepped = bool(calls) and bool(watch.changed(calls[-1]))
        root = watch.log.root
        write = overwrite(watch.run, error, root) if root is not None and not stepped else None
        if write is not None:
            return write.finding(error)
        end = watch.run.check(NoGradient).last_break()
        if end is None and seen is not None and NO_GRAPH.search(message_of(error)):
            end = seen.check(NoGradient).last_break() or no_graph(seen)
        return raised_outside(error, within, end, stepped=stepped)

    def _scale_of(self, watch: StepWatch, hit: Sum) -> LossScale | None:
        """Return the loss scale that may explain a sum that is not finite."""
        if hit.phase == "forward":
            return None
        half = any(each.dtype is torch.float16 for each in watch.parameters.values())
        if hit.started is not None:
            _, dtype, enabled = hit.started.autocast
            half |= enabled and dtype is torch.float16
        return loss_scale(self._scaler, half and watch.run.finite_score)


def _live(run: RunRecord, error: BaseException | None) -> list[Finding]:
    """Return what the watched step shows; if it raised, only NaN and Inf."""
    return [e for e in findings_of(run) if error is None or e.kind in LOST]


def _of_replay(
    run: RunRecord, seen: RunRecord | None, hit: Sum | None, error: BaseException | None
) -> list[Finding]:
    """Return what the examination adds."""
    if seen is None:
        return []
    found = findings_of(seen)
    if error is not None and seen.error is not None:
        place = place_of(error)
        called = place["line"] and WRONG_ARGUMENTS.search(message_of(error))
        return [replace(e, **place) if called or not e.line else e for e in found]
    if error is not None:  # a run that went another way, or not so far, shows too little
        return [each for each in found if hit is not None and each.kind in LOST]
    live = {(each.kind, each.layer) for each in findings_of(run)}
    wanted = [e for e in found if e.severity != "note" or e.kind in LOST or e.explains]
    return [each for each in wanted if (each.kind, each.layer) not in live]


def _locate(run: RunRecord, seen: RunRecord) -> None:
    """Move what made the model's outputs to where it ran in the examination."""
    for output in {each for record in run.operations for each in record.makers}:
        if output is not None and output.index < 0 and output.name not in ("output", "constant"):
            ran = [each for each in seen.operations if each.name == output.name]
            within = [e for e in ran if e.phase == "forward" and e.layer != OUTSIDE]
            if within:
                last = within[-1]
                output.index, output.layer, output.call = last.index, last.layer, last.call
                output.file, output.line = last.file, last.line


def _is_empty(call: RecordedCall) -> bool:
    return any(not tensor.numel() for tensor in tensors((call.args, call.kwargs)))


_EMPTY = Finding(
    "empty",
    "error",
    "The model was called with an empty batch: it holds nothing to check.",
    "Leave empty batches out; check how the data are divided into batches.",
    explains=frozenset({"nan", "learning rate"}),
)


def _first(hits: list[Sum]) -> Sum:
    """Return the first non-finite sum, except gradients that the loss itself sent."""
    sent = (h for h in hits if h.phase == "sent" and h.started is hits[0].started)
    return next(sent, hits[0]) if hits[0].phase == "backward" else hits[0]


def _coarse(hit: Sum, why: str, scale: LossScale | None) -> Finding:
    """Describe a sum that is not finite without knowing the operation."""
    word = "NaN" if bool(hit.value.isnan()) else "Inf"
    if hit.phase == "sent":
        message = (
            f"The gradient that the loss sent to the model's output holds {word} already: it arose "
            "in the loss."
        )
        advice = "Pass the loss to see where: diagnose(model, x, lambda output: loss(output, y))."
    else:
        what = "the output" if hit.phase == "forward" else "the gradient of the output"
        message = (
            f"{word} first appears in {what} of {hit.layer or 'the model'!r}; which operation made "
            f"it is unknown, since {why}."
        )
        advice = "Put optimizer.step() after the block, or call hookviz.diagnose(model, x, loss)."
    severity, phase = "error", "forward" if hit.phase == "forward" else "backward"
    if scale is not None:
        severity, advice = "note", scale.advice
        message += scale.message
    return Finding(word.lower(), severity, message, advice, hit.layer, phase=phase)
