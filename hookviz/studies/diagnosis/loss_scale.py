"""NaN and Inf in half-precision gradients, which the first steps of a GradScaler may make."""

from __future__ import annotations

from typing import Any

import torch

from .records import OperationRecord


def loss_scale(scaler: Any, operation: OperationRecord | None = None) -> tuple[str, str] | None:
    """Explain the NaN or Inf of a gradient by the scale of the loss, and advise; None if it is not.

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
        if not scaler.is_enabled():
            return None
        return (
            f" A GradScaler multiplies losses by {factor_of(scaler):g}: in its first steps "
            "this is expected.",
            "Call scaler.step(optimizer) and scaler.update(): such steps are skipped, and the "
            "scale is halved.",
        )
    if operation is None or all(each.dtype is not torch.float16 for each in operation.made):
        return None
    return (
        " This is mixed precision, and a GradScaler would skip such a step, as it does in its "
        "first ones.",
        "If a GradScaler scales this loss, pass it as scaler= to tell whether the scale is the "
        "cause. If none does, use one, or bfloat16.",
    )


def factor_of(scaler: Any) -> float:
    """Return what a GradScaler multiplies losses by; 1 without one."""
    return 1.0 if scaler is None else float(scaler.get_scale())


def check_scaler(scaler: Any) -> None:
    """Raise ValueError for what is not a GradScaler."""
    if scaler is not None and not (hasattr(scaler, "get_scale") and hasattr(scaler, "is_enabled")):
        raise ValueError(
            f"scaler= is {type(scaler).__name__}, which has no get_scale(): give the "
            "torch.amp.GradScaler of the training."
        )
