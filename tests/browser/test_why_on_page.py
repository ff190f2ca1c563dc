"""Why a value, on a page without a kernel: the numbers are those of `hookviz.contributions`."""

from __future__ import annotations

import base64
import io
import re
from functools import cache

import pytest
import torch
from front_end import next_frame, wait_for
from seen import blocks
from torch import nn

import hookviz

LAYER, CHANNEL = "layer3.1.conv2", 17
GIVE = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  await hookviz.setInput(new Blob([bytes], { type: "image/png" }));
}"""


@cache
def written(**options):
    """A page of all layers, written once."""
    made = hookviz.explore(
        hookviz.demo_model(), hookviz.demo_images()[6], layer=LAYER, channel=CHANNEL
    )
    html = made.to_html(**options)
    made.close()
    return html


def opened(page, place=(0.4, 0.6)):
    """Open the panel by a click on a value, and the key w; return it."""
    page.locator(".hv-tile").first.wait_for()
    frame = page.locator(".hv-activation .hv-frame")
    box = frame.bounding_box()
    frame.click(position={"x": place[1] * box["width"], "y": place[0] * box["height"]})
    page.keyboard.press("w")
    return page.locator(".hv-why")


def told(why):
    """The value, the bias, and the terms by channel, with every digit."""
    wait_for(lambda: why.locator(".hv-why-term").count() > 2, "the terms")
    rows = why.locator(".hv-why-term:not(.hv-why-columns)").evaluate_all(
        """(rows) => rows.map((row) => [row.children[1].textContent,
             row.querySelector(".hv-why-number").title])"""
    )
    return float(why.locator(".hv-why-sum").get_attribute("title")), {
        name: float(value) for name, value in rows
    }


def place_in(why):
    layer, channel, position = re.search(
        r"^(\S+), channel (\d+)(?: at \(([\d, ]+)\))?", why.locator("> .hv-dim").first.inner_text()
    ).groups()
    return layer, int(channel), tuple(map(int, (position or "").split(", "))) if position else ()


def check(why, model, x):
    """Compare the panel with the whole truth; return its terms."""
    value, rows = told(why)
    layer, channel, position = place_in(why)
    wanted = hookviz.contributions(model, x, layer, channel=channel, position=position)
    assert value == wanted.value
    assert rows.pop("bias") == wanted.bias
    terms = {int(n.removeprefix("channel ")): v for n, v in rows.items() if "channel" in n}
    assert len(terms) > 0
    for number, each in terms.items():
        assert each == pytest.approx(float(wanted.by_channel[number]), rel=1e-12, abs=1e-15)
    rest = {n: v for n, v in rows.items() if "channel" not in n}
    count = sum(int(name.split()[0]) for name in rest)
    assert count + len(terms) == len(wanted.by_channel)
    total = sum(terms.values()) + sum(rest.values())
    assert total == pytest.approx(float(wanted.by_channel.sum()), rel=1e-9, abs=1e-9)
    return wanted


def test_the_strip_comes_into_view_below_the_terms(shown, shots):
    page = shown(written())
    why = opened(page)
    told(why)
    strip = page.locator(".hv-strip").filter(has=page.locator(".hv-thumbs")).last
    inside = """(strip) => strip.checkVisibility() &&
      strip.getBoundingClientRect().bottom <= innerHeight + 1"""
    for close in (False, True, False):
        page.keyboard.press("a")
        if close:
            strip.wait_for(state="hidden")
            page.evaluate("scrollTo(0, 0)")
        else:
            wait_for(lambda: strip.evaluate(inside), "the strip in view")
    page.screenshot(path=shots / "why-strip.png")
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("ArrowRight")  # nothing else scrolls to it
    next_frame(page)
    assert not strip.evaluate(inside)


def test_the_formula_names_the_operations_that_follow(shown):
    torch.manual_seed(0)
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *pooled).eval()
    made = hookviz.explore(model, torch.rand(1, 3, 12, 12))
    html = made.to_html()
    made.close()
    why = opened(shown(html))
    wait_for(lambda: why.locator(".hv-why-term").count() > 2, "the terms")
    words = why.locator("> .hv-dim").first.inner_text()
    assert "; then batch_norm " in words
    assert "→ mean (of several values)" in words


def test_exact_numbers_and_the_way_back_to_the_pixels(shown, shots):
    html = written()
    model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    page = shown(html)
    why = opened(page)
    wanted = check(why, model, x)
    assert wanted.layer == LAYER and wanted.channel == CHANNEL
    after = [name for name, _ in wanted.after]
    assert f"then {after[0]} " in why.inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert why.locator(".hv-why-from button").evaluate_all(cut) == 0
    page.set_viewport_size({"width": 1280, "height": 900})
    assert why.locator("input[type=checkbox]").count() == 0  # nothing runs here
    page.screenshot(path=shots / "why-page.png")

    why.locator(".hv-why-picture").nth(1).hover()
    cell = why.locator(".hv-why-cell").inner_text()
    tap = re.search(
        r"channel (\d+), tap \((\d), (\d)\): kernel (\S+) × patch (\S+) = (\S+)$", cell
    ).groups()
    inside = tuple(map(int, tap[:3]))
    numbers = [float(each.replace("−", "-")) for each in tap[3:]]
    for found, tensor in zip(numbers, (wanted.kernel, wanted.patch, wanted.products), strict=True):
        assert found == pytest.approx(float(tensor[inside]), rel=2e-3, abs=1e-30)

    why.get_by_role("button", name=re.compile("^start at ")).click()
    wait_for(lambda: "head.2, channel" in why.inner_text(), "the prediction's row")
    assert check(why, model, x).layer == "head.2"
    seen = []
    while why.locator(".hv-why-from button").count():
        before = why.locator(".hv-why-trail button").count()
        why.locator(".hv-why-from button").first.click()
        wait_for(
            lambda n=before: why.locator(".hv-why-trail button").count() > n, "one layer further"
        )
        wait_for(lambda: "on its way" not in why.inner_text(), "its terms")
        seen.append(check(why, model, x).layer)
        assert len(seen) < 30
    assert seen[-1] == "stem.0" and len(seen) > 5
    assert "← input" in why.inner_text()


def test_the_trail_leads_back_from_a_layer_that_is_not_in_the_page(shown):
    made = hookviz.explore(
        hookviz.demo_model(), hookviz.demo_images()[6], layers=[LAYER], channel=CHANNEL
    )
    html = made.to_html()
    made.close()
    why = opened(shown(html))
    value, terms = told(why)
    why.locator(".hv-why-from button").first.click()
    wait_for(lambda: "this layer is not in this page" in why.inner_text(), "what is missing")
    chips = why.locator(".hv-why-trail button")
    assert chips.count() == 2
    chips.first.click()
    wait_for(lambda: f"{LAYER}, channel {CHANNEL} at" in why.inner_text(), "the way back")
    assert told(why) == (value, terms)


def test_the_weights_of_the_shown_layer(shown, shots):
    made = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    wanted = made.weights(LAYER, channel=CHANNEL)
    here = made.weights(LAYER, channel=CHANNEL, position=(5, 8))
    first = made.weights("stem.0")
    made.close()
    page = shown(written())
    page.locator(".hv-tile").first.wait_for()
    page.get_by_role("button", name="weights", exact=True).click()
    kernels = page.locator(".hv-kernel")
    wait_for(lambda: kernels.count() == 64, "the slices")

    def listed():
        return [int(each) for each in page.locator(".hv-kernel > .hv-dim").all_inner_texts()]

    assert listed() == [each["channel"] for each in wanted.slices()[:64]]
    facts = page.get_by_label("weights of the layer").inner_text()
    assert f"norm {float(wanted.norms[CHANNEL]):.3g}" in facts
    assert (
        f"bias with BatchNorm {float(wanted.folded_bias[CHANNEL]):.3g}".replace("-", "−") in facts
    )
    bars = page.locator(".hv-histogram-bars > span")
    assert bars.count() == 40
    page.screenshot(path=shots / "weights-slices.png", full_page=True)

    frame = page.locator(".hv-activation .hv-frame")
    box = frame.bounding_box()
    frame.click(position={"x": 0.6 * box["width"], "y": 0.4 * box["height"]})
    wait_for(
        lambda: listed() == [each["channel"] for each in here.slices()[:64]], "their order here"
    )

    page.get_by_role("combobox", name="find a layer").fill("stem.0")
    page.keyboard.press("Enter")
    wait_for(lambda: listed() == first.order, "the kernels in colour")
    kernels.nth(3).click()
    wait_for(lambda: kernels.nth(3).get_attribute("aria-pressed") == "true", "the channel")
    pixels = (
        kernels.nth(3)
        .locator("canvas")
        .evaluate("(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]")
    )
    kernel = first.kernels[first.order[3]]
    grey = 127.5 * (1 + kernel / first.kernels.abs().max())
    colours = torch.tensor(pixels).view(5, 5, 4)[..., :3].permute(2, 0, 1)
    assert (colours - grey).abs().max() <= 0.51
    page.screenshot(path=shots / "weights-colour.png", full_page=True)


@pytest.mark.heavy
def test_rounded_numbers_are_within_what_is_told(shown):
    html = written(max_bytes=2.2e6)
    facts = blocks(html)["facts"]["facts"]
    assert "weights and inputs" in facts["notes"][0]
    without = {name for name, each in facts["why"]["layers"].items() if "none" in each}
    assert without and LAYER not in without
    page = shown(html)
    why = opened(page)
    value, _ = told(why)
    layer, channel, position = place_in(why)
    wanted = hookviz.contributions(
        hookviz.demo_model(), hookviz.demo_images()[6], layer, channel=channel, position=position
    )
    text = why.inner_text()
    bound = float(re.search(r"rounded in this page, ± (\S+) at most", text).group(1))
    assert abs(value - wanted.value) <= bound * 1.001
    assert 0 < bound < 0.01 * abs(wanted.value)

    page.get_by_role("combobox", name="find a layer").fill(sorted(without)[0])
    page.keyboard.press("Enter")
    wait_for(lambda: "Why needs the notebook" in why.inner_text(), "what is missing")
    assert "do not fit into this page" in why.inner_text()


@pytest.fixture(scope="module")
def running():
    pytest.importorskip("onnxscript", reason="the oldest versions have no such export")
    return written(network=True)


@pytest.mark.heavy
def test_a_page_that_runs_its_network_tells_why_of_another_picture(running, shown, shots):
    """The terms are of the page's own run: of the picture that is shown, and with its edits."""
    page = shown(running)
    page.locator(".hv-tile").first.wait_for()
    other = hookviz.demo_images()[9]
    file = io.BytesIO()
    other.save(file, "PNG")
    page.evaluate(GIVE, base64.b64encode(file.getvalue()).decode())
    why = opened(page)
    for layer in (LAYER, "head.2", "stem.0"):
        if layer == "head.2":
            why.get_by_role("button", name=re.compile("^start at ")).click()
        elif layer != LAYER:
            page.get_by_role("combobox", name="find a layer").fill(layer)
            page.keyboard.press("Enter")
        wait_for(lambda layer=layer: f"{layer}, channel" in why.inner_text(), layer)
        value, rows = told(why)
        name, channel, position = place_in(why)
        assert name == layer
        wanted = hookviz.contributions(
            hookviz.demo_model(), other, layer, channel=channel, position=position
        )
        size = float(wanted.products.abs().sum())
        assert abs(value - wanted.value) <= 1e-5 * size
        assert rows["bias"] == wanted.bias
        for row, each in rows.items():
            if row.startswith("channel"):
                number = int(row.removeprefix("channel "))
                assert abs(each - float(wanted.by_channel[number])) <= 1e-5 * size
    page.screenshot(path=shots / "why-network-page.png")

    page.evaluate("hookviz.scale('stem.0', 4, 0)")
    page.get_by_role("combobox", name="find a layer").fill("layer1.0.conv1")
    page.keyboard.press("Enter")
    wait_for(lambda: "layer1.0.conv1, channel" in why.inner_text(), "the layer after the edit")
    value, _ = told(why)
    name, channel, position = place_in(why)
    model = hookviz.demo_model()
    with hookviz.edit(model, "stem.0", 0, channels=4), hookviz.capture(model) as cache:
        model(hookviz.attribution.prepare_input(other, model).args[0])
    exact = float(cache[name].activation[(0, channel, *position)])
    assert value == pytest.approx(exact, rel=1e-4, abs=1e-5)
