"""Layers whose weights are zero throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from ....run.operations import LAYER_KINDS, Kind
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import LINEAR, is_zero
from ..records import OperationRecord

VANISHING = frozenset({"vanishing", "gradient of 0"})
CONSTANT = VANISHING | {"input scale", "batchnorm", "constant", "dead", "silent"}
"""The consequences of a layer that returns the same for every input."""


class ZeroWeights(Check):
    """Report weights of zero, unless a layer begins so by design and a gradient reaches it.

    What lies before a layer that begins at zero gets no gradient in the first step, which is not a
    fault either.
    """

    looks_at = "weights that are zero"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        learning = {name for name in run.zero_layers if run.learns(name)}
        for name, module in run.zero_layers.items():
            fault = not _by_design(run, name, learning)
            if not fault and not isinstance(module, LINEAR):
                continue  # the last norm of a residual branch often begins so
            scaled = "" if is_zero(module) else " once they are scaled"
            what = "it returns the same for every input" if fault else "some layers begin so"
            yield Finding(
                "zero weights",
                "warning" if fault else "note",
                f"All weights of {name!r} ({type(module).__name__}) are zero{scaled}: {what}.",
                _fix(module) if fault else _NO_FIX,
                name,
                cause="zero" if fault else "begins at zero",
                explains=CONSTANT if fault else frozenset(),
            )


_NO_FIX = "No fix is needed if it should begin at zero: a gradient reaches it."


def _fix(module: nn.Module) -> str:
    if not is_zero(module):
        return "Give their scale, such as the g of weight_norm, a value other than 0."
    how = "kaiming_normal_" if isinstance(module, LINEAR) else "ones_"
    return f"Initialise them with nn.init.{how}(layer.weight), or load trained ones."


def _by_design(run: RunRecord, name: str, learning: set[str]) -> bool:
    """Return True if a layer begins at zero: the next step moves it, or the one behind it."""
    made = {each for each in run.operations if each.layer == name and each.phase == "forward"}
    sums = [each for each in run.operations if each.name == "add" and not each.uniform]
    joins = bool(made & _uniform_before(sums))  # it may also lead to a gate
    if not joins and any(run.uses.get(each) for each in made):
        return False  # a norm makes noise of it, and the next layer has nothing to learn from
    # Without a backward this is unknown.
    return name in learning or bool(learning) or not run.backward


def _uniform_before(records: Iterable[OperationRecord]) -> set[OperationRecord]:
    """Return the operations before these, back to weights, that returned one number."""
    waiting, found = [maker for each in records for maker in each.makers], set[OperationRecord]()
    while waiting:
        record = waiting.pop()
        if record is not None and record.uniform and record not in found:
            found.add(record)
            if record.kind not in LAYER_KINDS and record.kind is not Kind.NORMALIZATION:
                waiting += record.makers
    return found
