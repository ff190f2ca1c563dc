"""The check of a setting's value in a view: what is set is there, or the error says what is."""

from __future__ import annotations

import math
from typing import Any

import matplotlib

from ..hooking.select import close_names
from ..run.target import check_target, sample_scores
from .layer import why_not_shown
from .settings import INDICES, heatmap_names
from .view import View


def check(name: str, value: Any, view: View) -> Any:
    """The value that a setting gets in this view; a ``ValueError`` says what others there are."""
    if name == "layer":
        if value not in view.cache:
            raise ValueError(f"layer={value!r} was not captured; {close_names(value, view.cache)}.")
        record = view.cache[value]
        if why := why_not_shown(record):
            raise ValueError(f"layer={value!r} cannot be shown: {why}")
        return record.name  # its first name
    if name in INDICES and value not in (every := range(view.counts()[name])):
        where = f"layer {view.at.layer!r}"
        raise ValueError(f"{name}={value} is not in {where}: give 0 to {every[-1]}.")
    if name == "target":
        target, logits = check_target(value), view.run.logits
        if not callable(target) and logits is not None:
            sample_scores(logits, target, view.session.class_names)
        return target
    if name == "cmap" and value not in (names := ["auto", *matplotlib.colormaps]):
        raise ValueError(
            f"cmap={value!r} is neither 'auto' nor a colormap of matplotlib's; "
            f"{close_names(value, names)}."
        )
    if name == "heatmap" and value not in (names := list(heatmap_names())):
        raise ValueError(
            f"heatmap={value!r} is no heatmap; {close_names(value, names)}; all are "
            f"{', '.join(names)}."
        )
    if name == "alpha" and math.isnan(value):  # the bounds are the trait's
        raise ValueError("alpha=nan is no opacity: give 0 to 1.")
    return checked_place(value) if name == "place" else value


def checked_place(value: Any) -> tuple[float, float] | None:
    """Two shares, or None; a ``ValueError`` says so."""
    if value is None:
        return None
    try:
        down, right = map(float, value)
    except (TypeError, ValueError):
        down = right = math.nan
    if not (0 <= down <= 1 and 0 <= right <= 1):
        raise ValueError(
            f"place={value!r} is no place of a map: give how far down and how far right it is, "
            "each from 0 to 1, or None."
        )
    return down, right
