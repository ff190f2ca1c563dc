"""The data for drawing a view in the browser: facts, and a layer's numbers as arrays.

Nothing is drawn here: the browser turns values into colours, as `hookviz.draw.colours` does, and
statistics, orders, heatmaps and percentiles are computed here.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..attribution.cam import HEATMAPS, METHOD_NAMES
from ..attribution.heads import AttentionRecord
from ..draw.colours import DARK, DIVERGING, SEQUENTIAL, palette_text, percentiles, shown_size
from ..draw.overlay import HEAT, as_fed
from ..run.origins import picture_tensors
from ..run.output import Output
from ..run.target import class_index
from ..run.transforms import UNDONE
from ..studies.receptive_field import field as shown
from . import messages as m
from .attending import weights_beside
from .build import run_names_of, summary
from .health import overview_of, verdict_of
from .heatmaps import side_names
from .layer import FIXED, ORDER_NAMES, SCORE_DROP, ChannelStatistics, channel_order
from .maps import (
    call_of,
    channel_word,
    counts_of,
    extent_words,
    field_of,
    is_attention,
    layer_of,
    magnitudes_note,
    query_of,
    query_words,
    shown_after_words,
    words_of,
)
from .orders import score_drops
from .outputs import ShownOutput, main_map
from .panels import FLAT, flatness_of
from .predictions import (
    class_labels,
    class_number,
    has_classes,
    output_of,
    predictions_of,
    target_name_of,
)
from .settings import CMAPS, PRODUCT, choices
from .source import (
    input_sample,
    is_of_parts,
    layers_of_parts,
    picture_at,
    picture_part,
    shown_inputs,
    transform_of,
    why_no_picture,
)
from .view import RUN_NAMES, View

NUMBERS = ("min", "max", "mean", "zeros", "norm", "nans", "infs")
"""The statistics of each channel, and of its gradient, in this order."""


def model_payload(view: View, *, classes: bool = True) -> dict[str, Any]:
    """Return the overview and all other facts of a run, as JSON values."""
    return overview_payload(view, classes=classes) | facts_payload(view)


def overview_payload(view: View, *, classes: bool = True) -> dict[str, Any]:
    """Return the facts of a run that take time, as JSON values.

    Parameters
    ----------
    classes : bool
        True if the names of all classes come along, to choose from.
    """
    logits, names = view.run.logits, view.session.class_names
    count = 0 if logits is None or not classes else logits.shape[1]
    overview = m.Overview(
        layers=layer_list(view),
        summary=summary(view),
        verdict=verdict_of(view),
        classes=m.ClassFacts(
            count=count,
            names=class_labels(min(count, len(names)), names),
            word="class" if has_classes(view) else "output",
        ),
    )
    return m.as_json(overview)


def facts_payload(view: View) -> dict[str, Any]:
    """Return the other facts of a run that are the same for all layers, as JSON values."""
    facts = m.Facts(
        model=view.session.name,
        target=m.TargetFacts(
            name=target_name_of(view),
            number=target_number(view),
            written=written_target(view),
            chosen=view.settings.target is not None,
        ),
        sides=side_names(view),
        answer=answer_facts(output_of(view), input_sample(view)),
        predictions=predictions_of(view),
        scored=view.run.scored,
        palettes={name: palette_text(name) for name in palette_names(view)},
        choices=m.Choices(**choices(view)),
        run_names=list(run_names_of(view)),
        pair=view.run_names != RUN_NAMES,
        methods=list(HEATMAPS),
        method_names=METHOD_NAMES,
        order_names=ORDER_NAMES,
        flat=list(FLAT),
        opened=view.opened,
        product=PRODUCT,
        auto=(SEQUENTIAL, DIVERGING, DARK, HEAT),
        transform=transform_of(view),
        edits=edit_list(view),
    )
    return m.as_json(facts)


def answer_facts(answer: ShownOutput, sample: int) -> m.OutputFacts | None:
    """Return maps and boxes in words; None if the output is not a picture."""
    if not answer:
        return None
    maps = [
        m.OutputMap(
            name=str(each.at),
            flat=each.flat,
            labels=each.labels,
            picture=each.picture,
            size=(each.values.shape[2], each.values.shape[3]),
        )
        for each in answer.maps
    ]
    first = main_map(answer.maps, sample) if maps else (0, None)
    return m.OutputFacts(sample=sample, first=first, maps=maps, boxes=answer.boxes)


def edit_list(view: View) -> list[m.EditFacts]:
    """Return the edits, also where the run without them is shown.

    Those that only multiply channels have these and the factor.
    """
    return [
        m.EditFacts(
            words=str(each),
            layer=each.layer,
            channels=each.multiplied,
            factor=each.factor if each.multiplied else None,
        )
        for each in (view.edited or view).session.edits
    ]


def layer_list(view: View) -> list[m.LayerFacts]:
    """Return an entry for each layer that can be shown: name, words and cell of the ribbon."""
    return [
        m.LayerFacts(
            name=cell.name,
            block=cell.block,
            side=cell.side,
            activation=cell.activation,
            gradient=cell.gradient,
            zeros=cell.zeros,
            nans=cell.nans + cell.gradient_nans,
            infs=cell.infs + cell.gradient_infs,
            channels=cell.channels,
            silent=cell.silent,
            **words_of(view)[cell.name]._asdict(),
            attends=isinstance(view.cache[cell.name], AttentionRecord) or None,
            parts=cell.name in layers_of_parts(view) or None,
        )
        for cell in overview_of(view)
    ]


def palette_names(view: View) -> list[str]:
    """Return the colormaps that the browser may need."""
    chosen = [name for name in (*CMAPS, view.settings.cmap) if name != "auto"]
    return list(dict.fromkeys([*chosen, SEQUENTIAL, DIVERGING, DARK, HEAT]))


def settings_payload(view: View) -> dict[str, Any]:
    """Return the settings without the target, which may be any object."""
    return {name: value for name, value in asdict(view.settings).items() if name != "target"}


def layer_payload(view: View) -> tuple[m.LayerHeader, dict[str, np.ndarray]]:
    """Return words and numbers of one layer, call, sample and depth.

    Returns
    -------
    header : LayerHeader
    arrays : dict of str to numpy.ndarray
        ``maps`` and, where one arrived, ``gradients``, ``(C, h, w)``: large ones averaged, see
        `hookviz.draw.colours.shown_size`. ``numbers`` and ``gradient_numbers``, ``(len(NUMBERS),
        C)``, of the maps and of the gradients. ``flat``, see `flatness_of`, ``(C,)``. ``maps
        percentiles`` and ``gradients percentiles``, the 1st and the 99th, ``(2, C)``. ``orders``,
        ``(n, C)``, by all of `hookviz.view.layer.FIXED` but the first, and by the score drop.
        ``ablation_scores``, ``(C,)``, the drop of the score without each channel, if known.
    """
    layer, output = layer_of(view), call_of(view).outputs[0]
    arrays = {
        "maps": shown_size(layer.maps),
        "numbers": _numbers(layer.statistics),
        "maps percentiles": _percentiles(layer.maps),
    }
    gradients = layer.gradient_statistics
    if layer.gradients is not None and gradients is not None:
        arrays |= {
            "gradients": shown_size(layer.gradients),
            "gradient_numbers": _numbers(gradients),
            "flat": flatness_of(view),
            "gradients percentiles": _percentiles(layer.gradients),
        }
    drops = score_drops(view)
    orders = [channel_order(layer, order, drops) for order in (*FIXED[1:], SCORE_DROP)]
    if drops is not None:
        arrays["ablation_scores"] = drops
    arrays["orders"] = np.array(orders).astype(np.uint32)
    at = view.settings
    header = m.LayerHeader(
        layer=at.layer,
        call=at.call,
        sample=at.sample,
        depth=at.depth,
        counts=m.Counts(**counts_of(view)),
        place=picture_at(view),
        no_picture=why_no_picture(view),
        parts=is_of_parts(view),
        size=list(layer.maps.shape[1:]),
        signed=layer.signed,
        dtype=str(output.dtype).removeprefix("torch."),
        magnitudes=magnitudes_note(view),
        extent=extent_words(view),
        which=view.which,
        shown_after=shown_after_words(view),
    )
    if not is_attention(view):
        return header, arrays
    if beside := weights_beside(view):
        arrays["beside"] = np.stack([*beside.values()], 1)
    attends = replace(
        header,
        word=channel_word(view),
        query=query_words(view),
        beside=list(beside),
    )
    return attends, arrays


def field_payload(view: View) -> dict[str, Any]:
    """Return the receptive fields, see `hookviz.studies.receptive_field.field.payload`."""
    if query_of(view) is not None:
        return _patches_field(view)
    field = field_of(view)
    if isinstance(field, str):
        return {"status": "unknown", "why": field, "ends": None}
    return shown.payload(field)


def _patches_field(view: View) -> dict[str, Any]:
    """Return for each patch the part of the input that it was cut from."""
    main = view.session.inputs.main
    size = [*layer_of(view).maps.shape[1:]]
    if main is None or main.ndim < 4:
        return {"status": "unknown", "why": "a token is not a part of a picture", "ends": None}
    ends = []
    for along, count in enumerate(size):
        edges = np.linspace(0, main.shape[along - 2], count + 1)
        ends.append({"along": along, "from": [*edges[:-1]], "to": [*edges[1:]]})
    return {
        "status": "patch",
        "why": "it is cut from there, and may have looked anywhere",
        "input": [*main.shape[-2:]],
        "map": size,
        "axes": ["rows", "columns"],
        "size": None,
        "ends": ends,
    }


def picture_payload(
    view: View, of: m.PictureAt | None = None
) -> tuple[m.PictureHeader, np.ndarray] | None:
    """Return words and pixels of the input, uint8 ``(H, W, 3)``; None if it is not a picture.

    ``of`` is the sample, the relative depth and the input tensor; left out, those of the view.
    """
    if (at := of or picture_at(view)) is None:
        return None
    tensor = at[2]
    picture, words = picture_part(view, *at)
    if picture is None:
        return None
    fed = as_fed(shown_inputs(view), *at)
    header = m.PictureHeader(
        height=picture.shape[0],
        width=picture.shape[1],
        size=list(picture_tensors(view.session.inputs)[tensor].shape[-2:]),
        fed=None if fed is None else m.AsFed(**fed),
        words="" if words == UNDONE else words,
    )
    return header, picture


def _numbers(values: ChannelStatistics) -> np.ndarray:
    """Return a row for each of `NUMBERS`; exact, also for doubles."""
    kind = np.float64 if values.min.dtype == np.float64 else np.float32
    return np.array([getattr(values, name) for name in NUMBERS]).astype(kind)


def _percentiles(maps: np.ndarray) -> np.ndarray:
    """Return the percentiles that `hookviz.draw.colours.colour_ranges` uses, ``(2, C)``."""
    return np.array(percentiles(maps)).astype(np.float64)


def target_number(view: View) -> int | None:
    """Return the number of the target's class, the top one included; None if it is not one."""
    number, predictions = class_number(view), predictions_of(view)
    if view.target is None and predictions:
        return predictions[0].number
    return number


def written_target(view: View) -> str | None:
    """Return the target as it may be typed, classes by number; None if it cannot be."""
    target = view.target
    if isinstance(target, Output):
        return str(target)
    if isinstance(target, tuple) and view.run.logits is not None:
        names, count = view.session.class_names, view.run.logits.shape[1]
        return " - ".join(str(class_index(each, count, names)) for each in target)
    number = target_number(view)
    return None if number is None else str(number)
