"""Layers that never run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import outermost
from ..records import OperationRecord


@dataclass
class Unused(Check):
    """Report layers with weights that never ran, and whose weights nothing read."""

    looks_at = "layers that never ran"

    decided: set[str] = field(default_factory=set)  # layers whose forward reads its numbers

    def heard(self, operation: Operation, record: OperationRecord, run: RunRecord) -> None:
        if operation.name in ("local_scalar_dense", "nonzero") and operation.call is not None:
            self.decided.add(record.layer)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        ran = {call.module for call in run.calls}
        idle = {
            name: module
            for module, name in run.names.items()
            if module not in ran and (own := run.parameters[name]) and not own & run.used
        }
        # A container may hold layers that have other names, too, under which they ran.
        idle = {
            name: module
            for name, module in idle.items()
            if any(each not in ran and _holds(each) for each in module.modules())
        }
        for name in outermost(idle):
            module = idle[name]
            why = "unused"
            if self._is_routed(run, name):
                why = "routed"
            elif run.root.training and run.drew:
                why = "left out"
            elif not any(p.requires_grad for p in module.parameters()):
                why = "frozen"
            yield Finding(
                "unused",
                "warning" if run.root.training and why == "unused" else "note",
                f"Layer {name!r} ({type(module).__name__}) never ran, and nothing read its "
                "weights.",
                _ADVICE[why],
                name,
                cause=why,
                evidence={"parameters": sorted(run.parameters[name])},
            )

    def _is_routed(self, run: RunRecord, name: str) -> bool:
        """Return True if layers beside this one share the batch, as experts do.

        One of them may get it all: then their owner reads from its numbers which of them run.
        """
        beside = name.rpartition(".")[0]
        rows: dict[str, int] = {}
        for call in run.calls:
            if call.layer.rpartition(".")[0] == beside and call.given and call.given[0]:
                rows[call.layer] = rows.get(call.layer, 0) + call.given[0][0]
        counts = set(rows.values())
        if not (beside and counts):
            return False
        decided = bool({beside, beside.rpartition(".")[0]} & self.decided)
        return decided or len(counts) > 1 or max(counts) < run.samples


def _holds(module: nn.Module) -> bool:
    """Return True if a module has parameters itself."""
    return next(module.parameters(recurse=False), None) is not None


_ADVICE = {
    "routed": "No fix is needed if inputs are sent to only some of these layers: none was sent to "
    "this one.",
    "left out": "No fix is needed if layers are left out at random, for which this model draws "
    "numbers; else call it in forward.",
    "frozen": "No fix is needed if it is there for later use: its weights are frozen.",
    "unused": "Call it in forward, or remove it: its weights are never trained.",
}
