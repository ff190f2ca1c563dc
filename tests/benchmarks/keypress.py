"""How long it takes from a key press on a slider to the new picture, in a real JupyterLab.

The clock is in the page: it starts when the page gets the key and stops when what
belongs to the new channel has arrived, is decoded, and the next animation frame begins.
"""

from __future__ import annotations

import importlib
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
from hookviz.render.colours import map_png
def png(channel):
    return map_png(maps[channel], "viridis", maps[channel].min(), maps[channel].max())
slider = ipywidgets.IntSlider(max=len(maps) - 1, description="channel")
picture = ipywidgets.Image(value=png(0))
slider.observe(lambda change: setattr(picture, "value", png(change.new)), "value")
ipywidgets.VBox([slider, picture])
"""
EXPLORE = """
import hookviz
hookviz.explore(model, image, layer="conv1")
"""

# For each part: [selector, index], as many promises of the milliseconds it takes to be there.
CLOCK = """parts => {
  const find = ([selector, index]) => Array.from(document.querySelectorAll(selector)).at(index);
  const read = part => { const e = find(part); return e && (e.src || e.textContent); };
  const changed = (part, before) => new Promise(resolve => {
    const observer = new MutationObserver(() => {
      const now = read(part);
      if (now && now !== before) { observer.disconnect(); resolve(); }
    });
    observer.observe(document.body, {
      subtree: true, childList: true, characterData: true, attributeFilter: ["src"]
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
    first, all : list of float
        Seconds until the first part is there, and all are.
    """

    name: str
    cells: list[str]
    parts: list[tuple[str, int]]
    page: Any = None
    first: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)

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
        slider = self.page.locator(".widget-slider", has_text="channel").first
        slider.locator(".noUi-handle").focus()
        self.page.wait_for_timeout(300)
        self.press()
        for _ in range(presses):
            times = self.press()
            self.first.append(times[0])
            self.all.append(max(times))


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
                (".hookviz .readings", -1),
            ],
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
                contender.page = tools.Notebook(lab, browser, path, 120).page
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
