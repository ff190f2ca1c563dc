"""Why a value, in JupyterLab: its terms, the walk back, and the check by switching off."""

from __future__ import annotations

import re

import pytest
from front_end import CANVAS_ON, WIDGETS, wait_for
from playwright.sync_api import expect

MAKE = (
    "import hookviz\n"
    "explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6],"
    " layer='layer3.1.conv2', channel=17)\n"
    "explorer"
)


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_why_a_value(open_notebook, shots):
    notebook = open_notebook([CANVAS_ON, MAKE])
    app = notebook.page.locator(".hookviz-app")
    app.locator(".hv-tile").first.wait_for()
    why, offer = app.locator(".hv-why"), app.locator(".hv-why-offer")
    assert not offer.is_visible()
    app.locator(".hv-cap").get_by_role("button", name="why?", exact=True).click()
    wait_for(lambda: "Click a value" in why.inner_text(), "the panel")
    notebook.page.keyboard.press("w")
    wait_for(lambda: not why.is_visible(), "the panel to close")
    app.locator(".hv-activation .hv-frame").click()
    offer.click()  # beside the value
    wait_for(lambda: not offer.is_visible(), "the panel in place of the offer")
    terms, chips = why.locator("input[type=checkbox]"), why.locator(".hv-why-trail button")
    wait_for(lambda: terms.count() == 8, "the largest terms")
    total = why.locator(".hv-why-sum")
    wait_for(lambda: re.search(r"= bias .* \(88 others\)", total.inner_text()), "the sum")
    assert "layer3.1.conv2, channel 17 at" in why.inner_text()

    why.locator(".hv-why-picture").nth(1).hover()
    cell = why.locator(".hv-why-cell")
    wait_for(lambda: re.search(r"kernel \S+ × patch \S+ = \S+", cell.inner_text()), "the cell")
    terms.first.check()
    why.get_by_role("button", name="switch these off").click()
    checked = lambda: re.search(r"predicted (\S+), true (\S+);", why.inner_text())  # noqa: E731
    wait_for(checked, "the run without the channel")
    predicted, true = (float(each.replace("−", "-")) for each in checked().groups())
    assert predicted == pytest.approx(true, rel=0.02, abs=1e-3)
    notebook.page.screenshot(path=shots / "why.png")

    why.locator(".hv-why-from button").first.click()
    wait_for(lambda: "layer3.1.conv1, channel" in why.inner_text(), "the layer before")
    wait_for(lambda: chips.count() == 2, "the trail")
    layer = app.get_by_label("layer", exact=True).first
    expect(layer).to_have_attribute("aria-valuetext", re.compile(r"^layer3\.1\.conv1"))
    chips.first.click()
    wait_for(lambda: "layer3.1.conv2, channel 17" in why.inner_text(), "the way forth")
    wait_for(lambda: chips.count() == 2, "the trail")
    assert notebook.errors == []


SLOW = """import pathlib, time, torch, hookviz
class Slow(torch.nn.Conv2d):
    def forward(self, x):
        while pathlib.Path("wait").exists():
            time.sleep(0.01)
        return super().forward(x)
torch.manual_seed(0)
net = torch.nn.Sequential(Slow(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))
explorer = hookviz.explore(net, torch.rand(1, 3, 16, 16), layer='2')
explorer"""


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_a_slow_network_says_so(open_notebook, lab):
    notebook = open_notebook([CANVAS_ON, SLOW])
    app = notebook.page.locator(".hookviz-app")
    app.locator(".hv-tile").first.wait_for()
    notebook.settle()
    wait = lab.files / "wait"
    wait.touch()
    app.locator(".hv-activation .hv-frame").click()
    app.locator(".hv-why-offer").click()
    app.get_by_text("interrupt the kernel to stop").wait_for()
    why = app.locator(".hv-why")
    wait_for(lambda: "on its way" in why.inner_text(), "the panel to say so")
    wait.unlink()
    wait_for(lambda: why.locator("input[type=checkbox]").count() == 4, "the terms")
    expect(app.get_by_text("interrupt the kernel to stop")).to_be_hidden()
    assert notebook.errors == []
