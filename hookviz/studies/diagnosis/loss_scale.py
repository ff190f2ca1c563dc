"""NaN and Inf in half-precision gradients, which the first steps of a GradScaler may make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .records import OperationRecord

FIRST_SCALE = 65536.0
"""The scale with which a GradScaler begins."""


@dataclass(frozen=True)
class LossScale:
    """The factor by which a loss was, or may have been, multiplied before its backward."""

    factor: float
    known: bool  #: whether the user has named the GradScaler

    @property
    def message(self) -> str:
        """The sentence that explains NaN or Inf in a gradient by the scale."""
        if self.known:
            return (
                f" A GradScaler multiplies losses by {self.factor:g}: in its first steps this is "
                "expected."
            )
        return (
            " This is mixed precision, and a GradScaler would skip such a step, as it does in its "
            "first ones."
        )

    @property
    def advice(self) -> str:
        """The advice of such a finding."""
        if self.known:
            return (
                "Call scaler.step(optimizer) and scaler.update(): such steps are skipped, and the "
                "scale is halved."
            )
        return (
            "If a GradScaler scales this loss, pass it as scaler= to tell whether the scale is the "
            "cause. If none does, use one, or bfloat16."
        )


def loss_scale(scaler: Any, half: bool) -> LossScale | None:
    """Return the scale that may explain a gradient that is not finite.

    Parameters
    ----------
    scaler : torch.amp.GradScaler or None
        A disabled one leaves losses unchanged.
    half : bool
        Whether the gradient was computed in float16. Without a scaler nothing else hints at one.
    """
    if scaler is None:
        return LossScale(FIRST_SCALE, known=False) if half else None
    return LossScale(float(scaler.get_scale()), known=True) if scaler.is_enabled() else None


def check_scaler(scaler: Any) -> None:
    """Raise ValueError for what is not a GradScaler."""
    if scaler is not None and not (hasattr(scaler, "get_scale") and hasattr(scaler, "is_enabled")):
        raise ValueError(
            f"scaler= is {type(scaler).__name__}, which has no get_scale(): give the "
            "torch.amp.GradScaler of the training."
        )


def made_half(operation: OperationRecord) -> bool:
    """Return whether an operation returned float16."""
    return any(each.dtype is torch.float16 for each in operation.made)
