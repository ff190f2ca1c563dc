"""Who is closed when a cell runs again, in a real kernel whose cells have ids."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(kernel):
    def run_cell(code, cell):
        """Returns how many explorers are open now."""
        assert not [text for text in kernel.run(code, {"cellId": cell}) if "Error" in text]
        return kernel.value("len(explorers())")

    return run_cell


@pytest.mark.parametrize(
    "cell", ["HBox([new(), new()])", "box = HBox([VBox([new()]), new()])\nbox"]
)
def test_explorers_in_a_box_are_closed_with_the_cell_that_made_them(run, cell):
    assert [run(cell, "a") for _ in range(3)] == [2, 2, 2]


def test_what_another_cell_displays_stays(kernel, run):
    cell = "box = HBox([new(), new()])\nbox"
    run(cell, "b")
    run("display(box.children[0])", "c")
    assert run(cell, "b") == 3


def test_what_else_is_in_the_box_stays(kernel, run):
    run("slider = ipywidgets.IntSlider(); panel = VBox()\npanel", "d")
    for _ in range(2):
        run("panel.children = [new(), slider]", "e")
    assert kernel.value("slider.comm is not None and panel.comm is not None")
    assert kernel.value("[panel.children[0]] == explorers()")


def test_in_a_box_there_is_a_picture_of_what_was_set(kernel, run):
    run("box = HBox([new()]); box.children[0].channel = 3\nbox", "j")
    (channel,) = kernel.value(
        "[re.findall('channel . of', part.value) for part in parts(box)"
        " if isinstance(part, ipywidgets.HTML) and '<img class' in part.value]"
    )
    assert channel == ["channel 3 of"]


def test_traces_in_a_box_are_closed(kernel, run):
    cell = "HBox([hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show(), new()])"
    assert [run(cell, "f") for _ in range(3)] == [1, 1, 1]


def test_the_note_of_a_closed_player(kernel, run):
    cell = "old = player if 'player' in dir() else None\nplayer = "
    cell += "hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show()"
    run(cell, "g")
    run(cell, "g")
    assert kernel.value("repr(old)").startswith("This player is closed, because the cell")
