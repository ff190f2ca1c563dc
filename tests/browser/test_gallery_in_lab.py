"""Changing the picture in JupyterLab: chosen, dropped or pasted, and restored from the strip."""

from __future__ import annotations

import base64
import io
import re

import pytest
from demo import explore_demo
from face import open_drawer
from front_end import (
    CANVAS_ON,
    canvas_pixels,
    needs_canvas,
    next_frame,
    point,
    wait_for,
    wait_for_tiles,
)
from playwright.sync_api import expect

import hookviz

MAKE = (
    "import hookviz\n"
    "pictures = [hookviz.demo_images()[number] for number in (6, 12)]\n"
    "at = dict(layer='layer3.1.conv2', channel=17)\n"
    "explorer = hookviz.explore(hookviz.demo_model(), pictures, **at)\n"
    "explorer"
)
# Send a file by a "drop" event, or by a "paste" event at the focused element.
BRING = """([kind, text, name]) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const held = new DataTransfer();
  held.items.add(new File([bytes], name, {type: "image/png"}));
  const root = document.querySelector(".hookviz-app");
  const given = {bubbles: true, cancelable: true};
  root.querySelector(".hv-input .hv-frame").dispatchEvent(kind === "drop"
    ? new DragEvent("drop", {...given, dataTransfer: held})
    : new ClipboardEvent("paste", {...given, clipboardData: held}));
}"""

# Drag a file over the input, and away.
DRAG = """(kind) => {
  const held = new DataTransfer();
  held.items.add(new File(["a"], "a.png"));
  const given = {bubbles: true, cancelable: true, dataTransfer: held};
  const frame = document.querySelector(".hv-input .hv-frame");
  frame.dispatchEvent(new DragEvent(kind, {...given, relatedTarget: document.body}));
  return getComputedStyle(frame, "::after").borderStyle;
}"""

# Delay the reading of the next file until the page is told to continue.
LATE = """() => {
  const { arrayBuffer } = Blob.prototype;
  Blob.prototype.arrayBuffer = function () {
    Blob.prototype.arrayBuffer = arrayBuffer;
    const held = new Promise((done) => { globalThis.goOn = done; });
    return held.then(() => arrayBuffer.call(this));
  };
}"""


def png(number):
    file = io.BytesIO()
    hookviz.demo_images()[number].save(file, "PNG")
    return file.getvalue()


def answer(number):
    """Return the name and the probability of a picture's top class."""
    twin = explore_demo(number)
    first = twin.frame.predictions[0]
    twin.close()
    return first.name, f"{100 * first.value:.1f} %"


@needs_canvas
def test_a_new_picture_keeps_the_view(open_notebook):
    notebook = open_notebook([CANVAS_ON, MAKE])
    page = notebook.page
    app = page.locator(".hookviz-app").first
    wait_for_tiles(app)
    first, thumbs = app.locator(".hv-prediction").first, app.locator(".hv-gallery button")
    assert [page.evaluate(DRAG, kind) for kind in ("dragover", "dragleave")] == ["dashed", "none"]

    def shows(number, moved=True):
        name, share = answer(number)
        wait_for(
            lambda: name in (said := first.inner_text()) and share in said, f"{number}'s answer"
        )
        expect(app.locator(".hv-name")).to_have_text("layer3.1.conv2")
        expect(app.locator(".hv-number-now").first).to_have_text("17")
        if moved:
            words = f"The top class is {name} now"
            expect(app.locator(".hv-said")).to_contain_text(words)

    open_drawer(app, "Pictures")
    expect(thumbs).to_have_count(2)
    thumbs.nth(1).click()  # the other sample of the batch
    shows(12, moved=False)
    file = {"name": "four.png", "mimeType": "image/png", "buffer": png(4)}
    app.get_by_label("a picture's file").set_input_files(file)
    shows(4)
    expect(thumbs).to_have_count(3)
    page.evaluate(BRING, ["drop", base64.b64encode(png(3)).decode(), "three.png"])
    shows(3)
    # A second picture is dropped while the first is still being read: the second stays.
    page.evaluate(LATE)
    page.evaluate(BRING, ["drop", base64.b64encode(png(5)).decode(), "five.png"])
    page.evaluate(BRING, ["paste", base64.b64encode(png(9)).decode(), "image.png"])
    page.evaluate("goOn()")
    expect(thumbs).to_have_count(6)
    shows(9)
    expect(thumbs.nth(4)).to_have_attribute("aria-label", "five.png")
    app.get_by_role("button", name="three.png").focus()
    page.keyboard.press("Enter")
    shows(3)
    expect(thumbs.nth(3)).to_have_attribute("aria-pressed", "true")
    # Two pictures are compared for one channel until the comparison is chosen again.
    thumbs.first.click(modifiers=["Shift"])
    pair = app.locator(".hv-pair")
    maps = pair.locator("figure:nth-of-type(n + 4)")
    other, this = "sample 0 of 2 pictures", "three.png"
    names = [f"{name}: channel 17" for name in (other, this, f"{this} − {other}")]
    expect(maps.locator("b")).to_have_text(names)
    pair.locator(".hv-frame").first.click()  # the next keys are not for the notebook
    for key, channel in (("ArrowRight", 18), ("ArrowLeft", 17)):
        page.keyboard.press(key)
        expect(maps.first.locator("b")).to_have_text(f"{other}: channel {channel}")
    thumbs.first.click(modifiers=["Shift"])
    expect(pair).to_be_hidden()
    broken = {"name": "broken.png", "mimeType": "image/png", "buffer": b"nothing"}
    app.get_by_label("a picture's file").set_input_files(broken)
    expect(app.locator(".hv-said")).to_contain_text("picture")
    shows(3, moved=False)


@needs_canvas
def test_the_reason_for_the_opened_channel_goes_with_its_sample(open_notebook):
    opened = MAKE.replace(", **at", "")  # at the layer and channel that hookviz chooses
    app = open_notebook([CANVAS_ON, opened]).page.locator(".hookviz-app").first
    reason = app.get_by_text("contributes most to")
    expect(reason).to_have_count(1)
    open_drawer(app, "Pictures")
    for sample in (1, 0):
        app.locator(".hv-gallery button").nth(sample).click()
        expect(reason).to_have_count(1 - sample)


# Record the requests to the camera and its refusals.
CAMERA = """() => {
  const devices = navigator.mediaDevices;
  const ask = devices.getUserMedia.bind(devices);
  globalThis.refusal = "";
  devices.getUserMedia = async (wanted) => {
    if (globalThis.refusal) throw new DOMException("no", globalThis.refusal);
    return (globalThis.seen = await ask(wanted));
  };
  globalThis.endOfCamera = () => { devices.getUserMedia = ask; };
}"""
LIGHTS = "globalThis.seen.getTracks().map((track) => track.readyState)"


@pytest.mark.heavy
@needs_canvas
def test_camera_frames_are_explored_and_a_refusal_is_reported(open_notebook):
    notebook = open_notebook([CANVAS_ON, MAKE])
    page = notebook.page
    app = page.locator(".hookviz-app")
    wait_for_tiles(app)
    open_drawer(app, "Pictures")
    page.evaluate(CAMERA)
    thumbs = app.locator(".hv-gallery button")
    names = ["sample 0 of 2 pictures", "sample 1 of 2 pictures"]
    shown = app.locator(".hv-input canvas.hv-map")
    drawn = lambda: canvas_pixels(shown).tobytes()  # noqa: E731
    expect(thumbs).to_have_count(2)
    heatmap = re.compile("^heatmap .*, over the input$")
    expect(app.locator(".hv-input .hv-frame")).to_have_attribute("aria-label", heatmap)
    before = drawn()
    lens = app.get_by_title("show what the camera sees")
    for reason, words in (
        ("NotAllowedError", "The browser refuses the camera"),
        ("NotReadableError", "The camera is in use"),
        ("NotFoundError", "No camera was found"),
    ):
        page.evaluate("(name) => { globalThis.refusal = name; }", reason)
        lens.click()
        app.locator(".hv-intake [role=status]", has_text=words).wait_for()
        expect(lens).to_have_attribute("aria-pressed", "false")
    assert drawn() == before and thumbs.count() == len(names)

    # Clearing the cell's output ends the camera; test_network_page.py has the other ends.
    page.evaluate("() => { globalThis.refusal = ''; }")
    lens.click()
    expect(lens).to_have_text("stop camera")
    wait_for(lambda: drawn() != before, "a frame")
    expect(thumbs).to_have_count(3)  # the original pictures, and one of the camera
    page.evaluate("() => endOfCamera()")
    notebook.command("await app.commands.execute('notebook:clear-all-cell-outputs');")
    wait_for(lambda: page.evaluate(LIGHTS) == ["ended"], "the light to go out")


PAINT = (
    "import hookviz\n"
    "at = dict(layer='layer3.1.conv2', channel=17)\n"
    "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], **at)\n"
    "explorer"
)


@needs_canvas
def test_rectangle_brush_and_eraser_change_the_input(open_canvas):
    """The network gets the mean at painted pixels; undo and the eraser restore the picture."""
    notebook, app = open_canvas(PAINT)
    page = notebook.page
    first = app.locator(".hv-prediction", has_text="moon")
    twin = explore_demo()
    moon = {each.name: each for each in twin.frame.predictions}["moon"]
    expect(first).to_contain_text(f"{100 * moon.value:.1f} %")
    open_drawer(app, "Edit")
    app.get_by_role("slider", name="opacity of the heatmap").fill("0")
    app.get_by_role("button", name="paint", exact=True).click()
    tool = app.get_by_role("combobox", name="tool", exact=True)
    tool.select_option("rectangle")
    frame = app.locator(".hv-input .hv-frame")
    point(frame, 28 / 112, 28 / 112)
    page.mouse.down()
    point(frame, 70 / 112, 84 / 112)
    next_frame(page)
    page.mouse.up()
    rows, columns = slice(28, 70), slice(28, 84)
    twin.edit("input", "mean", where=(rows, columns))

    def follows(picture):
        found = {each.name: each for each in picture.frame.predictions}["moon"]
        words = f"{100 * found.value:.1f} %"
        expect(first).to_contain_text(words)

    follows(twin)
    chip = app.locator(".hv-edit", has_text="input, 2,352 pixels: mean")
    chip.wait_for()
    # Move the eraser, which is wider than the rectangle is high, from left to right.
    tool.select_option("eraser")
    app.get_by_role("slider", name="size of brush and eraser").fill("50")
    notebook.settle()
    point(frame, 0.4375, 0.25)  # through the middle; chips above have moved the picture
    page.mouse.down()
    point(frame, 0.4375, 0.75)
    page.mouse.up()
    expect(chip).to_have_count(0)
    twin.reset()
    follows(twin)
