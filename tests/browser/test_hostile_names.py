"""No script in a name runs on any page or in JupyterLab."""

from __future__ import annotations

from pathlib import Path

import hostile
import pytest
from front_end import wait_for, wait_for_tiles
from hostile import NAME, RESULTS, X, hostile_model, hostile_steps
from playwright.sync_api import expect

import hookviz

WITHOUT_PAGE = ("capture", "record", "survey of a layer")


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in WITHOUT_PAGE])
def test_no_script_of_a_name_runs(shown, name):
    page = shown(RESULTS[name]().to_html(title=NAME))
    assert "hacked=1" in page.locator("body").inner_text() + page.title()
    assert page.evaluate("globalThis.hacked") is None


@pytest.mark.parametrize("network", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_scripts_in_questions_and_answers_are_shown_as_text(shown, network, tmp_path):
    """Go from the question to the table of answers, also on a page that runs its network."""
    if network:
        pytest.importorskip("onnxscript", reason="the oldest versions have no such export")
    explorer = hookviz.explore(hostile_model(), X[:1], class_names=[NAME, f"b{NAME}", "c"])
    steps = hostile_steps(explorer.frame.target if network else None)
    options = {"network": True} if network else {}
    page = shown(explorer.to_html(title=NAME, steps=steps, **options))
    wait_for_tiles(page)
    lesson = page.get_by_role("region", name="questions")
    verdict, check = lesson.get_by_role("status"), lesson.get_by_role("button", name="check")
    lesson.get_by_role("textbox", name="your name").fill(NAME)
    lesson.get_by_role("combobox", name="your answer").select_option(index=2)
    check.click()
    expect(verdict).to_contain_text("not right")  # with the hint
    lesson.get_by_role("combobox", name="your answer").select_option(index=1)
    check.click()
    expect(verdict).to_contain_text("right")  # with the explanation
    for step in steps[1:]:
        lesson.get_by_role("button", name="next").click()
        if step.kind == "view":
            check.click()
            expect(verdict).to_contain_text("right" if step.answer.get("channel") == 1 else "")
        else:
            lesson.get_by_role("textbox", name="your answer").fill(NAME)
            lesson.get_by_role("button", name="answer", exact=True).click()
    with page.expect_download() as download:
        lesson.get_by_role("button", name="save answers").click()
    file = tmp_path / "answers.json"
    download.value.save_as(file)
    assert "hacked=1" in page.locator("body").inner_text()
    assert page.evaluate("globalThis.hacked") is None

    table = shown(hookviz.grade(file, steps).to_html())
    assert "hacked=1" in table.locator("body").inner_text()
    assert table.evaluate("globalThis.hacked") is None


def test_no_script_of_a_name_runs_in_a_notebook(open_notebook):
    """Display all results, with their tables, pictures and pages."""
    tests = Path(hostile.__file__).parent
    cells = [f"import sys; sys.path.insert(0, {str(tests)!r})\nfrom hostile import RESULTS"]
    cells += [f"RESULTS[{name!r}]()" for name in RESULTS]
    cells += ["RESULTS['explorer']().page(title=RESULTS['explorer']().frame.target)"]
    notebook = open_notebook(cells)
    notebook.settle()
    assert "hacked=1" in notebook.page.locator("body").inner_text()
    wait_for(lambda: len(notebook.page.frames) > 1, "the pages, which are frames")
    for frame in notebook.page.frames:
        frame.wait_for_load_state()
        assert frame.evaluate("globalThis.hacked") is None
        assert frame.locator("img[src=x]").count() == 0
