"""The hooks tutorial in a real notebook: all of its cells, and a slider of one lesson."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_end import wait_for

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "hooks_tutorial.ipynb"


@pytest.mark.heavy
def test_the_whole_tutorial_runs_without_errors_and_its_sliders_move(open_notebook):
    """In lesson 5, w = 2, x = 3 and t = 5 give 2, 4 and 6, by hooks and by hand."""
    notebook = open_notebook(TUTORIAL)
    page = notebook.page
    view = page.locator(".widget-vbox", has_text="dL/dŷ").filter(has_text="grad_output[0]")
    view.scroll_into_view_if_needed()

    def numbers():
        rows = view.locator("tbody tr").all()
        return [row.locator("td").all_inner_texts()[2:4] for row in rows]

    wait_for(lambda: numbers() == [["2", "2"], ["4", "4"], ["6", "6"]], "the table")
    view.get_by_role("slider", name="w", exact=True).focus()
    page.keyboard.press("ArrowRight")
    # w = 2.5: ŷ = 7.5, dL/dŷ = 2 (7.5 − 5) = 5, dL/dx = 2.5 · 5, dL/dw = 3 · 5
    wait_for(lambda: numbers() == [["5", "5"], ["12.5", "12.5"], ["15", "15"]])
