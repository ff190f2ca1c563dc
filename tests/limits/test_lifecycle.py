"""Running a cell again in a real kernel closes its explorers and players."""

import pytest


@pytest.fixture
def run(kernel):
    def run_cell(code, cell):
        """Run a cell, and return the number of open explorers."""
        assert not [text for text in kernel.run(code, {"cellId": cell}) if "Error" in text]
        return kernel.value("len(explorers())")

    return run_cell


def test_explorers_in_a_box_are_closed_with_the_cell_that_made_them(run):
    cell = "box = HBox([VBox([new()]), new()])\nbox"
    assert [run(cell, "a") for _ in range(3)] == [2, 2, 2]


def test_other_widgets_in_the_box_stay_open(kernel, run):
    run("slider = ipywidgets.IntSlider(); panel = VBox()\npanel", "d")
    for _ in range(2):
        run("panel.children = [new(), slider]", "e")
    assert kernel.value("slider.comm is not None and panel.comm is not None")
    assert kernel.value("[panel.children[0]] == explorers()")


def test_an_explorer_in_a_box_has_a_still_picture_of_its_settings(kernel, run):
    run("box = HBox([new()]); box.children[0].channel = 3\nbox", "j")
    (channel,) = kernel.value(
        "[re.findall('channel . of', part.value) for part in parts(box)"
        " if isinstance(part, ipywidgets.HTML) and '<img class' in part.value]"
    )
    assert channel == ["channel 3 of"]


def test_players_in_a_box_are_closed_with_the_cell_that_made_them(kernel, run):
    cell = "HBox([hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show(), new()])"
    assert [run(cell, "f") for _ in range(3)] == [1, 1, 1]


def test_a_closed_player_says_why_it_is_closed(kernel, run):
    cell = "old = player if 'player' in dir() else None\nplayer = "
    cell += "hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show()"
    run(cell, "g")
    run(cell, "g")
    assert kernel.value("repr(old)").startswith("This page is closed, because the cell")
