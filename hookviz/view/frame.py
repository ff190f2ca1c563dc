"""Everything displayed of a view, in numbers and words, for widgets, figures and tests.

Predictions and the target are put in words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..draw.html import Box
from ..draw.mosaic import Mosaic
from .health import HealthSummary
from .layer import LayerWords
from .predictions import Prediction
from .settings import Settings


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """The words of any picture.

    Attributes
    ----------
    name, detail, note : str
        The name; a detail such as the size; a note. The last two may be empty.
    alt : str
        A whole sentence.
    box : tuple of float, or None
        The outlined part: the chosen position, or its receptive field.
    """

    name: str
    alt: str
    detail: str = ""
    note: str = ""
    box: Box | None = None

    @property
    def caption(self) -> str:
        """The whole caption, in one line."""
        return (
            ", ".join(filter(None, (self.name, self.detail))) + "; " * bool(self.note) + self.note
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel(Picture):
    """One map and its colours.

    Attributes
    ----------
    role : str
        ``"map"``, ``"gradient"`` or ``"heatmap"``.
    values : numpy.ndarray
        ``(H, W)``; H = 1 is a 1d map.
    cmap : str
    low, high : float
        The values with the first and the last colour.
    """

    role: str
    values: np.ndarray
    cmap: str
    low: float
    high: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ImagePanel(Picture):
    """A finished picture.

    Attributes
    ----------
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``.
    colours : tuple of (str, float, float), optional
        Colormap, and the values with its first and last colour, of the heatmap over it.
    """

    pixels: np.ndarray
    colours: tuple[str, float, float] | None = None


@dataclass(frozen=True, eq=False)
class ChannelGrid:
    """One page of channels as one picture, the chosen one outlined.

    Attributes
    ----------
    caption, alt : str
    mosaic : Mosaic
    cmap : str
    box : tuple of float
        Left, top, width and height of the outlined tile, as fractions of the whole.
    channels : numpy.ndarray
        The channel of each tile.
    place : int
        The index of the chosen channel's tile.
    page, pages : int
        The page, of 128 channels in their order; and the number of pages.
    """

    caption: str
    alt: str
    mosaic: Mosaic
    cmap: str
    box: Box
    channels: np.ndarray
    place: int
    page: int
    pages: int


@dataclass(frozen=True, eq=False)
class Frame:
    """Everything on the screen.

    Attributes
    ----------
    settings : Settings
        The explorer's settings at that moment.
    model : str
        The model's class.
    summary : list of str
        The title line beside it: number of layers, the input's shape, ...
    predictions : list of Prediction
        The sample's top classes: number, name and probability; empty without a classifier.
    target : str
        The name of the target.
    description : str
        The view in a sentence, as alt text.
    layers : list of str
        The layers that can be shown.
    counts : dict of str to int
        The numbers of channels, calls, samples and slices.
    channels : numpy.ndarray
        Channel numbers in the order of the slider and the mosaic.
    position : int
        The index of the channel in that order.
    input : ImagePanel or None
        The input as the network saw it; None if it is not a picture, signal or volume.
    panels : list of Panel
        The feature map, the gradient if any, and a heatmap without a picture below it.
    heatmap : numpy.ndarray or None
        The heatmap's values ``(h, w)``.
    overlay : ImagePanel or None
        The heatmap over the input.
    tiles : ChannelGrid
    verdict : HealthSummary
        The summary of the network's health.
    words : dict of str to LayerWords
        What each of ``layers`` is.
    classes : list of str
        The names of all classes, by number.
    dtype : str
        The dtype of the layer's tensor, and a note for complex numbers.
    run_names : tuple of str
        Names of the original run, the edited one and their difference; empty for one run.
    choices : dict of str to list of str
        The values of each menu.
    opened : str
        Why the explorer opened at the shown layer and channel; empty elsewhere.
    note : str
        Why a control failed; or empty.
    """

    settings: Settings
    model: str
    summary: list[str]
    predictions: list[Prediction]
    target: str
    description: str
    layers: list[str]
    counts: dict[str, int]
    channels: np.ndarray
    position: int
    input: ImagePanel | None
    panels: list[Panel]
    heatmap: np.ndarray | None
    overlay: ImagePanel | None
    tiles: ChannelGrid
    verdict: HealthSummary
    words: dict[str, LayerWords]
    classes: list[str]
    dtype: str
    run_names: tuple[str, ...]
    choices: dict[str, list[str]]
    opened: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        """The model and the layer."""
        return f"{self.model} · {self.settings.layer or '(model)'}"
