"""Notebook 7 and Voilà in a real browser: the explorer appears, and its slider moves."""

from __future__ import annotations

import pytest
from dashboard import Dashboard, Voila
from front_end import WIDGETS, wait_for, write_notebook
from notebook7 import Notebook7, Notebook7Page

pytestmark = pytest.mark.skipif(
    WIDGETS < 8, reason="Notebook 7 and Voilà show widgets of ipywidgets 8"
)
CELL = "import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])"


@pytest.mark.parametrize(("front_end", "page_of"), [(Notebook7, Notebook7Page), (Voila, Dashboard)])
def test_explorer(front_end, page_of, browser, tmp_path, shots):
    server = front_end(tmp_path)
    try:
        path = write_notebook(server.files / "explorer.ipynb", [CELL])
        notebook = page_of(server, browser, path, 240)
        widget = notebook.page.locator(".hookviz-explorer")
        picture = widget.locator("figure .frame img:not(.dark)").nth(1)
        picture.wait_for(timeout=120_000)
        notebook.page.wait_for_timeout(2500)  # until the slider has its name
        before = picture.get_attribute("src")
        widget.get_by_role("slider", name="channel").focus()
        notebook.page.keyboard.press("ArrowRight")
        wait_for(lambda: "channel 1 of 24" in picture.get_attribute("alt"), 15, "the next channel")
        assert picture.get_attribute("src") != before
        assert widget.locator("figure .frame img:not(.dark)").count() == 4
        notebook.page.screenshot(path=shots / f"{front_end.__name__.lower()}.png")
        assert notebook.errors == []
        notebook.close()
    finally:
        server.close()
