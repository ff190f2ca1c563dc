"""Long sessions: a thousand steps, hundreds of explorers, the same cell a hundred times."""

import gc
import itertools

import numpy as np
import pytest
from limits.networks import pictures
from limits.resources import census, resident

import hookviz

# pytest stores every warning that it does not ignore, so memory would grow with old versions.
pytestmark = pytest.mark.filterwarnings("ignore")

MODEL = hookviz.demo_model()
SLACK = 8_000_000  # bytes of resident memory that the allocator's noise may add
EXACT = ("widgets", "comms", "figures", "hooks")
NEAR = {"tensors": 30, "tensor bytes": 500_000}  # depend on the view shown at the moment
NOISE = 300  # objects in Python's caches, such as those of regular expressions
LIGHT = 700  # objects left of a closed explorer to which a reference exists

CELL = "explorer = hookviz.explore(model, image, layers='stem.*')\nkept.append(explorer)"
SHOWN = f"{CELL}\nexplorer"


def settings():
    """Yield all settings in turn without end, each with a value different from the last."""
    layers = [name for name, m in MODEL.named_modules() if type(m).__name__ == "Conv2d"]
    turns = {
        "layer": layers,
        "channel": range(24),
        "sample": range(3),
        "heatmap": ["gradcam", "layercam", "eigencam", "activation × gradient", "activation"],
        "order": ["index", "max", "mean", "gradient", "zeros", "gradcam weight"],
        "normalize": ["layer", "percentile", "symmetric", "channel"],
        "cmap": ["magma", "auto", "gray"],
        "alpha": [0.1, 0.9, 0.5],
        "over_input": [False, True],
        "all_layers": [True, False],
        "target": ["fish", "moon", None, 3],
    }
    values = {name: itertools.cycle(each) for name, each in turns.items()}
    often = ["layer", "channel", "channel", "heatmap", "channel", "sample"]
    seldom = itertools.cycle(
        ["order", "normalize", "cmap", "alpha", "over_input", "all_layers", "target"]
    )
    while True:
        for name in [*often, next(seldom), *often, next(seldom)]:
            yield name, next(values[name])


def growth(values):
    """Return the growth over the second half, fitted with a straight line.

    The first half fills caches such as those of matplotlib and of the allocator.
    """
    half = np.asarray(values[len(values) // 2 :], float)
    steps = np.arange(len(half))
    return np.polyfit(steps, half, 1)[0] * steps[-1]


def assert_flat(counts, memory, objects=NOISE):
    """Assert that nothing grows, from ten readings of `census` and of the resident memory."""
    readings = {what: [reading[what] for reading in counts] for what in counts[0]}
    for what in EXACT:
        assert max(readings[what][5:]) <= max(readings[what][:5]), what
    for what, allowed in (NEAR | {"objects": objects}).items():
        assert growth(readings[what]) < allowed, what
    assert growth(memory) < SLACK


@pytest.fixture(autouse=True, scope="module")
def ignore_existing_objects():
    """Exclude existing objects from garbage collection, so that readings are fast."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.heavy)])
def test_many_steps_leak_nothing(rounds):
    explorer = hookviz.explore(MODEL, pictures(3, 64))
    counts, memory = [], []
    moves = settings()
    for step in range(rounds):
        name, value = next(moves)
        setattr(explorer, name, value)
        if (step + 1) % (rounds // 10) == 0:
            counts.append(census(MODEL))
            memory.append(resident())
    explorer.close()
    assert_flat(counts, memory)


@pytest.mark.heavy
def test_opened_and_closed_explorers_leak_nothing():
    counts, memory = [], []
    image = pictures(1, 48)
    for number in range(200):
        explorer = hookviz.explore(MODEL, image, all_layers=number % 2 == 1)
        explorer.channel = 3
        explorer.close()
        del explorer
        if (number + 1) % 20 == 0:
            counts.append(census(MODEL))
            memory.append(resident())
    assert_flat(counts, memory)


# Running a cell again in a real kernel


@pytest.mark.heavy
def test_many_runs_of_a_cell_leak_nothing(kernel):
    cell, counts, memory = {"cellId": "a"}, [], []
    for number in range(1, 101):
        if number % 10:
            assert kernel.run(CELL, cell) == []
            continue
        assert kernel.run(SHOWN, cell)[-1].startswith("channel ")
        counts.append(kernel.value("census(model)"))
        memory.append(kernel.value("resident()"))
    assert kernel.value("[e is explorer for e in explorers()]") == [True]
    assert len(kernel.open_comms) == counts[-1]["comms"]
    # The closed explorers are kept, as in IPython's Out, and must be small.
    assert kernel.value("len(kept)") == 100
    kernel.run("explorer.close(); kept.clear()")
    assert_flat(counts, memory, NOISE + 50 * LIGHT)


def test_colabs_cell_ids_are_recognized(kernel):
    for _ in range(3):
        kernel.run(CELL, {"colab": {"cell_id": "b"}, "other": 1})
    assert kernel.value("[e is explorer for e in explorers()]") == [True]
    kernel.run("explorer.close()")


def test_without_a_cell_id_no_explorer_is_closed(kernel):
    for _ in range(3):
        kernel.run(CELL)
    assert kernel.value("len(explorers())") == 3
    kernel.run("for e in explorers(): e.close()")


def test_running_a_cell_again_closes_its_explorers_not_shown_elsewhere(kernel):
    a, b = {"cellId": "a1"}, {"cellId": "b1"}

    def run(code, cell=None):
        assert not [text for text in kernel.run(code, cell) if "Error" in text]

    two = "x, y = (hookviz.explore(model, image, layers='stem.*') for _ in range(2))"
    run(f"{two}\nfirst = x, y", a)
    assert kernel.value("len(explorers())") == 2  # two explorers of one run both stay open
    run("display(first[0])", b)
    run(f"{two}\nsecond = x, y", a)
    # The first is displayed by another cell.
    assert kernel.value("[e in explorers() for e in first]") == [True, False]
    run("box = ipywidgets.HBox([second[1]])", b)
    run(two, a)
    # The second is only in a box, which does not keep it open.
    assert kernel.value("[e in explorers() for e in second]") == [False, False]
    run(two, b)  # another cell does not close this one's explorers
    assert kernel.value("len(explorers())") == 1 + 2 + 2
    kernel.run("hookviz.explore(model, 'no such file')", a)  # a failing cell closes nothing
    assert kernel.value("len(explorers())") == 1 + 2 + 2
    run("box.close()\nfor e in explorers(): e.close()")
    assert kernel.value("len(explorers())") == 0


def test_the_error_of_a_closed_explorer_says_why_it_is_closed(kernel):
    kernel.run("old = hookviz.explore(model, image)", {"cellId": "c"})
    kernel.run("again = hookviz.explore(model, image)", {"cellId": "c"})
    for use in ("old.figure()", "old.cache", "old.channel = 3", "old.layer = 'stem.0'", "old"):
        said, *_ = kernel.run(use, {"cellId": "d"})  # ipywidgets 7 also shows the text of `old`
        assert "This explorer is closed, because the cell that made it ran again: run" in said, use
    kernel.run("again.close()")
    assert kernel.run("again.channel = 4")[0].endswith("make a new one with hookviz.explore().")


@pytest.mark.heavy
def test_many_moves_of_a_slider_in_a_kernel_leak_nothing(kernel):
    kernel.run("explorer = hookviz.explore(model, image)\nexplorer", {"cellId": "s"})
    ids = "[control(explorer, name).model_id for name in ('layer', 'channel')]"
    layer, channel = kernel.value(ids)
    for moved in (layer, channel):  # the first use of a control creates the parts of the picture
        assert kernel.slide(moved, 1) == []
    before, page = kernel.value("census(model)"), set(kernel.open_comms)
    for number in range(200):
        moved = channel if number % 10 else layer
        assert kernel.slide(moved, number % 13) == []
    assert kernel.value("explorer.channel") == 199 % 13
    after = kernel.value("census(model)")
    assert {name: after[name] for name in EXACT} == {name: before[name] for name in EXACT}
    assert kernel.open_comms == page
    kernel.run("explorer.close()")
