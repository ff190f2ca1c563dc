"""From a key press on a slider to the new picture, and how many pictures come while it is held.

In a real JupyterLab, with what the kernel and the page tell each other at a step of the layer.

The clock is in the page: it starts when the page gets the key and stops when what
belongs to the new channel has arrived, is decoded, and the next animation frame begins.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import sync_playwright

from .race import print_table, turns

BROWSER_TESTS = Path(__file__).resolve().parents[1] / "browser"
BLOCK = 5  # presses in a row, before it is the next notebook's turn

MODEL = """
import torch, torchvision
from matplotlib.cbook import get_sample_data
from PIL import Image
torch.manual_seed(0)
model = torchvision.models.resnet18().eval()
image = Image.open(get_sample_data("grace_hopper.jpg")).convert("RGB")
"""
MAPS = """
from torchvision.transforms.functional import resize, to_tensor
with torch.no_grad():
    maps = model.conv1(to_tensor(resize(image, (224, 224)))[None])[0].numpy()
"""
INTERACT = """
import ipywidgets, matplotlib.pyplot as plt
def show(channel=0):
    plt.imshow(maps[channel])
    plt.show()
ipywidgets.interact(show, channel=(0, len(maps) - 1));
"""
BARE = """
import ipywidgets
import io
from PIL import Image
from hookviz.draw.colours import palette, to_levels
def png(channel):
    image = Image.fromarray(to_levels(maps[channel], maps[channel].min(), maps[channel].max()))
    image.putpalette(palette("viridis")[:, :3].tobytes())
    image.save(buffer := io.BytesIO(), "PNG", compress_level=1)
    return buffer.getvalue()
slider = ipywidgets.IntSlider(max=len(maps) - 1, description="channel")
picture = ipywidgets.Image(value=png(0))
slider.observe(lambda change: setattr(picture, "value", png(change.new)), "value")
ipywidgets.VBox([slider, picture])
"""
EXPLORE = """
import hookviz
hookviz.explore(model, image, layer="conv1")
"""

CANVAS = "import os\nos.environ['HOOKVIZ_CANVAS'] = 'on'"
HELD = 3  # seconds

# For each part: [selector, index], as many promises of the milliseconds it takes to be there.
CLOCK = """parts => {
  const find = ([selector, index]) => Array.from(document.querySelectorAll(selector)).at(index);
  const said = e => e.src || e.ariaLabel || e.textContent;
  const read = part => { const e = find(part); return e && said(e); };
  const changed = (part, before) => new Promise(resolve => {
    const observer = new MutationObserver(() => {
      const now = read(part);
      if (now && now !== before) { observer.disconnect(); resolve(); }
    });
    observer.observe(document.body, {
      subtree: true, childList: true, characterData: true, attributeFilter: ["src", "aria-label"]
    });
  });
  const visible = async part => {
    const element = find(part);
    if (element.decode) await element.decode();
    await new Promise(requestAnimationFrame);
  };
  window.pressed = new Promise((resolve, reject) => {
    document.addEventListener("keydown", () => {
      const start = performance.now();
      setTimeout(() => reject(new Error("nothing new within 10 s")), 10000);
      Promise.all(parts.map(async part => {
        await changed(part, read(part));
        await visible(part);
        return performance.now() - start;
      })).then(resolve, reject);
    }, {capture: true, once: true});
  });
}"""

# A key that is held: one event a frame, to and fro; how many pictures there are to see, a second.
HOLD = """([[selector, index], seconds]) => new Promise(resolve => {
  const find = () => Array.from(document.querySelectorAll(selector)).at(index);
  const read = () => { const e = find(); return e.src || e.ariaLabel; };
  const target = document.activeElement;
  const start = performance.now();
  let [frames, seen, last] = [0, 0, read()];
  const frame = now => {
    const shown = read();
    if (shown !== last) { seen += 1; last = shown; }
    if (now - start > 1000 * seconds) return resolve([seen / seconds, frames / seconds]);
    const key = Math.floor(frames++ / 50) % 2 ? "ArrowLeft" : "ArrowRight";
    target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


@dataclass
class Contender:
    """A notebook with a slider named channel.

    Attributes
    ----------
    name : str
    cells : list of str
    parts : list of tuple
        CSS selector and index of what is new after a press.
    page : playwright.sync_api.Page
    slider, layers : str
        Where a key moves the channel, and where the layer, if there is such a place.
    told : int
        Bytes between page and kernel, so far.
    first, all : list of float
        Seconds until the first part is there, and all are.
    held : list of (float, float)
        Distinct pictures a second while a key is held, and frames that the browser drew.
    steps : list of float
        Bytes for each step of the layer.
    """

    name: str
    cells: list[str]
    parts: list[tuple[str, int]]
    slider: str = ".widget-slider:has-text('channel') .noUi-handle"
    layers: str = ""
    page: Any = None
    told: int = 0
    first: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)
    held: list[tuple[float, float]] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def press(self) -> list[float]:
        """Press the right arrow once; seconds until each part is there."""
        self.page.evaluate(CLOCK, self.parts)
        self.page.keyboard.press("ArrowRight")
        milliseconds = self.page.evaluate("window.pressed")
        self.page.wait_for_timeout(200)  # let the kernel come to rest
        return [each / 1000 for each in milliseconds]

    def block(self, presses: int) -> None:
        """Some presses in a row, measured but for the first."""
        self.page.bring_to_front()  # a page behind another one gets no animation frames
        self.page.locator(self.slider).first.focus()
        self.page.keyboard.press("Home")  # where no press finds itself at the end
        self.page.wait_for_timeout(1500)
        self.press()
        for _ in range(presses):
            times = self.press()
            self.first.append(times[0])
            self.all.append(max(times))
        self.held.append(self.page.evaluate(HOLD, [self.parts[0], HELD]))
        self.page.wait_for_timeout(1500)
        self.step_layers()

    def step_layers(self) -> None:
        """Some steps to and fro, none before all of the last one has come."""
        if not self.layers:
            return
        self.page.locator(self.layers).first.focus()
        before = self.told
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Home"):
            self.page.keyboard.press(key)
            self.page.wait_for_timeout(1000)
        self.steps.append((self.told - before) / 4)

    def count(self, socket: Any) -> None:
        """Count what a WebSocket carries from now on."""

        def add(payload: Any) -> None:
            self.told += len(payload)

        socket.on("framesent", add)
        socket.on("framereceived", add)


def contenders() -> list[Contender]:
    """Today's way, the least that a slider and a picture can take, and hookviz."""
    return [
        Contender(
            "interact and imshow",
            [MODEL, MAPS, INTERACT],
            [(".widget-output .jp-OutputArea img", 0)],
        ),
        Contender(
            "an Image widget and a palette PNG", [MODEL, MAPS, BARE], [("img.widget-image", 0)]
        ),
        Contender(
            "hookviz.explore",
            [MODEL, EXPLORE],
            [
                ('.hookviz img[alt^="channel "]', 0),
                ('.hookviz img[alt^="gradient "]', 0),
                (".hookviz table.numbers", -1),
            ],
            layers=".widget-slider.hookviz-by-layer .noUi-handle",
        ),
        Contender(
            "hookviz.explore, canvas",
            [MODEL, CANVAS, EXPLORE],
            [(".hv-activation .hv-frame", 0), (".hv-gradient .hv-frame", 0)],
            slider=".hookviz-app input[type=range][aria-label='channel']",
            layers=".hookviz-app input[type=range][aria-label='layer']",
        ),
    ]


def run(*, quick: bool = False) -> None:
    """Race notebooks in one browser session, resnet18's first convolution."""
    racing = contenders()
    with tempfile.TemporaryDirectory() as home:
        press_all(racing, 1 if quick else 8, Path(home))
    seconds = {}
    for contender in racing:
        seconds[contender.name] = contender.all
        if len(contender.parts) > 1:
            seconds[contender.name] = contender.first
            seconds[f"{contender.name}, all panels"] = contender.all
    print_table("key press to new picture in JupyterLab", seconds)
    for contender in racing:
        seen, frames = (statistics.median(each) for each in zip(*contender.held, strict=True))
        told = f"  {contender.name}: {seen:.0f} pictures a second in {frames:.0f} frames, key held"
        if contender.steps:
            told += f"; {statistics.median(contender.steps) / 1000:,.0f} kB for a step of the layer"
        print(told)


def press_all(racing: list[Contender], blocks: int, home: Path) -> None:
    """Open all notebooks and press keys in each in turn."""
    tools, chromium = browser_tools()
    lab = tools.Lab(home)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium.executable(), args=chromium.FLAGS
            )
            for number, contender in enumerate(racing):
                path = write_notebook(lab.files / f"{number}.ipynb", contender.cells)
                context = browser.new_context()
                count = contender.count
                context.on("page", lambda page, count=count: page.on("websocket", count))
                contender.page = tools.Notebook(lab, context, path, 120).page
                contender.page.locator(contender.slider).first.wait_for(timeout=60_000)
            for number in range(blocks):
                for contender in turns(racing, number):
                    contender.block(BLOCK)
            browser.close()
    finally:
        lab.close()


def browser_tools() -> tuple[Any, Any]:
    """The browser tests' own modules, with their JupyterLab, notebook and browser."""
    sys.path.insert(0, str(BROWSER_TESTS))
    try:
        return importlib.import_module("lab"), importlib.import_module("chromium")
    finally:
        sys.path.remove(str(BROWSER_TESTS))


def write_notebook(path: Path, cells: list[str]) -> Path:
    code = [nbformat.v4.new_code_cell(cell.strip()) for cell in cells]
    # Without a kernel's name JupyterLab would ask for one.
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata={"kernelspec": kernel}), path)
    return path
