"""A trained network on a photograph in the browser: what its first view says, on any screen."""

from __future__ import annotations

import numpy as np
import pytest
from front_end import canvas_pixels, next_frame

import hookviz


@pytest.fixture(scope="module")
def cat(tmp_path_factory):
    model, weights = hookviz.pretrained("efficientnet_lite0")
    explorer = hookviz.explore(
        model, hookviz.models.photographs()["chelsea"], weights=weights, layers="_blocks.1[0-5]*"
    )
    path = tmp_path_factory.mktemp("cat") / "cat.html"
    explorer.to_html(path, max_bytes=5e6)
    yield path, explorer
    explorer.close()


def test_the_first_view_of_a_cat(chrome, cat):
    path, explorer = cat
    page = chrome.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.goto(path.as_uri())
    page.locator(".hv-tile").first.wait_for()
    assert page.locator(".hv-prediction").first.inner_text().startswith(("Egyptian", "tiger"))
    line = page.locator(".hv-chip").inner_text()
    assert line.startswith("No NaN or Inf in ") and "Silent on this picture: up to " in line
    blocks = page.locator(".hv-blocks span")
    assert blocks.evaluate_all("all => all.map((each) => each.title)") == [
        f"{number}" for number in range(10, 16)
    ]
    # One click shows the numbers that the network got.
    own = page.locator(".hv-input canvas")
    seen = canvas_pixels(own)[..., :3]
    page.get_by_role("button", name="as fed").click()
    next_frame(page)
    numbers = explorer.inputs[0].permute(1, 2, 0).numpy()
    stretched = 255 * (numbers - numbers.min()) / np.ptp(numbers)
    fed = canvas_pixels(own)[..., :3]
    assert np.abs(fed - stretched).max() < 3 < np.abs(seen - stretched).max()
    for width, height in ((1024, 768), (900, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        next_frame(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        for part in (".hv-prediction em", ".hv-model", ".hv-chip", ".hv-name"):
            assert page.locator(part).evaluate_all(cut) == 0, (width, part)
    page.close()
