"""One number of a convolution's or a linear layer's output as a bias and a sum of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """The bias, and by input channel and tap the kernel and the input that it meets; float64."""

    bias: float
    kernel: Tensor
    patch: Tensor


def linear_terms(given: Tensor, weight: Tensor, bias: Tensor | None, channel: int) -> Terms:
    """One output of a linear layer, from the features ``(F,)`` that it was given."""
    return Terms(_bias(bias, channel), _exact(weight[channel]), _exact(given))


def convolution_terms(
    arguments: dict[str, Any], sample: int, channel: int, position: Sequence[int]
) -> Terms:
    """One output of ``aten::convolution``, from its arguments by name.

    Along each dimension, tap ``k`` at position ``p`` meets the input at ``p·stride − padding +
    k·dilation``; transposed, at ``(p + padding − k·dilation) / stride`` where that is whole.
    Kernel and patch are zero for input channels of other groups, the patch in the padding, too.
    """
    given, weight = arguments["input"], arguments["weight"]
    size = tuple(weight.shape[2:])
    groups, count = arguments["groups"], given.shape[1] // arguments["groups"]
    if arguments["transposed"]:
        group, own = divmod(channel, weight.shape[1])
        taps = weight[group * count : (group + 1) * count, own]
    else:
        group = channel // (weight.shape[0] // groups)
        taps = weight[channel]
    mine = slice(group * count, (group + 1) * count)
    kernel = torch.zeros(given.shape[1], *size, dtype=torch.float64)
    patch = torch.zeros_like(kernel)
    kernel[mine] = _exact(taps)
    patch[mine] = _met(given[sample, mine], arguments, size, position)
    return Terms(_bias(arguments["bias"], channel), kernel, patch)


def by_output(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """Return kernels by output: a transposed layer's ``(C_in, C_out / groups, …)`` turned round."""
    if not transposed:
        return weight
    inputs, outputs, *kernel = weight.shape
    grouped = weight.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
    return grouped.reshape(groups * outputs, inputs // groups, *kernel)


def _met(
    given: Tensor, arguments: dict[str, Any], size: Sequence[int], position: Sequence[int]
) -> Tensor:
    """Return the input ``(C, *kernel)`` under the taps, zero in the padding."""
    patch = given
    for axis, (width, place) in enumerate(zip(size, position, strict=True)):
        stride, padding, dilation = (
            _along(arguments[name], axis) for name in ("stride", "padding", "dilation")
        )
        tap = torch.arange(width, device=given.device)
        if arguments["transposed"]:
            ahead = place + padding - tap * dilation
            where, there = ahead.div(stride, rounding_mode="floor"), ahead % stride == 0
        else:
            where = place * stride - padding + tap * dilation
            there = torch.ones_like(where, dtype=torch.bool)
        length = given.shape[axis + 1]
        there &= (where >= 0) & (where < length)
        shape = [1] * given.ndim
        shape[axis + 1] = width
        patch = patch.index_select(axis + 1, where.clamp(0, length - 1))
        patch = patch.masked_fill(~there.view(shape), 0)
    return _exact(patch)


def _along(value: Any, axis: int) -> int:
    values = [value] if isinstance(value, int) else list(value)
    return int(values[axis] if len(values) > 1 else values[0])


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
        """Read it off a tensor."""
        return cls(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))

    def index(self, offset: int) -> tuple[int, ...] | None:
        """Return the index of the number at an offset of the memory; None if it is elsewhere."""
        left, index = offset - self.start, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            stride = self.strides[axis]
            if stride and self.shape[axis] > 1:
                index[axis] = left // stride
                left -= index[axis] * stride
        fits = all(0 <= n < size for n, size in zip(index, self.shape, strict=True))
        return tuple(index) if left == 0 and fits else None

    def offset(self, index: Sequence[int]) -> int:
        """Return the offset in memory of the number at an index."""
        return self.start + sum(n * stride for n, stride in zip(index, self.strides, strict=True))
