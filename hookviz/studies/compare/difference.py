"""How far two tensors are apart, in numbers, without copies of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_AT_ONCE = 1 << 20  # how many numbers are looked at in one go: what is computed on the way is small


@dataclass(frozen=True)
class TensorDifference:
    """How far tensor b is from tensor a, over all places where both are finite.

    Attributes
    ----------
    largest, mean : float
        Of ``|a − b|``.
    relative : float
        ``‖a − b‖ / ‖a‖``: 0 if they are equal, Inf if a is all zeros and b is not.
    cosine : float
        ``a·b / (‖a‖ ‖b‖)``, NaN if either is all zeros.
    share : float
        Share of places, 0 to 1, at which they differ at all. NaN is equal to NaN.
    odd : int
        At how many places only one of them is finite, or they are not the same NaN or Inf.
    epsilon : float
        The rounding of the coarser of both types, relative to a: the distance from 1 to the next
        number, and the smallest number of all over a's root mean square.
    why : str
        Why they cannot be compared, such as shapes that differ; else empty.
    """

    largest: float = math.nan
    mean: float = math.nan
    relative: float = math.nan
    cosine: float = math.nan
    share: float = math.nan
    odd: int = 0
    epsilon: float = 0.0
    why: str = ""

    @property
    def decibel(self) -> float:
        """The signal-to-noise ratio, ``20 log10(‖a‖ / ‖a − b‖)``: Inf if they are equal."""
        if not self.relative > 0:
            return math.nan if math.isnan(self.relative) else math.inf
        return -20 * math.log10(self.relative)

    @property
    def distance(self) -> float:
        """``relative``; Inf if they cannot be compared, or where one of them alone is finite."""
        return math.inf if self.why or self.odd else self.relative

    @property
    def equal(self) -> bool:
        """Whether there is no difference at all."""
        return not self.why and self.share == 0


def difference(a: Tensor, b: Tensor) -> TensorDifference:
    """How far b is from a, in double precision where the device knows it.

    >>> import torch
    >>> found = difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))
    >>> found.largest, found.mean, found.relative, found.share
    (0.5, 0.25, 0.1, 0.5)
    >>> difference(torch.zeros(2), torch.zeros(3)).why
    'shapes differ: 2 and 3'
    """
    coarser = max(a, b, key=rounding)
    epsilon = rounding(coarser)
    if a.shape != b.shape:
        shapes = " and ".join("×".join(map(str, each.shape)) or "one number" for each in (a, b))
        return TensorDifference(epsilon=epsilon, why=f"shapes differ: {shapes}")
    a, b = _flat(a), _flat(b)
    parts = zip(a.split(_AT_ONCE), b.split(_AT_ONCE), strict=True)
    sums = [_sums(one, two.to(one.device)) for one, two in parts if one.numel()]
    if not sums:
        return TensorDifference(0.0, 0.0, 0.0, math.nan, 0.0, 0, epsilon)
    largest = max(each[0] for each in sums)
    total, apart, ours, theirs, both, differing, odd = map(
        math.fsum, list(zip(*sums, strict=True))[1:]
    )
    if ours:
        epsilon += _smallest(coarser) * math.sqrt(len(a) / ours)
    return TensorDifference(
        largest,
        total / len(a),
        math.sqrt(apart / ours) if ours else (math.inf if apart else 0.0),
        both / math.sqrt(ours * theirs) if ours * theirs else math.nan,
        differing / len(a),
        int(odd),
        epsilon,
    )


def _sums(a: Tensor, b: Tensor) -> list[float]:
    """Of a part: the largest |a − b|; sums of it, (a − b)², a², b², ab; how many ≠, are odd."""
    # MPS has no double precision.
    a, b = (each.float() if each.device.type == "mps" else each.double() for each in (a, b))
    differing = (a != b) & ~(a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    odd = (differing & ~finite).sum()
    if not finite.all():
        a, b = a.where(finite, 0), b.where(finite, 0)
    apart = a - b
    size = apart.abs()
    found = size.max(), size.sum(), apart @ apart, a @ a, b @ b, a @ b, differing.sum(), odd
    return torch.stack([each.double().cpu() for each in found]).tolist()


def _flat(tensor: Tensor) -> Tensor:
    """All numbers in a row; a complex one is two."""
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).flatten()


def rounding(tensor: Tensor) -> float:
    """The distance from 1 to the next number of its type; 0 for whole numbers."""
    if tensor.is_quantized:
        return 2.0**-8
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return torch.finfo(tensor.dtype).eps if inexact else 0.0


def _smallest(tensor: Tensor) -> float:
    """Numbers next to zero are so far from it, however small they are."""
    if tensor.is_quantized or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    known = torch.finfo(tensor.dtype)
    return known.tiny * known.eps
