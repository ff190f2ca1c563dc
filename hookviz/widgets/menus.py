"""What the controls have to choose from: a frame's settings as sliders and menus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..render.colours import NORMALIZATIONS
from ..view.frame import Frame
from ..view.layer import ORDERS
from ..view.settings import INDICES, heatmap_names

Options = tuple[tuple[str, Any], ...]
"""Labels and values."""

SLIDERS = (*INDICES, "alpha")
MENUS = ("target", "heatmap", "overlay", "strip", "order", "cmap", "normalize")
LABELS = {
    "alpha": "opacity",
    "overlay": "shown",
    "strip": "all layers",
    "cmap": "colours",
    "normalize": "range",
}
"""Setting -> what its control is called, where that is another word."""

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
OVERLAY = (("over the input", True), ("heatmap alone", False))
STRIP = (("hidden", False), ("in a strip", True))


def options(frame: Frame) -> dict[str, Options]:
    """Menu, and the slider over layers -> its options."""
    cmap = frame.settings.cmap
    return {
        "layer": tuple((name or "(model)", name) for name in frame.layers),
        "target": targets(frame),
        "heatmap": named(heatmap_names()),
        "overlay": OVERLAY,
        "strip": STRIP,
        "order": named(ORDERS),
        "cmap": named(CMAPS if cmap in CMAPS else (*CMAPS, cmap)),
        "normalize": named(NORMALIZATIONS),
    }


def targets(frame: Frame) -> Options:
    """The top classes, and the present target if it is none of them."""
    found: list[tuple[str, Any]] = [("top prediction", None)]
    found += [(f"{each.name} ({each.words})", each.number) for each in frame.predictions]
    if not any(frame.settings.target == value for _, value in found):
        found.append((frame.target, frame.settings.target))
    return tuple(found)


def named(values: Sequence[str]) -> Options:
    """Options that are called what they are."""
    return tuple((value, value) for value in values)


def positions(frame: Frame) -> dict[str, tuple[int, int]]:
    """Slider -> how many positions it has, and which it has now; opacity is in per cent."""
    now = {name: getattr(frame.settings, name) for name in INDICES} | {"channel": frame.position}
    blended = frame.overlay is not None or frame.strip is not None
    found = {name: (frame.counts[name], now[name]) for name in INDICES}
    return found | {"alpha": (101 if blended else 0, round(100 * frame.settings.alpha))}


def set_to(name: str, position: int, frame: Frame) -> Any:
    """The setting that a slider's position stands for."""
    if name == "channel":
        return int(frame.channels[position])
    return position / 100 if name == "alpha" else position
