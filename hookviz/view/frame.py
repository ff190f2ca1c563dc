"""All that is to be seen of a view, in numbers and words: what widget, figure and tests read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..render.mosaic import Mosaic
from .predictions import Prediction
from .settings import Settings

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a picture, as shares of the whole."""

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
    caption, alt : str
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``.
    box : tuple of float, optional
        Left, top, width and height of the outlined part, as shares of the whole.
    """

    caption: str
    alt: str
    pixels: np.ndarray
    box: Box | None = None


@dataclass(frozen=True, eq=False)
class Tiles:
    """All channels as one picture, the chosen one outlined.

    Attributes
    ----------
    caption, alt : str
    mosaic : Mosaic
    cmap : str
    box : tuple of float
        Left, top, width and height of the outlined tile, as shares of the whole.
    """

    caption: str
    alt: str
    mosaic: Mosaic
    cmap: str
    box: Box


@dataclass(frozen=True, eq=False)
class Frame:
    """What is on the screen.

    Attributes
    ----------
    settings : Settings
        The explorer's traits at that moment.
    model : str
        The model's class.
    facts : list of str
        What the title line says beside it: how many layers, the input's shape, ...
    predictions : list of Prediction
        The sample's top classes: number, name and probability; empty if it is no classifier.
    target : str
        What the gradient is of.
    description : str
        The view in a sentence, for those who do not see it.
    layers : list of str
        Those that can be shown.
    counts : dict of str to int
        How many channels, calls, samples and slices there are to choose from.
    channels : numpy.ndarray
        Channel numbers in the order in which the slider and the mosaic have them.
    position : int
        Where the channel stands there.
    input : Sheet or None
        The input as the network saw it; None if it is no picture, signal or volume.
    panels : list of Panel
        The feature map, the gradient if there is one, and a heatmap that stands alone.
    heatmap : numpy.ndarray or None
        The heatmap's values ``(h, w)``, wherever it is drawn.
    overlay : Sheet or None
        The heatmap over the input.
    strip : Sheet or None
        All layers' heatmaps over the input.
    tiles : Tiles
    readings : list of (str, list of (str, str))
        Exact numbers: lines of a heading and of pairs of a name and a value.
    note : str
        What a control could not do, and why.
    """

    settings: Settings
    model: str
    facts: list[str]
    predictions: list[Prediction]
    target: str
    description: str
    layers: list[str]
    counts: dict[str, int]
    channels: np.ndarray
    position: int
    input: Sheet | None
    panels: list[Panel]
    heatmap: np.ndarray | None
    overlay: Sheet | None
    strip: Sheet | None
    tiles: Tiles
    readings: Readings
    note: str = ""

    @property
    def title(self) -> str:
        """The model and the layer."""
        return f"{self.model} · {self.settings.layer or '(model)'}"
