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
    """One map and how it is coloured."""

    caption: str  #: short
    alt: str  #: in a whole sentence
    values: np.ndarray  #: ``(H, W)``; H = 1 is a 1d map
    cmap: str  #: the colormap
    low: float  #: the value with the first colour
    high: float  #: the value with the last colour


@dataclass(frozen=True, eq=False)
class Sheet:
    """A ready picture with one part of it outlined, or none."""

    caption: str  #: short
    alt: str  #: in a whole sentence
    pixels: np.ndarray  #: uint8 ``(H, W, 3)``
    #: Left, top, width and height of the outlined part, as shares of the whole.
    box: Box | None = None


@dataclass(frozen=True, eq=False)
class Tiles:
    """All channels as one picture, the chosen one outlined."""

    caption: str  #: short
    alt: str  #: in a whole sentence
    mosaic: Mosaic  #: its ``levels``, uint8 ``(height, width)``, are places in the colormap
    cmap: str  #: the colormap
    box: Box  #: left, top, width and height of the outlined tile, as shares of the whole


@dataclass(frozen=True, eq=False)
class Frame:
    """What is on the screen."""

    settings: Settings  #: the explorer's traits at that moment
    model: str  #: the model's class
    facts: list[str]  #: what the title line says beside it: how many layers, the input's shape, ...
    #: The sample's top classes: number, name and probability; empty if it is no classifier.
    predictions: list[Prediction]
    target: str  #: what the gradient is of
    description: str  #: the view in a sentence, for those who do not see it
    layers: list[str]  #: those that can be shown
    counts: dict[str, int]  #: how many channels, calls, samples and slices there are to choose from
    channels: np.ndarray  #: channel numbers in the order in which slider and mosaic have them
    position: int  #: where the channel stands there
    input: Sheet | None  #: as the network saw it; None if it is no picture, signal or volume
    panels: list[Panel]  #: feature map, gradient if there is one, and a heatmap that stands alone
    heatmap: np.ndarray | None  #: the heatmap's values ``(h, w)``, wherever it is drawn
    overlay: Sheet | None  #: the heatmap over the input
    strip: Sheet | None  #: all layers' heatmaps over the input
    tiles: Tiles  #: the mosaic
    readings: Readings  #: exact numbers: lines of a heading and of pairs of a name and a value
    note: str = ""  #: what a control could not do, and why

    @property
    def title(self) -> str:
        """The model and the layer."""
        return f"{self.model} · {self.settings.layer or '(model)'}"
