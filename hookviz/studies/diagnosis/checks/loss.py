"""Losses and softmaxes with arguments that they do not take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OUTSIDE, OperationRecord

PAIRED = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"}
PAIRED |= {"binary_cross_entropy_with_logits"}
"""Operations that compare each prediction with its target."""
SOFTMAXES = ("softmax", "log_softmax")
ABOVE = 1e-3
"""A logarithm of a probability is never above 0, but for rounding."""

_LOGITS = "logits, of either sign"
_LOGARITHMS = "logarithms of probabilities, which are never above 0"
WIRED: dict[str, tuple[set[str], str, str]] = {
    "log_softmax": (
        {"softmax", "sigmoid", "relu"},
        _LOGITS,
        "Give cross_entropy the output of the last layer, without the {source}; apply it only "
        "outside of training, where you need probabilities.",
    ),
    "softmax": (
        {"softmax", "log_softmax", "sigmoid"},
        _LOGITS,
        "Give it the logits, without the {source}; or remove this softmax.",
    ),
    "binary_cross_entropy_with_logits": (
        {"sigmoid", "softmax"},
        f"{_LOGITS}, and applies a sigmoid itself",
        "Give it the logits, without the {source}; or use binary_cross_entropy.",
    ),
    "nll_loss_forward": (
        {"softmax", "sigmoid"},
        _LOGARITHMS,
        "Give it log_softmax of the logits, or give cross_entropy the logits themselves.",
    ),
    "kl_div": (
        {"softmax", "sigmoid"},
        _LOGARITHMS,
        "Give it log_softmax in place of the softmax, logsigmoid in place of a sigmoid.",
    ),
}
"""A loss, or a softmax -> what must not make its input, what it takes, and what to write."""


@dataclass
class Wiring(Check):
    """Report arguments that a loss or a softmax does not take."""

    looks_at = "how losses and softmaxes are wired"
    live = True
    operations = (*SOFTMAXES, *PAIRED, "F.kl_div")

    #: Softmaxes of a matrix: the dimension along which they run, and the shape.
    axes: dict[OperationRecord, tuple[int, torch.Size]] = field(default_factory=dict)
    pairs: set[OperationRecord] = field(default_factory=set)  # all with all
    #: What is wrong with a ``kl_div``, by its line: torch runs it as several operations.
    divergences: dict[tuple[str, int], Finding] = field(default_factory=dict)

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        if record.name in SOFTMAXES and given[0].ndim == 2:
            self.axes[record] = operation.argument["dim"] % 2, given[0].shape
        # Within a model a difference of all with all may be deliberate.
        all_with_all = record.name in PAIRED and _are_pairs(given)
        if all_with_all and (record.layer == OUTSIDE or record.name != "sub"):
            self.pairs.add(record)
        if operation.functional != "kl_div":
            return
        logarithms = operation.variables.get("input")
        for tensor, maker in zip(operation.inputs, record.makers, strict=True):
            if tensor is logarithms and maker is not None and tensor.numel():
                divergence = replace(record, name=operation.functional, makers=(maker,))
                for found in _wired(divergence, maker.without_copies()):
                    self.divergences.setdefault((record.file, record.line), found)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        forward = [each for each in run.operations if each.phase == "forward"]
        for record in forward:
            if record.name in WIRED and record.maker is not None:
                yield from _wired(record, record.maker.without_copies())
        yield from self.divergences.values()
        within = [each for each in forward if each.layer != OUTSIDE]
        for record, (dim, shape) in self.axes.items():
            if dim == 0 and min(shape) > 1 and shape[0] == run.samples:
                yield _wrong(
                    record,
                    "runs over dimension 0, the batch: for each class the samples sum to 1",
                    "Give it dim=1 (or dim=-1).",
                )
            last = record.layer == OUTSIDE or record is within[-1]
            if shape[dim] == 1 and shape[0] > 1 and last:
                found = _wrong(
                    record,
                    "runs over one class: it returns the same for every sample, and nothing is "
                    "learnt",
                    "For two classes return two numbers a sample, or one without softmax, and use "
                    "binary_cross_entropy_with_logits.",
                )
                yield replace(found, explains=frozenset({"gradient of 0", "no slope"}))
        for record in self.pairs:
            yield _wrong(
                record,
                "compares (N, 1) with (N,), which become (N, N): each sample is compared with the "
                "targets of all others",
                "Give both the same shape: output.squeeze(1), or y[:, None].",
            )


def _wired(record: OperationRecord, source: OperationRecord) -> Iterator[Finding]:
    sources, takes, advice = WIRED[record.name]
    if any(0 in each.shape for each in record.given):
        return
    if source.name in sources:
        rectified = source.name == "relu"
        if rectified and record.layer != OUTSIDE:
            return
        found = _wrong(
            record,
            f"takes {takes}, and gets the output of {_named(source)}",
            advice.format(source=source.name),
        )
        # A loss's finding is one of the layer that made its input.
        place = {"layer": source.place["layer"], "call": source.call}
        severity = "note" if rectified else "warning"
        yield replace(
            found, severity=severity, layers=[], **place if record.layer == OUTSIDE else {}
        )
    elif takes is _LOGARITHMS and source.made and source.made[0].high > ABOVE:
        yield _wrong(record, f"takes {takes}, and gets numbers above 0", advice)


def _wrong(record: OperationRecord, what: str, advice: str) -> Finding:
    return Finding("loss", "warning", f"{_named(record)} {what}.", advice, **record.place)


def _named(record: OperationRecord) -> str:
    """Name an operation, its layer and its line."""
    layer = "" if record.layer == OUTSIDE else f" of {record.layer or 'the model'!r}"
    line = f" ({record.where})" if record.where else ""
    return record.called + layer + line


def _are_pairs(given: list[Tensor]) -> bool:
    """Return True if (N, 1) and (N,) became (N, N): each sample against each other's target."""
    if len(given) < 2:
        return False
    one, two = given[:2]
    if one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr():
        return False  # each with each, as in a ranking
    if one.shape == two.shape and one.ndim == 2 and len(one) == one.shape[1] > 1:
        strides = {one.stride(), two.stride()}  # both were expanded before
        return any(s[1] == 0 for s in strides) and any(s[0] == 0 for s in strides)
    shapes = sorted((tuple(one.shape), tuple(two.shape)), key=len)
    return shapes[1] == (*shapes[0], 1) and len(shapes[0]) == 1 and shapes[0][0] > 1
