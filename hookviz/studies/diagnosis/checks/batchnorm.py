"""BatchNorm layers that divide by hardly any variance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....run.operations import BATCH_NORMS, uses_running_statistics
from ....run.recorder import Operation
from ....tables import number
from ..check import Check, RunRecord
from ..findings import Finding
from ..records import OperationRecord

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

    #: How many channels of how many vary now and did not in training, and the largest root mean
    #: square of their output.
    blown: dict[OperationRecord, tuple[int, int, float]] = field(default_factory=dict)

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        arguments = operation.argument
        running = arguments.get("running_var")
        used = uses_running_statistics(record.name, arguments)
        if not record.finite or not used or running is None:
            return
        eps: float = arguments["eps" if "eps" in arguments else "epsilon"]
        channels = running < eps
        if bool(channels.any()):
            variance = running[channels]
            values = given[0].detach().movedim(1, 0).flatten(1).float()[channels]
            away = values - arguments["running_mean"][channels, None]
            factors = (away.square().mean(1) / (variance + eps)).sqrt()
            count = int((factors > torch.where(variance < NONE, BLOWN, 5 * BLOWN)).sum())
            if count:
                self.blown[record] = count, len(running), factors.max().item()

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for record, (count, of, factor) in self.blown.items():
            if record.maker_layer not in run.zero_layers:
                yield Finding(
                    "batchnorm",
                    "warning",
                    f"{count} of {of} channels of BatchNorm {record.layer!r} had hardly any "
                    "variance in training, and vary in this batch: its output is up to "
                    f"{number(factor)} times too large.",
                    "Load its statistics, or compute them again: reset_running_stats(), then run "
                    "training batches in training mode.",
                    record.layer,
                    record.call,
                    evidence={"channels": count, "of": of},
                    cause="blown up",
                    explains=frozenset({"no slope", "saturated"}),
                )
