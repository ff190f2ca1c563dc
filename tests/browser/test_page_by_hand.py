"""Using the page: wheel, drag, double-click, colourbar, layer strip, keys and printing."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from face import choose, find_layer, open_drawer, save_menu
from front_end import (
    SAID,
    canvas_pixels,
    next_frame,
    nothing_wrong,
    point,
    wait_for,
    wait_for_tiles,
)
from PIL import Image
from playwright.sync_api import expect
from torch import nn

import hookviz
from hookviz.draw.colours import palette, to_levels
from hookviz.studies.receptive_field.field import outline, words

PANELS = ("input", "activation", "gradient")


@pytest.fixture
def page(blank, explorer_page):
    with nothing_wrong(blank()) as opened:
        opened.goto(explorer_page.as_uri())
        wait_for_tiles(opened)
        heatmap = re.compile("^heatmap .*, over the input$")  # is unpacked after the maps
        expect(frame(opened, "input")).to_have_attribute("aria-label", heatmap)
        yield opened


def frame(page, name):
    return page.locator(f".hv-{name} .hv-frame")


def transforms(page):
    """Return the zoom and shift of the pictures, which all share."""
    panels = ", ".join(f".hv-{name} .hv-frame canvas" for name in PANELS)
    styles = "all => all.map((canvas) => canvas.style.transform)"
    found = page.locator(panels).evaluate_all(styles)
    assert len(found) == len(PANELS) and len(set(found)) == 1, found
    return found[0]


def at(page, name, u, v):
    box = frame(page, name).bounding_box()
    return box["x"] + u * box["width"], box["y"] + v * box["height"]


WITHOUT_SIZE = """root => new Promise((done) => {
  requestAnimationFrame(() => (root.style.display = "none"));
  document.body.dispatchEvent(
    new KeyboardEvent("keydown", { key: "ArrowRight", shiftKey: true, bubbles: true }),
  );
  requestAnimationFrame(() => done(root.style.display = ""));
})"""


def test_the_card_is_beside_its_position_after_a_moment_without_size(page):
    """JupyterLab takes a view's size away while it changes its theme."""
    page.mouse.click(*at(page, "activation", 0.3, 0.6))
    card = page.locator(".hv-card-here")
    before = card.bounding_box()
    page.locator("#hookviz").evaluate(WITHOUT_SIZE)

    def is_beside():
        after = card.bounding_box()
        return 0 < after["x"] - before["x"] < 60 and abs(after["y"] - before["y"]) < 5

    wait_for(is_beside, "the card beside the next position")


def test_wheel_drag_and_double_click_zoom_and_move_all_panels(page):
    x, y = at(page, "activation", 0.27, 0.77)  # inside a cell of the map
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)  # scrolls the page until a picture has been clicked
    next_frame(page)
    assert transforms(page) == ""
    page.mouse.click(x, y)
    next_frame(page)
    before = page.locator(".hv-here dd").first.inner_text()
    page.mouse.wheel(0, -300)
    enlarged = wait_for(lambda: transforms(page), "the zoom")
    assert f"scale({np.e:.3f}" in enlarged
    # The point under the pointer stays there.
    page.mouse.move(x + 1, y)
    next_frame(page)
    assert page.locator(".hv-here dd").first.inner_text() == before

    page.mouse.down()
    page.mouse.move(x - 60, y + 30, steps=3)
    page.mouse.up()
    next_frame(page)
    moved = transforms(page)
    assert moved != enlarged and "scale(2.718" in moved
    page.mouse.dblclick(*at(page, "gradient", 0.8, 0.2))  # not on the card of the position
    next_frame(page)
    assert transforms(page) == ""


def test_a_drag_on_the_colourbar_chooses_the_range(page, explorer):
    canvas = frame(page, "activation").locator("canvas")
    panel = explorer.frame.panels[0]
    box = page.locator(".hv-activation .hv-bar").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], y, steps=4)
    page.mouse.up()
    next_frame(page)
    fields = [page.locator(".hv-activation .hv-end").nth(place) for place in (0, 1)]
    low, high = (float(field.get_attribute("title")) for field in fields)
    span = float(panel.high - panel.low)
    assert low == pytest.approx(panel.low + span / 4, abs=span / 100)
    assert high == pytest.approx(panel.high - span / 4, abs=span / 100)
    got, colours = canvas_pixels(canvas), palette(panel.cmap)
    assert (got == colours[to_levels(panel.values.astype(np.float64), low, high)]).all()

    fields[0].fill("0")
    fields[0].press("Enter")
    next_frame(page)
    assert float(fields[0].get_attribute("title")) == 0
    page.locator(".hv-activation .hv-bar").dblclick()
    next_frame(page)
    whole = colours[to_levels(panel.values, panel.low, panel.high)]
    assert (canvas_pixels(canvas) == whole).all()


def test_the_overlay_equals_pythons(page, explorer):
    page.get_by_label("heatmap", exact=True).select_option("hirescam")
    explorer.heatmap = "hirescam"
    wanted = explorer.frame.overlay.pixels.astype(int)

    def agrees():
        got = canvas_pixels(frame(page, "input").locator("canvas"))[..., :3].astype(int)
        # A page has heatmaps in half precision, so a value may round to a neighbouring level.
        less = np.abs(got - wanted) if got.shape == wanted.shape else np.inf
        return np.max(less) <= 3 and np.mean(less) < 0.2

    wait_for(agrees, "Python's overlay")


def test_a_click_in_the_strip_of_heatmaps_opens_the_layer(page, explorer):
    open_drawer(page, "Heatmaps of all layers")
    thumbs = page.locator(".hv-thumb")
    expect(thumbs).to_have_count(len(explorer.heatmaps()))
    expect(thumbs.locator("span")).to_have_text(list(explorer.heatmaps()))
    thumbs.nth(2).click()
    expect(page.locator("h2")).to_have_text(list(explorer.heatmaps())[2])
    expect(thumbs.nth(2)).to_have_attribute("aria-current", "true")


def test_a_layer_that_is_not_found_stays_in_the_search_field(page):
    layer = page.get_by_role("slider", name="layer", exact=True)
    before = layer.input_value()
    field = find_layer(page, "layer9")
    expect(field).to_have_value("layer9")
    expect(page.locator(".hv-none", has_text="no layer")).to_be_visible()
    assert layer.input_value() == before


def test_a_key_walks_on_only_once_the_system_repeats_it(page):
    channels = page.get_by_role("slider", name="channel", exact=True)
    channels.press("Home")
    page.keyboard.down("ArrowRight")
    for _ in range(60):  # the key's end may come late on a busy machine
        next_frame(page)
    assert channels.input_value() == "1"
    page.keyboard.down("ArrowRight")
    wait_for(lambda: int(channels.input_value()) > 5, "the held key to go on")
    page.keyboard.up("ArrowRight")
    next_frame(page)  # draws the last step
    stopped = channels.input_value()
    next_frame(page)
    assert channels.input_value() == stopped


def test_all_pages_of_the_mosaic_are_full(page):
    page.set_viewport_size({"width": 1130, "height": 720})
    find_layer(page, "layer3.1.conv1")
    channels = page.get_by_role("slider", name="channel", exact=True)
    counts = []
    for key in ("Home", "End"):
        channels.press(key)
        next_frame(page)
        shown = page.locator(".hv-tile").evaluate_all("all => all.map(t => +t.dataset.channel)")
        assert shown == [*range(shown[0], shown[-1] + 1)]
        counts.append(len(shown))
    assert shown[-1] == 95 and counts[0] == counts[1] < 96
    page.set_viewport_size({"width": 1130, "height": 480})  # pages of another size
    page.get_by_role("button", name="present").click()
    expect(page.locator('.hv-tile[data-channel="95"]')).to_be_visible()


@pytest.mark.parametrize(("width", "columns"), [(390, 1), (1280, 3)])
def test_the_pictures_of_a_presentation_are_in_one_column_on_a_phone(page, width, columns):
    page.set_viewport_size({"width": width, "height": 844})
    page.get_by_role("button", name="present", exact=True).click()
    next_frame(page)
    panels = [each.bounding_box() for each in page.locator(".hv-main > .hv-panel").all()]
    assert len(panels) == 3 and len({round(each["x"]) for each in panels}) == columns
    boxes = [*panels, page.locator(".hv-main .hv-mosaic").bounding_box()]
    assert max(each["x"] + each["width"] for each in boxes) <= width
    page.get_by_role("button", name="present", exact=True).click()


def test_the_card_leaves_the_marked_cell_visible_on_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    frame(page, "activation").scroll_into_view_if_needed()
    page.mouse.click(*at(page, "activation", 0.5, 0.4))
    card, cell = (
        page.locator(part).first.bounding_box()
        for part in (".hv-card-here", ".hv-activation .hv-cell")
    )
    assert card["x"] >= 0 and card["y"] >= cell["y"] + cell["height"]


# Names of a row's parts that cover one before them, by more than rounding.
COVERING = """(row) => {
  const parts = [...row.querySelectorAll("input, button, .hv-layer:last-child, .hv-name")]
    .filter((part) => part.checkVisibility());
  const box = (part) => part.getBoundingClientRect();
  const { max, min } = Math;
  const covers = (one, other) =>
    min(one.right, other.right) - 0.5 > max(one.left, other.left)
    && min(one.bottom, other.bottom) - 0.5 > max(one.top, other.top);
  return parts.filter((part, n) => parts.slice(0, n).some((each) => covers(box(each), box(part))))
    .map((part) => part.title || part.ariaLabel);
}"""


def test_long_numbers_and_hundreds_of_layers_fit_all_windows(shown):
    layers = [nn.Conv2d(1, 1, 1, bias=False) for _ in range(200)]
    for layer in layers:
        nn.init.constant_(layer.weight, 0.999)
    head = nn.Linear(64, 2, bias=False)
    nn.init.constant_(head.weight, -1.234e-7)
    head.weight.data[:, 0] = 1.234e-5  # one gradient is much larger than all others
    model = nn.Sequential(*layers, nn.Flatten(), head)
    explorer = hookviz.explore(model, -torch.rand(1, 1, 8, 8) / 4321, layer="100")
    page = shown(explorer.to_html())
    page.locator(".hv-tile").first.wait_for()
    expect(page.locator(".hv-gradient .hv-ends")).to_contain_text("largest")
    for width in (390, 768, 900, 970, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        next_frame(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for row in (".hv-layer-row", ".hv-input .hv-ends", ".hv-gradient .hv-ends"):
            assert page.locator(row).evaluate(COVERING) == [], (width, row)
        cut = page.locator(".hv-readings").evaluate("e => e.scrollWidth - e.clientWidth")
        assert cut <= 0, width


def test_tabs_below_the_mosaic_of_a_narrow_window_can_be_clicked(page):
    """The tabs move up over the room that the tiles leave free, which took the clicks."""
    page.set_viewport_size({"width": 760, "height": 900})
    find_layer(page, "layer3.1.conv1")
    channels = page.get_by_role("slider", name="channel", exact=True)
    channels.press("Home")
    tab = page.locator(".hv-tab").first
    tab.scroll_into_view_if_needed()
    hit = """(tab) => {
      const { left, top, width, height } = tab.getBoundingClientRect();
      return document.elementFromPoint(left + width / 2, top + height / 2) === tab;
    }"""
    unused = "e => parseFloat(e.style.getPropertyValue('--unused'))"
    wait_for(lambda: page.locator(".hv-mosaic").evaluate(unused) > 0, "room without tiles")
    wait_for(lambda: tab.evaluate(hit), "the tab")


def test_the_page_can_be_printed(page):
    pdf = page.pdf(print_background=True)
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    page.emulate_media(media="print")
    expect(frame(page, "activation").locator("canvas")).to_be_visible()
    expect(page.locator(".hv-toggle").first).to_be_hidden()
    page.emulate_media(media="screen")
    page.evaluate("globalThis.print = () => { globalThis.isPrinted = true }")
    save_menu(page, "print")
    assert page.evaluate("isPrinted")


def test_the_shown_view_is_saved_as_a_picture(page, tmp_path):
    with page.expect_download() as waited:
        save_menu(page, "save picture")
    assert re.fullmatch(r"DemoNet-[\w.]+-\d+\.png", waited.value.suggested_filename)
    waited.value.save_as(tmp_path / "view.png")
    picture = np.array(Image.open(tmp_path / "view.png").convert("RGB"))
    for name, left in (("activation", 528), ("gradient", 1032)):  # after a gap of 24 pixels
        shown = canvas_pixels(frame(page, name).locator("canvas"))[..., :3]
        side = 480 / shown.shape[1]
        for row, column in ((2, 3), (5, 9), (11, 7)):
            y, x = 24 + 2 * 34 + (row + 0.5) * side, left + (column + 0.5) * side
            assert (picture[round(y), round(x)] == shown[row, column]).all()


def test_the_health_chip_opens_the_layer_with_nan(shown):
    model = hookviz.demo_model()
    with torch.no_grad():
        model.layer3[0].conv1.weight[3] = torch.nan
    explorer = hookviz.explore(
        model, hookviz.demo_images()[6], layers=["stem.0", "layer3.*conv?"], layer="stem.0"
    )
    page = shown(explorer.to_html(max_bytes=10e6))
    verdict = page.get_by_role("button", name="NaN in 4 layers")
    verdict.focus()
    page.keyboard.press("Enter")
    expect(verdict).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".hv-name", has_text="layer3.0.conv1").wait_for()


# Choose another order before the browser has read the layer.
AT_ONCE = """() => {
  document.querySelector("[data-layer='layer2.1.conv1']").click();
  const order = document.querySelector("[aria-label='order of the channels']");
  order.value = "zeros";
  order.dispatchEvent(new Event("change"));
}"""


def test_silent_channels_are_marked_and_found(shown):
    """The colours of the layers, an order and labels show silent channels."""
    model = hookviz.demo_model()
    with torch.no_grad():
        model.layer2[1].conv1.weight[1::2] = 0
    explorer = hookviz.explore(model, hookviz.demo_images()[6])
    page = shown(explorer.to_html())
    find_layer(page, "layer2.1.conv1")
    page.locator(".hv-name", has_text="layer2.1.conv1").wait_for()
    expect(page.locator(".hv-words.hv-tag")).to_have_count(0)
    page.get_by_label("order of the channels").select_option("zeros")
    page.locator(".hv-by", has_text="rank 1 of 48").wait_for()
    expect(page.locator(".hv-words.hv-tag")).to_have_text(["zero everywhere"])
    expect(page.locator(".hv-mosaic .hv-label:visible")).to_contain_text("24 silent")
    expect(page.locator(".hv-tile.hv-silent")).to_have_count(24)
    choose(page, "colours of the layers", "what the colour of a layer says", "silent")
    next_frame(page)
    colours = page.locator(".hv-layer i").evaluate_all(
        "all => all.map((each) => each.style.background)"
    )
    names = [each.get_attribute("data-layer") for each in page.locator(".hv-layer").all()]
    other = [n for n, colour in zip(names, colours, strict=True) if colour != colours[0]]
    assert other == ["layer2.1.conv1"]

    # An order that is chosen while a layer loads shows the layer's first channel.
    page.reload()
    wait_for_tiles(page)
    page.evaluate(AT_ONCE)
    page.locator(".hv-by", has_text="rank 1 of 48").wait_for()
    expect(page.locator(".hv-words.hv-tag")).to_have_text(["zero everywhere"])


# Go to a layer and move the channel's slider before the browser has read the layer.
STEP_AND_SLIDE = """([layer, position]) => {
  document.querySelector(`[data-layer='${layer}']`).click();
  const slider = document.querySelector(".hv-channels");
  slider.value = position;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_a_channel_chosen_while_a_layer_loads_is_shown(page):
    page.evaluate(STEP_AND_SLIDE, ["layer2.1.conv1", 7])
    page.locator(".hv-name", has_text="layer2.1.conv1").wait_for()
    expect(page.locator(".hv-heading .hv-number-now").first).to_have_text("7")
    page.get_by_label("order of the channels").select_option("mean")
    page.locator(".hv-by", has_text="rank 1 of 48").wait_for()
    page.evaluate(STEP_AND_SLIDE, ["layer3.1.conv1", 5])
    page.locator(".hv-name", has_text="layer3.1.conv1").wait_for()
    expect(page.locator(".hv-by")).to_contain_text("rank 6 of 96")


def test_a_click_shows_the_receptive_field_of_a_position(page, explorer):
    here, box = page.locator(".hv-here"), page.locator(".hv-input .hv-field")
    field = hookviz.receptive_field(
        hookviz.demo_model(), hookviz.demo_images()[6], "layer2.0.conv1"
    )

    def agrees(field, row, column):
        expect(here).to_contain_text(words(field, (row, column)))
        next_frame(page)
        whole, seen = frame(page, "input").bounding_box(), box.bounding_box()
        left, top, width, height = outline(field, (row, column))
        wanted = [left * whole["width"], top * whole["height"]]
        wanted += [width * whole["width"], height * whole["height"]]
        got = [seen["x"] - whole["x"], seen["y"] - whole["y"], seen["width"], seen["height"]]
        assert got == pytest.approx(wanted, abs=1.5)

    page.mouse.move(*at(page, "activation", 7.5 / 28, 20.5 / 28))
    expect(here).to_contain_text("click for its receptive field")
    assert not box.is_visible()
    page.mouse.click(*at(page, "activation", 7.5 / 28, 20.5 / 28))
    page.mouse.move(5, 5)
    agrees(field, 20, 7)  # it stays when the pointer moves away
    value = explorer.cache["layer2.0.conv1"].activation[0, 4, 20, 7].item()
    shown = page.locator(".hv-here dd").nth(1).inner_text().replace("−", "-")
    assert np.float32(shown) == np.float32(value)
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    agrees(field, 19, 8)
    page.mouse.move(*at(page, "activation", 0.5 / 28, 27.5 / 28))
    agrees(field, 27, 0)  # the position under the pointer takes precedence
    page.mouse.move(5, 5)
    agrees(field, 19, 8)

    # Another layer shows the same fraction of its map, and nothing once the position is cleared.
    find_layer(page, "layer3.1.conv2")
    page.locator(".hv-name", has_text="layer3.1.conv2").wait_for()
    deep = hookviz.receptive_field(hookviz.demo_model(), hookviz.demo_images()[6], "layer3.1.conv2")
    agrees(deep, 9, 4)
    frame(page, "activation").focus()
    page.keyboard.press("Escape")
    next_frame(page)
    assert not box.is_visible() and "sees" not in here.inner_text()


# The toolbar of the view


def tour(page):
    return page.get_by_role("dialog", name="tour")


def test_a_key_opens_the_list_of_keys_and_a_tour(page):
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="keys")
    expect(keys).to_contain_text("Ctrl + scroll")
    page.keyboard.press("ArrowRight")  # the page ignores keys pressed in the list
    expect(page.locator(".hv-number-now").first).to_have_text("4")
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)
    page.get_by_role("button", name="?", exact=True).click()
    expect(page.get_by_role("button", name="a tour of half a minute")).to_be_focused()
    page.keyboard.press("Enter")
    said = []
    for number in range(1, 6):
        expect(tour(page)).to_contain_text(f"{number} of 5")
        pointed = page.locator(".hv-pointed")
        expect(pointed).to_have_count(1)
        next_frame(page)
        box = tour(page).bounding_box()
        inside = box["x"] >= 0 and box["x"] + box["width"] <= 1280
        assert inside and box["y"] >= 0 and box["y"] + box["height"] <= 900
        said.append(tour(page).locator("p").inner_text())
        page.keyboard.press("Enter")
    assert len(set(said)) == 5
    expect(tour(page)).to_have_count(0)
    expect(page.locator(".hv-pointed")).to_have_count(0)


def test_the_view_is_in_the_address(page):
    find_layer(page, "layer3.1.conv2")
    page.locator(".hv-name", has_text="layer3.1.conv2").wait_for()
    page.locator(".hv-tile").nth(5).click()
    page.locator(".hv-prediction").nth(1).click()
    page.mouse.click(*at(page, "activation", 0.25, 0.75))
    page.get_by_label("heatmap", exact=True).select_option("hirescam")
    number = page.locator(".hv-prediction").nth(1).get_attribute("data-number")
    page.wait_for_url("**heatmap=hirescam**")
    for part in ("#layer=layer3.1.conv2", "channel=5", f"target={number}", "position=10,3"):
        assert part in page.url
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".hv-tools-of-view [role=status]").evaluate(SAID)
    save_menu(page, "copy link")
    wait_for(lambda: "copied" in page.evaluate("said"), "the link")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.evaluate("localStorage.clear()")
    page.reload()
    expect(page.locator(".hv-name")).to_have_text("layer3.1.conv2")
    expect(page.locator(".hv-number-now").first).to_have_text("5")
    expect(page.locator(".hv-prediction").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("heatmap", exact=True)).to_have_value("hirescam")
    expect(page.locator(".hv-activation .hv-cell").first).to_be_visible()


def test_the_order_by_value_follows_the_clicked_position(page, explorer):
    """The tiles are sorted again after each click, and the key b shows the first of them."""
    maps = explorer.cache["layer2.0.conv1"].activation[0]
    height, width = maps.shape[1:]
    page.get_by_label("order of the channels").select_option("value")
    largest = maps.argmax(0)
    other = (largest != largest[2, 3]).nonzero()[-1].tolist()
    for row, column in ((2, 3), other):
        here = maps[:, row, column]
        u, v = (column + 0.5) / width, (row + 0.5) / height
        point(frame(page, "activation"), v, u, click=True)
        wanted = here.argsort(descending=True)[:8].tolist()
        tiles = page.locator(".hv-tile")
        for rank, channel in enumerate(wanted):
            expect(tiles.nth(rank)).to_have_attribute(
                "aria-label", re.compile(f"^channel {channel}\\b")
            )
        page.keyboard.press("b")
        slider = page.get_by_role("slider", name="channel", exact=True)
        expect(slider).to_have_attribute("aria-valuetext", f"channel {wanted[0]} of {len(maps)}")


def test_a_class_chosen_by_keyboard_keeps_the_focus(page):
    page.locator(".hv-prediction").nth(2).focus()
    number = page.locator(".hv-prediction").nth(2).get_attribute("data-number")
    page.keyboard.press("Enter")
    expect(page.locator(f".hv-prediction[data-number='{number}']")).to_be_focused()
    expect(page.locator(f".hv-prediction[data-number='{number}']")).to_have_attribute(
        "aria-pressed", "true"
    )
