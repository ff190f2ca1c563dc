"""A survey as one HTML file: all channels with their patches, to be searched and sorted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ...draw.document import document, fitting, json_text, script, style
from ...draw.pieces import data_url, sheet, strip
from ...hooking.select import close_names
from ...hooking.tables import megabytes
from .layer_survey import ORDERS, Key, channel_words, key_words
from .patches import NO_PICTURES, SHOWN, PatchMixin

LEVELS = ((64, SHOWN), (48, 9), (40, 3), (34, 1))
"""The side of a patch in pixels, and how many of a channel: each takes less than that before."""


class Start(NamedTuple):
    """Where a page begins: at a channel of a layer, the channels in an order."""

    layer: Key
    channel: int = 0
    order: str = "number"


SAMPLE = 12  # channels by which the size of all is told
QUALITY = 75  # of JPEG


def write_page(
    survey: PatchMixin,
    layers: str | Sequence[Key] | None,
    whole: bool,
    max_bytes: float,
    title: str | None,
    tick: Callable[[float], object],
    start: Start | None = None,
) -> str:
    """The page, see `Survey.to_html`; ``tick`` is told the share that is done, 0 to 1."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = _chosen(survey, layers)
    every = [(key, channel) for key in keys for channel in range(len(survey[key]))]
    rows = [(_line(survey, *each), survey.patches(*each, 9)) for each in every[:3]]
    named = title or f"Survey of {survey.mark.model}"
    program, css = script("survey"), style("style", "survey")
    still = data_url(sheet(rows), QUALITY)
    fixed = len(program) + len(css) + len(still) + 300 * len(keys) + 4000

    def pages() -> Iterator[str]:
        for side, most in _levels(survey, every, whole, max_bytes - fixed):
            blocks = {}
            for place, key in enumerate(keys):
                channels = range(len(survey[key]))
                made = [_channel(survey, key, channel, side, most, whole) for channel in channels]
                blocks[f"layer-{place}"] = json_text(made)
                tick((place + 1) / len(keys))
            facts = _facts(survey, keys, named, side, min(most, survey.mark.k), max_bytes, start)
            alt = f"{survey.title}: what its channels answer to"
            yield document(named, program, css, {"facts": facts, **blocks}, alt, still)

    few = f" for {len(every):,} channels: give more, or fewer layers with layers="
    return fitting(pages(), max_bytes, few)


def _chosen(survey: PatchMixin, layers: str | Sequence[Key] | None) -> list[Key]:
    if layers is None:
        return list(survey)
    wanted: list[Any] = [layers] if isinstance(layers, (str, tuple)) else list(layers)
    found: list[Key] = []
    for each in wanted:
        here = [
            key
            for key in survey
            if key == each
            or (isinstance(each, str) and isinstance(key, str) and fnmatchcase(key, each))
        ]
        if not here:
            names = [key_words(key) for key in survey]
            raise ValueError(f"This survey has no layer {each!r}; {close_names(str(each), names)}.")
        found += [key for key in here if key not in found]
    return found


def _levels(
    survey: PatchMixin, every: Sequence[tuple[Key, int]], whole: bool, room: float
) -> Iterator[tuple[int, int]]:
    """Those of `LEVELS` of which some channels say that all may fit."""
    some = every[:: max(1, len(every) // SAMPLE)]
    for side, most in LEVELS:
        taken = sum(len(json.dumps(_channel(survey, *each, side, most, whole))) for each in some)
        if taken / len(some) * len(every) <= room * 1.05:
            yield side, most


def _channel(
    survey: PatchMixin, key: Key, channel: int, side: int, most: int, whole: bool
) -> dict[str, Any]:
    """A channel as `hookviz/static/survey.js` has it."""
    layer = survey[key]
    found = survey.patches(key, channel, most)
    captions = [piece.caption for piece in found]
    return {
        "channel": channel,
        "words": channel_words(layer, channel),
        "captions": captions,
        "purity": round(layer.purity(channel), 3),
        "zeros": _finite(float(layer.zeros[channel])),
        "largest": _finite(float(layer.data["values"][0, channel])),
        "picture": data_url(strip(found, side, whole=whole), QUALITY),
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _line(survey: PatchMixin, key: Key, channel: int) -> str:
    return f"{key_words(key)}, channel {channel}: {', '.join(channel_words(survey[key], channel))}"


def _facts(
    survey: PatchMixin,
    keys: Sequence[Key],
    title: str,
    side: int,
    most: int,
    max_bytes: float,
    start: Start | None,
) -> str:
    notes = []
    if side < LEVELS[0][0]:
        notes.append(f"To fit {megabytes(int(max_bytes))}, patches are {side} pixels large.")
    if most < survey.mark.k:
        notes.append(f"Of a channel's {survey.mark.k} patches the first {most} are in this page.")
    layers = [
        {"name": key_words(key), "words": f"{survey[key].column.kind}, {len(survey[key])} channels"}
        for key in keys
    ]
    return json_text(
        {
            "title": title,
            "words": survey.title.partition(": ")[2],
            "layers": layers,
            "orders": list(ORDERS),
            "patches": most,
            "notes": notes,
            "start": None
            if start is None
            else {"layer": keys.index(start.layer), "channel": start.channel, "order": start.order},
        }
    )
