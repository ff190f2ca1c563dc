"""Hooks that are on the model."""

from __future__ import annotations

from collections.abc import Iterator

from ...hook_table import HookTable, hooks
from ..check import Check, RunRecord
from ..findings import Finding


class LeftoverHooks(Check):
    """Report the same hook set several times, as by a cell that ran again; note other hooks."""

    looks_at = "hooks on the model"
    live = True

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        counts = [len(getattr(module, held)) for module in run.names for held in _HELD]
        if max(counts, default=0) < (2 if run.watched else 1):
            return  # the table walks over all hooks
        found = hooks(run.model)
        repeated = found.repeated
        if repeated:
            yield _finding(repeated, "warning", f"is set {repeated[0].times} times")
        single = HookTable([hook for hook in found.removable if not hook.repeated], "")
        if single and not run.watched:
            yield _finding(single, "note", "runs with the model")


def _finding(found: HookTable, severity: str, what: str) -> Finding:
    first = found[0]
    others = len({(hook.layer, hook.kind, hook.function) for hook in found}) - 1
    more = f", and {others} more like it" if others else ""
    return Finding(
        "hooks left behind",
        severity,
        f"The {first.kind} hook {first.function} on {first.name} {what}{more}.",
        f"If a cell that ran earlier left it, call hookviz.remove_hooks(model, "
        f"of={first.function!r}); hookviz.hooks(model) lists all hooks.",
        first.layer,
        file=first.file,
        line=first.line or 0,
        evidence={"hooks": len(found)},
    )


_HELD = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
