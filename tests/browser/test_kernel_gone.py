"""A kernel that ends under the explorer: the face says so in words."""

from __future__ import annotations

import pytest
from front_end import PATIENCE, WIDGETS

MAKE = "import hookviz\nhookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])"


@pytest.mark.skipif(WIDGETS < 8, reason="the classic Notebook 6 has no anywidget")
def test_the_face_says_that_the_kernel_is_gone(open_canvas, lab):
    notebook, app = open_canvas(MAKE)
    notebook.settle()
    assert app.get_by_role("alert").count() == 0
    lab.ask(f"kernels/{lab.shared}/restart", PATIENCE, reason="a test")
    lab.shared = ""  # the next notebook gets another one
    app.get_by_role("slider", name="layer").focus()
    notebook.page.keyboard.press("Home")  # a layer that has not been asked for
    app.get_by_role("alert").filter(has_text="un the cell again").wait_for()
