"""What an edit makes of a tensor: scaled, replaced, averaged, or whatever a function returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .interrupts import allow_interrupts
from .layout import at_least_float32

Change = float | Tensor | Literal["mean"] | Callable[[Tensor], Tensor | None]
Channels = int | slice | Sequence[int] | Tensor | None
Where = int | slice | tuple[int | slice, ...] | Tensor | None


class EditError(Exception):
    """An edit cannot be made; whoever runs the model knows by it that it is not the model's."""


class MisfitError(EditError, ValueError):
    """What is to be changed, or what it is to become, does not fit the layer."""


class ChangeError(EditError, RuntimeError):
    """The user's function raised."""


def check_change(change: Any) -> None:
    """Raise for what is no change."""
    if isinstance(change, str) and change != "mean":
        raise ValueError(f"change={change!r} is not 'mean', a number, a tensor or a function.")
    if isinstance(change, (int, float)) and not math.isfinite(change):
        raise ValueError(f"change={change} is not finite: give a number, or a function.")
    if not (isinstance(change, (str, int, float, Tensor)) or callable(change)):
        raise TypeError(
            f"change={change!r} is not a number, a tensor, 'mean' or a function tensor -> tensor."
        )


def changed(
    old: Tensor, change: Change, mask: Tensor | None, channel: int, what: str
) -> Tensor | None:
    """A new tensor, other than ``old`` where ``mask`` is true; None if a function leaves it.

    Parameters
    ----------
    old : torch.Tensor
    change : float, torch.Tensor, "mean" or callable
    mask : torch.Tensor or None
        Bool, broadcasts to that shape; None is everywhere.
    channel : int
        The dimension of the channels.
    what : str
        What ``old`` is, for errors.
    """
    if isinstance(change, (int, float)):
        # Not 0 * NaN, which is NaN: off is off.
        new = torch.zeros_like(old) if change == 0 else old * change
    elif isinstance(change, Tensor):
        new = _replacement(old, change.to(old), mask, channel, what)
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
        # A copy: what overwrites it in place must not reach what the function keeps.
        return new.clone()
    # In the old one's memory format: in another, the convolutions that follow round otherwise.
    return torch.empty_like(old, dtype=new.dtype).copy_(new)


def _replacement(
    old: Tensor, value: Tensor, mask: Tensor | None, channel: int, what: str
) -> Tensor:
    """The tensor at the old one's shape; it may be of the chosen channels alone."""
    if _fits(value.shape, old.shape):
        return value.expand_as(old)
    if mask is not None:
        rows = mask.movedim(channel, 0).flatten(1).any(1).nonzero()[:, 0]
        part = list(old.shape)
        part[channel] = len(rows)
        if _fits(value.shape, part):
            return torch.zeros_like(old).index_copy(channel, rows, value.expand(part))
    raise MisfitError(
        f"The tensor that is to replace {what}, shape {tuple(value.shape)}, does not fit its shape "
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
        raise MisfitError(
            f"The change {name!r} of {what} must return a tensor of shape {tuple(old.shape)}, or "
            f"None to leave it, but it returned {got}."
        )
    return new


def select_channels(flags: Tensor, channels: Channels, what: str) -> None:
    """Set flags ``(C, ...)`` of the chosen channels."""
    if channels is None:
        flags[:] = True
        return
    try:
        if not isinstance(channels, (int, slice)):
            channels = torch.as_tensor(channels)  # numbers, or a mask
            if not channels.numel():
                return  # an empty list has numbers of no kind
        flags[channels] = True
    except (IndexError, TypeError, ValueError) as error:
        raise MisfitError(
            f"channels={channels!r} are not channels of {what}, which has {len(flags)}."
        ) from error


def select_places(flags: Tensor, where: Where, what: str) -> None:
    """Set flags ``(*spatial)`` of the chosen places."""
    size = "×".join(map(str, flags.shape))
    if isinstance(where, Tensor):
        if where.dtype != torch.bool or where.shape != flags.shape:
            raise MisfitError(
                f"where= is a {where.dtype} tensor of shape {tuple(where.shape)}, but the maps of "
                f"{what} are {size}: give a bool tensor of that shape."
            )
        flags |= where.to(flags.device)
        return
    try:
        flags[where] = True
    except (IndexError, TypeError) as error:
        raise MisfitError(
            f"where={where!r} is not in the maps of {what}, which are {size}: give a slice for "
            "each dimension."
        ) from error


def clip_norm(most: float) -> Callable[[Tensor], Tensor]:
    """A change that scales a tensor down to a norm, if it is longer.

    ``g * most / norm(g)`` with the Euclidean norm over all its values, as
    ``torch.nn.utils.clip_grad_norm_`` does for ``.grad``, but at one layer and during backward.

    Parameters
    ----------
    most : float
        The norm to keep to, above 0.

    Raises
    ------
    ValueError
        ``most`` is not above 0.

    Examples
    --------
    >>> import torch, hookviz
    >>> layer = torch.nn.Linear(2, 1)
    >>> with hookviz.edit(layer, "weight", hookviz.clip_norm(1.0), gradient=True):
    ...     layer(torch.tensor([[3.0, 4.0]])).sum().backward()
    >>> round(layer.weight.grad.norm().item(), 4)
    1.0
    """
    if not most > 0:
        raise ValueError(f"clip_norm({most}) would leave nothing: give a norm above 0.")

    def clipped(gradient: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(at_least_float32(gradient))
        return (gradient * (most / norm)).to(gradient.dtype) if norm > most else gradient

    return clipped


def noise(deviation: float, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:
    """A change that adds Gaussian noise.

    Parameters
    ----------
    deviation : float
        The noise's standard deviation, in the tensor's own units.
    generator : torch.Generator, optional
        On the tensor's device; torch's own if left out.

    Examples
    --------
    >>> import torch, hookviz
    >>> layer, x = torch.nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2)
    >>> with hookviz.edit(layer, "", hookviz.noise(0.1, torch.Generator().manual_seed(0))):
    ...     y = layer(x)
    >>> bool((y != layer(x)).all())
    True
    """

    def noisy(tensor: Tensor) -> Tensor:
        # randn_like takes no generator.
        drawn = torch.randn(
            tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device
        )
        return tensor + deviation * drawn

    return noisy
