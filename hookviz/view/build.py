"""A view becomes a `Frame`: everything that is displayed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..draw import html
from ..draw.colours import DIVERGING, SEQUENTIAL, class_colours
from ..draw.html import Box, Readings
from ..draw.mosaic import PAGE, Mosaic, mosaic
from ..run.origins import picture_tensors
from ..run.output import Output, index_of
from ..run.transforms import UNDONE
from ..studies.receptive_field.field import outline, place_in
from ..studies.receptive_field.field import words as seen_words
from ..tables import megabytes, number
from .answer import map_values
from .exploration import displayed_view
from .frame import ChannelGrid, Frame, ImagePanel, Panel, signed
from .heatmaps import ShownHeatmap
from .layer import HERE, SCORE_DROP, SIMILARITY, ChannelStatistics
from .settings import choices
from .view import ShownMaps, View, field_of, place_of

Shown = TypeVar("Shown", Panel, ImagePanel)


def build_frame(view: View) -> Frame:
    """Build the frame of a view: a session's run at some settings."""
    view = displayed_view(view)
    heatmap = ShownHeatmap(view)
    frame = Frame(
        settings=view.settings,
        model=view.session.name,
        summary=view.memo.get_or_compute("summary", None, lambda: summary(view)),
        predictions=view.predictions,
        target=view.target_name,
        description=view.describe(),
        layers=view.layers,
        counts=view.counts(),
        channels=view.channels,
        position=view.position,
        input=_input(view),
        panels=[*ShownMaps(view).panels(), *heatmap.panels()],
        heatmap=heatmap.values,
        overlay=heatmap.overlay(),
        strip=heatmap.strip(),
        tiles=_tiles(view),
        readings=[*_readings(view), *heatmap.readings()],
        layer_overview=view.layer_overview,
        verdict=view.verdict,
        words=view.words,
        classes=view.classes,
        edits=[str(each) for each in view.session.edits] if view.original is not None else [],
        run_names=run_names_of(view),
        factor=factor_of(view),
        choices=choices(view),
        dtype=str(view.call.outputs[0].dtype).removeprefix("torch.") + view.magnitudes,
        outputs=_outputs(view),
        boxes=view.answer.boxes,
    )
    return frame if view.settings.place is None else _at_place(view, frame)


def _at_place(view: View, frame: Frame) -> Frame:
    """Mark the chosen position: its values at the maps, its receptive field at the input."""
    (row, column), field = place_of(view), field_of(view)
    height, width = view.layer.maps.shape[-2:]
    here = f"row {row}, column {column}" if height > 1 else f"place {column}"
    cell = column / width, row / height, 1 / width, 1 / height
    if view.query is not None:
        box, words = cell, ""
    elif isinstance(field, str):
        box, words = None, f"unknown: {field}"
    else:
        place = place_in(field, view.settings.depth, row, column)
        box, words = outline(field, place), seen_words(field, place)

    def marked(panel: Panel) -> Panel:
        if panel.role == "heatmap":
            return replace(panel, box=cell if panel.values.shape == (height, width) else box)
        value = str(panel.values[row, column]).replace("-", "−")
        if not words:
            return _noted(panel, value, cell)
        unsaid = panel.role == "map" and frame.input is None
        return _noted(panel, f"{here}: {value}" + f"; sees {words}" * unsaid, cell)

    return replace(
        frame,
        panels=[marked(panel) for panel in frame.panels],
        input=frame.input and _noted(frame.input, words and f"{here} sees {words}", box),
        overlay=frame.overlay and replace(frame.overlay, box=box),
    )


def _noted(picture: Shown, note: str, box: Box | None) -> Shown:
    return replace(picture, note="; ".join(filter(None, (picture.note, note))), box=box)


def summary(view: View) -> list[str]:
    """Return the facts in the title line, beside the model's name."""
    main, cache = view.session.inputs.main, view.cache
    parameter = next(view.session.model.parameters(), None)
    found = [
        f"{len(cache)} layer{'s' * (len(cache) != 1)}",
        *(["input " + "×".join(map(str, main.shape))] if main is not None else []),
        *([str(parameter.device)] if parameter is not None else []),
        f"{megabytes(cache.nbytes)} in memory",
    ]
    found += [view.session.inputs.note] if view.session.inputs.note else []
    found += [cache.unseen] if cache.unseen else []
    if not view.run.scored and view.run.logits is None:
        click = "click a pixel of the output or " if view.answer else ""
        found.append(
            f"no class scores: {click}give target=hookviz.output[…] to choose what to explain"
        )
    elif not view.run.scored:
        found.append("no gradient: the scores are computed without a graph, as by int8 layers")
    return found


def run_names_of(view: View) -> tuple[str, ...]:
    """Return the names of the original run, the edited one and their difference; () for one run."""
    if view.original is None:
        return ()
    before, after = view.run_names
    return before, after, "difference" if before == "original" else f"{after} − {before}"


def factor_of(view: View) -> float:
    """Return the factor of an edit that multiplies only the shown channel; 1 without one."""
    at = view.settings
    own = [each for each in view.session.edits if each.is_of(at.layer, at.channel)]
    return own[-1].factor if own and own[-1].factor is not None else 1.0


def _input(view: View) -> ImagePanel | None:
    """Return the input's panel with its size, and that of its picture if that differs."""
    (picture, undone), at, inputs = view.picture_and_words, view.picture_at, view.session.inputs
    if picture is None or at is None:
        return None
    tensor = picture_tensors(inputs)[at[2]]
    height, width = tensor.shape[-2:]  # for a 1d signal: channels and length
    drawn = picture.shape[:2] if tensor.ndim > 3 else (height, picture.shape[1])
    notes = [html.shown_at((height, width), drawn), undone if undone != UNDONE else ""]
    if view.transform is not None:
        notes += [view.transform.doubt or view.transform.short]
    return ImagePanel(
        name="input",
        detail=f"{height}×{width}",
        note="; ".join(filter(None, notes)),
        alt=f"Input {inputs.name}, as the network saw it",
        pixels=picture,
    )


def _outputs(view: View) -> list[Panel | ImagePanel]:
    """Return the panel of a dense map of the output: of the channel that the target is in, or all.

    Of many channels each position has the colour of the largest.
    """
    maps, target = view.answer.maps, view.settings.target
    if not maps:
        return []
    chosen = index_of(target, view.run.leaves) if isinstance(target, Output) else None
    found = next((m for m in maps if chosen and m.at == view.run.leaves[chosen[0]].at), None)
    named = (each for each in maps if not each.labels[0].startswith("channel "))
    shown = found or next(named, maps[0])
    height, width = shown.values.shape[2:]
    channel, box = (None if len(shown.labels) > 1 or shown.picture else 0), None
    if found is not None and chosen is not None:
        row, column = chosen[1][-2:]
        channel = 0 if found.flat else chosen[1][1]
        box = column / width, row / height, 1 / width, 1 / height
    arrays = map_values(shown, view.input_sample, channel)
    name = str(shown.at)
    if channel is not None and not shown.flat:
        name += f", {shown.labels[channel]}"
    words: dict[str, Any] = {
        "name": name,
        "alt": f"{name} of the model's output",
        "detail": f"{height}×{width}",
    }
    if "values" in arrays:
        values = arrays["values"]
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        cmap = SEQUENTIAL if view.settings.cmap == "auto" else view.settings.cmap
        if low < 0:
            high = max(-low, high)
            low, cmap = -high, DIVERGING if view.settings.cmap == "auto" else cmap
        ends: dict[str, Any] = {"cmap": cmap, "low": low, "high": high}
        return [Panel(**words, **ends, role="output", values=values, box=box)]
    if "classes" in arrays:
        counts = np.bincount(arrays["classes"].ravel())
        most = [shown.labels[each] for each in np.argsort(-counts, kind="stable")[:3]]
        words["note"] = f"the largest at each position, mostly {', '.join(most)}"
    pixels = arrays["pixels"] if "pixels" in arrays else class_colours(arrays["classes"])
    return [ImagePanel(**words, pixels=pixels)]


def _tiles(view: View) -> ChannelGrid:
    """Return the mosaic of the channels around the chosen one."""
    layer, order, at = view.layer, view.channels, view.settings
    cmap, low, high = ShownMaps(view).colours()
    page, place = divmod(view.position, PAGE)
    here = order[page * PAGE : (page + 1) * PAGE]
    constant = layer.statistics.constant

    def make() -> Mosaic:
        return mosaic(layer.maps, low, high, constant, here)

    # All colormaps but "auto" have the same ranges, so the same tiles.
    key = (layer, here.tobytes(), page, at.normalize, at.cmap == "auto")
    drawn = view.memo.get_or_compute("tiles", key, make)
    count = len(layer.maps)
    pages = math.ceil(count / PAGE)
    first = page * PAGE + (view.order != "index")  # ranks count from 1, channels from 0
    many = f"{view.channel_word}s"
    caption = f"all {count} {many}" if pages == 1 else f"{first}–{first + len(here) - 1}"
    if pages > 1:
        caption = f"{many if view.order == 'index' else 'ranks'} {caption} of {count}"
    still = layer.statistics.still
    caption += f"; {still}, crossed out" if still else ""
    if at.order == SCORE_DROP:
        unknown = "by channel number: the score drops are not computed for this layer"
        old = f"order from before {view.ablation_age}"
        caption += f"; {unknown}" if view.order != SCORE_DROP else ""
        caption += f"; {old}" if view.ablation_age else ""
    elif at.order in HERE:
        row, column = place_of(view)
        missing = "no position is chosen" if at.place is None else "no gradient arrives here"
        here_words = f"sorted by {at.order} at row {row}, column {column}"
        caption += (
            f"; {here_words}" if view.order == at.order else f"; by channel number: {missing}"
        )
    elif at.order == SIMILARITY:
        caption += f"; sorted by similarity to {view.channel_word} {at.reference_channel}"
    alt = f"{caption[0].upper()}{caption[1:]}, layer {view.layer_name}"
    box = drawn.box(place)
    ablation_scores = None if view.ablation_scores is None else view.ablation_scores[here]
    return ChannelGrid(caption, alt, drawn, cmap, box, here, place, page, pages, ablation_scores)


def _readings(view: View) -> Readings:
    """Return exact numbers of the channel, its gradient and the layer."""
    layer, here = view.layer, view.settings.channel
    word = view.channel_word
    rows: Readings = [(f"{word} {here}", _pairs(layer.statistics, here))]
    if view.ablation_scores is not None:
        rows.append(
            (f"without {word} {here}", [("score", signed(-float(view.ablation_scores[here])))])
        )
    if beside := view.beside:
        pairs = [(name, number(float(each[here]))) for name, each in beside.items()]
        rows.append((f"weights of {view.query_words} on other tokens", pairs))
    gradients, weights = layer.gradient_statistics, layer.weights
    if gradients is not None and weights is not None:
        weight = ("Grad-CAM weight", number(float(weights[here])))
        rows.append(("its gradient", [*_pairs(gradients, here), weight]))
    return [*rows, ("the layer", _pairs(layer.statistics, None))]


def _pairs(values: ChannelStatistics, channel: int | None) -> list[tuple[str, str]]:
    """Return readings of one channel, or of the whole layer; NaN and Inf only if any."""
    here = slice(None) if channel is None else slice(channel, channel + 1)
    nans, infs = int(values.nans[here].sum()), int(values.infs[here].sum())
    known = values.mean[here][~np.isnan(values.mean[here])]
    norms = values.norm[here][~np.isnan(values.norm[here])].astype(np.float64)
    norm = math.hypot(*norms)  # squares would overflow long before their root does
    found = [
        ("min", number(float(np.fmin.reduce(values.min[here])))),
        ("max", number(float(np.fmax.reduce(values.max[here])))),
        ("mean", number(float(known.mean()) if len(known) else math.nan)),
        ("norm", number(norm if len(norms) else math.nan)),
        ("zeros", f"{100 * float(values.zeros[here].mean()):.3g} %"),
    ]
    found += [("NaN", f"{nans:,} (magenta)")] if nans else []
    return found + ([("Inf", f"{infs:,} (+ green, − cyan)")] if infs else [])
