"""The operations of an examined run: place, values' ranges, overwritten inputs, and facts.

Facts about an operation's values are noted while these are at hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...run.errors import line_of, message_of
from ...run.operations import BATCH_NORMS, LAYER_KINDS, RECTIFIERS, UNINITIALIZED, Kind
from ...run.recorder import Operation, labelled
from ...tables import number

OUTSIDE = "(outside)"
"""In place of a layer's name: the model had not begun, or had returned."""


@dataclass(frozen=True)
class Range:
    """From where to where a tensor's values go; both ends are NaN where one of them is."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def finite(self) -> bool:
        """True if there is no NaN and no Inf."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def nan(self) -> bool:
        """True if there is a NaN."""
        return math.isnan(self.low)

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape)) or "one number"
        return f"{number(self.low)} … {number(self.high)} ({size})"


@dataclass(frozen=True, eq=False)
class Ends:
    """The least and the largest value of a tensor, on its device until they are read."""

    values: Tensor  # (2,)
    shape: tuple[int, ...]
    dtype: torch.dtype

    def read(self) -> Range:
        """Return them as numbers."""
        low, high = self.values.tolist()
        return Range(low, high, self.shape, self.dtype)


def ends_of(tensor: Tensor) -> Ends | None:
    """Return both ends of a floating-point or complex tensor; None where there are none to read."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return None
    values = tensor.detach()
    try:
        values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
        values = values if values.dtype in (torch.float32, torch.float64) else values.float()
        both = torch.stack(values.aminmax()) if values.numel() else values.new_zeros(2)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, nested
        return None
    return Ends(both, tuple(tensor.shape), tensor.dtype)


def range_of(tensor: Tensor) -> Range | None:
    """Return the range of a floating-point or complex tensor; None where it cannot be read.

    >>> print(range_of(torch.tensor([[0.5, -2.0]])))
    −2 … 0.5 (1×2)
    """
    ends = ends_of(tensor)
    try:
        return None if ends is None else ends.read()
    except (RuntimeError, NotImplementedError, TypeError):
        return None


@dataclass(frozen=True)
class Cause:
    """Why an operation made NaN or Inf."""

    words: str
    fix: str
    overflow: bool = False  # a result, or a sum, is larger than its type holds
    slope: bool = False  # the operation's derivative is infinite


@dataclass(eq=False)
class OperationRecord:
    """One operation that ran, or the source of numbers that no operation made.

    Attributes
    ----------
    index : int
        Counted in the run; −1 for a source, such as weights.
    name : str
        torch's, without what tells its variants apart: ``"log"``, ``"convolution"``.
    layer : str or None
        The innermost module that was running; `OUTSIDE` if none was.
    call : int
        Which run of that module, from 0.
    phase : str
        ``"forward"`` or ``"backward"``; a backward's layer, call and line are its forward's.
    made, given : tuple of Range
        Of its outputs; and of its inputs, where something that it made is not finite.
    origin : OperationRecord or None
        Where those numbers arose that are not finite; itself, if here.
    """

    index: int
    name: str
    layer: str = OUTSIDE
    call: int = 0
    phase: str = "forward"
    file: str = ""
    line: int = 0
    made: tuple[Range, ...] = ()
    given: tuple[Range, ...] = ()
    origin: OperationRecord | None = None
    constant: bool = False  # Inf that the code asks for, as a mask does
    kind: Kind = Kind.UNKNOWN
    overwrites: bool = False  # works in place
    again: bool = False  # run once more by activation checkpointing
    cause: Cause | None = None  # why it made NaN or Inf, if it did so first and that is known
    unwritten: bool = False  # its memory holds whatever was there
    propagated: bool = False  # whether what arose here left a layer, or reached a weight
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """True if all that it made is."""
        return all(each.finite for each in self.made)

    @property
    def nan(self) -> bool:
        """True if a NaN is in what it made."""
        return any(each.nan for each in self.made)

    @property
    def where(self) -> str:
        """The line of the user's code, as `line_of` says it."""
        return line_of(self.file, self.line)

    @property
    def place(self) -> dict[str, Any]:
        """The operation's place, by the names that a `Finding` has for it."""
        return {
            "layer": "" if self.layer == OUTSIDE else self.layer,
            "call": self.call,
            "phase": self.phase,
            "operation": self.name if self.index >= 0 else "",
            "file": self.file,
            "line": self.line,
        }


Place = tuple[str, int]
"""A layer's name and which of its calls."""

_CONSTANT = {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "where"}


def record_of(operation: Operation, index: int) -> OperationRecord:
    """Write down where an operation runs, without its tensors."""
    layer, call = OUTSIDE, 0
    if operation.call is not None:
        layer, call = operation.call.layer, operation.call.call
    scalars = (each for each in (*operation.args, *operation.kwargs.values()))
    return OperationRecord(
        index,
        operation.title,
        layer,
        call,
        operation.phase,
        *operation.line,
        constant=operation.name in _CONSTANT
        or any(isinstance(each, float) and math.isinf(each) for each in scalars),
        kind=operation.kind,
        overwrites=operation.mutates,
        again=operation.again,
        unwritten=operation.name in UNINITIALIZED,
    )


def origin_of(
    record: OperationRecord, given: list[Range | None], writers: list[OperationRecord | None]
) -> OperationRecord:
    """Find where an operation's NaN or Inf arose: with those it was given, or here."""
    for found, source in zip(given, writers, strict=True):
        if found is None or found.finite or (found.nan and not record.nan):  # where() drops NaN
            continue
        if source is None:  # written by nothing that was seen: a constant of the code
            place = record.layer, record.call, record.phase, record.file, record.line
            source = OperationRecord(-1, "constant", *place, made=(found,), constant=True)
        origin = source.origin or source
        # A mask of −Inf is meant, what makes a NaN of it is not.
        if not (origin.constant and record.nan and not found.nan):
            return origin
    return record


@dataclass(frozen=True, eq=False)
class OperationContext:
    """An operation that has just run: what it was given, as it was, and who made that."""

    record: OperationRecord
    operation: Operation
    given: Sequence[Tensor]
    makers: Sequence[OperationRecord | None]
    first: bool  # whether no BatchNorm has run before

    @property
    def output(self) -> Tensor:
        return self.operation.outputs[0]

    @property
    def maker(self) -> OperationRecord | None:
        return self.makers[0] if self.makers else None


SAYS = re.compile("modified by an inplace operation")


def culprit(
    operations: Sequence[OperationRecord], error: BaseException, score: Tensor | None
) -> tuple[OperationRecord, str, str] | None:
    """Return the operation that wrote, and name and line of the one that needs the old value.

    None if the error is another one, or neither is to be found. A node of autograd's graph says by
    raising the same error which of the tensors that it keeps has changed.
    """
    if score is None or not SAYS.search(message_of(error)):
        return None
    writes = [
        each
        for each in operations
        if each.overwrites and each.phase == "forward" and "overwrote" in each.facts
    ]
    shape = re.search(r"\[([\d, ]*)\]\], which is", message_of(error))
    for node, label in labelled(score.grad_fn):
        if not _spoiled(node):
            continue
        needing = next((o for o in operations if _is(o, label)), None)
        after = [each for each in writes if needing is None or each.index > needing.index]
        own = [each for each in after if each.facts["overwrote"] is needing]
        alike = [each for each in after if shape and _shape(each) == shape[1].replace(" ", "")]
        found = (own or alike or after)[:1]
        if found:
            return found[0], label.name, line_of(*label.line)
    return None


def _shape(record: OperationRecord) -> str:
    return ",".join(map(str, record.made[0].shape)) if record.made else ""


def _is(record: OperationRecord, label: object) -> bool:
    name, call, line = (getattr(label, each) for each in ("name", "call", "line"))
    place = (call.layer, call.call) if call is not None else (record.layer, record.call)
    same = (record.name, record.layer, record.call) == (name, *place)
    return same and record.phase == "forward" and (record.file, record.line) == line


def _spoiled(node: object) -> bool:
    """Return True if one of the tensors that a node keeps has been overwritten."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                if SAYS.search(message_of(error)):
                    return True
    return False


_SATURATING = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
MAPS = {"convolution", "group_norm", *BATCH_NORMS}
NEAR = 0.01
"""Distance to its end at which a sigmoid's or a tanh's value counts as saturated, as a fraction of
the way from end to end."""
FAR = 1.0
"""A channel that stays below zero by this many times its range is silent by no chance."""


def look_at_maps(seen: OperationContext) -> None:
    """Facts about an operation's channels: how many there are, how many are the same throughout."""
    record, output = seen.record, seen.output
    if "ranges" not in record.facts or record.layer == OUTSIDE:
        return  # a loss with a margin is 0 where the answers are beyond it
    rectified = record.name in RECTIFIERS and record.made[0].low == 0
    record.facts["zeros"] = record.name in MAPS and _begins_at_zero(seen.given)
    if rectified or (record.name in MAPS and not record.facts["zeros"]):
        least, most = record.facts["ranges"]
        still = least == most
        record.facts["follows"] = _still_before(seen, len(least)) & still
        dead, count = still & (least == 0), len(least)
        record.facts["channels"] = count, output.numel() // count
        record.facts["dead"] = int(dead.sum())
        record.facts["constant"] = int(still.sum()) - record.facts["dead"]
        record.facts["still"] = still
        if rectified and record.facts["dead"] > count / 2:
            before = _ranges_before(seen)
            record.facts["far"] = int((dead & far_below_zero(*before)).sum()) if before else 0
        record.facts["after"] = seen.maker.layer if seen.maker is not None else ""


def _still_before(seen: OperationContext, channels: int) -> Tensor:
    """Tell which channels were the same throughout before an operation that keeps them apart."""
    maker, before = seen.maker, None
    groups = seen.operation.argument.get("groups", channels)
    if maker is not None and seen.record.name in _BY_CHANNEL and groups == channels:
        *_, source = _passed_by(maker)
        before = source.facts.get("still")
    none = torch.zeros(channels, dtype=torch.bool, device=seen.output.device)
    return before if before is not None and len(before) == channels else none


_BY_CHANNEL = {*RECTIFIERS, "convolution", *BATCH_NORMS}


def ranges_of_channels(
    record: OperationRecord, output: Tensor, maker: OperationRecord | None
) -> tuple[Tensor, Tensor] | None:
    """Least and largest value of each channel, of an operation that makes or rectifies maps."""
    floating = output.is_floating_point() and output.layout is torch.strided
    if record.name not in RECTIFIERS | MAPS or record.phase == "backward" or not floating:
        return None
    if output.ndim < 2 or not output.numel() or output.is_meta:
        return None
    return channel_ranges(output, _channels(output, maker) % output.ndim)


def channel_ranges(tensor: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Least and largest value of each channel.

    A reduction over the last dimension is quick on a CPU, and ``aminmax`` over one twenty times
    slower than two of them.
    """
    if dimension == 1 and tensor.ndim > 2 and tensor.is_contiguous():
        maps = tensor.flatten(2)
        return maps.amin(2).amin(0), maps.amax(2).amax(0)
    others = [d for d in range(tensor.ndim) if d != dimension]
    return tensor.amin(others), tensor.amax(others)


def _ranges_before(seen: OperationContext) -> tuple[Tensor, Tensor] | None:
    """Measure a rectifier's input in the same way, which it may have overwritten."""
    if seen.maker is not None and "ranges" in seen.maker.facts:
        return seen.maker.facts["ranges"]
    if seen.record.overwrites:
        return None
    return channel_ranges(seen.given[0], _channels(seen.given[0], seen.maker) % seen.given[0].ndim)


def far_below_zero(least: Tensor, most: Tensor) -> Tensor:
    """Return the mask of channels that stay below zero by far more than they vary."""
    return most < -FAR * (most - least)


def look_at_gates(seen: OperationContext) -> None:
    """Return the fraction of a sigmoid or tanh at its ends, and True if all of it is stuck."""
    record = seen.record
    if record.name not in _SATURATING or record.phase == "backward" or not seen.output.numel():
        return
    low, high = _SATURATING[record.name]
    edge = NEAR * (high - low)
    at_ends = (seen.output <= low + edge) | (seen.output >= high - edge)
    record.facts["saturated"] = at_ends.float().mean().item()
    record.facts["after"] = seen.maker.layer if seen.maker is not None else ""
    before = range_of(seen.given[0])
    record.facts["stuck"] = before is not None and (before.low > STUCK or before.high < -STUCK)


STUCK = 16.0
"""Beyond it a sigmoid is 1 in single precision."""

_PASSING = frozenset(
    (
        Kind.COPY,
        Kind.ACTIVATION,
        Kind.DROPOUT,
        Kind.PADDING,
        Kind.CONCATENATION,
        Kind.POOLING,
        Kind.RESAMPLING,
    )
)


def _passes_channels(operation: Operation) -> bool:
    """Return True if values pass channel by channel; a product does not pass them."""
    if operation.kind is Kind.COPY and operation.mutates:  # into a part of other values
        return False
    return operation.kind in _PASSING or operation.name == "mean"


def look_at_uses(seen: OperationContext) -> None:
    """Return the use of an operation's output: by weights, by a norm, in a product."""
    if seen.record.phase == "backward":
        return
    name = seen.record.name
    # The product of two computed matrices, as in attention, is not a layer.
    kind = seen.operation.kind
    layer = kind in LAYER_KINDS and any(m is not None and m.name == "weights" for m in seen.makers)
    _look_at_one_number(seen)
    drops = name == "mul" and any(m is not None and m.facts.get("drawn") for m in seen.makers)
    seen.record.facts["drawn"] = name == "bernoulli" or (
        name == "div" and seen.maker is not None and seen.maker.facts.get("drawn", False)
    )
    begins = (m.facts["name"] for m in seen.makers if m is not None and _are_zero_weights(m))
    if name == "mul" and (closing := next(begins, None)):
        seen.record.facts["closed by"] = closing
    for maker in filter(None, seen.makers):
        if layer or (kind is Kind.NORMALIZATION and maker is seen.maker):
            for each in _passed_by(maker):
                each.facts["feeds" if layer else "normed"] = True
        elif drops or _passes_channels(seen.operation):
            seen.record.facts.setdefault("passes", maker)
        elif name == "mul" and "saturated" in maker.facts:
            maker.facts["gates"] = True  # what it scales goes its own way


def _are_zero_weights(record: OperationRecord) -> bool:
    return record.name == "weights" and bool(record.made) and record.made[0].magnitude == 0


def _passed_by(record: OperationRecord) -> Iterator[OperationRecord]:
    """Yield an operation, and those whose values it passes on, back to the one that made them."""
    each: OperationRecord | None = record
    while each is not None:
        yield each
        each = each.facts.get("passes")


def _look_at_one_number(seen: OperationContext) -> None:
    """Note which layer's one number this comes of, and there that it joins others, as a branch."""
    record, weighs = seen.record, seen.operation.kind in (*LAYER_KINDS, Kind.NORMALIZATION)
    for maker in filter(None, seen.makers[:1] if weighs else seen.makers):
        if not _is_one_number(maker):
            continue
        begun: OperationRecord = maker.facts.get("begun", maker)
        behind = weighs or maker.facts.get("behind weights", False)
        if not _is_one_number(record):
            begun.facts["joins"] = begun.facts.get("joins") or (record.name == "add" and not behind)
        elif not behind or "begun" not in record.facts:
            record.facts |= {"begun": begun, "behind weights": behind}


def _is_one_number(record: OperationRecord) -> bool:
    """Return True if all that an operation made is the same number."""
    return record.index >= 0 and bool(record.made) and record.made[0].low == record.made[0].high


def _begins_at_zero(given: Sequence[Tensor]) -> bool:
    """Return True if a layer's weights and biases are all 0, as a residual branch's last ones."""
    return len(given) > 1 and not any(_has_any(each) for each in given[1:3])


def _has_any(tensor: Tensor) -> bool:
    """Return True if a number is not 0; nearly always the first one is not."""
    first = tensor.detach().flatten()[:1]
    return bool(first.any()) or bool(tensor.any())


def _channels(output: Tensor, maker: OperationRecord | None) -> int:
    """Return the channels' dimension: the last for tokens, as a product of matrices makes them."""
    tokens = maker is not None and (maker.kind is Kind.PRODUCT or maker.name == "layer_norm")
    return -1 if tokens or output.ndim == 2 else 1


def look_at_batchnorm(seen: OperationContext) -> None:
    """Compare the batch with a BatchNorm's statistics where these are next to zero."""
    record, argument = seen.record, seen.operation.argument
    if not is_batchnorm(record):
        return
    record.facts["after"] = seen.maker.layer if seen.maker is not None else ""
    eps: float = argument["eps" if "eps" in argument else "epsilon"]
    running = argument.get("running_var")
    training = argument.get("training", argument.get("train", running is None))
    record.facts["eps"] = eps
    if training and len(seen.operation.outputs) > 2 and seen.operation.outputs[2].numel():
        variance = (
            seen.operation.outputs[2].double() ** -2 - eps
        )  # kept as 1 / sqrt(variance + eps)
        rounding = FLAT + 0.1 * FLAT * seen.operation.outputs[1].double() ** 2
        flat = variance < rounding
        record.facts["flat"], record.facts["which"] = (int(flat.sum()), len(flat)), flat
        record.facts["least variance"] = max(variance.min().item(), 0.0)
    elif not training and running is not None:
        small = running < eps
        if bool(small.any()):
            away = _channel_values(seen.given[0])[small] - argument["running_mean"][small, None]
            factors = (away.square().mean(1) / (running[small] + eps)).sqrt()
            limit = torch.where(running[small] < NONE, BLOWN, 5 * BLOWN)
            record.facts["blown up"] = int((factors > limit).sum()), len(running)
            record.facts["factor"] = factors.max().item()
            record.facts["least variance"] = running.min().item()


def is_batchnorm(record: OperationRecord) -> bool:
    """Return True if it is a BatchNorm's forward; they have several names."""
    return record.phase == "forward" and record.name in BATCH_NORMS


FLAT = 1e-9
"""Below it, or below a tenth of it times the squared mean, a variance is of rounding errors."""

BLOWN, NONE = 20.0, 1e-8
"""Root mean square above which a BatchNorm's output is too large where 1 is expected, if there
was no variance in training. A channel that is for rare things has some, and reaches 13 in
EfficientNet-Lite0 on a cat."""


def _channel_values(tensor: Tensor) -> Tensor:
    """Reshape a tensor to ``(channels, values of each)``, in single precision."""
    return tensor.detach().movedim(1, 0).flatten(1).float()


def look_at_scale(seen: OperationContext) -> None:
    """Measure the batch's distance from the first BatchNorm's statistics: the input's own doing."""
    record, argument = seen.record, seen.operation.argument
    if not is_batchnorm(record) or not seen.first:
        return
    mean, variance = argument.get("running_mean"), argument.get("running_var")
    if mean is None or variance is None:
        return
    training = argument.get("training", argument.get("train", False))
    momentum = argument.get("momentum", argument.get("exponential_average_factor", 0.1))
    eps: float = argument["eps" if "eps" in argument else "epsilon"]
    batch, saved = seen.given[0], seen.operation.outputs[1:3]
    count = batch.numel() // max(batch.shape[1], 1)
    if not training:
        away = away_from(*moments(batch), mean, variance, eps)
    elif momentum < 1 and count > 1 and len(saved) == 2 and saved[1].numel():
        spread = saved[1].float() ** -2 - eps  # kept as 1 / sqrt(variance + eps)
        # The batch has a part in the statistics by now.
        mean = (mean - momentum * saved[0]) / (1 - momentum)
        within = momentum * spread * count / (count - 1)
        variance = (variance - within) / (1 - momentum)
        away = away_from(saved[0], spread.clamp(min=0), mean, variance, eps)
    else:
        return
    if away is not None:
        record.facts["shift"], record.facts["spread"] = away.tolist()


SOME = 8
"""So many samples say where a batch lies."""


def moments(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each channel of a batch's first samples, ``(C,)`` each."""
    values = batch[:SOME].detach().float().flatten(2) if batch.ndim > 2 else batch[:, :, None]
    mean = values.mean((0, 2))
    return mean, (values - mean[:, None]).square().mean((0, 2))


def away_from(
    centre: Tensor, spread: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> Tensor | None:
    """Return how far a batch is from running statistics, ``(2,)``: shift and spread.

    The shift is ``median |batch mean - mean| / deviation``, the spread ``median batch deviation /
    deviation``, over channels that vary at all; None if none does.
    """
    kept = variance >= eps
    if not bool(kept.any()):
        return None
    deviation = variance[kept].sqrt()
    shift = ((centre - mean)[kept].abs() / deviation).median()
    return torch.stack([shift, (spread[kept].sqrt() / deviation).median()])


HALF = (torch.float16, torch.bfloat16)

_SCALING = {"to_copy", "mul", "div", "pow"}
"""Operations that make a number small, but never 0 of another."""


def look_at_precision(seen: OperationContext) -> None:
    """Return the fraction of numbers other than 0 that became 0 in half precision."""
    output = seen.output
    if seen.record.name in _SCALING and output.dtype in HALF:
        nonzero = torch.ones_like(output, dtype=torch.bool)
        for each in seen.given:
            nonzero &= each != 0
        count = int(nonzero.sum())
        lost = int((nonzero & (output == 0)).sum())
        seen.record.facts["underflow"] = lost / max(count, 1)


PAIRED = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"}
PAIRED |= {"binary_cross_entropy_with_logits"}


def look_at_wiring(seen: OperationContext) -> None:
    """Note the arguments of a loss or a softmax while they are at hand."""
    record, maker, name = seen.record, seen.maker, seen.record.name
    if record.phase == "backward":
        return
    source = maker.facts.get("copies", maker) if maker is not None else None
    if record.kind is Kind.COPY and source is not None:
        record.facts["copies"] = source
    if source is not None and (name, source.name) in WIRED:
        record.facts["wired"] = source
    given = seen.given[0] if seen.given else None
    if given is not None and given.ndim == 2 and name in ("softmax", "log_softmax"):
        dim = seen.operation.argument["dim"] % 2
        record.facts["over the batch"] = len(given) if dim == 0 and min(given.shape) > 1 else 0
        record.facts["over one"] = given.shape[dim] == 1 and len(given) > 1
    if name == "nll_loss_forward" and "wired" not in record.facts:
        record.facts["positive"] = _above_zero(seen.given[0])
    _look_at_divergence(seen)
    # Within a model a difference of all with all may be meant.
    if name in PAIRED and (record.layer == OUTSIDE or name != "sub") and len(seen.given) > 1:
        record.facts["pairs"] = _pairs(seen)


def _above_zero(tensor: Tensor) -> bool:
    """Return True if a number is above 0, where a logarithm of a probability never is."""
    return bool(tensor.numel()) and tensor.detach().max().item() > 1e-3


def _look_at_divergence(seen: OperationContext) -> None:
    """Tell ``kl_div`` from its parts, as which it runs, and note what its input is.

    They are ``xlogy(target, target) - target * input``; of a logarithm,
    ``exp(target) * (target - input)``.
    """
    record, name = seen.record, seen.record.name
    if name not in _PARTS:
        return
    record.facts["parts"] = tuple(map(_address, seen.given))
    first, part = (*seen.makers, None, None)[:2]
    if first is None or part is None or not {"parts"} <= first.facts.keys() & part.facts.keys():
        record.facts["second"], record.facts["above"] = part, _second_above_zero(seen)
        return
    truth, given = first.facts["parts"], part.facts["parts"]
    names = name, first.name, part.name
    plain = names == ("sub", "xlogy", "mul") and truth[0] == truth[1] == given[0]
    if plain or (names == ("mul", "exp", "sub") and truth[0] == given[0]):
        record.name, source = "kl_div", part.facts["second"]
        source = source.facts.get("copies", source) if source is not None else None
        if source is not None and ("kl_div", source.name) in WIRED:
            record.facts["wired"] = source
        else:
            record.facts["positive"] = part.facts["above"]


_PARTS = {"sub", "mul", "xlogy", "exp"}


def _address(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse
        return id(tensor)


def _second_above_zero(seen: OperationContext) -> bool:
    """Return True if the second factor of a loss goes above 0; outside of the model alone."""
    two = seen.given[1] if len(seen.given) == 2 and seen.record.layer == OUTSIDE else None
    same = two is not None and two.shape == seen.given[0].shape and two.requires_grad
    return same and two is not None and _above_zero(two)


def _pairs(seen: OperationContext) -> bool:
    """Return True if (N, 1) and (N,) have become (N, N): each sample against each other's truth."""
    one, two = seen.given[:2]
    if one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr():
        return False  # each with each, as a ranking has it
    if not seen.operation.outputs or min(one.ndim, two.ndim) < 1 or not one.numel():
        return False
    if one.shape == two.shape and one.ndim == 2 and len(one) == one.shape[1] > 1:
        strides = {one.stride(), two.stride()}
        return any(s[1] == 0 for s in strides) and any(s[0] == 0 for s in strides)
    shapes = sorted((tuple(one.shape), tuple(two.shape)), key=len)
    return shapes[0] == shapes[1][:1] and shapes[1][1:] == (1,) and shapes[0][0] > 1


WIRED = {
    ("log_softmax", "relu"): (
        "cross entropy takes logits of either sign, and these are 0 at least",
        "Give cross_entropy what the last layer returns, without the ReLU.",
    ),
    ("log_softmax", "softmax"): (
        "a softmax is taken of a softmax: cross entropy takes logits and has one within it",
        "Give cross_entropy the logits, without softmax; for probabilities as the answer take the "
        "softmax outside of training.",
    ),
    ("softmax", "softmax"): (
        "a softmax is taken of a softmax, which is nearly the same for all classes",
        "Take one of the two away.",
    ),
    ("softmax", "log_softmax"): (
        "a softmax is taken of logarithms of one",
        "Take exp() of them, or one of the two away.",
    ),
    ("softmax", "sigmoid"): (
        "a softmax is taken of a sigmoid, whose values are between 0 and 1",
        "Give the softmax the logits.",
    ),
    ("log_softmax", "sigmoid"): (
        "cross entropy takes logits and is given what a sigmoid returned, between 0 and 1",
        "Give cross_entropy the logits, without the sigmoid.",
    ),
    ("binary_cross_entropy_with_logits", "sigmoid"): (
        "a sigmoid is taken of a sigmoid: this loss takes logits and has one within it",
        "Give it the logits, without the sigmoid; or use binary_cross_entropy.",
    ),
    ("binary_cross_entropy_with_logits", "softmax"): (
        "a sigmoid is taken of a softmax: this loss takes logits and has a sigmoid within it",
        "Give it the logits, without the softmax.",
    ),
    ("nll_loss_forward", "softmax"): (
        "this loss takes logarithms of probabilities and is given probabilities",
        "Use cross_entropy on the logits, or log_softmax in place of the softmax.",
    ),
    ("nll_loss_forward", "sigmoid"): (
        "this loss takes logarithms of probabilities and is given what a sigmoid returned",
        "Use cross_entropy on the logits.",
    ),
    ("kl_div", "softmax"): (
        "this loss takes logarithms of probabilities and is given probabilities",
        "Give it log_softmax in place of the softmax.",
    ),
    ("kl_div", "sigmoid"): (
        "this loss takes logarithms of probabilities and is given what a sigmoid returned",
        "Give it logsigmoid in place of the sigmoid.",
    ),
}
"""An operation and what made its input -> what is wrong with that, and what to write instead."""


LOOKS = (
    look_at_maps,
    look_at_gates,
    look_at_uses,
    look_at_batchnorm,
    look_at_scale,
    look_at_precision,
    look_at_wiring,
)
"""Functions that add facts to an operation that has just run."""
