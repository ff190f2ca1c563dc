"""Targets that a loss does not take, such as a mask of 0 and 255 for a binary cross entropy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ....run.recorder import Operation
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OperationRecord

ROUNDING = 1e-3
"""So much a target may be outside of its interval because of rounding."""


class Domain(NamedTuple):
    """The targets that a loss takes, in words; a test of those that it does not; and the fix."""

    takes: str
    violated: Callable[[Tensor], Tensor]
    fix: str


def _negative(target: Tensor) -> Tensor:
    return target < -ROUNDING


def _uneven(target: Tensor) -> Tensor:
    """Return which targets are negative, or in rows that do not sum to 1.

    Rows of zeros leave out what they belong to, such as unlabelled pixels.
    """
    sums = target.sum(1 if target.ndim > 1 else 0, keepdim=True)
    return _negative(target) | (((sums - 1).abs() > 10 * ROUNDING) & (sums != 0))


_UNIT = Domain(
    "numbers between 0 and 1",
    lambda target: (target < -ROUNDING) | (target > 1 + ROUNDING),
    "Divide a mask of 0 and 255 by 255; turn labels −1 and 1 into (y + 1) / 2.",
)
_SIGNS = Domain(
    "−1 and 1", lambda target: target.abs() != 1, "Turn labels 0 and 1 into −1 and 1: 2 * y - 1."
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
        _negative,
        "Give it y.softmax(1) for scores, or log_target=True for logarithms of probabilities.",
    ),
    "kl_div with log_target=True": Domain(
        "logarithms of probabilities, never above 0",
        lambda target: target > ROUNDING,
        "Give it y.log_softmax(1) for scores; for probabilities leave out log_target=True.",
    ),
    "poisson_nll_loss": Domain(
        "counts, 0 or more", _negative, "Give it the counts, without normalizing them."
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
    hears = tuple(f"F.{name}" for name in DOMAINS)

    #: By the line of a loss: one of its operations, its name, and what the target is like.
    wrong: dict[tuple[str, int], tuple[OperationRecord, str, str]] = field(default_factory=dict)
    latest: Callable[[], Tensor | None] = lambda: None  # a loss may run as several operations

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        loss, arguments = operation.functional, operation.variables
        line = record.file, record.line
        target = arguments.get("target")
        if line in self.wrong or not isinstance(target, Tensor) or self.latest() is target:
            return
        self.latest = weakref.ref(target)
        if not target.numel():
            return
        if arguments.get("log_target"):
            loss += " with log_target=True"
        classes = loss == "cross_entropy" and not target.is_floating_point()
        if not classes and bool(DOMAINS[loss].violated(target.detach()).any()):
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
