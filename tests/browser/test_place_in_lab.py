"""A chosen position in JupyterLab: the box of its receptive field on a tall picture."""

from __future__ import annotations

import pytest
import torch
from front_end import WIDGETS, point, wait_for

import hookviz
from hookviz.studies.receptive_field.field import outline, words

MAKE = (
    "import hookviz, ipywidgets\n"
    "import torchvision.transforms.functional as F\n"
    "x = F.to_tensor(hookviz.demo_images()[6].resize((70, 126)))\n"
    "explorer = hookviz.explore(hookviz.demo_model(), x,"
    " layer='layer2.0.conv1')\n"
    "said = ipywidgets.Label('').add_class('said')\n"
    "explorer.observe(lambda _: setattr(said, 'value', f'{explorer.place}'), 'place')\n"
    "display(said, explorer)"
)
ROW, COLUMN = 20, 6


@pytest.fixture(scope="module")
def field():
    model, x = hookviz.demo_model(), torch.zeros(1, 3, 126, 70)
    return hookviz.receptive_field(model, x, "layer2.0.conv1")


def lands(outlined, frame, field):
    """Return whether the outline is at its place relative to the picture, which may still move."""
    seen, picture = outlined.bounding_box(), frame.bounding_box()
    if not seen or not picture:  # not drawn yet
        return False
    left, top, width, height = outline(field, (ROW, COLUMN))
    wanted = [left * picture["width"], top * picture["height"]]
    wanted += [width * picture["width"], height * picture["height"]]
    got = [seen["x"] - picture["x"], seen["y"] - picture["y"], seen["width"], seen["height"]]
    return got == pytest.approx(wanted, abs=3)  # the line is two pixels wide


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_the_canvas_outlines_the_receptive_field_of_a_clicked_position(open_canvas, field, shots):
    notebook, app = open_canvas(MAKE)
    page = notebook.page
    height, width = field.map_size
    right, down = (COLUMN + 0.5) / width, (ROW + 0.5) / height
    point(app.locator(".hv-activation .hv-frame"), down, right, click=True)
    page.mouse.move(2, 2)
    seen, note = app.locator(".hv-input .hv-field"), app.locator(".hv-here")
    wait_for(lambda: words(field, (ROW, COLUMN)) in note.inner_text(), "the kernel's answer")
    inside = app.locator(".hv-input .hv-frame")
    wait_for(lambda: lands(seen, inside, field), "the outline")
    said = page.locator(".said").first
    wait_for(lambda: said.inner_text().startswith(f"({down:.2f}"), "Python to follow")
    page.screenshot(path=shots / "place-canvas.png")
    assert notebook.errors == []
