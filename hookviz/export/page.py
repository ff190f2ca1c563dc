"""A view and all its layers as one HTML file that needs no kernel and no network."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from typing import Any

import numpy as np

from ..attribution.attention import ATTENTION_HEATMAPS
from ..attribution.cam import cached_methods
from ..attribution.heads import MEAN, AttentionRecord
from ..draw import html
from ..draw.colours import colour_ranges, to_numpy
from ..draw.document import document, fitting, json_text, script, style
from ..draw.overlay import heat_colours
from ..hooking.select import Layers, select_layers
from ..hooking.tables import megabytes
from ..run.session import Run
from ..run.target import Target
from ..view.answer import map_values
from ..view.build import build_frame
from ..view.exploration import ViewDifference
from ..view.layer import ABLATION
from ..view.map import map_payload
from ..view.payload import (
    class_number,
    field_payload,
    heatmap_payload,
    known_language,
    layer_payload,
    model_payload,
    picture_payload,
    settings_payload,
)
from ..view.settings import NORM, PRODUCT, Settings, heatmap_names
from ..view.view import View, for_layer
from .figure import still_png
from .lesson import Step, lesson_payload
from .packing import (
    OUT,
    Coding,
    PackedTensor,
    Stream,
    ends_of,
    fit_to_budget,
    quantize,
    raw,
)
from .terms import held_terms, kept_layers

Packed = tuple[Coding, bytes]

SMALLEST = 300_000
"""Minimum page size in bytes: program, still picture and names."""


def write_page(
    view: View,
    run: Callable[[Target], Run],
    *,
    layers: Layers = None,
    max_bytes: float = 10e6,
    title: str | None = None,
    steps: Sequence[Step] = (),
    language: str | None = None,
    pins: Sequence[dict[str, Any]] = (),
    on_progress: Callable[[float], object] = lambda fraction: None,
) -> str:
    """Write the explorer as a page.

    Parameters
    ----------
    view : View
        The view at which the page begins.
    run : callable
        Target -> a run, for the heatmaps of other classes.
    layers, max_bytes, title, steps, language
        As for `hookviz.widgets.Explorer.to_html`.
    pins : sequence of dict
        Records of `hookviz.view.pins.Pins`.
    on_progress : callable
        Called with the fraction of the work that is done, 0 to 1.

    Raises
    ------
    ValueError
        Unknown layer, or a budget smaller than the program.
    """
    names = chosen_layers(view, layers)
    view = view.with_settings(order="index") if view.settings.order == ABLATION else view
    view = view if view.settings.layer in names else view.with_settings(layer=names[0]).fitted()
    if max_bytes < SMALLEST:
        raise ValueError(
            f"max_bytes={max_bytes:g} is too little for any page: give at least {SMALLEST:,}."
        )
    facts = _facts(view, names)
    named = title or f"{facts['model']} in hookviz"
    facts["lesson"] = lesson_payload(steps, view, names, named) if steps else None
    facts["pins"] = [each for each in pins if each["layer"] in names]
    facts["language"] = language = known_language(language)
    blocks: dict[str, tuple[dict[str, Any], Stream, Sequence[PackedTensor]]] = {}
    parts: list[PackedTensor] = []
    heats: list[Packed] = []
    places: list[Settings] = []
    methods = [*cached_methods(), *_of_attention(view)]
    for place, name in enumerate(names):
        here = for_layer(view, layer=name)
        header, small, own = _layer(here)
        for part in own:
            part.first = name == view.settings.layer
        blocks[f"layer-{place}"] = (header, small, own)
        parts += own
        for method in methods:
            heats += _heatmap(here.with_settings(heatmap=method), f"{method} {place}")
        places.append(here.settings)
        on_progress(0.6 * (place + 1) / len(names))
    heats += _other_classes(view, places, run, facts["predictions"])
    on_progress(0.8)
    still = html.data_url(still_png(build_frame(view)))
    picture = picture_payload(view)
    facts["blind"] = picture is None
    if picture is not None:
        said, pixels = picture
        blocks["picture"] = (said, Stream.of([raw("pixels", pixels)]), [])
    blocks["heatmaps"] = ({}, Stream.of(heats), [])
    blocks["answer"] = ({}, _answer(view, max_bytes / 10), [])
    kept = kept_layers(view, names)
    network, small_pictures = _map(view, names)
    blocks["map"] = (network, Stream.of(small_pictures), [])
    fixed = sum(len(small.data) + 120 * len(small.codings) for _, small, _ in blocks.values())
    fixed += sum(len(json.dumps(said.get("field"))) for said, _, _ in blocks.values())
    fixed += len(json.dumps(network))
    program = len(script("page")) + len(style()) + len(still) + len(json.dumps(facts))
    room = (max_bytes - program - 400 * len(blocks) - 4000) * 0.75 - fixed
    whole = sum(part.values.nbytes for part in parts)
    facts["why"], terms = held_terms(view, names, kept, room, whole)
    for header, small, held in terms.values():
        room -= (len(small.data) + 120 * len(small.codings) + len(json.dumps(header))) * 0.8
        parts += held
    room -= 0.75 * len(json.dumps(facts["why"]))
    blocks |= terms
    facts["notes"] = _notes(fit_to_budget(parts, int(room)), max_bytes, view)
    for header, _, every in blocks.values():
        if any(part.name == "queries" and part.quality == OUT for part in every):
            header["notes"].append("Other queries need the notebook.")
    on_progress(1.0)
    texts = {
        name: packed_block(header, [small, *(part.stream for part in own)])
        for name, (header, small, own) in blocks.items()
    }
    settings = settings_payload(view)
    start = json_text({"facts": facts, "settings": settings})
    texts = {"facts": start, **texts}
    page = document(named, script("page"), style(), texts, view.describe(), still, language)
    least = ": without any maps this page takes {takes}; give more, or fewer layers with layers="
    return fitting([page], max_bytes, least)


def chosen_layers(view: View, layers: Layers) -> list[str]:
    """Return the page's layers."""
    if layers is None:
        return view.layers
    wanted = {names[0] for names in select_layers(view.session.given, layers).values()}
    own = {name: getattr(view.cache[name], "attends", name) for name in view.layers}
    names = [name for name, module in own.items() if {name, module} & wanted]
    if not names:
        raise ValueError(f"None of layers={layers!r} was captured, or none can be shown.")
    return names


def _facts(view: View, names: Sequence[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {**model_payload(view, classes=False), "run": 1}
    facts["layers"] = [each for each in facts["layers"] if each["name"] in names]
    own = (*cached_methods(), PRODUCT, *_of_attention(view))
    captum = {name for name in heatmap_names(view) if name not in own}
    heatmaps = [each for each in facts["choices"]["heatmap"] if each not in captum]
    orders = [each for each in facts["choices"]["order"] if each != ABLATION]  # not of all layers
    facts["choices"] = facts["choices"] | {"heatmap": heatmaps, "order": orders}
    return facts


def _of_attention(view: View) -> list[str]:
    """Return the heatmaps for which nothing has to run: LeGrad only if it is shown."""
    if not view.has_attention:
        return []
    found = [NORM]
    for name in ATTENTION_HEATMAPS:
        with suppress(ValueError):  # windows have no flow from layer to layer
            if name != "legrad" or view.settings.heatmap == name:
                heatmap_payload(view.with_settings(heatmap=name))
                found.append(name)
    return found


def _layer(view: View) -> tuple[dict[str, Any], Stream, list[PackedTensor]]:
    """Return a layer's header, its statistics, and its maps and gradients to be packed."""
    header, arrays = layer_payload(view)
    layer, parts = view.layer, []
    ends = {
        "maps": (layer.statistics, layer.signed),
        "gradients": (layer.gradient_statistics, True),
    }
    for name, (numbers, diverging) in ends.items():
        if (maps := arrays.pop(name, None)) is None or numbers is None:
            continue
        low, high = colour_ranges(maps, numbers.min, numbers.max, "channel", diverging=diverging)
        parts.append(PackedTensor(name, maps, low, high))
    small = Stream.of(raw(name, array, planes=True) for name, array in arrays.items())
    calls, samples = header["counts"]["call"], header["counts"]["sample"]
    header["notes"] = [
        *([f"Call {header['call']} of {calls} is in this page."] if calls > 1 else []),
        *([f"Sample {header['sample']} of {samples} is in this page."] if samples > 1 else []),
    ]
    if (matrices := _queries(view)) is not None:
        values, header["queries"] = matrices
        parts.append(PackedTensor("queries", values, *ends_of(values)))
    elif view.query_words:
        header["notes"] += [f"Attention in this page is seen from {view.query_words}."]
    header["counts"] = header["counts"] | {"call": 1, "sample": 1, "depth": 1}
    header["field"] = field_payload(view)
    return header, small, parts


def _answer(view: View, room: float) -> Stream:
    """Return the maps of the output: each one whole, and its channels as long as there is room."""
    arrays: list[Any] = []
    for which, found in enumerate(view.answer.maps):
        channels: list[int | None] = [*range(len(found.labels))]
        for channel in [None, *channels] if len(channels) > 1 else channels:
            values = map_values(found, view.input_sample, channel)
            room -= sum(each.nbytes for each in values.values())
            if room < 0:
                continue
            name = f"{which} {'all' if channel is None else channel}"
            arrays += [raw(f"{name} {kind}", each, planes=True) for kind, each in values.items()]
    return Stream.of(arrays)


def _queries(view: View) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Return attention from all queries, for a page in which another patch may be chosen.

    The heads' matrices ``(heads, queries, keys)`` and behind them their gradients, and what
    `static/queries.js` needs to cut maps out of them; None where the shown ones are all.
    """
    whole, at = view.whole_record, view.settings
    if view.query is None or not isinstance(whole, AttentionRecord) or whole.grid is None:
        return None
    if isinstance(view, ViewDifference) or len(whole.grid) != 2:
        return None
    output, before = whole.calls[at.call].outputs[0], whole.prefix(at.call)
    queries = output.shape[-2]
    first = queries - math.prod(whole.grid)
    if first < 0:
        return None
    sides = [output.value] if output.gradient is None else [output.value, output.gradient]
    values = np.concatenate([to_numpy(each[min(at.sample, len(each) - 1)]) for each in sides])
    words = [whole.query_words(query, at.call) for query in (MEAN, *range(first))]
    about = {"grid": list(whole.grid), "before": before, "first": first, "query": view.query}
    return values.astype(np.float32), about | {"heads": output.shape[1], "words": words}


def _map(view: View, names: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    try:
        header, arrays = map_payload(view, names)
    except Exception as error:  # a page without its map is still a page
        return {"none": f"The map could not be made: {error}"}, []
    return header, [raw(name, array) for name, array in arrays.items()]


def _other_classes(
    view: View, places: Sequence[Settings], run: Callable[[Target], Run], predictions: list[dict]
) -> list[Packed]:
    """Return all layers' Grad-CAM for each other class of the predictions."""
    if not view.run.scored or isinstance(view, ViewDifference):  # its other side has one target
        return []
    shown = class_number(view)
    others = [each["number"] for each in predictions if each["number"] != shown]
    found = []
    with closing(_runs(view, others, run, places)) as runs:
        for number, other in zip(others, runs, strict=True):
            there = view.with_run(other)
            for place, settings in enumerate(places):
                here = there.with_settings(settings, target=number, heatmap="gradcam")
                found += _heatmap(here, f"gradcam {number} {place}")
    return found


def _runs(
    view: View, targets: Sequence[int], run: Callable[[Target], Run], places: Sequence[Settings]
) -> Generator[Run, None, None]:
    """Yield a run for each target; of one forward where the gradients of the inputs are enough."""
    simple = view.run.source == "inputs" and not (view.cache.over_budget or view.has_attention)
    if simple and targets:
        modules = [view.cache[each.layer].module for each in places]
        yield from view.session.runs(targets, modules)
    else:
        yield from map(run, targets)


def _heatmap(view: View, said: str) -> list[Packed]:
    """Return a view's heatmap in 252 steps; an empty list if it has none."""
    values = heatmap_payload(view)
    if values is None:
        return []
    _, low, high = heat_colours(values) or ("", 0.0, 1.0)
    ends = np.array([low], np.float32), np.array([high], np.float32)
    packed = quantize(said, values[None], *ends, smooth=True)
    packed[1][0]["shape"] = list(values.shape)
    return packed


def _notes(reductions: list[str], max_bytes: float, view: View) -> list[str]:
    if not reductions:
        return ["This page needs no kernel: all numbers in it are exact."]
    told = "; ".join(reductions)
    return [f"This page needs no kernel. To fit {megabytes(int(max_bytes))}: {told}."]


def packed_block(header: dict[str, Any], streams: list[Stream]) -> str:
    """Return a block of arrays as JSON, for `static/blocks.js`."""
    codings = [coding for stream in streams for coding in stream.codings]
    header = header | {"arrays": codings, "streams": [len(each.data) for each in streams]}
    data = base64.b64encode(b"".join(each.data for each in streams)).decode()
    return json_text({"header": header, "data": data})
