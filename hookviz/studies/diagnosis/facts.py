"""Facts about an operation's values, noted while they are at hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .operations import OperationRecord, range_of
from .seen import Seen
from .wiring import look_at_wiring

RECTIFIERS = {"relu", "relu_", "threshold", "hardtanh", "clamp_min", "clamp"}
_SATURATING = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
MAPS = {"convolution", "batch_norm", "group_norm"}
NORMS = {"batch_norm", "cudnn_batch_norm", "group_norm", "layer_norm", "batch_norm_with_update"}
WEIGHTED = {"convolution", "addmm", "mm", "bmm", "linear"}
NEAR = 0.01
"""How near to its end a sigmoid's or a tanh's value counts as saturated, as a fraction of the way
from end to end."""
FAR = 1.0
"""A channel that stays below zero by this many times its range is silent by no chance."""


def look_at_maps(seen: Seen) -> None:
    """Facts about an operation's channels: how many there are, how many are the same throughout."""
    record, output = seen.record, seen.output
    if "ranges" not in record.facts:
        return
    rectified = record.name in RECTIFIERS and record.made[0].low == 0
    if rectified or (record.name in MAPS and not _begins_at_zero(seen.given)):
        least, most = record.facts["ranges"]
        still = least == most
        dead, count = still & (least == 0), len(least)
        record.facts["channels"] = count, output.numel() // count
        record.facts["dead"] = int(dead.sum())
        record.facts["constant"] = int(still.sum()) - record.facts["dead"]
        record.facts["still"] = still
        if rectified and record.facts["dead"] > count / 2:
            before = _ranges_before(seen)
            record.facts["far"] = int((dead & far_below_zero(*before)).sum()) if before else 0
        record.facts["after"] = seen.maker.layer if seen.maker is not None else ""


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


def _ranges_before(seen: Seen) -> tuple[Tensor, Tensor] | None:
    """The same of what a rectifier was given, which it may have overwritten."""
    if seen.maker is not None and "ranges" in seen.maker.facts:
        return seen.maker.facts["ranges"]
    if seen.record.overwrites:
        return None
    return channel_ranges(seen.given[0], _channels(seen.given[0], seen.maker) % seen.given[0].ndim)


def far_below_zero(least: Tensor, most: Tensor) -> Tensor:
    """Which channels stay below zero by far more than they vary."""
    return most < -FAR * (most - least)


def look_at_gates(seen: Seen) -> None:
    """The fraction of a sigmoid or tanh at its ends, and whether all of it is stuck there."""
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

_PASSING = {"cat", "clone", "dropout", "mean", "constant_pad_nd", "relu", "gelu", "silu", "elu"}
_PASSING |= {"hardtanh", "leaky_relu", "hardswish", "sigmoid", "tanh", "clamp", "threshold"}
"""What hands on what it is given, channel by channel; a product does not."""


def look_at_uses(seen: Seen) -> None:
    """Where the output of an operation goes: into weights, into a norm, onto a product."""
    if seen.record.phase == "backward":
        return
    name = seen.record.name
    # The product of two computed matrices, as in attention or a spatial transformer, is no layer.
    layer = name in WEIGHTED and any(m is not None and m.name == "weights" for m in seen.makers)
    for maker in filter(None, seen.makers):
        source = maker.facts.get("passes", maker)
        if layer:
            maker.facts["feeds"] = source.facts["feeds"] = True
        elif name in NORMS and maker is seen.maker:
            source.facts["normed"] = True
        elif name == "mul" and "saturated" in maker.facts:
            maker.facts["gates"] = True  # what it scales goes its own way
        elif name in _PASSING or "pool" in name or "upsample" in name:
            seen.record.facts.setdefault("passes", source)


def _begins_at_zero(given: Sequence[Tensor]) -> bool:
    """Whether a layer's weights and biases are 0 throughout, as a residual branch's last ones."""
    return len(given) > 1 and not any(bool(each.any()) for each in given[1:3])


def _channels(output: Tensor, maker: OperationRecord | None) -> int:
    """The channels' dimension: the last among tokens, which a product of matrices made."""
    tokens = maker is not None and maker.name in ("addmm", "mm", "bmm", "linear", "layer_norm")
    return -1 if tokens or output.ndim == 2 else 1


def look_at_batchnorm(seen: Seen) -> None:
    """How the batch differs from a BatchNorm's statistics, where these are next to nothing."""
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
        record.facts["flat"] = int((variance < rounding).sum()), len(variance)
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
    """Whether it is a BatchNorm's forward; they have several names."""
    return record.phase == "forward" and record.name.endswith("batch_norm")


FLAT = 1e-9
"""Below it, or below a tenth of it times the squared mean, a variance is of rounding errors."""

BLOWN, NONE = 20.0, 1e-8
"""How large a BatchNorm's output is too large, as root mean square where 1 is expected, if there
was no variance in training. A channel that is for rare things has some, and reaches 13 in
EfficientNet-Lite0 on a cat."""


def _channel_values(tensor: Tensor) -> Tensor:
    """A tensor as ``(channels, values of each)``, in single precision."""
    return tensor.detach().movedim(1, 0).flatten(1).float()


def look_at_scale(seen: Seen) -> None:
    """How far the batch is from the statistics of the first BatchNorm: the input's own doing."""
    record, argument = seen.record, seen.operation.argument
    if not is_batchnorm(record) or not seen.first:
        return
    mean, variance = argument.get("running_mean"), argument.get("running_var")
    if argument.get("training", argument.get("train")) or mean is None or variance is None:
        return
    kept = variance >= argument.get("eps", argument.get("epsilon"))
    values = _channel_values(seen.given[0])
    if bool(kept.any()) and values.shape[1] > 1:
        centre = values[kept].mean(1)
        spread = (values[kept] - centre[:, None]).square().mean(1).sqrt()
        deviation = variance[kept].sqrt()
        record.facts["shift"] = ((centre - mean[kept]).abs() / deviation).median().item()
        record.facts["spread"] = (spread / deviation).median().item()


HALF = (torch.float16, torch.bfloat16)

_SCALING = {"to_copy", "mul", "div", "pow"}
"""What makes a number small, but never 0 of another."""


def look_at_precision(seen: Seen) -> None:
    """The fraction of numbers other than 0 that became 0 in half precision."""
    output = seen.output
    if seen.record.name in _SCALING and output.dtype in HALF:
        nonzero = torch.ones_like(output, dtype=torch.bool)
        for each in seen.given:
            nonzero &= each != 0
        count = int(nonzero.sum())
        lost = int((nonzero & (output == 0)).sum())
        seen.record.facts["underflow"] = lost / max(count, 1)


LOOKS = (
    look_at_maps,
    look_at_gates,
    look_at_uses,
    look_at_batchnorm,
    look_at_scale,
    look_at_precision,
    look_at_wiring,
)
"""Who adds facts to an operation that has just run."""
