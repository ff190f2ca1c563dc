"""Options of an attribution, checked before anything runs."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} cannot be used: give a whole number from {least} up.")
    return int(value)


def rows_at_once(name: str, given: int | None, least: int, chosen: Tensor | None) -> int:
    """How many samples go through the model at once."""
    if given is None:
        return least
    if chosen is None:
        # It would be given several copies of the batch as if they were one.
        raise ValueError(f"{name}={given} needs a class as target, not a function: leave it out.")
    return max(whole_number(name, given), least)


def baseline_like(name: str, given: Any, x: Tensor) -> Tensor:
    if not isinstance(given, Tensor) and not is_number(given):
        raise ValueError(
            f"{name}={given!r} cannot be used: give a number or a tensor of the input's shape."
        )
    try:
        value = given.detach() if isinstance(given, Tensor) else torch.tensor(float(given))
        return value.to(x).expand_as(x).clone()
    except RuntimeError:
        raise ValueError(
            f"{name}= has shape {tuple(given.shape)}, which does not fit the input's "
            f"{tuple(x.shape)}: give a number or a tensor of the input's shape."
        ) from None


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators that `preserved_state` puts back; torch.manual_seed would seed others."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)
