"""Ranges and norms of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...hooking.tensors import at_least_float32
from ...tables import number


@dataclass(eq=False, slots=True)  # a frozen one takes four times as long to make
class Range:
    """Minimum and maximum of a tensor; both are NaN if one value is."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def finite(self) -> bool:
        """True if there is no NaN and no Inf."""
        return self.low > -math.inf and self.high < math.inf

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


def real_numbers(tensor: Tensor) -> Tensor:
    """Return a tensor's numbers, of complex ones both parts, as float32 or float64."""
    values = tensor.detach()
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def range_of(tensor: Tensor) -> Range | None:
    """Return the range of a floating-point or complex tensor; None if it cannot be read.

    >>> print(range_of(torch.tensor([[0.5, -2.0]])))
    −2 … 0.5 (1×2)
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return None
    try:
        values = real_numbers(tensor)
        low, high = (each.item() for each in values.aminmax()) if values.numel() else (0.0, 0.0)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantized, nested
        return None
    return Range(low, high, tuple(tensor.shape), tensor.dtype)


def norm_of(tensor: Tensor) -> float:
    """Euclidean norm, ``sqrt(sum(x**2))``, summed in single precision at least.

    >>> norm_of(torch.tensor([3.0, 4.0])), f"{norm_of(torch.tensor([3e30, 4e30])):.3g}"
    (5.0, '5e+30')
    """
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    norm = float(torch.linalg.vector_norm(at_least_float32(tensor)))
    if math.isinf(norm):  # the squares of large numbers overflow in single precision
        double = torch.promote_types(tensor.dtype, torch.float64)
        norm = float(torch.linalg.vector_norm(tensor, dtype=double))
    return norm


def channel_ranges(tensor: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value of each channel."""
    # On a CPU ``aminmax`` over one dimension takes ten times as long as these two.
    others = [d for d in range(tensor.ndim) if d != dimension]
    return tensor.amin(others), tensor.amax(others)
