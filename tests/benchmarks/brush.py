"""From letting go of the brush to the new pictures, in JupyterLab, beside a forward of the network.

The clock is in the page: it starts when the pointer goes up, and stops at the first frame in which
the mark of the stroke is gone, which is when all that the shown view needs of the new run is there.
The kernel times a forward before each stroke, so that both saw the same load.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from .keypress import CANVAS, browser_tools, write_notebook

NETWORKS = {
    "demo, 112²": "hookviz.demo_model(), hookviz.demo_images()[6]",
    "EfficientNet-Lite0, 224²": "'efficientnet_lite0', hookviz.models.photographs()['chelsea']",
}
MAKE = """
import ipywidgets, time, torch, hookviz
torch.set_num_threads(1)
explorer = hookviz.explore({})
model = explorer.displayed().session.model
said = ipywidgets.Label("").add_class("said")
button = ipywidgets.Button(description="time a forward")
def measure(_):
    given = explorer.inputs.args
    with torch.no_grad():
        model(*given)
        start = time.perf_counter()
        for _ in range(5):
            model(*given)
    said.value = repr((time.perf_counter() - start) / 5)
button.on_click(measure)
display(said, button, explorer)
"""

# A promise of the milliseconds from the pointer's going up to the frame without the mark.
CLOCK = """() => {
  const sheet = document.querySelector(".hv-brush");
  const marked = () => {
    const { data } = sheet.getContext("2d").getImageData(0, 0, sheet.width, sheet.height);
    return data.some((value) => value);
  };
  globalThis.letGo = new Promise((resolve) => {
    addEventListener("pointerup", () => {
      performance.mark("let go");
      const look = () => {
        if (marked()) return requestAnimationFrame(look);
        resolve(performance.measure("to the picture", "let go").duration);
      };
      requestAnimationFrame(look);
    }, { capture: true, once: true });
  });
}"""


def run(*, quick: bool = False) -> None:
    """Print both medians and their ratio, for each network."""
    tools, chromium = browser_tools()
    print("from letting go of the brush to the pictures, JupyterLab (median milliseconds)")
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        lab = tools.Lab(Path(home))
        try:
            browser = playwright.chromium.launch(
                executable_path=chromium.executable(), args=chromium.FLAGS
            )
            for number, (name, given) in enumerate(NETWORKS.items()):
                path = write_notebook(lab.files / f"{number}.ipynb", [CANVAS, MAKE.format(given)])
                notebook = tools.Notebook(lab, browser.new_context(), path, 120)
                shown, forward = strokes(notebook.page, 2 if quick else 9)
                print(
                    f"  {name}: {1000 * shown:.0f}; a forward {1000 * forward:.0f}; "
                    f"ratio {shown / forward:.1f}"
                )
            browser.close()
        finally:
            lab.close()


def strokes(page: Any, count: int) -> tuple[float, float]:
    """Drag some rectangles; the medians of the seconds until they are seen, and of a forward."""
    app, said = page.locator(".hookviz-app"), page.locator(".said")
    app.locator(".hv-tile").first.wait_for()
    app.get_by_role("button", name="paint", exact=True).click()
    app.get_by_role("combobox", name="tool", exact=True).select_option("rectangle")
    shown, forwards = [], []
    for number in range(count + 1):
        before = said.inner_text()
        page.get_by_role("button", name="time a forward").click()
        page.wait_for_function(
            "(old) => document.querySelector('.said').innerText !== old", arg=before
        )
        page.wait_for_timeout(500)  # let the kernel come to rest
        sheet = app.locator(".hv-input .hv-frame")
        sheet.scroll_into_view_if_needed()
        box = sheet.bounding_box()
        left, top = box["x"] + (0.1 + 0.05 * number) * box["width"], box["y"] + 0.3 * box["height"]
        page.evaluate(CLOCK)
        page.mouse.move(left, top)
        page.mouse.down()
        page.mouse.move(left + 0.2 * box["width"], top + 0.2 * box["height"], steps=3)
        page.mouse.up()
        shown.append(page.evaluate("globalThis.letGo") / 1000)
        forwards.append(float(said.inner_text()))
        page.keyboard.press("Control+z")
        app.locator(".hv-edit").wait_for(state="detached")
    return statistics.median(shown[1:]), statistics.median(forwards[1:])  # the first warms up
