"""Pages of explorers: how large they are, how soon they show something, how they follow a key."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
import torchvision
from matplotlib.cbook import get_sample_data
from PIL import Image
from playwright.sync_api import sync_playwright

import hookviz

from .keypress import HELD, HOLD, browser_tools

MODELS = ("resnet18", "resnet50", "densenet121", "convnext_tiny")
FRAME = ".hv-activation .hv-frame"

# From when the page was asked for to the frame in which its first map is there.
SHOWN = """selector => new Promise(resolve => {
  const look = () => {
    const frame = document.querySelector(selector);
    if (frame && frame.ariaLabel && !document.querySelector(".hv-waiting"))
      requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""


def run(*, quick: bool = False) -> None:
    """Write each model's page, open it some times, hold a key in it."""
    print("\npages of explorers: size, opened from the disk, key held")
    _, chromium = browser_tools()
    photograph = Image.open(get_sample_data("grace_hopper.jpg")).convert("RGB")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=chromium.FLAGS
        )
        for name in MODELS[: 1 if quick else None]:
            torch.manual_seed(0)
            explorer = hookviz.explore(torchvision.models.get_model(name).eval(), photograph)
            path = Path(folder) / f"{name}.html"
            explorer.to_html(path)
            layers = len(explorer.frame.layers)
            explorer.close()
            loads, pictures = [], []
            for _ in range(1 if quick else 5):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(path.as_uri())
                loads.append(page.evaluate(SHOWN, FRAME))
                page.locator("input[type=range][aria-label='channel']").focus()
                pictures.append(page.evaluate(HOLD, [(FRAME, 0), HELD]))
                page.close()
            seen, frames = (statistics.median(each) for each in zip(*pictures, strict=True))
            print(
                f"  {name}, {layers} layers: {path.stat().st_size / 1e6:.1f} MB, first picture "
                f"after {statistics.median(loads):.0f} ms, {seen:.0f} pictures a second while a "
                f"key is held (the browser drew {frames:.0f} frames)",
                flush=True,
            )
        browser.close()
