"""Layers that hooks cannot see."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ....hooking.select import type_name
from ....hooking.transforms import without
from ..check import Check, RunRecord
from ..findings import Finding, also
from ..modules import has_weights, outermost


class NotExamined(Check):
    """Note layers in TorchScript or torch.func, and those whose weights are read without a call."""

    live = True

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        if run.hidden_in:
            yield Finding(
                "not examined",
                "note",
                f"The model runs layers within {run.hidden_in}, which hides their values from "
                "hooks: these layers were not examined.",
                f"Run them {without(run.hidden_in)}.",
            )
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
        # `torch.func.functional_call` runs another module on the weights. Attention reads those of
        # its last layer, too, but is called itself.
        if run.error is not None or any(has_weights(call.module) for call in run.calls):
            return
        layers = [n for n, m in run.modules.items() if type(m).forward is not nn.Module.forward]
        if read := [name for name in layers if run.own_parameters(name) & run.used]:
            yield Finding(
                "not examined",
                "note",
                f"No layer was called: the model reads the weights of {read[0]!r} without calling "
                f"it, so that only operations were examined.{also(read[1:])}",
                "Call the layers in forward; of an ensemble in torch.vmap, examine one member.",
                read[0],
                layers=read,
            )
