"""A trace as one HTML file: its events are walked through without a kernel or a network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from ...draw import html
from ...draw.colours import DARK, DIVERGING, SEQUENTIAL, palette_text, to_levels
from ...draw.document import document, fitting, json_text, script, style
from ...draw.shown import small_png
from ...hooking.tables import megabytes, number
from .events import BACKWARD, RECEIVED, SIDES, Event, event_picture, numbers, shapes, side, when

KEPT = ("forward", "full_backward", "forward_pre", "full_backward_pre", "tensor")
"""Whose pictures are kept longest where not all fit: a module's arguments are what another one
returned, and the gradient of its output is what another one passed back."""

PALETTES = {"sequential": SEQUENTIAL, "diverging": DIVERGING, "dark": DARK}


def write_page(
    trace: Sequence[Event],
    about: str,
    tree: Sequence[tuple[str, str]],
    max_bytes: float,
    title: str | None,
    start: int = 0,
) -> str:
    """Write the page of `Trace.to_html`.

    ``about`` is the trace's own title, ``tree`` the name and type of every module,
    ``start`` the index of the event that it begins with.
    """
    if not len(trace):
        raise ValueError("There is no event to show: take a longer part of the trace.")
    model, _, words = about.partition(": ")
    named = title or f"Hooks of {model}"
    still = html.data_url(small_png(_figure(trace)))
    places = {name: place for place, (name, _) in enumerate(tree)}
    events = [_said(event, places[event.layer]) for event in trace]
    facts: dict[str, Any] = {
        "title": named,
        "words": words,
        "tree": tree,
        "kinds": [[kind, RECEIVED[kind], kind in BACKWARD] for kind in RECEIVED],
        "palettes": {name: palette_text(cmap) for name, cmap in PALETTES.items()},
        "note": _note(max_bytes, len(trace)),
        "start": start,
    }

    def made(pictures: Sequence[Any]) -> str:
        blocks = {"facts": facts, "events": events, "pictures": pictures}
        texts = {name: json_text(value) for name, value in blocks.items()}
        css = style("style", "trace")
        return document(named, script("trace"), css, texts, f"{named}: {words}", still)

    takes = (
        f": this trace of {len(trace):,} events takes {{takes}} without any picture; give more, "
    )
    bare = fitting([made([])], max_bytes, takes + "or take a part: trace[:100]")
    pictures, left = _pictures(trace, events, max_bytes - len(bare.encode()))
    facts["note"] = _note(max_bytes, left) if left else ""
    return made(pictures)


def _note(max_bytes: float, left: int) -> str:
    order = " hooks, then ".join(reversed(KEPT))
    return (
        f"To fit {megabytes(int(max_bytes))}, {left:,} pictures are left out: of {order} hooks, "
        "of each kind the last events first."
    )


def _said(event: Event, module: int) -> dict[str, Any]:
    """An event as `hookviz/static/trace.js` has it; what is empty is left out."""
    said: dict[str, Any] = {
        "index": event.index,
        "kind": event.kind,
        "module": module,
        "call": event.call,
        "depth": event.depth,
        "when": when(event),
        "fired": event.fired,
        "shapes": shapes(event),
        "numbers": numbers(event),
        "note": event.note,
        "code": event.code,
    }
    if event.sample is not None:
        said["picture"] = None  # there is one, which may be left out
    return {name: value for name, value in said.items() if value not in ("", [])}


def _pictures(
    trace: Sequence[Event], events: list[dict[str, Any]], room: float
) -> tuple[list[list[Any]], int]:
    """Those that fit, each once, and how many events go without; told to the ``events``.

    A picture is its height, its width and its levels; what one module returns another one takes,
    so many are the same.
    """
    found: dict[tuple[int, int, bytes], int] = {}
    full, left = False, 0
    for place in sorted(range(len(trace)), key=lambda at: (KEPT.index(trace[at].kind), at)):
        seen = event_picture(trace[place])
        if seen is None:
            continue
        levels = to_levels(seen.values, seen.low, seen.high)
        key = (*levels.shape, levels.tobytes())
        said = {
            "diverging": seen.cmap == DIVERGING,
            "low": number(seen.low),
            "high": number(seen.high),
            "caption": seen.caption,
            "alt": seen.alt,
        }
        takes = len(json_text(said)) + 40
        if key not in found:
            takes += 20 + 4 * len(key[2]) // 3
        full = full or takes > room
        if full:
            left += 1
            continue
        room -= takes
        events[place]["picture"] = said | {"at": found.setdefault(key, len(found))}
    texts = [[h, w, base64.b64encode(levels).decode()] for h, w, levels in found]
    return texts, left


def _figure(trace: Sequence[Event]) -> Figure:
    """All events in their order, each as high as its module is deep in the model."""
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    axes = figure.subplots()
    for kind, (name, colour) in SIDES.items():
        chosen = [event for event in trace if side(event) == kind]
        if chosen:
            at, high = zip(*((event.index, event.depth + 1) for event in chosen), strict=True)
            wide = min(max(500 / len(trace), 0.5), 8)
            axes.vlines(at, 0, high, color=colour, linewidth=wide, label=name)
    axes.set(xlabel="hooks in the order in which they fired", ylabel="depth of the module")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=3, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    return figure
