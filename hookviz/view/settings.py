"""What may be set in the explorer."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, fields

from ..attribution.cam import HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..run.targets import Target

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
"""The colormaps that are offered; any that matplotlib knows may be set."""

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""


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
    version: str = "edited"


SETTINGS = tuple(setting.name for setting in fields(Settings))
VERSIONS = ("edited", "original", "difference")
"""Whose pictures are shown where something is edited."""

INDICES = ("channel", "call", "sample", "depth")


def heatmap_names() -> tuple[str, ...]:
    """What the explorer can show: with captum, attributions to the input too."""
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    return (*HEATMAPS, PRODUCT, *captum)
