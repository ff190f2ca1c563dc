"""Take the README's moving picture of the running widget: Lite0 on the photograph of a cat.

    python assets/screenshot.py

Needs what the browser tests need (``make test`` sets it up).
"""

from __future__ import annotations

import io
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "browser")]

import numpy as np  # noqa: E402
from chromium import FLAGS, executable  # noqa: E402
from front_end import write_notebook  # noqa: E402
from lab import Lab, Notebook  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

CELL = """import os
os.environ["HOOKVIZ_CANVAS"] = "on"  # which the tests' server has off
import hookviz
model, weights = hookviz.pretrained("efficientnet_lite0")
cat = hookviz.models.photographs()["chelsea"]
view = {"layer": "_blocks.10._expand_conv", "order": "gradcam weight"}
hookviz.explore(model, cat, weights=weights, **view)"""

MOVING = ROOT / "assets/explorer-moves.png"

HIGH = 1180
"""Pixels of the film: the explorer with the drawer of a value's terms."""

# Screenshots have no pointer.
POINTER = """() => {
  const shape = "M1 1v17l4.5-4 3 7 3-1.3-3-6.7h6z";
  const made = document.createElement("div");
  made.id = "pointer";
  made.innerHTML = `<svg width="20" height="24"><path d="${shape}" stroke="#fff"/></svg>`;
  made.style = "position: fixed; left: 0; top: 0; z-index: 9999; pointer-events: none";
  document.body.append(made);
}"""


class Film:
    """Frames of the explorer, each with how long it is shown."""

    def __init__(self, page: Any, explorer: Any) -> None:
        self.page = page
        self.clip = explorer.bounding_box() | {"height": HIGH}
        self.frames: list[tuple[Image.Image, int]] = []
        self.at = (700.0, 900.0)
        page.evaluate(POINTER)

    def take(self, milliseconds: int, wait: int = 0) -> None:
        self.page.wait_for_timeout(wait)
        png = self.page.screenshot(clip=self.clip)
        self.frames.append((Image.open(io.BytesIO(png)).convert("RGB"), milliseconds))

    def point(self, target: Any, across: float = 0.5, down: float = 0.5) -> None:
        """Move the pointer there in some frames; last, what it finds there."""
        box = target.bounding_box()
        end = (box["x"] + across * box["width"], box["y"] + down * box["height"])
        begin, steps = self.at, 4
        for step in range(1, steps + 1):
            self.at = tuple(a + (b - a) * step / steps for a, b in zip(begin, end, strict=True))
            self.page.mouse.move(*self.at)
            move = "([x, y]) => { pointer.style.transform = `translate(${x}px, ${y}px)` }"
            self.page.evaluate(move, self.at)
            self.take(90, 60)

    def click(self) -> None:
        self.page.mouse.click(*self.at)
        self.take(1400, 900)

    def write(self, path: Path) -> None:
        """As an animated PNG: in exact colours, and a pixel that stays is transparent."""
        shown = [np.asarray(frame) for frame, _ in self.frames]
        changes = []
        for before, after in itertools.pairwise(shown):
            opaque = (before != after).any(-1, keepdims=True) * np.uint8(255)
            changes.append(Image.fromarray(np.dstack([after * (opaque > 0), opaque])))
        durations = [milliseconds for _, milliseconds in self.frames]
        motion = {"duration": durations, "loop": 0, "disposal": 0, "blend": 1}
        first = Image.fromarray(shown[0]).convert("RGBA")
        first.save(path, save_all=True, append_images=changes, compress_level=9, **motion)
        print(f"{path.name}: {len(durations)} frames, {path.stat().st_size / 1e6:.2f} MB")


def record(film: Film) -> None:
    """Click the cat's eye, show the channel that responds most there, ask why, choose a class."""
    app = film.page.locator(".hookviz-app")
    film.take(1200)
    film.point(app.locator(".hv-input .hv-frame"), 0.28, 0.37)
    film.click()
    film.point(app.locator(".hv-card-best button").first)
    film.click()
    film.point(app.locator(".hv-why-offer"))
    film.page.mouse.click(*film.at)
    app.locator(".hv-why-term").nth(4).wait_for()
    film.take(2600, 900)
    film.point(app.locator(".hv-prediction").nth(1), 0.3)
    film.page.mouse.click(*film.at)
    shown = "() => !document.querySelector('.hookviz-app').innerText.includes('on its way')"
    film.page.wait_for_timeout(500)
    film.page.wait_for_function(shown)
    film.take(2600, 900)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(Path(folder))
        try:
            path = write_notebook(lab.files / "screenshot.ipynb", [CELL])
            browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
            page = Notebook(lab, browser, path, 180).page
            page.set_viewport_size({"width": 1400, "height": 2600})  # nothing has to scroll
            page.wait_for_timeout(2000)
            film = Film(page, page.locator(".hookviz-explorer"))
            record(film)
            film.write(MOVING)
            browser.close()
        finally:
            lab.close()


if __name__ == "__main__":
    main()
