"""Switch a channel off by keyboard, and see the new predictions."""

from __future__ import annotations

import pytest
from face import open_drawer
from front_end import WIDGETS, wait_for
from playwright.sync_api import expect

import hookviz

PLACE = "layer='layer3.1.conv2', channel=32"
MAKE = f"explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], {PLACE})"


@pytest.fixture(scope="module")
def twin():
    made = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], **eval(f"dict({PLACE})"))
    yield made
    made.close()


CUT = "all => all.map((one) => one.scrollWidth > one.clientWidth)"


def share(prediction):
    """Return a prediction's text at its bar."""
    return f"{100 * prediction.value:.1f} %"


@pytest.mark.heavy  # test_hands.py sends the same requests, test_network_page.py has the gestures
@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_edits_change_predictions_and_maps(open_canvas, twin):
    notebook, app = open_canvas("import hookviz", MAKE, "explorer")
    page = notebook.page
    first = app.locator(".hv-prediction").first

    open_drawer(app, "Edit")
    app.get_by_role("button", name="off", exact=True).focus()
    page.keyboard.press("Space")
    twin.reset()
    twin.edit()
    expect(first).to_contain_text(share(twin.frame.predictions[0]))
    bars, changes = app.locator(".hv-prediction"), [e.change for e in twin.frame.predictions]
    expect(bars).to_contain_text(changes)
    chip = app.get_by_role("button", name="layer3.1.conv2, channel 32: off")
    chip.wait_for()
    expect(app.locator(".hv-hands b").first).to_contain_text("0.00")

    app.get_by_role("slider", name="factor of 32").fill("0.5")
    app.get_by_role("button", name="channel 32: × 0.5").wait_for()
    twin.reset()
    twin.edit(change=0.5)
    expect(first).to_contain_text(share(twin.frame.predictions[0]))

    app.get_by_role("combobox", name="whose pictures").select_option("difference")
    wait_for(lambda: "edited − original" in app.inner_text(), "the difference")
    # The changes at the bars and the minimum of a diverging heatmap are not cut off.
    for width in (1400, 1000):
        page.set_viewport_size({"width": width, "height": 1300})
        page.wait_for_function("(width) => innerWidth === width", arg=width)
        for part in (".hv-prediction small", ".hv-input .hv-end"):
            expect(app.locator(part).first).to_be_visible()
            wait_for(lambda p=part: not any(app.locator(p).evaluate_all(CUT)), f"all of {part}")
    page.set_viewport_size({"width": 1400, "height": 1300})
    app.get_by_role("button", name="channel 32: × 0.5").click()
    twin.reset()
    expect(first).to_contain_text(share(twin.frame.predictions[0]))
    assert notebook.errors == []
