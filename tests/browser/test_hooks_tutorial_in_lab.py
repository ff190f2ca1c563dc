"""The hooks tutorial in a real notebook: sliders, exercises and all sections."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from front_end import next_frame, wait_for

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "hooks_tutorial.ipynb"
CELLS = nbformat.read(TUTORIAL, 4).cells
SECTIONS = sum(cell.source.startswith("## ") for cell in CELLS if cell.cell_type == "markdown")
EXERCISES = sum(cell.source.startswith("answer_") for cell in CELLS if cell.cell_type == "code")
WIDGET = ".widget-vbox"
CELL, LINE = ".jp-CodeCell, .code_cell", ".cm-line, .CodeMirror-line"
HEADING = ".jp-RenderedMarkdown h2, .text_cell_render h2"
WIDTH = 1200


def cells_of(*words):
    """Return the tutorial's code cells that contain one of these words, in order."""
    cells = [cell.source for cell in nbformat.read(TUTORIAL, 4).cells if cell.cell_type == "code"]
    return [code for code in cells if any(word in code for word in words)]


@pytest.mark.heavy
def test_a_lesson_with_sliders_and_all_exercises_work(open_notebook):
    """Run the tools, the picture, a lesson with sliders, and all exercises."""
    needed = ("# @title Tools", "import gc\n", "# @title The picture", "def square(", "def chain(")
    lesson = ("def linear_example(", "def draw_5(", "class SaveOutput")
    exercises = ("# @title The check of", "# your answer")
    cells = cells_of("find_spec", *needed, *lesson, *exercises)
    notebook = open_notebook(cells)
    look_at_the_picture(notebook.page)
    move_the_linear_example(notebook.page)
    answer_exercises(notebook.page)
    assert notebook.errors == []


@pytest.mark.heavy
def test_the_whole_tutorial_runs_without_errors(open_notebook, shots):
    notebook = open_notebook(TUTORIAL)
    page = notebook.page
    move_the_linear_example(page)
    move_the_channel(page)
    look_at_the_picture(page)
    answer_exercises(page)
    for theme in notebook.themes:
        notebook.theme(theme)
        shoot_sections(page, shots, theme)
    assert notebook.errors == []


def move_the_linear_example(page):
    """In lesson 5, compare the hooks with a computation: w = 2, x = 3, t = 5 gives 2, 4, 6."""
    view = page.locator(WIDGET, has_text="dL/dŷ").filter(has_text="grad_output[0]")
    view.scroll_into_view_if_needed()

    def numbers():
        rows = view.locator("tbody tr").all()
        return [row.locator("td").all_inner_texts()[2:4] for row in rows]

    wait_for(lambda: numbers() == [["2", "2"], ["4", "4"], ["6", "6"]], "the table")
    view.get_by_role("slider", name="w", exact=True).focus()
    page.keyboard.press("ArrowRight")
    # w = 2.5: ŷ = 7.5, dL/dŷ = 2 (7.5 − 5) = 5, dL/dx = 2.5 · 5, dL/dw = 3 · 5
    wait_for(lambda: numbers() == [["5", "5"], ["12.5", "12.5"], ["15", "15"]])
    page.keyboard.press("ArrowLeft")
    wait_for(lambda: numbers() and numbers()[0] == ["2", "2"])


def move_the_channel(page):
    """In lesson 3, moving the rank slider shows a different channel and picture."""
    view = page.locator(WIDGET, has_text=", rank ")
    view.scroll_into_view_if_needed()

    def shown():
        picture = view.locator("img").nth(1)
        return picture.get_attribute("alt"), picture.get_attribute("src")

    before = shown()
    assert before[0].startswith("Channel ")
    view.get_by_role("slider", name="rank").focus()
    page.keyboard.press("ArrowRight")
    wait_for(lambda: shown()[0] != before[0] and shown()[1] != before[1])
    page.keyboard.press("ArrowLeft")
    wait_for(lambda: shown() == before)


def answer_exercises(page):
    """Check that each verdict has its words, the line, and the number of solved exercises."""
    answer(page, 1, "{'a', 'b'}", "Not yet", "b was made by", "line 1: answer_1 = {'a', 'b'}", 0)
    answer(page, 1, "{'a'}", "Right", "Only a is", "", 1)
    answer(page, 2, "lambda grad: grad[9]", "Error", "IndexError", "line 1: answer_2 = lambda", 1)
    answer(page, 3, "lambda *given: None", "Not yet", "nothing changed", "line 1: answer_3 =", 1)


def answer(page, number, typed, words, said, line, done):
    cell = page.locator(CELL, has_text=f"check_{number}(answer_{number})")
    cell.scroll_into_view_if_needed()
    cell.locator(LINE).first.click()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Shift+End")
    page.keyboard.insert_text(f"answer_{number} = {typed}")
    page.keyboard.press("Control+Enter")
    verdict = cell.get_by_role("status")
    wait_for(lambda: verdict.locator("b").inner_text().endswith(words))
    text = verdict.inner_text()
    assert said in text and line in text
    assert f"{done} of {EXERCISES} done" in text
    dots = verdict.get_by_role("img").get_attribute("aria-label")
    assert dots.startswith("done: 1; to do: 2" if done else "to do: 1, 2")


def look_at_the_picture(page):
    """Check that the picture is as wide as the page and has an alternative text."""
    picture = page.get_by_role("img", name="One forward and one backward through a module")
    drawn = "image => image.complete && image.naturalWidth > 0 && image.clientWidth > 600"
    wait_for(lambda: picture.evaluate(drawn), "the picture, as wide as the page")
    assert "3 tensor hook on y; 4 full backward pre-hook" in picture.get_attribute("alt")


def shoot_sections(page, folder, theme):
    """Take a screenshot of each section, from its heading to the next."""
    headings = page.locator(HEADING).all()
    assert len(headings) == SECTIONS
    for number, heading in enumerate(headings, 1):
        page.set_viewport_size({"width": WIDTH, "height": 1000})
        top = heading.bounding_box()["y"]
        bottom = headings[number].bounding_box()["y"] if number < len(headings) else top + 700
        page.set_viewport_size({"width": WIDTH, "height": round(min(bottom - top, 6000)) + 160})
        heading.evaluate("heading => heading.scrollIntoView({block: 'start'})")
        next_frame(page)
        page.screenshot(path=folder / f"tutorial-{number}-{theme}.png")
