"""BatchNorm layers that divide by hardly any variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....run.operations import BATCH_NORMS, uses_running_statistics
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OperationRecord, RanOperation

FLAT = 1e-9
"""Below it, or below a tenth of it times the squared mean, a variance is rounding errors."""

BLOWN, NONE = 20.0, 1e-8
"""Root mean square, 1 is expected, above which a BatchNorm's output is too large if there was no
variance in training. A channel for rare things has some, and reaches 13 in EfficientNet-Lite0 on a
cat."""


@dataclass
class BatchNormVariance(Check):
    """Report BatchNorms that divide by hardly any variance.

    A channel that was trained away has none, neither in training nor now, and does no harm.
    """

    looks_at = "BatchNorm's variances"
    operations = BATCH_NORMS

    #: Channels that vary now and did not in training, and the largest root mean square of their
    #: output; and channels that do not vary in this batch.
    blown: dict[OperationRecord, tuple[Tensor, float]] = field(default_factory=dict)
    flat: dict[OperationRecord, Tensor] = field(default_factory=dict)

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        arguments, saved = ran.operation.argument, ran.operation.outputs[1:3]
        if ran.record.phase == "backward":
            return
        eps: float = arguments["eps" if "eps" in arguments else "epsilon"]
        running = arguments.get("running_var")
        if uses_running_statistics(ran.record.name, arguments) and running is not None:
            channels = running < eps
            if bool(channels.any()):
                variance = running[channels]
                values = ran.given[0].detach().movedim(1, 0).flatten(1).float()[channels]
                away = values - arguments["running_mean"][channels, None]
                factors = (away.square().mean(1) / (variance + eps)).sqrt()
                channels[channels.clone()] = factors > torch.where(
                    variance < NONE, BLOWN, 5 * BLOWN
                )
                self.blown[ran.record] = channels, factors.max().item()
        elif len(saved) == 2 and saved[1].numel():
            mean, scale = (each.double() for each in saved)
            variance = scale**-2 - eps  # torch keeps 1 / sqrt(variance + eps)
            self.flat[ran.record] = variance < FLAT + 0.1 * FLAT * mean**2

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for record, (blown, factor) in self.blown.items():
            if bool(blown.any()) and record.maker_layer not in run.zero_layers:
                yield _finding(
                    record,
                    blown,
                    f"had hardly any variance in training, and vary in this batch: its output is "
                    f"up to {number(factor)} times too large",
                    "Load its statistics, or compute them again: reset_running_stats(), then run "
                    "training batches in training mode.",
                    explains=frozenset({"no slope", "saturated"}),
                )
        for record, flat in self.flat.items():
            if not bool(flat.any()) or record.maker_layer in run.zero_layers:
                continue
            away = run.trained_away(record.maker, flat)
            whole = int(flat.sum()) - away > len(flat) / 2
            yield _finding(
                record,
                flat,
                f"are the same everywhere in this batch, and it amplifies rounding errors; {away} "
                "of them were trained away",
                f"Look at {record.maker_layer!r}, which returns the same for every input."
                if whole
                else "No fix is needed; such channels could be pruned.",
                "warning" if whole and run.samples > 1 else "note",
                symptom="flat batch" if whole else "batchnorm",
            )


def _finding(
    record: OperationRecord,
    channels: Tensor,
    words: str,
    advice: str,
    severity: str = "warning",
    symptom: str = "",
    explains: frozenset[str] = frozenset(),
) -> Finding:
    count, of = int(channels.sum()), len(channels)
    return Finding(
        "batchnorm",
        severity,
        f"{count} of {of} channels of BatchNorm {record.layer!r} {words}.",
        advice,
        record.layer,
        record.call,
        evidence={"channels": count, "of": of},
        cause=symptom or "blown up",
        symptom=symptom,
        explains=explains,
    )
