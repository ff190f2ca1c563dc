"""The page in a real browser, opened from the disk without a network under its strict policy."""

from __future__ import annotations

import itertools
import re

import nbformat
import numpy as np
import pytest
import torch
from architectures import model_of
from demo import explore_demo
from face import choose, find_layer, open_drawer
from front_end import PIXELS, as_pixels, wait_for, wait_for_tiles
from front_end import canvas_pixels as pixels
from nbconvert import HTMLExporter
from playwright.sync_api import expect
from torch import nn

import hookviz
from hookviz.draw.colours import palette, to_levels
from hookviz.view.build import build_frame

CMAPS = ["auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm"]
RANGES = ["channel", "layer", "percentile", "symmetric"]


class Given(nn.Conv2d):
    """A convolution that returns fixed maps of every kind."""

    def __init__(self, maps):
        super().__init__(3, len(maps), 1)
        self.maps = maps[None]

    def forward(self, x):
        return self.maps + 0 * super().forward(x).mean()


def odd_maps():
    torch.manual_seed(0)
    maps = torch.randn(9, 6, 7)
    maps[1] *= 1e-36
    maps[2] *= 1e34
    maps[3, 0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    maps[4] = 0.25
    maps[5] = torch.nan
    maps[6] = 0
    maps[7] = maps[7].abs()
    maps[8, :, 3] = 0
    return maps


def expected(panel):
    return palette(panel.cmap)[to_levels(panel.values, panel.low, panel.high)]


# Read the pixel at the centre of each value in each tile; then click the tile and read its map.
WALK = f"""async ([height, width]) => {{
  const read = {PIXELS};
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await frame();
  const sheet = document.querySelector(".hv-sheet");
  const origin = sheet.getBoundingClientRect();
  const all = sheet.getContext("2d").getImageData(0, 0, sheet.width, sheet.height);
  const middles = (tile) => {{
    const box = tile.getBoundingClientRect();
    const [wide, high] = [box.width / width, box.height / height];
    return Array.from({{ length: height * width }}, (_, at) => {{
      const row = Math.trunc(box.y - origin.y + (Math.trunc(at / width) + 0.5) * high);
      const column = Math.trunc(box.x - origin.x + (at % width + 0.5) * wide);
      const from = 4 * (row * all.width + column);
      return [...all.data.subarray(from, from + 4)];
    }});
  }};
  const tiles = [...document.querySelectorAll(".hv-tile")];
  const seen = {{ small: tiles.map(middles), large: [] }};
  for (const tile of tiles) {{
    tile.click();
    await frame();
    seen.large.push(read(document.querySelector(".hv-activation canvas")));
  }}
  return seen;
}}"""


# Each palette and each range once.
LOOKS = [*zip(CMAPS, itertools.cycle(RANGES)), *(("auto", each) for each in RANGES[1:])]


def test_each_pixel_equals_that_of_the_python_renderer(shown):
    model = nn.Sequential(Given(odd_maps()), nn.Flatten())
    explorer = hookviz.explore(model, torch.rand(1, 3, 6, 7))
    page = shown(explorer.to_html(), color_scheme="light")
    wait_for_tiles(page)
    for cmap, normalize in LOOKS:
        choose(page, "colours of the feature map", "colours", cmap)
        choose(page, "colours of the feature map", "range of the colours", normalize)
        explorer.cmap, explorer.normalize = cmap, normalize
        seen = page.evaluate(WALK, [6, 7])
        assert len(seen["small"]) == len(seen["large"]) == 9
        for channel in range(9):
            # Compute the panel directly: the explorer would also draw a still picture.
            there = build_frame(explorer.displayed().with_settings(channel=channel))
            wanted = expected(there.panels[0])
            large, small = as_pixels(seen["large"][channel]), np.array(seen["small"][channel])
            assert (large == wanted).all(), (cmap, normalize, channel)
            assert (small.reshape(6, 7, 4) == wanted).all(), (cmap, normalize, channel)


def test_the_demo_page_is_used_by_keyboard_pointer_and_search(shown, explorer, explorer_page):
    page = shown(explorer_page.read_text(), color_scheme="light")
    wait_for_tiles(page)
    canvas = page.locator(".hv-activation canvas").first

    def agrees():
        return np.array_equal(pixels(canvas), expected(explorer.frame.panels[0]))

    wait_for(agrees)
    page.keyboard.press("ArrowRight")  # works without focus, since the page has only one explorer
    explorer.channel = 5
    wait_for(agrees)
    page.keyboard.press("ArrowDown")
    layers = list(explorer.cache)
    explorer.layer = layers[layers.index("layer2.0.conv1") + 1]
    wait_for(agrees)
    begins = re.compile(f"^{re.escape(explorer.layer)}")
    expect(page.get_by_role("slider", name="layer")).to_have_attribute("aria-valuetext", begins)

    find_layer(page, "96×14 3.1.conv2")
    explorer.layer = "layer3.1.conv2"
    wait_for(agrees)
    page.locator(".hv-tile", has_text="17").first.click()
    explorer.channel = 17
    wait_for(agrees)
    page.locator(".hv-layer").nth(5).click()
    explorer.layer = list(explorer.cache)[5]
    expect(page.locator("h2")).to_have_text(explorer.layer)
    other = page.locator(".hv-prediction").nth(2)
    other.click()
    expect(other).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".hv-notes")).to_contain_text("Gradients in this page are of moon")
    strip = open_drawer(page, "Heatmaps of all layers")
    expect(strip.locator(".hv-cap")).to_contain_text(f" of {other.locator('b').inner_text()}: ")
    page.keyboard.press("Control+z")
    expect(page.locator(".hv-notes")).not_to_contain_text("Gradients in this page")


def test_the_reason_for_the_opened_channel_goes_with_its_target(shown):
    explorer = explore_demo(layers="layer3.*")
    page = shown(explorer.to_html(max_bytes=1e6))
    explorer.close()
    reason, bars = page.get_by_text("contributes most to"), page.locator(".hv-prediction")
    for bar, count in ((0, 1), (1, 0), (0, 1)):
        bars.nth(bar).click()
        expect(bars.nth(bar)).to_have_attribute("aria-pressed", "true")
        expect(reason).to_have_count(count)


def test_a_heatmap_that_the_page_has_for_its_target_only_is_not_replaced(shown):
    explorer = explore_demo(layers="layer3.*")
    first, second = (each.name for each in explorer.frame.predictions[:2])
    page = shown(explorer.to_html(max_bytes=1e6))
    explorer.close()
    page.locator(".hv-prediction").nth(1).click()
    words, menu = page.locator(".hv-input .hv-words"), page.get_by_label("heatmap", exact=True)
    strip = open_drawer(page, "Heatmaps of all layers").locator(".hv-cap")
    for method, name in {"layercam": "LayerCAM", "gradcam++": "Grad-CAM++"}.items():
        menu.select_option(method)
        expect(words).to_have_text(f"This page has {name} for {first} only.")
        expect(strip).to_have_text(f"This page has {name} for {first} only.")
    menu.select_option("activation × gradient")
    expect(words).to_have_text(f"This page has activation × gradient for {first} only.")
    expect(strip).to_contain_text(f"Grad-CAM of {second} (")
    for method, name in {"eigencam": "Eigen-CAM", "gradcam": "Grad-CAM"}.items():
        menu.select_option(method)
        expect(strip).to_contain_text(f"{name} of {second}: ")
        expect(words).to_be_empty()


def test_a_page_without_a_target_says_so(shown):
    scores = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1))
    model = model_of(lambda m, x: {"out": m.scores(x)}, scores=scores)
    explorer = hookviz.explore(model, torch.rand(1, 3, 9, 9))
    page = shown(explorer.to_html())
    explorer.close()
    hint = "no class scores: for gradients, write the page with target=hookviz.output[…]"
    expect(page.locator(".hv-facts")).to_contain_text(hint)
    for panel in ("gradient", "input"):
        expect(page.locator(f".hv-{panel} .hv-words")).to_have_text("this page has no target")


def test_a_page_of_scores_without_a_graph_asks_for_no_target(shown):
    model = model_of(lambda m, x: m.conv(x).mean((2, 3)).detach(), conv=nn.Conv2d(3, 4, 3))
    explorer = hookviz.explore(model, torch.rand(1, 3, 9, 9))
    page = shown(explorer.to_html())
    explorer.close()
    expect(page.locator(".hv-facts")).to_contain_text("no gradient: the scores are computed")
    for panel in ("gradient", "input"):
        expect(page.locator(f".hv-{panel} .hv-words")).to_have_text("no gradient arrives here")


def test_without_scripts_the_still_picture_is_shown(chrome, explorer, explorer_page):
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(explorer_page.as_uri())
    assert page.get_by_role("img").get_attribute("alt") == explorer.frame.description
    context.close()


@pytest.mark.heavy
def test_the_page_works_in_an_exported_notebook(chrome, explorer, tmp_path):
    """The output of `explorer.page` still works after nbconvert's export to HTML."""
    explorer.layer, explorer.channel = "layer3.0.conv1", 4
    data = {"text/html": explorer.page(layers="layer3.*").data}
    output = nbformat.v4.new_output("display_data", data)
    cell = nbformat.v4.new_code_cell("explorer.page()", outputs=[output])
    book, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    (tmp_path / "book.html").write_text(book, encoding="utf-8")
    page = chrome.new_page(viewport={"width": 1280, "height": 900})
    page.context.set_offline(True)
    page.goto((tmp_path / "book.html").as_uri(), wait_until="domcontentloaded")
    inside = page.frame_locator("iframe")
    inside.locator(".hv-tile").first.wait_for()
    inside.get_by_role("slider", name="channel").focus()
    page.keyboard.press("ArrowRight")
    inside.locator(".hv-label", has_text="channel 5").wait_for()
    page.keyboard.press("ArrowDown")
    inside.locator(".hv-name", has_text="layer3.0.conv2").wait_for()
    page.close()


def meeting(m, one, other):
    """Run a layer on each of two pictures, and one on their difference."""
    return m.both(m.each(one) - m.each(other)).mean((2, 3))


def test_only_the_input_of_the_shown_maps_is_beside_them(shown):
    pictures = torch.rand(1, 3, 9, 9), torch.rand(1, 3, 9, 9)
    each, both = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
    model = model_of(meeting, each=each, both=both)
    explorer = hookviz.explore(model, pictures, layer="each", call=1)
    page = shown(explorer.to_html())
    drawn = page.locator(".hv-input canvas").first
    page.get_by_role("slider", name="opacity of the heatmap").fill("0")
    first, second = ((each[0] * 255).round().permute(1, 2, 0).byte().numpy() for each in pictures)
    wait_for(lambda: np.array_equal(pixels(drawn)[..., :3], second), "the second picture")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".hv-notes")).to_contain_text("No picture is shown beside this map")
    shown_now = pixels(drawn)[..., :3]  # only the heatmap
    assert not any(np.array_equal(shown_now, each) for each in (first, second))
    page.keyboard.press("ArrowUp")
    wait_for(lambda: np.array_equal(pixels(drawn)[..., :3], second), "the second picture again")
