"""Two runs side by side in JupyterLab."""

from __future__ import annotations

from front_end import needs_canvas
from playwright.sync_api import expect

PORTED = [
    "import copy, hookviz",
    "model = hookviz.demo_model()\nport = copy.deepcopy(model)\nport.layer3[0].bn1.eps = 0.1\n"
    "comparison = hookviz.compare(model, port, hookviz.demo_images()[6])\ncomparison",
    "comparison.show()",
]


@needs_canvas
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
