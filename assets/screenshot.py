"""Take the README's picture of the running widget: ``python assets/screenshot.py``.

Needs what the browser tests need (``make test`` sets it up).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "browser")]

import nbformat  # noqa: E402
from chromium import FLAGS, executable  # noqa: E402
from lab import Lab, Notebook  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

CELL = """import os
os.environ["HOOKVIZ_CANVAS"] = "on"  # which the tests' server has off
import hookviz
model, pictures = hookviz.demo_model(), hookviz.demo_images()
hookviz.explore(model, pictures[12], layer="layer3.0.conv1", order="weight")"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(Path(folder))
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = lab.files / "screenshot.ipynb"
        cells = [nbformat.v4.new_code_cell(CELL)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        notebook = Notebook(lab, browser, path, 60)
        notebook.page.wait_for_timeout(2000)
        notebook.page.locator(".hookviz-explorer").screenshot(path=ROOT / "assets/explorer.png")
        browser.close()
        lab.close()


if __name__ == "__main__":
    main()
