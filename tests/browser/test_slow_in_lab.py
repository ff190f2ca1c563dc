"""With a slow kernel, later requests win and late answers are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from front_end import CANVAS_ON, DELAY, WIDGETS, next_frame
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")

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
def delayed(page: Page, milliseconds: int) -> Iterator[None]:
    page.evaluate(DELAY, milliseconds)
    try:
        yield
    finally:
        page.evaluate("() => { cancelAnimationFrame(globalThis.looking); return endOfDelay(); }")


def places(recorded: list[str]) -> list[tuple[int, int]]:
    """Return the numbers of layer and channel in each recorded text."""

    def number(text: str, after: str) -> int:
        return int(text.rpartition(after)[2].split()[0])

    halves = [each.split(" | ") for each in recorded]
    return [(number(layer, ", layer "), number(channel, "channel ")) for layer, channel in halves]


@pytest.fixture
def shown(open_notebook: Any) -> Any:
    notebook = open_notebook([ON, MAKE, TELL, "explorer"])
    app = notebook.page.locator(".hookviz-app")
    app.locator(".hv-tile").first.wait_for()
    yield notebook, app, notebook.page.locator(".said").first
    assert notebook.errors == []


@pytest.mark.heavy  # moves_test.js tests the order of requests
def test_the_last_of_many_clicked_classes_wins(shown):
    """A clicked bar is marked immediately, and a pending request is replaced by a later one."""
    notebook, app, said = shown
    bars = app.locator(".hv-prediction")
    numbers = [int(each.get_attribute("data-number")) for each in bars.all()]
    with delayed(notebook.page, 150):
        notebook.page.evaluate("() => { globalThis.looking = 0; }")
        pressed = []
        for place in (1, 2, 3, 4, 1, 2, 3):
            bars.nth(place).click()
            next_frame(notebook.page)
            pressed.append(bars.nth(place).get_attribute("aria-pressed"))
        assert pressed == ["true"] * 7  # immediately, before any answer
        expect(said).to_contain_text(f" {numbers[3]} 0.")
        notebook.settle()
        assert bars.nth(3).get_attribute("aria-pressed") == "true"


def test_a_change_by_python_and_one_by_the_browser_are_both_kept(open_notebook):
    """Python sets the colours while the browser changes the channel."""
    button = "b = ipywidgets.Button(description='python sets colours')\n"
    button += "b.on_click(lambda _: setattr(explorer, 'cmap', 'magma'))\n"
    tell = TELL.replace("explorer.layer", "explorer.cmap").replace("\nsaid", "\ndisplay(said, b)")
    notebook = open_notebook([ON, MAKE, button + tell, "explorer"])
    page = notebook.page
    app, said = page.locator(".hookviz-app"), page.locator(".said").first
    app.locator(".hv-tile").first.wait_for()
    with delayed(page, 150):
        app.evaluate(RECORD)
        page.get_by_role("button", name="python sets colours").click()
        app.get_by_role("slider", name="channel", exact=True).focus()
        for _ in range(8):
            page.keyboard.press("ArrowRight")
            next_frame(page)
        expect(said).to_contain_text("magma 8 ")
        colours = app.get_by_label("colours", exact=True)
        expect(colours).to_have_value("magma")
        notebook.settle()
        assert "magma 8 " in said.inner_text()
        went = places(page.evaluate("recorded"))
        assert went == sorted(went) and went[-1] == (1, 8)
    assert notebook.errors == []


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
    app.locator(".hv-tile").first.wait_for()
    notebook.command(CHOOSE_AND_CLEAR)
    expect(app).to_have_count(0)
    notebook.settle()
    notebook.command(SHOW_AGAIN)
    page.get_by_text("python has activation").last.wait_for()
    after = app.get_by_label("raw output, or after normalization or activation")
    expect(after).to_have_value("activation")
    assert notebook.errors == []
