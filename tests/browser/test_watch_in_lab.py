"""A training that is seen while its cell runs, and its page."""

from __future__ import annotations

import pytest
from front_end import WIDGETS, wait_for

MAKE = (
    "import os\n"
    "os.environ['HOOKVIZ_CANVAS'] = 'on'\n"
    "import hookviz, torch, torchvision\n"
    "torch.manual_seed(0)\n"
    "model = torchvision.models.resnet18(num_classes=4).train()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
    "watch = hookviz.watch(model, every=1, probe=torch.rand(1, 3, 64, 64))\n"
    "watch.live()"
)
TRAIN = (
    "for step in range({steps}):\n"
    "    x = torch.rand(4, 3, 64, 64)\n"
    "    with watch:\n"
    "        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(4))\n"
    "        optimizer.zero_grad()\n"
    "        loss.backward()\n"
    "    optimizer.step()\n"
    "    if step == 7:\n"
    "        optimizer.param_groups[0]['lr'] *= 1000\n"
    "print('trained')"
)


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_live(open_notebook, shots, tmp_path):
    notebook = open_notebook([MAKE, TRAIN.format(steps=12)], seconds=400, own_kernel=True)
    page = notebook.page
    app = page.locator(".hookviz-app")
    app.locator(".hv-steps-strip").wait_for(timeout=60_000)
    slider = app.get_by_role("slider", name="step")
    wait_for(lambda: slider.get_attribute("aria-valuetext") == "step 11", 30, "the last step")
    app.scroll_into_view_if_needed()
    page.screenshot(path=shots / "watch.png")
    numbers = app.locator(".hv-steps-numbers")
    before = numbers.inner_text()
    slider.focus()
    slider.press("ArrowLeft")
    wait_for(lambda: numbers.inner_text().startswith("step 10"), 10, "the step before")
    app.get_by_role("combobox", name="which row").select_option("layer1.0.conv1")
    assert "layer1.0.conv1" in numbers.inner_text() != before
    app.get_by_role("combobox", name="what the colours are of").select_option("update_ratio")
    page.screenshot(path=shots / "watch-updates.png")
    assert notebook.errors == []
