"""What is seen of a subject at some settings: the way from a layer's tensors to a frame."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..hooking.layout import as_maps
from ..hooking.records import Call, FeatureCache, LayerRecord
from ..render import html as panels
from ..render.colours import DIVERGING, SEQUENTIAL, colour_ranges
from ..render.input_picture import picture_of
from ..render.mosaic import Mosaic, mosaic
from ..run.targets import Target
from .frame import Panel, Readings
from .layer import ChannelStatistics, LayerView, channel_order, layer_view
from .subject import Memo, Subject


@dataclass(frozen=True)
class Settings:
    """The explorer's traits at one moment; see `hookviz.Explorer`."""

    layer: str
    channel: int = 0
    call: int = 0
    sample: int = 0
    depth: int = 0
    target: Target = None
    order: str = "index"
    cmap: str = "auto"
    normalize: str = "channel"
    heatmap: str = "gradcam"
    alpha: float = 0.5
    overlay: bool = True
    strip: bool = False


class Scene:
    """A subject at some settings. Made anew for each frame; the memo keeps what is the same."""

    def __init__(self, subject: Subject, at: Settings, memo: Memo) -> None:
        self.subject, self.at, self.memo = subject, at, memo
        self.cache = subject.run.cache

    # The layer

    @property
    def layers(self) -> list[str]:
        """The layers that can be shown as maps."""
        return self.memo.once("layers", (self.cache,), lambda: showable(self.cache))

    @property
    def input_sample(self) -> int:
        """Which sample of the input the shown one of the layer belongs to.

        A layer may cut each sample into as many windows, or boxes: then they come in order.
        """
        rows, batch = self.view.samples, self.subject.batch
        return self.at.sample * batch // rows if rows % batch == 0 else 0

    @property
    def record(self) -> LayerRecord:
        return self.cache[self.at.layer]

    @property
    def layer_name(self) -> str:
        return self.at.layer or "(model)"

    @property
    def call(self) -> Call:
        """The shown call; a layer that went over the budget is fetched by running again."""
        record = self.record
        if self.at.layer in self.memo.once("dropped", (self.cache,), lambda: self.cache.dropped):
            key = (self.cache, self.at.layer)
            again = self.memo.once("again", key, lambda: self.subject.again(record.module))
            record = again.cache[self.at.layer]
        else:
            self.memo.forget("again")  # it was beside the budget
        return record.calls[self.at.call]

    @property
    def view(self) -> LayerView:
        """Maps and gradients of the layer, call, sample and depth."""
        at = self.at

        def make() -> LayerView:
            call, module = self.call, self.record.module
            tensors = call.activation, call.gradient
            return layer_view(*tensors, module, at.sample, at.depth, call.grid)

        key = (self.cache, at.layer, at.call, at.sample, at.depth)
        return self.memo.once("view", key, make)

    @property
    def channels(self) -> np.ndarray:
        """Channel numbers, in the order in which the slider and the mosaic have them."""
        view, order = self.view, self.at.order
        return self.memo.once("order", (view, order), lambda: channel_order(view, order))

    @property
    def position(self) -> int:
        """Where the channel stands in `channels`."""
        return int(np.flatnonzero(self.channels == self.at.channel)[0])

    def counts(self) -> dict[str, int]:
        """How many there are to choose from, for each index."""
        view = self.view
        return {
            "channel": len(view.maps),
            "call": len(self.record.calls),
            "sample": view.samples,
            "depth": view.depths,
        }

    @property
    def picture(self) -> np.ndarray | None:
        """The input of the shown sample and, for a volume, at the same share of its depth."""
        view = self.view
        sample = self.input_sample
        depth = self.at.depth / (view.depths - 1) if view.depths > 1 else 0.0
        inputs = self.subject.inputs
        return self.memo.once("picture", (sample, depth), lambda: picture_of(inputs, sample, depth))

    @property
    def picture_caption(self) -> str:
        """The input's own size, and that of its picture if that is another."""
        main, picture = self.subject.inputs.main, self.picture
        if main is None or picture is None:
            return "input"
        height, width = main.shape[-2:]  # of a 1d signal: channels and length
        drawn = picture.shape[:2] if main.ndim > 3 else (height, picture.shape[1])
        return f"input, {height}×{width}{panels.shown_at((height, width), drawn)}"

    # Colours

    def colours(self) -> tuple[str, np.ndarray, np.ndarray]:
        """Colormap, and low and high for each channel."""
        view, at = self.view, self.at
        diverging = at.cmap == "auto" and view.signed
        name = (DIVERGING if diverging else SEQUENTIAL) if at.cmap == "auto" else at.cmap
        ends = self._ranges("colours", view.maps, view.statistics, diverging)
        return name, *ends

    def _ranges(
        self, name: str, maps: np.ndarray, statistics: ChannelStatistics, diverging: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        normalize = self.at.normalize
        return self.memo.once(
            name,
            (self.view, normalize, diverging),
            lambda: colour_ranges(
                maps, statistics.min, statistics.max, normalize, diverging=diverging
            ),
        )

    def tiles(self) -> Mosaic:
        """The mosaic of all channels."""
        view, order = self.view, self.channels
        _, low, high = self.colours()
        dead = view.statistics.dead
        # All maps but "auto" give the same ranges, so the same tiles.
        key = (view, self.at.order, self.at.normalize, self.at.cmap == "auto")
        return self.memo.once("tiles", key, lambda: mosaic(view.maps, low, high, dead, order))

    # What is drawn

    def panels(self) -> list[Panel]:
        """The feature map and, where one arrived, its gradient."""
        view, here = self.view, self.at.channel
        name, low, high = self.colours()
        words = self.describe()
        caption = f"channel {here}, {map_size(view.maps)}"
        shown = [Panel(caption, words, view.maps[here], name, low[here], high[here])]
        slopes = view.gradient_statistics
        if view.gradients is not None and slopes is not None:
            low, high = self._ranges("gradient colours", view.gradients, slopes, True)
            caption = f"gradient of {self.target_name}"
            values = view.gradients[here]
            alt = f"{caption}: {words}"
            shown.append(Panel(caption, alt, values, DIVERGING, low[here], high[here]))
        return shown

    @property
    def target_name(self) -> str:
        return self.subject.target_name(self.at.target, self.input_sample)

    def describe(self) -> str:
        """This view in words: the alt text of pictures made of it."""
        kind = type(self.record.module).__name__
        return (
            f"channel {self.at.channel} of {len(self.view.maps)} of layer {self.layer_name} "
            f"({kind}), a map of {map_size(self.view.maps)}, in {self.subject.name}"
        )

    def tiles_caption(self) -> str:
        dead = int(self.view.statistics.dead.sum())
        crossed = f"; {dead} constant, crossed out" if dead else ""
        return f"all {len(self.view.maps)} channels{crossed}"

    def readings(self) -> Readings:
        """Exact numbers of the channel, its gradient and the layer."""
        view, here = self.view, self.at.channel
        _, low, high = self.colours()
        heading = f"channel {here}"
        if self.at.order != "index":
            heading += f" (no. {self.position + 1} by {self.at.order})"
        span = f"{panels.number(low[here])} to {panels.number(high[here])}"
        rows = [(heading, [*_pairs(view.statistics, here), ("colours", span)])]
        slopes = view.gradient_statistics
        if slopes is not None and view.weights is not None:
            norm, weight = panels.number(slopes.norm[here]), panels.number(view.weights[here])
            norms = [("norm", norm), ("Grad-CAM weight", weight)]
            rows.append(("gradient", [*norms, *_pairs(slopes, here)]))
        output = self.call.outputs[0]
        shape, dtype = "×".join(map(str, output.shape)), str(output.dtype).removeprefix("torch.")
        kind = type(self.record.module).__name__
        whole = [("", kind), ("", shape), ("", dtype), *_pairs(view.statistics, None)]
        return [*rows, ("layer", whole)]


def showable(cache: FeatureCache) -> list[str]:
    """Names of the layers whose (first) output can be arranged as maps and is not empty."""
    return [name for name in cache if not why_not_shown(cache[name])]


def why_not_shown(record: LayerRecord) -> str:
    """Why a layer cannot be shown; empty if it can."""
    call = record.last
    if not call.outputs:
        return "it returned no tensor"
    shape = call.outputs[0].shape
    if not math.prod(shape):
        return f"it returned an empty tensor, shape {tuple(shape)}"
    try:  # a tensor without values has the shape all the same
        as_maps(torch.empty(shape, device="meta"), call.module, call.grid)
    except ValueError as error:
        return str(error)
    return ""


def map_size(maps: np.ndarray) -> str:
    """Height and width of the maps ``(..., H, W)``, or a 1d layer's length."""
    height, width = maps.shape[-2:]
    return f"{height}×{width}" if height > 1 else str(width)


def _pairs(values: ChannelStatistics, channel: int | None) -> list[tuple[str, str]]:
    """Readings of one channel, or of the whole layer."""
    here = slice(None) if channel is None else slice(channel, channel + 1)
    nans, infs = int(values.nans[here].sum()), int(values.infs[here].sum())
    known = values.mean[here][~np.isnan(values.mean[here])]
    return [
        ("min", panels.number(float(np.fmin.reduce(values.min[here])))),
        ("max", panels.number(float(np.fmax.reduce(values.max[here])))),
        ("mean", panels.number(float(known.mean()) if len(known) else float("nan"))),
        ("zeros", f"{100 * float(values.zeros[here].mean()):.1f} %"),
        ("NaN", f"{nans} (magenta)" if nans else "0"),
        ("Inf", f"{infs} (+ green, − cyan)" if infs else "0"),
    ]
