"""Losses and softmaxes with arguments that they do not take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord, RanOperation
from ..step import WatchedStep

PAIRED = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"}
PAIRED |= {"binary_cross_entropy_with_logits"}
"""Operations that compare each prediction with its target."""
SOFTMAXES = ("softmax", "log_softmax")
ABOVE = 1e-3
"""A logarithm of a probability is never above 0, but for rounding."""


@dataclass
class Wiring(Check):
    """Report arguments that a loss or a softmax does not take."""

    looks_at = "how losses and softmaxes are wired"
    live = True
    operations = (*SOFTMAXES, *PAIRED)

    #: Softmaxes of a matrix: the dimension along which they run, and the shape.
    axes: dict[OperationRecord, tuple[int, torch.Size]] = field(default_factory=dict)
    pairs: set[OperationRecord] = field(default_factory=set)  # all with all
    #: The first operation of each ``kl_div``, which runs as its parts, and what made its input.
    divergences: dict[tuple[str, int], tuple[OperationRecord, OperationRecord]] = field(
        default_factory=dict
    )

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        loss, arguments = operation.functional
        if loss == "kl_div":
            given = arguments.get("input")
            for tensor, maker in zip(operation.inputs, record.makers, strict=True):
                if tensor is given and maker is not None:
                    found = replace(record, name=loss), maker
                    self.divergences.setdefault((record.file, record.line), found)

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        record = ran.record
        if record.phase == "backward" or not ran.given:
            return
        if record.name in SOFTMAXES:
            if ran.given[0].ndim == 2:
                self.axes[record] = ran.operation.argument["dim"] % 2, ran.given[0].shape
        # Within a model a difference of all with all may be deliberate.
        elif (record.layer == OUTSIDE or record.name != "sub") and _are_pairs(ran):
            self.pairs.add(record)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for record, source in self._sources(run):
            yield from _wired(record, source)
        within = [e for e in run.operations if e.phase == "forward" and e.layer != OUTSIDE]
        for record, (dim, shape) in self.axes.items():
            last = record.layer == OUTSIDE or record is within[-1]
            if dim == 0 and min(shape) > 1 and shape[0] == run.samples:
                yield _wrong(
                    record,
                    f"{_named(record)} runs over dimension 0, the batch: for each class the "
                    "samples sum to 1.",
                    "Give it dim=1 (or dim=-1).",
                )
            if shape[dim] == 1 and shape[0] > 1 and last:
                found = _wrong(
                    record,
                    f"{_named(record)} runs over one class: it returns the same for every sample, "
                    "and nothing is learnt.",
                    "For two classes return two numbers a sample, or one without softmax, and use "
                    "binary_cross_entropy_with_logits.",
                )
                yield replace(found, explains=frozenset({"gradient of 0", "no slope"}))
        for record in self.pairs:
            yield _wrong(
                record,
                f"{_named(record)} compares (N, 1) with (N,), which become (N, N): each sample is "
                "compared with the targets of all others.",
                "Give both the same shape: output.squeeze(1), or y[:, None].",
            )

    def _sources(self, run: RunRecord) -> Iterator[tuple[OperationRecord, OperationRecord]]:
        """Yield losses and softmaxes with what made their input."""
        losses = {name for name, _ in WIRED}
        pairs = [(e, e.maker) for e in run.operations if e.phase == "forward" and e.name in losses]
        for record, maker in (*pairs, *self.divergences.values()):
            if maker is not None:
                yield record, maker.without_copies()

    def wired(self, run: RunRecord) -> bool:
        """Return True if a loss does not take the output of an operation."""
        return any((record.name, source.name) in WIRED for record, source in self._sources(run))

    def suspects(self, step: WatchedStep) -> bool:
        """Return True for a softmax over rows or of another one, or a wrong loss in the model."""
        return any(
            (name, source) in WIRED
            or (name in PAIRED and source == "expand")
            or (name in SOFTMAXES and dim in (0, -2))
            for name, source, dim in step.graph
        )


def _wired(record: OperationRecord, source: OperationRecord) -> Iterator[Finding]:
    name = record.name
    if (name, source.name) in WIRED:
        if source.name == "relu" and record.layer != OUTSIDE:
            return
        why, advice = WIRED[name, source.name]
        words = f"{_named(record)} gets the output of {_named(source)}: {why}."
        yield _wrong(record, words, advice, source)
    elif name in ("nll_loss_forward", "kl_div") and source.made and source.made[0].high > ABOVE:
        yield _wrong(
            record,
            f"{_named(record)} takes logarithms of probabilities, which are 0 at most, and gets "
            "numbers above 0.",
            "Give it log_softmax of the logits, or cross_entropy the logits themselves.",
        )


def _wrong(
    record: OperationRecord, message: str, advice: str, source: OperationRecord | None = None
) -> Finding:
    """Report it in the operation's layer; for a loss, in the layer that made its input."""
    place = record.place
    severity = "note" if source is not None and source.name == "relu" else "warning"
    if source is not None and record.layer == OUTSIDE:
        place |= {"layer": source.place["layer"], "call": source.call}
    return Finding("loss", severity, message[0].upper() + message[1:], advice, **place)


def _named(record: OperationRecord) -> str:
    """Name an operation, its layer and its line."""
    name = record.name.removesuffix("_forward")
    owner = repr(record.layer) if record.layer else "the model itself"
    layer = "" if record.layer == OUTSIDE else f" of {owner}"
    return f"{name}{layer}" + (f" ({record.where})" if record.where else "")


def _are_pairs(ran: RanOperation) -> bool:
    """Return True if (N, 1) and (N,) became (N, N): each sample against each other's target."""
    if len(ran.given) < 2:
        return False
    one, two = ran.given[:2]
    if one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr():
        return False  # each with each, as in a ranking
    if one.shape == two.shape and one.ndim == 2 and len(one) == one.shape[1] > 1:
        strides = {one.stride(), two.stride()}  # both were expanded before
        return any(s[1] == 0 for s in strides) and any(s[0] == 0 for s in strides)
    shapes = sorted((tuple(one.shape), tuple(two.shape)), key=len)
    return shapes[1] == (*shapes[0], 1) and len(shapes[0]) == 1 and shapes[0][0] > 1


WIRED = {
    ("log_softmax", "relu"): (
        "cross entropy takes logits of either sign, and these are never negative",
        "Give cross_entropy the output of the last layer, without the ReLU.",
    ),
    ("log_softmax", "softmax"): (
        "cross entropy takes logits and applies a softmax itself, so that two softmaxes follow "
        "each other",
        "Give cross_entropy the logits, without softmax; apply softmax only outside of training, "
        "where you need probabilities.",
    ),
    ("softmax", "softmax"): (
        "two softmaxes follow each other, and the result is nearly the same for all classes",
        "Remove one of the two.",
    ),
    ("softmax", "log_softmax"): (
        "a softmax is applied to logarithms of probabilities",
        "Use exp() instead of the softmax, or remove one of the two.",
    ),
    ("softmax", "sigmoid"): (
        "a softmax is applied to a sigmoid, whose values are between 0 and 1",
        "Give the softmax the logits.",
    ),
    ("log_softmax", "sigmoid"): (
        "cross entropy takes logits, and the values of a sigmoid are between 0 and 1",
        "Give cross_entropy the logits, without the sigmoid.",
    ),
    ("binary_cross_entropy_with_logits", "sigmoid"): (
        "this loss takes logits and applies a sigmoid itself, so that two sigmoids follow each "
        "other",
        "Give it the logits, without the sigmoid; or use binary_cross_entropy.",
    ),
    ("binary_cross_entropy_with_logits", "softmax"): (
        "this loss takes logits and applies a sigmoid itself",
        "Give it the logits, without the softmax.",
    ),
    ("nll_loss_forward", "softmax"): (
        "this loss takes logarithms of probabilities, not probabilities",
        "Use cross_entropy on the logits, or log_softmax in place of the softmax.",
    ),
    ("nll_loss_forward", "sigmoid"): (
        "this loss takes logarithms of probabilities, not the values of a sigmoid",
        "Use cross_entropy on the logits.",
    ),
    ("kl_div", "softmax"): (
        "this loss takes logarithms of probabilities, not probabilities",
        "Give it log_softmax in place of the softmax.",
    ),
    ("kl_div", "sigmoid"): (
        "this loss takes logarithms of probabilities, not the values of a sigmoid",
        "Give it logsigmoid in place of the sigmoid.",
    ),
}
"""An operation and what made its input -> what is wrong with that, and what to write instead."""
