"""Names with escape sequences cannot control the terminal that prints a result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hookviz
from hookviz.__main__ import main
from hookviz.tables import visible

CLEARS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
X = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def named_oddly() -> nn.Module:
    """A network whose class, layers and one hook have escape sequences in their names."""
    torch.manual_seed(0)
    model = type(f"Net{CLEARS}", (nn.Sequential,), {})()
    model.add_module(f"conv{CLEARS}", nn.Conv2d(3, 4, 3))
    model.add_module(f"new\nline{CLEARS}", nn.ReLU())
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flat", nn.Flatten())
    model.add_module(f"head{CLEARS}", nn.Linear(4, 3))

    def look(module: Any, args: Any, output: Any) -> None:
        """Do nothing."""

    look.__name__ = look.__qualname__ = f"look{CLEARS}"
    model[0].register_forward_hook(look)
    model[0].register_forward_hook(look)
    return model


def captured() -> Any:
    model = named_oddly()
    with hookviz.capture(model) as cache:
        model(X)
    return cache


def watched() -> Any:
    model = named_oddly()
    with hookviz.watch(model, every=1) as training:
        model(X).sum().backward()
    return training


LAYER = f"conv{CLEARS}"
RESULTS: dict[str, Callable[[], Any]] = {
    "capture": captured,
    "record": lambda: captured()[LAYER],
    "diagnose": lambda: hookviz.diagnose(named_oddly(), X),
    "diagnose NaN": lambda: hookviz.diagnose(named_oddly(), X * torch.nan)[0],
    "trace": lambda: hookviz.trace(named_oddly(), X),
    "graph": lambda: hookviz.graph(named_oddly(), X),
    "hooks": lambda: hookviz.hooks(named_oddly()),
    "a hook": lambda: hookviz.hooks(named_oddly())[0],
    "watch": watched,
    "survey": lambda: hookviz.survey(named_oddly(), list(X)),
    "survey of a layer": lambda: hookviz.survey(named_oddly(), list(X))[LAYER],
    "compare": lambda: hookviz.compare(named_oddly(), named_oddly(), X),
    "similarity": lambda: hookviz.similarity(named_oddly(), named_oddly(), [X]),
    "contributions": lambda: hookviz.contributions(
        named_oddly(), X, LAYER, channel=0, position=(1, 1)
    ),
    "receptive field": lambda: hookviz.receptive_field(named_oddly(), X, LAYER),
    "explorer": lambda: hookviz.explore(named_oddly(), X, class_names=[CLEARS] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints_no_control_characters(name):
    text = repr(RESULTS[name]())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert text.encode()


def test_students_names_are_printed_as_text(tmp_path):
    answer = {"question": CLEARS, "given": CLEARS, "right": True, "tries": 1}
    told = {"kind": "hookviz answers", "lesson": "a", "title": CLEARS, "name": f"Eve{CLEARS}"}
    content = told | {"answers": [answer], "saved": ""}
    (tmp_path / "eve.json").write_text(json.dumps(content))
    text = repr(hookviz.grade(tmp_path))
    assert "Eve\\x1b" in text and "\x1b" not in text


def test_errors_of_the_command_line_are_text(capsys):
    assert main(["page", f"nowhere{CLEARS}:build", "photo.png", "-o", "view.html"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_letters_of_all_languages_stay():
    text = "Käfer 猫 🐈\u200d⬛ العربية"
    assert visible(text) == text
    assert visible("half \ud83d") == "half \\ud83d"  # no terminal can write it
