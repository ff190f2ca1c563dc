"""What may be set in the explorer, and which values a setting may have."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, fields

import matplotlib

from ..attribution.cam import HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..hooking.records import FeatureCache
from ..hooking.select import close_names
from ..run.session import Run
from ..run.targets import Target, check_target, sample_scores
from .layer import showable, why_not_shown

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
    alpha: float = 0.5
    overlay: bool = True
    strip: bool = False


SETTINGS = tuple(setting.name for setting in fields(Settings))
INDICES = ("channel", "call", "sample", "depth")


def heatmap_names() -> tuple[str, ...]:
    """What the explorer can show: with captum, attributions to the input too."""
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    return (*HEATMAPS, PRODUCT, *captum)


# Each returns the value as it is to be, or raises ValueError.


def check_layer(name: str, cache: FeatureCache) -> str:
    """A captured layer that can be shown, by its first name."""
    if name not in cache:
        raise ValueError(f"layer={name!r} was not captured; {close_names(name, cache)}.")
    if why := why_not_shown(cache[name]):
        raise ValueError(f"layer={name!r} cannot be shown: {why}")
    return cache[name].name


def first_layer(cache: FeatureCache) -> str:
    """The first layer that can be shown."""
    if not cache:
        raise ValueError(
            f"None of the layers ran: {', '.join(cache.missed[:5])}; name others with layers=."
        )
    if shown := showable(cache):
        return shown[0]
    first, record = next(iter(cache.items()))
    raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")


def check_index(name: str, value: int, count: int, layer: str) -> int:
    """One of ``count`` channels, calls, samples or slices."""
    if not 0 <= value < count:
        raise ValueError(f"{name}={value} is not in layer {layer!r}: give 0 to {count - 1}.")
    return value


def check_asked(target: Target, run: Run, class_names: list[str]) -> Target:
    """What can be asked of the model that gave this run."""
    target = check_target(target)
    if not callable(target) and run.logits is not None:
        sample_scores(run.logits, target, class_names)
    return target


def check_cmap(name: str) -> str:
    """``"auto"``, or any colormap of matplotlib's."""
    if name != "auto" and name not in matplotlib.colormaps:
        raise ValueError(
            f"cmap={name!r} is neither 'auto' nor a colormap of matplotlib's; "
            f"{close_names(name, ['auto', *matplotlib.colormaps])}."
        )
    return name


def check_heatmap(name: str) -> str:
    """One of `heatmap_names`."""
    names = heatmap_names()
    if name not in names:
        raise ValueError(
            f"heatmap={name!r} is no heatmap; {close_names(name, names)}; all are "
            f"{', '.join(names)}."
        )
    return name


def check_alpha(value: float) -> float:
    """No NaN; the bounds are the trait's."""
    if math.isnan(value):
        raise ValueError("alpha=nan is no opacity: give 0 to 1.")
    return value
