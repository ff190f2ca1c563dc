"""The tour in a real notebook: moved by keyboard, compared pixel by pixel."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from front_end import WIDGETS, next_frame, wait_for, wait_for_names
from PIL import Image

import hookviz
from hookviz.draw.overlay import blend

TOUR = Path(__file__).resolve().parents[2] / "notebooks" / "explore_resnet.ipynb"
FIELDS = [
    "any class",
    "find a layer",
    "place: row, column",
    "colours",
    "range",
    "heatmap",
    "shown",
    "order",
]
IMAGES = "figure .frame img:not(.dark)"  # a light page's; the mosaic is no image

# Draw an <img> as the browser decoded it, at its own size, and read the pixels back, as base64:
# a list of millions of numbers would take seconds.
PIXELS = """async (image) => {
  await image.decode();
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  let text = '';
  for (let from = 0; from < data.length; from += 32768)
    text += String.fromCharCode(...data.subarray(from, from + 32768));
  return [canvas.height, canvas.width, btoa(text)];
}"""


def pixels(image):
    height, width, data = image.evaluate(PIXELS)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[..., :3]


def decode(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def twin():
    """The explorer of the tour's first picture, made here."""
    flower = next(each for each in hookviz.demo_images() if each.info["label"] == "flower")
    return hookviz.explore(hookviz.demo_model(), flower)


def expected(explorer, place):
    """The pixels that `hookviz.draw` gives for the map (0) or the gradient (1)."""
    from hookviz.draw.colours import map_png

    panel = explorer.frame.panels[place]
    return decode(map_png(panel.values, panel.cmap, panel.low, panel.high))


def same(got, wanted):
    """Equal, but for values that another process rounds to the next of 252 colours."""
    return got.shape == wanted.shape and (got != wanted).any(-1).mean() < 0.01


def close(got, wanted):
    """Equal, but for a step of the colours where another process rounds otherwise."""
    if got.shape != wanted.shape:
        return False
    off = np.abs(got.astype(int) - wanted)
    return (off > 1).any(-1).mean() < 0.01 and off.max() < 40


@pytest.fixture(scope="module")
def reference():
    explorer = twin()
    yield explorer
    explorer.close()


def cells_of_tour(count):
    cells = [cell for cell in nbformat.read(TOUR, 4).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells[:count]]


@pytest.mark.heavy
def test_whole_tour(open_notebook):
    notebook = open_notebook(TOUR)
    assert notebook.page.locator(".hookviz-explorer").count() >= 7
    assert notebook.errors == []


def test_tour(open_notebook, shots, reference):
    notebook = open_notebook(cells_of_tour(3))
    page = notebook.page
    widget = page.locator(".hookviz-explorer").first
    widget.scroll_into_view_if_needed()
    pictures = widget.locator(IMAGES)
    wait_for_names(widget)
    page.screenshot(path=shots / "tour-light.png")

    layers = list(reference.cache)
    assert same(pixels(pictures.nth(1)), expected(reference, 0))
    assert same(pixels(pictures.nth(2)), expected(reference, 1))
    assert same(pixels(pictures.nth(0)), reference.frame.input.pixels)

    first = pixels(pictures.nth(1))
    widget.get_by_role("slider", name="channel").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    reference.channel = 5
    wait_for(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)))
    assert (pixels(pictures.nth(1)) != first).any()
    count = reference.frame.counts["channel"]
    assert f"channel 5 of {count}" in pictures.nth(1).get_attribute("alt")

    tiles = widget.locator(".tiles").first
    before = tiles.locator(".t").count()
    widget.get_by_role("slider", name="layer").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    reference.layer = layers[4]
    wait_for(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)))
    assert same(pixels(pictures.nth(2)), expected(reference, 1))
    assert before == len(reference.cache[layers[0]].activation[0])
    assert layers[4] in tiles.get_attribute("aria-label")
    assert widget.locator(".heading b").inner_text() == layers[4]
    assert widget.get_by_role("slider", name="layer").get_attribute("aria-valuetext") == layers[4]

    widget.get_by_label("order", exact=True).select_option("max")
    reference.order = "max"
    assert reference.channel == int(reference.frame.channels[0])  # the first is shown
    wait_for(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)))
    widget.get_by_label("order", exact=True).select_option("index")
    reference.order = "index"

    for theme in notebook.themes[1:]:
        notebook.theme(theme)
        widget.scroll_into_view_if_needed()
        page.screenshot(path=shots / f"tour-{theme}.png")
    assert notebook.errors == []


def test_names_and_alternatives(open_notebook):
    notebook = open_notebook(
        ["import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])"]
    )
    widget = notebook.page.locator(".hookviz-explorer")
    wait_for_names(widget)
    for role in ("slider", "combobox"):
        names = [
            control.evaluate("e => e.getAttribute('aria-label') || (e.labels[0] || {}).textContent")
            for control in widget.get_by_role(role).all()
        ]
        assert (
            names
            == {
                "slider": ["layer", "channel", "factor of 0", "opacity"],
                "combobox": FIELDS,
            }[role]
        )
        for name in names:  # and the browser's own idea of the name agrees
            assert widget.get_by_role(role, name=name, exact=True).count() == 1
    texts = [image.get_attribute("alt") for image in widget.locator(IMAGES).all()]
    assert len(texts) == 4
    assert "as the network saw it" in texts[0]
    assert texts[1] == "channel 0 of 24 of layer stem.0 (Conv2d), a map of 56×56, in DemoNet"
    assert texts[2].startswith("gradient of moon: ")
    assert texts[3] == "Heatmap over the input, gradcam of moon, layer stem.0"
    tiles = widget.locator(".tiles").first
    assert tiles.get_attribute("aria-label") == "All 24 channels, layer stem.0"
    bars = widget.get_by_role("button", name="%")
    assert [bar.get_attribute("aria-pressed") for bar in bars.all()] == ["true"] + 4 * ["false"]

    handle = widget.get_by_role("slider", name="channel")
    handle.focus()
    for value in (1, 2):  # what a screen reader says follows
        notebook.page.keyboard.press("ArrowRight")
        wait_for(lambda v=value: handle.get_attribute("aria-valuetext") == f"channel {v} of 24")
    assert notebook.errors == []


def test_heatmap_opacity_and_target_by_keyboard(open_notebook, shots):
    notebook = open_notebook(
        [
            "import hookviz\nmodel, pictures = hookviz.demo_model(), hookviz.demo_images()",
            "hookviz.explore(model, pictures[6], layer='layer3.1.conv2')",
        ]
    )
    page = notebook.page
    widget = page.locator(".hookviz-explorer")
    pictures = widget.locator(IMAGES)
    pictures.nth(3).wait_for()
    wait_for_names(widget)
    explorer = hookviz.explore(
        hookviz.demo_model(), hookviz.demo_images()[6], layer="layer3.1.conv2"
    )

    def overlay():
        """What the functions give for the explorer made here."""
        frame = explorer.frame
        record = explorer.cache["layer3.1.conv2"]
        heat = hookviz.heatmap(record, explorer.heatmap)[0].numpy()
        return blend(frame.input.pixels, heat, explorer.alpha)

    def agrees():
        return close(pixels(pictures.nth(3)), overlay())

    wait_for(agrees)

    widget.get_by_role("combobox", name="heatmap").focus()
    for method in list(hookviz.attribution.HEATMAPS)[1:5]:
        page.keyboard.press("ArrowDown")
        explorer.heatmap = method
        wait_for(agrees)
        assert f"{method} of moon" in pictures.nth(3).get_attribute("alt")

    widget.get_by_role("slider", name="opacity").focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    explorer.alpha = 0.6
    wait_for(agrees)

    widget.get_by_role("button", name="flower").focus()
    page.keyboard.press("Enter")
    explorer.target = explorer.frame.predictions[1][0]
    wait_for(agrees)
    wait_for(lambda: same(pixels(pictures.nth(2)), expected(explorer, 1)))
    assert "gradient of flower" in widget.inner_text()

    field = widget.get_by_role("combobox", name="any class")
    field.fill("fish")
    page.keyboard.press("Enter")
    explorer.target = "fish"
    wait_for(lambda: same(pixels(pictures.nth(2)), expected(explorer, 1)))
    wait_for(lambda: field.input_value() == "")

    field = widget.get_by_role("combobox", name="find a layer")
    field.fill("layer2 1x1")
    page.keyboard.press("Enter")
    explorer.layer = "layer2.0.downsample.0"
    wait_for(lambda: same(pixels(pictures.nth(1)), expected(explorer, 0)))
    assert widget.locator(".heading b").inner_text() == "layer2.0.downsample.0"

    widget.get_by_role("button", name="heatmaps of all layers").focus()
    page.keyboard.press("Enter")
    strip = widget.locator(".tiles").nth(1)
    wait_for(lambda: strip.locator(".t").count() == 15)
    assert strip.locator(".t i").first.inner_text() == "stem.0"
    assert strip.locator(".t").first.bounding_box()["height"] > 60
    for theme in notebook.themes:
        notebook.theme(theme)
        page.screenshot(path=shots / f"heatmaps-{theme}.png")
    explorer.close()
    assert notebook.errors == []


WAY = [  # to a longer name, and back
    ("ArrowRight", "layer3.0.conv2"),
    ("ArrowRight", "layer3.0.downsample.0"),
    ("ArrowLeft", "layer3.0.conv2"),
    ("ArrowLeft", "layer3.0.conv1"),
]
# The classic Notebook leaves an output 170 to 330 pixels less than its window: more rows wrap.
ROOM = {700: 740, 1100: 670, 1920: 670} if WIDGETS > 7 else {700: 880, 1100: 700, 1920: 670}


def test_two_rows_of_panels_on_a_small_screen(open_notebook):
    """What is looked at and what moves it stand together; the width is used, nothing overflows."""
    notebook = open_notebook(
        [
            "import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6],"
            " layer='layer3.0.conv1')"
        ]
    )
    page = notebook.page
    widget = page.locator(".hookviz-explorer")
    widget.locator("figure .frame img:visible").nth(3).wait_for()
    wait_for_names(widget)
    if (sidebar := page.locator(".jp-SideBar .lm-TabBar-tab.lm-mod-current")).count():
        sidebar.first.click()
    for width, room in ROOM.items():
        page.set_viewport_size({"width": width, "height": 800})
        next_frame(page)
        check_room(widget, room)
        check_that_no_picture_jumps(widget)
    for small in (527, 420):  # as the classic Notebook leaves of 700 pixels, and of 590
        widget.evaluate("(e, small) => { e.style.width = `${small}px` }", small)
        assert widget.evaluate("e => [e.clientWidth, e.scrollWidth]") == [small, small]
    assert notebook.errors == []


def check_room(widget, room):
    seen = widget.locator("figure .frame img:visible")  # the theme's own
    whole = widget.bounding_box()
    images = [image.bounding_box() for image in seen.all()]
    assert max(box["y"] + box["height"] for box in images) - whole["y"] < room
    for box in images:
        assert 120 <= box["width"] <= 340
        assert abs(box["width"] - box["height"]) <= 1
    right = max(tile.bounding_box()["x"] for tile in widget.locator(".t > div").all()[:40])
    assert right > whole["x"] + 0.8 * whole["width"]
    for tile in widget.locator(".t > div").all()[:12]:
        assert tile.bounding_box()["width"] >= 32
    assert widget.evaluate("e => e.scrollWidth <= e.clientWidth + 1")


def check_that_no_picture_jumps(widget):
    seen = widget.locator("figure .frame img:visible")
    images = [image.bounding_box() for image in seen.all()]
    slider = widget.locator(".hookviz-by-layer .noUi-base, .hookviz-by-layer .slider").first
    before = slider.bounding_box()["width"]
    handle = widget.get_by_role("slider", name="layer")
    for key, name in WAY:
        handle.press(key)
        wait_for(lambda n=name: handle.get_attribute("aria-valuetext") == n)
        assert slider.bounding_box()["width"] == before
    top = [image.bounding_box()["y"] for image in seen.all()]
    assert top == [box["y"] for box in images]  # no picture has jumped


def test_keys_on_a_button_are_not_the_notebooks(open_notebook):
    notebook = open_notebook(
        ["import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])", "1"]
    )
    page = notebook.page
    cells = page.locator(".jp-CodeCell, .code_cell")
    widget = page.locator(".hookviz-explorer")
    wait_for_names(widget)
    widget.get_by_role("button", name="show the hooks").focus()
    page.keyboard.press("d")
    page.keyboard.press("d")
    next_frame(page)
    assert cells.count() == 2
    cells.last.locator(".jp-OutputArea, .output_area").first.click()
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.keyboard.press("d")  # what the notebook does when they are its own
    wait_for(lambda: cells.count() == 1, "the cell to go")
    assert notebook.errors == []


def test_hostile_names_stay_text(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz, torch\nfrom torch import nn",
            "model = nn.Sequential()\n"
            "evil = '<img src=x onerror=hacked=1>'\n"
            "model.add_module(evil, nn.Conv2d(3, 4, 1)); model.add_module('flat', nn.Flatten())\n"
            "explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2), class_names=[evil] * 16)",
            "explorer",
            "with hookviz.capture(model) as cache: model(torch.rand(1, 3, 2, 2))\ncache",
        ]
    )
    notebook.page.locator(".hookviz-explorer figure .frame img").first.wait_for()
    notebook.settle()
    assert notebook.page.evaluate("window.hacked") is None
    assert notebook.page.locator("img[src=x]").count() == 0


def test_progress_bar_comes_and_goes(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz, time, torch\nfrom torch import nn\nfrom unittest.mock import patch",
            "class Slow(nn.Conv2d):\n"
            "    def forward(self, x):\n        time.sleep(0.5); return super().forward(x)\n"
            "from hookviz.run.progress import Progress\n"
            "shown, show = [], Progress._show\n"
            "def noted(bar, data):\n    shown.append(data); show(bar, data)\n"
            "patch.object(Progress, '_show', noted).start()\n"
            "model = nn.Sequential(*[Slow(1, 1, 1) for _ in range(6)])\n"
            "hookviz.explore(model, torch.rand(1, 1, 4, 4), target=torch.sum)",
            "bars = ['<progress' in data.get('text/html', '') for data in shown]\n"
            "print('bars', bars.count(True) > 3, 'and then', shown[-1])",
        ],
    )
    assert "bars True and then {'text/plain': 'done in " in notebook.outputs().last.inner_text()
    assert notebook.page.locator("progress").count() == 0
    assert notebook.errors == []
