"""Pages that run their network: sizes, how soon they are there, how soon another picture is.

The clock is in the page: from its address to the first map, and from a picture's file to the frame
that shows its maps and gradients. On a busy machine the least says most.
"""

from __future__ import annotations

import base64
import io
import os
import statistics
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import hookviz
from hookviz.export.network.onnx_graph import Precision

from .keypress import browser_tools
from .pages import FRAME, SHOWN

NETWORKS: dict[str, Precision] = {"demo": "float32", "efficientnet_lite0": "float16"}

# A promise of the milliseconds; the page draws in the frame after it has the answer, and the task
# after that frame ends the clock.
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


def run(*, quick: bool = False) -> None:
    """Write both pages, open each some times, and give each some pictures."""
    _, chromium = browser_tools()
    pictures = [_file(each) for each in hookviz.models.photographs().values()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=chromium.FLAGS
        )
        for name, precision in NETWORKS.items():
            path = Path(folder) / f"{name}.html"
            _write(name, precision, path)
            starts, steps = [], []
            for _ in range(1 if quick else 5):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(path.as_uri())
                starts.append(page.evaluate(SHOWN, FRAME))
                steps += [page.evaluate(FOLLOW, each) for each in 3 * pictures]
                page.close()
            print(
                f"\n{name}, {precision}: {path.stat().st_size / 1e6:.1f} MB, there after "
                f"{_told(starts)}, another picture after {_told(steps)}; load "
                f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
                flush=True,
            )
        browser.close()


def _write(name: str, precision: Precision, path: Path) -> None:
    if name == "demo":
        explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    else:
        model, weights = hookviz.pretrained(name)
        picture = hookviz.models.photographs()["chelsea"]
        explorer = hookviz.explore(model, picture, weights=weights)
    explorer.to_html(path, network=True, precision=precision)
    explorer.close()


def _file(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _told(found: list[float]) -> str:
    return f"{statistics.median(found):.0f} ms ({min(found):.0f} at least)"
