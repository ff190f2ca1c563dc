"""One view of a layer, all that is drawn of it: what the widget and the figure share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .mosaic import Mosaic


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
class Frame:
    """What is to be seen.

    Attributes
    ----------
    title, alt : str
    picture : numpy.ndarray or None
        The input, uint8 ``(H, W, 3)``.
    picture_alt : str
    panels : list of Panel
        The feature map, and the gradient if there is one.
    tiles : Mosaic
    tiles_cmap, tiles_caption, tiles_alt : str
    position : int
        The tile that is outlined.
    readings : list of tuple
        Lines of a heading and of pairs of a name and a value.
    """

    title: str
    alt: str
    picture: np.ndarray | None
    picture_alt: str
    panels: list[Panel]
    tiles: Mosaic
    tiles_cmap: str
    tiles_caption: str
    tiles_alt: str
    position: int
    readings: list[tuple[str, list[tuple[str, str]]]]
