"""What losses and softmaxes are given, noted while their arguments are at hand."""

from __future__ import annotations

from .operations import OUTSIDE
from .seen import Seen

PAIRED = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"}
PAIRED |= {"binary_cross_entropy_with_logits"}
_COPIES = {"to_copy", "clone"}


def look_at_wiring(seen: Seen) -> None:
    """What a loss, or a softmax, is given, noted while its arguments are at hand."""
    record, maker, name = seen.record, seen.maker, seen.record.name
    if record.phase == "backward":
        return
    source = maker.facts.get("copies", maker) if maker is not None else None
    if name in _COPIES and source is not None:
        record.facts["copies"] = source
    if source is not None and (name, source.name) in WIRED:
        record.facts["wired"] = source
    given = seen.given[0] if seen.given else None
    if given is not None and given.ndim == 2 and name in ("softmax", "log_softmax"):
        first = seen.operation.argument["dim"] % 2 == 0
        record.facts["over the batch"] = first and min(given.shape) > 1
    if name == "nll_loss_forward" and source is not None and source.name != "softmax":
        high = seen.given[0].max().item() if seen.given[0].numel() else 0.0
        record.facts["positive"] = high > 1e-3
    if name in PAIRED and record.layer == OUTSIDE and len(seen.given) > 1:
        record.facts["pairs"] = _pairs(seen)


def _pairs(seen: Seen) -> bool:
    """Whether (N, 1) and (N,) have become (N, N): each sample against each other's truth."""
    one, two = seen.given[:2]
    if one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr():
        return False  # each with each, as a ranking has it
    if not seen.operation.outputs or min(one.ndim, two.ndim) < 1 or not one.numel():
        return False
    if one.shape == two.shape and one.ndim == 2 and len(one) == one.shape[1] > 1:
        strides = {one.stride(), two.stride()}
        return any(s[1] == 0 for s in strides) and any(s[0] == 0 for s in strides)
    shapes = sorted((tuple(one.shape), tuple(two.shape)), key=len)
    return shapes[0] == shapes[1][:1] and shapes[1][1:] == (1,) and shapes[0][0] > 1


WIRED = {
    ("log_softmax", "softmax"): (
        "a softmax is taken of a softmax: cross entropy takes logits and has one within it",
        "Give cross_entropy the logits, without softmax; for probabilities as the answer take the "
        "softmax outside of training.",
    ),
    ("softmax", "softmax"): (
        "a softmax is taken of a softmax, which is nearly the same for all classes",
        "Take one of the two away.",
    ),
    ("softmax", "log_softmax"): (
        "a softmax is taken of logarithms of one",
        "Take exp() of them, or one of the two away.",
    ),
    ("softmax", "sigmoid"): (
        "a softmax is taken of a sigmoid, whose values are between 0 and 1",
        "Give the softmax the logits.",
    ),
    ("log_softmax", "sigmoid"): (
        "cross entropy takes logits and is given what a sigmoid returned, between 0 and 1",
        "Give cross_entropy the logits, without the sigmoid.",
    ),
    ("binary_cross_entropy_with_logits", "sigmoid"): (
        "a sigmoid is taken of a sigmoid: this loss takes logits and has one within it",
        "Give it the logits, without the sigmoid; or use binary_cross_entropy.",
    ),
    ("binary_cross_entropy_with_logits", "softmax"): (
        "a sigmoid is taken of a softmax: this loss takes logits and has a sigmoid within it",
        "Give it the logits, without the softmax.",
    ),
    ("nll_loss_forward", "softmax"): (
        "this loss takes logarithms of probabilities and is given probabilities",
        "Use cross_entropy on the logits, or log_softmax in place of the softmax.",
    ),
    ("nll_loss_forward", "sigmoid"): (
        "this loss takes logarithms of probabilities and is given what a sigmoid returned",
        "Use cross_entropy on the logits.",
    ),
}
"""An operation and what made its input -> what is wrong with that, and what to write instead."""
