"""The feature map of a view and its gradient: their colours, captions and notes."""

from __future__ import annotations

import numpy as np

from ..draw.colours import DIVERGING, SEQUENTIAL, colour_ranges, robust_end
from ..tables import number
from .frame import Panel
from .layer import ChannelStatistics
from .maps import (
    channel_word,
    describe,
    layer_of,
    magnitudes_note,
    map_size,
    query_of,
    query_words,
    shown_after_words,
)
from .predictions import target_name_of
from .source import why_no_picture
from .view import View, cached


def map_colours(view: View) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the colormap of the maps, and low and high for each channel."""
    cmap = view.settings.cmap
    if cmap == "auto":
        cmap = DIVERGING if layer_of(view).signed else SEQUENTIAL
    return cmap, *_map_ranges(view)


@cached(layer_of, lambda view: (view.settings.normalize, view.settings.cmap == "auto"))
def _map_ranges(view: View) -> tuple[np.ndarray, np.ndarray]:
    layer = layer_of(view)
    diverging = view.settings.cmap == "auto" and layer.signed
    return _ranges(view, layer.maps, layer.statistics, diverging)


@cached(layer_of, lambda view: view.settings.normalize)
def _gradient_ranges(view: View) -> tuple[np.ndarray, np.ndarray]:
    layer = layer_of(view)
    assert layer.gradients is not None and layer.gradient_statistics is not None
    return _ranges(view, layer.gradients, layer.gradient_statistics, True)


def _ranges(
    view: View,
    maps: np.ndarray,
    statistics: ChannelStatistics,
    diverging: bool,
) -> tuple[np.ndarray, np.ndarray]:
    ends = statistics.min, statistics.max
    return colour_ranges(maps, *ends, view.settings.normalize, diverging=diverging)


def map_panels(view: View) -> list[Panel]:
    """Return the panels of the feature map and, if any, its gradient."""
    layer, channel, words = layer_of(view), view.settings.channel, describe(view)
    cmap, lows, highs = map_colours(view)
    low, high = float(lows[channel]), float(highs[channel])
    said = [
        f"query: {query_words(view)}" if query_words(view) else "",
        shown_after_words(view),
        _constant(layer.statistics, channel),
        _odd(layer.statistics, channel),
        why_no_picture(view),
    ]
    name = f"{channel_word(view)} {channel}"
    panels = [_panel(view, name, words, "map", layer.maps[channel], (cmap, low, high), said)]
    statistics = layer.gradient_statistics
    if layer.gradients is None or statistics is None:
        return panels
    values = layer.gradients[channel]
    low, high = (float(ends[channel]) for ends in _gradient_ranges(view))
    end = robust_end(values, high) if view.settings.normalize == "channel" else None
    if end is not None:
        note = f"colours end at {number(end)}, the largest is {number(high)}"
        low, high = -end, end
    else:
        note = FLAT[flatness_of(view)[channel]] or _constant(statistics, channel)
    name = f"gradient of {target_name_of(view)}"
    alt, colours = f"{name}: {words}", (DIVERGING, low, high)
    return [*panels, _panel(view, name, alt, "gradient", values, colours, [note])]


def _panel(
    view: View,
    name: str,
    alt: str,
    role: str,
    values: np.ndarray,
    colours: tuple[str, float, float],
    notes: list[str],
) -> Panel:
    cmap, low, high = colours
    return Panel(
        name=name,
        detail=f"{map_size(values)}{magnitudes_note(view)}{view.which}",
        alt=alt,
        role=role,
        values=values,
        cmap=cmap,
        low=low,
        high=high,
        note="; ".join(filter(None, notes)),
    )


def _constant(statistics: ChannelStatistics, channel: int) -> str:
    """Return a note on a map that is constant; else empty."""
    if not statistics.constant[channel]:
        return ""
    return f"{'zero' if statistics.silent[channel] else 'the same'} everywhere"


def _odd(statistics: ChannelStatistics, channel: int) -> str:
    """Return a note on the colours of NaN and infinities; empty without any."""
    nans, infs = int(statistics.nans[channel]), int(statistics.infs[channel])
    found = [f"{nans:,} NaN (magenta)"] if nans else []
    return ", ".join([*found, f"{infs:,} Inf (+ green, − cyan)"] if infs else found)


@cached(layer_of)
def flatness_of(view: View) -> np.ndarray:
    """Return the index in `FLAT` for each channel's gradient: ``(C,)``; 0 without a gradient."""
    layer = layer_of(view)
    if layer.gradients is None:
        return np.zeros(len(layer.maps), np.uint8)
    kinds = flatness(layer.gradients)
    if query_of(view) is not None:
        kinds[kinds == 4] = 6  # of other queries there may be a gradient
    return kinds


def flatness(gradients: np.ndarray) -> np.ndarray:
    """Return the index in `FLAT` for each channel's gradient ``(C, H, W)``: ``(C,)``.

    Before an average all positions of a map count the same; behind a closed ReLU none counts, and
    in no channel where no gradient arrives; of one place's score few count. 0 where the gradient is
    not flat.

    Examples
    --------
    >>> flatness(np.array([[[0.0, 2.0, 2.0]], [[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]])).tolist()
    [3, 0, 1]
    >>> flatness(np.zeros((2, 1, 3))).tolist()
    [4, 4]
    """
    flat = gradients.reshape(len(gradients), -1)
    if flat.shape[1] < 2:
        return np.zeros(len(flat), np.uint8)
    count, most = np.count_nonzero(flat, 1), np.where(flat.max(1) > 0, flat.max(1), flat.min(1))
    one_value = ((flat == 0) | (flat == most[:, None])).all(1)  # NaN is neither
    kind = np.where(count == flat.shape[1], 2, np.where(count > 1, 3, 0))
    kind = np.where(one_value & (kind > 0), kind, np.where(100 * count <= flat.shape[1], 5, 0))
    return np.where(count == 0, 1 if count.any() else 4, kind).astype(np.uint8)


FLAT = (
    "",
    "zero everywhere: the target does not use this map, or a later layer blocks the gradient",
    "flat, as before average pooling: try an earlier layer",
    "flat, because a ReLU and average pooling follow: try an earlier layer",
    "no gradient reaches this layer: it is zero in all channels",
    "zero at 99 % of the positions or more",
    "no gradient arrives at this query: it is zero in all heads",
)
"""Notes on flat gradients, see `flatness`; the last one is for the attention of a query.

A gradient of zero does not show that the target is independent of a map: a ReLU's is zero at zero,
as behind a channel that is switched off.
"""
