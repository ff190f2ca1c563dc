"""Everything on the screen of the browser belongs to one layer, channel, picture and run."""

from __future__ import annotations

import pytest
from face import open_drawer
from front_end import needs_canvas, wait_for
from playwright.sync_api import expect

pytestmark = needs_canvas

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


def test_undo_and_redo_go_through_layers_channels_targets_and_edits(canvas):
    notebook, app = canvas
    page = notebook.page
    layer, channel = (
        app.get_by_role("slider", name=name, exact=True) for name in ("layer", "channel")
    )
    number = app.locator(".hv-row .hv-number-now").first
    chosen = app.locator(".hv-predictions [aria-pressed=true] b")
    edits = app.locator(".hv-edit")
    undo, redo = (app.get_by_role("button", name=name, exact=True) for name in ("↶", "↷"))

    def shown():
        return layer.input_value(), number.inner_text(), chosen.inner_text(), edits.count()

    def expect_shown(wanted):
        wait_for(lambda: shown() == wanted, f"{wanted}, not {shown()}")

    open_drawer(app, "Edit")
    expect(undo).to_be_disabled()
    states = [shown()]

    def then(changed):
        wait_for(lambda: changed() and undo.is_enabled(), "the change")
        states.append(shown())

    layer.focus()
    page.keyboard.press("ArrowLeft")
    then(lambda: layer.input_value() != states[-1][0])
    bar = app.locator(".hv-predictions button").nth(2)
    bar.click()
    # The bar is marked at once, the gradient's label with the new run.
    expect(app.locator(".hv-gradient .hv-label")).to_have_text(
        f"gradient of {bar.locator('b').inner_text()}"
    )
    then(lambda: chosen.count() == 1 and chosen.inner_text() != states[-1][2])
    app.get_by_role("button", name="off", exact=True).click()
    then(lambda: edits.count() == 1)
    channel.focus()
    page.keyboard.press("ArrowRight")
    then(lambda: number.inner_text() != states[-1][1])
    for wanted in reversed(states[:-1]):
        page.keyboard.press("Control+z")
        expect_shown(wanted)
    expect(undo).to_be_disabled()
    for wanted in states[1:]:
        page.keyboard.press("Control+Shift+z")
        expect_shown(wanted)
    expect(redo).to_be_disabled()
    undo.click()
    expect_shown(states[-2])
    redo.click()
    expect_shown(states[-1])
    expect(page.locator(".said")).to_contain_text("1.")


def test_the_factor_of_a_removed_edit_is_one_again(canvas):
    _, app = canvas
    open_drawer(app, "Edit")
    factor, number = app.locator(".hv-factor"), app.locator(".hv-hands b").first
    for way in ("chip", "undo"):
        factor.fill("0.5")
        chip = app.get_by_role("button", name="× 0.5")
        chip.wait_for()
        if way == "chip":
            chip.click()
        else:
            factor.press("Control+z")
        chip.wait_for(state="detached")
        expect(factor).to_have_value("1")
        expect(number).to_have_text("1.00")


def test_keys_go_on_after_the_control_with_the_focus_is_removed(canvas):
    notebook, app = canvas
    keyboard = notebook.page.keyboard
    open_drawer(app, "Edit")
    app.get_by_role("button", name="off", exact=True).click()
    chips = app.locator(".hv-edit")
    chips.click()
    expect(chips).to_have_count(0)
    keyboard.press("Control+z")
    expect(chips).to_have_count(1)
    keyboard.press("ArrowRight")
    app.get_by_role("button", name="off", exact=True).click()
    expect(chips).to_have_count(2)
    app.get_by_role("button", name="restore all").click()
    expect(chips).to_have_count(0)
    keyboard.press("Control+z")
    expect(chips).to_have_count(2)


def test_edits_stay_on_the_screen_while_the_original_run_is_shown(canvas):
    notebook, app = canvas
    open_drawer(app, "Edit")
    app.get_by_role("button", name="off", exact=True).click()
    menu = app.get_by_label("whose pictures are shown")
    menu.select_option("original")
    expect(app.locator(".hv-activation .hv-label")).to_contain_text("original run")
    expect(menu).to_be_visible()
    expect(app.locator(".hv-edit")).to_have_count(1)
    expect(app.get_by_role("button", name="Edit (1)")).to_be_visible()
    notebook.page.keyboard.press("Control+z")
    expect(app.locator(".hv-edit")).to_have_count(0)
    expect(menu).to_be_hidden()


def test_removed_views_leave_no_listeners(open_canvas):
    """Each run of the second cell creates another view of the same explorer."""
    notebook, _ = open_canvas(f"import hookviz; {MAKE}", "explorer")
    page, session = notebook.page, notebook.page.context.new_cdp_session(notebook.page)

    def listeners():
        """Count the listeners of window, page and colour scheme."""
        count = 0
        for name in ("window", "document", 'matchMedia("(prefers-color-scheme: dark)")'):
            holder = session.send("Runtime.evaluate", {"expression": name})["result"]["objectId"]
            found = session.send("DOMDebugger.getEventListeners", {"objectId": holder})
            count += len(found["listeners"])
        return count

    def display_again():
        with page.expect_event("console", lambda said: said.text == "drawn"):
            page.evaluate(
                """() => {
                    const old = document.querySelector(".hookviz-app");
                    const seen = new MutationObserver(() => {
                        const now = document.querySelector(".hookviz-app .hv-tile");
                        if (!now || old.contains(now) || old.isConnected) return;
                        seen.disconnect();
                        console.log("drawn");
                    });
                    seen.observe(document.body, { childList: true, subtree: true });
                }"""
            )
            page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
            page.keyboard.press("Shift+Enter")

    display_again()
    first = listeners()
    for _ in range(3):
        display_again()
    wait_for(lambda: listeners() <= first, "the old views' listeners to go")
