"""Hooks that are set several times."""

from __future__ import annotations

from collections.abc import Iterator

from ...hook_table import hooks
from ..check import Check, RunRecord
from ..findings import Finding


class LeftoverHooks(Check):
    """Report the same hook set several times, as by a cell that was run again."""

    looks_at = "hooks on the model"
    live = True

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        # The table walks over all hooks: only if a module has two of a kind.
        if not any(len(getattr(m, held)) > 1 for m in run.model.modules() for held in _HELD):
            return
        repeated = hooks(run.model).repeated
        if not repeated:
            return
        first = repeated[0]
        others = len({(hook.layer, hook.kind, hook.function) for hook in repeated}) - 1
        more = f", and {others} more like it" if others else ""
        yield Finding(
            "hooks left behind",
            "warning",
            f"The {first.kind} hook {first.function} on {first.name} is set {first.times} times"
            f"{more}.",
            "If a cell that sets it was run again, remove them with "
            f"hookviz.remove_hooks(model, of={first.function!r}) and run the cell once; "
            "hookviz.hooks(model) lists all hooks.",
            first.layer,
            file=first.file,
            line=first.line or 0,
            evidence={"hooks": len(repeated)},
        )


_HELD = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
