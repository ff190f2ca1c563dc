"""All layers at a glance: one cell each, with the size and the health of what came out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..hooking.records import CapturedTensor, FeatureCache, Statistics


class Cell(NamedTuple):
    """One layer in the ribbon.

    Attributes
    ----------
    name, block : str
        The layer's name, and the first part of it.
    side : int
        Longest spatial side of its maps.
    activation, gradient : float
        Root mean square of the finite values; the gradient's is None where none arrived.
    zeros : float
        Share of the activations that are zero, 0 to 1.
    nans, infs : int
        How many values are NaN, how many infinite, in activation and gradient.
    """

    name: str
    block: str
    side: int
    activation: float
    gradient: float | None
    zeros: float
    nans: int
    infs: int


def ribbon(cache: FeatureCache, names: Sequence[str]) -> list[Cell]:
    """The cells of these layers, in this order; of each layer's last call.

    Examples
    --------
    >>> import hookviz, torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))
    >>> with hookviz.capture(model) as cache:
    ...     _ = model(torch.zeros(1, 1, 8, 6))
    >>> cell = ribbon(cache, ["0"])[0]
    >>> cell.block, cell.side, cell.gradient
    ('0', 6, None)
    """
    return [_cell(name, cache[name].last.outputs[0]) for name in names]


def _cell(name: str, output: CapturedTensor) -> Cell:
    values, slopes = output.statistics, output.gradient_statistics
    count = math.prod(output.shape)
    each = [values, *([slopes] if slopes is not None else [])]
    return Cell(
        name=name,
        block=name.partition(".")[0],
        side=max(output.shape[2:], default=1),
        activation=_rms(values, count),
        gradient=None if slopes is None else _rms(slopes, count),
        zeros=values.zeros,
        nans=sum(one.nans for one in each),
        infs=sum(one.infs for one in each),
    )


def _rms(values: Statistics, count: int) -> float:
    finite = count - values.nans - values.infs
    return values.norm / math.sqrt(finite) if finite else math.nan
