"""Notebook 7 and Voilà in a real browser show the explorer and its canvas and let them move."""

from __future__ import annotations

import pytest
from dashboard import Dashboard, Voila
from front_end import (
    CANVAS_ON,
    PLAIN_MAP,
    WIDGETS,
    canvas_pixels,
    wait_for,
    wait_for_names,
    wait_for_tiles,
    write_notebook,
)
from notebook7 import Notebook7, Notebook7Page
from playwright.sync_api import expect

pytestmark = [
    pytest.mark.heavy,  # starts separate servers, each with a kernel
    pytest.mark.skipif(WIDGETS < 8, reason="Notebook 7 and Voilà show widgets of ipywidgets 8"),
]
EXPLORE = "hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')"
CELL = f"import hookviz, ipywidgets\n{EXPLORE}"
# Show Python's values, so that a test can wait for them.
LIVE = f"""{CANVAS_ON}
explorer = {EXPLORE}
said = ipywidgets.Label('').add_class('said')
tell = lambda change: setattr(said, 'value', f'python has channel {{change["new"]}}')
explorer.observe(tell, 'channel')
back = ipywidgets.Button(description='python moves')
back.on_click(lambda _: setattr(explorer, 'channel', 7))
display(said, back)
explorer"""


@pytest.mark.parametrize(("front_end", "page_of"), [(Notebook7, Notebook7Page), (Voila, Dashboard)])
def test_both_faces_work_in_other_front_ends(front_end, page_of, browser, tmp_path):
    server = front_end(tmp_path)
    try:
        path = write_notebook(server.files / "explorer.ipynb", [CELL, LIVE])
        notebook = page_of(server, browser, path)
        page, app = notebook.page, notebook.page.locator(".hookviz-app")
        widget = page.locator(".hookviz-explorer").first
        picture = page.locator(PLAIN_MAP)
        wait_for_tiles(app)
        picture.first.wait_for()
        wait_for_names(widget)
        expect(picture).to_have_count(1)  # that of the first cell
        before = picture.get_attribute("src")
        widget.get_by_role("slider", name="channel").press("ArrowRight")
        wait_for(lambda: "channel 1 of 24" in picture.get_attribute("alt"), "the next channel")
        assert picture.get_attribute("src") != before  # the picture changes together with its words

        canvas = app.locator(".hv-activation canvas").first
        wait_for(lambda: canvas_pixels(canvas).any(), "the first map")
        wait_for(lambda: "on its way" not in app.inner_text(), "all pictures")
        before = canvas_pixels(canvas)

        app.get_by_role("slider", name="channel").press("ArrowRight")
        said = page.locator(".said").first
        expect(said).to_have_text("python has channel 1")
        wait_for(lambda: (canvas_pixels(canvas) != before).any(), "the next channel's map")

        page.get_by_role("button", name="python moves").click()
        slider = app.get_by_role("slider", name="channel")
        expect(slider).to_have_attribute("aria-valuetext", "channel 7 of 24")
        assert notebook.errors == []
        notebook.close()
    finally:
        server.close()
