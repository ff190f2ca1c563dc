"""The map of the network in a page, with pointer and keyboard."""

from __future__ import annotations

import math
from collections import OrderedDict

import pytest
import torch
from architectures import model_of
from demo import explore_demo
from face import find_layer, open_drawer
from front_end import canvas_pixels, next_frame, wait_for, wait_for_tiles
from playwright.sync_api import expect
from torch import nn

import hookviz


@pytest.fixture(scope="module")
def explorer_page(tmp_path_factory):
    """Return a page of all layers, so that each box of the map has its picture."""
    path = tmp_path_factory.mktemp("map") / "explorer.html"
    made = explore_demo(layer="layer2.0.conv1")
    made.to_html(path, max_bytes=10e6)
    made.close()
    return path


def opened(page, app):
    open_drawer(app, "Map")
    page.locator(".hv-net-box").first.wait_for()
    return app.locator(".hv-net-box")


def named(page, marked):
    """Return the names of the boxes with this mark."""
    boxes = page.locator(f".hv-net-box.{marked}")
    return set(boxes.evaluate_all("all => all.map((each) => each.dataset.name)"))


def layer_of(app):
    return app.locator(".hv-name").inner_text()


def test_the_map_is_used_by_pointer_keyboard_and_search(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"))
    wait_for_tiles(page)
    app = page.locator(".hookviz-app")
    boxes = opened(page, app)
    net = hookviz.demo_model()
    graph = hookviz.graph(net, hookviz.demo_images()[6])
    assert layer_of(app) == "layer2.0.conv1"
    wait_for(lambda: named(page, "hv-on") == {"layer2.0.conv1"}, "the layer's box")
    before = boxes.count()
    names = boxes.locator("b").all_inner_texts()
    assert (names[0], names[-1]) == ("input", "output")
    assert boxes.first.get_attribute("aria-label") == "input, 3×112×112"
    assert canvas_pixels(page.locator(".hv-net-edges")).any()

    page.locator('.hv-net-box[data-name="layer3.0"]').click()
    inner = page.locator('.hv-net-box[data-name="layer3.0.conv2"]')
    inner.click()
    wait_for(lambda: layer_of(app) == "layer3.0.conv2", "the layer of the box")
    # layer2.0 was open only for its layer, and is closed again.
    expect(boxes).to_have_count(before)
    frame, box = (  # map_test.js has the arrangement of the boxes
        page.locator(part).bounding_box()
        for part in ('.hv-net-frame[data-key="layer3.0"]', '[data-name="layer3.0.conv2"]')
    )
    assert frame["x"] < box["x"] and box["x"] + box["width"] < frame["x"] + frame["width"]
    assert frame["y"] < box["y"] and box["y"] + box["height"] < frame["y"] + frame["height"]
    sources = {name for name, _ in graph.sources("layer3.0.conv2")}
    fed = {
        node.name
        for node in graph.nodes
        if node.layer not in ("", "input")
        and "layer3.0.conv2" in {name for name, _ in graph.sources(node.layer)}
    }
    wait_for(lambda: named(page, "hv-source") == sources, "the boxes that feed it")
    told = page.locator(".hv-net-words")
    wait_for(lambda: all(name in told.inner_text() for name in sources | fed), "its words")
    expect(inner).to_have_attribute("aria-current", "true")

    # By keyboard, go to the previous box, into a module, out of it, and out of the map.
    inner.focus()
    page.keyboard.press("ArrowLeft")
    focused = "document.activeElement.dataset.name ?? document.activeElement.textContent"
    wait_for(lambda: page.evaluate(focused) == "layer3.0.conv1", "the box before")
    page.keyboard.press("Enter")
    wait_for(lambda: layer_of(app) == "layer3.0.conv1", "the layer by Enter")
    page.locator('.hv-net-box[data-name="layer1.1"]').focus()
    page.keyboard.press("Enter")
    page.locator('.hv-net-box[data-name="layer1.1.conv2"]').wait_for()
    wait_for(lambda: page.evaluate(focused).startswith("layer1.1."), "a box within")
    page.keyboard.press("Escape")
    page.locator('.hv-net-box[data-name="layer1.1"]').wait_for()
    wait_for(lambda: page.evaluate(focused) == "layer1.1", "the box of the module")
    assert layer_of(app) == "layer3.0.conv1"

    # The search goes to a box, and the map opens its module.
    find_layer(app, "layer1.0.conv2")
    page.locator('.hv-net-box[data-name="layer1.0.conv2"].hv-on').wait_for()

    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("m")
    expect(page.locator(".hv-net")).to_be_hidden()


def test_on_a_phone_nothing_scrolls_sideways(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"))
    page.set_viewport_size({"width": 390, "height": 800})
    wait_for_tiles(page)
    opened(page, page.locator(".hookviz-app"))
    across = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    wait_for(lambda: page.evaluate(across) <= 0, "the page to fit")
    view = page.locator(".hv-net-view")
    inside = "each => each.scrollWidth - each.clientWidth"
    wait_for(lambda: view.evaluate(inside) <= 0, "the map to fit")
    buttons = page.locator(".hv-net-head button")
    expect(buttons).to_have_count(5)
    tops = "all => all.map(b => b.offsetTop)"
    wait_for(lambda: len(set(buttons.evaluate_all(tops))) == 1, "the buttons in one line")


def test_a_graph_page_on_a_phone_scrolls_its_drawing_and_not_the_page(shown):
    graph = hookviz.graph(hookviz.demo_model(), torch.zeros(1, 3, 112, 112))
    page = shown(graph.to_html())
    page.set_viewport_size({"width": 390, "height": 800})
    drawing = page.locator("svg[role=img]")
    assert drawing.bounding_box()["width"] > 390
    whole = "document.documentElement.scrollWidth"
    wait_for(lambda: page.evaluate(whole) == 390, "the page to fit")


class SpatialPyramidPooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.one(x) + self.other(x)


def test_map_boxes_are_as_wide_as_their_labels(shown):
    net = nn.Sequential(OrderedDict(classification_head=SpatialPyramidPooling()))
    net.add_module("last", nn.Conv2d(4, 2, 3))
    explorer = hookviz.explore(net, torch.rand(1, 3, 24, 24), layer="last")
    page = shown(explorer.to_html())
    opened(page, page.locator(".hookviz-app"))
    page.get_by_role("button", name="close all that was opened").click()
    box = page.locator('.hv-net-box[data-name="classification_head"]')
    next_frame(page)
    if not box.count():
        page.locator(".hv-net-close").first.click()
    expect(box).to_contain_text("classification_head")
    expect(box).to_contain_text("SpatialPyramidPooling")
    assert box.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_the_box_of_the_shown_module_is_marked_in_its_group(shown):
    blocks = [nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)) for _ in range(22)]
    names = {"layers": ["3", "15"], "layer": "15", "face": "plain"}
    explorer = hookviz.explore(nn.Sequential(*blocks), torch.rand(1, 3, 8, 8), **names)
    page = shown(explorer.to_html())
    opened(page, page.locator(".hookviz-app"))
    wait_for(lambda: named(page, "hv-on") == {"15"}, "the module's box")
    expect(page.locator(".hv-net-words")).to_have_text("15 is a module")


def two_inputs(m, colours, depth):
    return torch.cat([m.left(colours), m.right(depth)], 1).mean((2, 3))


@pytest.mark.parametrize(("layer", "name"), [("left", "input"), ("right", "input#1")])
def test_the_picture_in_the_map_is_at_its_own_input(shown, layer, name):
    given = torch.rand(1, 3, 8, 8), torch.rand(1, 1, 8, 8)
    model = model_of(two_inputs, left=nn.Conv2d(3, 4, 3), right=nn.Conv2d(1, 4, 3))
    explorer = hookviz.explore(model, given, layer=layer, face="plain")
    page = shown(explorer.to_html())
    opened(page, page.locator(".hookviz-app"))
    pictured = page.locator(".hv-net-box:has(.hv-smooth)")
    expect(pictured).to_have_attribute("data-name", name)


VIEW = "document.querySelector('.hv-net-view')"
STATE = f"""(() => {{
  const box = {VIEW}.getBoundingClientRect();
  const sheet = document.querySelector('.hv-net-sheet').getBoundingClientRect();
  return {{
    zoom: new DOMMatrix(getComputedStyle(document.querySelector('.hv-net-sheet')).transform).a,
    x: sheet.left - box.left, y: sheet.top - box.top,
    left: box.left, top: box.top, wide: {VIEW}.clientWidth, high: {VIEW}.clientHeight,
    width: {VIEW}.scrollWidth, height: {VIEW}.scrollHeight,
  }};
}})()"""


def under(state, x, y):
    """Return the map's pixel that lies below a position of the view."""
    return (x - state["x"]) / state["zoom"], (y - state["y"]) / state["zoom"]


def test_the_wheel_zooms_the_map_at_the_pointer_and_a_drag_moves_it(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"))
    wait_for_tiles(page)
    app = page.locator(".hookviz-app")
    opened(page, app)
    page.locator(".hv-net-view").scroll_into_view_if_needed()
    next_frame(page)
    first = page.evaluate(STATE)
    assert first["zoom"] == 1
    at = 0.7 * first["wide"], 0.6 * first["high"]
    page.mouse.move(first["left"] + at[0], first["top"] + at[1])

    # The wheel scrolls; with Ctrl it zooms at the pointer.
    page.keyboard.down("Control")
    before = first
    for turn in (-200, -100, 150):
        page.mouse.wheel(0, turn)
        page.wait_for_function(f"({STATE}).zoom !== {before['zoom']}")
        now = page.evaluate(STATE)
        assert now["zoom"] == pytest.approx(before["zoom"] * math.exp(-turn / 300), rel=1e-4)
        assert under(now, *at) == pytest.approx(under(before, *at), abs=1.5)
        before = now
    page.keyboard.up("Control")

    # A drag moves the map with the pointer; a drag that starts on a box does not open it.
    boxes, layer = page.locator(".hv-net-box").count(), layer_of(app)
    box = page.locator(".hv-net-box").evaluate_all(
        f"""boxes => boxes.map(each => each.getBoundingClientRect())
          .map(({{left, top, width, height}}) => [left + width / 2, top + height / 2])
          .find(([x, y]) => {{
            const view = {VIEW}.getBoundingClientRect();
            return x > view.left + 90 && x < view.right - 90 && y > view.top + 60
              && y < Math.min(view.bottom, innerHeight) - 60;
          }})"""
    )
    page.mouse.move(*box)
    page.mouse.down()
    page.mouse.move(box[0] + 20, box[1] + 10, steps=3)
    page.mouse.move(box[0] + 61, box[1] + 37, steps=5)
    page.mouse.up()
    moved = page.evaluate(STATE)
    assert (moved["x"] - now["x"], moved["y"] - now["y"]) == pytest.approx((61, 37), abs=1)
    next_frame(page)
    assert (page.locator(".hv-net-box").count(), layer_of(app)) == (boxes, layer)
    page.mouse.click(box[0] + 61, box[1] + 37)  # without a drag, a click opens the box
    wait_for(
        lambda: (page.locator(".hv-net-box").count(), layer_of(app)) != (boxes, layer),
        "a click on the box",
    )

    # By keys: zoom in, zoom out, original size, whole map.
    page.locator(".hv-net-box.hv-on").focus()
    page.keyboard.press("0")
    assert page.evaluate(STATE)["zoom"] == 1
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.evaluate(STATE)["zoom"] == pytest.approx(1.25**2)
    page.keyboard.press("-")
    assert page.evaluate(STATE)["zoom"] == pytest.approx(1.25)
    page.keyboard.press("f")
    whole = page.evaluate(STATE)
    assert whole["zoom"] <= 1
    assert whole["width"] <= whole["wide"]
    assert whole["height"] <= whole["high"] + 1
    app.get_by_role("button", name="the map in its own size").click()
    assert page.evaluate(STATE)["zoom"] == 1


def test_two_fingers_zoom_the_map_and_one_moves_it(shown, explorer_page):
    page = shown(explorer_page.read_text(encoding="utf-8"), has_touch=True)
    page.set_viewport_size({"width": 390, "height": 800})
    wait_for_tiles(page)
    opened(page, page.locator(".hookviz-app"))
    page.locator(".hv-net-view").evaluate("each => each.scrollIntoView({block: 'center'})")
    next_frame(page)
    before = page.evaluate(STATE)
    assert before["zoom"] == 1
    touch = page.context.new_cdp_session(page)

    def fingers(kind, *places):
        points = [
            {"x": before["left"] + x, "y": before["top"] + y, "id": n}
            for n, (x, y) in enumerate(places)
        ]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", (140, 120), (180, 120))
    for step in range(1, 6):  # the fingers move apart, equally to both sides
        fingers("touchMove", (140 - 4 * step, 120), (180 + 4 * step, 120))
    fingers("touchEnd")
    # The fingers are 80 pixels apart instead of 40.
    twice = pytest.approx(2, rel=1e-3)
    wait_for(lambda: page.evaluate(STATE)["zoom"] == twice, "the fingers to zoom")
    now = page.evaluate(STATE)
    assert under(now, 160, 120) == pytest.approx(under(before, 160, 120), abs=1.5)

    fingers("touchStart", (200, 150))
    for step in range(1, 9):
        fingers("touchMove", (200 - 10 * step, 150))
    fingers("touchEnd")
    wait_for(lambda: page.evaluate(STATE)["x"] < now["x"] - 30, "a finger moves the map")
    assert page.evaluate(STATE)["zoom"] == now["zoom"]
