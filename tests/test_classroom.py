"""Guided pages, and the table of the answers that were handed in."""

import json
import os
import re

import pytest

import hookviz
from hookviz.classroom import Grades, Step, grade

CHANNEL = Step(
    "Which channel?", {"layer": "layer3.0.conv1"}, {"channel": [17, 20]}, "Try the order."
)
SHARE = Step("Which share is negative?", answer=0.25, tolerance=0.1)
WHICH = Step("Which animal?", answer=["cat", "Egyptian cat"])
CHOICE = Step("Which layer?", answer="stem.0", choices=["stem.0", "layer1.0.conv1"])
OPEN = Step("Why?")
STEPS = [CHANNEL, SHARE, WHICH, CHOICE, OPEN]

GIVEN = [  # also judged by the page's own code, in test_javascript.py
    (CHANNEL, {"channel": 17}, True),
    (CHANNEL, {"channel": 20, "layer": "x"}, True),
    (CHANNEL, {"channel": 3}, False),
    (CHANNEL, {}, False),
    (Step("?", answer={"position": (5, 8)}), {"position": [5, 8]}, True),
    (Step("?", answer={"position": (5, 8)}), {"position": [8, 5]}, False),
    (Step("?", answer={"position": [(5, 8), (6, 8)]}), {"position": [6, 8]}, True),
    (Step("?", answer={"position": (5, 8)}), {"position": None}, False),
    (SHARE, "0.25", True),
    (SHARE, " 0,27 ", True),
    (SHARE, "0.274", True),
    (SHARE, "0.28", False),
    (SHARE, "−0.25", False),
    (SHARE, "a quarter", False),
    (SHARE, "", False),
    (Step("?", answer=0.0), "0.005", True),
    (Step("?", answer=0.0), "0.02", False),
    (Step("?", answer=96), "96,0", True),
    (Step("?", answer=96), "95.9", False),
    (Step("?", answer=2048, tolerance=0.01), "2040", True),
    (Step("?", answer=0), "0.005", False),
    (Step("?", answer=-3), "−3", True),
    (Step("?", answer=1e3), "1005", True),
    (WHICH, " egyptian  CAT", True),
    (WHICH, "Cat", True),
    (WHICH, "dog", False),
    (WHICH, "", False),
    (CHOICE, "stem.0", True),
    (CHOICE, "layer1.0.conv1", False),
    (OPEN, "because", None),
    (OPEN, "", None),
]


@pytest.mark.parametrize(("step", "given", "right"), GIVEN)
def test_right_or_not(step, given, right):
    assert step.right(given) is right


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"question": "  "}, ValueError, "has no text"),
        ({"question": "?", "state": {"colour": 1}}, ValueError, "'colour' is not a setting"),
        ({"question": "?", "answer": {"chanel": 1}}, ValueError, "'chanel' is not a setting"),
        ({"question": "?", "answer": True}, TypeError, "answer=True cannot be checked"),
        ({"question": "?", "answer": []}, TypeError, "cannot be checked"),
        ({"question": "?", "answer": "c", "choices": ["a", "b"]}, ValueError, "is not one of"),
    ],
)
def test_a_step_that_cannot_be(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Step(**arguments)


@pytest.fixture(scope="module")
def explorer():
    made = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[3], layers="layer3.*")
    yield made
    made.close()


def facts_of(page):
    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page)[1]
    return json.loads(text)["facts"]


def test_the_page_has_the_steps(explorer):
    page = explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=STEPS, title="Eyes")
    lesson = facts_of(page)["lesson"]
    assert '<html lang="en">' in page  # screen readers choose the voice by it
    assert lesson["title"] == "Eyes"
    assert [step["kind"] for step in lesson["steps"]] == ["view", "number", "text", "text", "open"]
    first = lesson["steps"][0]
    assert first["state"] == {"layer": "layer3.0.conv1", "channel": explorer.channel}
    assert first["answer"] == {"channel": [17, 20]}
    assert lesson["steps"][1]["state"] is None
    other = explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=[OPEN])
    assert facts_of(other)["lesson"]["id"] != lesson["id"]
    assert facts_of(explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6))["lesson"] is None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("?", {"layer": "stem.0"}), "Step 2: layer 'stem.0' is not in the page"),
        (Step("?", {"channel": 999}), "Step 2: channel=999 is not in"),
        (Step("?", {"heatmap": "gradcm"}), "Step 2: Unknown heatmap 'gradcm'"),
    ],
)
def test_a_state_that_cannot_be_shown(explorer, step, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=[OPEN, step])


def test_what_is_not_a_step(explorer):
    with pytest.raises(TypeError, match=r"steps\[0\]='Why\?' is not a hookviz.classroom.Step"):
        explorer.to_html(max_bytes=1e6, layers="layer3.0.conv1", steps=["Why?"])


# What is handed in


def sheet(name, given, lesson="a1", tries=1):
    answers = [
        {"question": step.question, "given": each, "right": step.right(each), "tries": tries}
        if each is not None
        else {"question": step.question, "given": None, "right": None, "tries": 0}
        for step, each in zip(STEPS, given, strict=True)
    ]
    told = {"kind": "hookviz answers", "lesson": lesson, "title": "Eyes", "name": name}
    return told | {"answers": answers}


@pytest.fixture
def folder(tmp_path):
    ada = sheet("Ada", [{"channel": 17}, "0.25", "cat", "stem.0", "so"])
    bob = sheet("", [{"channel": 1}, "2", None, "stem.0", None], tries=2)
    for name, told in (("x", ada), ("bob", bob)):
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    return tmp_path


def test_a_table_of_all(folder):
    table = hookviz.grade(folder)
    assert isinstance(table, Grades)
    assert [sheet.name for sheet in table] == ["Ada", "bob"]  # who gave no name has the file's
    assert [sheet.points for sheet in table] == [4, 1]
    assert table.questions == [step.question for step in STEPS]
    assert [answer.mark for answer in table[0].answers] == ["✓", "✓", "✓", "✓", "–"]
    assert [answer.mark for answer in table[1].answers] == ["✗", "✗", "", "✓", ""]
    assert "question 1 is without a right answer in 1 of them" in table.verdict
    assert max(map(len, repr(table).splitlines())) <= 80
    assert "3: Which animal?" in repr(table)
    rows = json.loads(json.dumps(table.records(), allow_nan=False))
    assert len(rows) == 10 and rows[5]["given"] == {"channel": 1}
    assert "<td" in table.to_html() and "Ada" in table.to_html()
    for same in (str(folder / "*.json"), [folder / "x.json", folder / "bob.json"]):
        assert [sheet.points for sheet in grade(same)] == [4, 1]


def test_marks_are_judged_anew(folder):
    told = json.loads((folder / "bob.json").read_text())
    for answer in told["answers"]:
        answer["right"] = True  # a student can write this
    (folder / "bob.json").write_text(json.dumps(told))
    assert grade(folder)[1].points == 5
    assert grade(folder, STEPS)[1].points == 1
    with pytest.raises(ValueError, match="has other questions than steps="):
        grade(folder, STEPS[:2])


def test_what_is_not_an_answer(folder):
    with pytest.raises(FileNotFoundError, match="No answers at nowhere"):
        grade("nowhere")
    (folder / "y.json").write_text(json.dumps(sheet("Eve", [None] * 5, lesson="b2")))
    with pytest.raises(ValueError, match="are of two different pages"):
        grade(folder)
    for text in ("{", "[]", "{}", '{"answers": [], "lesson": 1, "title": 2, "name": 3}'):
        (folder / "y.json").write_text(text)
        with pytest.raises(ValueError, match="does not hold the answers of a page"):
            grade(folder / "y.json")
    if hasattr(os, "mkfifo"):  # not on Windows
        os.mkfifo(folder / "pipe.json")
        with pytest.raises(ValueError, match="does not hold the answers of a page"):
            grade(folder / "pipe.json")
