"""Errors that the model raises: the layer, its input and its source, and the shape it takes."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ....hooking.select import dimensions, is_convolution, type_name
from ....run.error_messages import (
    IN_PLACE,
    LABELS,
    OVERWRITTEN,
    WRONG_ARGUMENTS,
    fix_of,
    kind_of,
    message_of,
)
from ....run.errors import first_line, innermost_call, takes
from ....run.target import NoGradientError, TargetError
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..records import OperationRecord
from .in_place import InPlace
from .no_gradient import NoGradient
from .no_gradient import place_of as words_of

COUNTING = {"argmax", "argmin", "eq", "ne", "gt", "ge", "lt", "le", "round", "topk", "max"}
"""Operations of a count, such as the accuracy."""


class ModelError(Check):
    """Report the error that the model raised, and the operations that led to it."""

    looks_at = "whether the model runs"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        error = run.error
        if error is None:
            return
        if (overwrite := run.check(InPlace).error) is not None:
            yield overwrite
            return
        call = _innermost(run, error)
        where = f"Computing the score raised {type(error).__name__}"
        if call is not None:
            where = f"The model raised {type(error).__name__} in {_in_words(call)}"
        found = _finding(error, where, call, run.check(NoGradient).last_break())
        if run.failed is not None:
            found = replace(found, operation=run.failed.name, phase=run.failed.phase)
        elif any(each.module is run.root and each.finished for each in run.calls):
            found = replace(found, phase="backward")
        shapes = [
            (each.layer, type_name(each.module), each.shapes) for each in run.calls if each.shapes
        ]
        yield replace(found, evidence={"shapes": shapes})


def raised_outside(
    error: BaseException, within: str, cut: OperationRecord | None = None, *, stepped: bool = False
) -> Finding:
    """Report an error of a guarded block behind the model: in the loss, or in the backward.

    ``within`` is the model's type if it did not return, ``cut`` is where autograd's graph ended
    last, ``stepped`` whether weights have changed within the block.
    """
    where = f"in {within!r}" if within else "outside of the model"
    found = _finding(error, f"The block raised {type(error).__name__} {where}", None, cut)
    found = replace(found, outside=found.outside and not within)
    if stepped and OVERWRITTEN.search(message_of(error)):
        found = replace(found, advice=_AFTER_BACKWARD)
    backward = IN_PLACE.search(message_of(error)) or "backward" in message_of(error)
    return replace(found, phase="backward") if backward else found


_AFTER_BACKWARD = (
    "Weights or inputs were changed between forward and backward: call optimizer.step() after the "
    "last backward(), and run the model again after it."
)


def _finding(
    error: BaseException, words: str, call: LayerCall | None, cut: OperationRecord | None
) -> Finding:
    """Report an error as a fault of the forward."""
    kind, place = kind_of(error), place_of(error)
    frames, _ = _inner_frames(error)
    functional = (each.name for each in frames if each.filename.endswith("functional.py"))
    function = next(functional, "")
    message = f"{words}: {first_line(error)}"
    if isinstance(error, TargetError):  # hookviz has raised it, neither the model nor the loss
        kind = "no gradient" if isinstance(error, NoGradientError) else "error"
        message = f"{error.message}."
    if cut is not None and cut.file and kind == "no gradient":
        place, function = cut.place, cut.name
        message = f"{message.rstrip('.')}; {cut.name} ends the graph in {words_of(cut)}."
    if call is not None and not place["line"] and WRONG_ARGUMENTS.search(message_of(error)):
        code = getattr(call.module.forward, "__code__", None)
        if code is not None and not code.co_filename.startswith(_FOREIGN):
            place = {"file": code.co_filename, "line": code.co_firstlineno}
    advice = _fix(error, call)
    if isinstance(error, TargetError) and error.advice:
        advice = error.advice[0].upper() + error.advice[1:] + "."
    if function in COUNTING:
        advice = (
            "Counts have no gradient: train with a loss such as cross_entropy, and use the "
            "accuracy only to report."
        )
    if not advice and kind == "shape" and call is not None:
        cure = f"Make {call.layer!r} fit its input, or change what made the input"
        cure = cure if call.leaf else "Change this line, or the layers whose outputs meet in it"
        advice = f"{cure}; hookviz.graph(model, x) draws the layers up to there, with their shapes."
    layer, number = call.place if call is not None else ("", 0)
    where: dict[str, Any] = {"layer": layer, "call": number, "outside": call is None, **place}
    return Finding(
        kind,
        "error",
        message,
        advice or "Look at the end of the error's traceback.",
        **{**where, "operation": function},
    )


def _in_words(call: LayerCall) -> str:
    """Name the layer that raised an error, its input and where that came from."""
    kind = type_name(call.module)
    words = f"layer {call.layer!r} ({kind})" if call.layer else f"{kind}'s forward"
    words += f", call {call.call}" if call.call else ""
    if call.given:
        words += f", which got an input of shape {' and '.join(map(str, call.given))}"
        if call.made_by:
            words += f", made by {' and '.join(dict.fromkeys(map(_maker, call.made_by)))}"
        words += f", and takes {wants}" if (wants := takes(call.module)) else ""
    return words


def _maker(operation: OperationRecord) -> str:
    if operation.index < 0:
        return f"the {operation.name}"
    layer = repr(operation.layer) if operation.layer else "the model's forward"
    return f"{operation.name} in {layer}" + (f" at {operation.where}" if operation.where else "")


def _fix(error: BaseException, call: LayerCall | None) -> str:
    """Return the code to write instead of a frequent error; otherwise empty."""
    message = message_of(error)
    if LABELS.search(message) and (classes := _classes(error)):
        return f"Labels must go from 0 to {classes - 1}: subtract 1 if they begin at 1."
    if call is None:
        return fix_of(error)
    shape = call.given[0] if call.given else tuple[int, ...]()
    last = len(shape) - 1
    fits = is_convolution(call.module) and last == dimensions(call.module) + 1
    if fits and shape[last] == call.module.in_channels != shape[1]:
        return f"Channels stand last in {shape}: give x.permute{(0, last, *range(1, last))}."
    if WRONG_ARGUMENTS.search(message):
        with suppress(TypeError, ValueError):
            taken = inspect.signature(call.module.forward).parameters.values()
            arguments = ", ".join(str(each.replace(annotation=each.empty)) for each in taken)
            owner = f"layer {call.layer!r}" if call.layer else "the model"
            return (
                f"Give {owner} the arguments of its forward, ({arguments}); labels go to the "
                "target, lambda output: loss(output, y)."
            )
    return fix_of(error)


def _classes(error: BaseException) -> int:
    """Read the number of classes of a loss's input off its frame in the traceback."""
    found = 0
    for frame, _ in traceback.walk_tb(error.__traceback__):
        given = frame.f_locals.get("input")
        if isinstance(given, torch.Tensor) and given.ndim:
            found = given.shape[min(given.ndim - 1, 1)]
    return found


def _innermost(run: RunRecord, error: Exception) -> LayerCall | None:
    """Return the call in which the error arose: the innermost one that did not come to its end."""
    innermost = innermost_call(error, run.names)
    unfinished = [call for call in run.calls if not call.finished]
    if innermost is not None:
        unfinished = [call for call in unfinished if call.module is innermost[0]] or unfinished
    return unfinished[-1] if unfinished else None


_FOREIGN = str(Path(torch.__file__).parent), str(Path(__file__).parents[3])


def place_of(error: BaseException) -> dict[str, Any]:
    """File and line of the innermost frame of the user's code."""
    frames, users = _inner_frames(error)
    file, line = (frames[0].filename, frames[0].lineno or 0) if users else ("", 0)
    return {"file": file, "line": line}


def _inner_frames(error: BaseException) -> tuple[list[traceback.FrameSummary], bool]:
    """Frames from the innermost of the user's code on; all, and False, where there is none."""
    frames = list(traceback.extract_tb(error.__traceback__))
    users = [place for place, each in enumerate(frames) if not each.filename.startswith(_FOREIGN)]
    return frames[users[-1] if users else 0 :], bool(users)
