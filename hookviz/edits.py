"""Changes for `hookviz.edit`, each with a strength."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .hooking.arguments import check_finite, check_number, is_number
from .hooking.tensors import at_least_float32

__all__ = ["blur", "clip_norm", "noise"]


def __dir__() -> list[str]:
    return __all__


def clip_norm(max_norm: float) -> Callable[[Tensor], Tensor]:
    """Make a change that scales a tensor down to a norm, if it is longer.

    ``g * max_norm / norm(g)`` with the Euclidean norm over all its values, as
    ``torch.nn.utils.clip_grad_norm_`` does for ``.grad``, but at one layer and during backward.

    Parameters
    ----------
    max_norm : float
        The largest norm, above 0.

    Raises
    ------
    ValueError
        ``max_norm`` is not above 0.

    Examples
    --------
    >>> import torch, hookviz
    >>> layer = torch.nn.Linear(2, 1)
    >>> with hookviz.edit(layer, "weight", hookviz.edits.clip_norm(1.0), gradient=True):
    ...     layer(torch.tensor([[3.0, 4.0]])).sum().backward()
    >>> round(layer.weight.grad.norm().item(), 4)
    1.0
    """
    if not (is_number(max_norm) and max_norm > 0):
        raise ValueError(f"max_norm={max_norm!r} cannot be used: give a norm above 0.")

    def clipped(gradient: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(at_least_float32(gradient))
        return (gradient * (max_norm / norm)).to(gradient.dtype) if norm > max_norm else gradient

    return clipped


def blur(sigma: float) -> Callable[[Tensor], Tensor]:
    """Make a change that blurs maps, or the input, with a Gaussian.

    ``exp(-d**2 / (2 * sigma**2))``, cut off at ``3 * sigma`` and scaled to a sum of 1, in each
    spatial dimension; the nearest value is repeated at the border.

    Parameters
    ----------
    sigma : float
        The Gaussian's standard deviation in positions of the map, or pixels of the input, above 0.

    Raises
    ------
    ValueError
        ``sigma`` is not above 0.

    Examples
    --------
    >>> import torch, hookviz
    >>> layer, x = torch.nn.Conv2d(1, 1, 1), torch.rand(1, 1, 8, 8)
    >>> left_half = (slice(None), slice(4))
    >>> with hookviz.edit(layer, "input", hookviz.edits.blur(2.0), where=left_half):
    ...     y = layer(x)
    >>> bool((y == layer(x))[..., 4:].all()), bool((y == layer(x)).all())
    (True, False)
    """
    check_finite("sigma", sigma, "a number of pixels above 0", above=0)
    return partial(blurred, sigma=sigma, reach=max(1, round(3 * sigma)))


def blurred(tensor: Tensor, *, sigma: float, reach: int) -> Tensor:
    """Blur with a Gaussian, cut off at ``reach``.

    torchvision's ``gaussian_blur`` has two dimensions only and reflects the edges, which fails for
    small inputs; signals and volumes are blurred here too.
    """
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    wide = at_least_float32(tensor)
    for dimension in range(min(tensor.ndim - 1, 2), tensor.ndim):
        size = tensor.shape[dimension]
        places = torch.arange(size, device=tensor.device)
        total = torch.zeros_like(wide)
        for by, weight in zip(range(-reach, reach + 1), kernel.tolist(), strict=True):
            nearest = (places + by).clamp(0, size - 1)
            total += weight * wide.index_select(dimension, nearest)
        wide = total
    return wide.to(tensor.dtype)


def noise(std: float, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:
    """Make a change that adds Gaussian noise.

    Parameters
    ----------
    std : float
        The noise's standard deviation, in the tensor's own units.
    generator : torch.Generator, optional
        On the tensor's device; torch's own if left out.

    Raises
    ------
    ValueError
        ``std`` is below 0.

    Examples
    --------
    >>> import torch, hookviz
    >>> layer, x = torch.nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2)
    >>> with hookviz.edit(layer, "", hookviz.edits.noise(0.1, torch.Generator().manual_seed(0))):
    ...     y = layer(x)
    >>> bool((y != layer(x)).all())
    True
    """
    check_number("std", std)

    def noisy(tensor: Tensor) -> Tensor:
        # randn_like does not accept a generator.
        drawn = torch.randn(
            tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device
        )
        return tensor + std * drawn

    return noisy
