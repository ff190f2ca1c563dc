"""Targets that a loss does not take, such as a mask of 0 and 255 for a binary cross entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ....run.recorder import Operation
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OperationRecord

Arguments = Mapping[str, Any]

ROUNDING = 1e-3
"""So much a target may be outside of its interval because of rounding."""


@dataclass(frozen=True)
class Domain:
    """The targets that a loss takes.

    Attributes
    ----------
    takes : str
        In words.
    violated : callable
        Returns True for a target that it does not take.
    fix : str
    """

    takes: str
    violated: Callable[[Tensor, Arguments], bool]
    fix: str

    def describe(self, target: Tensor) -> str:
        """Say what a wrong target is like."""
        low, high = (number(float(end)) for end in target.aminmax())
        return f"the target goes from {low} to {high}"


class Distribution(Domain):
    """Probabilities of classes, along dimension 1."""

    def describe(self, target: Tensor) -> str:
        low, high = (number(float(end)) for end in _sums(target).aminmax())
        return f"{super().describe(target)}, and its rows sum to {low} … {high}"


def _sums(target: Tensor) -> Tensor:
    return target.sum(1 if target.ndim > 1 else 0)


def _outside_unit(target: Tensor, arguments: Arguments) -> bool:
    return bool(((target < -ROUNDING) | (target > 1 + ROUNDING)).any())


def _not_signs(target: Tensor, arguments: Arguments) -> bool:
    return bool((target.abs() != 1).any())


def _negative(target: Tensor, arguments: Arguments) -> bool:
    return bool((target < -ROUNDING).any())


def _not_probabilities(target: Tensor, arguments: Arguments) -> bool:
    return not arguments.get("log_target") and _negative(target, arguments)


def _not_logarithms(target: Tensor, arguments: Arguments) -> bool:
    return bool(arguments.get("log_target")) and bool((target > ROUNDING).any())


def _not_a_distribution(target: Tensor, arguments: Arguments) -> bool:
    if not target.is_floating_point():  # the classes themselves
        return False
    sums = _sums(target)
    # Rows of zeros leave out what they belong to, such as unlabelled pixels.
    uneven = ((sums - 1).abs() > 10 * ROUNDING) & (sums != 0)
    return _negative(target, arguments) or bool(uneven.any())


_UNIT = Domain(
    "numbers between 0 and 1",
    _outside_unit,
    "Divide a mask of 0 and 255 by 255; turn labels −1 and 1 into (y + 1) / 2.",
)
_SIGNS = Domain("−1 and 1", _not_signs, "Turn labels 0 and 1 into −1 and 1: 2 * y - 1.")

DOMAINS: dict[str, list[Domain]] = {
    "binary_cross_entropy_with_logits": [_UNIT],
    "multilabel_soft_margin_loss": [_UNIT],
    "hinge_embedding_loss": [_SIGNS],
    "soft_margin_loss": [_SIGNS],
    "margin_ranking_loss": [_SIGNS],
    "cosine_embedding_loss": [_SIGNS],
    "kl_div": [
        Domain(
            "probabilities",
            _not_probabilities,
            "Give it y.softmax(1) for scores, or log_target=True for logarithms of probabilities.",
        ),
        Domain(
            "logarithms of probabilities, never above 0, with log_target=True",
            _not_logarithms,
            "Give it y.log_softmax(1) for scores; for probabilities leave out log_target=True.",
        ),
    ],
    "poisson_nll_loss": [
        Domain("counts, 0 or more", _negative, "Give it the counts, without normalizing them.")
    ],
    "cross_entropy": [
        Distribution(
            "the probabilities of classes, which sum to 1",
            _not_a_distribution,
            "Divide each row by its sum, y / y.sum(1, keepdim=True), or give it y.softmax(1) for "
            "scores; if a sample has several classes, use binary_cross_entropy_with_logits.",
        )
    ],
}
"""Losses of ``torch.nn.functional`` -> the targets that they take."""


@dataclass
class Targets(Check):
    """Report targets that a loss does not take, and that it computes with nevertheless."""

    looks_at = "the targets of losses"
    live = True

    #: One operation of each loss, its name, and the domain and the target that do not agree.
    wrong: dict[tuple[str, int], tuple[OperationRecord, str, Domain, str]] = field(
        default_factory=dict
    )
    known: set[tuple[str, int]] = field(default_factory=set)  # lines that have been looked at

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        loss, arguments = operation.functional
        line = record.file, record.line
        if loss not in DOMAINS or line in self.known:
            return
        self.known.add(line)
        target = arguments.get("target")
        if not isinstance(target, Tensor) or not target.numel():
            return
        for domain in DOMAINS[loss]:
            if domain.violated(target.detach(), arguments):
                described = domain.describe(target.detach())
                self.wrong[line] = record, loss, domain, described

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for line, (record, loss, domain, described) in self.wrong.items():
            # A logarithm of a negative target makes NaN in the same line.
            here = (e for e in run.operations if (e.file, e.line) == line)
            lost = any(each.origin is each for each in here)
            yield Finding(
                "loss",
                "error" if lost else "warning",
                f"{loss[0].upper()}{loss[1:]} takes {domain.takes}, but {described}.",
                domain.fix,
                **{**record.place, "operation": loss},
                explains=frozenset({"nan", "inf"} if lost else ()),
            )
