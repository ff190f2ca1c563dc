"""Layers that never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import has_weights, outermost


class Unused(Check):
    """Report layers with weights that never ran, and whose weights nothing read."""

    looks_at = "layers that never ran"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.error is not None:
            return
        ran = {call.module for call in run.calls}
        # A container may hold layers that have other names, too, under which they ran.
        idle = [
            name
            for module, name in run.names.items()
            if module not in ran and not run.parameters[name] & run.used
            if any(each not in ran and has_weights(each) for each in module.modules())
        ]
        for name in outermost(idle):
            module = run.modules[name]
            # Experts to which nothing was sent, and layers that are left out at random.
            meant = _is_routed(run, name) or (run.root.training and run.drew)
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


def _is_routed(run: RunRecord, name: str) -> bool:
    """Return True if layers beside this one share the batch, as experts do."""
    beside = name.rpartition(".")[0]
    rows = Counter[str]()
    for call in run.calls:
        if beside and call.layer.rpartition(".")[0] == beside and call.given and call.given[0]:
            rows[call.layer] += call.given[0][0]
    counts = set(rows.values())
    return len(counts) > 1 or (bool(counts) and max(counts) < run.samples)
