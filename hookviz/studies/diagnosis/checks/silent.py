"""Dead, constant and silent channels: those that are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from ....run.operations import BATCH_NORMS, RECTIFIERS, Kind
from ....run.recorder import Operation
from ..check import Check, RunRecord
from ..findings import Finding
from ..modules import untrained_norms
from ..ranges import channel_ranges
from ..records import MAPS, OUTSIDE, OperationRecord, channel_dimension
from .zero_weights import VANISHING

MARGIN = 1.0
"""A channel that stays below zero by this many times its range is not silent by chance."""

FEW = 16
"""Fewer values of a channel, or fewer channels, show nothing."""


@dataclass(eq=False)
class Still:
    """The channels of an operation's output that are the same everywhere, as masks.

    Attributes
    ----------
    values : int
        The number of values in each channel.
    still, dead : torch.Tensor
        Channels that are one number everywhere; and of these, the ones that are zero.
    follows : int
        The number of channels that already were so in the operation's input.
    far : int
        The number of dead channels that stay far below zero before a rectifier.
    """

    values: int
    still: Tensor
    dead: Tensor
    follows: int
    far: int


@dataclass
class SilentChannels(Check):
    """Report layers in which more than half of the channels are zero, or constant.

    If all are, the layers behind it can return nothing else and are not reported. Channels whose
    weights are next to zero are trained away; others may be silent on these inputs only.
    """

    looks_at = "dead and constant channels"
    operations = RECTIFIERS | MAPS

    found: dict[OperationRecord, Still] = field(default_factory=dict)

    def after(
        self, operation: Operation, record: OperationRecord, given: list[Tensor], run: RunRecord
    ) -> None:
        if record.channels is None or record.layer == OUTSIDE or not record.finite:
            return  # a loss with a margin is 0 where the answers are beyond it
        before = record.maker.made if record.maker is not None else ()
        if before and before[0].dtype.is_complex and not given[0].is_complex():
            return  # torch convolves the parts of complex numbers; the imaginary one may be zero
        least, most = record.channels
        still = least == most
        rectifies = record.name in RECTIFIERS
        if not bool(still.any()) or (rectifies and record.made[0].low != 0):
            return
        dead = still & (least == 0)
        far = (
            _far_below(record, given[0], dead) if rectifies and _most(int(dead.sum()), dead) else 0
        )
        values = operation.outputs[0].numel() // len(still)
        self.found[record] = Still(
            values, still, dead, self._follows(operation, record, still), far
        )

    def _follows(self, operation: Operation, record: OperationRecord, still: Tensor) -> int:
        """Count the channels that were one number before an operation that keeps them apart."""
        count = len(still)
        apart = record.name in {*RECTIFIERS, "convolution", *BATCH_NORMS}
        if apart and operation.argument.get("groups", count) == count and record.maker:
            *_, source = record.maker.passed_on()
            before = self.found.get(source)
            if before is not None and len(before.still) == count:
                return int((still & before.still).sum())
        return 0

    def findings(self, run: RunRecord) -> Iterator[Finding]:
        silent = set(run.zero_layers)
        for record, channels in self.found.items():
            if record.of_zero_weights:
                continue
            # A state that begins at zero is the same everywhere, as is what a layer makes of it.
            begins = record.maker is not None and record.maker.kind is Kind.FACTORY
            follows = begins or record.layer in silent or _is_made_by(record.maker, silent)
            if bool(channels.still.all()):
                silent.add(record.layer)
            if follows or channels.values < FEW:
                continue
            dead = int(channels.dead.sum())
            for kind, count in (("dead", dead), ("constant", int(channels.still.sum()) - dead)):
                if _most(count - channels.follows, channels.still):
                    yield _finding(record, channels, kind, count, run)


def _is_made_by(record: OperationRecord | None, layers: set[str]) -> bool:
    """Return True if these layers made all values of an operation that passes or adds them up."""
    for each in record.passed_on() if record is not None else ():
        if each.layer in layers:
            return True
        if each.name == "add":
            return all(_is_made_by(maker, layers) for maker in each.makers)
    return False


def _most(count: int, mask: Tensor) -> bool:
    return count > len(mask) / 2


def _finding(
    record: OperationRecord, channels: Still, kind: str, count: int, run: RunRecord
) -> Finding:
    away = min(run.trained_away(record, channels.still), count)
    of = len(channels.still)
    # Whether the channels are unlikely to respond to other inputs.
    certain = kind == "constant" or (channels.values > run.samples and channels.far > of / 2)
    certain |= count == of and (of >= FEW or channels.far == of or record.name in MAPS)
    judged = silence(count, of, away, run.samples, certain)
    owner = record.layer if record.name in MAPS else record.maker_layer or record.layer
    # A BatchNorm that does not normalize yet shifts its inputs, or lets them vanish behind a bias.
    new = untrained_norms(run.names) if kind == "constant" or count < of else ""
    if new and judged != "trained away":
        judged, advice = "silent", new
    else:
        advice = _ADVICE[kind if judged == "dead" else judged].format(
            repr(owner) if owner else "the layers before it"
        )
    kind = "silent" if judged == "silent" and kind == "dead" else kind
    severity = "warning" if judged == "dead" else "note"
    near = f"; the weights of {away} of them are next to zero" if away else ""
    return Finding(
        kind,
        severity,
        f"{count} of {of} channels are {'one number' if kind == 'constant' else 'zero'} everywhere "
        f"({channels.values} values in each channel), over {run.samples} "
        f"input{'s' * (run.samples != 1)}{near}.",
        advice,
        **record.place,
        evidence={"channels": count, "of": of, "values": channels.values},
        cause=f"{kind} {severity} {record.name}",
        explains=VANISHING if judged == "dead" and count == of else frozenset(),
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


_ADVICE = {
    "dead": "Initialise {} again with zero bias: no gradient reaches it, so it cannot recover. A "
    "smaller learning rate protects the other channels.",
    "constant": "Look at the weights of {}: they are zero, or far smaller than the bias.",
    "trained away": "No fix is needed: these channels were trained away, and could be pruned.",
    "silent": "Examine more and different inputs to see whether these channels ever respond.",
}


def _far_below(record: OperationRecord, given: Tensor, dead: Tensor) -> int:
    """Count the dead channels that stay below zero by far more than they vary."""
    maker = record.maker
    if maker is not None and maker.channels is not None:
        least, most = maker.channels
    elif record.overwrites:
        return 0
    else:
        given = given.detach()
        least, most = channel_ranges(given, channel_dimension(given, maker))
    return int((dead & (most < -MARGIN * (most - least))).sum())
