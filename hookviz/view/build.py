"""Build a `Frame`, which is everything that is displayed, from a view."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from ..draw import html
from ..draw.html import Box
from ..draw.mosaic import PAGE, Mosaic, mosaic
from ..run.origins import picture_tensors
from ..run.transforms import UNDONE
from ..studies.receptive_field.field import outline, place_in
from ..studies.receptive_field.field import words as seen_words
from ..tables import megabytes
from .frame import ChannelGrid, Frame, ImagePanel, Panel
from .health import is_untrained, verdict_of
from .heatmaps import heatmap_of, heatmap_panels, overlay_of
from .layer import HERE, SCORE_DROP, SIMILARITY
from .maps import (
    call_of,
    channel_word,
    counts_of,
    describe,
    field_of,
    layer_name,
    layer_of,
    layers_of,
    magnitudes_note,
    place_of,
    query_of,
    words_of,
)
from .orders import channels_of, order_of, rank_of
from .panels import map_colours, map_panels
from .predictions import classes_of, output_of, predictions_of, target_name_of
from .runs import displayed_view
from .settings import choices
from .source import picture_and_words, picture_at, transform_of
from .view import Opening, View, cached

Shown = TypeVar("Shown", Panel, ImagePanel)


def build_frame(view: View) -> Frame:
    """Build the frame of a view: a session's run at some settings."""
    view = displayed_view(view)
    frame = Frame(
        settings=view.settings,
        model=view.session.name,
        summary=summary(view),
        predictions=predictions_of(view),
        target=target_name_of(view),
        description=describe(view),
        layers=layers_of(view),
        counts=counts_of(view),
        channels=channels_of(view),
        position=rank_of(view),
        input=_input(view),
        panels=[*map_panels(view), *heatmap_panels(view)],
        heatmap=heatmap_of(view),
        overlay=overlay_of(view),
        tiles=_tiles(view),
        verdict=verdict_of(view),
        words=words_of(view),
        classes=classes_of(view),
        run_names=run_names_of(view),
        choices=choices(view),
        dtype=str(call_of(view).outputs[0].dtype).removeprefix("torch.") + magnitudes_note(view),
        opened=_opening(view),
    )
    return frame if view.settings.place is None else _at_place(view, frame)


def _at_place(view: View, frame: Frame) -> Frame:
    """Mark the chosen position: its values at the maps, its receptive field at the input."""
    (row, column), field = place_of(view), field_of(view)
    height, width = layer_of(view).maps.shape[-2:]
    here = f"row {row}, column {column}" if height > 1 else f"place {column}"
    cell = column / width, row / height, 1 / width, 1 / height
    if query_of(view) is not None:
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
        return _noted(panel, f"{here}: {value}" if words else value, cell)

    return replace(
        frame,
        panels=[marked(panel) for panel in frame.panels],
        input=frame.input and _noted(frame.input, words and f"{here} sees {words}", box),
        overlay=frame.overlay and replace(frame.overlay, box=box),
    )


def _noted(picture: Shown, note: str, box: Box | None) -> Shown:
    return replace(picture, note="; ".join(filter(None, (picture.note, note))), box=box)


@cached()
def summary(view: View) -> list[str]:
    """Return the facts in the title line, beside the model's name.

    A narrow window cuts the end off, so the facts that most runs have come last.
    """
    main, cache = view.session.inputs.main, view.cache
    parameter = next(view.session.model.parameters(), None)
    found = [f"{len(cache)} layer{'s' * (len(cache) != 1)}"]
    if is_untrained(view.session.model):
        found.append("untrained: random weights")
    if any(module.training for module in view.session.model.modules()):
        found.append("in training mode, shown in eval mode")
    found += [view.session.inputs.note] if view.session.inputs.note else []
    found += [cache.unseen] if cache.unseen else []
    if hint := target_hint(view):
        found.append(hint)
    elif not view.run.scored:
        found.append("no gradient: the scores are computed without a graph, as in int8 layers")
    pictures = [*picture_tensors(view.session.inputs).values()]
    given = pictures if len(pictures) > 1 else [main] if main is not None else []
    shapes = " and ".join("×".join(map(str, each.shape)) for each in given)
    found += [f"input{'s' * (len(given) > 1)} {shapes}"] if given else []
    found += [str(parameter.device)] if parameter is not None else []
    return [*found, f"{megabytes(cache.nbytes)} in memory"]


def target_hint(view: View) -> str:
    """Return how to choose a target where there are no class scores; else empty."""
    if view.run.scored or view.run.logits is not None:
        return ""
    what = "a prediction" if output_of(view).boxes else "a pixel of the output"
    click = f"click {what} or " if output_of(view) else ""
    return f"no class scores: {click}give target=hookviz.output[…] to choose what to explain"


def _opening(view: View) -> str:
    """Return why the explorer has opened at what it shows; empty elsewhere."""
    opened = view.opened
    here = opened is not None and opened == Opening.at(view.settings, opened.words)
    return opened.words if here and opened is not None else ""


def run_names_of(view: View) -> tuple[str, ...]:
    """Return the names of the original run, the edited one and their difference; () for one run."""
    if view.original is None and view.edited is None:
        return ()
    before, after = view.run_names
    return before, after, "difference" if before == "original" else f"{after} − {before}"


def _input(view: View) -> ImagePanel | None:
    """Return the input's panel with its size, and that of its picture if that differs."""
    (picture, undone), at, inputs = picture_and_words(view), picture_at(view), view.session.inputs
    if picture is None or at is None:
        return None
    tensor = picture_tensors(inputs)[at[2]]
    height, width = tensor.shape[-2:]  # for a 1d signal: channels and length
    drawn = picture.shape[:2] if tensor.ndim > 3 else (height, picture.shape[1])
    notes = [html.shown_at((height, width), drawn), undone if undone != UNDONE else ""]
    if transform := transform_of(view):
        notes += [transform.doubt or transform.short]
    return ImagePanel(
        name="input",
        detail=f"{height}×{width}",
        note="; ".join(filter(None, notes)),
        alt=f"Input {inputs.name}, as the network saw it",
        pixels=picture,
    )


def _tiles(view: View) -> ChannelGrid:
    """Return the mosaic of the channels around the chosen one."""
    layer, order, at = layer_of(view), channels_of(view), view.settings
    cmap, low, high = map_colours(view)
    page, place = divmod(rank_of(view), PAGE)
    here = order[page * PAGE : (page + 1) * PAGE]
    constant = layer.statistics.constant

    def make() -> Mosaic:
        return mosaic(layer.maps, low, high, constant, here)

    # All colormaps but "auto" have the same ranges, so the same tiles.
    key = (layer, here.tobytes(), page, at.normalize, at.cmap == "auto")
    drawn = view.memo.get_or_compute("tiles", key, make)
    count = len(layer.maps)
    pages = math.ceil(count / PAGE)
    first = page * PAGE + (order_of(view) != "index")  # ranks count from 1, channels from 0
    many = f"{channel_word(view)}s"
    caption = f"all {count} {many}" if pages == 1 else f"{first}–{first + len(here) - 1}"
    if pages > 1:
        caption = f"{many if order_of(view) == 'index' else 'ranks'} {caption} of {count}"
    still = layer.statistics.still
    caption += f"; {still}, crossed out" if still else ""
    if at.order == SCORE_DROP:
        unknown = "by channel number: the score drops are not computed for this layer"
        caption += f"; {unknown}" if order_of(view) != SCORE_DROP else ""
    elif at.order in HERE:
        row, column = place_of(view)
        missing = "no position is chosen" if at.place is None else "no gradient arrives here"
        here_words = f"sorted by {at.order} at row {row}, column {column}"
        caption += (
            f"; {here_words}" if order_of(view) == at.order else f"; by channel number: {missing}"
        )
    elif at.order == SIMILARITY:
        caption += f"; sorted by similarity to {channel_word(view)} {at.reference_channel}"
    alt = f"{caption[0].upper()}{caption[1:]}, layer {layer_name(view)}"
    box = drawn.box(place)
    return ChannelGrid(caption, alt, drawn, cmap, box, here, place, page, pages)
