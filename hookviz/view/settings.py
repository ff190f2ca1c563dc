"""What may be set in the explorer, and to which values."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from ..attribution.cam import HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..hooking.records import FeatureCache
from ..run.target import Target
from .layer import showable, why_not_shown

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
"""The colormaps that are offered; any that matplotlib knows may be set."""

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""

EFFECTIVE = "effective field"
"""How much each pixel counts for the chosen place, or else for the one in the middle."""


@dataclass(frozen=True)
class Settings:
    """The explorer's traits at one moment; see `hookviz.widgets.Explorer`."""

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

Function = TypeVar("Function", bound=Callable[..., Any])


def with_settings(function: Function) -> Function:
    """Name each setting in the signature instead of ``**settings``: for help() and completion."""
    signature = inspect.signature(function)
    *named, _ = signature.parameters.values()
    own = {each.name for each in named}
    settings = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if each.default is MISSING else each.default,
            annotation=each.type,
        )
        for each in fields(Settings)
        if each.name not in own
    ]
    whole = signature.replace(parameters=[*named, *settings])
    function.__signature__ = whole  # type: ignore[attr-defined]
    return function


INDICES = ("channel", "call", "sample", "depth")


def heatmap_names() -> tuple[str, ...]:
    """What the explorer can show: with captum, attributions to the input too."""
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    return (*HEATMAPS, PRODUCT, EFFECTIVE, *captum)


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
