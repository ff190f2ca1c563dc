"""Figures that a notebook shows without pyplot, and small PNG of them."""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from PIL import Image


class ShownFigure(Figure):
    """A figure that a notebook displays without pyplot."""

    def _repr_png_(self) -> bytes:
        return small_png(self)


def small_png(figure: Figure) -> bytes:
    """Render a figure at screen size in few colours, so that notebooks stay small."""
    buffer, small = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72)
    Image.open(buffer).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
    return small.getvalue()


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


def within(text: str, letters: int) -> str:
    """Leave out the middle of a text that is too long.

    >>> within("features.block3.conv", 11)
    'featu….conv'
    """
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[: letters - 1 - half]}…{text[-half:]}"
