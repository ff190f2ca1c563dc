"""Names with escape sequences cannot control the terminal that prints a result."""

import json

import pytest
import torch
from hostile import CLEARS

import hookviz
from hookviz.__main__ import main
from hookviz.tables import visible


def test_escape_sequences_in_student_names_are_printed_as_text(tmp_path):
    answer = {"question": CLEARS, "given": CLEARS, "right": True, "tries": 1}
    told = {"kind": "hookviz answers", "lesson": "a", "title": CLEARS, "name": f"Eve{CLEARS}"}
    content = told | {"answers": [answer], "saved": ""}
    (tmp_path / "eve.json").write_text(json.dumps(content))
    text = repr(hookviz.grade(tmp_path))
    assert "Eve\\x1b" in text and "\x1b" not in text


def test_escape_sequences_in_command_line_errors_are_printed_as_text(capsys):
    assert main(["page", f"nowhere{CLEARS}:build", "photo.png", "-o", "view.html"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        lambda model: hookviz.capture(model, "nope"),
        lambda model: hookviz.capture(model, torch.nn.ReLU),
        lambda model: hookviz.capture(model),
        lambda model: hookviz.capture(model, torch.nn.ReLU()),
        lambda model: hookviz.trace(model, (torch.rand(1, 2), 1)),
        lambda model: hookviz.capture(torch.jit.script(model), "0"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_escape_sequences_in_the_class_of_a_model_are_escaped_in_errors(call):
    model = type("Net\x1b[31m", (torch.nn.Sequential,), {})(torch.nn.Linear(2, 2))
    with pytest.raises((ValueError, TypeError, RuntimeError)) as error:
        call(model)
    assert r"Net\x1b[31m" in str(error.value) and "\x1b" not in str(error.value)


def test_letters_of_all_languages_are_printed_unchanged():
    text = "Käfer 猫 🐈\u200d⬛ العربية"
    assert visible(text) == text
    assert visible("half \ud83d") == "half \\ud83d"  # a lone surrogate cannot be encoded
