"""Targets that a loss does not take, such as a mask of 0 and 255 for a binary cross entropy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....run.recorder import Operation
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OperationRecord

ROUNDING = 1e-3
"""So much a target may be outside of its interval because of rounding."""


class Domain(NamedTuple):
    """The targets that a loss takes, in words; a test of those that it does not; and the fix.

    The test is called with the targets and all arguments of the loss.
    """

    takes: str
    violated: Callable[[Tensor, Mapping[str, Any]], Tensor]
    fix: str


def _negative(target: Tensor, _: object) -> Tensor:
    return target < -ROUNDING


def _outside_unit(target: Tensor, _: object) -> Tensor:
    return (target < -ROUNDING) | (target > 1 + ROUNDING)


def _uneven(target: Tensor, _: object) -> Tensor:
    """Return which targets are negative, or in rows that do not sum to 1.

    Rows of zeros leave out what they belong to, such as unlabelled pixels.
    """
    sums = target.sum(1 if target.ndim > 1 else 0, keepdim=True)
    return (target < -ROUNDING) | (((sums - 1).abs() > 10 * ROUNDING) & (sums != 0))


def _blank(target: Tensor, arguments: Mapping[str, Any]) -> Tensor:
    """Return which labels are the blank. Padding behind the lengths is not a label."""
    lengths = torch.as_tensor(arguments["target_lengths"], device=target.device)
    ends = lengths.reshape(-1, 1) if target.ndim > 1 else lengths.sum()
    labels = torch.arange(target.shape[-1], device=target.device) < ends
    return labels & (target == arguments["blank"])


_UNIT = Domain(
    "numbers between 0 and 1",
    _outside_unit,
    "Divide a mask of 0 and 255 by 255; turn labels −1 and 1 into (y + 1) / 2.",
)
_SIGNS = Domain(
    "−1 and 1", lambda target, _: target.abs() != 1, "Turn labels 0 and 1 into −1 and 1: 2 * y - 1."
)

DOMAINS: dict[str, Domain] = {
    "binary_cross_entropy_with_logits": _UNIT,
    "multilabel_soft_margin_loss": _UNIT,
    "hinge_embedding_loss": _SIGNS,
    "soft_margin_loss": _SIGNS,
    "margin_ranking_loss": _SIGNS,
    "cosine_embedding_loss": _SIGNS,
    "kl_div": Domain(
        "probabilities",
        _outside_unit,
        "Give it y.softmax(1) for scores, y / y.sum(1, keepdim=True) for counts, or "
        "log_target=True for logarithms of probabilities.",
    ),
    "kl_div with log_target=True": Domain(
        "logarithms of probabilities, never above 0",
        lambda target, _: target > ROUNDING,
        "Give it y.log_softmax(1) for scores; for probabilities leave out log_target=True.",
    ),
    "poisson_nll_loss": Domain(
        "counts, 0 or more", _negative, "Give it the counts, without normalizing them."
    ),
    "ctc_loss": Domain(
        "labels other than the blank",
        _blank,
        "Number the labels from 1 and leave 0 to the blank, or pass blank=; leave padding out of "
        "target_lengths.",
    ),
    "cross_entropy": Domain(
        "the probabilities of classes, which sum to 1",
        _uneven,
        "Divide each row by its sum, y / y.sum(1, keepdim=True), or give it y.softmax(1) for "
        "scores; if a sample has several classes, use binary_cross_entropy_with_logits.",
    ),
}
"""Losses of ``torch.nn.functional`` -> the targets that they take."""


@dataclass
class Targets(Check):
    """Report targets that a loss does not take, and that it computes with nevertheless."""

    looks_at = "the targets of losses"
    live = True
    # F.ctc_loss itself may be given lengths that `_blank` cannot read; the operation is not.
    operations = (*(f"F.{name}" for name in DOMAINS if name != "ctc_loss"), "ctc_loss")

    #: By the line of a loss: one of its operations, its name, and what the target is like.
    wrong: dict[tuple[str, int], tuple[OperationRecord, str, str]] = field(default_factory=dict)
    latest: Callable[[], Tensor | None] = lambda: None  # a loss may run as several operations

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        loss, arguments = operation.functional, operation.variables
        line = record.file, record.line
        target = arguments.get("target", arguments.get("targets"))
        if line in self.wrong or not isinstance(target, Tensor) or self.latest() is target:
            return
        self.latest = weakref.ref(target)
        if not target.numel():
            return
        if arguments.get("log_target"):
            loss += " with log_target=True"
        classes = loss == "cross_entropy" and not target.is_floating_point()
        if not classes and bool(DOMAINS[loss].violated(target.detach(), arguments).any()):
            low, high = (number(float(end)) for end in target.detach().aminmax())
            self.wrong[line] = record, loss, f"the target goes from {low} to {high}"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for line, (record, loss, described) in self.wrong.items():
            # A logarithm of a negative target makes NaN in the same line.
            here = (e for e in run.operations if (e.file, e.line) == line)
            lost = any(each.origin is each for each in here)
            yield Finding(
                "loss",
                "error" if lost else "warning",
                f"{loss} takes {DOMAINS[loss].takes}, but {described}.",
                DOMAINS[loss].fix,
                **{**record.place, "operation": loss.partition(" ")[0]},
                explains=frozenset({"nan", "inf"} if lost else ()),
            )
