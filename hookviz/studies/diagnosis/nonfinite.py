"""NaN and Inf: the operation that made the first, and by which cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import torch

from ...run.operations import LAYER_KINDS
from ...tables import number
from .findings import Finding
from .loss_scale import LossScale, loss_scale, made_half
from .observation import Observation
from .operations import HALF, OUTSIDE, OperationRecord, Range

Given = Sequence[Range]
MOST = 3
"""So many places are told in each phase; what they pass on is not counted among them."""


def nan_and_inf(seen: Observation) -> Iterator[Finding]:
    """Report where NaN and Inf arose that left a layer or reached a weight."""
    first = origins(seen)
    for operation in [*first[:MOST], *filter(_handled, seen.sources)]:
        yield _finding(operation, seen, more=max(len(first) - 1, 0))


def origins(seen: Observation) -> list[OperationRecord]:
    """Return what made NaN and Inf first: in the forward, and only else in the backward."""
    constants = {id(o.origin): o.origin for o in seen.operations if _of_constant(o.origin)}
    told = [source for source in seen.sources if source.propagated or not _fine(source)]
    told = [source for source in told if not _handled(source)]
    told += constants.values()
    told += [each for each in seen.operations if each.propagated and each.origin is each]
    for phase in ("forward", "backward"):
        # Several of one line are one to its reader.
        first = list({tuple(o.place.values()): o for o in told[::-1] if o.phase == phase}.values())
        if first:  # the backward of what is not finite is not finite
            return first[::-1]
    return []


def explaining_scale(
    seen: Observation, scaler: Any, smaller: Callable[[float], Observation]
) -> LossScale | None:
    """Return the loss scale without which the gradients are finite; None if there is none.

    ``smaller(factor)`` repeats the run with a loss that is divided by the factor.
    """
    first = origins(seen)
    if not first or first[0].phase != "backward":
        return None
    scale = loss_scale(scaler, made_half(first[0]))
    return None if scale is None or origins(smaller(scale.factor)) else scale


def _of_constant(origin: OperationRecord | None) -> TypeGuard[OperationRecord]:
    """Return whether numbers come from a constant of the code, and left a layer."""
    return (
        origin is not None and origin.index < 0 and origin.name == "constant" and origin.propagated
    )


def lost_in_loss(origin: OperationRecord, seen: Observation) -> Finding:
    """Report where NaN or Inf arose in a loss of which only the operations are known."""
    return _finding(origin, seen, more=0)


def _handled(source: OperationRecord) -> bool:
    """Return whether NaN or Inf of the input were replaced before any layer returned them."""
    return source.name == "input" and not source.propagated and not _fine(source)


def _fine(source: OperationRecord) -> bool:
    return source.finite or source.constant


def _finding(operation: OperationRecord, seen: Observation, more: int) -> Finding:
    kind = "nan" if operation.nan else "inf"
    passed_on = sum(each.origin is operation for each in seen.operations) - 1
    evidence = {
        "given": [str(each) for each in operation.given],
        "made": [str(each) for each in operation.made],
        "passed on by": max(passed_on, 0),
        "other places": more,
    }
    word = "NaN" if operation.nan else "Inf"
    if operation.name in SOURCES:
        named = operation.facts.get("name", "")
        # A number from beside the model's operations is a constant of the code, or the truth.
        outside = operation.name == "constant" and operation.layer == OUTSIDE and not named
        source = SOURCES["truth" if outside else operation.name]
        message, advice = (each.format(word=word, named=named) for each in source)
    else:
        why = cause(operation)
        forward = operation.phase == "forward"
        name = operation.name.removesuffix("_forward")
        what = name if forward else f"the gradient of {name}"
        message = f"{what[0].upper()}{what[1:]} made {word}: {why}."
        advice = _advice(operation)
    severity = "error"
    if _handled(operation):
        severity = "note"
        message = f"The input holds {word}, and the model handles it: no layer returns it."
        advice = f"Nothing, if {word} stands for missing values."
    if operation.phase == "backward" and seen.scale is not None:
        severity, evidence["scale"] = "note", seen.scale.factor
        message += seen.scale.message
        advice = seen.scale.advice
    return Finding(kind, severity, message, advice, **operation.place, evidence=evidence)


SOURCES = {
    "weights": (
        "Parameter {named!r} holds {word} before anything has run.",
        "Load weights from before it happened, or initialise this parameter again.",
    ),
    "buffer": (
        "Buffer {named!r} holds {word} before anything has run.",
        "Reset it: a BatchNorm's with reset_running_stats().",
    ),
    "input": (
        "The input holds {word} already.",
        "Clean the data first, for example with torch.nan_to_num, and look where it comes from.",
    ),
    "truth": (
        "What the loss is given beside the model's output holds {word} already.",
        "Clean the labels first, and look where they, and the loss's weights, come from.",
    ),
    "constant": (
        "A constant in the code holds {word}.",
        "Look for float('inf') or float('nan') in this layer's forward.",
    ),
}
"""Origins of numbers that no operation made -> title and cure."""


def cause(operation: OperationRecord) -> str:
    """Why an operation made NaN or Inf of what it was given, in words."""
    given = operation.given
    said = "it was given " + " and ".join(map(str, given)) if given else "it was given no numbers"
    why = CAUSES.get(operation.name, _no_cause)(given)
    made = next((each for each in operation.made if not each.finite), None)
    if not why and made is not None and made.dtype in HALF and not operation.nan:
        largest = torch.finfo(made.dtype).max
        why = f"more than {str(made.dtype).removeprefix('torch.')} holds ({largest:g})"
    if not why and all(each.finite for each in given):
        if not operation.nan:
            why = "the result is larger than its type holds"
        elif operation.kind in LAYER_KINDS or operation.name in _SUMMING:
            why = "its sums are larger than the type holds, with either sign: Inf − Inf"
    return f"{why}; {said}" if why else said


_SUMMING = {"convolution", "sum", "mean", "cumsum"}  # a convolution's backward has its name


def _no_cause(given: Given) -> str:
    return "Inf − Inf or 0 × Inf" if any(not each.finite for each in given) else ""


def _log(given: Given) -> str:
    low = given[-1].low if given else 1.0  # behind the gradient, in backward
    if low == 0:
        return "the logarithm of 0"
    if low < 0:
        return "the logarithm of a negative number"
    return "the logarithm's slope next to 0 is too steep" if len(given) > 1 else ""


def _log1p(given: Given) -> str:
    return "the logarithm of 1 + x, of x = −1 or less" if given and given[0].low <= -1 else ""


def _divided(given: Given) -> str:
    if len(given) == 1 and given[0].finite:
        return "division by a number that is 0 or next to it"
    return "division by 0" if len(given) > 1 and given[-1].low <= 0 <= given[-1].high else ""


def _no_label(given: Given) -> str:
    finite = all(each.finite for each in given)
    return "the mean over no label: all of them are ignore_index" if finite else ""


def _reciprocal(given: Given) -> str:
    return "division by 0" if given and given[0].low <= 0 <= given[0].high else ""


def _root(given: Given) -> str:
    if not given:
        return ""
    zero = any(each.low <= 0 <= each.high for each in given)
    if any(each.low < 0 for each in given[-1:]):
        return "the root of a negative number"
    return "the root's slope at 0 is infinite" if zero else ""


def _spread(given: Given) -> str:
    one = any(math.prod(each.shape) == 1 for each in given) or all(e.finite for e in given)
    return "the standard deviation of one number, n − 1 = 0" if one else ""


def _exp(given: Given) -> str:
    most = max((each.high for each in given), default=0.0)
    largest = torch.finfo(given[0].dtype).max if given else 0.0
    return f"exp({number(most)}) is more than the type holds ({largest:.2g})" if most > 10 else ""


def _softmax(given: Given) -> str:
    masked = any(each.low == -torch.inf for each in given)
    return "a row that is −Inf throughout: everything in it is masked" if masked else ""


def _written(given: Given) -> str:
    return "the code writes this value"


def _times(given: Given) -> str:
    return "0 × Inf" if any(not each.finite for each in given) else ""


def _plus(given: Given) -> str:
    return "Inf − Inf" if any(not each.finite for each in given) else ""


CAUSES: dict[str, Callable[[Given], str]] = {
    **dict.fromkeys(("log", "log2", "log10"), _log),
    "log1p": _log1p,
    "div": _divided,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _no_label),
    **dict.fromkeys(("reciprocal", "rsqrt"), _reciprocal),
    **dict.fromkeys(("sqrt", "pow", "norm", "linalg_vector_norm"), _root),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh"), _exp),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("std", "var", "var_mean", "std_mean"), _spread),
    **dict.fromkeys(("fill", "full", "masked_fill"), _written),
    "mul": _times,
    **dict.fromkeys(("add", "sub", "sum", "mean"), _plus),
}
"""OperationRecord -> what is known to go wrong in it, told from the ranges of what it was given."""


def _advice(operation: OperationRecord) -> str:
    if operation.facts.get("of") == "softmax":
        return "Use log_softmax(x) in place of log(softmax(x)); a small number added cures nothing."
    if operation.name in _ADVICE:
        return _ADVICE[operation.name]
    made = next((each for each in operation.made if not each.finite), None)
    if made is not None and made.dtype is torch.float16:
        return "Compute this layer in float32, or use bfloat16, whose largest number is 3.4e38."
    if operation.phase == "backward":
        return "Keep what this operation is given away from where its slope is not finite."
    return "Look at what this layer is given: explore(model, inputs) shows its values."


_LOG = (
    "Keep what it is given above 0, x.clamp(min=1e-6).log(); of probabilities use log_softmax, or "
    "a loss on logits."
)
_ROOT = "Add a small number under the root, (x + 1e-8).sqrt(), whose slope is then finite."
_ADVICE = {
    **dict.fromkeys(("log", "log2", "log10", "log1p"), _LOG),
    "div": "Add a small number to what is divided by, or clamp it away from 0.",
    **dict.fromkeys(
        ("nll_loss_forward", "nll_loss2d_forward"),
        "Leave out batches without a label, or divide the sum by the number of labels, 1 at least.",
    ),
    "reciprocal": "Add a small number to what is divided by, or clamp it away from 0.",
    "rsqrt": "Add a small number under the root.",
    **dict.fromkeys(("sqrt", "norm", "linalg_vector_norm"), _ROOT),
    **dict.fromkeys(
        ("std", "var", "var_mean", "std_mean"),
        "Give it two numbers or more, or correction=0, which divides by n.",
    ),
    **dict.fromkeys(
        ("exp", "expm1", "exp2"),
        "Subtract the largest value first, or use logsumexp, softmax or softplus.",
    ),
    **dict.fromkeys(
        ("softmax", "log_softmax"),
        "Leave one place of every row unmasked, or mask with a large negative number.",
    ),
}
