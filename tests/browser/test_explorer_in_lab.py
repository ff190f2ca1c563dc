"""The tour in a real notebook, controlled by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_end import next_frame, wait_for, wait_for_names
from playwright.sync_api import expect

TOUR = Path(__file__).resolve().parents[2] / "notebooks" / "explore_resnet.ipynb"


@pytest.mark.heavy
def test_the_whole_tour_runs_without_errors(open_notebook):
    notebook = open_notebook(TOUR)
    wait_for(lambda: notebook.page.locator(".hookviz-explorer").count() >= 5, "all explorers")


def test_an_error_in_a_cell_ends_a_test_at_once(open_notebook, lab):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        open_notebook(["1 / 0"])
    lab.forget()  # its notebook is open


def test_heatmap_opacity_and_target_are_set_by_keyboard(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz\nmodel, pictures = hookviz.demo_model(), hookviz.demo_images()",
            "hookviz.explore(model, pictures[6], layer='layer3.1.conv2')",
        ]
    )
    page = notebook.page
    widget = page.locator(".hookviz-explorer")
    wait_for_names(widget)
    pictures = widget.locator("img.smooth")
    for role, wanted in (
        ("slider", ["layer", "channel", "opacity"]),
        ("combobox", ["target", "order", "heatmap"]),
    ):
        for name in wanted:  # by its label, as a screen reader announces it
            expect(widget.get_by_role(role, name=name, exact=True)).to_have_count(1)

    def sources():
        return pictures.evaluate_all("all => all.map((picture) => picture.src)")

    def moves(act):
        """Wait until an action, and not what went before, has changed a picture."""
        notebook.settle()
        before = sources()
        act()
        wait_for(lambda: sources() != before, "another picture")

    heatmap = widget.get_by_role("combobox", name="heatmap")
    heatmap.focus()
    for _ in range(3):
        moves(lambda: page.keyboard.press("ArrowDown"))
    opacity = widget.get_by_role("slider", name="opacity")
    moves(lambda: opacity.press("ArrowLeft"))

    handle = widget.get_by_role("slider", name="channel")
    handle.focus()
    for value in (1, 2):  # the announced value follows
        page.keyboard.press("ArrowRight")
        expect(handle).to_have_attribute("aria-valuetext", f"channel {value} of 96")

    field = widget.get_by_role("combobox", name="target")
    field.fill("fish")
    moves(lambda: page.keyboard.press("Enter"))
    expect(field).to_have_attribute("placeholder", "fish")
    wait_for(lambda: widget.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "no overflow")
    for theme in notebook.themes:
        notebook.theme(theme)


def test_keys_pressed_on_a_menu_do_not_reach_the_notebook(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz\nhookviz.explore("
            "hookviz.demo_model(), hookviz.demo_images()[6], layer='stem.0')",
            "1",
        ]
    )
    page = notebook.page
    cells = page.locator(".jp-CodeCell, .code_cell")
    widget = page.locator(".hookviz-explorer")
    wait_for_names(widget)
    widget.get_by_role("combobox", name="order").focus()
    page.keyboard.press("b")
    next_frame(page)
    assert cells.count() == 2
    cells.last.locator(".jp-OutputArea, .output_area").first.click()
    page.keyboard.press("Escape")
    page.keyboard.press("b")  # pressed in the notebook, it inserts a cell
    expect(cells).to_have_count(3)


def test_a_progress_bar_is_shown_and_removed(open_notebook):
    notebook = open_notebook(
        [
            "import hookviz, time, torch\nfrom torch import nn\nfrom unittest.mock import patch",
            "class Slow(nn.Conv2d):\n"
            "    def forward(self, x):\n        time.sleep(0.15); return super().forward(x)\n"
            "from hookviz.run.progress import Progress\n"
            "shown, show = [], Progress._show\n"
            "def noted(bar, data):\n    shown.append(data); show(bar, data)\n"
            "patch.object(Progress, '_show', noted).start()\n"
            "model = nn.Sequential(*[Slow(1, 1, 1) for _ in range(10)])\n"
            "hookviz.explore(model, torch.rand(1, 1, 4, 4), target=torch.sum)",
            "bars = ['<progress' in data.get('text/html', '') for data in shown]\n"
            "print('bars', bars.count(True) > 3, 'and then', shown[-1])",
        ],
    )
    expect(notebook.outputs().last).to_contain_text("bars True and then {'text/plain': ''")
    expect(notebook.page.locator("progress")).to_have_count(0)
