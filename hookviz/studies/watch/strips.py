"""A training as pictures: strips of layers × steps, histograms over time; and as one HTML file."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize, SymLogNorm
from matplotlib.figure import Figure

from ...draw import html
from ...draw.colours import DIVERGING, SEQUENTIAL, colormap, palette_text
from ...draw.document import document, fitting, json_text, script, style
from ...draw.figures import ShownFigure, layer_label, no_formula, small_png
from ...tables import number
from .log import NAMES, FirstNonFinite, History, TrainingStep
from .recorder import Row
from .summary import BINS, STATISTICS
from .verdicts import TOO_FAR
from .weights import NORMS


class Recorded(Protocol):
    """The part of a `Training` that is drawn: its file imports this one."""

    @property
    def title(self) -> str: ...
    @property
    def first_trouble(self) -> FirstNonFinite | None: ...
    def history(self, phase: str = ...) -> History: ...
    def recorded(self, phase: str = ...) -> list[TrainingStep]: ...
    def figure(self, *, phase: str = ...) -> Figure: ...


_SHARES = ("zeros", "dead")
_SIGNED = ("mean", "min", "max")
_TICKS = 12
LIMITS = {"update_ratio": TOO_FAR}
"""Values above which a statistic is marked."""
SPAN = 1e3  # from the median to the first and to the last colour, at most
_MOST_NAMES = 40


def draw_strips(training: Recorded, statistics: Sequence[str], phase: str) -> Figure:
    """Draw one strip below the other."""
    for name in statistics:
        if name not in NAMES:
            raise ValueError(f"Unknown statistic {name!r}: there are {', '.join(NAMES)}.")
    steps = [step.at for step in training.recorded(phase)]
    tables = {name: training.history(phase).table(name) for name in statistics}
    # A validation step has no strips of the weights: no optimizer changes them there.
    tables = {name: table for name, table in tables.items() if table[0]}
    if not tables:
        raise ValueError(f"No step of {phase} has recorded {', '.join(statistics)}.")
    heights = [min(max(0.16 * len(rows), 1.2), 6.0) for rows, *_ in tables.values()]
    figure = ShownFigure(
        figsize=(10, sum(heights) + 0.8 * len(heights) + 0.4), layout="constrained"
    )
    figure.suptitle(no_formula(training.title.partition(";")[0]), fontsize="medium")
    axes = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for (name, (rows, values, wrong)), one in zip(tables.items(), axes, strict=True):
        _draw(one, name, values, wrong)
        one.set_title(f"{said(name)}, layers × steps", fontsize="small", loc="left")
        _label_steps(one, steps)
        every = math.ceil(len(rows) / _MOST_NAMES)
        one.set_yticks(
            range(0, len(rows), every), [layer_label(named(r)) for r in rows[::every]], fontsize=6
        )
        _cross(one, training, rows, steps, phase)
    axes[-1].set_xlabel("step")
    return figure


def draw_layer(training: Recorded, row: Row, phase: str) -> Figure:
    """Histograms of activations and gradients, and the channels' means, over the steps."""
    steps = [step for step in training.recorded(phase) if row in step.layout.rows]
    places = [step.layout.rows.index(row) for step in steps]
    figure = ShownFigure(figsize=(10, 9), layout="constrained")
    figure.suptitle(no_formula(f"{named(row)} in a {training.title.partition(';')[0][9:]}"))
    axes = figure.subplots(3, 1, height_ratios=[3, 3, 2])
    for side, what in enumerate(("activations", "gradients")):
        columns = [step.bins()[place, side] for step, place in zip(steps, places, strict=True)]
        counts = np.stack(columns, 1)
        _draw_bins(axes[side], counts / np.maximum(counts.sum(0), 1))
        title = f"{what}: fraction of values in each bin"
        axes[side].set_title(title, fontsize="small", loc="left")
    means = [step.channels(place)[0] for step, place in zip(steps, places, strict=True)]
    width = min(len(each) for each in means)
    values = np.stack([each[:width] for each in means], 1)
    _draw(axes[2], "mean", values, ~np.isfinite(values))
    axes[2].set_title("mean of each channel", fontsize="small", loc="left")
    for one in axes:
        _label_steps(one, [step.at for step in steps])
    axes[2].set_xlabel("step")
    return figure


def named(row: Row) -> str:
    """Name a layer, its call and the index of one of several tensors."""
    call = f" ({row.call})" if row.call else ""
    return (row.layer or "(model)") + call + row.path


def said(statistic: str) -> str:
    """Describe a statistic in words."""
    name = statistic.removeprefix("gradient_")
    prefix = "" if name == statistic else "gradient: "
    return prefix + _WORDS.get(name, name.replace("_", " "))


_WORDS = {
    "std": "standard deviation",
    "dead": "fraction of dead channels",
    "zeros": "fraction of zeros",
    "nans": "NaN",
    "infs": "Inf",
}


def colours_of(statistic: str, values: np.ndarray) -> tuple[Normalize, str]:
    """Choose the scale of a statistic's colours: orders of magnitude, fractions as they are.

    Three orders on either side of their median: a step that explodes must not hide all others.
    """
    name = statistic.removeprefix("gradient_")
    if name in _SHARES:
        return Normalize(0, 1), SEQUENTIAL
    finite = np.abs(values[np.isfinite(values) & (values != 0)]).astype(np.float64)
    finite = finite if finite.size else np.ones(1)
    middle = float(np.median(finite))
    least, most = max(finite.min(), middle / SPAN), min(finite.max(), middle * SPAN)
    if name in _SIGNED:
        bound = max(least, most * 1e-3)
        return SymLogNorm(bound, vmin=-most, vmax=most, clip=True), DIVERGING
    return LogNorm(least, max(most, least * 1.01), clip=True), SEQUENTIAL


def _draw(axes: Axes, statistic: str, values: np.ndarray, wrong: np.ndarray) -> None:
    norm, name = colours_of(statistic, np.where(wrong, np.nan, values))  # or these set the scale
    colours = colormap(name)
    with np.errstate(all="ignore"):
        pixels = colours(norm(np.nan_to_num(values)))
    pixels[~np.isfinite(values)] = 0
    pixels[wrong] = colours.get_bad()
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    bar = _colour_bar(axes, norm, colours)
    if statistic in LIMITS:
        (limit,) = np.clip([LIMITS[statistic]], norm.vmin, norm.vmax)
        bar.axhline(limit, color="#d97706", lw=2)


def _colour_bar(axes: Axes, norm: Normalize, colours: Colormap) -> Axes:
    bar = axes.figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.01).ax
    bar.tick_params(labelsize="x-small")
    return bar


def _draw_bins(axes: Axes, shares: np.ndarray) -> None:
    """Bins × steps, from Inf at the top to −Inf at the bottom; empty bins at the ends are cut."""
    used = np.flatnonzero(shares.any(1))
    zero, inf, nan = BINS.count + 1, BINS.size - 2, BINS.size - 1
    finite = used[used < inf]
    first, last = (finite.min(), finite.max()) if finite.size else (zero - 1, zero + 1)
    kept = [*range(first, last + 1), *used[used >= inf]]
    norm, colours = LogNorm(1e-5, 1, clip=True), colormap(SEQUENTIAL)
    pixels = colours(norm(np.maximum(shares[kept], 1e-9)))
    pixels[np.isin(kept, (0, inf, nan))] = colours.get_bad()
    pixels[shares[kept] == 0] = 0
    axes.imshow(pixels, aspect="auto", interpolation="nearest", origin="lower")
    step = math.ceil(len(kept) / 14)
    shown = {
        line: _bin_name(place)
        for line, place in enumerate(kept)
        if place in (0, inf, nan) or (place - zero) % step == 0
    }
    axes.set_yticks([*shown], [*shown.values()], fontsize=6)
    _colour_bar(axes, norm, colours)


def _bin_name(place: int) -> str:
    """Return the edge of a bin that is nearer to zero."""
    zero = BINS.count + 1
    special = {0: "−Inf", zero: "0", BINS.size - 2: "Inf", BINS.size - 1: "NaN"}
    if place in special:
        return special[place]
    edge = BINS.edges()[abs(place - zero) - 1]
    return number(edge if place > zero else -edge)


def _label_steps(axes: Axes, steps: Sequence[int]) -> None:
    every = math.ceil(len(steps) / _TICKS)
    shown = range(0, len(steps), every)
    axes.set_xticks(shown, [f"{steps[place]:,}" for place in shown], fontsize="x-small")


def _cross(axes: Axes, training: Recorded, rows: list[Row], steps: list[int], phase: str) -> None:
    """Mark the position where NaN or Inf was seen first."""
    first = training.first_trouble
    if phase != "train" or first is None or first.step not in steps:
        return
    row = first.row if first.row in rows else Row(first.layer)  # strips of the weights
    if row in rows:
        axes.plot([steps.index(first.step)], [rows.index(row)], "x", color="black", mew=2)


# The page

ORDER = ("statistics", "weights", "dead", "ends", "bins", "maps")
"""The arrays of a step, the widest numbers first: each begins where its kind may."""


def facts_of(training: Recorded, phase: str = "train") -> dict[str, Any]:
    """Describe all steps: which there are, and which numbers they hold."""
    steps = training.history(phase).steps
    layouts = list(dict.fromkeys(step.layout for step in steps))
    model, _, words = training.title.partition(": ")
    first = training.first_trouble if phase == "train" else None
    return {
        "model": model,
        "words": words,
        "steps": [step.at for step in steps],
        "of": [layouts.index(step.layout) for step in steps],
        "layouts": [
            {
                "rows": [named(row) for row in layout.rows],
                "weighted": layout.weighted,
                "maps": layout.maps,
            }
            for layout in layouts
        ],
        "trouble": first and {"at": first.step, "row": named(first.row)},
        "statistics": STATISTICS,
        "norms": NORMS,
        "limits": LIMITS,
        "bins": {"count": BINS.size, "octaves": BINS.count, "least": BINS.first},
        "palettes": {
            "sequential": palette_text(SEQUENTIAL),
            "diverging": palette_text(DIVERGING),
        },
    }


def bytes_of(step: TrainingStep) -> bytes:
    """Concatenate a step's arrays as bytes."""
    arrays = step.arrays | {"dead": step.dead().astype(np.float32)}
    return b"".join(arrays[name].tobytes() for name in ORDER)


def write_page(training: Recorded, phase: str, max_bytes: float, title: str | None = None) -> str:
    """Write the page; steps are left out, as evenly as can be, until it fits.

    Raises
    ------
    ValueError
        No step has been recorded, or not even two fit.
    """
    recorded = training.recorded(phase)
    steps = [(step.at, base64.b64encode(bytes_of(step)).decode()) for step in recorded]
    still = html.data_url(small_png(training.figure(phase=phase)))
    facts = facts_of(training, phase)
    words, count = facts["words"], len(steps)

    def pages() -> Iterator[str]:
        program, css, kept = script("training"), style("steps"), steps
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
