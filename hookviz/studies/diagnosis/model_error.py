"""The model raised: which layer, what it was given, what it takes, and which layer made that."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...hooking.select import dimensions, is_convolution
from ...run.errors import first_line, innermost_call, message_of, takes
from .check import Check, LayerCall, RunRecord
from .checks.in_place import InPlace
from .checks.no_gradient import NoGradient
from .error_messages import WRONG_ARGUMENTS
from .findings import Finding
from .records import OUTSIDE, OperationRecord

KINDS = {
    "batchnorm": re.compile("more than 1 value per channel"),
    "shape": re.compile(
        r"shape|size|dimension|channels|should contain|must match"
        r"|expected .*(batch|tensor|input|got)",
        re.I,
    ),
}
"""Kinds of findings -> what stands in torch's messages."""


def raised(seen: RunRecord) -> Iterator[Finding]:
    """Report the model's own error and the operations that led to it."""
    error = seen.error
    if error is None:
        return
    look = _innermost(seen, error)
    kind = kind_of(error)
    place, function = place_of(error), _function_of(error)
    cut = None if place["line"] or "without a gradient" not in message_of(error) else no_graph(seen)
    if cut is not None:
        place, function = {"file": cut.file, "line": cut.line}, cut.name
    if not place["line"] and look is not None and WRONG_ARGUMENTS.search(message_of(error)):
        place |= _definition(look.module)
    operation = seen.failed.name if seen.failed is not None else function
    name = look.layer if look is not None else ""
    given = " and ".join(map(_said, look.given)) if look is not None else ""
    words = [f"The model raised {type(error).__name__} in {_named(look)}"]
    if look is not None and given:
        made = " and ".join(map(_maker, look.made_by))
        words.append(f", which was given {given}" + (f", made by {made}" if made else ""))
        if wants := takes(look.module):
            words.append(f", and takes {wants}")
    message = "".join(words) + f": {first_line(error)}"
    if (overwrite := seen.check(InPlace).error) is not None:
        yield overwrite.finding(error)
        return
    yield Finding(
        kind,
        "error",
        message,
        (_COUNT if function in COUNTING else mended(error, look, seen))
        or _advice(look, kind, bool(place["file"])),
        name,
        look.call if look is not None else 0,
        "backward" if _in_backward(seen) else "forward",
        operation,
        **place,
        evidence={
            "shapes": [(each.layer, each.type, each.shapes) for each in seen.calls if each.shapes]
        },
    )


COUNTING = {"argmax", "argmin", "eq", "ne", "gt", "ge", "lt", "le", "round", "topk", "max"}
"""Operations of a count, such as the accuracy."""
_COUNT = (
    "Counts have no gradient: train with a loss such as cross_entropy, and use the accuracy only "
    "to report."
)


def no_graph(seen: RunRecord) -> OperationRecord | None:
    """Return the operation that keeps the score without a graph, if it is known."""
    if breaks := seen.check(NoGradient).breaks:
        return breaks[-1].record
    return next(filter(None, (no_grad_at(look.no_grad) for look in reversed(seen.calls))), None)


def no_grad_at(line: tuple[str, int]) -> OperationRecord | None:
    """Describe the ``torch.no_grad()`` of a line; None without one."""
    return OperationRecord(0, "no_grad", file=line[0], line=line[1]) if line[0] else None


def raised_outside(
    error: BaseException,
    seen_layers: Iterable[str],
    cut: OperationRecord | None = None,
    *,
    stepped: bool = False,
) -> Finding:
    """Report an error of a guarded block behind the model: in the loss, or in the backward.

    ``cut`` is where autograd's graph ended last, ``stepped`` whether weights have changed within
    the block.
    """
    place, function = place_of(error), _function_of(error)
    within = " or ".join(map(repr, seen_layers))
    if cut is not None and cut.file and "does not require grad" in message_of(error):
        place, function = {"file": cut.file, "line": cut.line}, cut.name
    mend = mended(error, None, None)
    if stepped and "modified by an inplace operation" in message_of(error):
        mend = (
            "Weights or inputs were changed between forward and backward: call optimizer.step() "
            "after the last backward(), and run the model anew after it."
        )
    backward = IN_PLACE.search(message_of(error)) or "backward" in message_of(error)
    return Finding(
        kind_of(error),
        "error",
        f"The block raised {type(error).__name__}"
        + (f" in {within}" if within else " outside of the model")
        + f": {first_line(error)}",
        mend or _advice(None, "error", bool(place["file"])),
        phase="backward" if backward else "forward",
        operation=function,
        **place,
    )


IN_PLACE = re.compile("modified by an inplace operation|leaf Variable that requires grad")


def kind_of(error: BaseException) -> str:
    """Return the kind of finding that an error is, by its message."""
    if IN_PLACE.search(message_of(error)):
        return "in place"
    return next((kind for kind, words in KINDS.items() if words.search(message_of(error))), "error")


def mended(error: BaseException, look: LayerCall | None, seen: RunRecord | None) -> str:
    """Return the code to write instead of a frequent error; otherwise empty."""
    said = message_of(error)
    shape: tuple[int, ...] = look.given[0] if look is not None and look.given else ()
    if (
        look is not None
        and shape
        and is_convolution(look.module)
        and len(shape) == dimensions(look.module) + 2
    ):
        channels = look.module.in_channels
        if shape[-1] == channels != shape[1]:
            order = (0, len(shape) - 1, *range(1, len(shape) - 1))
            return f"Channels stand last in {shape}: give x.permute{order}, (N, C, …)."
    if re.search("unsigned char|'Byte'|uint8|ByteTensor", said):
        return "Give numbers of type float: x.float() / 255, and then what training did to them."
    if ("target" in said.lower() and "out of bounds" in said) or "n_classes" in said:
        classes = _classes(error)
        return (
            f"Labels must go from 0 to {classes - 1}: subtract 1 if they begin at 1."
            if classes
            else "Labels must go from 0 to the number of classes less 1."
        )
    if "index out of range in self" in said and look is not None:
        count = getattr(look.module, "num_embeddings", 0)
        return f"Indices must go from 0 to {count - 1}: clamp them, or make the embedding larger."
    if look is not None and WRONG_ARGUMENTS.search(said) and (wanted := _arguments(look.module)):
        named = f"layer {look.layer!r}" if look.layer else "the model"
        labels = "" if look.layer else "; labels go to the target, lambda output: loss(output, y)"
        return f"Give {named} what its forward takes, ({wanted}){labels}."
    for words, advice in MENDED.items():
        if re.search(words, said):
            return advice
    return ""


def _classes(error: BaseException) -> int:
    """Read the number of classes that a loss was given off its frame in the traceback."""
    traced, found = error.__traceback__, 0
    while traced is not None:
        given = traced.tb_frame.f_locals.get("input")
        if isinstance(given, torch.Tensor) and given.ndim:
            found = given.shape[1] if given.ndim > 1 else given.shape[0]
        traced = traced.tb_next
    return found


MENDED = {
    "modified by an inplace operation": "Write a new tensor in place of the old: x = x + 1, "
    "x.relu(), inplace=False. hookviz.diagnose(model, x, lambda output: loss(output, y)) names the "
    "line that writes.",
    "leaf Variable that requires grad": "Change weights within torch.no_grad(), or a copy of them.",
    "without a gradient|does not require grad": "The loss is detached from the model: look for "
    "detach(), .data, .item(), argmax or torch.no_grad() on the way to it.",
    "created only for scalar outputs|not one number": "Make one number of it first: "
    "loss.mean().backward().",
    "backward through the graph a second time": "Call backward() once a forward; add losses up "
    "first, and detach() what is kept from one step to the next.",
    r"expected [2-5]D.* input \(got [1-4]D input\)": "Give it a batch, of one perhaps: x[None], "
    "with the samples in the first dimension.",
    "same device": "Bring the input and the labels to where the model is: x.to(device).",
    r"not subscriptable|got \(list|list' object|not list|must be Tensor": "Give the tensor itself, "
    "not a list of it: model(x), not model([x]); of a DataLoader's batch, batch[0].",
    "multi-target not supported": "Labels of classes are one number a sample, shape (N,): "
    "y.squeeze(1), or y.argmax(1) of one-hot ones.",
    "elements of target should be between 0 and 1": "Targets go from 0 to 1: divide a mask of 0 "
    "and 255 by 255; turn labels −1 and 1 into (y + 1) / 2.",
    "should be between 0 and 1": "binary_cross_entropy takes probabilities: give them through a "
    "sigmoid, or use binary_cross_entropy_with_logits on the logits.",
    "must be same as input size|different to the input size": "Give both the same shape: "
    "output.squeeze(1), or y[:, None].float().",
    "missing 1 required positional argument: 'target'": "Give the loss its labels: "
    "lambda output: loss(output, y).",
    "Expected floating point type for target": "One-hot labels are numbers of type float: "
    "y.float(); or give the classes themselves, y.argmax(1).",
    "Found dtype Long but|cast to the desired output type Long": "This loss takes targets of type "
    "float: y.float().",
    "var has negative entry": "Make the variance positive: F.softplus(var), or var.exp() of a "
    "logarithm that the network returns.",
    "dtype Long|dtype to be Long|scalar type Long": "Labels of classes are whole numbers: "
    "y.long().",
    r"Double|\(double\)|Half|BFloat16|expected m1 and m2|same dtype": "Give it the type of the "
    "weights: x.float(), or x.to(next(model.parameters()).dtype).",
}
"""Text of an error -> the code to write instead."""


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


def _innermost(seen: RunRecord, error: Exception) -> LayerCall | None:
    """Return the call in which the error arose: the innermost one that did not come to its end."""
    call = innermost_call(error, seen.names)
    unfinished = [look for look in seen.calls if not look.finished]
    if call is not None:
        unfinished = [look for look in unfinished if look.module is call[0]] or unfinished
    return unfinished[-1] if unfinished else None


def _in_backward(seen: RunRecord) -> bool:
    root = next((look for look in seen.calls if look.module is next(iter(seen.names))), None)
    return root is not None and root.finished


_FOREIGN = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])


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


def _named(look: LayerCall | None) -> str:
    if look is None or look.layer == OUTSIDE:
        return "the score"
    named = f"layer {look.layer!r} ({look.type})" if look.layer else f"{look.type}'s forward"
    return f"{named}, call {look.call}" if look.call else named


def _advice(look: LayerCall | None, kind: str, line: bool) -> str:
    if kind == "batchnorm":
        return "Give a batch of two or more, call model.eval(), or use GroupNorm."
    if kind in ("error", "in place") or look is None:
        here = "; the line of your code is named here" if line else ""
        return f"Look at the end of the error's traceback{here}."
    if look.made_by and look.made_by[0].index >= 0:
        return (
            f"Make {look.layer or 'forward'!r} fit what it is given, or change what made that; "
            "finding.evidence['shapes'] lists the shapes up to there."
        )
    return "Give an input of the size that this layer takes."


class ModelError(Check):
    """Report the error that the model raised."""

    looks_at = "whether the model runs"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        return raised(run)
