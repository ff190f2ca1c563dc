"""Running a cell again in a real notebook replaces the old explorer by the new one."""

from __future__ import annotations

import pytest
from front_end import PLAIN_MAP, number, wait_for, wait_for_names

CELL = """import hookviz, ipywidgets
model, image = hookviz.demo_model(), hookviz.demo_images()[6]
explorer = hookviz.explore(model, image, layers="stem.*", layer="stem.0", channel=0)
explorer"""
# Count only the comms of widgets; a page opens another one briefly to list them.
COUNT = """module = ipywidgets.widgets.widget
seven = not hasattr(module, "_instances")
every = list((ipywidgets.Widget.widgets if seven else module._instances).values())
comms = [c.target_name for c in get_ipython().kernel.comm_manager.comms.values()]
explorers = [w for w in every if isinstance(w, hookviz.widgets.Explorer)]
time = globals().get("time", 0) + 1
print(f"time {time}: open {len(explorers)} widgets {len(every)}",
      f"comms {comms.count('jupyter.widget')} done")
del explorers"""


@pytest.mark.heavy
def test_running_a_cell_again_replaces_its_explorer(open_notebook):
    notebook = open_notebook([CELL, COUNT])
    page = notebook.page
    cells = page.locator(".jp-CodeCell, .code_cell")

    def run(cell):
        """Run one cell with Shift+Enter, and wait until its number has changed."""
        prompt = cells.nth(cell).locator(".jp-InputPrompt, .input_prompt")
        before = prompt.inner_text()
        cells.nth(cell).locator(".cm-content, .CodeMirror-code").click()
        page.keyboard.press("Shift+Enter")

        def done():
            now = prompt.inner_text()
            return number(now).isdigit() and now != before

        wait_for(done, "the cell to have run")

    def counted(time):
        """Return the second cell's latest output, which may come after its number."""
        told, begin = (
            cells.nth(1).locator(".jp-OutputArea-output, .output_subarea"),
            f"time {time}: ",
        )

        def complete():
            text = "".join(told.all_inner_texts()).strip()
            return text.startswith(begin) and text.endswith(" done") and text

        return wait_for(complete, "the counts").removeprefix(begin)

    first = counted(1)
    assert first.startswith("open 1 ")
    for runs in (2, 3):
        run(0)
        run(1)
        if notebook.tells_cells:
            assert counted(runs) == first
        else:  # without cell ids, the old explorer cannot be recognized
            assert counted(runs).startswith(f"open {runs} ")

    widget = page.locator(".hookviz-explorer")
    wait_for(lambda: widget.count() == 1, "the new explorer")
    wait_for_names(widget)
    picture = widget.locator(PLAIN_MAP)

    def press_until(channel):
        alt = f"channel {channel} of 24 of layer stem.0"
        widget.get_by_role("slider", name="channel").press("ArrowRight")
        wait_for(lambda: alt in (picture.get_attribute("alt") or ""), "the slider's channel")

    press_until(1)
    run(1)
    moved = counted(4)  # the first use of a control makes the parts of the picture
    press_until(2)
    press_until(3)
    run(1)
    assert counted(5) == moved
    assert notebook.errors == []
