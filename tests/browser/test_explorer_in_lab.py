"""The tour in a real notebook: moved by keyboard, compared pixel by pixel."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from front_end import WIDGETS
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
    """The pixels that `hookviz.render` gives for the map (0) or the gradient (1)."""
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


def test_tour(open_notebook, shots, reference):
    notebook = open_notebook(TOUR, seconds=300)
    page = notebook.page
    widget = page.locator(".hookviz-explorer").first
    widget.scroll_into_view_if_needed()
    pictures = widget.locator(IMAGES)
    page.wait_for_timeout(1000)
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
    wait_until(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)), page)
    assert (pixels(pictures.nth(1)) != first).any()
    count = reference.frame.counts["channel"]
    assert f"channel 5 of {count}" in pictures.nth(1).get_attribute("alt")

    tiles = widget.locator(".tiles").first
    before = tiles.locator(".t").count()
    widget.get_by_role("slider", name="layer").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    reference.layer = layers[4]
    wait_until(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)), page)
    assert same(pixels(pictures.nth(2)), expected(reference, 1))
    assert before == len(reference.cache[layers[0]].activation[0])
    assert layers[4] in tiles.get_attribute("aria-label")
    assert widget.locator(".heading b").inner_text() == layers[4]
    assert widget.get_by_role("slider", name="layer").get_attribute("aria-valuetext") == layers[4]

    widget.get_by_label("order", exact=True).select_option("max")
    reference.order = "max"
    assert reference.channel == int(reference.frame.channels[0])  # the first is shown
    wait_until(lambda: same(pixels(pictures.nth(1)), expected(reference, 0)), page)
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
    notebook.page.wait_for_timeout(2500)
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
        wait_until(
            lambda v=value: handle.get_attribute("aria-valuetext") == f"channel {v} of 24",
            notebook.page,
        )
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
    page.wait_for_timeout(2500)  # until the arrow keys are the menus' own
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

    wait_until(agrees, page)

    widget.get_by_role("combobox", name="heatmap").focus()
    for method in list(hookviz.attribution.HEATMAPS)[1:5]:
        page.keyboard.press("ArrowDown")
        explorer.heatmap = method
        wait_until(agrees, page)
        assert f"{method} of moon" in pictures.nth(3).get_attribute("alt")

    widget.get_by_role("slider", name="opacity").focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    explorer.alpha = 0.6
    wait_until(agrees, page)

    widget.get_by_role("button", name="flower").focus()
    page.keyboard.press("Enter")
    explorer.target = explorer.frame.predictions[1][0]
    wait_until(agrees, page)
    wait_until(lambda: same(pixels(pictures.nth(2)), expected(explorer, 1)), page)
    assert "gradient of flower" in widget.inner_text()

    field = widget.get_by_role("combobox", name="any class")
    field.fill("fish")
    page.keyboard.press("Enter")
    explorer.target = "fish"
    wait_until(lambda: same(pixels(pictures.nth(2)), expected(explorer, 1)), page)
    wait_until(lambda: field.input_value() == "", page)

    field = widget.get_by_role("combobox", name="find a layer")
    field.fill("layer2 1x1")
    page.keyboard.press("Enter")
    explorer.layer = "layer2.0.downsample.0"
    wait_until(lambda: same(pixels(pictures.nth(1)), expected(explorer, 0)), page)
    assert widget.locator(".heading b").inner_text() == "layer2.0.downsample.0"

    widget.get_by_role("button", name="heatmaps of all layers").focus()
    page.keyboard.press("Enter")
    strip = widget.locator(".tiles").nth(1)
    wait_until(lambda: strip.locator(".t").count() == 15, page)
    assert strip.locator(".t i").first.inner_text() == "stem.0"
    assert strip.locator(".t").first.bounding_box()["height"] > 60
    for theme in notebook.themes:
        notebook.theme(theme)
        page.screenshot(path=shots / f"heatmaps-{theme}.png")
    explorer.close()
    assert notebook.errors == []


# The classic Notebook leaves an output 170 to 330 pixels less than its window: more rows wrap.
ROOM = {700: 740, 1100: 670, 1920: 670} if WIDGETS > 7 else {700: 880, 1100: 700, 1920: 670}


@pytest.mark.parametrize(("width", "room"), ROOM.items())
def test_two_rows_of_panels_on_a_small_screen(open_notebook, width, room):
    """What is looked at and what moves it stand together; the width is used, nothing overflows."""
    notebook = open_notebook(
        [
            "import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6],"
            " layer='layer3.0.conv1')"
        ]
    )
    page = notebook.page
    page.set_viewport_size({"width": width, "height": 800})
    if (sidebar := page.locator(".jp-SideBar .lm-TabBar-tab.lm-mod-current")).count():
        sidebar.first.click()
    widget = page.locator(".hookviz-explorer")
    seen = widget.locator("figure .frame img:visible")  # the theme's own
    seen.nth(3).wait_for()
    page.wait_for_timeout(2500)
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

    slider = widget.locator(".hookviz-by-layer .noUi-base, .hookviz-by-layer .slider").first
    before = slider.bounding_box()["width"]
    handle = widget.get_by_role("slider", name="layer")
    handle.focus()
    for name in ("layer3.0.conv2", "layer3.0.downsample.0"):  # a longer name
        page.keyboard.press("ArrowRight")
        wait_until(lambda n=name: handle.get_attribute("aria-valuetext") == n, page)
        assert slider.bounding_box()["width"] == before
    top = [image.bounding_box()["y"] for image in seen.all()]
    assert top == [box["y"] for box in images]  # no picture has jumped

    for small in (527, 420):  # as the classic Notebook leaves of 700 pixels, and of 590
        widget.evaluate("(e, small) => { e.style.width = `${small}px` }", small)
        assert widget.evaluate("e => [e.clientWidth, e.scrollWidth]") == [small, small]
    assert notebook.errors == []


def test_keys_on_a_button_are_not_the_notebooks(open_notebook):
    notebook = open_notebook(
        ["import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])", "1"]
    )
    page = notebook.page
    page.wait_for_timeout(2500)
    cells = page.locator(".jp-CodeCell, .code_cell")
    button = page.locator(".hookviz-explorer").get_by_role("button", name="show the hooks")
    button.focus()
    page.keyboard.press("d")
    page.keyboard.press("d")
    page.wait_for_timeout(500)
    assert cells.count() == 2
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
    notebook.page.wait_for_timeout(1000)
    assert notebook.page.evaluate("window.hacked") is None
    assert notebook.page.locator("img[src=x]").count() == 0


def test_progress_bar_comes_and_goes(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz, time, torch\nfrom torch import nn",
            "class Slow(nn.Conv2d):\n"
            "    def forward(self, x):\n        time.sleep(0.5); return super().forward(x)\n"
            "from hookviz.run.progress import Progress\n"
            "shown, show = [], Progress._show\n"
            "def noted(bar, data):\n    shown.append(data); show(bar, data)\n"
            "Progress._show = noted\n"
            "model = nn.Sequential(*[Slow(1, 1, 1) for _ in range(6)])\n"
            "hookviz.explore(model, torch.rand(1, 1, 4, 4), target=torch.sum)",
            "bars = ['<progress' in data.get('text/html', '') for data in shown]\n"
            "print('bars', bars.count(True) > 3, 'and then', shown[-1])",
        ],
        own_kernel=True,  # it puts something else into the place of the bar
    )
    assert "bars True and then {'text/plain': 'done in " in notebook.outputs().last.inner_text()
    assert notebook.page.locator("progress").count() == 0
    assert notebook.errors == []


def wait_until(done, page, seconds=15):
    for _ in range(seconds * 10):
        if done():
            return
        page.wait_for_timeout(100)
    raise AssertionError("what was waited for did not come")
