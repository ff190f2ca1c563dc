"""The map of the network, by hand and by key, in a page and in JupyterLab."""

from __future__ import annotations

import pytest
from front_end import CANVAS_ON, WIDGETS, wait_for

import hookviz


def opened(page, app):
    app.get_by_role("button", name="map", exact=True).click()
    page.locator(".hv-net-box").first.wait_for()
    return app.locator(".hv-net-box")


def named(page, marked):
    """The names of boxes that are marked so."""
    boxes = page.locator(f".hv-net-box.{marked}")
    return {each.get_attribute("data-name") for each in boxes.all()}


def layer_of(app):
    return app.locator(".hv-name").inner_text()


def test_from_the_disk(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"))
    page.locator(".hv-tile").first.wait_for()
    app = page.locator(".hookviz-app")
    boxes = opened(page, app)
    net = hookviz.demo_model()
    graph = hookviz.graph(net, hookviz.demo_images()[6])
    assert layer_of(app) == "layer2.0.conv1"
    assert named(page, "hv-on") == {"layer2.0.conv1"}
    before = boxes.count()

    page.locator('.hv-net-box[data-name="layer3.0"]').click()
    inner = page.locator('.hv-net-box[data-name="layer3.0.conv2"]')
    inner.click()
    wait_for(lambda: layer_of(app) == "layer3.0.conv2", "the layer of the box")
    # layer2.0 was open for its layer alone, and is closed again.
    wait_for(lambda: boxes.count() == before, "the boxes of a block")
    sources = {name for name, _ in graph.sources("layer3.0.conv2")}
    fed = {
        node.name
        for node in graph.nodes
        if node.layer not in ("", "input")
        and "layer3.0.conv2" in {name for name, _ in graph.sources(node.layer)}
    }
    assert named(page, "hv-source") == sources
    told = page.locator(".hv-net-words").inner_text()
    assert all(name in told for name in sources | fed)
    assert inner.get_attribute("aria-current") == "true"

    # By keyboard: to the box before, into a module, out of it, and out of the map.
    inner.focus()
    page.keyboard.press("ArrowLeft")
    focused = "document.activeElement.dataset.name ?? document.activeElement.textContent"
    assert page.evaluate(focused) == "layer3.0.conv1"
    page.keyboard.press("Enter")
    wait_for(lambda: layer_of(app) == "layer3.0.conv1", "the layer by Enter")
    page.locator('.hv-net-box[data-name="layer1.1"]').focus()
    page.keyboard.press("Enter")
    page.locator('.hv-net-box[data-name="layer1.1.conv2"]').wait_for()
    assert page.evaluate(focused).startswith("layer1.1.")
    page.keyboard.press("Escape")
    page.locator('.hv-net-box[data-name="layer1.1"]').wait_for()
    assert page.evaluate(focused) == "layer1.1"
    assert layer_of(app) == "layer3.0.conv1"

    # The search leads to the box; the map opens around it.
    find = app.get_by_role("combobox", name="find a layer")
    find.fill("layer1.0.conv2")
    find.press("Enter")
    page.locator('.hv-net-box[data-name="layer1.0.conv2"].hv-on').wait_for()

    find.press("Escape")
    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("m")
    wait_for(lambda: not page.locator(".hv-net").is_visible(), "the map closes by its key")


def test_on_a_phone_nothing_scrolls_sideways(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"))
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator(".hv-tile").first.wait_for()
    opened(page, page.locator(".hookviz-app"))
    across = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(across) <= 0
    view = page.locator(".hv-net-view")
    assert view.evaluate("each => each.scrollWidth - each.clientWidth") <= 0


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_in_a_notebook(open_notebook, shots):
    make = (
        "import hookviz\n"
        "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6],"
        " layer='layer2.0.conv1')\n"
        "explorer"
    )
    notebook = open_notebook([CANVAS_ON, make])
    app = notebook.page.locator(".hookviz-app")
    app.locator(".hv-tile").first.wait_for()
    opened(notebook.page, app)
    app.locator('.hv-net-box[data-name="layer3.1"]').click()
    app.locator('.hv-net-box[data-name="layer3.1.conv1"]').click()
    wait_for(lambda: layer_of(app) == "layer3.1.conv1", "the layer")
    notebook.page.screenshot(path=shots / "map.png")
    assert notebook.errors == []
