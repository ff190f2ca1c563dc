"""Two runs side by side in JupyterLab."""

from __future__ import annotations

import pytest
from front_end import PLAIN_MAP, WIDGETS, wait_for
from playwright.sync_api import expect

TWO_PICTURES = [
    "import hookviz",
    "model, pictures = hookviz.demo_model(), hookviz.demo_images()",
    "both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()\n"
    "both.layer, both.channel = 'stem.0', 0\nboth",
]
PORTED = [
    "import copy, hookviz",
    "model = hookviz.demo_model()\nport = copy.deepcopy(model)\nport.layer3[0].bn1.eps = 0.1\n"
    "comparison = hookviz.compare(model, port, hookviz.demo_images()[6])\ncomparison",
    "comparison.show()",
]


@pytest.mark.heavy  # test_side_by_side.py moves the same controls without a browser
def test_the_plain_face_of_a_pair_shows_the_difference_and_each_run(open_notebook):
    notebook = open_notebook(TWO_PICTURES)
    page = notebook.page
    shown = page.locator(PLAIN_MAP)
    shown.wait_for()
    begin = "b less a: channel 0 of 24"
    wait_for(lambda: shown.get_attribute("alt").startswith(begin), "the difference")
    slider = page.locator(".hookviz-by-channel").locator(".noUi-handle, .ui-slider-handle")
    slider.focus()
    slider.press("ArrowRight")
    wait_for(lambda: "channel 1 of 24" in shown.get_attribute("alt"), "the next channel")
    run = page.get_by_role("combobox", name="run", exact=True)
    names = [
        name.replace("\N{NO-BREAK SPACE}", " ") for name in run.locator("option").all_inner_texts()
    ]
    assert names == ["b", "a", "b − a"]
    run.select_option("b")
    wait_for(lambda: shown.get_attribute("alt").startswith("channel 1"), "b itself")
    assert notebook.errors == []


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_a_click_on_a_row_of_the_table_goes_to_its_layer(open_canvas):
    notebook, app = open_canvas(*PORTED)
    page = notebook.page
    heading, rows = app.locator("h2.hv-name"), page.get_by_role("listbox")
    expect(heading).to_have_text("layer3.0.bn1")
    chosen = rows.locator("option:checked")
    expect(chosen).to_contain_text("first: layer3.0.bn1")
    rows.locator("option", has_text="layer3.1.relu (call 1)").click()
    expect(heading).to_have_text("layer3.1.relu")  # it was not captured before the click
    expect(app.get_by_role("slider", name="call")).to_have_value("1")
    app.get_by_role("slider", name="layer").press("Home")
    expect(chosen).to_contain_text("equal")
    assert notebook.errors == []
