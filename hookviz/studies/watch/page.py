"""A training as one HTML file, which needs no kernel and no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...draw import html
from ...draw.colours import DIVERGING, SEQUENTIAL, palette_text
from ...draw.document import document, fitting, json_text, script, style
from ...draw.shown import small_png
from .log import Layout, Recorded, Step
from .measured import BINS, LEAST, OCTAVES, STATISTICS
from .strips import first_seen, named
from .weights import NORMS

ORDER = ("statistics", "weights", "dead", "ends", "bins", "maps")
"""The arrays of a step, the widest numbers first: each begins where its kind may."""


def facts_of(training: Recorded, phase: str = "train") -> dict[str, Any]:
    """What is said of all steps: which there are, and what their numbers are of."""
    steps = training.history(phase).steps
    layouts = list(dict.fromkeys(step.layout for step in steps))
    model, _, words = training.title.partition(": ")
    trouble = first_seen(training) if phase == "train" else None
    return {
        "model": model,
        "words": words,
        "steps": [step.at for step in steps],
        "of": [layouts.index(step.layout) for step in steps],
        "layouts": list(map(_layout, layouts)),
        "trouble": trouble and {"at": trouble[0], "row": named(trouble[1])},
        "statistics": STATISTICS,
        "norms": NORMS,
        "bins": {"count": BINS, "octaves": OCTAVES, "least": LEAST},
        "palettes": {
            "sequential": palette_text(SEQUENTIAL),
            "diverging": palette_text(DIVERGING),
        },
    }


def bytes_of(step: Step) -> bytes:
    """A step's arrays, one behind the other."""
    arrays = step.arrays | {"dead": step.dead().astype(np.float32)}
    return b"".join(arrays[name].tobytes() for name in ORDER)


def packed(step: Step) -> tuple[int, str]:
    """A step for a page: its number, and its bytes as text."""
    return step.at, _text(bytes_of(step))


def _layout(layout: Layout) -> dict[str, Any]:
    return {
        "rows": [named(row) for row in layout.rows],
        "weighted": layout.weighted,
        "maps": layout.maps,
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def write_page(training: Recorded, phase: str, max_bytes: float, title: str | None = None) -> str:
    """The page; steps are left out, as evenly as can be, until it fits.

    Raises
    ------
    ValueError
        No step has been recorded, or not even two fit.
    """
    steps = [packed(step) for step in training.recorded(phase)]
    still = html.data_url(small_png(training.figure(phase=phase)))
    facts = facts_of(training, phase)
    words, count = facts["words"], len(steps)

    def pages() -> Iterator[str]:
        program, css, kept = script("training"), style("style", "steps"), steps
        while True:
            blocks = {"facts": json_text(facts), "steps": json_text(kept)}
            alt = f"{facts['model']}: {facts['words']}"
            yield document(title or facts["model"], program, css, blocks, alt, still)
            if len(kept) <= 2:
                return
            kept = kept[::2]
            facts["words"] = f"{words}; {len(kept)} of {count} recorded steps are in this page"

    least = ": a page of two steps takes {takes}; watch fewer layers, or none of a probe's"
    return fitting(pages(), max_bytes, least)
