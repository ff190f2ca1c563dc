"""Ranges and norms of tensors, of many in one pass where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...hooking.tensors import at_least_float32, on_cpu
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


SMALL = 4096
"""The largest number of values of a small tensor."""


def bounds_of(tensors: Sequence[Tensor]) -> list[Range | None]:
    """Return ranges of several tensors: of small ones −m to m for the largest absolute value m.

    A model has many small weights, and reading each range by itself would take longer. The range of
    a large one, and of one with NaN or Inf, is its minimum and maximum, which are faster there.
    """
    common = [each for each in tensors if each.numel() <= SMALL and _is_common(each)]
    largest = dict(zip(map(id, common), _common_norms(common, math.inf), strict=True))
    sizes = [largest.get(id(each), math.nan) for each in tensors]
    return [
        Range(-m, m, tuple(each.shape), each.dtype) if math.isfinite(m) else range_of(each)
        for each, m in zip(tensors, sizes, strict=True)
    ]


def norms_of(tensors: Sequence[Tensor]) -> list[float]:
    """Return the Euclidean norms of several tensors.

    >>> [f"{norm:.3g}" for norm in norms_of([torch.tensor([3.0, 4.0]), torch.tensor([3e30, 4e30])])]
    ['5', '5e+30']
    """
    common = all(map(_is_common, tensors))
    norms = _common_norms(tensors, 2.0) if common else [math.inf] * len(tensors)
    # The squares of large numbers overflow in single precision.
    return [
        norm_of(each, exact=True).item() if norm == math.inf else norm
        for each, norm in zip(tensors, norms, strict=True)
    ]


def _common_norms(tensors: Sequence[Tensor], order: float) -> list[float]:
    # Detached and not under torch.no_grad(): an interrupt at its end would leave it on.
    own = [each.detach() for each in tensors]
    norms = torch.ops.aten._foreach_norm(own, order) if own else ()
    return [each.item() for each in on_cpu(norms)]


def _is_common(tensor: Tensor) -> bool:
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return plain and tensor.dtype is torch.float32 and tensor.numel() > 0 and not tensor.is_meta


def norm_of(tensor: Tensor, *, exact: bool) -> Tensor:
    """Euclidean norm, ``sqrt(sum(x**2))``, summed in single precision at least.

    Its squares may be infinite where it is not: then the ``exact`` one is summed in double.
    """
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    norm = torch.linalg.vector_norm(at_least_float32(tensor))
    if exact and math.isinf(norm):
        double = torch.promote_types(tensor.dtype, torch.float64)
        norm = torch.linalg.vector_norm(tensor, dtype=double)
    return norm


def channel_ranges(tensor: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value of each channel."""
    # On a CPU ``aminmax`` over one dimension takes ten times as long as these two.
    others = [d for d in range(tensor.ndim) if d != dimension]
    return tensor.amin(others), tensor.amax(others)
