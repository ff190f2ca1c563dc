"""Layers that act differently in training mode and in eval mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ....run.recorder import Operation
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..records import OperationRecord
from .zero_weights import CONSTANT

ACTING = (_BatchNorm, _DropoutNd)
_KINDS = {"batchnorm": _BatchNorm, "dropout": _DropoutNd}
_DROPOUTS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)


@dataclass
class OtherMode(Check):
    """Report single BatchNorms and dropouts in another mode than the model."""

    looks_at = "BatchNorm and dropout in another mode than the model"
    live = True

    #: The names of the layers that ran, and whether they are in another mode than the model.
    modes: dict[nn.Module, tuple[str, bool]] = field(default_factory=dict)

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        if isinstance(call.module, ACTING) and getattr(call.module, "p", True):
            other = call.module.training != run.root.training
            self.modes.setdefault(call.module, (call.layer, other))

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for kind, types in _KINDS.items():
            layers = [each for m, each in self.modes.items() if isinstance(m, types)]
            names = [name for name, differs in layers if differs]
            if names:
                training = run.root.training
                mode, other = ("training", "eval") if training else ("eval", "training")
                yield Finding(
                    kind,
                    "note" if training else "warning",
                    f"The model is in {mode} mode, but {len(names)} of its {len(layers)} {kind} "
                    f"layers are in {other} mode, such as {names[0]!r}.",
                    "No fix is needed if they should stay unchanged; else call model.train()."
                    if training
                    else "Call model.eval() after the layers were added: else the output depends "
                    "on chance, or on the other samples.",
                    names[0],
                    layers=names,
                    symptom="mode",
                )


@dataclass
class Dropout(Check):
    """Report a dropout function that drops in eval mode, and a dropout of everything."""

    looks_at = "dropout functions in eval mode, and a dropout of everything"
    operations = tuple(f"F.{name}" for name in _DROPOUTS)

    found: dict[str, OperationRecord] = field(default_factory=dict)  # by layer

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        arguments = operation.variables
        if arguments.get("training") and arguments.get("p") == 1:
            self.found.setdefault(record.layer, record)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for record in self.found.values():
            yield Finding(
                "dropout",
                "warning",
                "Dropout with p=1 sets all values to zero in training: p is the probability of "
                "dropping a value, not of keeping it.",
                "Use a p below 1, such as nn.Dropout(0.5).",
                **{**record.place, "operation": "dropout"},
                explains=CONSTANT | {"factor of 0"},
            )
        drops = (each for each in run.operations if each.name in ("dropout", "bernoulli"))
        own = (e for e in drops if not isinstance(run.modules.get(e.layer), _DropoutNd))
        if not run.root.training and (dropping := next(own, None)) is not None:
            yield Finding(
                "dropout",
                "warning",
                "The model is in eval mode, but a dropout function drops values: the output "
                "differs from run to run.",
                "Pass it training=self.training, or use nn.Dropout.",
                **dropping.place,
            )


class TrainingMode(Check):
    """Note that the model is in training mode, in which its output is not that of eval mode."""

    looks_at = "the mode"

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        acting = (m for m in run.names if m.training and isinstance(m, ACTING))
        kinds = Counter(type(module).__name__ for module in acting)
        if run.root.training and kinds:
            counts = " and ".join(f"{count} {name}" for name, count in kinds.items())
            yield Finding(
                "training mode",
                "note",
                f"The model was examined in training mode, with {counts}; explore, heatmap and "
                "trace show it in eval mode, in which its output is different.",
                "Call model.eval() first to examine what is shown and deployed.",
            )
