"""NaN and Inf in half-precision gradients, which the first steps of a GradScaler may make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .records import OperationRecord


@dataclass(frozen=True)
class LossScale:
    """The factor by which a loss was, or may have been, multiplied before its backward."""

    factor: float | None  #: None unless the user has named the GradScaler

    @property
    def message(self) -> str:
        """The sentence that explains NaN or Inf in a gradient by the scale."""
        if self.factor is not None:
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
        if self.factor is not None:
            return (
                "Call scaler.step(optimizer) and scaler.update(): such steps are skipped, and the "
                "scale is halved."
            )
        return (
            "If a GradScaler scales this loss, pass it as scaler= to tell whether the scale is the "
            "cause. If none does, use one, or bfloat16."
        )


def loss_scale(scaler: Any, operation: OperationRecord | None = None) -> LossScale | None:
    """Return the scale that explains the NaN or Inf of a gradient; None if there is none.

    Parameters
    ----------
    scaler : torch.amp.GradScaler or None
        A disabled one leaves losses unchanged. Without one only float16 hints at it.
    operation : OperationRecord, optional
        What made the NaN or Inf, if it is known: a scale explains only what is too large.
    """
    if operation is not None and (operation.cause is None or not operation.cause.overflow):
        return None
    if scaler is not None:
        return LossScale(float(scaler.get_scale())) if scaler.is_enabled() else None
    made = operation.made if operation is not None else ()
    return LossScale(None) if any(each.dtype is torch.float16 for each in made) else None


def check_scaler(scaler: Any) -> None:
    """Raise ValueError for what is not a GradScaler."""
    if scaler is not None and not (hasattr(scaler, "get_scale") and hasattr(scaler, "is_enabled")):
        raise ValueError(
            f"scaler= is {type(scaler).__name__}, which has no get_scale(): give the "
            "torch.amp.GradScaler of the training."
        )
