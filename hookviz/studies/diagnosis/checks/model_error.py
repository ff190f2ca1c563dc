"""Errors that the model raises: the layer, its input and its source, and the shape it takes."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ....hooking.select import dimensions, is_convolution
from ....run.errors import first_line, innermost_call, message_of, takes
from ..check import Check, LayerCall, RunRecord
from ..error_messages import (
    BYTES,
    IN_PLACE,
    INDICES,
    LABELS,
    NO_GRAPH,
    OVERWRITTEN,
    WRONG_ARGUMENTS,
    fix_of,
    kind_of,
)
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord
from .in_place import InPlace
from .no_gradient import NoGradient


def raised(run: RunRecord) -> Iterator[Finding]:
    """Report the model's own error and the operations that led to it."""
    error = run.error
    if error is None:
        return
    call = _innermost(run, error)
    kind = kind_of(error)
    place, function = place_of(error), _function_of(error)
    cut = None if place["line"] or not NO_GRAPH.search(message_of(error)) else no_graph(run)
    if cut is not None:
        place, function = {"file": cut.file, "line": cut.line}, cut.name
    if not place["line"] and call is not None and WRONG_ARGUMENTS.search(message_of(error)):
        place |= _definition(call.module)
    operation = run.failed.name if run.failed is not None else function
    name = call.layer if call is not None else ""
    given = " and ".join(map(_said, call.given)) if call is not None else ""
    words = [f"The model raised {type(error).__name__} in {_named(call)}"]
    if call is not None and given:
        made = " and ".join(map(_maker, call.made_by))
        source = f", made by {made}" if made else ""
        words.append(f", which got an input of shape {given}{source}")
        if wants := takes(call.module):
            words.append(f", and takes {wants}")
    message = "".join(words) + f": {first_line(error)}"
    if (overwrite := run.check(InPlace).error) is not None:
        yield overwrite.finding(error)
        return
    yield Finding(
        kind,
        "error",
        message,
        (_COUNT if function in COUNTING else _fix(error, call))
        or _advice(call, kind, bool(place["file"])),
        name,
        call.call if call is not None else 0,
        "backward" if _in_backward(run) else "forward",
        operation,
        **place,
        evidence={
            "shapes": [(each.layer, each.type, each.shapes) for each in run.calls if each.shapes]
        },
    )


COUNTING = {"argmax", "argmin", "eq", "ne", "gt", "ge", "lt", "le", "round", "topk", "max"}
"""Operations of a count, such as the accuracy."""
_COUNT = (
    "Counts have no gradient: train with a loss such as cross_entropy, and use the accuracy only "
    "to report."
)


def no_graph(run: RunRecord) -> OperationRecord | None:
    """Return the operation that keeps the score without a graph, if it is known."""
    if breaks := run.check(NoGradient).breaks:
        return breaks[-1].record
    return next(filter(None, (no_grad_at(call.no_grad) for call in reversed(run.calls))), None)


def no_grad_at(line: tuple[str, int]) -> OperationRecord | None:
    """Describe the ``torch.no_grad()`` of a line; None without one."""
    return OperationRecord(0, "no_grad", file=line[0], line=line[1]) if line[0] else None


def raised_outside(
    error: BaseException,
    layers: Iterable[str],
    cut: OperationRecord | None = None,
    *,
    stepped: bool = False,
) -> Finding:
    """Report an error of a guarded block behind the model: in the loss, or in the backward.

    ``cut`` is where autograd's graph ended last, ``stepped`` whether weights have changed within
    the block.
    """
    place, function = place_of(error), _function_of(error)
    within = " or ".join(map(repr, layers))
    if cut is not None and cut.file and NO_GRAPH.search(message_of(error)):
        place, function = {"file": cut.file, "line": cut.line}, cut.name
    fix = _fix(error, None)
    if stepped and OVERWRITTEN.search(message_of(error)):
        fix = (
            "Weights or inputs were changed between forward and backward: call optimizer.step() "
            "after the last backward(), and run the model again after it."
        )
    backward = IN_PLACE.search(message_of(error)) or "backward" in message_of(error)
    return Finding(
        kind_of(error),
        "error",
        f"The block raised {type(error).__name__}"
        + (f" in {within}" if within else " outside of the model")
        + f": {first_line(error)}",
        fix or _advice(None, "error", bool(place["file"])),
        phase="backward" if backward else "forward",
        operation=function,
        **place,
    )


def _fix(error: BaseException, call: LayerCall | None) -> str:
    """Return the code to write instead of a frequent error; otherwise empty."""
    message = message_of(error)
    if call is not None and (order := _channels_first(call)):
        return f"Channels stand last in {call.given[0]}: give x.permute{order}, (N, C, …)."
    if BYTES.search(message):
        return "Use floats, prepared as in training: x.float() / 255, then the normalization."
    if LABELS.search(message):
        classes = _classes(error)
        if not classes:
            return "Labels must go from 0 to the number of classes less 1."
        return f"Labels must go from 0 to {classes - 1}: subtract 1 if they begin at 1."
    if call is not None and INDICES.search(message):
        count = getattr(call.module, "num_embeddings", 0)
        return f"Indices must go from 0 to {count - 1}: clamp them, or make the embedding larger."
    arguments = _arguments(call.module) if call is not None else ""
    if call is not None and arguments and WRONG_ARGUMENTS.search(message):
        owner = f"layer {call.layer!r}" if call.layer else "the model"
        labels = "; labels go to the target, lambda output: loss(output, y)"
        taken = f"Give {owner} the arguments of its forward, ({arguments})"
        return f"{taken}{'' if call.layer else labels}."
    return fix_of(error)


def _channels_first(call: LayerCall) -> tuple[int, ...]:
    """Return the order of dimensions that puts channels first; empty if they are not last."""
    shape = list(call.given[0]) if call.given else []
    if not is_convolution(call.module) or len(shape) != dimensions(call.module) + 2:
        return ()
    last = shape[-1] == call.module.in_channels != shape[1]
    return (0, len(shape) - 1, *range(1, len(shape) - 1)) if last else ()


def _classes(error: BaseException) -> int:
    """Read the number of classes of a loss's input off its frame in the traceback."""
    traced, found = error.__traceback__, 0
    while traced is not None:
        given = traced.tb_frame.f_locals.get("input")
        if isinstance(given, torch.Tensor) and given.ndim:
            found = given.shape[1] if given.ndim > 1 else given.shape[0]
        traced = traced.tb_next
    return found


def _definition(module: nn.Module) -> dict[str, Any]:
    """Return file and line of a module's forward, where that is the user's code."""
    code = getattr(module.forward, "__code__", None)
    if code is None or code.co_filename.startswith(_FOREIGN):
        return {}
    return {"file": code.co_filename, "line": code.co_firstlineno}


def _arguments(module: nn.Module) -> str:
    """Write the arguments of a module's forward, such as ``x, mask=None``; empty if unknown."""
    with suppress(TypeError, ValueError):
        taken = inspect.signature(module.forward).parameters.values()
        return ", ".join(str(each.replace(annotation=each.empty)) for each in taken)
    return ""


def _innermost(run: RunRecord, error: Exception) -> LayerCall | None:
    """Return the call in which the error arose: the innermost one that did not come to its end."""
    innermost = innermost_call(error, run.names)
    unfinished = [call for call in run.calls if not call.finished]
    if innermost is not None:
        unfinished = [call for call in unfinished if call.module is innermost[0]] or unfinished
    return unfinished[-1] if unfinished else None


def _in_backward(run: RunRecord) -> bool:
    root = next((call for call in run.calls if call.module is next(iter(run.names))), None)
    return root is not None and root.finished


_FOREIGN = str(Path(torch.__file__).parent), str(Path(__file__).parents[3])


def place_of(error: BaseException) -> dict[str, Any]:
    """File and line of the innermost frame of the user's code."""
    frames, users = _inner_frames(error)
    file, line = (frames[0].filename, frames[0].lineno or 0) if users else ("", 0)
    return {"file": file, "line": line}


def _function_of(error: BaseException) -> str:
    """Torch's function that the innermost frame of the user's code called, if it is known."""
    frames, _ = _inner_frames(error)
    return next((each.name for each in frames if each.filename.endswith("functional.py")), "")


def _inner_frames(error: BaseException) -> tuple[list[traceback.FrameSummary], bool]:
    """Frames from the innermost of the user's code on; all, and False, where there is none."""
    frames = list(traceback.extract_tb(error.__traceback__))
    users = [place for place, each in enumerate(frames) if not each.filename.startswith(_FOREIGN)]
    return frames[users[-1] if users else 0 :], bool(users)


def _said(shape: tuple[int, ...]) -> str:
    return str(tuple(shape))


def _maker(operation: OperationRecord) -> str:
    if operation.index < 0:
        return f"the {operation.name}"
    line = f" at {operation.where}" if operation.where else ""
    return (
        f"{operation.name} in {operation.layer!r}{line}"
        if operation.layer
        else (f"{operation.name} in the model's forward{line}")
    )


def _named(call: LayerCall | None) -> str:
    if call is None or call.layer == OUTSIDE:
        return "the score"
    named = f"layer {call.layer!r} ({call.type})" if call.layer else f"{call.type}'s forward"
    return f"{named}, call {call.call}" if call.call else named


def _advice(call: LayerCall | None, kind: str, line: bool) -> str:
    if kind == "batchnorm":
        return "Give a batch of two or more, call model.eval(), or use GroupNorm."
    if kind in ("error", "in place") or call is None:
        here = "; the line of your code is named here" if line else ""
        return f"Look at the end of the error's traceback{here}."
    if call.made_by and call.made_by[0].index >= 0:
        return (
            f"Make {call.layer or 'forward'!r} fit its input, or change what made the input; "
            "finding.evidence['shapes'] lists the shapes up to there."
        )
    return "Give an input of the size that this layer takes."


class ModelError(Check):
    """Report the error that the model raised."""

    looks_at = "whether the model runs"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        return raised(run)
