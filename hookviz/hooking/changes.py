"""Compute what an edit makes of a tensor, at the chosen channels and positions.

The old tensor is never overwritten: that would change it for all other users of its memory, and
break a backward that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from .interrupts import allow_interrupts

Change: TypeAlias = float | Tensor | Literal["mean"] | Callable[[Tensor], Tensor | None]
Channels = int | slice | Sequence[int] | Tensor | None
Where = int | slice | tuple[int | slice, ...] | Tensor | None


class EditError(Exception):
    """An edit failed, and not the model itself."""


class ShapeError(EditError, ValueError):
    """The chosen values, or their replacement, do not fit the layer's shape."""


class ChangeError(EditError, RuntimeError):
    """The user's function raised."""


def check_change(change: Any) -> None:
    """Raise an error unless ``change`` is a valid change."""
    if isinstance(change, str) and change != "mean":
        raise ValueError(f"change={change!r} is not 'mean', a number, a tensor or a function.")
    if isinstance(change, (int, float)) and not math.isfinite(change):
        raise ValueError(f"change={change} is not finite: give a number, or a function.")
    if not (isinstance(change, (str, int, float, Tensor)) or callable(change)):
        raise TypeError(
            f"change={change!r} is not a number, a tensor, 'mean' or a function tensor -> tensor."
        )


def changed(
    old: Tensor,
    change: Change,
    mask: Tensor | None,
    channel: int,
    what: str,
    channels: Channels = None,
) -> Tensor | None:
    """Return a new tensor, changed where ``mask`` is true; None if a function returned None.

    Parameters
    ----------
    old : torch.Tensor
    change : float, torch.Tensor, "mean" or callable
    mask : torch.Tensor or None
        Bool, broadcasts to the shape of ``old``; None means everywhere.
    channel : int
        The dimension of the channels.
    what : str
        A name for ``old`` in error messages.
    channels : optional
        In the order of a replacement that holds them alone.
    """
    if old.is_quantized:  # few operations support quantized tensors
        new = changed(old.dequantize(), change, mask, channel, what, channels)
        scale, zero = (old.q_scale(), old.q_zero_point()) if new is not None else (1.0, 0)
        return None if new is None else torch.quantize_per_tensor(new, scale, zero, old.dtype)
    if isinstance(change, (int, float)):
        # "Off" means zero, also for NaN: 0 * NaN would be NaN.
        new = torch.zeros_like(old) if change == 0 else old * change
    elif isinstance(change, Tensor):
        new = _replacement(old, change.to(old), channels, channel, what)
    elif isinstance(change, str):
        first = 1 if channel != 0 else 0  # the dimension before the channels is the batch
        others = [d for d in range(first, old.ndim) if d != channel % old.ndim]
        new = old.mean(others, keepdim=True).expand_as(old) if others else old
    else:
        returned = _called(change, old, what)
        if returned is None:
            return None
        new = returned
    if mask is not None:
        new = torch.where(mask, new, old)
    elif isinstance(change, (int, float)):
        return new
    elif callable(change):
        # The function may hold the tensor that it returned: layers must not overwrite that one.
        return new.clone()
    # Keep the old memory format: in another one, the next convolutions would round differently.
    return torch.empty_like(old, dtype=new.dtype).copy_(new)


def _replacement(old: Tensor, value: Tensor, channels: Channels, channel: int, what: str) -> Tensor:
    """Expand the replacement to the old shape; it may hold the chosen channels alone."""
    if _fits(value.shape, old.shape):
        return value.expand_as(old)
    numbers = chosen_channels(old.shape[channel], channels, what)
    part = list(old.shape)
    part[channel] = len(numbers)
    if _fits(value.shape, part):
        rows = numbers.to(old.device)
        return torch.zeros_like(old).index_copy(channel, rows, value.expand(part))
    raise ShapeError(
        f"The replacement of {what} has shape {tuple(value.shape)}, which does not fit the shape "
        f"{tuple(old.shape)}: give one that broadcasts to it, or to the chosen channels."
    )


def _fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    try:
        return torch.broadcast_shapes(shape, whole) == tuple(whole)
    except RuntimeError:
        return False


def _called(function: Callable[[Tensor], Tensor | None], old: Tensor, what: str) -> Tensor | None:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        new = allow_interrupts(function, old.clone())
    except Exception as error:
        raise ChangeError(
            f"The change {name!r} of {what} raised {type(error).__name__}: {error}"
        ) from error
    if new is not None and (not isinstance(new, Tensor) or new.shape != old.shape):
        got = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
        raise ShapeError(
            f"The change {name!r} of {what} must return a tensor of shape {tuple(old.shape)}, or "
            f"None to leave it, but it returned {got}."
        )
    return new


def chosen_channels(count: int, channels: Channels, what: str) -> Tensor:
    """Return the numbers of the chosen channels, of ``count``, in the order of ``channels``.

    >>> chosen_channels(4, [3, 0], "it"), chosen_channels(4, slice(2, 9), "it")
    (tensor([3, 0]), tensor([2, 3]))
    """
    numbers = torch.arange(count)
    if channels is None:
        return numbers
    try:
        _check_start(channels, count)
        if not isinstance(channels, (int, slice)):
            channels = torch.as_tensor(channels).cpu()  # numbers, or a mask
            if not channels.numel():
                return numbers[:0]  # an empty list has no integer dtype
        return numbers[channels].reshape(-1)
    except (IndexError, TypeError, ValueError) as error:
        raise ShapeError(
            f"channels={channels!r} are not channels of {what}, which has {count}."
        ) from error


def _check_start(index: object, count: int) -> None:
    """Raise ``IndexError`` for a slice that begins beyond the end; an empty one may be meant."""
    if isinstance(index, slice) and index.start is not None and index.start > count:
        raise IndexError(index)


def select_channels(flags: Tensor, channels: Channels, what: str) -> None:
    """Set flags ``(C, ...)`` of the chosen channels."""
    flags[chosen_channels(len(flags), channels, what).to(flags.device)] = True


def select_positions(flags: Tensor, where: Where, what: str) -> None:
    """Set flags ``(*spatial)`` of the chosen positions."""
    size = "×".join(map(str, flags.shape))
    if isinstance(where, Tensor):
        if where.dtype != torch.bool or where.shape != flags.shape:
            raise ShapeError(
                f"where= is a {where.dtype} tensor of shape {tuple(where.shape)}, but the maps of "
                f"{what} are {size}: give a bool tensor of that shape."
            )
        flags |= where.to(flags.device)
        return
    try:
        for index, count in zip(
            where if isinstance(where, tuple) else (where,), flags.shape, strict=False
        ):
            _check_start(index, count)
        flags[where] = True
    except (IndexError, TypeError) as error:
        raise ShapeError(
            f"where={where!r} is not in the maps of {what}, which are {size}: give a slice for "
            "each dimension."
        ) from error
