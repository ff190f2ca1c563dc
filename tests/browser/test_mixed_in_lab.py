"""Random requests of all kinds to a slow kernel.

At the end, the screen must agree with a new explorer that opens in the same state.
"""

from __future__ import annotations

import base64
import json
import os
import random

import pytest
from face import close_drawer, open_drawer
from front_end import CANVAS_ON, WIDGETS, next_frame, wait_for
from test_gallery_in_lab import BRING, png
from test_slow_in_lab import RUN_ONE_MORE, delayed

pytestmark = pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")

SEED = int(os.environ.get("HOOKVIZ_SEED", "0"))
MOVES = 28
MAKE = """import hookviz
explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], layer="layer2.1.conv2")
explorer"""
SHOWN_AFTER = "raw output, or after normalization or activation"
# Open a new explorer in the state that Python has of the first one.
AGAIN = """from hookviz.view.settings import SETTINGS
at = {name: getattr(explorer, name) for name in SETTINGS if name not in ("target", "shown_run")}
again = hookviz.explore(hookviz.demo_model(), explorer.image, target=explorer.target, **at)
again.edits, again.shown_run = explorer.edits, explorer.shown_run
again"""

# Everything on the screen that depends on the state: words, choices and the pixels of pictures.
SEEN = """(app) => {
  const all = (what) => [...app.querySelectorAll(what)].filter((each) => each.checkVisibility());
  const texts = (what) => all(what).map((each) => each.textContent);
  const hash = (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.reduce((sum, byte) => (Math.imul(sum, 31) + byte) | 0, canvas.width);
  };
  const pictures = [...app.querySelectorAll(".hv-panel canvas.hv-map")]
    .filter((each) => each.checkVisibility())
    .map((each) => `${each.closest(".hv-panel").className} ${hash(each)}`);
  return {
    waits: app.matches(".hv-waiting") || Boolean(app.querySelector(".hv-stale"))
      || app.innerText.includes("on its way"),
    texts: texts(".hv-name, .hv-number-now, .hv-by, .hv-edit, .hv-label, .hv-words, .hv-table"),
    bars: texts(".hv-prediction"),
    pressed: all(".hv-prediction").map((each) => each.ariaPressed),
    choices: all("select").map((each) => `${each.ariaLabel}: ${each.value}`),
    sliders: all("input[type=range]").map((each) => each.getAttribute("aria-valuetext")),
    tiles: all(".hv-tile").map((each) => each.dataset.channel),
    mosaic: [...app.querySelectorAll(".hv-mosaic canvas")].map(hash),
    pictures,
  };
}"""


def moves(page, app, hand):
    """Return the possible actions by name; none of them waits for an answer."""
    frame = app.locator(".hv-activation .hv-frame")

    def press(*keys):
        def pressed():
            frame.focus()
            for key in keys[: hand.randrange(1, len(keys) + 1)]:
                page.keyboard.press(key)

        return pressed

    def choose(label, *values):
        menu = app.get_by_role("combobox", name=label, exact=True)
        return lambda: menu.select_option(hand.choice(values), force=True)

    def click(what):
        """Click one of the matching elements that exist now."""
        return lambda: app.evaluate(CLICK, [what, hand.randrange(100)])

    def bring():
        text = base64.b64encode(png(hand.choice((2, 8, 12)))).decode()
        page.evaluate(BRING, ["drop", text, "one.png"])

    def brush():
        sheet = app.locator("canvas.hv-brush")
        tool = hand.choice(("brush", "rectangle", "eraser"))
        open_drawer(app, "Edit")
        paint = app.get_by_role("button", name="paint", exact=True)
        # Opening another drawer has ended the painting.
        if paint.get_attribute("aria-pressed") == "false":
            paint.click()
        app.get_by_role("combobox", name="tool", exact=True).select_option(tool)
        sheet.focus()
        for key in hand.choices(("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"), k=4):
            page.keyboard.press(key)
        page.keyboard.press("Space")

    def place():
        spot = {"x": hand.randrange(5, 150), "y": hand.randrange(5, 150)}
        frame.click(position=spot, force=True)

    def scale():
        open_drawer(app, "Edit")
        app.locator(".hv-factor").fill(hand.choice(("0.5", "1.5")))

    return {
        "layer": press(*3 * ["ArrowUp"]),
        "layer back": press(*3 * ["ArrowDown"]),
        "channel": press(*5 * ["ArrowRight"]),
        "tile": click(".hv-tile"),
        "order": choose(
            "order of the channels", "index", "mean", "gradcam weight", "value", "contrast"
        ),
        "heatmap": choose("heatmap", "gradcam", "layercam", "eigencam", "activation"),
        "shown_after": choose(SHOWN_AFTER, "output", "norm", "activation"),
        "target": click("button.hv-prediction"),
        "brush": brush,
        "edit": click(".hv-factor ~ .hv-toggle"),
        "factor": scale,
        "undo": press("Control+z"),
        "picture": bring,
        "earlier picture": click(".hv-gallery button"),
        "place": place,
        "best": press("b"),
        "map": press("m", "m"),
        "why": press("w", "w"),
    }


CLICK = """(app, [what, n]) => {
  const all = app.querySelectorAll(what);
  all[n % all.length]?.click();
}"""


def at_rest(notebook, app):
    """Return what is on the screen once it no longer changes.

    Pending requests are sent one after the other, and each answer may cause another request.
    """
    seen = [app.evaluate(SEEN)]

    def rests():
        notebook.settle()
        seen.append(app.evaluate(SEEN))
        return not seen[-1]["waits"] and all(each == seen[-1] for each in seen[-3:])

    wait_for(rests, "the answers")
    return seen[-1]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_the_screen_agrees_with_a_new_explorer_after_random_requests(open_canvas, seed, shots):
    notebook, app = open_canvas(MAKE, first=CANVAS_ON)
    app, page, hand = app.first, notebook.page, random.Random(seed)
    open_drawer(app, "Edit")
    app.get_by_role("button", name="paint", exact=True).click()
    done = []
    with delayed(page, 300):
        page.evaluate("() => { globalThis.looking = 0; }")
        all_moves = moves(page, app, hand)
        for name in hand.sample([*all_moves] * 2, MOVES):
            all_moves[name]()
            done.append(name)
            if hand.random() < 0.5:
                next_frame(page)
        if app.locator(".hv-drawer:visible").count():
            close_drawer(app)
        page.mouse.move(2, 2)
        seen = at_rest(notebook, app)
    page.screenshot(path=shots / f"mixed-{seed}.png")
    notebook.command(RUN_ONE_MORE.replace("CODE_OF_CELL", json.dumps(AGAIN)))
    other = page.locator(".hookviz-app").nth(1)
    other.locator(".hv-tile").first.wait_for()
    expected = at_rest(notebook, other)
    for what, value in seen.items():
        assert value == expected[what], (what, done)
    assert app.evaluate(SEEN) == seen  # the first explorer has not changed
    assert notebook.errors == []
