"""A guard around the user's own step: watched cheaply, and examined if anything looks wrong.

While the block runs, `StepWatch` takes the least and the largest value of the model's outputs and
of its weights' gradients, and records the loss. If one is not finite, if something raises, or if
gradients are missing or of very different sizes, the call of the model is repeated and examined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ...hooking.interrupts import Block, allow_interrupts, defer_interrupts
from ...hooking.select import type_name, unwrapped
from ...hooking.tensors import tensors
from ...run.error_messages import WRONG_ARGUMENTS, message_of
from ...run.errors import first_sentence, refuse_without_weights
from ...run.inputs import ModelInput
from ...run.session import Session
from .all_checks import causes, findings_of, looked_at, new_checks
from .check import RunRecord
from .checks.in_place import overwrite
from .checks.model_error import place_of, raised_outside
from .checks.no_gradient import NoGradient
from .checks.nonfinite import SOURCES
from .checks.optimizer import ids_held_by
from .checks.registration import in_plain_lists
from .examination import examine
from .findings import Diagnosis, Finding, Ignored
from .loss_scale import loss_scale
from .recorded_call import RecordedCall
from .watching import Ends, StepWatch

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
        super().__init__(type_name(self._core), ignore)
        self._watch: StepWatch | None = None

    @property
    def active(self) -> bool:
        """True within the block."""
        return self._watch is not None and self._watch.active

    def _enter(self) -> Guard:
        if self._watch is None:
            refuse_without_weights(self._core)
            self._watch = StepWatch(
                self._model, self._core, new_checks(live=True), self._optimizers
            )
        self._watch.__enter__()
        return self

    @defer_interrupts
    def __exit__(self, *error: Any) -> None:
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.__exit__(*error)
        if error[0] is None or issubclass(error[0], Exception):
            allow_interrupts(self._conclude, watch, error[1])
        watch.release()

    __enter__: Any = defer_interrupts(
        _enter, undo=lambda guard: guard.__exit__(KeyboardInterrupt, None, None)
    )

    def _conclude(self, watch: StepWatch, error: BaseException | None) -> None:
        if not watch.count and error is None:
            return
        if error is None:
            watch.measure_stored()
        run, hits = watch.run, watch.hits()
        run.optimizers, run.scaler = self._optimizers, self._scaler
        watch.settle()
        if error is not None and watch.calls:
            hits = [each for each in hits if each.started is watch.calls[-1]]
        hit = _first(hits) if hits else None
        seen, why = self._replayed(watch, hit, error)
        harmful = any(each.reached for each in watch.log.lost)
        for origin in seen.lost_outputs if seen is not None and harmful else ():
            origin.reached = "nan" if origin.nan else "inf"
        found = [each for each in findings_of(run) if error is None or each.kind in LOST]
        if seen is not None:
            found += _of_replay(found, seen, hit, error)
        elif error is None and watch.strays:
            trained = map(ids_held_by, self._optimizers)
            found += in_plain_lists(run, watch.strays.difference(*trained))
        lost = any(each.kind in (*LOST, "exploding") for each in found)
        # A mask of −Inf in an output does no harm if the loss and the gradients are finite.
        masked = seen is not None and bool(seen.lost_outputs) and all(map(_may_be_masked, hits))
        lost = lost or masked
        if hit is not None and not lost and (error is None or seen is None or seen.error is None):
            broken = watch.broken.get(hit.started)
            found.append(_of_weight(*broken) if broken else _coarse(hit, why, self._scaler))
        given = tensors([(call.args, call.kwargs) for call in watch.calls])
        if any(not tensor.numel() for tensor in given):
            found.insert(0, _EMPTY)
        found = causes(found)
        reported = any(e.severity == "error" and e.kind not in LOST for e in found)
        if error is not None and not reported:
            found.insert(0, self._outside(watch, error, seen))
        more = looked_at(seen) if seen is not None else []
        self.set_findings(found, [watch.looked_at, *looked_at(run), *more] if watch.count else [])

    def _replayed(
        self, watch: StepWatch, hit: Ends | None, error: BaseException | None
    ) -> tuple[RunRecord | None, str]:
        """Examine the call that looks wrong, if there is one; else say why it is not examined."""
        if not watch.calls:
            return None, "the model was not called within the block"
        started = watch.calls[-1] if hit is None else hit.started or watch.calls[0]
        ends = watch.run.check(NoGradient)
        unknown = ends.cut_off and ends.last_break() is None
        if error is None and hit is None and not (unknown or watch.suspect):
            return None, ""
        if hit is not None and hit.phase == "sent":
            return None, "it came from outside of the model"
        if hit is not None and hit.phase == "stored":
            return None, "it was finite when backward() computed it"
        if why := watch.changed(started):
            return None, why
        try:
            return self._examined(started), "it did not appear when the call was repeated"
        except Exception as other:
            return None, f"running it again raised {type(other).__name__}: {first_sentence(other)}"

    def _examined(self, started: RecordedCall) -> RunRecord:
        with Block([started.autocast()]):
            given = ModelInput(tuple(started.args), dict(started.kwargs))
            session = Session(self._model, given)
            seen = examine(
                session,
                checks=new_checks,
                score_of=started.score,
                begin=started.restore,
                record=False,
            )
            seen.optimizers, seen.scaler = self._optimizers, self._scaler
            seen.judged = bool(started.gradients)
        return seen

    def _outside(self, watch: StepWatch, error: BaseException, seen: RunRecord | None) -> Finding:
        """Report an error behind the model: in the loss, or in the backward."""
        last, root = watch.calls[-1] if watch.calls else None, watch.log.root
        within = type_name(self._core) if last is not None and not last.finished else ""
        stepped = last is not None and bool(watch.changed(last))
        write = overwrite(watch.run, error, root) if root is not None and not stepped else None
        if write is not None:
            return write
        end = watch.run.check(NoGradient).last_break()
        if end is None and seen is not None:
            end = seen.check(NoGradient).last_break()
        return raised_outside(error, within, end, stepped=stepped)


def _of_replay(
    live: list[Finding], seen: RunRecord, hit: Ends | None, error: BaseException | None
) -> list[Finding]:
    """Return what the examination adds to the findings of the step itself."""
    found = findings_of(seen)
    if error is None:
        known = {(each.kind, each.layer) for each in live}
        wanted = [e for e in found if e.severity != "note" or e.kind in LOST or e.explains]
        return [each for each in wanted if (each.kind, each.layer) not in known]
    if seen.error is None:  # a run that went another way, or not so far, shows too little
        return [each for each in found if hit is not None and each.kind in LOST]
    place = place_of(error)
    called = place["line"] and WRONG_ARGUMENTS.search(message_of(error))
    return [replace(e, **place) if called or not e.line else e for e in found]


_EMPTY = Finding(
    "empty",
    "error",
    "The model was called with an empty batch: it holds nothing to check.",
    "Leave empty batches out; check how the data are divided into batches.",
    explains=frozenset({"nan", "learning rate"}),
)


def _first(hits: list[Ends]) -> Ends:
    """Return the first one in the order in which they ran, but the gradient of the loss first."""
    sent = (h for h in hits if h.phase == "sent" and h.started is hits[0].started)
    return hits[0] if hits[0].phase == "forward" else next(sent, hits[0])


def _may_be_masked(hit: Ends) -> bool:
    return hit.phase == "forward" and not math.isnan(hit.size)


def _of_weight(name: str, word: str) -> Finding:
    """Report a weight that held NaN or Inf before the optimizer's step."""
    message, advice = (text.format(word=word, named=name) for text in SOURCES["weights"])
    return Finding(word.lower(), "error", message, advice, name.rpartition(".")[0])


def _coarse(hit: Ends, why: str, scaler: Any) -> Finding:
    """Describe NaN or Inf without knowing the operation."""
    word = "NaN" if math.isnan(hit.size) else "Inf"
    backward = hit.phase != "forward"
    where = "the gradient that the loss sent to the output of the model"
    if hit.phase != "sent":
        what = "the gradient of the weights of" if backward else "the output of"
        where = f"{what} {repr(hit.layer) if hit.layer else 'the model'}"
    message = f"{word} is in {where}; which operation made it is unknown, since {why}."
    scale = loss_scale(scaler) if backward else None
    advice = (
        "Check what changes the gradients after backward(), such as a division or the average "
        "over processes; if a GradScaler scales the loss, pass it as scaler=."
        if hit.phase == "stored"
        else "Put optimizer.step() after the block, or call hookviz.diagnose(model, x, "
        "lambda output: loss(output, y))."
    )
    return Finding(
        word.lower(),
        "note" if scale is not None else "error",
        message + (scale[0] if scale is not None else ""),
        scale[1] if scale is not None else advice,
        hit.layer,
        phase="backward" if backward else "forward",
    )
