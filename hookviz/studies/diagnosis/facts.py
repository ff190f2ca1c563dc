"""Facts about an operation's values, noted while they are at hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .operations import OperationRecord

_RECTIFIERS = {"relu", "relu_", "threshold", "hardtanh", "clamp_min", "clamp"}
_SATURATING = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
MAPS = {"convolution", "batch_norm", "group_norm"}
NEAR = 0.01
"""How near to its end a sigmoid's or a tanh's value counts as saturated, as a share of the way
from end to end."""


def look_at_maps(
    operation: OperationRecord, output: Tensor, given: list[Tensor], maker: OperationRecord | None
) -> None:
    """Facts about an operation's channels, ``(channels, values of each, how many of them ...)``."""
    name = operation.name
    if operation.phase == "backward" or not output.numel() or output.ndim < 2:
        return
    rectified = name in _RECTIFIERS and operation.made[0].low == 0
    if name in _SATURATING:
        low, high = _SATURATING[name]
        edge = NEAR * (high - low)
        at_ends = (output <= low + edge) | (output >= high - edge)
        operation.facts["saturated"] = at_ends.float().mean().item()
    elif rectified or (name in MAPS and not _begins_at_zero(given)):
        dimension = _channels(output, maker)
        values = math.prod(output.shape) // output.shape[dimension]
        others = [d for d in range(output.ndim) if d != dimension % output.ndim]
        least, most = output.amin(others), output.amax(others)
        still = least == most
        operation.facts["channels"] = len(least), values
        operation.facts["dead"] = int((still & (least == 0)).sum())
        operation.facts["constant"] = int((still & (least != 0)).sum())
    if operation.facts:
        operation.facts["after"] = maker.layer if maker is not None else ""


def _begins_at_zero(given: list[Tensor]) -> bool:
    """Whether a layer's weights and biases are 0 throughout, as a residual branch's last ones."""
    return len(given) > 1 and not any(bool(each.any()) for each in given[1:3])


def _channels(output: Tensor, maker: OperationRecord | None) -> int:
    """The channels' dimension: the last among tokens, which a product of matrices made."""
    tokens = maker is not None and maker.name in ("addmm", "mm", "bmm", "linear", "layer_norm")
    return -1 if tokens or output.ndim == 2 else 1


HALF = (torch.float16, torch.bfloat16)

_SCALING = {"to_copy", "mul", "div", "pow"}
"""What makes a number small, but never 0 of another."""


def look_at_precision(
    operation: OperationRecord, output: Tensor, given: list[Tensor], maker: OperationRecord | None
) -> None:
    """The share of numbers other than 0 that became 0 in half precision."""
    if operation.name in _SCALING and output.dtype in HALF:
        nonzero = torch.ones_like(output, dtype=torch.bool)
        for each in given:
            nonzero &= each != 0
        count = int(nonzero.sum())
        operation.facts["underflow"] = int((nonzero & (output == 0)).sum()) / max(count, 1)
