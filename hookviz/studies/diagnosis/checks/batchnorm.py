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
class Variance:
    """The channels of a BatchNorm with hardly any variance.

    Attributes
    ----------
    channels : torch.Tensor
        Their mask.
    least, eps : float
        The smallest variance, and what the layer adds to it.
    factor : float
        In eval mode: the largest root mean square of these channels' output.
    """

    channels: Tensor
    least: float
    eps: float
    factor: float = 0.0


@dataclass
class BatchNormVariance(Check):
    """Report BatchNorms that divide by hardly any variance.

    A channel that was trained away has none, neither in training nor now, and does no harm.
    """

    looks_at = "BatchNorm's variances"
    operations = BATCH_NORMS

    found: dict[OperationRecord, Variance] = field(default_factory=dict)

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        arguments, saved = ran.operation.argument, ran.operation.outputs[1:3]
        if ran.record.phase == "backward":
            return
        eps: float = arguments["eps" if "eps" in arguments else "epsilon"]
        running = arguments.get("running_var")
        if uses_running_statistics(ran.record.name, arguments) and running is not None:
            small = running < eps
            if bool(small.any()):
                values = ran.given[0].detach().movedim(1, 0).flatten(1).float()
                away = values[small] - arguments["running_mean"][small, None]
                factors = (away.square().mean(1) / (running[small] + eps)).sqrt()
                limit = torch.where(running[small] < NONE, BLOWN, 5 * BLOWN)
                channels = small.clone()
                channels[small] = factors > limit
                least, factor = running.min().item(), factors.max().item()
                self.found[ran.record] = Variance(channels, least, eps, factor)
        elif len(saved) == 2 and saved[1].numel():
            mean, scale = saved
            variance = scale.double() ** -2 - eps  # torch keeps 1 / sqrt(variance + eps)
            flat = variance < FLAT + 0.1 * FLAT * mean.double() ** 2
            if bool(flat.any()):
                least = max(variance.min().item(), 0.0)
                self.found[ran.record] = Variance(flat, least, eps)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        for record, variance in self.found.items():
            count, channels = int(variance.channels.sum()), len(variance.channels)
            if not count or record.maker_layer in run.zero_layers:
                continue
            named = f"{count} of {channels} channels of BatchNorm {record.layer!r}"
            away = run.trained_away(record.maker, variance.channels)
            if variance.factor:
                yield Finding(
                    "batchnorm",
                    "warning",
                    f"{named} had hardly any variance in training ({number(variance.least)}) and "
                    f"vary in this batch: its output is up to {number(variance.factor)} times too "
                    "large.",
                    "Load its statistics, or compute them again: reset_running_stats(), then run "
                    "training batches in training mode.",
                    record.layer,
                    record.call,
                    evidence={"channels": count, "of": channels, "factor": variance.factor},
                    cause="blown up",
                    explains=frozenset({"no slope", "saturated"}),
                )
                continue
            whole = count - away > channels / 2
            why = "it amplifies rounding errors" if whole else "they were trained away"
            yield Finding(
                "batchnorm",
                "warning" if whole and run.samples > 1 else "note",
                f"{named} are the same everywhere in this batch (variance "
                f"{number(variance.least)}, eps {variance.eps:g}): {why}.",
                f"Look at {record.maker_layer!r}, which returns the same for every input."
                if whole
                else "No fix is needed; such channels could be pruned.",
                record.layer,
                record.call,
                evidence={"channels": count, "of": channels, "variance": variance.least},
                cause="flat" if whole else "trained away",
                symptom="flat batch" if whole else "batchnorm",
            )
