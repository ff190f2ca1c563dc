"""The canvas in the classic Notebook 6, with and without anywidget's extension."""

from __future__ import annotations

import json

import pytest
from classic import Classic, ClassicNotebook
from front_end import (
    CANVAS_ON,
    PLAIN_MAP,
    WIDGETS,
    canvas_pixels,
    wait_for,
    wait_for_tiles,
    write_notebook,
)
from playwright.sync_api import expect

pytestmark = pytest.mark.skipif(WIDGETS > 7, reason="the classic Notebook shows ipywidgets 7 alone")

# Show Python's values, so that a test can wait for them.
CELL = f"""{CANVAS_ON}
import hookviz, ipywidgets
explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')
said = ipywidgets.Label('').add_class('said')
tell = lambda change: setattr(said, 'value', f'python has channel {{change["new"]}}')
explorer.observe(tell, 'channel')
display(said)
explorer"""


class WithoutAnywidget(Classic):
    """A Notebook server without anywidget's front end."""

    def configure(self):
        super().configure()
        folder = self.home / "config" / "nbconfig"
        folder.mkdir(parents=True)
        off = {"load_extensions": {"anywidget/extension": False}}
        (folder / "notebook.json").write_text(json.dumps(off))


def opened(server, browser):
    path = write_notebook(server.files / "explorer.ipynb", [CELL])
    return ClassicNotebook(server, browser, path)


def one_to_the_right(page):
    slider = page.locator(".hookviz-explorer").get_by_role("slider", name="channel")
    slider.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator(".said").first
    expect(said).to_have_text("python has channel 1")


def test_the_canvas_replaces_the_core_widgets(lab, browser):
    notebook = opened(lab, browser)
    page, app = notebook.page, notebook.page.locator(".hookviz-app")
    wait_for_tiles(app)
    expect(page.locator(PLAIN_MAP)).to_have_count(0)
    wait_for(lambda: "on its way" not in app.inner_text(), "all pictures")
    canvas = app.locator(".hv-activation canvas").first
    before = canvas_pixels(canvas)
    one_to_the_right(page)
    wait_for(lambda: (canvas_pixels(canvas) != before).any(), "the next channel's map")
    assert notebook.errors == []
    notebook.close()


@pytest.mark.heavy
def test_without_anywidgets_front_end_the_core_widgets_stay(browser, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")  # the test's own folder takes precedence
    server = WithoutAnywidget(tmp_path)
    try:
        notebook = opened(server, browser)
        page = notebook.page
        page.locator(PLAIN_MAP).first.wait_for()
        notebook.settle()
        assert page.locator(".hookviz-app").count() == 0
        one_to_the_right(page)
        picture = page.locator(PLAIN_MAP)
        wait_for(lambda: "channel 1 of 24" in picture.get_attribute("alt"), "its picture")
        assert "rror" not in page.locator(".output_wrapper").first.inner_text()
        notebook.close()
    finally:
        server.close()
