"""The shown layer, call, sample and depth of a view: its record, maps and positions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..attribution.attention import prefix_of
from ..attribution.cam import HEATMAPS
from ..attribution.heads import AttentionRecord, attention_beside, with_attention
from ..hooking.maps import as_maps
from ..hooking.records import Call, LayerRecord
from ..hooking.select import Layers
from ..run.progress import Progress
from ..run.session import FirstLayer, Run, Session
from ..run.target import Target
from ..studies.graph.stages import RETURNED, stages_of, tensor_after, words_after
from ..studies.receptive_field.field import ReceptiveField, receptive_field
from ..tables import counted
from .layer import LayerView, LayerWords, layer_view, layer_words, showable
from .settings import INDICES, heatmap_names
from .view import View, cached


def run_session(
    session: Session,
    target: Target,
    first: FirstLayer | None = None,
    *,
    layers: Layers = None,
    max_bytes: int | None = None,
) -> Run:
    """Run one forward and one backward, with a progress bar if they take long.

    What attends is a layer, too.
    """
    selected = with_attention(session.given, layers)
    beside = attention_beside(session, layers)
    with Progress() as bar:
        return session.run(
            target,
            layers=selected,
            max_bytes=max_bytes,
            on_progress=bar.update,
            beside=beside,
            first=first,
        )


# The layers


@cached()
def layers_of(view: View) -> list[str]:
    """Return the layers that can be shown as maps."""
    return showable(view.cache)


@cached()
def words_of(view: View) -> dict[str, LayerWords]:
    """Return the description of each layer."""
    return {name: layer_words(view.cache[name]) for name in layers_of(view)}


def layer_name(view: View) -> str:
    """Return the name of the shown layer in words."""
    return view.settings.layer or "(model)"


@cached()
def _over_budget(view: View) -> set[str]:
    return set(view.cache.over_budget)


@cached(lambda view: view.settings.layer)
def whole_record_of(view: View) -> LayerRecord:
    """Return the shown layer, and of attention all queries.

    A layer that was over the budget gets a run of its own.
    """
    record = view.cache[view.settings.layer]
    if record.name not in _over_budget(view):
        return record
    return run_session(view.session, view.target, layers=record.module).cache[record.name]


def query_of(view: View) -> int | None:
    """Return the query whose attention is shown; None for other layers, and for a matrix."""
    whole, at = whole_record_of(view), view.settings
    if not isinstance(whole, AttentionRecord):
        return None
    return whole.query(at.place, at.depth, at.call)


@cached(lambda view: view.settings.layer, query_of)
def record_of(view: View) -> LayerRecord:
    """Return the shown layer; attention is seen from the chosen query."""
    whole = whole_record_of(view)
    return whole.seen_from(query_of(view)) if isinstance(whole, AttentionRecord) else whole


def call_of(view: View) -> Call:
    """Return the shown call."""
    return record_of(view).calls[view.settings.call]


# The maps


def _shown_part(view: View) -> Hashable:
    at = view.settings
    return at.layer, at.call, at.sample, at.depth, query_of(view), at.shown_after


@cached(_shown_part)
def layer_of(view: View) -> LayerView:
    """Return maps and gradients of the shown layer, call, sample and depth."""
    if view.difference:
        one, other = (layer_of(side) for side in view.sides)
        return _difference(view, one, other)
    call, at = call_of(view), view.settings
    part = call.module, at.sample, at.depth, call.grid
    own = layer_view(call.activation, call.gradient, *part)
    later = tensor_after(later_outputs(view), at.shown_after)
    return own if later is None else replace(own, maps=layer_view(later, None, *part).maps)


def _difference(view: View, one: LayerView, other: LayerView) -> LayerView:
    before, after = view.run_names
    if one.maps.shape != other.maps.shape:
        raise ValueError(
            f"Layer {layer_name(view)!r} has maps of {map_size(one.maps)} in the {after} run and "
            f"of {map_size(other.maps)} in the {before} one, so they have no difference to show."
        )
    gradients = less(one.gradients, other.gradients)
    weights = less(one.weights, other.weights)
    return LayerView(one.maps - other.maps, gradients, weights, one.samples, one.depths)


def less(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """Subtract an array from another; None if either is missing."""
    return None if one is None or other is None else one - other


@cached(lambda view: view.settings.layer)
def _stages(view: View) -> Any:
    return stages_of(view.session, whole_record_of(view).module)


def later_outputs(view: View) -> dict[str, torch.Tensor]:
    """Return the outputs after the normalization and the activation; empty for maps as returned."""
    at = view.settings
    if at.shown_after == RETURNED or isinstance(whole_record_of(view), AttentionRecord):
        return {}
    stages = _stages(view)
    return stages[at.call] if at.call < len(stages) else {}


def shown_after_words(view: View) -> str:
    """Return the setting ``shown_after`` in words; empty for maps as returned."""
    after = view.settings.shown_after
    return "" if after == RETURNED else words_after(later_outputs(view), after)


def counts_of(view: View) -> dict[str, int]:
    """Return the number of channels, calls, samples and slices."""
    layer = layer_of(view)
    found = (len(layer.maps), len(record_of(view).calls), layer.samples, layer.depths)
    return dict(zip(INDICES, found, strict=True))


def depth_share(view: View) -> float:
    """Return the relative depth of the slice, 0 to 1: volumes differ in their number of slices."""
    return view.settings.depth / max(layer_of(view).depths - 1, 1)


def magnitudes_note(view: View) -> str:
    """Return the note beside pictures and numbers of complex tensors."""
    return ", absolute values" if call_of(view).outputs[0].dtype.is_complex else ""


def describe(view: View) -> str:
    """Return the view in words, the alt text of its pictures."""
    maps, kind = layer_of(view).maps, type(record_of(view).module).__name__
    seen = f", query: {query_words(view)}" if query_words(view) else ""
    words = (
        f"{channel_word(view)} {view.settings.channel} of {len(maps)} of layer "
        f"{layer_name(view)} ({kind}), a map of {map_size(maps)}{seen}, in {view.session.name}"
    )
    return f"{view.run_names[1]} less {view.run_names[0]}: {words}" if view.difference else words


def extent_words(view: View) -> str:
    """Return which part of the layer's output, of one sample, the maps are."""
    shape, grid = call_of(view).outputs[0].shape, call_of(view).grid
    if layer_of(view).depths > 1:
        return "whole slice"
    before = prefix_of(shape[1], grid) if len(shape) == 3 else None
    return f"all patches, without {counted(before, 'token')}" if before else "whole layer"


def rows_of(call: Call) -> int:
    """Return how many samples a layer ran on; the shape says it, without the values."""
    return len(as_maps(torch.empty(call.outputs[0].shape, device="meta"), call.module, call.grid))


def map_size(maps: np.ndarray) -> str:
    """Format height and width of maps ``(..., H, W)``, or a 1d layer's length."""
    height, width = maps.shape[-2:]
    return f"{height}×{width}" if height > 1 else str(width)


# Attention: a channel is a head


def is_attention(view: View) -> bool:
    """Return whether the shown layer is attention."""
    return isinstance(view.cache[view.settings.layer], AttentionRecord)


def channel_word(view: View) -> str:
    """Return the name of what a channel is here."""
    return "head" if is_attention(view) else "channel"


def query_words(view: View) -> str:
    """Return the query in words; empty for other layers."""
    whole = whole_record_of(view)
    if not isinstance(whole, AttentionRecord):
        return ""
    return whole.query_words(query_of(view), view.settings.call)


# Settings that fit the layer


def fitted(view: View) -> View:
    """Return a view with all indices in range, for example after a change of the layer.

    Grad-CAM replaces a heatmap that the user has removed from ``HEATMAPS``.
    """
    call = min(view.settings.call, len(view.cache[view.settings.layer].calls) - 1)
    heatmap = view.settings.heatmap
    known = heatmap in HEATMAPS or heatmap in heatmap_names(view)
    view = view.with_settings(call=call, heatmap=heatmap if known else "gradcam")
    ends = {name: min(getattr(view.settings, name), n - 1) for name, n in counts_of(view).items()}
    ends["reference_channel"] = min(view.settings.reference_channel, len(layer_of(view).maps) - 1)
    return view.with_settings(**ends)


def for_layer(view: View, **changes: Any) -> View:
    """Return the same run at other settings; keeps the shown layer's cache."""
    return fitted(view.with_run(view.run).with_settings(**changes))


# Positions


def place_of(view: View) -> tuple[int, int]:
    """Return row and column of the chosen position, or of the middle."""
    down, right = view.settings.place or (0.5, 0.5)
    height, width = layer_of(view).maps.shape[-2:]
    return min(int(down * height), height - 1), min(int(right * width), width - 1)


def field_of(view: View) -> ReceptiveField | str:
    """Return the layer's receptive field, or why it has none; one run serves all layers."""
    fields = _fields(view)
    return (
        fields if isinstance(fields, str) else fields.get(view.settings.layer, "it has no places")
    )


@cached(lambda view: view.settings.call, of_input=True)
def _fields(view: View) -> dict[str, ReceptiveField] | str:
    records = [view.cache[name] for name in layers_of(view)]
    modules = [each.module for each in records if not isinstance(each, AttentionRecord)]
    session, call = view.session, view.settings.call
    try:
        fields: Any = receptive_field(session.given, session.inputs, modules, call=call)
    except (ValueError, TypeError, RuntimeError) as error:
        return str(error)
    return fields
