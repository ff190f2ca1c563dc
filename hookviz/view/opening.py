"""The layer and channel at which an explorer opens, and a layer's first channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ..attribution.cam import heatmap
from ..hooking.records import FeatureCache
from .health import overview_of, verdict_of
from .layer import SIMILARITY, LayerView, contributions_in, showable, why_not_shown
from .maps import channel_word, fitted, for_layer, layer_name, layer_of
from .orders import channels_of, order_of, rank_of
from .panels import flatness
from .predictions import target_name_of
from .view import Opening, View


def initial_view(view: View) -> View:
    """Return the view at an informative layer and channel.

    The rule: where there are NaN or Inf, the layer and channel in which they begin. Otherwise the
    last layer whose maps are larger than 1×1, whose Grad-CAM for the target differs between
    positions, and whose gradient does so in the channel that contributes most to the target; and
    that channel. Where there is none such, the last one with such a Grad-CAM, or else the first
    that a gradient reaches. Without a gradient, or where all are zero, it is the last layer with a
    map that differs between positions, and the channel with the largest range; where there is none,
    the first layer.
    """
    first, verdict = _first_layer(view.cache), verdict_of(view)
    if verdict.kind == "bad":
        return _opened_at(view, verdict.layer or first, _first_odd, BROKEN)
    spatial = [cell for cell in overview_of(view) if cell.side > 1 and cell.gradient]
    names = [cell.name for cell in reversed(spatial) if _heatmap_varies(view, cell.name)]
    for name in names:
        opened = _opened_at(view, name, strongest_channel, SPATIAL)
        if gradient_varies(layer_of(opened), opened.settings.channel):
            return opened
    if names:
        return _opened_at(view, names[0], strongest_channel, FLAT_GRADIENT)
    if not view.run.scored or not any(cell.gradient for cell in overview_of(view)):
        large = (cell.name for cell in reversed(overview_of(view)) if cell.side > 1)
        for name in large:
            opened = _opened_at(view, name, strongest_channel, UNSCORED)
            if _differs(layer_of(opened)):
                return opened
    reached = (cell.name for cell in overview_of(view) if cell.gradient is not None)
    return _opened_at(view, next(reached, first), strongest_channel, "")


def where_the_gradient_arrives(view: View) -> View:
    """Return the view at another layer if the gradient is zero in the shown one."""
    gradients = {cell.name: cell.gradient for cell in overview_of(view)}
    zero = gradients.get(view.settings.layer) == 0
    return initial_view(view) if zero and any(gradients.values()) else view


SPATIAL = "the last layer whose gradient and heatmap differ between positions"
FLAT_GRADIENT = "the last layer whose heatmap differs between positions"
UNSCORED = "the last layer whose maps differ between positions"
BROKEN = "the layer in which NaN or Inf first appears"


def _opened_at(view: View, layer: str, channel: Callable[[View], int], reason: str) -> View:
    opened = for_layer(view, layer=layer)
    opened = opened.with_settings(channel=channel(opened))
    if not reason:
        return opened
    words = opening_words(opened, reason)
    return replace(opened, opened=Opening.at(opened.settings, words))


def opening_words(view: View, reason: str) -> str:
    """Return why the explorer opened at this layer and channel."""
    words = f"Opened at {layer_name(view)}, {reason}"
    contributions = contributions_in(layer_of(view))
    if reason == BROKEN or contributions is None:
        return f"{words}."
    channel = view.settings.channel
    most = f"; {channel_word(view)} {channel} contributes most to {target_name_of(view)}"
    return words + most * bool(contributions[channel] > 0) + "."


def without_silence(before: View, view: View) -> View:
    """Return the view of another input at the strongest channel if the shown one is silent there.

    A channel that was silent before stays: it is switched off, or was chosen for its silence.
    """
    channel = view.settings.channel
    if _is_silent(before) or not _is_silent(view) or layer_of(view).statistics.silent.all():
        return view
    view = view.with_settings(channel=strongest_channel(view))
    word, shown = channel_word(view), view.settings.channel
    words = f"{word.capitalize()} {channel} is silent on this input; {word} {shown} is not."
    return replace(view, opened=Opening.at(view.settings, words))


def _is_silent(view: View) -> bool:
    """Return whether the shown channel is zero everywhere."""
    return bool(layer_of(view).statistics.silent[view.settings.channel])


def strongest_channel(view: View) -> int:
    """Return the channel that contributes most to the target; without one, as `ranges_in` says."""
    layer = layer_of(view)
    strongest = strongest_in(layer)
    return int(ranges_in(layer).argmax()) if strongest is None else strongest


def ranges_in(layer: LayerView) -> np.ndarray:
    """Return the difference between largest and smallest value of each map, ``(C,)``."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.ptp(layer.maps, (1, 2)))


def _differs(layer: LayerView) -> bool:
    """Return whether a map differs between positions by more than rounding does."""
    size = np.nan_to_num(np.abs(layer.maps)).max((1, 2))
    return bool((ranges_in(layer) > 1e-5 * size).any())


def strongest_in(layer: LayerView) -> int | None:
    """Return the channel of a layer that contributes most to the target, a silent one never.

    None without a gradient, and where no channel contributes anything.
    """
    contributions = contributions_in(layer)
    if contributions is None or not contributions.any():
        return None
    return int(np.where(layer.statistics.silent, -np.inf, contributions).argmax())


def gradient_varies(layer: LayerView, channel: int) -> bool:
    """Return whether a channel's gradient has more than one value beside zero."""
    return layer.gradients is not None and not flatness(layer.gradients[channel][None])[0]


def _heatmap_varies(view: View, name: str) -> bool:
    """Return whether a layer's Grad-CAM differs between positions."""
    output = view.cache[name].last.outputs[0]
    if not output.kept or not output.has_gradient or output.dtype.is_complex:
        return False
    heat = heatmap(view.cache[name].last, "gradcam")[0]
    return bool(heat.isfinite().all() and heat.max() > heat.min())


def _first_odd(view: View) -> int:
    """Return the first channel with NaN or Inf: in its map, else in its gradient."""
    statistics = [layer_of(view).statistics, layer_of(view).gradient_statistics]
    odd = [np.flatnonzero(each.nans + each.infs) for each in statistics if each is not None]
    return next((int(channels[0]) for channels in odd if len(channels)), 0)


def _first_layer(cache: FeatureCache) -> str:
    """Return the first layer that can be shown; ``ValueError`` if there is none."""
    if not cache:
        raise ValueError(
            f"None of the layers ran: {', '.join(cache.not_called[:5])}; name others with layers=."
        )
    if shown := showable(cache):
        return shown[0]
    first, record = next(iter(cache.items()))
    raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")


def first_shown(before: View, view: View, last: Mapping[str, int]) -> View:
    """Return the view of another layer at a channel that means something there.

    Sorted channels keep their rank. Otherwise it is the channel that was shown there last, by
    ``last``, or else the one that contributes most to the target.
    """
    layer, order = view.settings.layer, order_of(view)
    if layer == before.settings.layer:
        return view
    if order not in ("index", SIMILARITY):
        channels = channels_of(view)
        return view.with_settings(channel=int(channels[min(rank_of(before), len(channels) - 1)]))
    channel = last.get(layer, strongest_in(layer_of(view)))
    return view if channel is None else fitted(view.with_settings(channel=channel))
