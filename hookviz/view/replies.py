"""The kernel's answers to the browser's questions: a function of the view for each question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..draw.mosaic import data_url
from ..hooking.interrupts import allow_interrupts
from ..studies.feature_visualization import feature_visualization
from . import messages as m
from .heatmaps import heatmap_of, shown_sides
from .layer import SCORE_DROP, channel_order
from .map import map_payload
from .maps import fitted, for_layer, layer_of, layers_of
from .messages import LayerPart, Question, Reply
from .orders import ablate, flip_of, flip_order, order_scores, score_drops
from .outputs import class_name, map_values
from .payload import field_payload, layer_payload, picture_payload
from .predictions import output_of
from .reason import cut_run, weights_answer, why_answer, without_answer
from .runs import displayed_view
from .source import input_sample
from .view import View

FEATURE_STEPS = 128  # half of the default: the kernel answers nothing else meanwhile
PART = 0.25  # seconds of work between two answers, so that others are answered and it can stop

Replied = tuple[Reply, dict[str, np.ndarray]]


def _named_part(question: LayerPart) -> dict[str, Any]:
    names = ("layer", "call", "sample", "depth", "shown_after")
    named = {name: value for name in names if (value := getattr(question, name)) is not None}
    return named if question.place == m.SHOWN_PLACE else named | {"place": question.place}


def run_of(view: View, shown_run: str | None) -> View:
    """Return the view of the edited run, the original one or the difference; None for this one."""
    if shown_run is None:
        return view
    return displayed_view((view.edited or view).with_settings(shown_run=shown_run))


def part_of(view: View, question: LayerPart) -> View:
    """Return the view of the layer, call, sample and depth that a question names."""
    view = run_of(view, question.shown_run)
    named = _named_part(question)
    same = all(getattr(view.settings, name) == value for name, value in named.items())
    return fitted(view) if same else for_layer(view, **named)


def edited_part(view: View, question: LayerPart) -> View:
    """Return the same part of the edited run's view, also where the original run is shown."""
    return fitted((view.edited or view).with_settings(**_named_part(question)))


def _prepare(view: View, question: m.PrepareQuestion) -> Replied:
    cut_run(view)
    return Reply(), {}


def _layer(view: View, question: m.LayerQuestion) -> Replied:
    header, arrays = layer_payload(part_of(view, question))
    return m.LayerAnswer(header=header), arrays


def _picture(view: View, question: m.PictureQuestion) -> Replied:
    header, pixels = picture_payload(run_of(view, question.shown_run), question.of) or (
        m.PictureHeader(),
        np.zeros((0, 0, 3), np.uint8),
    )
    return m.PictureAnswer(header=header), {"pixels": pixels}


def _heatmap(view: View, question: m.HeatmapQuestion) -> Replied:
    values = heatmap_of(part_of(view, question).with_settings(heatmap=question.method))
    return (Reply(none=""), {}) if values is None else (Reply(), {"heat": values})


def _heatmaps(view: View, question: m.HeatmapsQuestion) -> Replied:
    view = part_of(view, question).with_settings(heatmap=question.method)
    heats = {name: heatmap_of(for_layer(view, layer=name)) for name in layers_of(view)}
    return Reply(), {name: heat for name, heat in heats.items() if heat is not None}


def _sides(view: View, question: m.SidesQuestion) -> Replied:
    sides = shown_sides(part_of(view, question).with_settings(heatmap=question.method))
    first, second = sides.heats
    return m.SidesAnswer(method=sides.method), {"first": first, "second": second}


def _output(view: View, question: m.OutputQuestion) -> Replied:
    shown = output_of(view).maps[question.which]
    return Reply(), map_values(shown, input_sample(view), question.channel)


def _field(view: View, question: m.FieldQuestion) -> Replied:
    return m.read(m.FieldAnswer, field_payload(part_of(view, question))), {}


def _value(view: View, question: m.ValueQuestion) -> Replied:
    layer, at = layer_of(part_of(view, question)), (question.channel, question.row, question.column)
    gradient = None if layer.gradients is None else str(float(layer.gradients[at]))
    return m.ValueAnswer(maps=str(float(layer.maps[at])), gradients=gradient), {}


def _scores(view: View, question: m.ScoresQuestion) -> Replied:
    at: dict[str, Any] = {"order": question.order, "reference_channel": question.reference_channel}
    scores = order_scores(part_of(view, question).with_settings(**at))
    return (Reply(none=""), {}) if scores is None else (Reply(), {"scores": scores})


def _ablation(view: View, question: m.AblationQuestion) -> Replied:
    view = edited_part(view, question)
    share, drops = ablate(view, PART), score_drops(view)
    if share < 1 or drops is None:
        return m.AblationAnswer(share=share), {}
    order = channel_order(layer_of(view), SCORE_DROP, drops).astype(np.uint32)
    return m.AblationAnswer(share=share), {"drops": drops, "order": order}


def _flip(view: View, question: m.FlipQuestion) -> Replied:
    view = edited_part(view, question)
    channels = question.channels or flip_order(view)
    flip, names = flip_of(view, channels), view.session.class_names
    share = flip.work(PART)
    answer = m.FlipAnswer(
        share=share,
        curve=flip.curve,
        answer=class_name(flip.answer, names),
        flipped=None if flip.flipped is None else class_name(flip.flipped, names),
        channels=flip.channels,
    )
    return answer, {}


def _map(view: View, question: m.MapQuestion) -> Replied:
    header, arrays = map_payload(part_of(view, question))
    return m.read(m.MapAnswer, header), arrays


def _feature(view: View, question: m.FeatureQuestion) -> Replied:
    session, preprocessing = view.session, view.session.inputs.preprocessing
    found = allow_interrupts(
        feature_visualization,
        session.given,
        question.layer,
        question.channel,
        steps=FEATURE_STEPS,
        transform=None if preprocessing is None else preprocessing.transform,
    )
    pieces = found.pieces(question.channel)
    urls, captions = [data_url(each.drawn()) for each in pieces], [each.caption for each in pieces]
    return m.FeatureAnswer(words=found.verdict, urls=urls, captions=captions), {}


def _why(view: View, question: m.WhyQuestion) -> Replied:
    if question.traced is None:
        return why_answer(view, question, seconds=0)
    answer, arrays = why_answer(view, question, seconds=PART)
    return answer, arrays if answer.constants else {}  # else those of the first answer


HANDLERS: dict[type[Question], Callable[[View, Any], Replied]] = {
    m.HereQuestion: lambda view, question: (Reply(), {}),
    m.PrepareQuestion: _prepare,
    m.LayerQuestion: _layer,
    m.PictureQuestion: _picture,
    m.HeatmapQuestion: _heatmap,
    m.HeatmapsQuestion: _heatmaps,
    m.SidesQuestion: _sides,
    m.OutputQuestion: _output,
    m.FieldQuestion: _field,
    m.ValueQuestion: _value,
    m.ScoresQuestion: _scores,
    m.AblationQuestion: _ablation,
    m.FlipQuestion: _flip,
    m.MapQuestion: _map,
    m.FeatureQuestion: _feature,
    # A walk leads to layers that were not captured, too: there is no view of them.
    m.WhyQuestion: _why,
    m.WeightsQuestion: weights_answer,
    m.WithoutQuestion: lambda view, question: (without_answer(view, question), {}),
}
"""The function that answers each kind of question, with the arrays by name."""


def reply(view: View, question: Question) -> Replied:
    """Answer a question about a view."""
    return HANDLERS[type(question)](view, question)
