"""Everything displayed of a view, in numbers and words, for widgets, figures and tests.

Predictions and the target are put in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from ..draw.html import Box, Readings
from ..draw.mosaic import Mosaic
from ..run.output import Output
from ..run.target import Target, probabilities
from ..tables import number as in_words
from .answer import DetectedBox
from .layer import Cell, HealthSummary, LayerWords
from .settings import Settings

TOP = 5


class Prediction(NamedTuple):
    """A class or, for models that are not classifiers, an output."""

    number: int
    name: str
    value: float  # a probability, 0 to 1, or the model's own score
    words: str  # the value as text
    before: float | None = None  # the value without the edits
    change: str = ""  # the change by the edits, as text


def ranked(
    logits: Tensor | None,
    sample: int,
    class_names: Sequence[str],
    classes: bool = True,
    before: Tensor | None = None,
) -> list[Prediction]:
    """Return a sample's five largest outputs; empty without a classifier, or with NaN.

    Outputs for ``classes`` become probabilities by the softmax, which is meaningless for other
    outputs. A single output has its sigmoid beside the score. With logits of ``before``, outputs
    that were large then are ranked too.

    >>> import torch
    >>> [each.words for each in ranked(torch.tensor([[0.25, 0.75]]), 0, ["ball"])]
    ['75.0 %', '25.0 %']
    >>> ranked(torch.tensor([[0.0]]), 0, [])[0].words
    'score 0, sigmoid 50.0 %'
    """
    if logits is None:
        return []
    row = logits[min(sample, len(logits) - 1)].detach().float()
    if row.isnan().any():  # ranking is undefined with NaN
        return []
    softmax = classes and len(row) > 1
    scores, row = row, probabilities(row[None])[0] if softmax else row
    best, was = row, None
    scores_before = scores
    known = before is not None and before.shape == logits.shape and not before.isnan().any()
    if before is not None and known:
        scores_before = before[min(sample, len(before) - 1)].detach().float()
        was = probabilities(scores_before[None])[0] if softmax else scores_before
        best = row.maximum(was)
    chosen = best.topk(min(TOP, len(row))).indices
    found = []
    for number in chosen[row[chosen].argsort(descending=True, stable=True)].tolist():
        value = float(row[number])
        words = f"{100 * value:.1f} %" if softmax else f"score {in_words(value)}"
        if len(row) == 1:
            words += f", sigmoid {100 * float(row.sigmoid()):.1f} %"
        name = class_name(number, class_names) if classes else f"output {number}"
        earlier, change = None, ""
        if was is not None:
            earlier = float(was[number])
            change = signed(100 * (value - earlier), ".1f") if softmax else signed(value - earlier)
            if softmax:
                change += (
                    f" pp · logit {signed(float(scores[number] - scores_before[number]), '.2f')}"
                )
        found.append(Prediction(number, name, value, words, earlier, change))
    return found


def answer_moved(before: Sequence[Prediction], now: Sequence[Prediction]) -> str:
    """Return in words that another picture has another top class; empty if it has the same.

    >>> cat, dog = (Prediction(n, name, 0.9, "90.0 %") for n, name in enumerate(("cat", "dog")))
    >>> answer_moved([cat], [dog]), answer_moved([cat], [cat])
    ('The top class is dog now; before it was cat.', '')
    """
    if not before or not now or before[0].number == now[0].number:
        return ""
    return f"The top class is {now[0].name} now; before it was {before[0].name}."


def signed(value: float, how: str = ".3g") -> str:
    """Format a change, with its sign.

    >>> signed(-0.25), signed(3.04, ".1f")
    ('−0.25', '+3.0')
    """
    return f"{value:+{how}}".replace("-", "−", 1)


def are_classes(model: nn.Module, logits: Tensor | None, class_names: Sequence[str]) -> bool:
    """Return whether a model's outputs are known to be classes, by names or their number."""
    if logits is None or class_names:
        return bool(class_names)
    holders = (model, getattr(model, "config", None))
    said = [getattr(h, n, None) for h in holders for n in ("num_classes", "num_labels")]
    return logits.shape[1] in said


def class_labels(count: int, class_names: Sequence[str]) -> list[str]:
    """Return a distinct name for each class, for a menu.

    Examples
    --------
    >>> class_labels(4, ["crane", "moon", "crane"])
    ['crane (0)', 'moon', 'crane (2)', 'class 3']
    """
    names = [class_name(index, class_names) for index in range(count)]
    often = Counter(names)
    return [f"{name} ({i})" if often[name] > 1 else name for i, name in enumerate(names)]


def class_name(index: int, class_names: Sequence[str]) -> str:
    return class_names[index] if index < len(class_names) else f"class {index}"


def target_name(
    target: Target, sample: int, class_names: Sequence[str], predictions: list[Prediction]
) -> str:
    """Return the name of a sample's target.

    >>> target_name(["ball", (1, 0)], 1, ["ball", "moon"], [])
    'moon against ball'
    """
    if isinstance(target, list):
        target = target[min(sample, len(target) - 1)]
    if isinstance(target, Output):
        return str(target)
    if callable(target):
        name = getattr(target, "__name__", "")
        return name if name.isidentifier() else "your function"  # "<lambda>" says nothing
    if target is None:
        return predictions[0][1] if predictions else "nothing"
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (c if isinstance(c, str) else class_name(c, class_names) for c in classes)
    return f"{first} against {' and '.join(others)}" if others else first


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
        ``"map"``, ``"gradient"``, ``"heatmap"`` or ``"output"``.
    values : numpy.ndarray
        ``(H, W)``; H = 1 is a 1d map.
    cmap : str
    low, high : float
        The values with the first and the last colour.
    tokens : tuple of list of str
        The words of the rows and of the columns of a matrix of attention; empty if unknown.
    """

    role: str
    values: np.ndarray
    cmap: str
    low: float
    high: float
    tokens: tuple[list[str], list[str]] = ([], [])


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
class HeatmapStrip:
    """Heatmaps of all layers over the input, in rows.

    Attributes
    ----------
    caption, alt : str
    pixels : numpy.ndarray
        uint8 ``(H, W, 3)``: pictures of one size, ``columns`` in a row; the rest of the last row
        is black.
    names : list of str
        The layer of each picture.
    columns : int
    place : int or None
        The index of the shown layer.
    """

    caption: str
    alt: str
    pixels: np.ndarray
    names: list[str]
    columns: int
    place: int | None


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
    ablation_scores : numpy.ndarray or None
        The drop of the target's score without each of them, if known.
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
    ablation_scores: np.ndarray | None = None


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
    strip : HeatmapStrip or None
        All layers' heatmaps over the input.
    tiles : ChannelGrid
    readings : list of (str, list of (str, str))
        Exact numbers: lines of a heading and of pairs of a name and a value.
    layer_overview : list of Cell
        Each of ``layers``: how large its values are, and what is wrong with them.
    verdict : HealthSummary
        The summary of the network's health.
    words : dict of str to LayerWords
        What each of ``layers`` is.
    classes : list of str
        The names of all classes, by number.
    dtype : str
        The dtype of the layer's tensor, and a note for complex numbers.
    edits : list of str
        The edits of this run, in words.
    run_names : tuple of str
        Names of the original run, the edited one and their difference; empty for one run.
    factor : float
        The factor that an edit multiplies the shown channel by.
    choices : dict of str to list of str
        The values of each menu.
    note : str
        Why a control failed; or empty.
    outputs : list of Panel or ImagePanel
        The map of the output that the target is in, or else the first; empty of a classifier.
    boxes : list of DetectedBox
        Those that are drawn over the input.
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
    strip: HeatmapStrip | None
    tiles: ChannelGrid
    readings: Readings
    layer_overview: list[Cell]
    verdict: HealthSummary
    words: dict[str, LayerWords]
    classes: list[str]
    dtype: str
    edits: list[str]
    run_names: tuple[str, ...]
    factor: float
    choices: dict[str, list[str]]
    note: str = ""
    outputs: list[Panel | ImagePanel] = field(default_factory=list)
    boxes: list[DetectedBox] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The model and the layer."""
        return f"{self.model} · {self.settings.layer or '(model)'}"
