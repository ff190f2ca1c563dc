"""Figures that a notebook shows without pyplot, small PNG of them, heads and curves."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from ..tables import cut


class ShownFigure(Figure):
    """A figure that a notebook displays without pyplot."""

    def _repr_png_(self) -> bytes:
        return small_png(self)


def small_png(figure: Figure) -> bytes:
    """Render a figure at screen size in few colours, so that notebooks stay small."""
    small = io.BytesIO()
    drawn(figure, 72).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
    return small.getvalue()


def quick_png(picture: Image.Image, compress_level: int) -> bytes:
    """Encode a picture in few colours, faster than `small_png` and a little larger."""
    few = picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    colours = np.reshape(few.getpalette() or [], (-1, 3))
    # It rounds white off to a gray that shows on a white page.
    colours[colours.min(1) > 247] = 255
    few.putpalette(colours.ravel().tolist())
    content = io.BytesIO()
    few.save(content, "PNG", compress_level=compress_level)
    return content.getvalue()


def drawn(figure: Figure, dpi: float) -> Image.Image:
    """Draw a figure once; with a layout ``savefig`` draws it twice, for the same pixels."""
    own_dpi, own_canvas = figure.dpi, figure.canvas
    canvas = FigureCanvasAgg(figure)
    try:
        figure.dpi = dpi
        canvas.draw()
        return Image.fromarray(np.array(canvas.buffer_rgba()))
    finally:
        figure.dpi = own_dpi
        figure.set_canvas(own_canvas)


def no_formula(text: str) -> str:
    """Escape dollar signs in names, which matplotlib would parse as formulas."""
    return drawable(text).replace("$", r"\$")


def drawable(text: str) -> str:
    r"""Replace characters in names that no font can draw: half characters, line breaks.

    >>> drawable("two\nlines")
    'two lines'
    """
    whole = text.encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in whole)


def layer_label(layer: str, letters: int = 40) -> str:
    """Cut the name of a layer to the room in a figure."""
    return no_formula(cut(layer or "(model)", letters))


def name_ticks(axis: Axis, names: Sequence[str], most: int = 40) -> None:
    """Write names at an axis whose numbers are their indices; of many, every second, third, …"""
    step = max(1, math.ceil(len(names) / most))
    shown = [*map(layer_label, names[::step])]
    axis.set_ticks(range(0, len(names), step), shown, fontsize="xx-small")


_MOST = 16  # heads in a row


def draw_heads(rows: Mapping[str, np.ndarray]) -> ShownFigure:
    """Draw a row of pictures ``(heads, rows, columns)`` for each name, each from 0 to its peak."""
    columns = min(_MOST, max(len(each) for each in rows.values()))
    size = (max(4.0, 1.1 * columns), max(1.5, 1.35 * len(rows) + 0.3))
    figure = ShownFigure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for line, (name, heads) in zip(grid, rows.items(), strict=True):
        left = f"; {len(heads) - columns} more" if len(heads) > columns else ""
        line[0].set_title(layer_label(name, 60) + left, fontsize="x-small", loc="left")
        for head, (axes, values) in enumerate(zip(line, heads, strict=False)):
            axes.imshow(values, "viridis", vmin=0, vmax=float(np.nanmax(values)) or 1.0)
            axes.text(0, -0.02, str(head), transform=axes.transAxes, fontsize="xx-small", va="top")
    return figure


def draw_curves(curves: Mapping[str, Sequence[float]], below: str, title: str) -> ShownFigure:
    """Draw curves over the steps 0, 1, 2, …, with a legend."""
    figure = ShownFigure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(len(values)), values, marker=".", label=name)
    axes.set_ylim(min(0, *(min(values) for values in curves.values())) - 0.05, 1.05)
    axes.set_xlabel(below)
    axes.set_title(no_formula(title), fontsize="small", loc="left")
    axes.legend(fontsize="small")
    return figure
