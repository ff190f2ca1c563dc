"""The kernel's answers to the browser's questions: a function of the view for each question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..draw.document import STATIC
from ..draw.mosaic import data_url
from ..hooking.interrupts import allow_interrupts
from ..studies.feature_visualization import feature_visualization
from . import messages as m
from .heatmaps import heatmap_of, shown_sides
from .layer import SCORE_DROP, channel_order
from .map import map_payload
from .maps import fitted, for_layer, layer_of, layers_of
from .messages import (
    LayerPart,
    Question,
    Reply,
)
from .orders import ablate, flip_of, order_scores, score_drops
from .outputs import class_name, map_values
from .payload import field_payload, layer_payload, picture_payload
from .predictions import output_of
from .reason import cut_run, reason_payload, weights_payload, without_payload
from .source import input_sample
from .view import View

FEATURE_STEPS = 128  # half of the default: the kernel answers nothing else meanwhile
PART = 0.25  # seconds of work between two answers, so that others are answered and it can stop


Replied = tuple[Reply, dict[str, np.ndarray]]
HANDLERS: dict[type[Question], Callable[[View, Any], Replied]] = {}

Handler = TypeVar("Handler", bound=Callable[..., Replied])


def answers(kind: type[Question]) -> Callable[[Handler], Handler]:
    """Register the function that answers a kind of question, with the arrays by name."""

    def register(function: Handler) -> Handler:
        HANDLERS[kind] = function
        return function

    return register


def reply(view: View, question: Question) -> Replied:
    """Reply a question about a view."""
    return HANDLERS[type(question)](view, question)


def _named_part(question: LayerPart) -> dict[str, Any]:
    names = ("layer", "call", "sample", "depth", "shown_after")
    named = {name: value for name in names if (value := getattr(question, name)) is not None}
    return named if question.place == m.SHOWN_PLACE else named | {"place": question.place}


def part_of(view: View, question: LayerPart) -> View:
    """Return the view at the part of the layer that a question is about."""
    named = _named_part(question)
    same = all(getattr(view.settings, name) == value for name, value in named.items())
    return fitted(view) if same else for_layer(view, **named)


def edited_part(view: View, question: LayerPart) -> View:
    """Return the same part of the edited run's view, also where the original run is shown."""
    return fitted((view.edited or view).with_settings(**_named_part(question)))


@answers(m.HereQuestion)
def _here(view: View, question: m.HereQuestion) -> Replied:
    return Reply(), {}


@answers(m.PrepareQuestion)
def _prepare(view: View, question: m.PrepareQuestion) -> Replied:
    cut_run(view)
    return Reply(), {}


@answers(m.LayerQuestion)
def _layer(view: View, question: m.LayerQuestion) -> Replied:
    header, arrays = layer_payload(part_of(view, question))
    return m.LayerAnswer(header=m.read(m.LayerHeader, header)), arrays


@answers(m.PictureQuestion)
def _picture(view: View, question: m.PictureQuestion) -> Replied:
    header, pixels = picture_payload(view, question.of) or ({}, np.zeros((0, 0, 3), np.uint8))
    answer = m.PictureAnswer(header=m.read(m.PictureHeader, header))
    return answer, {"pixels": pixels}


@answers(m.HeatmapQuestion)
def _heatmap(view: View, question: m.HeatmapQuestion) -> Replied:
    view = part_of(view, question).with_settings(heatmap=question.method)
    values = heatmap_of(view)
    if values is None:
        return Reply(none=""), {}
    return Reply(), {"heat": values}


@answers(m.HeatmapsQuestion)
def _heatmaps(view: View, question: m.HeatmapsQuestion) -> Replied:
    view = part_of(view, question).with_settings(heatmap=question.method)
    heats = {name: heatmap_of(for_layer(view, layer=name)) for name in layers_of(view)}
    return Reply(), {name: heat for name, heat in heats.items() if heat is not None}


@answers(m.SidesQuestion)
def _sides(view: View, question: m.SidesQuestion) -> Replied:
    sides = shown_sides(part_of(view, question).with_settings(heatmap=question.method))
    return m.SidesAnswer(method=sides.method), dict(
        zip(("first", "second"), sides.heats, strict=True)
    )


@answers(m.OutputQuestion)
def _output(view: View, question: m.OutputQuestion) -> Replied:
    shown = output_of(view).maps[question.which]
    return Reply(), map_values(shown, input_sample(view), question.channel)


@answers(m.FieldQuestion)
def _field(view: View, question: m.FieldQuestion) -> Replied:
    return m.read(m.FieldAnswer, field_payload(part_of(view, question))), {}


@answers(m.ValueQuestion)
def _value(view: View, question: m.ValueQuestion) -> Replied:
    layer, at = layer_of(part_of(view, question)), (question.channel, question.row, question.column)
    gradient = None if layer.gradients is None else str(float(layer.gradients[at]))
    return m.ValueAnswer(maps=str(float(layer.maps[at])), gradients=gradient), {}


@answers(m.ScoresQuestion)
def _scores(view: View, question: m.ScoresQuestion) -> Replied:
    at: dict[str, Any] = {"order": question.order, "reference_channel": question.reference_channel}
    scores = order_scores(part_of(view, question).with_settings(**at))
    if scores is None:
        return Reply(none=""), {}
    return Reply(), {"scores": scores}


@answers(m.AblationQuestion)
def _ablation(view: View, question: m.AblationQuestion) -> Replied:
    view = edited_part(view, question)
    share, drops = ablate(view, PART), score_drops(view)
    if share < 1 or drops is None:
        return m.AblationAnswer(share=share), {}
    order = channel_order(layer_of(view), SCORE_DROP, drops).astype(np.uint32)
    return m.AblationAnswer(share=share), {"drops": drops, "order": order}


@answers(m.FlipQuestion)
def _flip(view: View, question: m.FlipQuestion) -> Replied:
    view = edited_part(view, question)
    flip = flip_of(view, question.channels)
    share = flip.work(PART)
    name = partial(class_name, class_names=view.session.class_names)
    answer = m.FlipAnswer(
        share=share,
        curve=flip.curve,
        answer=name(flip.answer),
        flipped=None if flip.flipped is None else name(flip.flipped),
        channels=flip.channels,
    )
    return answer, {}


@answers(m.MapQuestion)
def _map(view: View, question: m.MapQuestion) -> Replied:
    header, arrays = map_payload(part_of(view, question))
    program = (STATIC / "dagre.js").read_text(encoding="utf-8")
    answer = m.read(m.MapAnswer, header | {"program": program})
    return answer, arrays


def _asked(question: Question) -> dict[str, Any]:
    """Return the fields of a question that the browser has set."""
    return {name: value for name, value in asdict(question).items() if value is not None}


# A walk leads to layers that were not captured, too: there is no view of them.


@answers(m.WhyQuestion)
def _why(view: View, question: m.WhyQuestion) -> Replied:
    said, arrays = reason_payload(view, _asked(question))
    return m.read(m.WhyAnswer, said), arrays


@answers(m.WeightsQuestion)
def _weights(view: View, question: m.WeightsQuestion) -> Replied:
    said, arrays = weights_payload(view, _asked(question))
    return m.read(m.WeightsAnswer, said), arrays


@answers(m.FeatureQuestion)
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


@answers(m.WithoutQuestion)
def _without(view: View, question: m.WithoutQuestion) -> Replied:
    return m.read(m.WithoutAnswer, without_payload(view, _asked(question))), {}
