"""Who is closed when a cell runs again, in a real kernel whose cells have ids."""

from __future__ import annotations

import pytest


@pytest.fixture
def run(kernel):
    def run_cell(code, cell):
        """Returns how many explorers and widgets are open now."""
        assert not [text for text in kernel.run(code, {"cellId": cell}) if "Error" in text]
        return kernel.value("[len(explorers()), len(every())]")

    return run_cell


@pytest.mark.parametrize(
    "cell",
    [
        "HBox([new(), new()])",
        "box = HBox([VBox([new()]), new()])\nbox",
        *(
            pytest.param(each, marks=pytest.mark.heavy)
            for each in (
                "box = HBox([new(), new()])\ndisplay(box)",
                "HBox([new(), new()], layout={'width': '300px'});",
            )
        ),
    ],
)
def test_a_box_of_the_cell_is_closed_with_what_is_in_it(run, cell):
    counts = [run(cell, "a") for _ in range(3)]
    assert counts[0][0] == 2
    assert counts == [counts[0]] * 3


def test_what_may_be_seen_elsewhere_stays(run):
    cell = "box = HBox([new(), new()])\nbox"
    run(cell, "b")
    run("first = box\nfirst", "c")  # shown there, too
    assert run(cell, "b")[0] == 4
    assert run(cell, "b")[0] == 4  # the second was not
    run("outer = VBox([box])", "c")  # in a box of another cell
    assert run(cell, "b")[0] == 6
    run("display(box.children[0])", "c")  # one of the two
    assert run(cell, "b")[0] == 7


def test_what_else_is_in_the_box_stays(kernel, run):
    run(
        "slider = ipywidgets.IntSlider(); wide = ipywidgets.Layout(); other = HBox(layout=wide)",
        "d",
    )
    for _ in range(2):
        run("box = HBox([new(), slider], layout=wide)", "e")
    assert kernel.value("slider.comm is not None and wide.comm is not None")
    assert kernel.value("len(explorers())") == 1


def test_a_box_of_another_cell_stays_with_what_it_was_given(kernel, run):
    run("panel = VBox()\npanel", "h")
    for _ in range(2):
        run("panel.children = [new()]", "i")
    assert kernel.value("panel.comm is not None")
    assert kernel.value("panel.children[0] in explorers()")


def test_in_a_box_there_is_a_picture_of_what_was_set(kernel, run):
    run("box = HBox([new()]); box.children[0].channel = 3\nbox", "j")
    (channel,) = kernel.value(
        "[re.findall('channel . of', part.value) for part in parts(box)"
        " if isinstance(part, ipywidgets.HTML) and '<img class' in part.value]"
    )
    assert channel == ["channel 3 of"]


def test_traces_in_a_box(kernel, run):
    cell = "HBox([hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show(), new()])"
    counts = [run(cell, "f") for _ in range(3)]
    assert counts == [counts[0]] * 3


def test_the_note_of_a_closed_player(kernel, run):
    cell = "old = player if 'player' in dir() else None\nplayer = "
    cell += "hookviz.trace(model.stem, torch.rand(1, 3, 8, 8)).show()"
    run(cell, "g")
    run(cell, "g")
    assert kernel.value("repr(old)").startswith("This player is closed, because the cell")
