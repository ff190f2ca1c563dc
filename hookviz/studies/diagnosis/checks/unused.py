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
            why = "unused"
            if _is_routed(run, name):
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


def _is_routed(run: RunRecord, name: str) -> bool:
    """Return True if layers beside this one share the batch, as experts do."""
    beside = name.rpartition(".")[0]
    rows = Counter[str]()
    for call in run.calls:
        if beside and call.layer.rpartition(".")[0] == beside and call.given and call.given[0]:
            rows[call.layer] += call.given[0][0]
    counts = set(rows.values())
    return len(counts) > 1 or (bool(counts) and max(counts) < run.samples)


_ADVICE = {
    "routed": "No fix is needed if inputs are sent to only some of these layers: none was sent to "
    "this one.",
    "left out": "No fix is needed if layers are left out at random, for which this model draws "
    "numbers; else call it in forward.",
    "frozen": "No fix is needed if it is there for later use: its weights are frozen.",
    "unused": "Call it in forward, or remove it: its weights are never trained.",
}
