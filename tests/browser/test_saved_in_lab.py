"""A saved notebook that is opened again without its kernel."""

from __future__ import annotations

import base64
import io

import nbformat
import numpy as np
import pytest
from front_end import WIDGETS, wait_for
from nbconvert import HTMLExporter
from nbformat.reader import NotJSONError
from PIL import Image
from playwright.sync_api import expect

CELL = "import hookviz as hv\nhv.explore(hv.demo_model(), hv.demo_images()[6], layer='stem.0')"
LOST = "Error displaying widget"


def saved(path):
    """Return the data of the outputs with a picture, once the file has any."""

    def read():
        try:
            book = nbformat.read(path, as_version=4)
        except NotJSONError:  # the file is being written
            return []
        outputs = [output["data"] for cell in book.cells for output in cell.outputs]
        return [data for data in outputs if "image/png" in data]

    return wait_for(read, "the notebook to be saved")


@pytest.mark.heavy
def test_an_exported_explorer_is_one_picture(open_notebook, lab, chrome, tmp_path):
    notebook = open_notebook([CELL])
    still = notebook.page.locator("[id^=hookviz-still]")
    expect(still).to_have_count(1)  # a cell's number may come before its output
    output = notebook.page.locator(".jp-OutputArea-child, .output_area").filter(has=still)
    expect(output).to_have_count(1)
    expect(output).to_be_hidden()
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("Control+s")
    (data,) = saved(lab.files / notebook.name)
    book, _ = HTMLExporter().from_filename(str(lab.files / notebook.name))
    (tmp_path / "book.html").write_text(book, encoding="utf-8")
    page = chrome.new_page(viewport={"width": 1280, "height": 900})
    page.context.set_offline(True)
    page.goto((tmp_path / "book.html").as_uri(), wait_until="domcontentloaded")
    picture = page.locator(".jp-OutputArea-output img")
    picture.first.wait_for()
    assert picture.get_attribute("src").endswith("".join(data["image/png"].split()))
    expect(page.locator("[id^=hookviz-still]")).to_be_hidden()
    page.close()


@pytest.mark.skipif(WIDGETS < 8, reason="the error is JupyterLab's")
def test_a_reopened_notebook_shows_a_still_picture_of_the_explorer(open_notebook, lab):
    notebook = open_notebook([CELL, "'the next cell'"])
    page = notebook.page
    page.locator(".hookviz-explorer .hookviz img.smooth").first.wait_for()
    still = page.locator("[id^=hookviz-still]")
    expect(still).to_have_count(1)
    expect(still).to_be_hidden()
    # Only the explorer and the next cell's output are visible: the picture takes no space.
    expect(page.locator(".jp-OutputArea-child:visible")).to_have_count(2)

    page.keyboard.press("Escape")
    page.keyboard.press("Control+s")

    (data,) = saved(lab.files / notebook.name)
    assert data["text/plain"].startswith("channel 0 of 24")
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert picture.size[0] > 500

    notebook.close()
    lab.sweep()  # now no kernel has these widgets
    notebook.open()
    still.wait_for()
    assert not page.get_by_text(LOST).first.is_visible()
    assert still.get_attribute("aria-label") == data["text/plain"]
    expect(page.get_by_text("the next cell").last).to_be_visible()

    def loaded():
        box = still.bounding_box()
        return box and box["height"] / box["width"] == picture.height / picture.width

    wait_for(loaded, "the picture's shape")

    def agrees():
        seen = Image.open(io.BytesIO(still.screenshot())).convert("RGB")
        drawn = picture.convert("RGB").resize(seen.size)
        return np.abs(np.asarray(seen, int) - np.asarray(drawn, int)).mean() < 4

    wait_for(agrees, "the picture")

    notebook.run_all()
    page.locator(".hookviz-explorer .hookviz img.smooth").first.wait_for()
    expect(still).to_be_hidden()
