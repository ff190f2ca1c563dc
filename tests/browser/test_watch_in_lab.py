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
    "watch.show()"
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


STEPS = 20


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_live(open_notebook, shots, tmp_path):
    notebook = open_notebook([MAKE, TRAIN.format(steps=STEPS)], seconds=400, own_kernel=True)
    page = notebook.page
    app = page.locator(".hookviz-app")
    app.locator(".hv-steps-strip").wait_for(timeout=60_000)
    slider = app.get_by_role("slider", name="step")

    def told():
        return int((slider.get_attribute("aria-valuetext") or "step -1").split()[1])

    wait_for(lambda: told() == STEPS - 1, 30, "the last step")
    app.scroll_into_view_if_needed()
    page.screenshot(path=shots / "watch.png")
    numbers = app.locator(".hv-steps-numbers")
    before = numbers.inner_text()
    slider.focus()
    slider.press("ArrowLeft")
    wait_for(lambda: numbers.inner_text().startswith(f"step {STEPS - 2}"), 10, "the step before")
    app.get_by_role("combobox", name="which row").select_option("layer1.0.conv1")
    assert "layer1.0.conv1" in numbers.inner_text() != before
    app.get_by_role("combobox", name="what the colours are of").select_option("update_ratio")
    page.screenshot(path=shots / "watch-updates.png")

    # Once more: now it is looked at while its cell still runs.
    cell = page.locator(".jp-CodeCell", has_text="for step in range")
    prompt = cell.locator(".jp-InputPrompt").first
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    slider.press("End")
    wait_for(lambda: told() > STEPS, 60, "a step of the second run")
    slider.press("ArrowLeft")
    here = told()
    assert numbers.inner_text().startswith(f"step {here}, layer1.0.conv1")
    wait_for(lambda: int(slider.get_attribute("max")) > here + 2, 60, "more steps")
    assert told() == here  # it stays where one looks
    page.screenshot(path=shots / "watch-while-it-runs.png")
    assert prompt.inner_text() == "[*]:"
    wait_for(lambda: prompt.inner_text() != "[*]:", 120, "the end of the training")
    slider.press("End")
    wait_for(lambda: told() == 2 * STEPS - 1, 10, "the last step of all")
    assert notebook.errors == []
