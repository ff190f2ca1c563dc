"""A run at some settings: the layer's maps, their order and colours, and what they belong to."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ..attribution.perturbation import ablation_scores
from ..draw.arrays import to_numpy
from ..draw.colours import DIVERGING, FAINT, SEQUENTIAL, colour_ranges, faint, robust_end
from ..draw.overlay import picture_of
from ..hooking.records import Call, CapturedTensor, LayerRecord
from ..hooking.select import Layers
from ..hooking.tables import number
from ..run.progress import Progress
from ..run.session import Run, Session
from ..run.target import Target
from ..studies.receptive_field.field import ReceptiveField, receptive_fields
from .frame import Panel
from .layer import (
    ABLATION,
    ChannelStatistics,
    LayerView,
    LayerWords,
    channel_order,
    layer_view,
    layer_words,
    showable,
)
from .memo import Memo
from .predictions import Prediction, are_classes, class_labels, ranked, target_name
from .ribbon import Cell, HealthSummary, ribbon, values_of, verdict
from .settings import INDICES, Settings, heatmap_names


def run_session(
    session: Session, target: Target, layers: Layers, max_bytes: int | None = None
) -> Run:
    """One forward and one backward, with a progress bar if they take long."""
    with Progress() as bar:
        return session.run(target, layers=layers, max_bytes=max_bytes, on_progress=bar.update)


class View:
    """A session's run at some settings. Cheap to make anew: what is the same is remembered.

    In `memo` is what follows from the run, in `input_memo` what follows from the inputs alone.
    `original` is a view of the run without the session's edits, if it has any.
    """

    which = ""  # of the two runs, where there are two: what is said beside pictures
    versions: tuple[str, str] = ("original", "edited")  # what the two are called
    opened: str | None = None  # the layer at which it opened by itself

    def __init__(
        self,
        at: Settings,
        session: Session,
        run: Run,
        input_memo: Memo | None = None,
        original: View | None = None,
    ) -> None:
        self.at, self.session, self.run, self.cache = at, session, run, run.cache
        self.memo, self.input_memo, self.original = Memo(), input_memo or Memo(), original

    def placed(self, at: Settings) -> Self:
        """The same run at these settings."""
        twin = copy.copy(self)
        twin.at = at
        return twin

    def moved(self, **changes: Any) -> Self:
        """The same run at other settings."""
        return self.placed(replace(self.at, **changes))

    def of_run(self, run: Run) -> Self:
        """Another run at the same settings."""
        twin = copy.copy(self)
        twin.run, twin.cache, twin.memo = run, run.cache, Memo()
        return twin

    def fitted(self) -> Self:
        """In range: another layer may have fewer calls, samples, slices or channels.

        Grad-CAM takes the place of a heatmap that the user has taken out of ``HEATMAPS``.
        """
        call = min(self.at.call, len(self.cache[self.at.layer].calls) - 1)
        heatmap = self.at.heatmap if self.at.heatmap in heatmap_names() else "gradcam"
        # Another layer's channels would be hundreds of runs, for a step that only draws.
        unknown = self.at.order == ABLATION and self.drops is None
        order = "index" if unknown else self.at.order
        view = self.moved(call=call, heatmap=heatmap, order=order)
        ends = {name: min(getattr(view.at, name), n - 1) for name, n in view.counts().items()}
        return view.moved(**ends)

    # The layer

    @property
    def layers(self) -> list[str]:
        """The layers that can be shown as maps."""
        return self.memo.once("layers", None, lambda: showable(self.cache))

    @property
    def layer_name(self) -> str:
        return self.at.layer or "(model)"

    @property
    def record(self) -> LayerRecord:
        """The shown layer; of one that went over the budget, from a run for it alone."""
        return self.memo.once("record", self.at.layer, self._record)

    def _record(self) -> LayerRecord:
        record = self.cache[self.at.layer]
        if record.name not in self.memo.once("dropped", None, lambda: set(self.cache.over_budget)):
            return record
        return run_session(self.session, self.at.target, record.module).cache[record.name]

    @property
    def call(self) -> Call:
        """The shown call."""
        return self.record.calls[self.at.call]

    @property
    def layer(self) -> LayerView:
        """Maps and gradients of the layer, call, sample and depth."""
        at = self.at

        def make() -> LayerView:
            call, module = self.call, self.record.module
            tensors = call.activation, call.gradient
            return layer_view(*tensors, module, at.sample, at.depth, call.grid)

        return self.memo.once("layer", (at.layer, at.call, at.sample, at.depth), make)

    @property
    def channels(self) -> np.ndarray:
        """Channel numbers, in the order in which the slider and the mosaic have them."""
        layer, order, drops = self.layer, self.at.order, self.drops
        make = lambda: channel_order(layer, order, drops)  # noqa: E731
        return self.memo.once("order", (layer, order, drops is None), make)

    def ablate(self) -> None:
        """Find `drops`: the model runs once for every channel."""
        at = self.at
        make = lambda: to_numpy(ablation_scores(self.session, at.layer, at.target))  # noqa: E731
        self.memo.once("drops", at.layer, make)

    @property
    def drops(self) -> np.ndarray | None:
        """What the target's score loses without each channel, ``(C,)``; None until `ablate`."""
        every = self.memo.known("drops", self.at.layer)
        return None if every is None else every[min(self.input_sample, len(every) - 1)]

    @property
    def position(self) -> int:
        """Where the channel stands in `channels`."""
        return int(np.flatnonzero(self.channels == self.at.channel)[0])

    def counts(self) -> dict[str, int]:
        """How many there are to choose from, for each index."""
        layer, calls = self.layer, len(self.record.calls)
        found = (len(layer.maps), calls, layer.samples, layer.depths)
        return dict(zip(INDICES, found, strict=True))

    @property
    def magnitudes(self) -> str:
        """What is said beside pictures and numbers of complex tensors."""
        return ", absolute values" if self.call.outputs[0].dtype.is_complex else ""

    # What went in, and what came out

    @property
    def input_sample(self) -> int:
        """Which sample of the input the shown one of the layer belongs to.

        A layer may cut each sample into as many windows, or boxes: then they come in order.
        """
        main = self.session.inputs.main
        rows, batch = self.layer.samples, 1 if main is None else len(main)
        return self.at.sample * batch // rows if rows % batch == 0 else 0

    @property
    def depth_share(self) -> float:
        """How deep the slice lies, 0 to 1: what has another number of slices is cut there, too."""
        return self.at.depth / max(self.layer.depths - 1, 1)

    @property
    def picture(self) -> np.ndarray | None:
        """The input of the shown sample and, for a volume, at the same share of its depth."""
        return self.picture_and_words[0]

    @property
    def picture_and_words(self) -> tuple[np.ndarray | None, str]:
        """The picture, and what was undone for it."""
        key = (self.input_sample, self.depth_share)
        if not any(each.of_input for each in self.session.edits):
            inputs = self.session.inputs
            return self.input_memo.once("picture", key, lambda: picture_of(inputs, *key))
        edited = self.memo.once("inputs", None, lambda: self.session.edited_inputs)
        return self.memo.once("picture", key, lambda: picture_of(edited, *key))

    @property
    def predictions(self) -> list[Prediction]:
        """The sample's top classes."""
        sample, names, logits = self.input_sample, self.session.class_names, self.run.logits
        classes = are_classes(self.session.model, logits, names)
        before = None if self.original is None else self.original.run.logits
        make = lambda: ranked(logits, sample, names, classes, before)  # noqa: E731
        return self.memo.once("ranked", sample, make)

    @property
    def target_name(self) -> str:
        """What the gradient is of."""
        names, logits = self.session.class_names, self.run.logits
        if self.at.target is None and logits is not None and not self.predictions:
            return "scores that are NaN" if logits.numel() else "nothing"
        return target_name(self.at.target, self.input_sample, names, self.predictions)

    @property
    def classes(self) -> list[str]:
        """What all classes are called; none of no classifier."""
        logits, names = self.run.logits, self.session.class_names
        count = 0 if logits is None else logits.shape[1]
        return self.memo.once("classes", None, lambda: class_labels(count, names))

    @property
    def ribbon(self) -> list[Cell]:
        """One cell a layer."""
        return self.memo.once("ribbon", None, lambda: ribbon(self.cache, self.layers))

    @property
    def verdict(self) -> HealthSummary:
        """What the ribbon says of the network."""
        return self.memo.once("verdict", None, lambda: verdict(self.ribbon))

    @property
    def words(self) -> dict[str, LayerWords]:
        """What each layer is."""
        make = lambda: {name: layer_words(self.cache[name]) for name in self.layers}  # noqa: E731
        return self.memo.once("words", None, make)

    def describe(self) -> str:
        """This view in words: the alt text of pictures made of it."""
        maps, kind = self.layer.maps, type(self.record.module).__name__
        return (
            f"channel {self.at.channel} of {len(maps)} of layer {self.layer_name} "
            f"({kind}), a map of {map_size(maps)}, in {self.session.name}"
        )


def elsewhere(view: View, **changes: Any) -> View:
    """The same run at other settings; what was made for the shown layer is not thrown away."""
    return view.of_run(view.run).moved(**changes).fitted()


def place_of(view: View) -> tuple[int, int]:
    """Row and column of the chosen place; of the one in the middle if none is."""
    down, right = view.at.place or (0.5, 0.5)
    height, width = view.layer.maps.shape[-2:]
    return min(int(down * height), height - 1), min(int(right * width), width - 1)


def field_of(view: View) -> ReceptiveField | str:
    """What the layer's places see of the input, or why there is none: one run for all layers."""
    session, call = view.session, view.at.call

    def make() -> dict[str, ReceptiveField] | str:
        modules = [view.cache[name].module for name in view.layers]
        try:
            return receptive_fields(session.given, session.inputs, modules, call=call)
        except (ValueError, TypeError, RuntimeError) as error:
            return str(error)

    every = view.input_memo.once("fields", call, make)
    return every if isinstance(every, str) else every.get(view.at.layer, "it has no places")


class ShownMaps:
    """The feature map of a view and its gradient, and their colours."""

    def __init__(self, view: View) -> None:
        self.view = view

    def colours(self) -> tuple[str, np.ndarray, np.ndarray]:
        """Colormap, and low and high for each channel."""
        diverging = self.view.at.cmap == "auto" and self.view.layer.signed
        name = (
            (DIVERGING if diverging else SEQUENTIAL)
            if self.view.at.cmap == "auto"
            else self.view.at.cmap
        )
        return name, *self._ranges(
            False, self.view.layer.maps, self.view.layer.statistics, diverging
        )

    def _ranges(
        self, slopes: bool, maps: np.ndarray, statistics: ChannelStatistics, diverging: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        normalize, ends = self.view.at.normalize, (statistics.min, statistics.max)

        def make() -> tuple[np.ndarray, np.ndarray]:
            whole = self.network_range(slopes) if normalize == "network" else (0.0, 0.0)
            return colour_ranges(maps, *ends, normalize, diverging=diverging, network=whole)

        name = "gradient colours" if slopes else "colours"
        return self.view.memo.once(name, (self.view.layer, normalize, diverging), make)

    def network_range(self, slopes: bool) -> tuple[float, float]:
        """Least and largest finite value of all layers' activations or gradients."""

        def make() -> tuple[float, float]:
            every = [self.view.cache[name].last.outputs[0] for name in self.view.layers]
            ends = [each for tensor in every if (each := _ends(tensor, slopes)) is not None]
            return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else (0.0, 0.0)

        return self.view.memo.once("network gradients" if slopes else "network", None, make)

    def panels(self) -> list[Panel]:
        """The feature map and, where one arrived, its gradient."""
        layer, here = self.view.layer, self.view.at.channel
        cmap, low, high = self.colours()
        words = self.view.describe()
        values = layer.maps[here]
        shown = [self._panel(f"channel {here}", words, "map", values, cmap, low, high)]
        slopes = layer.gradient_statistics
        if layer.gradients is not None and slopes is not None:
            low, high = self._ranges(True, layer.gradients, slopes, True)
            name, values = f"gradient of {self.view.target_name}", layer.gradients[here]
            alt = f"{name}: {words}"
            shown.append(self._panel(name, alt, "gradient", values, DIVERGING, low, high))
        return shown

    def _panel(
        self,
        name: str,
        alt: str,
        role: str,
        values: np.ndarray,
        cmap: str,
        lows: np.ndarray,
        highs: np.ndarray,
    ) -> Panel:
        low, high = (ends[self.view.at.channel] for ends in (lows, highs))
        slopes, note = role == "gradient", ""
        if slopes and self.view.at.normalize == "channel":
            end = robust_end(values, float(high))
            if end is not None:
                note = f"colours end at {number(end)}, the largest is {number(float(high))}"
                low, high = -end, end
        note = (
            note
            or (slopes and FLAT[flatness(values[None])[0]])
            or self._stretched(slopes, low, high)
        )
        return Panel(
            name=name,
            detail=f"{map_size(values)}{self.view.magnitudes}{self.view.which}",
            alt=alt,
            role=role,
            values=values,
            cmap=cmap,
            low=low,
            high=high,
            note=note,
        )

    def _stretched(self, slopes: bool, low: float, high: float) -> str:
        """What must be said of a map whose colours span next to nothing."""
        statistics = self.view.layer.gradient_statistics if slopes else self.view.layer.statistics
        here = self.view.at.channel
        if statistics is None:
            return ""
        if statistics.constant[here]:
            return f"{'zero' if statistics.silent[here] else 'the same'} everywhere"
        most = np.fmax(np.abs(statistics.min), np.abs(statistics.max))
        known = [cell.gradient if slopes else cell.activation for cell in self.view.ribbon]
        scales = {
            "layer": float(np.fmax.reduce(most)),
            "network": max((each for each in known if each and math.isfinite(each)), default=0.0),
        }
        for name, scale in scales.items():
            if faint(low, high, scale):
                return f"stretched: less than {FAINT:g} of the {name}'s scale"
        return ""


def flatness(gradients: np.ndarray) -> np.ndarray:
    """Return which of `FLAT` must be said of each channel's gradient ``(C, H, W)``: ``(C,)``.

    Before an average all places of a map count the same; behind a closed ReLU none does. 0 where
    the gradient is not flat.

    Examples
    --------
    >>> flatness(np.array([[[0.0, 2.0, 2.0]], [[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]])).tolist()
    [3, 0, 1]
    """
    flat = gradients.reshape(len(gradients), -1)
    if flat.shape[1] < 2:
        return np.zeros(len(flat), np.uint8)
    count, most = np.count_nonzero(flat, 1), np.where(flat.max(1) > 0, flat.max(1), flat.min(1))
    one_value = ((flat == 0) | (flat == most[:, None])).all(1)  # NaN is neither
    kind = np.where(count == flat.shape[1], 2, np.where(count > 1, 3, 0))
    return np.where(count == 0, 1, np.where(one_value, kind, 0)).astype(np.uint8)


FLAT = (
    "",
    "zero everywhere: as before a closed ReLU",
    "the same everywhere: as before an average",
    "one value or zero: as before a ReLU and an average",
)
"""What a flat gradient tells, see `flatness`."""


def _ends(tensor: CapturedTensor, slopes: bool) -> tuple[float, float] | None:
    """Least and largest finite value of a tensor or its gradient; None where there is none."""
    if slopes and not tensor.has_gradient:
        return None
    if (values := values_of(tensor, slopes)) is not None:
        low, high = values.aminmax()  # many times faster than all statistics
        if low.isfinite() and high.isfinite():
            return low.item(), high.item()
    known = tensor.gradient_statistics if slopes else tensor.statistics
    return None if known is None or math.isnan(known.min) else (known.min, known.max)


def map_size(maps: np.ndarray) -> str:
    """Height and width of the maps ``(..., H, W)``, or a 1d layer's length."""
    height, width = maps.shape[-2:]
    return f"{height}×{width}" if height > 1 else str(width)
