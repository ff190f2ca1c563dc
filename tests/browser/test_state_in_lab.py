"""Everything on the screen of the browser belongs to one layer, channel, picture and run."""

from __future__ import annotations

import re

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
BOX = """said => {
    const { x, right, height } = said.getBoundingClientRect();
    return { x, right, height };
}"""


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


def test_a_factor_follows_quick_keys_and_each_is_undone(canvas):
    notebook, app = canvas
    open_drawer(app, "Edit")
    factor, chips = app.locator(".hv-factor"), app.locator(".hv-edit")
    factor.focus()
    for _ in range(6):  # faster than the network runs, and slower than a key that is held
        notebook.page.keyboard.press("ArrowRight", delay=80)
    expect(factor).to_have_value("1.3")
    expect(chips).to_have_text(re.compile("× 1.3 "))
    expect(factor).to_have_value("1.3")
    redo = app.get_by_role("button", name="↷", exact=True)
    app.get_by_role("button", name="↶", exact=True).click()
    expect(chips.or_(redo).first).to_be_enabled()
    redo.click()
    expect(chips).to_have_text(re.compile("× 1.3 "))
    expect(redo).to_be_disabled()
    notebook.page.keyboard.press("ArrowRight")  # the button that had the focus is disabled
    expect(app.get_by_role("slider", name="channel", exact=True)).to_be_focused()


def test_an_answer_of_many_words_leaves_the_header_as_it_is_and_goes_with_its_view(canvas):
    notebook, app = canvas
    notebook.page.set_viewport_size({"width": 1000, "height": 800})
    open_drawer(app, "Edit")
    app.get_by_role("button", name="off", exact=True).click()
    expect(app.locator(".hv-edit")).to_have_count(1)
    help_button = app.get_by_role("button", name="?", exact=True)
    before = help_button.evaluate(BOX)
    app.get_by_role("button", name="Save ▾").click()
    app.get_by_role("button", name="copy code").click()
    said = app.get_by_text("No short code exists")
    said.wait_for()
    assert help_button.evaluate(BOX) == before
    box = said.evaluate(BOX)
    assert box["x"] >= 0 and box["right"] <= 1000 and box["height"] > before["height"]
    app.get_by_role("button", name="↶", exact=True).click()
    said.wait_for(state="detached")


def test_enter_and_escape_leave_the_field_that_finds_a_layer(canvas):
    notebook, app = canvas
    keyboard, field = notebook.page.keyboard, app.get_by_role("combobox", name="find a layer")
    number, channels = (app.get_by_role("slider", name=n, exact=True) for n in ("layer", "channel"))
    channels.focus()
    keyboard.press("/")
    field.fill("layer2.0.conv1")
    keyboard.press("Enter")
    expect(field).to_have_count(0)
    expect(app.locator("h2")).to_have_text("layer2.0.conv1")
    before = number.input_value()
    keyboard.press("ArrowUp")
    wait_for(lambda: number.input_value() != before, "the next layer")
    keyboard.press("/")
    keyboard.press("Escape")
    expect(field).to_have_count(0)
    expect(channels).to_be_focused()


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
