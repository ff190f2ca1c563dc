"""Attention in a view: all of the run's, weights of other tokens, and edits of heads."""

from __future__ import annotations

import weakref

import numpy as np
from torch import nn

from ..attribution.attention import Attention
from ..attribution.heads import AttentionRecord, attention_in
from ..draw.colours import to_numpy
from ..hooking.changes import Change, Channels, Where
from ..hooking.edit import LayerEdit
from ..hooking.select import first_names
from .maps import query_of, whole_record_of
from .settings import has_attention
from .view import View, cached


@cached(lambda view: weakref.ref(view.cache), of_input=True)
def attention_of(view: View) -> Attention | None:
    """Return all attention of the run; None where nothing attends."""
    if not has_attention(view):
        return None
    return attention_in(view.session, view.cache, view.target)


def weights_beside(view: View) -> dict[str, np.ndarray]:
    """Return the query's weights at keys that are not patches, by their names: ``(heads,)``."""
    whole, at = whole_record_of(view), view.settings
    if not isinstance(whole, AttentionRecord) or whole.prefix(at.call) is None:
        return {}
    weights = whole.beside(query_of(view), at.call)
    if weights is None:
        return {}
    rows = to_numpy(weights[min(at.sample, len(weights) - 1)])
    return dict(zip(whole.beside_names, rows.T, strict=False))


def edit_in(
    view: View, layer: str, change: Change, channels: Channels = None, where: Where = None
) -> LayerEdit:
    """Return the edit of a layer, or of attention's heads."""
    record = view.cache.get(layer)
    if isinstance(record, AttentionRecord) and layer == record.name:
        return record.edit(change, channels, where)
    return LayerEdit(layer, change, channels, where)


def refuse_weights_of_attention(view: View, layer: str) -> None:
    """Raise ``ValueError`` for the weights of a layer that attention computes for each input."""
    record = view.cache.get(layer)
    if not isinstance(record, AttentionRecord) or layer != record.name:
        return
    names = first_names(view.session.model).items()
    linear = [name for module, name in names if isinstance(module, nn.Linear)]
    own = next((name for name in linear if name.startswith(f"{record.attends}.")), None)
    name = f", such as {own!r}" if own else ""
    raise ValueError(
        f"{layer!r} has no kernels: attention is computed for each input. Name a convolution or a "
        f"linear layer{name}."
    )
