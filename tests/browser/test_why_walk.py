"""The steps of docs/howto/why.md by clicks, from "tiger cat" to a pixel of an eye."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import why_walk
from front_end import wait_for

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


def checker(app):
    """Return a function that compares the panel's value with a step's."""
    total = app.locator(".hv-why .hv-why-sum")

    def seen(answer):
        wanted = pytest.approx(float(answer.value), rel=1e-3, abs=1e-4)
        wait_for(lambda: float(total.get_attribute("title") or "nan") == wanted, answer.layer)

    return seen


def test_the_steps_are_clicked_on_a_page(walked, shown):
    explorer, steps = walked
    page = shown(explorer.to_html(max_bytes=400e6))
    page.locator(".hv-tile").first.wait_for()
    why_walk.go(page, steps, checker(page))
    assert page.locator(".hv-why-trail button").count() == len(steps)
    row, column = steps[-1][0].position
    rows, columns = (rf"{2 * n}–{2 * n + 2}" for n in (row, column))
    sees = page.get_by_text(re.compile(rf"3×3 pixels, rows {rows}, columns {columns}$"))
    sees.first.wait_for()
