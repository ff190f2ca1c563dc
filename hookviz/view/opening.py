"""The layer at which an explorer opens: the last one whose heatmap still localizes."""

from __future__ import annotations

import numpy as np

from ..attribution.cam import heatmap
from ..hooking.records import FeatureCache
from .layer import showable, why_not_shown
from .view import View


def first_layer(cache: FeatureCache) -> str:
    """Return the first layer that can be shown; ``ValueError`` if there is none."""
    if not cache:
        raise ValueError(
            f"None of the layers ran: {', '.join(cache.not_called[:5])}; name others with layers=."
        )
    if shown := showable(cache):
        return shown[0]
    first, record = next(iter(cache.items()))
    raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")


def opened(view: View) -> View:
    """Return the view at an informative layer and channel.

    The rule: the last layer whose maps are larger than 1×1 and whose Grad-CAM for the target is
    neither zero nor the same everywhere; in it, the channel that adds most to that heatmap. Without
    a gradient, or where all are zero, it is the last layer whose maps are larger than 1×1; where
    there is none, the first.
    """
    first = first_layer(view.cache)
    large = [cell for cell in view.layer_overview if cell.side > 1]
    graded = [cell for cell in large if cell.gradient]
    name = next((cell.name for cell in reversed(graded) if _is_a_place(view, cell.name)), None)
    if name is None:
        blind = not view.run.scored or not any(cell.gradient for cell in view.layer_overview)
        name = large[-1].name if large and blind else first
    found = view.with_settings(layer=name)
    found = found.with_settings(channel=_strongest(found))
    found.opened = name
    return found


def _is_a_place(view: View, name: str) -> bool:
    """Return whether a layer's Grad-CAM differs between positions."""
    output = view.cache[name].last.outputs[0]
    if not output.kept or not output.has_gradient or output.dtype.is_complex:
        return False
    heat = heatmap(view.cache[name].last, "gradcam")[0]
    return bool(heat.isfinite().all() and heat.max() > heat.min())


def _strongest(view: View) -> int:
    """Return the channel with the largest part in Grad-CAM: its weight times its mean."""
    weights = view.layer.weights
    if weights is None:
        return 0
    shares = np.nan_to_num(weights * view.layer.statistics.mean, nan=-np.inf)
    return int(shares.argmax())
