"""All that is to be seen of a view, in numbers and words: what widget, figure and tests read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..draw.html import Box, Readings
from ..draw.mosaic import Mosaic
from .layer import LayerWords
from .predictions import Prediction
from .ribbon import Cell, HealthSummary
from .settings import Settings


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """What is said of any picture.

    Attributes
    ----------
    name, detail, note : str
        What it is; its size, say; and what else must be known of it. The last two may be empty.
    alt : str
        In a whole sentence.
    box : tuple of float, or None
        What is outlined in it: the chosen place, or what that sees.
    """

    name: str
    alt: str
    detail: str = ""
    note: str = ""
    box: Box | None = None

    @property
    def caption(self) -> str:
        """All that stands at it, in one line."""
        return (
            ", ".join(filter(None, (self.name, self.detail))) + "; " * bool(self.note) + self.note
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel(Picture):
    """One map and how it is coloured.

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
    """A ready picture.

    Attributes
    ----------
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``.
    colours : tuple of (str, float, float), optional
        Colormap, and the values with its first and last colour, of what is laid over it.
    """

    pixels: np.ndarray
    colours: tuple[str, float, float] | None = None


@dataclass(frozen=True, eq=False)
class HeatmapStrip:
    """Heatmaps of all layers over the input, in rows.

    Attributes
    ----------
    caption, alt : str
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``: pictures of one size, ``columns`` in a row; what is left of the last
        row is black.
    names : list of str
        The layer of each picture.
    columns : int
    place : int or None
        Which of them is the shown layer's.
    """

    caption: str
    alt: str
    pixels: np.ndarray
    names: list[str]
    columns: int
    place: int | None


@dataclass(frozen=True, eq=False)
class ChannelGrid:
    """As many channels as have room, as one picture, the chosen one outlined.

    Attributes
    ----------
    caption, alt : str
    mosaic : Mosaic
    cmap : str
    box : tuple of float
        Left, top, width and height of the outlined tile, as shares of the whole.
    channels : numpy.ndarray
        The channel of each tile.
    place : int
        Which tile is the chosen channel's.
    page, pages : int
        Which channels these are, in their order, 128 a page; and of how many pages.
    drops : numpy.ndarray or None
        What the target's score loses without each of them, where that is known.
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
    drops: np.ndarray | None = None


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
    strip : Strip or None
        All layers' heatmaps over the input.
    tiles : Tiles
    readings : list of (str, list of (str, str))
        Exact numbers: lines of a heading and of pairs of a name and a value.
    ribbon : list of Cell
        Each of ``layers``: how large its values are, and what is wrong with them.
    verdict : Verdict
        What the ribbon says of the network.
    words : dict of str to LayerWords
        What each of ``layers`` is.
    classes : list of str
        All that the target may be, by number.
    dtype : str
        Of the layer's tensor, and what is shown of complex numbers.
    edits : list of str
        What is changed in this run, in words.
    versions : tuple of str
        What the original run, the edited one and their difference are called; empty for one run.
    factor : float
        By what the shown channel is multiplied.
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
    input: ImagePanel | None
    panels: list[Panel]
    heatmap: np.ndarray | None
    overlay: ImagePanel | None
    strip: HeatmapStrip | None
    tiles: ChannelGrid
    readings: Readings
    ribbon: list[Cell]
    verdict: HealthSummary
    words: dict[str, LayerWords]
    classes: list[str]
    dtype: str
    edits: list[str]
    versions: tuple[str, ...]
    factor: float
    note: str = ""

    @property
    def title(self) -> str:
        """The model and the layer."""
        return f"{self.model} · {self.settings.layer or '(model)'}"
