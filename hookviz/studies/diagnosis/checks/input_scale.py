"""The scale of the input, compared with what the first BatchNorm saw in training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ....hooking.transforms import is_wrapped
from ....tables import number
from ..check import Check, LayerCall, RunRecord
from ..findings import Finding
from ..records import Range, is_batchnorm
from .zero_weights import CONSTANT, VANISHING

SOME = 16
"""This many numbers of an input are not equal by chance."""
SAMPLES = 8
"""This many samples show where a batch lies."""
SHIFT, SPREAD = 5.0, 10.0
"""The number of deviations, and the ratio of spreads, from which on a batch differs from what the
first BatchNorm saw in training: the right input is within 0.2 of it, pictures from 0 to 255 are
away by 47 and more."""
ALIVE = 0.1
"""A channel was trained away if its spread is below this fraction of that of most others."""
BATCHES = 20
"""The number of batches after which a BatchNorm's statistics say something about training."""

LARGE = VANISHING | {"exploding", "no slope", "saturated", "learning rate"}
"""The consequences of an input that is far too large."""


@dataclass
class InputScale(Check):
    """Compare the batch at the first BatchNorm with what it saw in training."""

    looks_at = "the scale of the input"
    live = True

    first: LayerCall | None = None  # that of a BatchNorm
    distance: Tensor | None = None  # its batch's, (2,)

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        if self.first is None and isinstance(call.module, _BatchNorm):
            self.first, self.distance = call, distance_to(call.module, given)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        inputs = [each.made[0] for each in run.sources if each.name == "input"]
        given = next(iter(inputs), None)
        flat = bool(inputs) and all(each.finite and each.low == each.high for each in inputs)
        flat = flat and len(inputs) == len(run.calls[0].given)  # indices have no range
        if given is not None and flat and any(_size(each) >= SOME for each in inputs):
            yield _blank(given, run)
        elif self.first is None:
            yield from _bytes(run, given)
        elif self.distance is not None:
            shift, spread = self.distance.tolist()
            extent = f" The input ranges from {given}." if given is not None else ""
            module, layer = self.first.module, self.first.layer
            yield from off_scale(module, layer, shift, spread, run.samples, extent)


def distance_to(norm: nn.Module, given: list[Tensor]) -> Tensor | None:
    """Return a batch's distance from a BatchNorm's statistics, ``(2,)``; None if unknown."""
    mean, variance = norm.running_mean, norm.running_var
    batch = given[0] if given else None
    if not isinstance(mean, Tensor) or not isinstance(variance, Tensor) or batch is None:
        return None
    if batch.ndim < 2 or batch.shape[1] != len(mean) or is_wrapped(batch):
        return None
    with torch.no_grad():
        return away_from(*moments(batch), mean, variance, float(norm.eps))  # type: ignore[arg-type]


def _size(extent: Range) -> int:
    return torch.Size(extent.shape).numel()


def _blank(given: Range, run: RunRecord) -> Finding:
    fault = run.judged and run.samples > 1
    return Finding(
        "input scale",
        "warning" if fault else "note",
        f"All numbers of the input are {number(given.low)}: every sample is the same, and each "
        "channel returns the same for it.",
        "Check how the data are loaded: the model learns nothing from this."
        if fault
        else "Use an input of the kind that the model is for: this one shows little.",
        symptom="blank input",
        explains=CONSTANT | {"exploding"},
    )


def off_scale(
    module: nn.Module, layer: str, shift: float, spread: float, samples: int, extent: str = ""
) -> Iterator[Finding]:
    """Report a batch that is not what the first BatchNorm saw in training."""
    count = getattr(module, "num_batches_tracked", None)
    early = count is not None and int(count) < (BATCHES if module.training else 1)
    if early and not module.training:  # old weights have no count
        mean, variance = module.running_mean, module.running_var
        early = isinstance(mean, Tensor) and isinstance(variance, Tensor) and not bool(mean.any())
        early = early and bool((variance == 1).all())  # type: ignore[union-attr]
    small = 0 < spread < 1 / 30 and samples > 1
    if early or not samples or (shift <= SHIFT and spread <= SPREAD and not small):
        return
    yield Finding(
        "input scale",
        "warning",
        f"At the first BatchNorm, {layer!r}, the batch is {number(shift)} standard deviations away "
        f"from what it was in training, and its spread {number(spread)} times that of training."
        f"{extent}",
        "Prepare the input as in training: pictures from 0 to 1 (x / 255), then the same mean "
        "and standard deviation.",
        layer,
        evidence={"shift": shift, "spread": spread},
        explains=LARGE,
    )


def _bytes(run: RunRecord, given: Range | None) -> Iterator[Finding]:
    """Report pictures from 0 to 255 if no BatchNorm tells what training had."""
    pictures = given is not None and len(given.shape) == 4 and given.shape[1] in (1, 3, 4)
    if given is None or not pictures or not (given.low >= 0 and 128 <= given.high <= 255):
        return
    if run.error is None and not any(is_batchnorm(each) for each in run.operations):
        yield Finding(
            "input scale",
            "note",
            f"The input ranges from {given}, like pictures stored as bytes.",
            "No fix is needed if training used the same range; most networks expect pictures from "
            "0 to 1, x / 255.",
        )


def moments(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each channel of a batch's first samples, ``(C,)`` each."""
    values = batch[:SAMPLES].detach().float()
    values = values.flatten(2) if batch.ndim > 2 else values[:, :, None]
    mean = values.mean((0, 2))
    return mean, (values - mean[:, None]).square().mean((0, 2))


def away_from(
    centre: Tensor, spread: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> Tensor | None:
    """Return how far a batch is from running statistics, ``(2,)``: shift and spread.

    The shift is ``median |batch mean - mean| / deviation``, the spread ``median batch deviation /
    deviation``, over channels that vary at all; None if none does.
    """
    vary = variance >= eps
    if not bool(vary.any()):
        return None
    deviation = variance[vary].sqrt()
    shifts, spreads = (centre - mean)[vary].abs() / deviation, spread[vary].sqrt() / deviation
    # An input on another scale changes the spread of all channels alike. Those that vary far less
    # than others were trained away since, and say nothing about the input.
    alive = spreads >= ALIVE * spreads.quantile(0.9)
    return torch.stack([shifts[alive].median(), spreads[alive].median()])
