"""The order by score drop, clicks while it is computed, and channels that flip the prediction."""

from __future__ import annotations

import re

import pytest
from demo import explore_demo
from face import open_drawer
from front_end import CANVAS_ON, needs_canvas, wait_for
from playwright.sync_api import expect
from test_slow_in_lab import delayed

import hookviz

pytestmark = needs_canvas

LAYER = "layer3.1.conv2"
FRAGILE = "layer3.0.conv1"  # switching off a quarter of its channels changes the prediction
# The computation starts with two parts of one batch each, so that a test can act between them.
# While a file "hold" exists, the second part waits.
ON = f"""{CANVAS_ON}
import hookviz, pathlib, time
from hookviz.attribution.flip import Flip
from hookviz.attribution.perturbation import Ablation
def hold(kind):
    work = kind.work
    def held(self, seconds):
        self.parts = getattr(self, "parts", 0) + 1
        while self.parts > 1 and pathlib.Path("hold").exists():
            time.sleep(0.01)
        return work(self, 0 if self.parts < 3 else seconds)
    patch.object(kind, "work", held).start()
hold(Flip)
hold(Ablation)"""
TWO = f"""model, pictures = hookviz.demo_model(), hookviz.demo_images()[4:6]
x = hookviz.attribution.prepare_input(pictures, model).args[0][..., ::2, ::2]
explorer = hookviz.explore(model, x, layer='{LAYER}', channel=70)"""
ONE = f"""explorer = hookviz.explore(
    hookviz.demo_model(), hookviz.demo_images()[6], layer='{LAYER}', channel=32)"""


@pytest.fixture
def hold(lab):
    """Return the file that pauses the kernel's computation."""
    path = lab.files / "hold"
    yield path
    path.unlink(missing_ok=True)


def controls(app):
    """Return the menu of orders, the progress and its button, "off", and the edits."""
    open_drawer(app, "Edit")
    return (
        app.get_by_role("combobox", name="order of the channels"),
        app.get_by_text(re.compile(r"\d+ % switched off")),
        app.locator(".hv-ablation button:visible", has_text=re.compile("stop|again|find")),
        app.get_by_role("button", name="off", exact=True),
        app.locator(".hv-edits button"),
    )


def test_clicks_act_on_the_shown_channel_while_the_order_changes(open_canvas, hold):
    notebook, app = open_canvas(TWO, "explorer", first=ON)
    page = notebook.page
    order, working, button, off, chips = controls(app)
    number = app.locator(".hv-heading .hv-number-now").first
    with delayed(page, 40):
        page.evaluate("() => { globalThis.looking = 0; }")
        # Switching off the shown channel ends the computation, which belongs to the unedited run.
        hold.touch()
        order.select_option("score drop")
        working.wait_for()
        assert number.inner_text() == "70"
        off.click()
        hold.unlink()
        chips.first.wait_for()
        assert f"{LAYER}, channel 70: off" in chips.first.inner_text()
        app.get_by_text("stopped: the run has changed").wait_for()
        assert number.inner_text() == "70" and order.input_value() == "index"

        # Compute again, and click a tile when the order arrives.
        hold.touch()
        button.click()
        working.wait_for()
        tile = app.locator(".hv-tile:not(.hv-on)").first  # a tile on the page with channel 70
        other = tile.get_attribute("data-channel")
        tile.click()
        expect(number).to_have_text(other)
        off.click()
        hold.unlink()
        expect(chips).to_have_count(2)
        assert f"channel {other}: off" in chips.nth(1).inner_text()

        # After a stop by hand, nothing has changed.
        app.get_by_text("stopped: the run has changed").wait_for()
        hold.touch()
        button.click()
        working.wait_for()
        button.click()
        hold.unlink()
        app.get_by_text("stopped", exact=True).wait_for()
        assert order.input_value() == "index" and chips.count() == 2

        # After a complete computation, a channel chosen meanwhile stays, and the order is shown.
        hold.touch()
        button.click()
        working.wait_for()
        tile = app.locator(".hv-tile:not(.hv-on)").nth(1)
        third = tile.get_attribute("data-channel")
        tile.click()
        hold.unlink()
        expect(order).to_have_value("score drop")
        expect(working).to_have_count(0)
        assert number.inner_text() == third and app.locator(".hv-drop:visible").count() > 3
        page.keyboard.press("Home")
        expect(app.locator(".hv-by")).to_contain_text("rank 1 of 96")
        first = number.inner_text()
        off.click()
        expect(chips).to_have_count(3)
        assert f"channel {first}: off" in chips.nth(2).inner_text()
        app.get_by_text("by channel number: not computed for this layer").wait_for()
        assert order.input_value() == "score drop" and number.inner_text() == first

        app.get_by_role("button", name="restore all").click()
        expect(chips).to_have_count(0)
        notebook.settle()
        assert order.input_value() == "score drop" and number.inner_text() == first


def test_channels_that_change_the_prediction(open_canvas, hold):
    twin = explore_demo(
        layer=FRAGILE,
        channel=32,
        order="gradcam weight",
    )
    plain = [each.words for each in twin.frame.predictions]
    flip = twin.flip()
    notebook, app = open_canvas(ONE.replace(LAYER, FRAGILE), "explorer", first=ON)
    page = notebook.page
    open_drawer(app, "Edit")
    bars, chips = app.locator(".hv-prediction"), app.locator(".hv-edits button")
    order = app.get_by_role("combobox", name="order of the channels")
    order.select_option("gradcam weight")
    expect(app.locator(".hv-by")).to_contain_text("rank 1 of 96")
    button = app.locator(".hv-flip button")
    with delayed(page, 40):
        page.evaluate("() => { globalThis.looking = 0; }")
        hold.touch()
        button.click()
        app.get_by_text(re.compile(r"^\d+ of 96 off")).wait_for()
        assert button.inner_text() == "stop"
        button.click()
        hold.unlink()
        app.get_by_text("stopped: nothing is switched off").wait_for()
        notebook.settle()
        assert (
            chips.count() == 0 and button.inner_text() == "find channels that change the prediction"
        )
    button.click()
    chips.first.wait_for()
    assert str(twin.edits[0]) in chips.first.get_attribute("title")  # a long list is shortened
    said = app.locator(".hv-flip .hv-curve").get_attribute("aria-label")
    shares = [float(each) for each in re.findall(r"off ([\d.]+) %", said)]
    assert shares == [pytest.approx(100 * each, abs=0.06) for each in flip.curve]
    names = hookviz.demo_model().class_names
    words = f"Prediction flips to {names[flip.flipped]} after {len(flip.curve) - 1} channels; "
    assert words in app.locator(".hv-flip").inner_text()
    best = twin.frame.predictions[0]
    expect(bars.first).to_contain_text(best.words)
    assert best.name in bars.first.inner_text()
    assert words in app.locator(".hv-flip").inner_text()  # shown as long as the edit exists
    page.keyboard.press("Control+z")
    expect(chips).to_have_count(0)
    expect(app.locator(".hv-flip")).not_to_contain_text(words)
    wait_for(lambda: [each.split("\n")[-1] for each in bars.all_inner_texts()] == plain, "the bars")
