"""One view of a layer, all that is drawn of it: what the widget and the figure share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..render.mosaic import Mosaic

Readings = list[tuple[str, list[tuple[str, str]]]]
"""Lines of a heading and of pairs of a name and a value."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One map and how it is coloured.

    Attributes
    ----------
    caption, alt : str
        Short, and in a whole sentence.
    values : numpy.ndarray
        ``(H, W)``; H = 1 is a 1d map.
    cmap : str
    low, high : float
        The values with the first and the last colour.
    """

    caption: str
    alt: str
    values: np.ndarray
    cmap: str
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Sheet:
    """A ready picture with one part of it outlined, or none.

    Attributes
    ----------
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``.
    box : tuple of float, optional
        Left, top, width and height of the outlined part, as shares of the whole.
    """

    caption: str
    alt: str
    pixels: np.ndarray
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """What is to be seen.

    Attributes
    ----------
    title : str
    picture : numpy.ndarray or None
        The input, uint8 ``(H, W, 3)``.
    picture_alt, picture_caption : str
    panels : list of Panel
        The feature map, the gradient if there is one, and a heatmap that stands alone.
    heat : Sheet or None
        The heatmap over the input.
    strip : Sheet or None
        All layers' heatmaps over the input.
    tiles : Mosaic
    tiles_cmap, tiles_caption, tiles_alt : str
    position : int
        The tile that is outlined.
    readings : Readings
    """

    title: str
    picture: np.ndarray | None
    picture_alt: str
    picture_caption: str
    panels: list[Panel]
    heat: Sheet | None
    strip: Sheet | None
    tiles: Mosaic
    tiles_cmap: str
    tiles_caption: str
    tiles_alt: str
    position: int
    readings: Readings
