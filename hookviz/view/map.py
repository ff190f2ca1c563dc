"""The map of a view's network: its graph, and a small picture of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from ..draw.colours import averaged, colour_ranges, to_levels
from ..hooking.interrupts import allow_interrupts
from ..hooking.select import first_names, module_names
from ..studies.graph.graph import Graph, graph_of, graph_payload, layers_with_weights
from .maps import for_layer, layer_of, layers_of
from .view import View, cached

SIDE = 32
"""The most pixels along a side of a layer's small picture."""


@cached()
def graph_in(view: View) -> Graph:
    """Return the graph of the view's network: that of a cut run, or of one more forward.

    Its layers are those of `hookviz.graph` and the captured ones that hold no other modules.
    """
    names = first_names(view.session.model)
    chosen, captured = layers_with_weights(names), _captured(view)
    cut = view.memo.get("cut", None)
    if cut is not None and captured.keys() <= chosen.keys():
        return cut.graph
    return allow_interrupts(graph_of, view.session, names, chosen | captured)


def _captured(view: View) -> dict[nn.Module, str]:
    """Return the captured modules that hold no others, and their names.

    `torch.nn.MultiheadAttention` calls none of the modules in it: its heads stand for it.
    """
    heads = _heads(view)
    return {
        module: names[0]
        for module, names in module_names(view.session.model).items()
        if (not set(names).isdisjoint(layers_of(view)) and next(module.children(), None) is None)
        or (not heads.keys().isdisjoint(names) and isinstance(module, nn.MultiheadAttention))
    }


def _heads(view: View) -> dict[str, str]:
    """Return the layer of the heads of each attention module, by the module's name."""
    found = {getattr(view.cache[name], "attends", None): name for name in layers_of(view)}
    return {module: name for module, name in found.items() if module is not None}


def map_payload(
    view: View, layers: Sequence[str] | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the network's map as JSON values and one array.

    Parameters
    ----------
    view : View
    layers : sequence of str, optional
        Those that have pictures; None is all of the view's.

    Returns
    -------
    header : dict
        As `graph_payload` has it, where the layer of a module that attends is its heads;
        ``sizes``, ``[height, width]`` of each layer's picture, by its name, ``[0, 0]`` where the
        layer has no map; and ``batch``, the number of inputs, which is no size of a map.
    arrays : dict of str to numpy.ndarray
        ``pictures``: the levels (see `to_levels`) of each layer's mean over channels, between its
        own least and largest value, one after the other; large ones averaged to `SIDE` pixels.
    """
    header = graph_payload(graph_in(view), view.session.model)
    heads = _heads(view)
    for node in header["nodes"]:
        node["layer"] = heads.get(node["layer"], node["layer"])
    names = layers_of(view) if layers is None else layers
    pictures = {name: _picture(for_layer(view, layer=name)) for name in names}
    header["sizes"] = {name: list(each.shape) for name, each in pictures.items()}
    header["batch"] = view.session.inputs.samples
    flat = [each.ravel() for each in pictures.values()]
    return header, {"pictures": np.concatenate(flat) if flat else np.zeros(0, np.uint8)}


def _picture(view: View) -> np.ndarray:
    maps = layer_of(view).maps
    if max(maps.shape[1:]) < 2:
        return np.zeros((0, 0), np.uint8)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        mean = averaged(maps.mean(0, keepdims=True), -(-max(maps.shape[1:]) // SIDE))
    finite = np.where(np.isfinite(mean), mean, np.nan)
    if np.isnan(finite).all():
        return to_levels(mean[0], 0.0, 1.0)
    ends = np.nanmin(finite, (1, 2)), np.nanmax(finite, (1, 2))
    low, high = colour_ranges(mean, *ends, "channel", diverging=False)
    return to_levels(mean, low[:, None, None], high[:, None, None])[0]
