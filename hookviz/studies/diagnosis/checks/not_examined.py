"""Layers that hooks cannot see."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ....hooking.select import type_name
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import outermost


class NotExamined(Check):
    """Note the modules that TorchScript runs."""

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        scripted = (n for n, m in run.modules.items() if isinstance(m, torch.jit.ScriptModule))
        for name in outermost(scripted):
            yield Finding(
                "not examined",
                "note",
                f"Layer {name!r} ({type_name(run.modules[name])}) is a ScriptModule, which runs "
                "outside Python: its layers were not examined.",
                "Examine the eager model that was scripted.",
                name,
                cause="ScriptModule",
            )
