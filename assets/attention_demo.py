"""A patch of a digit looks at the digit: writes ``assets/attention.png``.

    python assets/attention_demo.py

The page of an explorer, in Chromium, at a head of the small trained transformer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import hookviz

OUT = Path(__file__).resolve().parent
SHOWN = 7
"""One of the pictures, chosen by eye."""


def main() -> None:
    """Write the page, and a picture of it."""
    picture = hookviz.models.demo_digits()[SHOWN]
    explorer = hookviz.explore(hookviz.models.demo_transformer(), picture, picture.info["label"])
    explorer.layer = "encoder.layers.encoder_layer_1.self_attention.heads"
    explorer.channel, explorer.heatmap = 1, "gradient × attention"
    row, column = picture.info["corner"]
    explorer.place = (row + 4) / 24, (column + 4) / 24  # the middle of the digit
    page = OUT / "attention.html"
    explorer.to_html(page)
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path="/usr/bin/chromium")
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.goto(page.as_uri())
        opened.locator(".hv-tile").first.wait_for()
        opened.wait_for_timeout(500)
        opened.screenshot(path=OUT / "attention.png")
        browser.close()
    page.unlink()


if __name__ == "__main__":
    main()
