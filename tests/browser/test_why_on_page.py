"""The panel "Why this value?" on a page without a kernel, with exact numbers."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from demo import explore_demo
from face import find_layer, open_drawer
from front_end import point, wait_for, wait_for_tiles
from playwright.sync_api import expect
from torch import nn

import hookviz

LAYER, CHANNEL, PLACE = "layer3.1.conv2", 17, (0.46, 0.66)


@cache
def written():
    """Return a page of all layers, written once."""
    made = explore_demo(layer=LAYER, channel=CHANNEL)
    made.place = PLACE
    html = made.to_html()
    made.close()
    return html


def opened(page):
    """Open the panel with a click on a value and the key w, and return it."""
    page.locator(".hv-tab", has_text="Why this value?").wait_for()  # the answers are unpacked
    point(page.locator(".hv-activation .hv-frame"), *PLACE, click=True)
    page.keyboard.press("w")
    return page.locator(".hv-why")


def at_prediction(page):
    """Open the panel at the prediction's row."""
    why = opened(page)
    why.get_by_role("button", name=re.compile("^start at ")).click()
    expect(why).to_contain_text("head.2, channel")
    return why


def value_and_terms(why):
    """Return the value and the terms by name, including the bias, with all digits."""
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
    """Compare the panel with `hookviz.contributions`, and return the contributions."""
    value, rows = value_and_terms(why)
    layer, channel, position = place_in(why)
    wanted = hookviz.contributions(model, x, layer, channel=channel, position=position)
    assert (value, rows.pop("bias")) == (wanted.value, wanted.bias)
    terms = {int(n.removeprefix("channel ")): v for n, v in rows.items() if "channel" in n}
    assert len(terms) > 0
    for number, each in terms.items():
        assert each == pytest.approx(float(wanted.by_channel[number]), rel=1e-12, abs=1e-15)
    total = sum(terms.values()) + sum(v for n, v in rows.items() if "channel" not in n)
    assert total == pytest.approx(float(wanted.by_channel.sum()), rel=1e-9, abs=1e-9)
    return wanted


def test_the_formula_names_the_operations_that_follow(shown):
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *pooled).eval()
    with torch.no_grad():
        pooled[-1].bias[0] = 9
    made = hookviz.explore(model, torch.rand(1, 3, 12, 12), layer="0")
    made.place = PLACE
    html = made.to_html()
    why = opened(shown(html))
    wait_for(lambda: why.locator(".hv-why-term").count() > 2, "the terms")
    words = why.locator("> .hv-dim").first.inner_text()
    assert "; then batch_norm " in words
    assert "→ mean (not followed further)" in words
    expect(why.get_by_role("button", name="start at output 0")).to_be_visible()


def test_terms_are_exact_and_lead_back_to_the_pixels(shown):
    model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    page = shown(written())
    why = opened(page)
    wanted = check(why, model, x)
    assert wanted.layer == LAYER and wanted.channel == CHANNEL
    after = [name for name, _ in wanted.after]
    assert f"then {after[0]} " in why.inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    page.wait_for_function("innerWidth === 390")
    wait_for(lambda: why.locator(".hv-why-from button").evaluate_all(cut) == 0, "whole words")
    page.set_viewport_size({"width": 1280, "height": 900})
    # A page cannot run the network for a check.
    assert why.locator("input[type=checkbox]").count() == 0

    why.locator(".hv-why-picture").nth(1).hover()
    words = r"channel (\d+), tap \((\d), (\d)\): kernel (\S+) × patch (\S+) = (\S+)$"
    cell = why.locator(".hv-why-cell")
    tap = wait_for(lambda: re.search(words, cell.inner_text()), "the product").groups()
    inside = tuple(map(int, tap[:3]))
    numbers = [float(each.replace("−", "-")) for each in tap[3:]]
    for found, tensor in zip(numbers, (wanted.kernel, wanted.patch, wanted.products), strict=True):
        # The text has only three digits.
        assert found == pytest.approx(float(tensor[inside]), rel=5.1e-3, abs=1e-30)

    why.get_by_role("button", name=re.compile("^start at ")).click()
    expect(why).to_contain_text("head.2, channel")
    assert check(why, model, x).layer == "head.2"
    seen = []
    while why.locator(".hv-why-from button").count():
        before = why.locator(".hv-why-trail button").count()
        why.locator(".hv-why-from button").first.click()
        wait_for(
            lambda n=before: why.locator(".hv-why-trail button").count() > n, "one layer further"
        )
        expect(why).not_to_contain_text("on its way")
        seen.append(check(why, model, x).layer)
        assert len(seen) < 30
    assert seen[-1] == "stem.0" and len(seen) > 5
    assert "← input" in why.inner_text()


def test_terms_off_the_stored_path_refer_to_the_notebook(shown):
    why = at_prediction(shown(written()))
    value, terms = value_and_terms(why)
    why.locator(".hv-why-from button").nth(1).click()  # not the largest term
    expect(why).to_contain_text("This needs the notebook")
    chips = why.locator(".hv-why-trail button")
    expect(chips).to_have_count(2)
    chips.first.click()
    expect(why).to_contain_text("head.2, channel")
    assert value_and_terms(why) == (value, terms)


def test_the_kernels_of_the_first_layer_are_shown(shown):
    made = explore_demo()
    first = made.weights("stem.0")
    page = shown(written())
    wait_for_tiles(page)
    open_drawer(page, "Weights")
    panel = page.locator(".hv-weights-panel")
    expect(panel).to_contain_text("This needs the notebook")
    find_layer(page, "stem.0")
    kernels = page.locator(".hv-kernel")

    def listed():
        return [int(each) for each in page.locator(".hv-kernel > .hv-dim").all_inner_texts()]

    wait_for(lambda: listed() == first.order, "the kernels in colour")
    kernels.nth(3).click()
    expect(kernels.nth(3)).to_have_attribute("aria-pressed", "true")
    channel = first.order[3]
    assert f"norm {float(first.norms[channel]):.3g}" in panel.inner_text()
    assert page.locator(".hv-histogram-bars > span").count() == 40
    pixels = (
        kernels.nth(3)
        .locator("canvas")
        .evaluate("(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]")
    )
    grey = 127.5 * (1 + first.kernels[channel] / first.kernels.abs().max())
    colours = torch.tensor(pixels).view(5, 5, 4)[..., :3].permute(2, 0, 1)
    assert (colours - grey).abs().max() <= 0.51
