"""The button "code for this view" in a real notebook, pressed by keyboard."""

from __future__ import annotations

from front_end import wait_for, wait_for_names

import hookviz

CELLS = [
    "import hookviz\nmodel, image = hookviz.demo_model(), hookviz.demo_images()[6]\n"
    "hookviz.explore(model, image, layer='layer3.0.conv1', channel=16)",
]


def test_the_code_for_a_view_shows_its_hooks_and_can_be_selected(open_notebook, shots):
    notebook = open_notebook(CELLS)
    page = notebook.page
    widget = page.locator(".hookviz-explorer")
    wait_for_names(widget)
    twin = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer="stem.0")
    twin.layer, twin.channel = "layer3.0.conv1", 16

    listing = widget.locator("pre code")
    listing.wait_for(state="hidden")
    notebook.settle()  # the classic Notebook moves the focus to a cell that has run
    widget.get_by_role("button", name="code for this view").press("Enter")
    listing.wait_for(state="visible")
    wait_for(lambda: listing.text_content() == twin.code(), "the code")

    widget.get_by_role("slider", name="channel").press("ArrowRight")
    twin.channel = 17
    wait_for(lambda: listing.text_content() == twin.code(), "the next channel's code")
    assert "activation[0, 17]" in twin.code()
    assert page.locator(".jp-mod-editMode").count() == 0  # the notebook has received no key

    for theme in notebook.themes:
        notebook.theme(theme)
        listing.scroll_into_view_if_needed()
        page.screenshot(path=shots / f"hooks-{theme}.png")

    # Text selected by hand has the lines of the code.
    selected = listing.evaluate(
        "code => { const all = window.getSelection(); all.selectAllChildren(code);"
        " return all.toString(); }"
    )
    assert selected.strip() == twin.code().strip()

    widget.get_by_role("button", name="code for this view").press("Space")
    listing.wait_for(state="hidden")
    twin.close()
    assert notebook.errors == []
