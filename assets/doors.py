"""Take the three small pictures of the README's doors: ``python assets/doors.py``.

Needs what the browser tests need (``make test`` sets it up). The first shows EfficientNet-Lite0,
trained on ImageNet, with a photograph of a cat; each is a page that needs no kernel.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

import torch  # noqa: E402
from chromium import FLAGS, executable  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

import hookviz  # noqa: E402

WIDE, HIGH = 480, 320


class Blocked(torch.nn.Module):
    """A network whose ReLU stands behind a bias that is far too low, and with a log of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3)
        self.conv2 = torch.nn.Conv2d(16, 32, 3)
        self.head = torch.nn.Linear(32, 10)
        torch.nn.init.constant_(self.conv2.get_parameter("bias"), -10.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x).relu()
        x = self.conv2(x).relu().mean((2, 3))
        return self.head(x).softmax(1).mul(0).log()


def write_pages(folder: Path) -> dict[str, tuple[str, int]]:
    """Write a page a door; return its address and the width at which it is looked at."""
    cat = hookviz.models.photographs()["chelsea"]
    model, weights = hookviz.pretrained("efficientnet_lite0")
    explorer = hookviz.explore(
        model, cat, weights=weights, layer="_blocks.2._depthwise_conv", channel=8
    )
    explorer.to_html(folder / "explore.html")
    explorer.close()
    model, image = hookviz.demo_model(), hookviz.demo_images()[12]
    hookviz.trace(model, image).to_html(folder / "teach.html")
    torch.manual_seed(0)
    hookviz.diagnose(Blocked(), torch.rand(4, 3, 32, 32)).to_html(folder / "debug.html")
    widths = {"explore": 1200, "teach": 1000, "debug": 760}
    return {name: ((folder / f"{name}.html").as_uri(), width) for name, width in widths.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        for name, (address, width) in write_pages(Path(made)).items():
            page = browser.new_page(viewport={"width": width, "height": width * HIGH // WIDE})
            page.goto(address)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1500)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            small = picture.resize((WIDE * 2, HIGH * 2), Image.Resampling.LANCZOS)
            small.quantize(128).save(ROOT / f"assets/door-{name}.png", optimize=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
