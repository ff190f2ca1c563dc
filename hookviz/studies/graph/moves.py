"""Ways of single numbers through an operation, forth and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...run.recorder import Operation

Index = tuple[int, ...]

_POINTWISE = {
    *("to_copy", "copy", "lift_fresh", "dropout", "constant_pad_nd", "masked_fill"),
    *("hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "threshold"),
    *("leaky_relu", "prelu", "prelu_kernel", "elu", "celu", "selu", "gelu", "mish", "softplus"),
    "log_sigmoid_forward",
}
"""Number by number, without torch's tag for it in every version."""

_POOLS = {"mean", "amax", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
_WINDOWS = {
    f"{kind}_pool{n}d{end}"
    for kind in ("avg", "max")
    for n in (2, 3)
    for end in ("", "_with_indices")
}


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
    if channels and name in _WINDOWS:
        return _window(argument, read, made)
    if channels and name in _POOLS:
        return _shared(read, made)
    if name in ("mul", "add", "sub", "div") and read.ndim == made.ndim:
        return _Broadcast(tuple(read.shape))
    return None


def _is_pointwise(operation: Operation) -> bool:
    """Return True if each number of the result is made of the one at its place.

    So a softmax and a layer norm are not: there each number is made of many. A batch norm is, with
    statistics of its own.
    """
    if "batch_norm" in operation.name:
        given = operation.argument
        return given.get("running_mean") is not None and not given.get("training", False)
    return torch.Tag.pointwise in operation.function.tags or operation.name in _POINTWISE


_PLAIN = {"silu", "sigmoid", "tanh", "hardswish", "hardsigmoid"}
_KEPT = {"clone", "to_copy", "copy", "lift_fresh", "dropout", "native_dropout"}


def rule_of(operation: Operation, move: Move) -> list[Any] | None:
    """Return how an operation makes a number of the one it reads, for `static/terms.js`.

    Returns
    -------
    list or None
        ``["keep"]``, ``["join", shift]`` of its channel, ``["clamp", low, high]``, ``["leaky",
        slope]``, ``["affine", tensor]`` of factors and additions by channel ``(2, C)``, ``[name]``
        of a function without parameters, or None.
    """
    name, given = operation.name.rstrip("_"), operation.argument
    if isinstance(move, Joined):
        return ["join", move.shift] if move.axis == 1 else ["keep"]
    if name in _KEPT:
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
    if "batch_norm" in name and (found := affine_of(given)) is not None:
        return ["affine", torch.stack(found)]
    return [name] if name in _PLAIN else None


def affine_of(given: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return gamma / sqrt(var + eps) and beta − mean · that, of a BatchNorm's arguments.

    None where it takes the batch's own statistics.
    """
    mean, variance = given.get("running_mean"), given.get("running_var")
    if mean is None or variance is None or given.get("training", False):
        return None
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
        wide = _along(argument["kernel_size"], axis)
        stride = _along(argument["stride"] or argument["kernel_size"], axis)
        pad, apart = _along(argument["padding"], axis), _along(argument.get("dilation", 1), axis)
        found = []
        for n in range(count):
            start = n * stride - pad
            start += apart * max(0, -(start // apart))
            found.append(slice(start, min(n * stride - pad + (wide - 1) * apart + 1, size), apart))
        axes.append(tuple(found))
    return _Pooled(tuple(axes))


def _along(value: Any, axis: int) -> int:
    values = [value] if isinstance(value, int) else list(value)
    return int(values[axis] if len(values) > 1 else values[0])
