"""The time from an action to its picture in a real browser: a key, a page, a new input.

The page measures it, from the event to the frame that shows the result.
"""

from __future__ import annotations

import base64
import io
import statistics
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from chromium import FLAGS, executable
from lab import Lab, Notebook
from PIL import Image
from playwright.sync_api import sync_playwright

import hookviz
from benchmarks.race import Table, timed, turns
from benchmarks.showing import photograph

BLOCK = 5  # presses in a row before the next notebook takes its turn
HELD = 3  # seconds that a key is held
FRAME = ".hv-activation .hv-frame"
MODEL = """
import torch, torchvision, ipywidgets, io, hookviz
from torchvision.transforms.functional import resize, to_tensor
torch.manual_seed(0)
model = torchvision.models.resnet18().eval()
image = hookviz.models.photographs()["chelsea"]
with torch.no_grad():
    maps = model.conv1(to_tensor(resize(image, (224, 224)))[None])[0].numpy()
"""
INTERACT = """
import matplotlib.pyplot as plt
def show(channel=0):
    plt.imshow(maps[channel])
    plt.show()
ipywidgets.interact(show, channel=(0, len(maps) - 1));
"""
PLAIN = "hookviz.explore(model, image, layer='conv1', face='plain')"
CANVAS = "hookviz.explore(model, image, layer='conv1')"
CANVAS_ON = "import os\nos.environ['HOOKVIZ_CANVAS'] = 'on'"
# A promise of the milliseconds from the next key to the frame in which the element, a picture or a
# canvas, has changed.
PRESSED = """(selector) => {
  const read = () => {
    const element = document.querySelector(selector);
    return element && (element.src || element.ariaLabel);
  };
  globalThis.pressed = new Promise((resolve, reject) => {
    document.addEventListener("keydown", () => {
      const [start, before] = [performance.now(), read()];
      const look = async () => {
        if (performance.now() - start > 10000) return reject(new Error("nothing new within 10 s"));
        if (!read() || read() === before) return requestAnimationFrame(look);
        const element = document.querySelector(selector);
        if (element.decode) await element.decode();
        resolve(performance.now() - start);
      };
      requestAnimationFrame(look);
    }, { capture: true, once: true });
  });
}"""

# Hold a key, with one event per frame, to and fro; return the pictures and the frames per second.
HOLD = """([selector, seconds]) => new Promise((resolve) => {
  const read = () => {
    const element = document.querySelector(selector);
    return element && (element.src || element.ariaLabel);
  };
  const [target, start] = [document.activeElement, performance.now()];
  let [frames, seen, last] = [0, 0, read()];
  const frame = (now) => {
    const shown = read();
    if (shown !== last) [seen, last] = [seen + 1, shown];
    if (now - start > 1000 * seconds) return resolve([seen / seconds, frames / seconds]);
    const key = Math.floor(frames++ / 50) % 2 ? "ArrowLeft" : "ArrowRight";
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""

# The milliseconds from the request of the page to the frame with its first map.
SHOWN = """(selector) => new Promise((resolve) => {
  const look = () => {
    const frame = document.querySelector(selector);
    if (frame && frame.ariaLabel && !document.querySelector(".hv-waiting"))
      requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""

# A promise of the milliseconds from a picture's file to the frame that shows its maps. The page
# draws in the frame after the answer has come, and the clock stops in the task after that frame.
FOLLOW = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const start = performance.now();
  await hookviz.setInput(new Blob([bytes], { type: "image/png" }));
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(performance.now() - start);
    const look = () => {
      if (document.querySelector(".hv-waiting")) requestAnimationFrame(look);
      else port2.postMessage(null);
    };
    requestAnimationFrame(look);
  });
}"""


@contextmanager
def chromium():
    """Start a browser as the browser tests do."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def jupyter_lab():
    """Start a JupyterLab."""
    with tempfile.TemporaryDirectory() as home:
        lab = Lab(Path(home))
        try:
            yield lab
        finally:
            lab.close()


def opened(lab, browser, name, cells):
    """Run cells in a new notebook, and return its page."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells],
        # Without a kernel's name JupyterLab would ask for one.
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    path = lab.files / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return Notebook(lab, browser.new_context(), path, 120).page


@dataclass
class Pressed:
    """A notebook with a slider named channel, and its measured times."""

    name: str
    cells: list[str]
    picture: str  #: the CSS selector of the map
    slider: str = ".widget-slider:has-text('channel') .noUi-handle"
    page: Any = None
    seconds: list[float] = field(default_factory=list)  #: from a key to its picture
    held: list[tuple[float, float]] = field(default_factory=list)  #: pictures and frames a second

    def block(self):
        """Press the key a few times, measure all presses but the first, then hold the key."""
        self.page.bring_to_front()  # a page behind another one gets no animation frames
        self.page.locator(self.slider).first.focus()
        self.page.keyboard.press("Home")  # so that no press reaches the end
        self.page.wait_for_timeout(1500)
        for number in range(BLOCK + 1):
            self.page.evaluate(PRESSED, self.picture)
            self.page.keyboard.press("ArrowRight")
            took = self.page.evaluate("globalThis.pressed") / 1000
            self.page.wait_for_timeout(200)  # let the kernel come to rest
            if number:
                self.seconds.append(took)
        self.held.append(self.page.evaluate(HOLD, [self.picture, HELD]))
        self.page.wait_for_timeout(1500)


def key_press(quick):
    """Press a key on a slider in JupyterLab, and wait for another map of resnet18's first layer."""
    racing = [
        Pressed("interact and imshow", [MODEL, INTERACT], ".widget-output .jp-OutputArea img"),
        Pressed("hookviz, plain face", [MODEL, PLAIN], '.hookviz img[alt^="channel "]'),
        Pressed(
            "hookviz",
            [MODEL, CANVAS_ON, CANVAS],
            FRAME,
            ".hookviz-app input[type=range][aria-label='channel']",
        ),
    ]
    with jupyter_lab() as lab, chromium() as browser:
        for number, each in enumerate(racing):
            each.page = opened(lab, browser, str(number), each.cells)
            each.page.locator(each.slider).first.wait_for(timeout=60_000)
        for number in range(1 if quick else 4):
            for contender in turns(racing, number):
                contender.block()
    yield timed("key press to new picture", {each.name: each.seconds for each in racing})
    rows = []
    for each in racing:
        seen, frames = (statistics.median(found) for found in zip(*each.held, strict=True))
        rows.append([each.name, f"{seen:.0f}", f"{frames:.0f}"])
    yield Table("a key is held, each second", ["", "pictures", "frames of the browser"], rows)


def network_pages(quick):
    """Open a page that runs its network, wait for its first map, and give it other pictures."""
    files = []
    for picture in hookviz.models.photographs().values():
        picture.save(file := io.BytesIO(), "PNG")
        files.append(base64.b64encode(file.getvalue()).decode())
    rows = []
    lite, weights = hookviz.pretrained("efficientnet_lite0")
    cases: dict[str, tuple[Image.Image, str]] = {
        "demo": (hookviz.demo_images()[6], "float32"),
        "EfficientNet-Lite0": (photograph(), "float16"),
    }
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, (picture, precision) in cases.items():
            demo = name == "demo"
            model, given = (hookviz.demo_model(), None) if demo else (lite, weights)
            explorer = hookviz.explore(model, picture, weights=given)
            path = Path(folder) / f"{name}.html"
            explorer.to_html(path, network=True, precision=precision)
            explorer.close()
            starts: list[float] = []
            follow: list[float] = []
            for _ in range(1 if quick else 3):
                page = first_map(browser, path, starts)
                follow += [page.evaluate(FOLLOW, each) for each in 3 * files]
                page.close()
            told = [f"{statistics.median(each):.0f} ({min(each):.0f})" for each in (starts, follow)]
            rows.append([f"{name}, {precision}", f"{path.stat().st_size / 1e6:.1f}", *told])
    head = ["", "MB", "ms to the first map (least)", "ms to another picture's maps (least)"]
    yield Table("pages that run their network", head, rows)


def first_map(browser, path, loads):
    """Open a page, and append the time to its first map to ``loads``."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(path.as_uri())
    loads.append(page.evaluate(SHOWN, FRAME))
    return page
