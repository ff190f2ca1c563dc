"""NaN and Inf: the operation that made the first, and why."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Check, RunRecord
from ..findings import Finding
from ..loss_scale import loss_scale
from ..records import OUTSIDE, OperationRecord

MOST = 3
"""The number of places that are reported; operations that pass NaN on are not among them."""


def origins(run: RunRecord) -> list[OperationRecord]:
    """Return what made NaN and Inf first: in the forward, and only else in the backward."""
    held = [each for each in run.sources if each.reached or not _fine(each)]
    constants = dict.fromkeys(each.origin for each in run.operations if each.origin is not None)
    told = [each for each in held if not _handled(each)]
    told += [o for o in constants if o.index < 0 and o.name == "constant" and o.reached]
    told += [each for each in run.operations if each.reached and each.origin is each]
    for phase in ("forward", "backward"):
        # Several of one line are one to its reader.
        first = list({tuple(o.place.values()): o for o in told[::-1] if o.phase == phase}.values())
        if first:  # the backward of what is not finite is not finite
            return first[::-1]
    return []


def _handled(source: OperationRecord) -> bool:
    """Return whether NaN or Inf of the input were replaced before any layer returned them."""
    return source.name == "input" and not source.reached and not _fine(source)


def _fine(source: OperationRecord) -> bool:
    return source.finite or source.constant


def _finding(operation: OperationRecord, run: RunRecord, more: int) -> Finding:
    kind = "nan" if operation.nan else "inf"
    passed_on = sum(each.origin is operation for each in run.operations) - 1
    evidence = {
        "given": [str(each) for each in operation.given],
        "made": [str(each) for each in operation.made],
        "passed on by": max(passed_on, 0),
        "other places": more,
    }
    word = "NaN" if operation.nan else "Inf"
    if operation.name in SOURCES:
        named = operation.title
        # A number from beside the model's operations is a constant of the code, or the truth.
        outside = operation.name == "constant" and operation.layer == OUTSIDE and not named
        source = SOURCES["truth" if outside else operation.name]
        message, advice = (each.format(word=word, named=named) for each in source)
    else:
        message, advice = _made_here(operation, word)
    severity = "error"
    if _handled(operation):
        severity = "note"
        message = f"The input holds {word}, and the model handles it: no layer returns it."
        advice = f"No fix is needed if {word} stands for missing values."
    scale = loss_scale(run.scaler, operation) if operation.phase == "backward" else None
    if scale is not None:
        severity, evidence["scale"] = "note", scale.factor
        message, advice = message + scale.message, scale.advice
    return Finding(
        kind,
        severity,
        message,
        advice,
        **operation.place,
        evidence=evidence,
        symptom="overflow" if operation.overflowed else kind,
        explains=frozenset({"learning rate"}) if severity == "error" else frozenset(),
    )


def _made_here(operation: OperationRecord, word: str) -> tuple[str, str]:
    """Return message and fix for an operation that made NaN or Inf of finite inputs."""
    forward, cause = operation.phase == "forward", operation.cause
    name = operation.name.removesuffix("_forward")
    what = name if forward else f"the gradient of {name}"
    given = " and ".join(map(str, operation.given)) or "no numbers"
    why = f"{cause.words}; input: {given}" if cause is not None else f"input: {given}"
    message = f"{what[0].upper()}{what[1:]} made {word}: {why}."
    if cause is None:
        return message, "Look at the values that this layer gets: explore(model, x) shows them."
    return message, cause.fix


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


class NonFinite(Check):
    """Report where NaN and Inf arose, forward and backward."""

    live = True

    def looked_at(self, run: RunRecord) -> str:
        count = len(run.operations)
        return "" if run.watched else f"NaN and Inf in {count} operations, forward and backward"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        first = origins(run)
        for operation in [*first[:MOST], *filter(_handled, run.sources)]:
            yield _finding(operation, run, more=max(len(first) - 1, 0))
