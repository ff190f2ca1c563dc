"""Dead, constant and silent channels: those that are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....hooking.weights import stored_tensor
from ....run.operations import BATCH_NORMS, RECTIFIERS
from ..check import Check, LayerCall, RunRecord
from ..examination import is_plain
from ..findings import Finding
from ..modules import next_to_zero, untrained_norms, zero_layers
from ..records import (
    MAPS,
    OUTSIDE,
    OperationRecord,
    RanOperation,
    channel_dimension,
    channel_ranges,
)
from ..uniform import uniform_values
from .zero_weights import VANISHING

MARGIN = 1.0
"""A channel that stays below zero by this many times its range is not silent by chance."""

FEW = 16
"""Fewer values of a channel, or fewer channels, show nothing, unless all channels are zero and the
model returns the same for inputs that differ."""


@dataclass(eq=False)
class Still:
    """The channels of an operation's output that are the same everywhere.

    Attributes
    ----------
    count, values : int
        The number of all channels, and of values in each.
    still, follows : torch.Tensor
        Masks of the channels that are one number everywhere, and of those that already were so
        in the operation's input.
    dead, constant : int
        The number of channels that are zero, or another number, everywhere.
    far : int
        The number of dead channels that stay far below zero before a rectifier.
    """

    count: int
    values: int
    still: Tensor
    follows: Tensor
    dead: int
    constant: int
    far: int

    def has(self, kind: str) -> int:
        """Return the number of channels that are so, without those that already were so before."""
        return (self.dead if kind == "dead" else self.constant) - int(self.follows.sum())


@dataclass
class SilentChannels(Check):
    """Report layers in which more than half of the channels are zero, or constant.

    If all are, the layers behind it can return nothing else and are not reported. Channels whose
    weights are next to zero are trained away; others may be silent on these inputs only.
    """

    looks_at = "dead and constant channels"
    operations = RECTIFIERS | MAPS

    found: dict[OperationRecord, Still] = field(default_factory=dict)
    differ: bool = False  # whether the first two samples do
    unmoved: bool = False  # whether the model returns the same for samples that differ

    def enter(self, call: LayerCall, given: list[Tensor], run: RunRecord) -> None:
        if call is run.calls[0]:
            batches = (each for each in given if each.ndim and len(each) == run.samples)
            self.differ = any(not _alike(each, 2) for each in batches if is_plain(each))

    def leave(self, call: LayerCall, returned: list[Tensor], run: RunRecord) -> None:
        if call is run.calls[0]:
            floating = (each for each in returned if each.is_floating_point() and each.numel())
            first = next(floating, None)
            if first is not None and first.shape[:1] == (run.samples,):
                self.unmoved = self.differ and is_plain(first) and _alike(first, len(first))

    def after(self, ran: RanOperation, run: RunRecord) -> None:
        record = ran.record
        if record.channels is None or record.layer == OUTSIDE:
            return  # a loss with a margin is 0 where the answers are beyond it
        least, most = record.channels
        still = least == most
        if not bool(still.any()) or (record.name in RECTIFIERS and record.made[0].low != 0):
            return
        count, zero = len(still), still & (least == 0)
        dead = int(zero.sum())
        far = 0
        if record.name in RECTIFIERS and dead > count / 2 and (before := _before(ran)) is not None:
            far = int((zero & far_below_zero(*before)).sum())
        self.found[record] = Still(
            count,
            ran.output.numel() // count,
            still,
            still & self._still_before(ran, still),
            dead,
            int(still.sum()) - dead,
            far,
        )

    def _still_before(self, ran: RanOperation, still: Tensor) -> Tensor:
        """Return which channels were one number before an operation that keeps them apart."""
        record, count = ran.record, len(still)
        apart = record.name in _BY_CHANNEL
        apart = apart and ran.operation.argument.get("groups", count) == count
        if apart and record.maker is not None:
            *_, source = record.maker.passed_on()
            before = self.found.get(source)
            if before is not None and before.count == count:
                return before.still
        return torch.zeros_like(still)

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        silent = set(zero_layers(run))
        uniform = uniform_values(run.operations)
        for record, channels in self.found.items():
            if record.of_zero_weights:
                continue
            follows = {record.maker_layer, uniform.begin(record).layer, record.layer} & silent
            if channels.dead + channels.constant == channels.count:
                silent.add(record.layer)
            few = channels.values < FEW
            if follows or (few and not (self.unmoved and channels.dead == channels.count)):
                continue
            for kind in ("dead",) if few else ("dead", "constant"):
                if channels.has(kind) > channels.count / 2:
                    yield self._finding(record, channels, kind, run)

    def _finding(
        self, record: OperationRecord, channels: Still, kind: str, run: RunRecord
    ) -> Finding:
        count = channels.dead if kind == "dead" else channels.constant
        away = min(_trained_away(record, channels.still, run), count)
        what = "zero" if kind == "dead" else "one number"
        inputs = f"{run.samples} input{'s' * (run.samples != 1)}"
        message = f"{count} of {channels.count} channels are {what} everywhere, over {inputs}"
        if channels.values < FEW:
            message += ", and the model returns the same for all of them"
        owner = record.maker_layer if record.name not in MAPS else ""
        severity, advice = "warning", _ADVICE[kind].format(owner or record.layer)
        judged = silence(
            count, channels.count, away, run.samples, _certain(record, channels, kind, run)
        )
        if judged == "dead" and count < channels.count and untrained_norms(run):
            judged = "silent"  # a BatchNorm that does not normalize yet shifts its inputs
        symptom = ""
        if judged == "trained away":
            severity = "note"
            message += f"; the weights of {away} of them are next to zero: they were trained away"
            advice = "No fix is needed; such channels could be pruned."
        elif judged == "silent":
            severity, kind = "note", "silent"
            advice = "Examine more and different inputs to see whether these channels ever respond."
        whole = severity == "warning" and count == channels.count
        return Finding(
            kind,
            severity,
            f"{message} ({channels.values} values in each channel).",
            advice,
            **record.place,
            evidence={
                "channels": count,
                "of": channels.count,
                "values": channels.values,
                "after": record.maker_layer,
            },
            cause=f"{kind} {severity} {record.name}",
            symptom=symptom,
            explains=VANISHING | {"flat batch"} if whole else frozenset(),
        )


def silence(count: int, channels: int, away: int, samples: int, certain: bool) -> str:
    """Judge a layer with channels that are the same everywhere, also for the explorer.

    Parameters
    ----------
    count, channels : int
        How many channels are so, and how many the layer has.
    away : int
        How many of them have weights next to zero.
    samples : int
        The number of inputs: a single one cannot show that a channel is dead.
    certain : bool
        True if the channels are unlikely to respond to other inputs.

    Returns
    -------
    str
        ``""`` up to half of the channels, else ``"trained away"``, ``"silent"``, on these inputs,
        or ``"dead"``.

    Examples
    --------
    >>> silence(40, 64, 0, 1, True), silence(40, 64, 0, 2, True), silence(40, 64, 30, 2, True)
    ('silent', 'dead', 'trained away')
    """
    if count <= channels / 2:
        return ""
    if count - away <= channels / 2:
        return "trained away"
    return "silent" if samples < 2 or not certain else "dead"


_BY_CHANNEL = {*RECTIFIERS, "convolution", *BATCH_NORMS}

_ADVICE = {
    "dead": "Initialise {!r} again with zero bias: no gradient reaches it, so it cannot recover. A "
    "smaller learning rate protects the other channels.",
    "constant": "Look at the weights of {!r}: they are zero, or far smaller than the bias.",
}


def _before(ran: RanOperation) -> tuple[Tensor, Tensor] | None:
    """Return the channels' ranges in a rectifier's input, which it may have overwritten."""
    maker = ran.record.maker
    if maker is not None and maker.channels is not None:
        return maker.channels
    if ran.record.overwrites:
        return None
    return channel_ranges(ran.given[0].detach(), channel_dimension(ran.given[0], maker))


def far_below_zero(least: Tensor, most: Tensor) -> Tensor:
    """Return the mask of channels that stay below zero by far more than they vary."""
    return most < -MARGIN * (most - least)


def _certain(record: OperationRecord, channels: Still, kind: str, run: RunRecord) -> bool:
    """Return True if the channels are unlikely to respond to other inputs."""
    if kind == "constant":
        return True
    if channels.values > run.samples and channels.far > channels.count / 2:
        return True
    return channels.dead == channels.count and (
        channels.count >= FEW or channels.far == channels.count or record.name in MAPS
    )


def _trained_away(record: OperationRecord, still: Tensor, run: RunRecord) -> int:
    """Count the silent channels that have a scale or a kernel next to zero."""
    last = {each.layer: each for each in run.operations if each.channels is not None}
    away = torch.zeros_like(still)
    name = record.layer if record.name in MAPS else record.maker_layer
    names: set[str] = set()
    while name and name not in names:
        names.add(name)
        module = run.modules.get(name)
        weight = stored_tensor(module, "weight") if module is not None else None
        if weight is not None and not weight.is_meta and len(weight) == len(still):
            away |= next_to_zero(weight).to(still.device)
        before = last.get(name)
        name = before.maker_layer if before is not None and before.name != "convolution" else ""
    return int((still & away).sum())


def _alike(batch: Tensor, count: int) -> bool:
    """Return True if the first ``count`` samples of a batch are equal."""
    first = batch.detach()[:count]
    return bool((first[:2] == first[:1]).all()) and bool((first == first[:1]).all())
