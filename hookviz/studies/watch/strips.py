"""A training as pictures: strips of layers × steps; and as one HTML file."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, SymLogNorm
from matplotlib.figure import Figure

from ...draw import html
from ...draw.colours import DIVERGING, SEQUENTIAL, colormap, palette_text
from ...draw.document import document, fitting
from ...draw.figures import ShownFigure, name_ticks, no_formula, small_png
from ...tables import call_name
from ..diagnosis.checks.optimizer import TOO_FAR
from .log import NAMES, FirstNonFinite, History, TrainingStep
from .recorder import Row
from .summary import BINS, STATISTICS
from .weights import NORMS

_SHARES = ("zeros", "dead")
_SIGNED = ("mean", "min", "max")
_TICKS = 12
LIMITS = {"update_ratio": TOO_FAR}
"""Values above which a statistic is marked."""
SPAN = 1e3  # from the median to the first and to the last colour, at most


def draw_strips(
    title: str, history: History, first: FirstNonFinite | None, statistics: Sequence[str]
) -> Figure:
    """Draw one strip below the other; a cross marks the first NaN or Inf."""
    if not statistics:
        raise ValueError(f"There is no statistic to draw: give one or more of {', '.join(NAMES)}.")
    for name in statistics:
        if name not in NAMES:
            raise ValueError(f"Unknown statistic {name!r}: there are {', '.join(NAMES)}.")
    steps = [step.at for step in history.steps]
    tables = {name: history.table(name) for name in statistics}
    # A validation step has no strips of the weights: no optimizer changes them there.
    tables = {name: table for name, table in tables.items() if table[0]}
    if not tables:
        raise ValueError(f"No step of this phase has recorded {', '.join(statistics)}.")
    heights = [min(max(0.16 * len(rows), 1.2), 6.0) for rows, *_ in tables.values()]
    figure = ShownFigure(
        figsize=(10, sum(heights) + 0.8 * len(heights) + 0.4), layout="constrained"
    )
    figure.suptitle(no_formula(title.partition(";")[0]), fontsize="medium")
    axes = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights)[:, 0]
    for (name, (rows, values, wrong)), one in zip(tables.items(), axes, strict=True):
        _draw(one, name, values, wrong)
        one.set_title(f"{said(name)}, layers × steps", fontsize="small", loc="left")
        name_ticks(one.xaxis, [f"{number:,}" for number in steps], _TICKS)
        name_ticks(one.yaxis, [call_name(*row) for row in rows])
        if first is not None and first.step in steps:
            row = first.row if first.row in rows else Row(first.layer)  # strips of the weights
            if row in rows:
                place = [steps.index(first.step)], [rows.index(row)]
                one.plot(*place, "x", color="black", mew=2)
    axes[-1].set_xlabel("step")
    return figure


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
    # Wrong values must not set the scale.
    norm, name = colours_of(statistic, np.where(wrong, np.nan, values))
    colours = colormap(name)
    with np.errstate(all="ignore"):
        pixels = colours(norm(np.nan_to_num(values)))
    pixels[~np.isfinite(values)] = 0
    pixels[wrong] = colours.get_bad()
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    bar = axes.figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.01).ax
    bar.tick_params(labelsize="x-small")
    if statistic in LIMITS:
        (limit,) = np.clip([LIMITS[statistic]], norm.vmin, norm.vmax)
        bar.axhline(limit, color="#d97706", lw=2)


# The page

ORDER = ("statistics", "weights", "dead", "ends", "bins", "maps")
"""The arrays of a step, the widest numbers first: each begins where its kind may."""


def facts_of(title: str, history: History, first: FirstNonFinite | None) -> dict[str, Any]:
    """Describe all steps: which there are, and which numbers they hold."""
    layouts = list(dict.fromkeys(step.layout for step in history.steps))
    model, _, words = title.partition(": ")
    return {
        "model": model,
        "words": words,
        "steps": [step.at for step in history.steps],
        "of": [layouts.index(step.layout) for step in history.steps],
        "layouts": [
            {
                "rows": [call_name(*row) for row in layout.rows],
                "weighted": layout.weighted,
                "maps": layout.maps,
            }
            for layout in layouts
        ],
        "trouble": first and {"at": first.step, "row": call_name(*first.row)},
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


def write_page(
    facts: dict[str, Any],
    recorded: Sequence[TrainingStep],
    figure: Figure,
    title: str | None,
    max_bytes: float,
) -> str:
    """Write the page, leaving out evenly spaced steps until it fits.

    Raises
    ------
    ValueError
        Not even two steps fit.
    """
    steps = [(step.at, base64.b64encode(bytes_of(step)).decode()) for step in recorded]
    still = html.data_url(small_png(figure))
    words, count = facts["words"], len(steps)

    def pages() -> Iterator[str]:
        kept = steps
        while True:
            blocks = {"facts": facts, "steps": kept}
            alt = f"{facts['model']}: {facts['words']}"
            yield document(title or facts["model"], "training", blocks, alt, still)
            if len(kept) <= 2:
                return
            kept = kept[::2]
            facts["words"] = f"{words}; {len(kept)} of {count} recorded steps are in this page"

    least = ": a page of two steps takes {takes}; watch fewer layers, or none of a probe's"
    return fitting(pages(), max_bytes, least)
