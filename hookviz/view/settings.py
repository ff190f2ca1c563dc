"""What may be set in the explorer, and to which values."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import matplotlib

from ..attribution.cam import HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..hooking.records import FeatureCache
from ..hooking.select import close_names
from ..run.target import Target, check_target, sample_scores
from .layer import showable, why_not_shown

if TYPE_CHECKING:
    from .view import View

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
"""The colormaps that are offered; any that matplotlib knows may be set."""

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""

EFFECTIVE = "effective field"
"""How much each pixel counts for the chosen place, or else for the one in the middle."""


@dataclass(frozen=True)
class Settings:
    """The explorer's traits at one moment; see `hookviz.Explorer`."""

    layer: str
    channel: int = 0
    call: int = 0
    sample: int = 0
    depth: int = 0
    target: Target = None
    order: str = "index"
    cmap: str = "auto"
    normalize: str = "channel"
    heatmap: str = "gradcam"
    alpha: float = 0.8
    overlay: bool = True
    strip: bool = False
    place: tuple[float, float] | None = None
    version: str = "edited"


SETTINGS = tuple(setting.name for setting in fields(Settings))
VERSIONS = ("edited", "original", "difference")
"""Whose pictures are shown where something is edited."""

INDICES = ("channel", "call", "sample", "depth")


def heatmap_names() -> tuple[str, ...]:
    """What the explorer can show: with captum, attributions to the input too."""
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    return (*HEATMAPS, PRODUCT, EFFECTIVE, *captum)


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
        value, logits = check_target(value), view.run.logits
        if not callable(value) and logits is not None:
            sample_scores(logits, value, view.session.class_names)
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


def first_layer(cache: FeatureCache) -> str:
    """The first layer that can be shown; ``ValueError`` if there is none."""
    if not cache:
        raise ValueError(
            f"None of the layers ran: {', '.join(cache.not_called[:5])}; name others with layers=."
        )
    if shown := showable(cache):
        return shown[0]
    first, record = next(iter(cache.items()))
    raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")
