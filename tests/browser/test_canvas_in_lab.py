"""The canvas in JupyterLab replaces the core widgets if it can run, and is hidden otherwise."""

from __future__ import annotations

import json

import pytest
from demo import explore_demo
from front_end import (
    CANVAS_ON,
    PLAIN_MAP,
    WIDGETS,
    canvas_pixels,
    next_frame,
    numeral,
    point,
    wait_for,
    wait_for_tiles,
    write_notebook,
)
from lab import Lab, Notebook
from playwright.sync_api import expect

from hookviz.draw.colours import palette, to_levels

pytestmark = pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook has a test of its own")

ON = f"{CANVAS_ON}\nimport hookviz, ipywidgets"
MAKE = "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')"
# Show Python's values, so that a test can wait for them.
TELL = (
    "said = ipywidgets.Label('').add_class('said')\n"
    "def tell(change=None):\n"
    "    e, frame = explorer, explorer.frame\n"
    "    said.value = f'{e.layer} {e.channel} {e.order} {e.alpha} '\n"
    "    said.value += f'{frame.target} {frame.description}'\n"
    "explorer.observe(tell)\n"
)


@pytest.fixture(scope="module")
def twin():
    made = explore_demo(layer="stem.0")
    yield made
    made.close()


def drawn(canvas, panel):
    got = canvas_pixels(canvas)
    wanted = palette(panel.cmap)[to_levels(panel.values, panel.low, panel.high)]
    return got.shape == wanted.shape and (got != wanted).any(-1).mean() < 0.01


FOCUSED = """(control) => {
  control.removeAttribute("data-lm-suppress-shortcuts");
  control.focus();
  return control.getAttribute("data-lm-suppress-shortcuts");
}"""


def test_the_canvas_replaces_the_core_widgets_and_updates_the_traits(open_notebook, twin):
    move = "b = ipywidgets.Button(description='python moves')\n"
    move += "b.on_click(lambda _: setattr(explorer, 'channel', 3))\n"
    notebook = open_notebook([ON, MAKE, TELL + move + "display(said, b)", "explorer"])
    page = notebook.page
    app = page.locator(".hookviz-app")
    wait_for_tiles(app)
    expect(page.locator(PLAIN_MAP)).to_have_count(0)
    canvas = app.locator(".hv-activation canvas").first
    wait_for(lambda: drawn(canvas, twin.frame.panels[0]), "the first map")
    said = page.locator(".said").first

    slider = app.get_by_role("slider", name="channel")
    # The focused element itself must suppress the notebook's shortcuts.
    assert slider.evaluate(FOCUSED) == "true"
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    twin.channel = 5
    wait_for(lambda: drawn(canvas, twin.frame.panels[0]), "channel 5")
    expect(said).to_contain_text(" 5 index")
    expect(slider).to_have_attribute("aria-valuetext", "channel 5 of 24")

    page.keyboard.press("ArrowDown")
    app.locator(".hv-tile").nth(17).click()
    twin.layer, twin.channel = "layer1.0.conv1", 17
    wait_for(lambda: drawn(canvas, twin.frame.panels[0]), "the tile of the next layer")
    expect(said).to_contain_text("layer1.0.conv1 17")

    record = twin.cache["layer1.0.conv1"]
    told = [tensor[0, 17, 20, 10].item() for tensor in (record.activation, record.gradient)]
    frame, here = app.locator(".hv-activation .hv-frame"), app.locator(".hv-here dd")

    def tells():
        point(frame, 20.5 / 56, 10.5 / 56)
        shown = [numeral(each) for each in here.all_inner_texts()[1:3]]
        return shown == [pytest.approx(each, rel=1e-3) for each in told]

    wait_for(tells, "value and gradient under the pointer")

    app.locator(".hv-prediction").nth(1).click()
    expect(said).to_contain_text("flower")
    expect(app).to_contain_text("gradient of flower")
    twin.target = 3
    slope = app.locator(".hv-gradient canvas").first
    wait_for(lambda: drawn(slope, twin.frame.panels[1]), "the gradient's map")

    page.get_by_role("button", name="python moves").click()
    twin.channel = 3
    wait_for(lambda: drawn(canvas, twin.frame.panels[0]), "what Python set")


# Keep the kernel busy until a file tells it to end.
BUSY = """import pathlib, time
folder = pathlib.Path({folder!r})
def train(_):
    (folder / "busy").touch()
    while not (folder / "end").exists(): time.sleep(0.01)
    (folder / "busy").unlink()
b = ipywidgets.Button(description='train')
b.on_click(train)
display(b)"""


def test_channels_move_while_the_kernel_is_busy(open_notebook, tmp_path):
    notebook = open_notebook([ON, MAKE, BUSY.format(folder=str(tmp_path)), "explorer"])
    page = notebook.page
    app = page.locator(".hookviz-app")
    wait_for_tiles(app)
    page.get_by_role("button", name="train").click()
    wait_for((tmp_path / "busy").exists, "the kernel to be busy")
    slider = app.get_by_role("slider", name="channel")
    slider.focus()
    canvas = app.locator(".hv-activation canvas").first
    seen = set()
    for place in range(1, 12):
        page.keyboard.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", f"channel {place} of 24")
        next_frame(page)
        seen.add(canvas_pixels(canvas).tobytes())
    assert len(seen) == 11
    assert (tmp_path / "busy").exists()
    (tmp_path / "end").touch()
    wait_for(lambda: not (tmp_path / "busy").exists(), "the kernel to be free")


FAILS = "throw new Error('no canvas')"


@pytest.mark.parametrize(
    "broken",
    [
        f'patch.object(Canvas, "_esm", "export default {{initialize() {{{FAILS}}}}}").start();',
        pytest.param(f'patch.object(Canvas, "_esm", "{FAILS}").start();', marks=pytest.mark.heavy),
    ],
)
def test_if_the_canvas_cannot_run_the_core_widgets_stay(open_notebook, broken):
    spoil = f"import traitlets\nfrom hookviz.widgets.canvas import Canvas\n{broken}"
    notebook = open_notebook([ON, spoil, MAKE, "explorer"])
    page = notebook.page
    page.locator(PLAIN_MAP).first.wait_for()
    if FAILS in broken:
        wait_for(lambda: notebook.tells("[anywidget]"), "the page to have tried it")
    notebook.settle()
    assert page.locator(PLAIN_MAP).count() == 1
    assert page.locator(".hookviz-app").count() == 0
    text = page.locator(".jp-Notebook").first.inner_text()
    assert "Error" not in text.replace(FAILS, "") and "Failed" not in text
    notebook.errors.clear()


class WithoutAnywidget(Lab):
    """A JupyterLab without anywidget's front end, as if hookviz was installed while it ran."""

    def configure(self):
        super().configure()
        folder = self.home / "config" / "labconfig"
        folder.mkdir(parents=True)
        off = {"disabledExtensions": {"anywidget": True}}
        (folder / "page_config.json").write_text(json.dumps(off))


@pytest.mark.heavy
def test_without_anywidgets_front_end_the_core_widgets_stay(browser, tmp_path):
    server = WithoutAnywidget(tmp_path)
    try:
        path = write_notebook(server.files / "explorer.ipynb", [ON, MAKE, "explorer"])
        notebook = Notebook(server, browser, path)
        page = notebook.page
        page.locator(PLAIN_MAP).first.wait_for()
        wait_for(lambda: notebook.tells("anywidget"), "the page to have looked for it")
        notebook.settle()
        assert page.locator(".hookviz-app").count() == 0
        assert "rror" not in page.locator(".jp-Notebook").first.inner_text()
        notebook.close()
    finally:
        server.close()
