"""Figures that a notebook shows, and small PNG of them; pyplot is not involved."""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from PIL import Image


class ShownFigure(Figure):
    """A figure that a notebook shows, though pyplot, which would teach it to, is not there."""

    def _repr_png_(self) -> bytes:
        return small_png(self)


def small_png(figure: Figure) -> bytes:
    """A figure in few colours and at screen size: notebooks that hold it stay small."""
    buffer, small = io.BytesIO(), io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72)
    Image.open(buffer).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
    return small.getvalue()


def no_formula(text: str) -> str:
    """Names may hold dollar signs, which matplotlib would take for formulas."""
    return drawable(text).replace("$", r"\$")


def drawable(text: str) -> str:
    r"""Replace what names may hold and no font can draw: half characters, line breaks.

    >>> drawable("two\nlines")
    'two lines'
    """
    whole = text.encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in whole)


def within(text: str, letters: int) -> str:
    """Cut a text in its middle, where it is longer.

    >>> within("features.block3.conv", 11)
    'featu….conv'
    """
    half = (letters - 1) // 2
    return text if len(text) <= letters else f"{text[: letters - 1 - half]}…{text[-half:]}"
