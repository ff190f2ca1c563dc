"""A training that is shown while its cell runs."""

from __future__ import annotations

import re

import pytest
from front_end import CANVAS_ON, needs_canvas, wait_for
from playwright.sync_api import expect

MAKE = f"""{CANVAS_ON}
import hookviz, pathlib, torch
torch.manual_seed(0)
model = hookviz.demo_model().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
watch = hookviz.watch(model, every=1, probe=torch.rand(1, 3, 64, 64))
watch.show()"""
# Train for at least this many steps, until a file tells it to end.
TRAIN = """step = 0
while step < {steps} or not pathlib.Path({end!r}).exists():
    x = torch.rand(4, 3, 64, 64)
    with watch:
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    step += 1
    if step == 8:
        optimizer.param_groups[0]['lr'] *= 1000
print(f'trained {{step}} steps')"""
STEPS = 12


@pytest.mark.heavy
@needs_canvas
def test_a_training_is_shown_while_its_cell_runs(open_notebook, tmp_path):
    end = tmp_path / "end"
    end.touch()
    notebook = open_notebook([MAKE, TRAIN.format(steps=STEPS, end=str(end))])
    page = notebook.page
    app = page.locator(".hookviz-app")
    app.locator(".hv-steps-strip").wait_for()
    slider = app.get_by_role("slider", name="step")

    def shown_step():
        return int((slider.get_attribute("aria-valuetext") or "step -1").split()[1])

    wait_for(lambda: shown_step() == STEPS - 1, "the last step")
    app.scroll_into_view_if_needed()
    numbers = app.locator(".hv-steps-numbers")
    slider.focus()
    slider.press("ArrowLeft")
    wait_for(lambda: numbers.inner_text().startswith(f"step {STEPS - 2}"), "the step before")
    app.get_by_role("combobox", name="which row").select_option("layer1.0.conv1")
    expect(numbers).to_contain_text(f"step {STEPS - 2}, layer1.0.conv1")
    app.get_by_role("combobox", name="what the colours are of").select_option("update_ratio")

    # Run the cell again, and look at the training while the cell runs.
    end.unlink()
    cell = page.locator(".jp-CodeCell", has_text="while step <")
    prompt = cell.locator(".jp-InputPrompt").first
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")

    def looked():  # starting a run may move the focus away from the slider
        slider.press("End")
        return shown_step() > STEPS

    wait_for(looked, "a step of the second run")
    slider.press("ArrowLeft")
    here = shown_step()
    expect(numbers).to_contain_text(f"step {here}, layer1.0.conv1")
    wait_for(lambda: int(slider.get_attribute("max")) > here + 2, "more steps")
    assert shown_step() == here  # new steps do not move the slider
    assert prompt.inner_text() == "[*]:"
    end.touch()
    wait_for(lambda: prompt.inner_text() != "[*]:", "the end of the training")
    output = cell.locator(".jp-OutputArea-output").last

    def trained():  # the printed text may come after the cell's number
        return re.fullmatch(r"trained (\d+) steps\s*", output.inner_text())

    steps = int(wait_for(trained, "the count of steps")[1])
    slider.press("End")
    wait_for(lambda: shown_step() == STEPS + steps - 1, "the last step of all")
