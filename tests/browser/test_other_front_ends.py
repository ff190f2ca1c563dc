"""Notebook 7 and Voilà in a real browser show the explorer and its canvas and let them move."""

from __future__ import annotations

import pytest
from dashboard import Dashboard, Voila
from front_end import (
    CANVAS_ON,
    PLAIN_MAP,
    WIDGETS,
    canvas_pixels,
    numeral,
    point,
    wait_for,
    wait_for_names,
    write_notebook,
)
from notebook7 import Notebook7, Notebook7Page
from playwright.sync_api import expect

import hookviz

pytestmark = [
    pytest.mark.heavy,  # starts separate servers, each with a kernel
    pytest.mark.skipif(WIDGETS < 8, reason="Notebook 7 and Voilà show widgets of ipywidgets 8"),
]
CELL = "import hookviz as hv\nhv.explore(hv.demo_model(), hv.demo_images()[6], layer='stem.0')"


@pytest.mark.parametrize(("front_end", "page_of"), [(Notebook7, Notebook7Page), (Voila, Dashboard)])
def test_core_widgets_work_in_other_front_ends(front_end, page_of, browser, tmp_path):
    server = front_end(tmp_path)
    try:
        path = write_notebook(server.files / "explorer.ipynb", [CELL])
        notebook = page_of(server, browser, path)
        widget = notebook.page.locator(".hookviz-explorer")
        picture = widget.locator(PLAIN_MAP)
        picture.first.wait_for()
        wait_for_names(widget)
        expect(picture).to_have_count(1)
        before = picture.get_attribute("src")
        widget.get_by_role("slider", name="channel").press("ArrowRight")
        wait_for(lambda: "channel 1 of 24" in picture.get_attribute("alt"), "the next channel")
        assert picture.get_attribute("src") != before  # the picture changes together with its words
        expect(picture).to_have_count(1)
        assert notebook.errors == []
        notebook.close()
    finally:
        server.close()


# Show Python's values, so that a test can wait for them.
LIVE = f"""{CANVAS_ON}
import hookviz, ipywidgets
explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')
said = ipywidgets.Label('').add_class('said')
tell = lambda change: setattr(said, 'value', f'python has channel {{change["new"]}}')
explorer.observe(tell, 'channel')
back = ipywidgets.Button(description='python moves')
back.on_click(lambda _: setattr(explorer, 'channel', 7))
display(said, back)
explorer"""


@pytest.mark.parametrize(("front_end", "page_of"), [(Notebook7, Notebook7Page), (Voila, Dashboard)])
def test_the_canvas_works_in_other_front_ends(front_end, page_of, browser, tmp_path):
    twin = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer="stem.0")
    maps = twin.cache["stem.0"].activation[0]
    server = front_end(tmp_path)
    try:
        path = write_notebook(server.files / "explorer.ipynb", [LIVE])
        notebook = page_of(server, browser, path)
        page, app = notebook.page, notebook.page.locator(".hookviz-app")
        app.locator(".hv-tile").first.wait_for()
        expect(page.locator(PLAIN_MAP)).to_have_count(0)
        canvas = app.locator(".hv-activation canvas").first
        wait_for(lambda: canvas_pixels(canvas).any(), "the first map")
        wait_for(lambda: "on its way" not in app.inner_text(), "all pictures")
        before = canvas_pixels(canvas)

        app.get_by_role("slider", name="channel").press("ArrowRight")
        said = page.locator(".said").first
        expect(said).to_have_text("python has channel 1")
        wait_for(lambda: (canvas_pixels(canvas) != before).any(), "the next channel's map")

        height, width = maps.shape[-2:]
        row, column = 20, 10
        wanted, here = maps[1, row, column].item(), app.locator(".hv-here dd")

        def tells():
            frame = app.locator(".hv-activation .hv-frame")
            point(frame, (row + 0.5) / height, (column + 0.5) / width)
            shown = [numeral(each) for each in here.all_inner_texts()[1:2]]
            return shown == [pytest.approx(wanted, rel=1e-3)]

        wait_for(tells, "the value under the pointer")

        page.get_by_role("button", name="python moves").click()
        slider = app.get_by_role("slider", name="channel")
        expect(slider).to_have_attribute("aria-valuetext", "channel 7 of 24")
        assert notebook.errors == []
        notebook.close()
    finally:
        server.close()
