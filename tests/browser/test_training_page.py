"""The page of a training shows each recorded number with the right colour."""

from __future__ import annotations

import numpy as np
import torch
from front_end import canvas_pixels as pixels
from playwright.sync_api import expect
from torch import nn

import hookviz
from hookviz.draw.colours import SEQUENTIAL, palette

STEPS, BROKEN = 12, 8


def trained(broken=BROKEN):
    """Watch a training with dead channels from its fourth step on and NaN from `broken` on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    watch = hookviz.watch(model, every=1, probe=torch.rand(1, 1, 6, 6))
    for step in range(STEPS):
        if step == 3:
            nn.init.constant_(model[0].bias, -50.0)
        if step == broken:
            nn.init.constant_(model[3].weight, torch.nan)
        with watch:
            model(torch.randn(2, 1, 6, 6)).square().mean().backward()
    return watch


def test_strip_numbers_and_labels_of_a_training_are_shown(shown):
    watch = trained()
    page = shown(watch.to_html(), color_scheme="light")
    strip = page.locator(".hv-steps-strip")
    page.get_by_role("combobox", name="what the colours are of").select_option("dead")
    seen = pixels(strip)
    assert seen.shape[:2] == (4, STEPS)  # one row per layer, one column per step
    colours = palette(SEQUENTIAL)
    assert seen[1, 1].tolist() == colours[0].tolist()  # none of the ReLU's channels is dead
    assert seen[1, 5].tolist() == colours[251].tolist()  # all are dead
    assert seen[3, BROKEN].tolist() == seen[3, BROKEN + 2].tolist() == [255, 0, 255, 255]

    numbers = page.locator(".hv-steps-numbers")
    assert numbers.inner_text().startswith(f"step {STEPS - 1}, 0:")
    page.get_by_role("button", name="first NaN or Inf").click()
    assert numbers.inner_text().startswith(f"step {BROKEN}, 3:")
    assert f"NaN {watch.records()[BROKEN * 4 + 3]['nans']}" in numbers.inner_text()

    page.get_by_role("combobox", name="which row").select_option("0")
    over_time = page.locator(".hv-steps-dimension").first
    filled = pixels(over_time)[..., 3] > 0
    assert filled.shape[1] == STEPS
    middle = [np.flatnonzero(column).mean() for column in filled.T]
    assert min(middle[3:]) > max(middle[:3])  # far lower once the bias is large and negative
    box = over_time.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 2.5 / STEPS, box["y"] + 20)
    assert numbers.inner_text().startswith("step 2, 0:")
    page.get_by_role("slider", name="step").press("ArrowRight")
    assert numbers.inner_text().startswith("step 3, 0:")

    labels = page.locator(".hv-steps-labels div")
    assert labels.all_inner_texts() == ["0", "1", "2", "3"]
    page.get_by_role("combobox", name="what the colours are of").select_option("update_ratio")
    # Marks the layer with the large bias and the one with NaN.
    assert labels.all_inner_texts() == ["▲ 0", "▲ 3"]
    page.get_by_role("combobox", name="what the colours are of").select_option("weight norm")
    assert labels.all_inner_texts() == ["0", "3"]  # only layers with weights have norms
    page.get_by_role("combobox", name="what the colours are of").select_option("dead")
    box = strip.bounding_box()
    assert box["width"] > 0.85 * page.evaluate("document.body.clientWidth")
    page.mouse.move(box["x"] + box["width"] * 5.5 / STEPS, box["y"] + box["height"] * 1.5 / 4)
    expect(page.get_by_text("step 5, 1: dead 1")).to_have_count(1)


def test_nan_in_outputs_and_gradients_are_counted_exactly(shown):
    model = nn.Sequential(nn.Conv2d(1, 8, 1))
    nn.init.constant_(model[0].weight, torch.nan)
    gradient = torch.zeros(1, 8, 28, 28)
    gradient.view(-1)[:1234] = torch.nan
    watch = hookviz.watch(model, every=1)
    with watch:
        model(torch.rand(1, 1, 28, 28)).backward(gradient)
    page = shown(watch.to_html())
    expect(page.locator(".hv-steps-numbers")).to_contain_text(
        "NaN 6272 · Inf 0 · gradient standard deviation 0 · gradient NaN 1234 · gradient Inf 0"
    )
    expect(page.get_by_text("activations: log scale, only NaN")).to_be_visible()
    expect(page.get_by_text("gradients: log scale, 0, and NaN in magenta")).to_be_visible()
