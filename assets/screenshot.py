"""Take the README's pictures of the running widget, one of them in motion: Lite0 sees a cat.

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
hookviz.explore(model, cat, weights=weights, layer="_blocks.9._depthwise_conv", order="weight")"""

STILL, MOVING = ROOT / "assets/explorer.png", ROOT / "assets/explorer-moves.png"

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
        self.page, self.explorer = page, explorer
        self.frames: list[tuple[Image.Image, int]] = []
        self.at = (700.0, 900.0)
        page.evaluate(POINTER)

    def take(self, milliseconds: int, wait: int = 0) -> None:
        self.page.wait_for_timeout(wait)
        png = self.explorer.screenshot()
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
        high = min(frame.height for frame, _ in self.frames)  # a line of words may come and go
        shown = [np.asarray(frame)[:high] for frame, _ in self.frames]
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
    """Click a tile, point at exact values, choose another class, step through layers."""
    app = film.page.locator(".hookviz-app")
    film.take(1200)
    film.point(app.locator(".hv-tile").nth(4))
    film.click()
    activation = app.locator(".hv-activation .hv-frame")
    for across, down in ((0.35, 0.4), (0.55, 0.62)):
        film.point(activation, across, down)
        film.take(900, 300)
    film.point(app.locator(".hv-prediction").nth(1), 0.3)
    film.click()
    for _ in range(3):
        app.get_by_role("slider", name="channel").focus()
        film.page.keyboard.press("ArrowDown")
        film.take(1000, 700)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(Path(folder))
        try:
            path = write_notebook(lab.files / "screenshot.ipynb", [CELL])
            browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
            page = Notebook(lab, browser, path, 180).page
            page.set_viewport_size({"width": 1400, "height": 1600})  # all of it is on the screen
            page.wait_for_timeout(2000)
            explorer = page.locator(".hookviz-explorer")
            explorer.screenshot(path=STILL)
            film = Film(page, explorer)
            record(film)
            film.write(MOVING)
            browser.close()
        finally:
            lab.close()


if __name__ == "__main__":
    main()
