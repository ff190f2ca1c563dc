"""Linear centred kernel alignment, from Gram matrices of batches."""

from __future__ import annotations

import torch
from torch import Tensor

_AT_ONCE = 1 << 22  # how many numbers are made double at once


def gram(features: Tensor) -> Tensor:
    """The Gram matrix ``X X^T`` of a batch in double precision: ``(N, ...)`` -> ``(N, N)``, on CPU.

    A complex feature counts as two.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """
    if features.is_complex():
        features = torch.view_as_real(features.resolve_conj())
    rows = features.detach().flatten(1)
    if rows.device.type == "mps":  # no double precision there
        rows = rows.cpu()
    parts = rows.split(max(1, _AT_ONCE // max(1, len(rows))), 1)
    grams = [part.double() @ part.double().T for part in parts]
    return torch.stack(grams).sum(0).cpu()


def unbiased_hsic(k: Tensor, l: Tensor) -> Tensor:  # noqa: E741
    """The unbiased estimate of HSIC from Gram matrices of the same n ≥ 4 samples.

    With the diagonals of ``K`` and ``L`` set to zero it is ::

        (tr(K L) + sum(K) sum(L) / ((n-1)(n-2)) - 2 sum(K L) / (n-2)) / (n (n-3))

    [1]_. Of stacks ``(A, 1, n, n)`` and ``(B, n, n)`` it is that of each pair, ``(A, B)``.

    References
    ----------
    .. [1] Song et al., *Feature Selection via Dependence Maximization*, JMLR 2012, eq. 5.
    """
    n = k.shape[-1]
    off = 1 - torch.eye(n, dtype=k.dtype)
    k, l = k * off, l * off  # noqa: E741
    trace = (k * l).sum((-2, -1))  # both are symmetric
    sums = k.sum((-2, -1)) * l.sum((-2, -1)) / ((n - 1) * (n - 2))
    crossed = (k.sum(-2) * l.sum(-2)).sum(-1) * 2 / (n - 2)
    return (trace + sums - crossed) / (n * (n - 3))


class LinearCKA:
    """CKA of all pairs of layers, summed up over batches.

    ``sum HSIC(K, L) / sqrt(sum HSIC(K, K) sum HSIC(L, L))`` over the batches [1]_, each of which is
    of four samples or more; the estimate does not depend on how large they are.

    References
    ----------
    .. [1] Nguyen, Raghu and Kornblith, *Do Wide and Deep Networks Learn the Same Things?*, ICLR
       2021, eq. 2.
    """

    def __init__(self) -> None:
        self._crossed: Tensor | float = 0.0
        self._own: list[Tensor | float] = [0.0, 0.0]

    def add(self, a: list[Tensor], b: list[Tensor]) -> None:
        """Take in the Gram matrices ``(n, n)`` of one batch, of each model's layers."""
        ours, theirs = torch.stack(a), torch.stack(b)
        self._crossed = self._crossed + unbiased_hsic(ours[:, None], theirs)
        for place, grams in enumerate((ours, theirs)):
            self._own[place] = self._own[place] + unbiased_hsic(grams, grams)

    def matrix(self) -> Tensor:
        """The similarities ``(A, B)`` in double precision; NaN of a layer that never varies."""
        own = [torch.as_tensor(each).clamp(min=0).sqrt() for each in self._own]
        return torch.as_tensor(self._crossed) / (own[0][:, None] * own[1])

    def constant(self) -> list[Tensor]:
        """Of each model, which layers never varied, ``(A,)`` and ``(B,)``."""
        return [torch.as_tensor(each) <= 0 for each in self._own]
