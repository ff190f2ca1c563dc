"""In the browser, too, all that is on the screen is of one layer, channel, picture and run."""

from __future__ import annotations

import pytest
from front_end import WIDGETS, wait_for
from playwright.sync_api import expect

import hookviz

pytestmark = pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")

PICTURES = "hookviz.demo_images()"
MAKE = f"explorer = hookviz.explore(hookviz.demo_model(), {PICTURES}[6])"
TELL = """said = ipywidgets.Label('').add_class('said')
def tell(change=None):
    call = explorer.cache[explorer.layer].last
    strongest = int((call.activation * call.gradient)[0].sum((1, 2)).argmax())
    said.value = f'{explorer.layer} {explorer.channel == strongest} {len(explorer.edits)}.'
explorer.observe(tell)
tell()
said"""


@pytest.fixture
def canvas(open_canvas):
    return open_canvas("import hookviz, ipywidgets", MAKE, "explorer", TELL)


def test_quick_key_presses_end_at_the_last_layer_and_its_strongest_channel(canvas, shots):
    """Ten of them, over layers that are not loaded yet."""
    notebook, app = canvas
    page, slider = notebook.page, app.get_by_role("slider", name="layer", exact=True)
    expect(app).to_contain_text("contributes most to")
    page.screenshot(path=shots / "state-opened.png")
    layers = list(hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6]).cache)
    wanted = max(int(slider.input_value()) - 10, 0)
    app.locator(".hv-tile").first.click()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    said = page.locator(".said")
    wait_for(lambda: f"{layers[wanted]} True" in said.inner_text(), "the kernel's layer")
    assert slider.input_value() == str(wanted)
    page.screenshot(path=shots / "state-tenth.png")
    assert notebook.errors == []
