"""What a browser needs to draw a view by itself: facts, and a layer's numbers as arrays.

Nothing here is drawn: the browser turns values into colours, as `hookviz.draw.colours` does, and
what is computed (statistics, orders, heatmaps, percentiles) comes from here.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from typing import Any

import numpy as np

from ..attribution.cam import HEATMAPS
from ..draw.arrays import shown_size
from ..draw.colours import DARK, DIVERGING, SEQUENTIAL, palette_text, percentiles
from ..draw.overlay import HEAT, UNDONE
from ..run.target import class_index
from ..studies.receptive_field import field as shown
from .build import facts, versions_of
from .heatmaps import ShownHeatmap
from .layer import ORDERS, ChannelStatistics, channel_order
from .settings import CMAPS, EFFECTIVE, PRODUCT, choices
from .view import FLAT, ShownMaps, View, field_of, flatness

NUMBERS = ("min", "max", "mean", "zeros", "norm", "nans", "infs")
"""What is known of each channel, and of its gradient, in this order."""


def model_payload(view: View, *, classes: bool = True) -> dict[str, Any]:
    """What is the same for all layers, of one run: all of it can be written as JSON.

    Parameters
    ----------
    classes : bool
        Whether the names of all classes come along, to choose from.
    """
    run, names = view.run, view.session.class_names
    logits, target = run.logits, view.at.target
    count = 0 if logits is None or not classes else logits.shape[1]
    return {
        "model": view.session.name,
        "facts": facts(view),
        "target": {"name": view.target_name, "number": class_number(view)},
        "given": target if isinstance(target, int) else None,
        "predictions": [
            {name: _json(value) for name, value in each._asdict().items()}
            for each in view.predictions
        ],
        "classes": {"count": count, "names": list(names[:count])},
        "scored": run.scored,
        "layers": layer_list(view),
        "palettes": {name: palette_text(name) for name in palette_names(view)},
        "choices": choices(),
        "versions": list(versions_of(view)),
        "network": [ShownMaps(view).network_range(slopes) for slopes in (False, True)],
        "methods": list(HEATMAPS),
        "flat": list(FLAT),
        "opened": view.opened,
        "product": PRODUCT,
        "effective": EFFECTIVE,
        "auto": [SEQUENTIAL, DIVERGING, DARK, HEAT],
        "verdict": view.verdict._asdict(),
        "edits": edit_list(view),
        "language": known_language(),
    }


def edit_list(view: View) -> list[dict[str, Any]]:
    """What is changed in this run; a channel and its factor, where it is no more than that."""
    found: list[dict[str, Any]] = []
    for each in view.session.edits:
        channel = each.channels if isinstance(each.channels, int) else None
        plain = channel is not None and each.is_of(each.layer, channel)
        which = {"channel": channel, "factor": each.factor} if plain else {"channel": None}
        found.append({"words": str(each), "layer": each.layer, "factor": None} | which)
    return found


def layer_list(view: View) -> list[dict[str, Any]]:
    """One entry a layer that can be shown: its name, its words and its cell of the ribbon."""
    found = []
    for cell in view.ribbon:
        words = view.words[cell.name]
        numbers = {name: _json(value) for name, value in asdict(cell).items()}
        numbers["nans"] += numbers.pop("gradient_nans")
        numbers["infs"] += numbers.pop("gradient_infs")
        del numbers["weighted"]
        found.append(numbers | {"kind": words.kind, "text": words.text, "size": words.size})
    return found


def palette_names(view: View) -> list[str]:
    """The colormaps that the browser may need."""
    chosen = [name for name in (*CMAPS, view.at.cmap) if name != "auto"]
    return list(dict.fromkeys([*chosen, SEQUENTIAL, DIVERGING, DARK, HEAT]))


LANGUAGES = "de", "en"
"""Those of ``static/words.js``, and English."""


def known_language(language: str | None = None) -> str:
    """Return the language of all words: as given, else that of ``HOOKVIZ_LANGUAGE``, else English.

    Raises
    ------
    ValueError
        A language that ``static/words.js`` does not have.
    """
    language = language or os.environ.get("HOOKVIZ_LANGUAGE") or "en"
    if language not in LANGUAGES:
        raise ValueError(f"language={language!r} is unknown: give one of {', '.join(LANGUAGES)}.")
    return language


def settings_payload(view: View) -> dict[str, Any]:
    """The settings, but for the target, which may be anything."""
    return {name: value for name, value in asdict(view.at).items() if name != "target"}


def layer_payload(view: View) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One layer, call, sample and depth: what is said of it, and its numbers.

    Returns
    -------
    header : dict
        Can be written as JSON.
    arrays : dict of str to numpy.ndarray
        ``maps`` and, where one arrived, ``gradients``, ``(C, h, w)``: large ones averaged, see
        `hookviz.draw.arrays.shown_size`. ``numbers`` and ``slopes``, ``(len(NUMBERS), C)``, of
        the maps and of the gradients. ``weights``, Grad-CAM's, and ``flat``, see `flatness`,
        ``(C,)``. ``percentiles``, of both, the 1st and the 99th, ``(2 or 4, C)``. ``orders``,
        ``(len(ORDERS) - 1, C)``: all but the first. ``drops``, ``(C,)``, where it is known what
        the score loses without each channel.
    """
    layer, record, output = view.layer, view.record, view.call.outputs[0]
    arrays = {"maps": shown_size(layer.maps), "numbers": _numbers(layer.statistics)}
    percentiles = [_percentiles(layer.maps)]
    slopes, weights = layer.gradient_statistics, layer.weights
    if layer.gradients is not None and slopes is not None and weights is not None:
        arrays |= {
            "gradients": shown_size(layer.gradients),
            "slopes": _numbers(slopes),
            "weights": weights,
            "flat": flatness(layer.gradients),
        }
        percentiles.append(_percentiles(layer.gradients))
    arrays["percentiles"] = np.concatenate(percentiles)
    orders = [channel_order(layer, order, view.drops) for order in ORDERS[1:]]
    if view.drops is not None:
        arrays["drops"] = view.drops
    arrays["orders"] = np.array(orders).astype(np.uint32)
    at = view.at
    header = {
        "layer": at.layer,
        "call": at.call,
        "sample": at.sample,
        "depth": at.depth,
        "counts": view.counts(),
        "place": [view.input_sample, view.depth_share],
        "size": list(layer.maps.shape[1:]),
        "signed": layer.signed,
        "kind": type(record.module).__name__,
        "shape": list(output.shape),
        "dtype": str(output.dtype).removeprefix("torch."),
        "magnitudes": view.magnitudes,
        "which": view.which,
    }
    return header, arrays


def heatmap_payload(view: View) -> np.ndarray | None:
    """The heatmap of a view, ``(h, w)``; None where there is none."""
    return ShownHeatmap(view).values


def field_payload(view: View) -> dict[str, Any]:
    """What the layer's places see, see `hookviz.studies.receptive_field.field.payload`."""
    field = field_of(view)
    if isinstance(field, str):
        return {"status": "unknown", "why": field, "ends": None}
    return shown.payload(field)


def picture_payload(view: View) -> tuple[dict[str, Any], np.ndarray] | None:
    """The input's picture, uint8 ``(H, W, 3)``, with what is said of it; None if it has none."""
    (picture, words), main = view.picture_and_words, view.session.inputs.main
    if picture is None or main is None:
        return None
    said = {"height": picture.shape[0], "width": picture.shape[1], "size": list(main.shape[-2:])}
    return said | {"words": "" if words == UNDONE else words}, picture


def _numbers(values: ChannelStatistics) -> np.ndarray:
    """Each of `NUMBERS` in a row: exact, also those of doubles."""
    kind = np.float64 if values.min.dtype == np.float64 else np.float32
    return np.array([getattr(values, name) for name in NUMBERS]).astype(kind)


def _percentiles(maps: np.ndarray) -> np.ndarray:
    """Where `hookviz.draw.colours.colour_ranges` begins and ends by percentile, ``(2, C)``."""
    return np.array(percentiles(maps)).astype(np.float64)


def class_number(view: View) -> int | None:
    """Which class the target is, if it is one."""
    target, logits = view.at.target, view.run.logits
    if isinstance(target, list):
        target = target[min(view.input_sample, len(target) - 1)]
    if logits is None or callable(target) or isinstance(target, tuple):
        return None
    if target is None:
        return view.predictions[0].number if view.predictions else None
    return class_index(target, logits.shape[1], view.session.class_names)


def _json(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
