"""Guided pages, and the table of the students' answers."""

import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from demo import explore_demo
from torch import nn

import hookviz
from hookviz.classroom import Grades, Step, grade
from hookviz.export.lesson import lesson_payload
from hookviz.view.payload import model_payload

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
    (Step("?", answer={"position": (5, 8)}), {"position": [5, 8]}, True),
    (Step("?", answer={"position": (5, 8)}), {"position": [8, 5]}, False),
    (Step("?", answer={"position": [(5, 8), (6, 8)]}), {"position": [6, 8]}, True),
    (Step("?", answer={"position": (5, 8)}), {"position": None}, False),
    (SHARE, "0.25", True),
    (SHARE, " 0,27 ", True),
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
    (WHICH, "dog", False),
    (CHOICE, "stem.0", True),
    (CHOICE, "layer1.0.conv1", False),
    (Step("?", answer={"off": ("a", 3)}), {"off": ["a", 3]}, True),
    (Step("?", answer={"off": [("a", 3), ("b", 1)]}), {"off": ["b", 1]}, True),
    (Step("?", answer={"off": ("a", 3)}), {"off": [["a", 3], ["a", 4]]}, False),
    (Step("?", answer={"prediction": 3}), {"prediction": 3}, True),
    (Step("?", answer={"prediction": [1, 3]}), {"prediction": 2}, False),
    (OPEN, "because", None),
]


@pytest.mark.parametrize(("step", "given", "right"), GIVEN)
def test_answers_are_marked_right_wrong_or_open(step, given, right):
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
        ({"question": "?", "answer": 1, "choices": ["a", "b"]}, ValueError, "is not one of"),
        ({"question": "?", "answer": math.inf}, ValueError, "give a finite number"),
        *(
            ({"question": "?", "answer": 1, "tolerance": wrong}, ValueError, f"{wrong!r} cannot")
            for wrong in (-1, math.nan, math.inf, "1 %", True)
        ),
        ({"question": "?", "answer": {"prediction": [3, "a"]}}, ValueError, "cannot be compared"),
        ({"question": "?", "answer": {"prediction": 3.5}}, ValueError, "cannot be compared"),
        ({"question": "?", "state": {"off": ("a", 1)}}, ValueError, "'off' is not a setting"),
    ],
)
def test_steps_with_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Step(**arguments)


@pytest.fixture(scope="module")
def explorer():
    made = explore_demo(3, layers="layer3.*")
    yield made
    made.close()


def facts_of(page):
    text = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page)[1]
    return json.loads(text)["facts"]


def test_a_page_contains_the_steps_with_their_full_views(explorer):
    steps = [*STEPS, Step("?", {"channel": 3}), Step("Now?")]
    page = explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=steps, title="Eyes")
    lesson = facts_of(page)["lesson"]
    assert lesson["title"] == "Eyes"
    kinds = [step["kind"] for step in lesson["steps"]]
    assert kinds == ["view", "number", "text", "text", "open", "open", "open"]
    assert lesson["steps"][0]["answer"] == {"channel": [17, 20]}
    first, *_, sixth, seventh = [step["state"] for step in lesson["steps"]]
    assert (first["layer"], first["channel"]) == ("layer3.0.conv1", explorer.channel)
    # Each step sets the whole view: settings that it does not name are those of the step before.
    assert sixth == seventh == first | {"channel": 3}
    other = explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=[OPEN])
    assert facts_of(other)["lesson"]["id"] != lesson["id"]
    assert facts_of(explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6))["lesson"] is None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("?", {"layer": "stem.0"}), "layer 'stem.0' is not in the page"),
        (Step("?", {"channel": 999}), "channel=999 is not in"),
        (Step("?", {"heatmap": "gradcm"}), "Unknown heatmap 'gradcm'"),
        (Step("?", answer={"channel": 960}), "channel=960 is not in"),
        (Step("?", answer={"channel": [3, 96]}), "channel=96 is not in"),
        (Step("?", answer={"layer": "stem.0"}), "layer 'stem.0' is not in the page"),
        (Step("?", answer={"position": (14, 0)}), "position=[14, 0] is not in layer"),
        (Step("?", answer={"off": ("layer3.0.conv1", 1)}), "write it with network=True"),
    ],
)
def test_a_view_that_the_page_cannot_show_is_refused(explorer, step, message):
    with pytest.raises(ValueError, match=f"Step 2: .*{re.escape(message)}"):
        explorer.to_html(layers="layer3.0.conv1", max_bytes=1e6, steps=[OPEN, step])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"prediction": "fsh"}, r"no class is called 'fsh'; .*'fish'"),
        ({"prediction": "3"}, r"no class is called '3'; there are: 'ball', "),
        ({"prediction": -1}, r"prediction=-1 is not one of the numbers 0 to \d+\."),
        ({"off": ("layer3.0.conv1", 96)}, "channel=96 is not in"),
    ],
)
def test_a_network_page_refuses_impossible_answers_before_the_export(
    explorer, answer, message, monkeypatch
):
    monkeypatch.setattr("hookviz.export.network.page.export_network", None)
    with pytest.raises(ValueError, match=f"Step 1: {message}"):
        explorer.to_html(network=True, steps=[Step("?", answer=answer)])


def test_outputs_without_names_are_answers_by_number_or_as_shown():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 4)).eval()
    explorer = hookviz.explore(model, torch.rand(1, 1, 5, 5))
    view = explorer.displayed()
    explorer.close()
    facts = model_payload(view) | {"net": {}}
    for value in (3, "output 3"):
        (step,) = lesson_payload([Step("?", answer={"prediction": value})], view, facts, "")[
            "steps"
        ]
        assert step["answer"] == {"prediction": [value]}
    for value, message in (
        (4, "Step 1: prediction=4 is not one of the numbers 0 to 3."),
        ("moon", "Step 1: no output is called 'moon'; there are: 'output 0', "),
    ):
        with pytest.raises(ValueError, match=message):
            lesson_payload([Step("?", answer={"prediction": value})], view, facts, "")


def test_steps_of_a_wrong_type_are_refused(explorer):
    with pytest.raises(TypeError, match=r"steps\[0\]='Why\?' is not a hookviz.classroom.Step"):
        explorer.to_html(max_bytes=1e6, layers="layer3.0.conv1", steps=["Why?"])


# The students' answers


def sheet(name, given, saved="", steps=STEPS):
    answers = [
        {"question": step.question, "given": each, "right": step.right(each), "tries": 1}
        if each is not None
        else {"question": step.question, "given": None, "right": None, "tries": 0}
        for step, each in zip(steps, given, strict=True)
    ]
    content = {"kind": "hookviz answers", "title": "Eyes", "name": name, "saved": saved}
    return content | {"answers": answers}


@pytest.fixture
def folder(tmp_path):
    ada = sheet("Ada", [{"channel": 17}, "0.25", "cat", "stem.0", "since it has edges"])
    bob = sheet("", [{"channel": 1}, "2", None, "stem.0", None])
    for name, content in (("x", ada), ("bob", bob)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_grade_makes_a_table_of_all_students(folder):
    table = hookviz.grade(folder)
    assert isinstance(table, Grades)
    assert [sheet.name for sheet in table] == [
        "Ada",
        "bob",
    ]  # a student without a name gets that of the file
    assert [sheet.points for sheet in table] == [4, 1]
    assert table.questions == [step.question for step in STEPS]
    assert [answer.mark for answer in table[0].answers] == ["✓", "✓", "✓", "✓", "–"]
    assert [answer.mark for answer in table[1].answers] == ["✗", "✗", "", "✓", ""]
    assert table.verdict == "2 students; question 1: 1 of 2 without a right answer"
    assert max(map(len, repr(table).splitlines())) <= 80
    assert "3: Which animal?" in repr(table) and "Ada: since it has edges" in repr(table)
    rows = json.loads(json.dumps(table.records(), allow_nan=False))
    assert len(rows) == 10 and rows[5]["given"] == {"channel": 1}
    page = table.to_html()
    for text in ("since it has edges", "<th>5. Why?</th>", "<td>✗ channel 1</td>", "Ada"):
        assert text in page
    for same in (str(folder / "*.json"), [folder / "x.json", folder / "bob.json"]):
        assert [sheet.points for sheet in grade(same)] == [4, 1]


RIGHT = [{"channel": 17}, "0.25", "cat", "stem.0", "since it has edges"]


@pytest.mark.parametrize(
    ("steps", "given", "verdict"),
    [
        (STEPS, RIGHT, "3 students, all right"),
        (None, RIGHT, "3 students, all right"),
        (STEPS, [*RIGHT[:4], None], "3 students, all right"),  # the last question is open
        (None, [*RIGHT[:4], None], "3 students; question 5: 3 of 3 without an answer"),
        (STEPS, [RIGHT[0], *[None] * 4], "3 students; question 2: 3 of 3 without an answer"),
        (None, [RIGHT[0], *[None] * 4], "3 students; question 2: 3 of 3 without an answer"),
        (STEPS, [*RIGHT[:3], "x", None], "3 students; question 4: 3 of 3 without a right answer"),
    ],
)
def test_all_is_right_only_if_each_marked_question_is(tmp_path, steps, given, verdict):
    for name in ("Ada", "Bob", "Eve"):
        (tmp_path / f"{name}.json").write_text(json.dumps(sheet(name, given)))
    assert grade(tmp_path, steps).verdict == verdict


def test_grade_marks_answers_itself_if_it_gets_the_steps(folder):
    content = json.loads((folder / "bob.json").read_text())
    for answer in content["answers"]:
        answer["right"] = True  # a student could edit the file like this
    (folder / "bob.json").write_text(json.dumps(content))
    assert grade(folder)[1].points == 5
    assert grade(folder, STEPS)[1].points == 1
    with pytest.raises(ValueError, match="No file holds answers of the page; .*another page"):
        grade(folder, STEPS[:2])


def test_unreadable_files_are_listed_and_the_others_graded(folder):
    broken = ["{", "[]", "{}", '{"answers": [], "kind": "hookviz answers", "title": 2, "name": 3}']
    valid = json.dumps(sheet("Odd", ["1"] * 5))
    broken += ["[" * 100_000, valid.replace('"tries": 1', '"tries": 1e999')]
    broken += [valid.replace('"tries": 1', f'"tries": {tries}') for tries in ("Infinity", "null")]
    for number, text in enumerate(broken):
        (folder / f"broken{number}.json").write_text(text)
    (folder / "foreign.json").write_text(json.dumps(sheet("Eve", [None], steps=[OPEN])))
    if hasattr(os, "mkfifo"):  # not on Windows
        os.mkfifo(folder / "pipe.json")
    for table in (grade(folder), grade(folder, STEPS)):
        assert [sheet.name for sheet in table] == ["Ada", "bob"]
        reasons = {Path(file).name: why for file, why in table.left_out.items()}
        assert reasons["foreign.json"] == "the questions are those of another page"
        assert all("save answers" in reasons[f"broken{number}.json"] for number in range(4))
        if hasattr(os, "mkfifo"):
            assert reasons["pipe.json"] == "not a regular file"
        assert f"{len(reasons)} files left out" in table.verdict
        assert "foreign.json" in table.to_html() and "foreign.json" in repr(table)
    with pytest.raises(ValueError, match="No file holds answers of the page; .*broken0.json"):
        grade(folder / "broken0.json")
    with pytest.raises(FileNotFoundError, match="No answers at nowhere"):
        grade("nowhere")


@pytest.mark.parametrize("no_files", [[], iter(()), [[], []]])
def test_grade_of_no_files_asks_for_some(no_files):
    with pytest.raises(ValueError, match="files=.* names no file: give a file, a folder or a"):
        grade(no_files)


def test_a_folder_without_answers_is_left_out_with_the_reason(folder, monkeypatch):
    (folder / "empty").mkdir()
    left_out = grade([folder, folder / "empty"]).left_out
    assert left_out == {str(folder / "empty"): "a folder without *.json files"}
    with pytest.raises(ValueError, match=r"empty: a folder without \*\.json files\.$"):
        grade(folder / "empty")
    monkeypatch.chdir(folder / "empty")
    with pytest.raises(ValueError, match=r"\.: a folder without \*\.json files\.$"):
        grade(".")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((5,), TypeError, "files=5 is not a path: give a file, a folder or a pattern"),
        (([None],), TypeError, "files=None is not a path"),
        (("x.json", ["text"]), TypeError, "steps[0]='text' is not a hookviz.classroom.Step"),
        (("x.json", OPEN), TypeError, "steps= is a single Step: give a list"),
        (("x.json", []), ValueError, "steps= is empty: give those of the page"),
    ],
)
def test_grade_refuses_wrong_types(folder, monkeypatch, arguments, error, message):
    monkeypatch.chdir(folder)
    with pytest.raises(error, match=re.escape(message)):
        grade(*arguments)


def test_steps_may_come_from_a_generator(folder):
    assert [sheet.points for sheet in grade(folder, iter(STEPS))] == [4, 1]


def test_files_with_a_byte_order_mark_or_half_a_character_are_read(folder):
    content = json.dumps(sheet("Odd", ["1"] * 5)).replace('"right": false', '"right": "yes"')
    (folder / "mark.json").write_text(content, encoding="utf-8-sig")
    (folder / "half.json").write_text(content.replace('"Odd"', '"\\ud83d"'))
    assert grade(folder)[2].points == 0  # a text in place of a mark does not count
    table = grade(folder, STEPS)
    assert [sheet.name for sheet in table] == ["Ada", "bob", "Odd", "\ufffd"]
    assert not table.left_out and table.to_html().encode()


def test_the_newest_file_of_a_student_counts(folder):
    for name, saved, given in (("new", "2026-11-02T10:00Z", "0.25"), ("old", "2026-11-01", "9")):
        content = sheet(" Grace  hopper", [None, given, None, None, None], saved)
        (folder / f"{name}.json").write_text(json.dumps(content))
    table = grade(folder, STEPS)
    assert [sheet.name for sheet in table] == ["Ada", "bob", "Grace  hopper"]
    assert table[2].points == 1 and table[2].file.endswith("new.json")
    assert table.left_out == {str(folder / "old.json"): "an older file of Grace  hopper"}
