"""What the model answered and what was asked of it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..run.targets import Target, probabilities

TOP = 5

Prediction = tuple[int, str, float]
"""A class: its number, name and probability."""


def ranked(logits: Tensor | None, sample: int, class_names: Sequence[str]) -> list[Prediction]:
    """A sample's top five classes; none of no classifier.

    Parameters
    ----------
    logits : torch.Tensor or None
        ``(N, K)``.
    class_names : sequence of str
        May be shorter than there are classes, or empty.

    Examples
    --------
    >>> import torch
    >>> ranked(torch.tensor([[0.25, 0.75]]), 0, ["ball"])
    [(1, 'class 1', 0.75), (0, 'ball', 0.25)]
    """
    if logits is None:
        return []
    row = probabilities(logits[min(sample, len(logits) - 1)][None])[0]
    best = row.topk(min(TOP, len(row)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(index, class_name(index, class_names), share) for index, share in pairs]


def class_name(index: int, class_names: Sequence[str]) -> str:
    return class_names[index] if index < len(class_names) else f"class {index}"


def target_name(
    target: Target, sample: int, class_names: Sequence[str], predictions: list[Prediction]
) -> str:
    """What the gradient of a sample is of.

    Examples
    --------
    >>> target_name(["ball", (1, 0)], 1, ["ball", "moon"], [])
    'moon against ball'
    """
    if isinstance(target, list):
        target = target[min(sample, len(target) - 1)]
    if callable(target):
        return getattr(target, "__name__", "a function")
    if target is None:
        return predictions[0][1] if predictions else "nothing"
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (c if isinstance(c, str) else class_name(c, class_names) for c in classes)
    return f"{first} against {' and '.join(others)}" if others else first
