"""The steps of docs/howto/why.md by clicks, from "tiger cat" to a pixel of an eye."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import why_walk

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
EYE = (295, 108, 343, 166)
"""Left, top, right and bottom of the eye on the right of the photograph."""


@pytest.fixture(scope="module")
def walked():
    explorer = why_walk.explored(face="plain")
    yield explorer, why_walk.walk(explorer)
    explorer.close()


def places(table):
    """Return layer, channel and position of each line."""
    return re.findall(r"^(\S+) +(\d+)  \((.*?)\)", table, re.MULTILINE)


def test_the_steps_equal_those_in_the_documentation_and_end_in_an_eye(walked):
    _, steps = walked
    found = places(why_walk.table(steps))
    text = (ROOT / "docs/howto/why.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```text\n(layer .*?)```", text, re.DOTALL)
    assert found == places(table)
    assert (found[0][0], found[-1][0], len(steps)) == ("_fc", "input", 32)
    row, column = steps[-1][2].position
    left, top, right, bottom = EYE
    assert left < column < right and top < row < bottom
