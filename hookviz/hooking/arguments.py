"""Checks of the numbers among a public function's arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import Any

import torch


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_number(name: str, value: Any, least: float = 0, most: float = math.inf) -> None:
    """Raise ``ValueError`` for anything but a number from ``least`` to ``most``."""
    if not is_number(value) or not least <= value <= most:  # nor NaN
        end = "up" if most == math.inf else f"to {most:g}"
        raise ValueError(f"{name}={value!r} cannot be used: give a number from {least:g} {end}.")


def check_finite(
    name: str, value: Any, advice: str = "a number", *, above: float = -math.inf
) -> None:
    """Raise ``ValueError`` for anything but a finite number above ``above``."""
    if not is_number(value) or not above < value < math.inf:  # nor NaN
        raise ValueError(f"{name}={value!r} cannot be used: give {advice}.")


def whole_number(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} cannot be used: give a whole number from {least} up.")
    return int(value)


def check_device(device: Any) -> None:
    """Raise ``ValueError`` for a device that does not exist here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device={str(device)!r} cannot be used ({reason}): give 'cpu', or leave it out."
        ) from None


def plain_index(value: Any) -> Any:
    """Convert a whole number of NumPy or torch to an int; return any other value unchanged.

    >>> import torch
    >>> plain_index(torch.tensor(3)), plain_index("3")
    (3, '3')
    """
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def is_index(value: Any, size: int, *, from_end: bool = False) -> bool:
    """Return True for a whole number below ``size``; ``from_end`` permits -1 for the last one."""
    try:
        index = operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool) and (-size if from_end else 0) <= index < size


def is_position(value: Any, sizes: Sequence[int]) -> bool:
    """Return True if there is one index for each dimension of a map of these sizes."""
    fits = isinstance(value, Collection) and len(value) == len(sizes)
    return fits and all(map(is_index, value, sizes))
