"""The arithmetic of one number of a layer: the weights, and the inputs that they meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """The bias, and by input channel and tap the kernel and the input that it meets; float64."""

    bias: float
    kernel: Tensor
    patch: Tensor


def linear_terms(given: Tensor, weight: Tensor, bias: Tensor | None, channel: int) -> Terms:
    """Return the terms of one output of a linear layer with the input features ``(F,)``."""
    return Terms(_bias(bias, channel), _exact(weight[channel]), _exact(given))


def convolution_terms(
    arguments: dict[str, Any], sample: int, channel: int, position: Sequence[int]
) -> Terms:
    """Return the terms of one output of ``aten::convolution``, from its arguments by name.

    Kernel and patch are zero for input channels of other groups; the patch is zero in the padding.
    """
    given, weight = arguments["input"], arguments["weight"]
    groups, count = arguments["groups"], given.shape[1] // arguments["groups"]
    if arguments["transposed"]:
        group, own = divmod(channel, weight.shape[1])
        taps = weight[group * count : (group + 1) * count, own]
    else:
        group = channel // (weight.shape[0] // groups)
        taps = weight[channel]
    mine = slice(group * count, (group + 1) * count)
    kernel = torch.zeros(given.shape[1], *weight.shape[2:], dtype=torch.float64)
    patch = torch.zeros_like(kernel)
    kernel[mine] = _exact(taps)
    patch[mine] = _patch(given[sample, mine], arguments, position)
    return Terms(_bias(arguments["bias"], channel), kernel, patch)


def _patch(given: Tensor, arguments: dict[str, Any], position: Sequence[int]) -> Tensor:
    """Return the inputs ``(C, *kernel)`` under the taps, zero in the padding."""
    patch = given
    for axis, (width, place) in enumerate(
        zip(arguments["weight"].shape[2:], position, strict=True)
    ):
        at = [tap_position(arguments, axis, place, tap) for tap in range(width)]
        size = given.shape[axis + 1]
        inside = torch.tensor([n is not None and 0 <= n < size for n in at], device=given.device)
        index = torch.tensor([n or 0 for n in at], device=given.device).clamp(0, size - 1)
        shape = [1] * given.ndim
        shape[axis + 1] = width
        patch = patch.index_select(axis + 1, index).masked_fill(~inside.view(shape), 0)
    return _exact(patch)


def tap_position(arguments: dict[str, Any], axis: int, place: int, tap: int) -> int | None:
    """Return where a kernel tap meets the input along an axis; None if it meets nothing.

    Tap ``k`` at position ``p`` meets the input at ``p·stride − padding + k·dilation``; transposed,
    at ``(p + padding − k·dilation) / stride`` where that is a whole number.
    """
    stride, padding, dilation = (
        values[axis if len(values) > 1 else 0]
        for values in (arguments["stride"], arguments["padding"], arguments["dilation"])
    )
    if not arguments["transposed"]:
        return place * stride - padding + tap * dilation
    at, left = divmod(place + padding - tap * dilation, stride)
    return None if left else at


def largest_tap(products: Tensor) -> tuple[int, ...]:
    """Return the index of the largest product; NaN counts as the largest."""
    flat = int(products.abs().nan_to_num(torch.inf).argmax())
    return tuple(int(n) for n in np.unravel_index(flat, products.shape))


def _exact(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64)


def _bias(bias: Tensor | None, channel: int) -> float:
    return 0.0 if bias is None else float(bias.detach()[channel])


@dataclass(frozen=True)
class MemoryLayout:
    """Memory offsets of a tensor's numbers; they keep no tensor alive.

    Examples
    --------
    >>> layout = MemoryLayout.of(torch.zeros(2, 3).T)
    >>> layout.index(4), layout.offset((1, 1))
    ((1, 1), 4)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    @classmethod
    def of(cls, tensor: Tensor) -> MemoryLayout:
        """Read the layout of a tensor."""
        return cls(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

    def index(self, offset: int) -> tuple[int, ...] | None:
        """Return the index of the number at an offset of the memory; None if it is elsewhere."""
        left, index = offset - self.start, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            stride = self.strides[axis]
            if stride and self.shape[axis] > 1:
                index[axis], left = divmod(left, stride)
        fits = all(0 <= n < size for n, size in zip(index, self.shape, strict=True))
        return tuple(index) if left == 0 and fits else None

    def offset(self, index: Sequence[int]) -> int:
        """Return the offset in memory of the number at an index."""
        return self.start + sum(n * stride for n, stride in zip(index, self.strides, strict=True))
