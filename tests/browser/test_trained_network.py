"""The first view of a trained network on a photograph, on screens of all sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torchvision
from demo import explore_demo
from face import choose
from front_end import canvas_pixels, next_frame, wait_for, wait_for_tiles
from playwright.sync_api import expect

import hookviz
from hookviz.draw.colours import palette, to_levels


@pytest.fixture(scope="module")
def cat(tmp_path_factory):
    model, weights = hookviz.pretrained("efficientnet_lite0")
    explorer = hookviz.explore(
        model, hookviz.models.photographs()["chelsea"], weights=weights, layers="_blocks.1[2-5]*"
    )
    path = tmp_path_factory.mktemp("cat") / "cat.html"
    explorer.to_html(path, max_bytes=20e6)  # enough for exact numbers
    yield path, explorer
    explorer.close()


def test_the_first_view_of_a_cat_fits_all_screens(chrome, cat):
    path, explorer = cat
    page = chrome.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.goto(path.as_uri())
    wait_for_tiles(page)
    assert page.locator(".hv-prediction").first.inner_text().startswith(("Egyptian", "tiger"))
    chip = page.locator(".hv-chip")
    assert chip.inner_text() == "No problems found"
    assert chip.get_attribute("title").startswith("No NaN or Inf in ")
    blocks = page.locator(".hv-blocks span")
    assert blocks.evaluate_all("all => all.map((each) => each.title)") == [
        f"{number}" for number in range(12, 16)
    ]
    # A menu shows the network's input instead of the picture.
    own = page.locator(".hv-input .hv-map")
    page.get_by_role("slider", name="opacity of the heatmap").fill("0")
    next_frame(page)
    seen = canvas_pixels(own)[..., :3]
    choose(page, "about the input", "the input as a picture, or as the network receives it", "true")
    next_frame(page)
    numbers = explorer.inputs.main[0].permute(1, 2, 0).numpy()
    stretched = 255 * (numbers - numbers.min()) / np.ptp(numbers)
    fed = canvas_pixels(own)[..., :3]
    assert np.abs(fed - stretched).max() < 3 < np.abs(seen - stretched).max()
    # The caption names the preprocessing, which is known.
    page.locator(".hv-activation .hv-frame").click()
    note = page.locator(".hv-here")
    expect(note).to_contain_text("the whole input")
    assert "preprocessing" not in note.inner_text()
    caption = page.locator(".hv-input .hv-label")
    assert "; preprocessing: from the weights" in caption.get_attribute("title")
    page.keyboard.press("Escape")
    for width, height in ((1024, 768), (900, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        next_frame(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        head = ".hv-activation .hv-label"
        for part in (
            ".hv-does :first-child",
            ".hv-prediction em",
            ".hv-model",
            ".hv-chip",
            head,
        ):
            assert page.locator(part).evaluate_all(cut) == 0, (width, part)
        menus = page.locator(".hv-activation .hv-cap select, .hv-input .hv-cap select")
        assert menus.evaluate_all(TOO_NARROW) == [], width
        frame = page.locator(".hv-activation .hv-frame").bounding_box()
        assert abs(frame["width"] - frame["height"]) < 1
        assert page.get_by_role("slider", name="channel").bounding_box()["width"] >= 90
    page.close()


# Find menus that cut off the chosen option: a copy with only that option is wider.
TOO_NARROW = """all => all.filter((menu) => menu.checkVisibility()).filter((menu) => {
  const copy = menu.cloneNode();
  copy.append(menu.selectedOptions[0].cloneNode(true));
  copy.style = "flex: none; width: auto; min-width: 0; max-width: none; position: absolute";
  menu.after(copy);
  const needed = copy.offsetWidth;
  copy.remove();
  return needed > menu.offsetWidth;
}).map((menu) => menu.selectedOptions[0].textContent)"""


def labels(page):
    """Return the visible labels below the ribbon of layers, in order."""
    spans = page.locator(".hv-blocks span")
    return [text for text in spans.all_inner_texts() if text]


@pytest.mark.heavy
def test_labels_of_blocks_are_distinct_and_do_not_overlap(shown):
    """A transformer's blocks are labelled by number, a single first convolution by name."""
    transformer, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(transformer, digit)
    page = shown(explorer.to_html(max_bytes=2e6))
    wait_for_tiles(page)
    names = ["conv_proj", "encoder.layers.encoder_layer_0", "1", "2"]
    wait_for(lambda: labels(page) == names, "the blocks' names")
    torch.manual_seed(0)
    resnet = torchvision.models.resnet18(num_classes=5).eval()
    explorer = hookviz.explore(resnet, torch.rand(1, 3, 64, 64))
    page = shown(explorer.to_html(max_bytes=2e6))

    def apart():
        ends = page.locator(".hv-blocks span").evaluate_all(TEXT_ENDS)
        return all(one <= other for (_, one), (other, _) in itertools.pairwise(ends))

    names = ["conv1", "layer1", "2", "3", "4"]
    # On a phone, a single layer has no room for its name.
    for width, shorter in ((1280, 0), (390, 1)):
        page.set_viewport_size({"width": width, "height": 844})
        wait_for_tiles(page)
        wait_for(
            lambda wanted=names[shorter:]: labels(page) == wanted and apart(), "the blocks' names"
        )


TEXT_ENDS = """spans => spans.filter((span) => span.textContent).map((span) => {
  const range = document.createRange();
  range.selectNodeContents(span);
  const box = range.getBoundingClientRect();
  return [box.left, box.right];
})"""


def test_a_page_has_the_maps_after_the_activation(shown):
    """The caption says "after activation"; the gradient remains that of the output."""
    explorer = explore_demo(layer="layer2.0.conv1", channel=4)
    explorer.shown_after = "activation"
    page = shown(explorer.to_html(layers=["layer2.0.conv1", "layer2.1.conv1"], max_bytes=3e6))
    wait_for_tiles(page)
    expect(page.locator(".hv-activation .hv-cap .hv-dim")).to_have_text("28×28, after activation")
    assert page.locator(".hv-activation .hv-cap .hv-dim").is_visible()
    after = page.get_by_label("raw output, or after normalization or activation")
    assert not after.is_visible()  # a page has maps after only one operation, so it has no menu
    panels = explorer.frame.panels
    assert panels[0].values.min() == 0
    for panel, name in zip(panels[:2], ("activation", "gradient"), strict=True):
        colours = palette(panel.cmap)[to_levels(panel.values, panel.low, panel.high)]
        canvas = page.locator(f".hv-{name} canvas.hv-map")
        wait_for(lambda c=canvas, w=colours: np.array_equal(canvas_pixels(c), w), name)
