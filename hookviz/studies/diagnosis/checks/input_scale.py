"""The scale of the input, compared with what the first BatchNorm saw in training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ....hooking.transforms import is_wrapped
from ....tables import number
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..modules import BEGUN
from ..ranges import Range
from .zero_weights import CONSTANT, VANISHING

SOME = 16
"""Number of equal values that cannot be a coincidence."""
SAMPLES = 8
"""This many samples show where a batch lies."""
SHIFT, SPREAD = 5.0, 10.0
"""The number of deviations, and the ratio of spreads, from which on a batch differs from what the
first BatchNorm saw in training: the right input is within 0.2 of it, pictures from 0 to 255 are
away by 47 and more."""
ALIVE = 0.1
"""A channel was trained away if its spread is below this fraction of that of most others."""

LARGE = VANISHING | {"exploding", "no slope", "saturated", "learning rate"}
"""The consequences of an input that is far too large."""


@dataclass
class InputScale(Check):
    """Compare the batch at the first BatchNorm with what it saw in training."""

    looks_at = "the scale of the input"
    live = True

    first: tuple[str, _BatchNorm] | None = None  # its name
    distance: tuple[float, float] | None = None  # its batch's

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        if self.first is None and isinstance(call.module, _BatchNorm):
            self.first = call.layer, call.module
            self.distance = distance_to(call.module, given)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        inputs = [each.made[0] for each in run.sources if each.name == "input"]
        flat = [each for each in inputs if each.finite and each.low == each.high]
        some = any(math.prod(each.shape) >= SOME for each in flat)
        if some and len(flat) == len(run.calls[0].given):  # indices have no range
            yield _blank(flat[0], run)
        elif self.first is not None and self.distance is not None:
            shift, spread = self.distance
            layer, module = self.first
            if is_off_scale(module, shift, spread, run.samples):
                extent = f" The input ranges from {inputs[0]}." if inputs else ""
                yield Finding(
                    "input scale",
                    "warning",
                    f"At the first BatchNorm, {layer!r}, the batch is {number(shift)} standard "
                    "deviations away from what it was in training, and its spread "
                    f"{number(spread)} times that of training.{extent}",
                    "Prepare the input as in training: pictures from 0 to 1 (x / 255), then the "
                    "same mean and standard deviation.",
                    layer,
                    evidence={"shift": shift, "spread": spread},
                    explains=LARGE,
                )


def distance_to(norm: _BatchNorm, given: list[Tensor]) -> tuple[float, float] | None:
    """Return how far a batch is from a BatchNorm's statistics: shift and spread.

    The shift is ``median |batch mean - mean| / deviation``, the spread ``median batch deviation /
    deviation``, over channels that vary at all; None if none does, or if it is not known.
    """
    mean, variance = norm.running_mean, norm.running_var
    batch = given[0] if given else None
    if not isinstance(mean, Tensor) or not isinstance(variance, Tensor) or batch is None:
        return None
    vary = variance >= norm.eps
    if batch.ndim < 2 or batch.shape[1] != len(mean) or is_wrapped(batch) or not bool(vary.any()):
        return None
    values = batch[:SAMPLES].detach().float()
    values = values.flatten(2) if batch.ndim > 2 else values[:, :, None]
    centre = values.mean((0, 2))
    spread = (values - centre[:, None]).square().mean((0, 2))
    deviation = variance[vary].sqrt()
    shifts, spreads = (centre - mean)[vary].abs() / deviation, spread[vary].sqrt() / deviation
    # An input on another scale changes the spread of all channels alike. Those that vary far less
    # than others were trained away since, and say nothing about the input.
    alive = spreads >= ALIVE * spreads.quantile(0.9)
    return shifts[alive].median().item(), spreads[alive].median().item()


def is_off_scale(norm: _BatchNorm, shift: float, spread: float, samples: int) -> bool:
    """Return True if a batch is not what the first BatchNorm saw in training."""
    count = norm.num_batches_tracked  # None in weights of old versions
    if isinstance(count, Tensor) and int(count) < (BEGUN if norm.training else 1):
        mean, variance = norm.running_mean, norm.running_var
        assert isinstance(mean, Tensor) and isinstance(variance, Tensor)
        if norm.training or not (bool(mean.any()) or bool((variance != 1).any())):
            return False
    small = 0 < spread < 1 / 30 and samples > 1
    return shift > SHIFT or spread > SPREAD or small


def _blank(given: Range, run: RunRecord) -> Finding:
    fault = run.judged and run.samples > 1
    return Finding(
        "input scale",
        "warning" if fault else "note",
        f"All numbers of the input are {number(given.low)}: every sample is the same, and each "
        "channel returns the same for it.",
        "Check how the data are loaded, or use an input of the kind that the model is for: this "
        "one shows little, and nothing is learned from it.",
        symptom="blank input",
        explains=CONSTANT | {"exploding"},
    )
