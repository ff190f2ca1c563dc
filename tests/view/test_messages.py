"""Messages between kernel and browser have the same types on both sides, and handlers."""

import json

import numpy as np
import pytest
import typescript
from browsing import Browser
from demo import explore_demo

from hookviz.view import messages
from hookviz.view.replies import HANDLERS as ANSWER_HANDLERS
from hookviz.widgets.requests import HANDLERS as REQUEST_HANDLERS

LAYER = "layer3.1.conv2"
PART = {"layer": LAYER, "call": 0, "sample": 0, "depth": 0}
QUESTIONS = {
    "layer": PART | {"shown_after": "output"},
    "heatmap": PART | {"method": "gradcam"},
    "heatmaps": {"sample": 0, "depth": 0, "method": "layercam"},
    "sides": PART | {"method": "gradcam"},
    "field": PART,
    "value": PART | {"channel": 1, "row": 2, "column": 3},
    "scores": PART | {"order": "similarity", "reference_channel": 3},
    "ablation": PART,
    "flip": PART | {"channels": [3, 1]},
    "map": {"sample": 0, "depth": 0},
    "here": {},
    "code": {"settings": {}},
    "file": {"settings": {}, "ending": "pdf"},
    "prepare": {},
    "picture": {"of": [0, 0.0, 0]},
    "why": PART | {"channel": 1, "place": [0.5, 0.5]},
    "weights": PART | {"channel": 1, "place": None},
    "feature": {"layer": LAYER, "channel": 1},
    "without": {
        **{"layer": LAYER, "call": 0, "sample": 0, "channel": 1},
        **{"position": [2, 3], "channels": [1]},
    },
}


@pytest.fixture(scope="module")
def explorer():
    made = explore_demo(6, ("moon", "fish"), layer=LAYER, face="canvas")
    yield made
    made.close()


def test_committed_typescript_types_are_up_to_date():
    """Run ``make messages`` if this fails."""
    assert typescript.FILE.read_text(encoding="utf-8") == typescript.text()


def test_each_question_and_each_request_has_one_handler():
    assert {*messages.QUESTIONS.values()} - {
        messages.CodeQuestion,
        messages.FileQuestion,
    } == ANSWER_HANDLERS.keys()
    assert {*messages.REQUESTS.values()} == REQUEST_HANDLERS.keys()
    assert QUESTIONS.keys() == messages.QUESTIONS.keys() - {"output"}  # only for dense outputs


@pytest.mark.parametrize("ask", QUESTIONS)
def test_each_question_is_answered(explorer, ask, monkeypatch):
    monkeypatch.setattr("hookviz.view.replies.FEATURE_STEPS", 2)
    answer, arrays = Browser(explorer).ask(ask, **QUESTIONS[ask])
    assert "none" not in answer and answer["ask"] == ask
    json.dumps(answer, allow_nan=False)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_unknown_fields_are_refused():
    with pytest.raises(ValueError, match="LayerQuestion has other fields than this message: lay"):
        messages.read_question({"ask": "layer", "key": "1", "lay": "conv"})
    with pytest.raises(ValueError, match="FactorRequest has other fields than this message: fac"):
        messages.read_request({"set": "factor", "layer": "conv", "channel": 1})


def test_a_message_survives_json():
    curve = [0.5, float("nan")]
    sent = messages.FlipAnswer(share=1.0, curve=curve, answer="a", flipped=None, channels=[])
    received = messages.read(messages.FlipAnswer, json.loads(json.dumps(messages.as_json(sent))))
    assert received.curve == [0.5, None] and received.flipped is None
