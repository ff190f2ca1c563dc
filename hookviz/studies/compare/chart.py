"""Figures of comparisons; pyplot is not involved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...draw.figures import ShownFigure, no_formula, within
from .difference import LayerDifference


def error_chart(rows: Sequence[LayerDifference]) -> ShownFigure:
    """Relative differences of activations and gradients along the layers, on a logarithmic scale.

    What is equal stands at the bottom; what cannot be compared, or is infinite, at the top.
    """
    columns = {
        "activations": [row.output.distance for row in rows],
        "gradients": [row.gradient.distance if row.gradient else math.nan for row in rows],
    }
    finite = [each for found in columns.values() for each in found if 0 < each < math.inf]
    low, high = (min(finite) / 10, max(finite) * 10) if finite else (1e-8, 1.0)
    figure = ShownFigure(figsize=(max(6.0, min(14.0, 0.09 * len(rows) + 3)), 4.2), layout="tight")
    axes = figure.add_subplot()
    for (name, found), mark in zip(columns.items(), ("o", "."), strict=True):
        heights = np.clip(found, low, high)
        axes.plot(heights, mark + "-", ms=3, lw=0.8, label=name)
    axes.plot([min(row.tolerance, high) for row in rows], ":", color="gray", label="of rounding")
    first = next((place for place, row in enumerate(rows) if row.differs()), None)
    if first is not None:
        axes.axvline(first, color="#d97706", lw=1)
        axes.set_title(f"first difference: {_label(rows[first].layer, 60)}", fontsize="medium")
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * 2)
    step = max(1, math.ceil(len(rows) / 40))
    axes.set_xticks(range(0, len(rows), step))
    names = [_label(row.layer) for row in rows[::step]]
    axes.set_xticklabels(names, rotation=90, fontsize="xx-small")
    axes.set_ylabel("‖a − b‖ / ‖a‖")
    axes.legend(fontsize="small")
    return figure


def similarity_chart(
    matrix: np.ndarray, layers: Sequence[str], layers_b: Sequence[str]
) -> ShownFigure:
    """CKA ``(layers, layers_b)`` of all pairs of layers as a heatmap; what has none is gray."""
    sides = [min(12.0, 2.5 + 0.16 * n) for n in (len(layers_b), len(layers))]
    figure = ShownFigure(figsize=(sides[0] + 1, sides[1]), layout="tight")
    axes = figure.add_subplot()
    axes.set_facecolor("gray")
    shown = axes.imshow(matrix, "viridis", vmin=0, vmax=1, origin="lower")
    for names, axis in ((layers_b, axes.xaxis), (layers, axes.yaxis)):
        step = max(1, math.ceil(len(names) / 60))
        axis.set_ticks(range(0, len(names), step))
        axis.set_ticklabels(list(map(_label, names[::step])), fontsize="xx-small")
    axes.tick_params("x", rotation=90)
    axes.set_xlabel("b")
    axes.set_ylabel("a")
    figure.colorbar(shown, ax=axes, label="linear CKA", shrink=0.8)
    return figure


def _label(layer: str, letters: int = 40) -> str:
    """Cut the name of a layer to the room in a figure."""
    return no_formula(within(layer or "(model)", letters))
