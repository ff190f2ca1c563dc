"""Running statistics: moments, extremes, histograms over fixed edges, and the k largest values.

Statistics of parts can be merged in any order. Counts are exact. Means and squares are merged by
the formula of Chan, Golub and LeVeque (1979), which avoids the difference of large squares. NaN and
infinities are counted separately and enter no other statistic.

Everything runs on the device of the tensors. Sums are float64, except on devices without it (MPS).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..hooking.tensors import count_nonzero, wide


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
        return cls.of_reduced(values, *in_blocks(values, *REDUCTIONS))

    @classmethod
    def of_reduced(cls, values: Tensor, total: Tensor, norm: Tensor, nonzero: Tensor) -> Moments:
        """Return the moments of values for which `REDUCTIONS` have returned the other arguments."""
        size, dtype = values.shape[-1], wide(values.device)
        total, raw = total.to(dtype), norm.to(dtype).square()
        mean, none = total / max(size, 1), torch.zeros_like(nonzero)
        moments = cls(none + size, mean, raw - total * mean, size - nonzero, none, none.clone())
        doubtful = ~(are_exact(size, total, raw, values.dtype) | (nonzero == 0))
        if bool(doubtful.any()):
            careful = cls._of_any(values[doubtful])
            for tensor, exact in zip(moments, careful, strict=True):
                tensor[doubtful] = exact
        return moments

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
        return Moments(*map(torch.stack, zip(self, other, strict=True))).merged()

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
    rows = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
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


def extremes_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest finite value along the last dimension, which is not empty.

    Inf and −Inf if there is none.

    >>> extremes_of(torch.tensor([[1.0, -3.0, float("inf")]]))
    (tensor([-3.]), tensor([1.]))
    """
    low, high = values.amin(-1), values.amax(-1)
    if not bool((low.isfinite() & high.isfinite()).all()):
        finite = values.isfinite()
        low = values.where(finite, math.inf).amin(-1)
        high = values.where(finite, -math.inf).amax(-1)
    return low, high


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
        shift, table = _table(self, values.device)
        leading = (values.float().view(torch.int32) >> shift) + len(table) // 2
        bins = table.index_select(0, leading.flatten()).view(leading.shape)
        return bins.masked_fill(values.isnan(), self.size - 1)

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
        >>> counts = bins.index(torch.arange(1.0, 101.0)).bincount(minlength=bins.size)
        >>> round(float(bins.quantile(counts, 0.5)), 1)
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
        edges = [0.0, *self.edges()[1:]]
        both = [*(-edge for edge in reversed(edges)), *edges]
        ends = torch.tensor(both, dtype=dtype, device=counts.device)
        low, high = ends[bin], ends[bin + 1]
        return (low + part * (high - low))[..., 0].where(total > 0, math.nan)


@cache
def _table(bins: LogBins, device: torch.device) -> tuple[int, Tensor]:
    """Return by how many bits a float32 is shifted, and the bin for each result.

    Negative numbers come first.
    """
    shift = 23 - bins.parts.bit_length() + 1
    inner = [2.0**-126, *bins.edges()[1:-1], math.inf]
    least = (torch.arange(1 << (31 - shift), dtype=torch.int32) << shift).view(torch.float32)
    least = least.masked_fill(least.isnan(), math.inf)
    size = torch.bucketize(least, torch.tensor(inner), right=True)
    zero = bins.count + 1
    return shift, torch.cat([zero - size, zero + size]).to(device)


NONE = torch.iinfo(torch.int64).max
"""The index of missing entries, if there are fewer than k values."""


class TopK(NamedTuple):
    """The k largest values of each row, in descending order; equal values by index.

    −Inf does not count as a value.

    Examples
    --------
    >>> import torch
    >>> values, nothing = torch.tensor([[3.0, 5.0, 3.0]]), torch.zeros(1, 3)
    >>> top = TopK.of(values, torch.tensor([7, 8, 6]), nothing, nothing, 2)
    >>> top.values, top.indices
    (tensor([[5., 3.]]), tensor([[8, 6]]))
    """

    values: Tensor  #: ``(rows, k)``; missing entries are −Inf
    indices: Tensor  #: ``(rows, k)`` in int64; missing entries are ``NONE``
    positions: Tensor  #: of each value in its map, ``(rows, k, D)``; undefined for missing entries
    labels: Tensor  #: ``(rows, k)``; undefined for missing entries

    @classmethod
    def of(cls, values: Tensor, indices: Tensor, positions: Tensor, labels: Tensor, k: int) -> TopK:
        """Return the largest of ``values (rows, n)`` without NaN, whose indices are ``(n,)``."""
        missing = max(0, k - values.shape[1])
        indices = indices.expand(values.shape).masked_fill(values == -math.inf, NONE)
        tensors = zip((values, indices, positions, labels), (-math.inf, NONE, 0, 0), strict=True)
        return cls(*(_padded(tensor, missing, blank) for tensor, blank in tensors))._largest(k)

    def __add__(self, other: TopK) -> TopK:  # type: ignore[override]
        both = TopK(*(torch.cat(pair, 1) for pair in zip(self, other, strict=True)))
        return both._largest(self.values.shape[1])

    def _largest(self, k: int) -> TopK:
        # Two stable sorts: the second one leaves equal values in the order of their indices.
        order = self.indices.argsort(dim=1, stable=True)
        values = self.values.gather(1, order)
        order = order.gather(1, values.argsort(dim=1, descending=True, stable=True)[:, :k])
        return TopK(*(_taken(tensor, order) for tensor in self))


def _taken(tensor: Tensor, order: Tensor) -> Tensor:
    return tensor.take_along_dim(order[(..., *[None] * (tensor.ndim - 2))], 1)


def _padded(tensor: Tensor, missing: int, blank: Any) -> Tensor:
    if not missing:
        return tensor
    shape = (len(tensor), missing, *tensor.shape[2:])
    return torch.cat([tensor, tensor.new_full(shape, blank)], 1)
