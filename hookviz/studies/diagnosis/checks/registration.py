"""Weights that are not in the model's parameters, and modules under several names."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from ....run.operations import LAYER_KINDS
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import plain_values
from ..records import OUTSIDE, OperationRecord
from .optimizer import MADE


class NotRegistered(Check):
    """Report weights that the model reads and that are not in its ``parameters()``."""

    looks_at = "weights that are in no module"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        forward = [e for e in run.operations if e.layer != OUTSIDE and e.phase == "forward"]
        made_here = {each.line: each for each in forward[::-1] if each.loose}
        for made in reversed(made_here.values()):
            yield Finding(
                "not registered",
                "warning",
                "This line makes a layer in every forward: its weights are new random numbers each "
                "time, and no optimizer trains them.",
                "Make the layer once, in __init__, and call it in forward.",
                **made.place,
                explains=frozenset({MADE}),
            )
        found = set[OperationRecord]()
        for record in forward:
            for source in record.makers:
                if source is None or source.index >= 0 or source in found:
                    continue
                plain = source.stored and source.matrix and record.kind in LAYER_KINDS
                if not (plain or source.loose):
                    continue
                found.add(source)
                tensor = f" of the plain tensor {source.stored}" if source.stored else ""
                yield Finding(
                    "not registered",
                    "warning",
                    f"{record.name} reads weights{tensor} that are not in "
                    f"model.parameters(){_CONSEQUENCE}",
                    _FIX,
                    **record.place,
                    evidence={"weights": source.stored},
                    cause="not registered",
                )


def in_plain_lists(run: RunRecord, parameters: set[int]) -> Iterator[Finding]:
    """Report the layers whose plain attributes hold some parameters, given by their ids."""
    for module, layer in run.names.items():
        for name, value in plain_values(module):
            held = [value] if isinstance(value, nn.Parameter) else []
            if isinstance(value, nn.Module):
                held = [*value.parameters()]
            if parameters & set(map(id, held)):
                yield Finding(
                    "not registered",
                    "warning",
                    f"{name!r} of {layer or 'the model'!r} holds weights that are not in "
                    f"model.parameters(){_CONSEQUENCE}",
                    _FIX,
                    layer,
                    cause=name,
                )


_CONSEQUENCE = ": no optimizer trains them, and neither state_dict() nor to(device) includes them."
_FIX = (
    "Put layers into nn.ModuleList instead of a list or dict; store a tensor as "
    "nn.Parameter(tensor), or with register_buffer(name, tensor) if it should not learn."
)


class OneModule(Check):
    """Report a module that stands several times in a list, as ``[block] * 4`` makes it."""

    looks_at = "modules under several names"
    live = True

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for name, owner in run.root.named_modules():
            if not isinstance(owner, (nn.Sequential, nn.ModuleList)):
                continue
            positions: dict[nn.Module, list[str]] = {}
            for position, module in owner._modules.items():
                if module is not None:
                    full = f"{name}.{position}" if name else position
                    positions.setdefault(module, []).append(full)
            for module, names in positions.items():
                if len(names) > 1 and next(module.parameters(), None) is not None:
                    yield Finding(
                        "one module",
                        "warning",
                        f"{', '.join(map(repr, names[:4]))}{' …' * (len(names) > 4)} are one "
                        f"{type(module).__name__} under {len(names)} names: they share weights.",
                        "Make a new one each time: [make() for _ in range(n)] instead of "
                        "[block] * n.",
                        names[0],
                        layers=names,
                    )
