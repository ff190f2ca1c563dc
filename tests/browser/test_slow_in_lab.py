"""With a slow kernel, later requests win and late answers are ignored."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from front_end import CANVAS_ON, DELAY, needs_canvas, next_frame, wait_for, wait_for_tiles
from playwright.sync_api import expect

pytestmark = needs_canvas

ON = f"{CANVAS_ON}\nimport hookviz, ipywidgets"
MAKE = "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')"
TELL = """said = ipywidgets.Label('').add_class('said')
def tell(change=None):
    said.value = f'{explorer.layer} {explorer.channel} {explorer.target} {len(explorer.edits)}.'
explorer.observe(tell)
said"""

# Record the texts of the sliders at each frame.
RECORD = """(app) => {
  const slider = (name) => app.querySelector(`input[aria-label="${name}"]`);
  const said = (name) => slider(name).getAttribute("aria-valuetext");
  globalThis.recorded = [];
  const look = () => {
    const now = `${said("layer")} | ${said("channel")}`;
    if (recorded.at(-1) !== now) recorded.push(now);
    globalThis.looking = requestAnimationFrame(look);
  };
  look();
}"""


@contextmanager
def delayed(page, milliseconds):
    page.evaluate(DELAY, milliseconds)
    try:
        yield
    finally:
        page.evaluate("() => { cancelAnimationFrame(globalThis.looking); return endOfDelay(); }")


def places(recorded):
    """Return the numbers of layer and channel in each recorded text."""

    def number(text, after):
        return int(text.rpartition(after)[2].split()[0])

    halves = [each.split(" | ") for each in recorded]
    return [(number(layer, ", layer "), number(channel, "channel ")) for layer, channel in halves]


def hold(page, key):
    """Press a key, and send one of the repeats that come while it is held."""
    page.keyboard.down(key)
    page.keyboard.down(key)


def now(page):
    return places([page.evaluate("recorded.at(-1)")])[0]


@pytest.fixture
def shown(open_notebook):
    notebook = open_notebook([ON, MAKE, TELL, "explorer"])
    app = notebook.page.locator(".hookviz-app")
    wait_for_tiles(app)
    yield notebook, app, notebook.page.locator(".said").first


@pytest.mark.heavy
def test_held_keys_and_changes_of_class_do_not_move_the_view_back(shown):
    notebook, app, said = shown
    page = notebook.page
    channel = app.get_by_role("slider", name="channel", exact=True)
    bars = app.locator(".hv-prediction")
    third = int(bars.nth(2).get_attribute("data-number"))
    with delayed(page, 300):
        app.evaluate(RECORD)
        channel.focus()
        hold(page, "ArrowRight")
        for step, place in ((4, 1), (9, 2), (14, 1)):  # each click runs the model
            wait_for(lambda s=step: now(page)[1] >= s, "the held key to go on")
            bars.nth(place).click()
        wait_for(lambda: now(page)[1] >= 18, "the held key to go on")
        page.keyboard.up("ArrowRight")
        channel.focus()
        hold(page, "ArrowDown")
        wait_for(lambda: now(page)[0] >= 5, "the held key to go on")
        page.keyboard.up("ArrowDown")
        notebook.settle()  # the layer has arrived and shows its strongest channel
        for _ in range(2):  # one frame to draw, one to record
            next_frame(page)
        before = now(page)
        bars.nth(2).click()
        channel.focus()
        # The layer opens at its strongest channel, which may be the first.
        key, by = ("ArrowLeft", -1) if before[1] else ("ArrowRight", 1)
        page.keyboard.press(key)
        wait_for(lambda: now(page) == (before[0], before[1] + by), "the last step")
        last, went = now(page), places(page.evaluate("recorded"))
        wait_for(lambda: f" {last[1]} {third} 0." in said.inner_text(), "Python to follow")
        wait_for(lambda: bars.nth(2).get_attribute("aria-pressed") == "true", "the class")
        notebook.settle()
        assert now(page) == last
        layers = app.get_by_role("slider", name="layer", exact=True)
        assert layers.get_attribute("aria-valuetext").startswith(said.inner_text().split()[0] + ",")
        assert places(page.evaluate("recorded")) == went
    steps = [layer for layer, _ in went[:-1]]
    assert steps == sorted(steps), went  # the layer never goes back
    held = [channel for layer, channel in went[:-1] if layer == steps[0]]
    assert held == sorted(held), went


def test_a_change_by_python_and_one_by_the_browser_are_both_kept(open_notebook):
    """Python sets the colours while the browser changes the channel."""
    button = "b = ipywidgets.Button(description='python sets colours')\n"
    button += "b.on_click(lambda _: setattr(explorer, 'cmap', 'magma'))\n"
    tell = TELL.replace("explorer.layer", "explorer.cmap").replace("\nsaid", "\ndisplay(said, b)")
    notebook = open_notebook([ON, MAKE, button + tell, "explorer"])
    page = notebook.page
    app, said = page.locator(".hookviz-app"), page.locator(".said").first
    wait_for_tiles(app)
    with delayed(page, 150):
        app.evaluate(RECORD)
        page.get_by_role("button", name="python sets colours").click()
        app.get_by_role("slider", name="channel", exact=True).focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
            next_frame(page)
        wait_for(lambda: "magma 8 " in said.inner_text(), "both")
        colours = app.get_by_label("colours", exact=True)
        wait_for(lambda: colours.input_value() == "magma", "the colours")
        notebook.settle()
        assert "magma 8 " in said.inner_text()
        went = places(page.evaluate("recorded"))
        assert went == sorted(went) and went[-1] == (1, 8)


CHOOSE_AND_CLEAR = """
    const label = "raw output, or after normalization or activation";
    const menu = document.querySelector(`select[aria-label="${label}"]`);
    menu.value = "activation";
    menu.dispatchEvent(new Event("change", { bubbles: true }));
    app.shell.activateById(found.id);
    await app.commands.execute("notebook:clear-all-cell-outputs");
"""
SHOW_AGAIN = """
    const cells = found.content.model.sharedModel;
    const source = "print('python has', explorer.shown_after)\\nexplorer";
    cells.insertCell(cells.cells.length, { cell_type: "code", source });
    found.content.activeCellIndex = cells.cells.length - 1;
    await app.commands.execute("notebook:run-cell");
"""


@pytest.mark.heavy
def test_a_closed_view_has_sent_its_last_change(open_notebook):
    notebook = open_notebook([ON, MAKE, "explorer"])
    page, app = notebook.page, notebook.page.locator(".hookviz-app")
    wait_for_tiles(app)
    notebook.command(CHOOSE_AND_CLEAR)
    expect(app).to_have_count(0)
    notebook.settle()
    notebook.command(SHOW_AGAIN)
    page.get_by_text("python has activation").last.wait_for()
    after = app.get_by_label("raw output, or after normalization or activation")
    expect(after).to_have_value("activation")
