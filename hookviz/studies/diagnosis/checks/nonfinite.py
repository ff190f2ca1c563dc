"""NaN and Inf: the operation that made the first, and why."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Check, RunRecord
from ..domains import UNKNOWN
from ..findings import Finding
from ..loss_scale import loss_scale
from ..records import OUTSIDE, OperationRecord

MOST = 3
"""The number of places that are reported; operations that pass NaN on are not among them."""


class NonFinite(Check):
    """Report where NaN and Inf arose, forward and backward."""

    live = True

    def looked_at(self, run: RunRecord) -> str:
        phases = "forward and backward" if run.scored else "forward"
        count = len(run.operations)
        return "" if run.watched else f"NaN and Inf in {count} operations, {phases}"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        first = _origins(run)
        for operation in first[:MOST]:
            yield _finding(operation, run, more=len(first) - 1)
        for source in run.sources:
            if _handled(source):
                word = "NaN" if source.nan else "Inf"
                yield Finding(
                    word.lower(),
                    "note",
                    f"The input holds {word}, and the model handles it: no layer returns it.",
                    f"No fix is needed if {word} stands for missing values.",
                )


def _origins(run: RunRecord) -> list[OperationRecord]:
    """Return what made NaN and Inf first: in the forward, and only else in the backward."""
    held = [e for e in run.sources if e.reached or not (e.finite or e.constant or _handled(e))]
    origins = dict.fromkeys(each.origin for each in run.operations if each.origin is not None)
    constants = [e for e in origins if e.index < 0 and e.name == "constant"]
    made = [each for each in run.operations if each.origin is each and not _follows(each)]
    every = [*held, *(each for each in (*constants, *made) if each.reached)]
    for phase in ("forward", "backward"):
        # Several of one line are one to its reader.
        first = list({tuple(o.place.values()): o for o in every[::-1] if o.phase == phase}.values())
        if first:  # the backward of what is not finite is not finite
            return first[::-1]
    return []


def _follows(operation: OperationRecord) -> bool:
    """Return whether an operation made NaN of an Inf that is reported already."""
    before = (each.origin for each in operation.makers if each is not None)
    return any(each is not None and each.constant and bool(each.reached) for each in before)


def _handled(source: OperationRecord) -> bool:
    """Return whether NaN or Inf of the input were replaced before any layer returned them."""
    return source.name == "input" and not source.reached and not source.finite


def _finding(operation: OperationRecord, run: RunRecord, more: int) -> Finding:
    word, severity = "NaN" if operation.nan else "Inf", "error"
    if operation.name in SOURCES:
        # A number from beside the model's operations is a constant of the code, or the truth.
        outside = operation.name == "constant" and operation.layer == OUTSIDE
        source = SOURCES["truth" if outside and not operation.title else operation.name]
        message, advice = (each.format(word=word, named=operation.title) for each in source)
    else:
        cause, name = operation.cause or UNKNOWN, operation.called
        what = name if operation.phase == "forward" else f"The gradient of {name}"
        given = " and ".join(map(str, operation.given)) or "no numbers"
        why = "; ".join(filter(None, (cause.words, f"input: {given}")))
        message, advice = f"{what} made {word}: {why}.", cause.fix
    scale = loss_scale(run.scaler, operation) if operation.phase == "backward" else None
    if scale is not None:
        severity, message, advice = "note", message + scale[0], scale[1]
    passed_on = sum(each.origin is operation for each in run.operations) - 1
    return Finding(
        word.lower(),
        severity,
        message,
        advice,
        **operation.place,
        evidence={
            "given": [str(each) for each in operation.given],
            "made": [str(each) for each in operation.made],
            "passed on by": max(passed_on, 0),
            "other places": more,
        },
        symptom="overflow" if operation.overflowed else "",
        explains=frozenset({"learning rate"}) if severity == "error" else frozenset(),
    )


SOURCES = {
    "weights": (
        "Parameter {named!r} holds {word} before anything has run.",
        "Load a checkpoint from before the NaN, or initialise this parameter again.",
    ),
    "buffer": (
        "Buffer {named!r} holds {word} before anything has run.",
        "Reset it: a BatchNorm's with reset_running_stats().",
    ),
    "input": (
        "The input holds {word} already.",
        "Clean the data first, for example with torch.nan_to_num, and check their source.",
    ),
    "truth": (
        "A tensor that the loss takes beside the model's output holds {word} already.",
        "Clean the labels first, and check where they, and the weights of the loss, come from.",
    ),
    "constant": (
        "A constant in the code holds {word}.",
        "Look for float('inf') or float('nan') in this layer's forward.",
    ),
}
"""Origins of numbers that no operation made -> title and cure."""
