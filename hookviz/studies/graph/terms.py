"""Origins of one number: a layer's as a sum of products, another operation's in what it read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...run.operations import BATCH_NORMS, Kind, is_elementwise, uses_running_statistics
from ...run.recorder import Operation


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
            along_axis(arguments[name], axis) for name in ("stride", "padding", "dilation")
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


def along_axis(value: Any, axis: int) -> int:
    """Return an argument, one number or one for each dimension, for a dimension."""
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


# The way of a number through an operation that is not a layer


Index = tuple[int, ...]


class Move(Protocol):
    """The way of each number from a tensor that an operation reads into its result."""

    @property
    def exact(self) -> bool:
        """Return False if numbers of the result were made of several of this tensor."""
        ...

    def forth(self, index: Index) -> Index | None:
        """Return where the number at an index goes; None if it does not go on by itself."""
        ...

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        """Return where the number at an index of the result came from, if from this tensor.

        ``values`` are those of this tensor, which a pooling needs.
        """
        ...


def move_of(operation: Operation, read: Tensor, made: Tensor) -> Move | None:
    """Return how numbers move from a tensor that an operation reads into its result, if known."""
    name, argument = operation.name, operation.argument
    if not made.is_floating_point():
        return None
    if name == "cat":
        axis, shift = argument["dim"] % made.ndim, 0
        for each in argument["tensors"]:
            if each is read:
                return Joined(axis, shift, each.shape[axis])
            shift += each.shape[axis] if each.ndim == made.ndim else 0
        return None
    if name == "constant_pad_nd":
        before = [0] * made.ndim
        pads: Sequence[int] = argument["pad"]
        for axis, each in enumerate(pads[::2]):
            before[made.ndim - 1 - axis] = each
        return _Padded(tuple(before), tuple(read.shape))
    if read.shape == made.shape and _is_pointwise(operation):
        return _SAME
    channels = read.ndim > 2 and made.ndim >= 2 and read.shape[:2] == made.shape[:2]
    if channels and operation.kind is Kind.POOLING and "kernel_size" in argument:
        return _window(argument, read, made)
    if channels and (operation.kind is Kind.POOLING or name in ("mean", "amax")):
        return _shared(read, made)
    if name in ("mul", "add", "sub", "div") and read.ndim == made.ndim:
        return _Broadcast(tuple(read.shape))
    return None


def _is_pointwise(operation: Operation) -> bool:
    """Return True if each number of the result is made of the one at its place.

    So a softmax and a layer norm are not: there each number is made of many. A batch norm is, with
    statistics of its own.
    """
    if operation.name in BATCH_NORMS:
        return uses_running_statistics(operation.name, operation.argument)
    return is_elementwise(operation.function)


_PLAIN = {"silu", "sigmoid", "tanh", "hardswish", "hardsigmoid"}


def rule_of(operation: Operation, move: Move) -> list[Any] | None:
    """Return how an operation makes a number of the one it reads, for `static/terms.js`.

    Returns
    -------
    list or None
        ``["keep"]``, ``["join", shift]`` of its channel, ``["clamp", low, high]``, ``["leaky",
        slope]``, ``["affine", tensor]`` of factors and additions by channel ``(2, C)``, ``[name]``
        of a function without parameters, or None.
    """
    name, given = operation.name, operation.argument
    if isinstance(move, Joined):
        return ["join", move.shift] if move.axis == 1 else ["keep"]
    if operation.kind is Kind.COPY:
        return ["keep"]
    if name == "relu":
        return ["clamp", 0.0, None]
    if name in ("hardtanh", "clamp"):
        ends = ("min_val", "max_val") if name == "hardtanh" else ("min", "max")
        low, high = (given.get(end) for end in ends)
        numbers = all(each is None or isinstance(each, (int, float)) for each in (low, high))
        return ["clamp", low, high] if numbers else None
    if name == "leaky_relu":
        return ["leaky", float(given["negative_slope"])]
    if name == "gelu":
        return ["gelu"] if given.get("approximate", "none") == "none" else None
    if name in BATCH_NORMS and (found := affine_of(operation)) is not None:
        return ["affine", torch.stack(found)]
    return [name] if name in _PLAIN else None


def affine_of(operation: Operation) -> tuple[Tensor, Tensor] | None:
    """Return a BatchNorm's factor and addition for each channel, ``(C,)`` in float64.

    They are ``gamma / sqrt(var + eps)`` and ``beta − mean * factor``; None if it normalizes by the
    batch's own statistics.
    """
    given = operation.argument
    if not uses_running_statistics(operation.name, given):
        return None
    mean, variance = given["running_mean"], given["running_var"]
    mean, variance = mean.detach().double().cpu(), variance.detach().double().cpu()
    factor = (variance + given.get("eps", given.get("epsilon", 1e-5))).rsqrt()
    gamma, beta = given.get("weight"), given.get("bias")
    if gamma is not None:
        factor = factor * gamma.detach().double().cpu()
    added = -mean * factor
    return factor, added if beta is None else added + beta.detach().double().cpu()


@dataclass(frozen=True)
class _Same:
    exact: bool = True

    def forth(self, index: Index) -> Index | None:
        return index

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        return index


_SAME = _Same()


@dataclass(frozen=True)
class Joined:
    """Into a part of the result along an axis."""

    axis: int
    shift: int
    length: int
    exact: bool = True

    def forth(self, index: Index) -> Index | None:
        return self._by(index, self.shift)

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        inside = 0 <= index[self.axis] - self.shift < self.length
        return self._by(index, -self.shift) if inside else None

    def _by(self, index: Index, shift: int) -> Index:
        return (*index[: self.axis], index[self.axis] + shift, *index[self.axis + 1 :])


@dataclass(frozen=True)
class _Padded:
    before: Index
    shape: Index
    exact: bool = True

    def forth(self, index: Index) -> Index | None:
        return None  # a padding is the next layer's own

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        found = tuple(n - pad for n, pad in zip(index, self.before, strict=True))
        inside = all(0 <= n < size for n, size in zip(found, self.shape, strict=True))
        return found if inside else None


@dataclass(frozen=True)
class _Broadcast:
    """One number for many, as a gate's for all of a channel."""

    shape: Index
    exact: bool = True

    def forth(self, index: Index) -> Index | None:
        return None

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        return tuple(0 if size == 1 else n for n, size in zip(index, self.shape, strict=True))


@dataclass(frozen=True)
class _Pooled:
    """One number of many of the same channel: the one of the largest magnitude stands for them."""

    windows: tuple[tuple[slice, ...], ...]  # by axis and place
    exact: bool = False

    def forth(self, index: Index) -> Index | None:
        return None

    def back(self, index: Index, values: Tensor | None) -> Index | None:
        if values is None:
            return None
        spatial = index[2:] if len(index) > 2 else (0,) * len(self.windows)
        slices: list[slice] = [axis[n] for axis, n in zip(self.windows, spatial, strict=True)]
        where: tuple[int | slice, ...] = (*index[:2], *slices)
        part = values[where]
        if not part.numel():
            return None
        flat = int(part.abs().nan_to_num(torch.inf).argmax())
        places = torch.unravel_index(torch.tensor(flat), part.shape)
        found = [
            each.start + int(n) * (each.step or 1) for each, n in zip(slices, places, strict=True)
        ]
        return (*index[:2], *found)


def _shared(read: Tensor, made: Tensor) -> Move | None:
    """Windows that share a tensor among them, or are all of it."""
    ends = made.shape[2:] if made.ndim == read.ndim else (1,) * (read.ndim - 2)
    if made.ndim not in (2, read.ndim):
        return None
    return _Pooled(
        tuple(
            tuple(slice(n * size // count, -(-(n + 1) * size // count)) for n in range(count))
            for size, count in zip(read.shape[2:], ends, strict=True)
        )
    )


def _window(argument: dict[str, Any], read: Tensor, made: Tensor) -> Move:
    """Windows that step over a tensor."""
    axes = []
    for axis, (size, count) in enumerate(zip(read.shape[2:], made.shape[2:], strict=True)):
        wide = along_axis(argument["kernel_size"], axis)
        stride = along_axis(argument["stride"] or argument["kernel_size"], axis)
        pad = along_axis(argument["padding"], axis)
        apart = along_axis(argument.get("dilation", 1), axis)
        found = []
        for n in range(count):
            start = n * stride - pad
            start += apart * max(0, -(start // apart))
            found.append(slice(start, min(n * stride - pad + (wide - 1) * apart + 1, size), apart))
        axes.append(tuple(found))
    return _Pooled(tuple(axes))
