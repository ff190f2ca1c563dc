"""A view becomes a `Frame`: all that is to be seen of it."""

from __future__ import annotations

import numpy as np

from ..hooking.records import megabytes
from ..render import html
from ..render.input_picture import UNDONE
from ..render.mosaic import Mosaic, mosaic
from .frame import Frame, Readings, Sheet, Tiles
from .heatmaps import ShownHeatmap
from .layer import ChannelStatistics
from .view import View


def build_frame(view: View) -> Frame:
    """Draw a view: a session's run at some settings."""
    heatmap = ShownHeatmap(view)
    return Frame(
        settings=view.at,
        model=view.session.name,
        facts=view.memo.once("facts", None, lambda: facts(view)),
        predictions=view.predictions,
        target=view.target_name,
        description=view.describe(),
        layers=view.layers,
        counts=view.counts(),
        channels=view.channels,
        position=view.position,
        input=_input(view),
        panels=[*view.panels(), *heatmap.panels()],
        heatmap=heatmap.values,
        overlay=heatmap.overlay(),
        strip=heatmap.strip(),
        tiles=_tiles(view),
        readings=[*_readings(view), *heatmap.readings()],
    )


def facts(view: View) -> list[str]:
    """What the title line says beside the model's name."""
    main, cache = view.session.inputs.main, view.cache
    parameter = next(view.session.model.parameters(), None)
    found = [
        f"{len(cache)} layers",
        *(["input " + "×".join(map(str, main.shape))] if main is not None else []),
        *([str(parameter.device)] if parameter is not None else []),
        f"{megabytes(cache.nbytes)} kept",
    ]
    found += [view.session.inputs.note] if view.session.inputs.note else []
    found += [cache.unseen] if cache.unseen else []
    if not view.run.scored and view.run.logits is None:
        found.append("no class scores, so no gradient: give target=output -> scalar")
    elif not view.run.scored:
        found.append("no gradient: the scores are computed without a graph, as by int8 layers")
    return found


def _input(view: View) -> Sheet | None:
    """The input, with its own size in the caption, and that of its picture if it is another."""
    inputs, (picture, undone) = view.session.inputs, view.picture_and_words
    if inputs.main is None or picture is None:
        return None
    height, width = inputs.main.shape[-2:]  # of a 1d signal: channels and length
    drawn = picture.shape[:2] if inputs.main.ndim > 3 else (height, picture.shape[1])
    caption = f"input, {height}×{width}{html.shown_at((height, width), drawn)}"
    caption += f"; {undone}" if undone and undone != UNDONE else ""
    return Sheet(caption, f"Input {inputs.name}, as the network saw it", picture)


def _tiles(view: View) -> Tiles:
    """The mosaic of all channels."""
    layer, order, at = view.layer, view.channels, view.at
    cmap, low, high = view.colours()
    dead = layer.statistics.dead

    def make() -> Mosaic:
        return mosaic(layer.maps, low, high, dead, order)

    # All maps but "auto" give the same ranges, so the same tiles.
    drawn = view.memo.once("tiles", (layer, at.order, at.normalize, at.cmap == "auto"), make)
    constant = int(dead.sum())
    every = f"{len(layer.maps)} channels"
    caption = f"all {every}" + (f"; {constant} constant, crossed out" if constant else "")
    alt = f"All {every} of layer {view.layer_name}"
    return Tiles(caption, alt, drawn, cmap, drawn.box(view.position))


def _readings(view: View) -> Readings:
    """Exact numbers of the channel, its gradient and the layer."""
    layer, here, number = view.layer, view.at.channel, html.number
    _, low, high = view.colours()
    heading = f"channel {here}"
    if view.at.order != "index":
        heading += f" (no. {view.position + 1} by {view.at.order})"
    span = ("colours", f"{number(low[here])} to {number(high[here])}")
    rows: Readings = [(heading, [*_pairs(layer.statistics, here), span])]
    slopes, weights = layer.gradient_statistics, layer.weights
    if slopes is not None and weights is not None:
        norms = [("norm", number(slopes.norm[here])), ("Grad-CAM weight", number(weights[here]))]
        rows.append(("gradient", [*norms, *_pairs(slopes, here)]))
    output, kind = view.call.outputs[0], type(view.record.module).__name__
    shape, dtype = "×".join(map(str, output.shape)), str(output.dtype).removeprefix("torch.")
    dtype += view.magnitudes
    whole = [("", kind), ("", shape), ("", dtype), *_pairs(layer.statistics, None)]
    return [*rows, ("layer", whole)]


def _pairs(values: ChannelStatistics, channel: int | None) -> list[tuple[str, str]]:
    """Readings of one channel, or of the whole layer."""
    here = slice(None) if channel is None else slice(channel, channel + 1)
    nans, infs = int(values.nans[here].sum()), int(values.infs[here].sum())
    known = values.mean[here][~np.isnan(values.mean[here])]
    return [
        ("min", html.number(float(np.fmin.reduce(values.min[here])))),
        ("max", html.number(float(np.fmax.reduce(values.max[here])))),
        ("mean", html.number(float(known.mean()) if len(known) else float("nan"))),
        ("zeros", f"{100 * float(values.zeros[here].mean()):.1f} %"),
        ("NaN", f"{nans} (magenta)" if nans else "0"),
        ("Inf", f"{infs} (+ green, − cyan)" if infs else "0"),
    ]
