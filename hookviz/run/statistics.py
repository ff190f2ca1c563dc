"""Running statistics: moments, extremes, histograms over fixed edges, and the k largest values.

Statistics of parts can be merged in any order. Counts are exact. Means and squares are merged by
the formula of Chan, Golub and LeVeque (1979), which avoids the difference of large squares. NaN and
infinities are counted separately and enter no other statistic.

Everything runs on the device of the tensors. Sums are float64, except on devices without it (MPS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..hooking.tensors import count_nonzero


def as_real(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as float32, or float64 where that is needed to hold them.

    Half precision becomes float32, since its sums overflow; integers of 32 and 64 bits become
    float64; booleans are 0 and 1; complex numbers are replaced by their absolute values; quantized
    and sparse tensors are expanded.

    Raises
    ------
    TypeError
        The tensor has no values (on the meta device), or is nested.
    """
    values = tensor.detach()
    if values.is_meta or values.is_nested:
        kind = "meta" if values.is_meta else "nested"
        raise TypeError(f"A {kind} tensor has no statistics: give one that holds its values.")
    if values.is_quantized:
        values = values.dequantize()
    elif values.layout is not torch.strided:
        values = values.to_dense()
    if values.is_complex():
        # abs() of half-precision complex numbers is not implemented on every device.
        values = (values if values.dtype != torch.complex32 else values.to(torch.complex64)).abs()
    if values.dtype in (torch.float32, torch.float64):
        return values
    large = values.dtype in (torch.int32, torch.int64)
    return values.to(wide(values.device) if large else torch.float32)


def wide(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


class Moments(NamedTuple):
    """Counts, mean and sum of squares; all tensors have one shape, an element per set of values.

    Examples
    --------
    >>> import torch
    >>> one, two = Moments.of(torch.tensor([[1.0, 2.0]])), Moments.of(torch.tensor([[0.0, 5.0]]))
    >>> (one + two).mean, (one + two).std
    (tensor([2.], dtype=torch.float64), tensor([1.8708], dtype=torch.float64))
    """

    count: Tensor  # type: ignore[assignment]  #: number of finite values, int64
    mean: Tensor  #: their mean; 0 if there are none
    squares: Tensor  #: sum of the squared distances from the mean
    zeros: Tensor  #: number of values that are zero
    nans: Tensor  #: number of NaN
    infs: Tensor  #: number of infinities

    @classmethod
    def of(cls, values: Tensor) -> Moments:
        """Return the moments along the last dimension of real values, see `as_real`."""
        if not values.shape[-1]:
            shape, device = values.shape[:-1], values.device
            counts = torch.zeros(shape, dtype=torch.int64, device=device)
            sums = torch.zeros(shape, dtype=wide(device), device=device)
            return cls(counts, sums, sums, counts, counts, counts)
        return cls.of_reduced(values, *in_blocks(values, *REDUCTIONS))

    @classmethod
    def of_reduced(cls, values: Tensor, total: Tensor, norm: Tensor, nonzero: Tensor) -> Moments:
        """Return the moments of values for which `REDUCTIONS` have returned the other arguments."""
        size, dtype = values.shape[-1], wide(values.device)
        total, raw = total.to(dtype), norm.to(dtype).square()
        moments = cls.of_sums(size, total, raw, nonzero)
        doubtful = ~(are_exact(size, total, raw, values.dtype) | (nonzero == 0))
        if bool(doubtful.any()):
            careful = cls._of_any(values[doubtful])
            for tensor, exact in zip(moments, careful, strict=True):
                tensor[doubtful] = exact
        return moments

    @classmethod
    def of_sums(cls, size: int | Tensor, total: Tensor, raw: Tensor, nonzero: Tensor) -> Moments:
        """Return the moments of finite values from their sum, their sum of squares and counts."""
        mean = total / size
        zeros = size - nonzero
        nothing = torch.zeros_like(zeros)
        return cls(zeros + nonzero, mean, raw - total * mean, zeros, nothing, nothing.clone())

    @classmethod
    def _of_any(cls, values: Tensor) -> Moments:
        """Return the moments of values that may be NaN or infinite, in two passes."""
        finite, nans = values.isfinite(), values.isnan().sum(-1)
        count = finite.sum(-1)
        values_or_zero = values.where(finite, 0).to(wide(values.device))
        mean = values_or_zero.sum(-1) / count.clamp(min=1)
        deviation = (values_or_zero - mean[..., None]).where(finite, 0)
        zeros = values.shape[-1] - values.count_nonzero(-1)
        infs = values.shape[-1] - count - nans
        return cls(count, mean, deviation.square().sum(-1), zeros, nans, infs)

    def each(self, function: Callable[[Tensor], Tensor]) -> Moments:
        """Apply a function, such as an indexing, to each tensor."""
        return Moments(*map(function, self))

    @classmethod
    def stacked(cls, parts: Sequence[Moments]) -> Moments:
        """Stack moments of one shape along a new first dimension."""
        return cls(*map(torch.stack, zip(*parts, strict=True)))

    def merged(self, dim: int = 0) -> Moments:
        """Return the moments of the union of the sets along a dimension."""
        count = self.count.sum(dim)
        mean = (self.count * self.mean).sum(dim) / count.clamp(min=1)
        deviation = (self.mean - mean.unsqueeze(dim)).where(self.count > 0, 0)
        squares = (self.squares + self.count * deviation * deviation).sum(dim)
        return Moments(
            count, mean, squares, self.zeros.sum(dim), self.nans.sum(dim), self.infs.sum(dim)
        )

    def __add__(self, other: Moments) -> Moments:  # type: ignore[override]
        return Moments.stacked([self, other]).merged()

    @property
    def size(self) -> Tensor:
        """Number of all values, finite or not."""
        return self.count + self.nans + self.infs

    @property
    def std(self) -> Tensor:
        """Standard deviation, divided by the count; NaN if there is no finite value."""
        return (self.squares / self.count).clamp(min=0).sqrt()

    @property
    def norm(self) -> Tensor:
        """Euclidean norm of the finite values, ``sqrt(sum(x**2))``."""
        return (self.squares + self.count * self.mean.square()).clamp(min=0).sqrt()


REDUCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    partial(torch.sum, dim=-1),
    partial(torch.linalg.vector_norm, dim=-1),
    count_nonzero,
)
"""Sum, Euclidean norm and number of nonzero values along the last dimension."""

_AT_ONCE = 1 << 18
"""Values that stay in the processor's cache while they are reduced in several ways."""


def in_blocks(values: Tensor, *reductions: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return several reductions along the last dimension, each with one value for a row."""
    rows = values.reshape(-1, values.shape[-1])
    step = max(1, len(rows))
    if values.device.type == "cpu" and values.numel() >= 8 * _AT_ONCE:
        # Otherwise each reduction would read all values from memory: three times slower.
        step = max(1, _AT_ONCE // rows.shape[1])
    parts = [[reduction(part) for reduction in reductions] for part in rows.split(step)]
    return [torch.cat(each).view(values.shape[:-1]) for each in zip(*parts, strict=True)]


def are_exact(size: int, total: Any, raw: Any, dtype: torch.dtype) -> Any:
    """Return whether sums and sums of squares (``raw``) determine the variance with precision.

    Their difference loses its digits if the mean is large compared to the deviation, or if squares
    underflow. It is NaN if a value is not finite, or if a sum overflowed.
    """
    limits = torch.finfo(dtype)
    squares = raw - total * (total / size)
    return (squares > 0.01 * raw) & (raw >= limits.tiny / limits.eps)


class Extremes(NamedTuple):
    """The least and largest finite value; Inf and −Inf if there is none.

    >>> import torch
    >>> found = Extremes.of(torch.tensor([[1.0, -3.0, float("inf")]]))
    >>> found.low, found.high
    (tensor([-3.]), tensor([1.]))
    """

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Extremes:
        """Return the extremes along the last dimension of real values, which is not empty."""
        low, high = values.amin(-1), values.amax(-1)
        if not bool((low.isfinite() & high.isfinite()).all()):
            finite = values.isfinite()
            low = values.where(finite, math.inf).amin(-1)
            high = values.where(finite, -math.inf).amax(-1)
        return cls(low, high)

    def merged(self, dim: int = 0) -> Extremes:
        """Return the extremes of the union of the sets along a dimension."""
        return Extremes(self.low.amin(dim), self.high.amax(dim))

    def __add__(self, other: Extremes) -> Extremes:  # type: ignore[override]
        return Extremes(self.low.minimum(other.low), self.high.maximum(other.high))


@dataclass(frozen=True)
class LogBins:
    """Logarithmic bins with fixed edges, so that histograms can be added.

    Each octave from 2^first to 2^last is cut into equal parts, for either sign. In order: −Inf, the
    negative bins, zero, the positive bins, Inf, NaN. Values beyond the last edge are in the last
    bin of their sign, values below the first in the first. An edge belongs to the bin that is
    further from zero. Values are rounded to float32; those below 2^−126 count as zero.

    Parameters
    ----------
    first, last : int
        Exponents of the first and the last edge.
    parts : int
        Bins in an octave, a power of two.

    Examples
    --------
    >>> import torch
    >>> bins = LogBins(-1, 2)
    >>> bins.edges(), bins.size
    ([0.5, 1.0, 2.0, 4.0], 10)
    >>> bins.index(torch.tensor([-3.0, 0.0, 0.6, 9.0, float("inf"), float("nan")])).tolist()
    [1, 4, 5, 7, 8, 9]
    """

    first: int
    last: int
    parts: int = 1

    @property
    def count(self) -> int:
        """Number of bins of either sign."""
        return (self.last - self.first) * self.parts

    @property
    def size(self) -> int:
        """Number of all bins."""
        return 2 * self.count + 4

    def edges(self) -> list[float]:
        """Return the edges of the positive bins, ``count + 1`` values."""
        octaves = range(self.first, self.last)
        inner = [2.0**e * (1 + part / self.parts) for e in octaves for part in range(self.parts)]
        return [*inner, 2.0**self.last]

    def index(self, values: Tensor) -> Tensor:
        """Return the bin of each real value, int64."""
        # Sign, exponent and the first bits of the mantissa determine the bin. A table lookup is
        # several times faster than torch.bucketize.
        shift, table = self._lookup(values.device)
        leading = (values.float().view(torch.int32) >> shift) + len(table) // 2
        bins = table.index_select(0, leading.flatten()).view(leading.shape)
        return bins.masked_fill(values.isnan(), self.size - 1)

    def _lookup(self, device: torch.device) -> tuple[int, Tensor]:
        """Return by how many bits a float32 is shifted, and the bin for each result."""
        shift = 23 - self.parts.bit_length() + 1
        return shift, _table(self, shift, device)

    def histogram(self, values: Tensor) -> Tensor:
        """Count the values of each bin along the last dimension, ``(..., size)`` in int64."""
        shape, flat = values.shape[:-1], values.reshape(-1, values.shape[-1])
        rows, (shift, table) = len(flat), self._lookup(values.device)
        # Counting the leading bits is several times faster than looking up the bin of each value,
        # and bincount is deterministic on every device, which scatter_add_ is not.
        leading = (flat.float().view(torch.int32) >> shift) + len(table) // 2
        leading += torch.arange(rows, device=flat.device, dtype=torch.int32)[:, None] * len(table)
        bits = leading.flatten().bincount(minlength=rows * len(table)).view(rows, len(table))
        counts = bits.new_zeros(rows, self.size).index_add_(1, table, bits)
        if bool(counts[:, [0, -2]].any()):  # NaN has the exponent of the infinities
            special = [flat == -math.inf, flat == math.inf, flat.isnan()]
            counts[:, [0, -2, -1]] = torch.stack([each.sum(1) for each in special], 1)
        return counts.view(*shape, self.size)

    def quantile(self, counts: Tensor, q: float) -> Tensor:
        """Return the value below which a fraction ``q`` of the finite values lies.

        It lies in the bin of the true quantile; values are assumed to be spread evenly within their
        bin.

        Parameters
        ----------
        counts : torch.Tensor
            Histograms, ``(..., size)``.
        q : float
            0 to 1.

        Returns
        -------
        torch.Tensor
            ``(...)``; NaN where no finite value was counted.

        Examples
        --------
        >>> import torch
        >>> bins = LogBins(-24, 24, 4)
        >>> values = torch.arange(1.0, 101.0)
        >>> round(float(bins.quantile(bins.histogram(values), 0.5)), 1)
        51.0
        """
        dtype = wide(counts.device)
        finite = counts[..., 1:-2].to(dtype)
        below, total = finite.cumsum(-1), finite.sum(-1)
        target = q * total[..., None]
        bin = ((below < target) | (below == 0)).sum(-1, keepdim=True)
        bin = bin.clamp(max=finite.shape[-1] - 1)
        inside = finite.gather(-1, bin)
        before = below.gather(-1, bin) - inside
        part = ((target - before) / inside.clamp(min=1)).clamp(0, 1)
        ends = torch.tensor(_ends(self), dtype=dtype, device=counts.device)
        low, high = ends[0, bin], ends[1, bin]
        return (low + part * (high - low))[..., 0].where(total > 0, math.nan)


@cache
def _table(bins: LogBins, shift: int, device: torch.device) -> Tensor:
    """Return the bin for each value of a float32's leading bits; negative numbers come first."""
    half = 1 << (31 - shift)
    inner = [2.0**-126, *bins.edges()[1:-1], math.inf]
    least = (torch.arange(half, dtype=torch.int32) << shift).view(torch.float32)
    least = least.masked_fill(least.isnan(), math.inf)
    size = torch.bucketize(least, torch.tensor(inner), right=True)
    zero = bins.count + 1
    return torch.cat([zero - size, zero + size]).to(device)


@cache
def _ends(bins: LogBins) -> list[list[float]]:
    """Return the lower and the upper ends of the finite bins."""
    edges = [0.0, *bins.edges()[1:]]
    minus = [-edge for edge in reversed(edges)]
    return [[*minus[:-1], 0.0, *edges[:-1]], [*minus[1:], 0.0, *edges[1:]]]


NONE = torch.iinfo(torch.int64).max
"""The index of missing entries, if there are fewer than k values."""


@dataclass(eq=False)
class TopK:
    """The k largest values of each row, in descending order; equal values by index.

    −Inf does not count as a value.

    Attributes
    ----------
    values : torch.Tensor
        ``(rows, k)``; missing entries are −Inf.
    indices : torch.Tensor
        ``(rows, k)`` in int64; missing entries are ``NONE``.
    more : dict of str to torch.Tensor
        Further data for each value, ``(rows, k, ...)``; missing entries are undefined.

    Examples
    --------
    >>> import torch
    >>> top = TopK.of(torch.tensor([[3.0, 5.0, 3.0]]), torch.tensor([7, 8, 6]), 2)
    >>> top.values, top.indices
    (tensor([[5., 3.]]), tensor([[8, 6]]))
    """

    values: Tensor
    indices: Tensor
    more: dict[str, Tensor]

    @classmethod
    def of(cls, values: Tensor, indices: Tensor, k: int, **more: Tensor) -> TopK:
        """Return the largest of ``values (rows, n)`` without NaN, whose indices are ``(n,)``."""
        missing = max(0, k - values.shape[1])
        by_index = indices.argsort()
        # A stable sort: equal values stay in the order of their indices.
        order = values[:, by_index].argsort(dim=1, descending=True, stable=True)
        largest = cls(values, indices.expand(values.shape), more).each(
            lambda tensor: _taken(tensor, by_index[order[:, :k]])
        )
        largest.indices.masked_fill_(largest.values == -math.inf, NONE)
        return cls(
            _padded(largest.values, missing, -math.inf),
            _padded(largest.indices, missing, NONE),
            {name: _padded(tensor, missing, 0) for name, tensor in largest.more.items()},
        )

    def __add__(self, other: TopK) -> TopK:
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        values, indices, *more = (torch.cat(pair, 1) for pair in pairs)
        both = TopK(values, indices, dict(zip(self.more, more, strict=True)))
        return both._largest(self.values.shape[1])

    def each(self, function: Callable[[Tensor], Tensor]) -> TopK:
        """Apply a function to each tensor."""
        values, indices, *more = map(function, self._tensors())
        return TopK(values, indices, dict(zip(self.more, more, strict=True)))

    def _tensors(self) -> list[Tensor]:
        return [self.values, self.indices, *self.more.values()]

    def _largest(self, k: int) -> TopK:
        # Two stable sorts: the second one leaves equal values in the order of their indices.
        order = self.indices.argsort(dim=1, stable=True)
        values = self.values.gather(1, order)
        order = order.gather(1, values.argsort(dim=1, descending=True, stable=True)[:, :k])
        return self.each(lambda tensor: _taken(tensor, order))


def _taken(tensor: Tensor, order: Tensor) -> Tensor:
    return tensor.take_along_dim(order[(..., *[None] * (tensor.ndim - 2))], 1)


def _padded(tensor: Tensor, missing: int, blank: Any) -> Tensor:
    if not missing:
        return tensor
    shape = (len(tensor), missing, *tensor.shape[2:])
    return torch.cat([tensor, tensor.new_full(shape, blank)], 1)
