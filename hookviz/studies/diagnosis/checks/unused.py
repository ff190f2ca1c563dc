"""Layers that never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import Tensor, nn

from ....run.recorder import Operation
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import has_weights, outermost
from ..records import OperationRecord

READS = frozenset(("local_scalar_dense", "nonzero"))
"""The operations that give numbers of a tensor to Python, as for an ``if``, and a mask's places."""


class Unused(Check):
    """Report layers with weights that never ran, and whose weights nothing read."""

    looks_at = "layers that never ran"
    operations = READS

    def __init__(self) -> None:
        self._reads: list[OperationRecord] = []
        self._left: set[nn.Module] = set()

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        # A layer that forward has replaced by a new one is not idle: see `NotRegistered`.
        if call.module is run.root:
            self._left = {*run.root.modules()}

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        self._reads.append(record)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        left = self._left - {call.module for call in run.calls}
        # A container may hold layers that have other names, too, under which they ran.
        idle = [
            name
            for module, name in run.names.items()
            if module in left and not run.parameters[name] & run.used
            if any(each in left and has_weights(each) for each in module.modules())
        ]
        for name in outermost(idle):
            module = run.modules[name]
            # Experts to which nothing was sent, layers behind an early exit, one of several by its
            # key, and layers that are left out at random.
            chosen = self._is_chosen(name) or _is_routed(run, name) or _is_by_key(run, name, left)
            meant = chosen or (run.root.training and run.drew)
            frozen = not any(p.requires_grad for p in module.parameters())
            yield Finding(
                "unused",
                "note" if meant or frozen or not run.root.training else "warning",
                f"Layer {name!r} ({type(module).__name__}) never ran, and nothing read its "
                "weights.",
                "Call it in forward, or remove it: its weights are never trained. No fix is needed "
                "if inputs are sent to only some layers, or it is there for later use.",
                name,
                cause="unused",
                evidence={"parameters": sorted(run.parameters[name])},
            )

    def _is_chosen(self, name: str) -> bool:
        """Return True if the code around a layer read numbers that other layers computed."""
        around = (e for e in self._reads if not e.layer or name.startswith(f"{e.layer}."))
        return any(map(_is_of_weights, around))


def _is_of_weights(record: OperationRecord) -> bool:
    """Return True if an operation's values are computed with weights."""
    queue, seen = [record], {record}
    while queue:
        makers = {maker for maker in queue.pop().makers if maker is not None}
        if any(maker.name == "weights" for maker in makers):
            return True
        queue += makers - seen
        seen |= makers
    return False


def _is_routed(run: RunRecord, name: str) -> bool:
    """Return True if layers beside this one share the batch, as experts do."""
    beside = name.rpartition(".")[0]
    rows = Counter[str]()
    for call in run.calls:
        if beside and call.layer.rpartition(".")[0] == beside and call.given and call.given[0]:
            rows[call.layer] += call.given[0][0]
    counts = set(rows.values())
    return len(counts) > 1 or (bool(counts) and max(counts) < run.samples)


def _is_by_key(run: RunRecord, name: str, left: set[nn.Module]) -> bool:
    """Return True if exactly one layer ran of a dict of them: forward took it by its key."""
    parent = run.modules.get(name.rpartition(".")[0])
    return isinstance(parent, nn.ModuleDict) and sum(m not in left for m in parent.children()) == 1
