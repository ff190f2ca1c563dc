"""A view and all its layers as one HTML file that needs no kernel and no network."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..attribution.cam import ATTENTION_HEATMAPS, HEATMAPS, needs_target
from ..draw import html
from ..draw.colours import averaged, colour_ranges
from ..draw.document import check_size, document
from ..draw.overlay import heat_colours
from ..hooking.select import Layers, select_layers
from ..run.session import Run
from ..run.target import Target
from ..tables import counted, megabytes
from ..view.build import build_frame, target_hint
from ..view.heatmaps import heatmap_of
from ..view.layer import SCORE_DROP
from ..view.map import map_payload
from ..view.maps import (
    describe,
    fitted,
    for_layer,
    layer_of,
    layers_of,
    query_words,
)
from ..view.messages import PictureHeader, as_json
from ..view.outputs import map_values
from ..view.payload import (
    field_payload,
    layer_payload,
    model_payload,
    picture_payload,
    settings_payload,
    target_number,
)
from ..view.predictions import output_of
from ..view.settings import NORM, PRODUCT, Settings, has_attention
from ..view.source import input_sample, picture_at
from ..view.view import View
from .figure import still_png
from .lesson import Step, lesson_payload
from .packing import (
    EXACT,
    HALF,
    SMALLEST,
    Level,
    MapsPart,
    Packed,
    Stream,
    Streams,
    best_level,
    compressed,
    quantize,
    raw,
    size_of,
)
from .packing import picture as packed_picture
from .walk import page_reasons

LEAST_BYTES = 300_000
"""Minimum page size in bytes: program, still picture and names."""

HEATS = 0.08
"""The most of a page that heatmaps take before the largest are averaged."""

FINE = 64
"""The largest side of a heatmap that is never averaged."""

COARSE = f"heatmaps larger than {FINE} positions are averaged over 2×2"

RESERVE = 2_000
"""Bytes kept free for the notes on what was reduced."""

NO_TARGET = "no class scores: for gradients, write the page with target=hookviz.output[…]"
"""The title line's hint in a page that cannot choose a target."""

PageBlock = tuple[dict[str, Any], list[Stream]]
"""An element of a page: values of JSON, and arrays."""


def write_page(
    view: View,
    run: Callable[[Target], Run],
    *,
    layers: Layers = None,
    max_bytes: float = 10e6,
    title: str | None = None,
    steps: Sequence[Step] = (),
    on_progress: Callable[[float], object] = lambda fraction: None,
) -> str:
    """Write the explorer as a page.

    Parameters
    ----------
    view : View
        The view at which the page begins.
    run : callable
        Target -> a run, for the heatmaps of other classes.
    layers, max_bytes, title, steps
        As for `hookviz.widgets.Explorer.to_html`.
    on_progress : callable
        Called with the fraction of the work that is done, 0 to 1.

    Raises
    ------
    ValueError
        Unknown layer, or a limit that even the smallest page exceeds.
    """
    check_size(max_bytes)
    if max_bytes < LEAST_BYTES:
        raise ValueError(
            f"max_bytes={max_bytes:g} is too little for any page: give at least {LEAST_BYTES:,}."
        )
    names = chosen_layers(view, layers)
    heatmaps = [*HEATMAPS, *_of_attention(view)]
    begun = begin_page(view, names, [*heatmaps, PRODUCT], title)
    view, facts = begun.view, begun.facts
    begun.ask(steps)
    blocks: dict[str, PageBlock] = {}
    maps: list[MapsPart] = []
    heats: dict[str, np.ndarray | None] = {}
    places: list[Settings] = []
    for place, name in enumerate(names):
        here = for_layer(view, layer=name)
        set_map_size(facts, here)
        blocks[f"layer-{place}"], own = _layer(here, f"layer-{place}")
        _add_picture(here, blocks[f"layer-{place}"][0], blocks)
        maps += own
        for method in heatmaps:
            heats[f"{method} {place}"] = heatmap_of(here.with_settings(heatmap=method))
        places.append(here.settings)
        on_progress(0.6 * (place + 1) / len(names))
    heats |= _other_classes(view, places, run, facts["predictions"])
    on_progress(0.8)
    whole_heats = Stream.of(_packed_heatmaps(heats, 1))
    large = len(whole_heats.data) > HEATS * max_bytes
    drawn = Stream.of(_packed_heatmaps(heats, 2)) if large else whole_heats
    free = [name for name in heatmaps if name == NORM or not needs_target(name)]
    blocks["heatmaps"] = ({"any_target": free}, [drawn])
    blocks["answer"] = ({}, [_answer(view, max_bytes / 10)])
    reasons, arrays = page_reasons(view, names)
    blocks["why"] = (reasons, [Stream.of(arrays)])
    facts["why"] = {"output": next((each.get("output") for each in reasons["answers"]), None)}
    map_header, small = page_map(view, names)
    blocks["map"] = (map_header, [Stream.of(small)])

    def written() -> str:
        return begun.written("page", {name: packed_block(*block) for name, block in blocks.items()})

    facts["notes"] = []
    room = max_bytes - len(written().encode()) - RESERVE
    shown = f"layer-{names.index(view.settings.layer)}"
    fitting = fit(maps, shown, room)
    if fitting is None:
        smallest = compressed(maps, SMALLEST, math.inf)
        takes = max_bytes - room + size_of(smallest or {})
        raise ValueError(
            f"max_bytes={max_bytes:g} is too little: a page of these {len(names)} layers takes at "
            f"least {megabytes(math.ceil(takes))}; give more, or fewer layers with layers=."
        )
    streams, reductions = fitting
    for part, stream in streams.items():
        blocks[part.block][1].append(stream)
    facts["notes"] = _notes([COARSE] * large + reductions, max_bytes)
    on_progress(1.0)
    return written()


def fit(maps: list[MapsPart], shown: str, room: float) -> tuple[Streams, list[str]] | None:
    """Choose the numbers that fit into ``room`` bytes of a page, and say what was reduced for it.

    None if not all maps fit. ``shown`` is the block of the layer that the page shows first, whose
    maps stay exact if they are not large.
    """
    large_first = sorted(maps, key=lambda part: -part.values.size)
    own = compressed([part for part in maps if part.block == shown], EXACT, room / 8) or {}
    rest = [part for part in large_first if part not in own]
    found = best_level(rest, room - size_of(own))
    if found is None:
        return None
    level, streams = found
    return streams | own, [] if level == EXACT else [_level_words(level, maps, bool(own))]


def _level_words(level: Level, maps: list[MapsPart], shown_is_exact: bool) -> str:
    """Return what a level does to the maps, in words."""
    exact = ", but for the layer that is shown first" if shown_is_exact else ""
    if level == HALF:
        return f"maps and gradients are in half precision{exact}"
    large = {part.block for part in maps if level.factor(part.values.shape) > 1}
    layers = counted(len(large), "layer")
    averaged = f", and in {layers} averaged over squares of positions" if large else ""
    return (
        "each map and gradient is rounded to 252 levels between its smallest and its largest "
        f"value{averaged}{exact}"
    )


def chosen_layers(view: View, layers: Layers) -> list[str]:
    """Return the page's layers."""
    if layers is None:
        return layers_of(view)
    wanted = {names[0] for names in select_layers(view.session.given, layers).values()}
    own = {name: getattr(view.cache[name], "attends", name) for name in layers_of(view)}
    names = [name for name, module in own.items() if {name, module} & wanted]
    if not names:
        raise ValueError(f"None of layers={layers!r} was captured, or none can be shown.")
    return names


@dataclass(frozen=True, eq=False)
class PageBeginning:
    """The part that all pages of an explorer share, whether they hold its numbers or compute them.

    Attributes
    ----------
    view : View
        With settings that a page has, and a layer that is in it.
    facts : dict
        JSON values; more are added by each kind of page.
    title : str
    still : str
        The address of the picture that is seen before the program runs, and without it.
    picture : (PictureHeader, numpy.ndarray) or None
        As `picture_payload`.
    """

    view: View
    facts: dict[str, Any]
    title: str
    still: str
    picture: tuple[PictureHeader, np.ndarray] | None

    def ask(self, steps: Sequence[Step]) -> None:
        """Add the questions, which are checked against the facts' layers, choices and classes."""
        asked = lesson_payload(steps, self.view, self.facts, self.title) if steps else None
        self.facts["lesson"] = asked

    def written(self, face: str, blocks: dict[str, Any], **how: Any) -> str:
        """Return the page with its facts and these blocks, see `document`."""
        first = {"facts": self.facts, "settings": settings_payload(self.view)}
        texts = {"facts": first, **blocks}
        return document(self.title, face, texts, describe(self.view), self.still, **how)


def begin_page(
    view: View,
    names: Sequence[str],
    heatmaps: Container[str],
    title: str | None,
    *,
    computes: bool = False,
) -> PageBeginning:
    """Make the part that all pages of an explorer share.

    Parameters
    ----------
    view : View
    names : sequence of str
        The page's layers.
    heatmaps : container of str
        Those that the page has.
    title : str, optional
    computes : bool
        True if the page runs its network, and so has all classes.
    """
    if view.settings.order == SCORE_DROP:
        view = view.with_settings(order="index")
    view = view if view.settings.layer in names else fitted(view.with_settings(layer=names[0]))
    facts: dict[str, Any] = {**model_payload(view, classes=computes), "run": 1}
    facts["layers"] = [dict(layer) for layer in facts["layers"] if layer["name"] in names]
    choices = facts["choices"]
    facts["choices"] = choices | {
        "order": [name for name in choices["order"] if name != SCORE_DROP],
        "heatmap": [name for name in choices["heatmap"] if name in heatmaps],
    }
    replace_fact(facts, target_hint(view), NO_TARGET)
    picture = picture_payload(view)
    still = html.data_url(still_png(build_frame(view)))
    title = title or f"{facts['model']} in hookviz"
    return PageBeginning(view, facts, title, still, picture)


def replace_fact(facts: dict[str, Any], before: str, after: str) -> None:
    """Replace a fact of a page's title line where it has it."""
    facts["summary"] = [after if fact == before else fact for fact in facts["summary"]]


def set_map_size(facts: dict[str, Any], view: View) -> None:
    """Add the size of a layer's maps to a page's facts."""
    (layer,) = (layer for layer in facts["layers"] if layer["name"] == view.settings.layer)
    layer["map"] = list(layer_of(view).maps.shape[1:])


def _of_attention(view: View) -> list[str]:
    """Return the heatmaps for which nothing has to run: LeGrad only if it is shown."""
    if not has_attention(view):
        return []
    found = [NORM]
    for name in ATTENTION_HEATMAPS:
        with suppress(ValueError):  # windows have no flow from layer to layer
            if name != "legrad" or view.settings.heatmap == name:
                heatmap_of(view.with_settings(heatmap=name))
                found.append(name)
    return found


def _layer(view: View, block: str) -> tuple[PageBlock, list[MapsPart]]:
    """Return a layer's block with its statistics, and the parts that are added to it."""
    words, arrays = layer_payload(view)
    header = as_json(words)
    layer, parts = layer_of(view), []
    ends = {
        "maps": (layer.statistics, layer.signed),
        "gradients": (layer.gradient_statistics, True),
    }
    for name, (numbers, diverging) in ends.items():
        if (maps := arrays.pop(name, None)) is None or numbers is None:
            continue
        low, high = colour_ranges(maps, numbers.min, numbers.max, "channel", diverging=diverging)
        parts.append(MapsPart(block, name, maps, low, high, arrays.pop(f"{name} percentiles")))
    small = Stream.of(raw(name, array, planes=True) for name, array in arrays.items())
    several = {name: header["counts"][name] for name in ("call", "sample", "depth")}
    shown = [f"{name} {header[name]} (of 0 to {n - 1})" for name, n in several.items() if n > 1]
    header["notes"] = [f"In this page: {', '.join(shown)}."] if shown else []
    if query_words(view):
        header["notes"] += [f"The attention in this page has one query: {query_words(view)}."]
    header["counts"] = header["counts"] | dict.fromkeys(several, 1)
    header["field"] = field_payload(view)
    return (header, [small]), parts


def _add_picture(view: View, header: dict[str, Any], blocks: dict[str, PageBlock]) -> None:
    """Add the picture that a layer's maps were computed from, once for all its layers."""
    if (at := picture_at(view)) is None:
        return
    name = f"picture-{at[0]}-{at[2]}"
    if name in blocks:
        return
    if (found := picture_payload(view, at)) is None:
        header["place"] = None
    else:
        words, pixels = found
        blocks[name] = as_json(words), [Stream.of([packed_picture("pixels", pixels)])]


def _answer(view: View, room: float) -> Stream:
    """Return the maps of the output: each one whole, and its channels as long as there is room."""
    arrays: list[Any] = []
    for which, found in enumerate(output_of(view).maps):
        channels: list[int | None] = [*range(len(found.labels))]
        for channel in [None, *channels] if len(channels) > 1 else channels:
            values = map_values(found, input_sample(view), channel)
            room -= sum(each.nbytes for each in values.values())
            if room < 0:
                continue
            name = f"{which} {'all' if channel is None else channel}"
            arrays += [raw(f"{name} {kind}", each, planes=True) for kind, each in values.items()]
    return Stream.of(arrays)


def page_map(view: View, names: Sequence[str]) -> tuple[dict[str, Any], list[Packed]]:
    """Return the map of the network as `map_payload`, with the arrays encoded."""
    try:
        header, arrays = map_payload(view, names)
    except Exception as error:  # a page without its map is still a page
        return {"none": f"The map could not be made: {error}"}, []
    return header, [raw(name, array) for name, array in arrays.items()]


def _other_classes(
    view: View, places: Sequence[Settings], run: Callable[[Target], Run], predictions: list[dict]
) -> dict[str, np.ndarray | None]:
    """Return all layers' Grad-CAM for each other class of the predictions."""
    if not view.run.scored or view.difference:  # its other side has one target
        return {}
    shown = target_number(view)
    others = [each["number"] for each in predictions if each["number"] != shown]
    found: dict[str, np.ndarray | None] = {}
    with closing(_runs(view, others, run, places)) as runs:
        for number, other in zip(others, runs, strict=True):
            there = view.with_run(other)
            for place, settings in enumerate(places):
                here = there.with_settings(settings, target=number, heatmap="gradcam")
                found[f"gradcam {number} {place}"] = heatmap_of(here)
    return found


def _runs(
    view: View, targets: Sequence[int], run: Callable[[Target], Run], places: Sequence[Settings]
) -> Generator[Run, None, None]:
    """Yield a run for each target; of one forward where the gradients of the inputs are enough."""
    simple = view.run.source == "inputs" and not (view.cache.over_budget or has_attention(view))
    if simple and targets:
        modules = [view.cache[each.layer].module for each in places]
        yield from view.session.runs(targets, modules)
    else:
        yield from map(run, targets)


def _packed_heatmaps(heats: dict[str, np.ndarray | None], factor: int) -> list[Packed]:
    """Return heatmaps in 252 levels; those larger than `FINE` are averaged by a factor."""
    packed: list[Packed] = []
    for name, values in heats.items():
        if values is None:
            continue
        values = averaged(values[None], factor if max(values.shape) > FINE else 1)
        _, low, high = heat_colours(values[0]) or ("", 0.0, 1.0)
        ends = np.array([low], np.float32), np.array([high], np.float32)
        range_of, (coding, levels) = quantize(name, values, *ends, smooth=True)
        packed += [range_of, (replace(coding, shape=list(values.shape[1:])), levels)]
    return packed


def _notes(reductions: list[str], max_bytes: float) -> list[str]:
    if not reductions:
        exact = "values and gradients are exact, heatmaps have 252 levels"
        return [f"This page needs no kernel: {exact}."]
    told = "; ".join(reductions)
    return [f"This page needs no kernel. To fit {megabytes(int(max_bytes))}: {told}."]


def packed_block(header: dict[str, Any], streams: list[Stream]) -> dict[str, Any]:
    """Return a block of arrays, for `web/blocks.ts`."""
    codings = [coding for stream in streams for coding in stream.codings]
    header = header | {"arrays": as_json(codings), "streams": [len(each.data) for each in streams]}
    data = base64.b64encode(b"".join(each.data for each in streams)).decode()
    return {"header": header, "data": data}
