"""The value that a setting gets in a view, or a ``ValueError`` that says what is wrong with it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

import matplotlib

from ..hooking.select import close_names, module_names
from ..run.target import Target, named_target, sample_scores
from .layer import why_not_shown
from .maps import counts_of
from .settings import DECLARED, Settings, heatmap_names
from .view import View


def _captured(name: str, value: Any, view: View) -> str:
    if value not in view.cache:
        names = module_names(view.session.model).values()
        if any(value in aliases for aliases in names):
            near = f": make an explorer with layers={value!r}, or a list that has it"
        else:
            near = f"; {close_names(value, view.cache)}"
        raise ValueError(f"layer={value!r} was not captured{near}.")
    record = view.cache[value]
    if why := why_not_shown(record):
        raise ValueError(f"layer={value!r} cannot be shown: {why}")
    return record.name  # its first name


def _in_range(name: str, value: int, view: View) -> int:
    count = counts_of(view)["channel" if name == "reference_channel" else name]
    if name == "call" and -count <= value < 0:  # as in other functions, −1 is the last
        return value + count
    if value not in range(count):
        where = f"layer {view.settings.layer!r}"
        raise ValueError(f"{name}={value} is not in {where}: give 0 to {count - 1}.")
    return value


def _goal(name: str, value: Any, view: View) -> Target:
    names = view.session.class_names
    target, logits = named_target(value, names), view.run.logits
    if not callable(target) and logits is not None:
        sample_scores(logits, target, names)
    return target


def _colormap(name: str, value: str, view: View) -> str:
    if value not in (names := ["auto", *matplotlib.colormaps]):
        raise ValueError(
            f"cmap={value!r} is neither 'auto' nor a colormap of matplotlib's; "
            f"{close_names(value, names)}."
        )
    return value


def _known_heatmap(name: str, value: str, view: View) -> str:
    if value not in (names := list(heatmap_names(view))):
        raise ValueError(f"Unknown heatmap {value!r}; {close_names(value, names, len(names))}.")
    return value


def _opacity(name: str, value: float, view: View) -> float:
    if not 0 <= value <= 1:  # nor NaN
        raise ValueError(f"alpha={value} is not an opacity: give 0 to 1.")
    return value


def checked_place(value: Any) -> tuple[float, float] | None:
    """Return two fractions, or None; raise a ``ValueError`` for anything else."""
    if value is None:
        return None
    try:
        down, right = map(float, value)
    except (TypeError, ValueError):
        down = right = math.nan
    if not (0 <= down <= 1 and 0 <= right <= 1):
        raise ValueError(
            f"place={value!r} is not a position in a map: give two fractions from 0 to 1, down and "
            "right, or None."
        )
    return down, right


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _truth(value: Any) -> bool:
    if value not in (False, True):
        raise TypeError
    return bool(value)


_KINDS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    int: (operator.index, "a whole number"),
    float: (_number, "a number"),
    bool: (_truth, "True or False"),
    str: (_text, "a string"),
}
"""Type of the default -> a conversion, which takes NumPy's and torch's scalars, too; its words."""


CHECKS: dict[str, Callable[[str, Any, View], Any]] = {
    "layer": _captured,
    **dict.fromkeys(("call", "sample", "depth", "channel", "reference_channel"), _in_range),
    "target": _goal,
    "cmap": _colormap,
    "heatmap": _known_heatmap,
    "alpha": _opacity,
    "place": lambda name, value, view: checked_place(value),
}
"""By setting: (name, value, view) -> the value that it gets, where its type alone is no check."""


def check(name: str, value: Any, view: View) -> Any:
    """Return the value that a setting gets in this view; raise a ``ValueError`` if it has none."""
    declared, default = DECLARED[name], Settings.__dataclass_fields__[name].default
    if known := _KINDS.get(str if default is MISSING else type(default)):
        convert, words = known
        try:
            value = convert(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name}={value!r} is not {words}.") from None
    if declared.closed and declared.offered and value not in declared.offered():
        raise ValueError(f"{name}={value!r} is unknown; {close_names(value, declared.offered())}.")
    return CHECKS[name](name, value, view) if name in CHECKS else value
