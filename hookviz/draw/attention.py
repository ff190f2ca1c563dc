"""The heads of attention as a figure; pyplot is not involved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .shown import ShownFigure, no_formula, within

_MOST = 16  # heads in a row


def draw_heads(rows: Mapping[str, np.ndarray]) -> ShownFigure:
    """Draw a row of pictures ``(heads, rows, columns)`` for each name, each from 0 to its peak."""
    columns = min(_MOST, max((len(each) for each in rows.values()), default=1))
    size = (max(4.0, 1.1 * columns), max(1.5, 1.35 * len(rows) + 0.3))
    figure = ShownFigure(figsize=size, layout="constrained")
    grid = figure.subplots(max(len(rows), 1), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for line, (name, heads) in zip(grid, rows.items(), strict=False):
        left = f"; {len(heads) - columns} more" if len(heads) > columns else ""
        line[0].set_title(
            no_formula(within(name or "(model)", 60)) + left, fontsize="x-small", loc="left"
        )
        for head, (axes, values) in enumerate(zip(line, heads, strict=False)):
            axes.imshow(values, "viridis", vmin=0, vmax=float(np.nanmax(values)) or 1.0)
            axes.text(0, -0.02, str(head), transform=axes.transAxes, fontsize="xx-small", va="top")
    return figure
