"""Two runs under one set of controls."""

import copy
import gc

import numpy as np
import pytest
import torch
from seen import registered
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.widgets.canvas import Canvas
from hookviz.widgets.lifecycle import living

LAYER = "layer3.1.conv2"


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture(scope="module")
def pictures():
    return hookviz.demo_images()


def frames_of(both):
    """Return the frames of both runs and of their difference."""
    return [both.frame_of(run) for run in ("original", "edited", "difference")]


def test_side_by_side_shows_two_runs_and_their_difference(model, pictures):
    before = snapshot(model)
    both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()
    both.layer, both.channel = LAYER, 17
    caches = []
    for picture in (pictures[6], pictures[9]):
        with hookviz.capture(model.eval(), LAYER) as cache:
            model(hookviz.attribution.prepare_input(picture, model).args[0])
        caches.append(cache[LAYER].activation[0, 17].numpy())
    one, two, less = (frame.panels[0].values for frame in frames_of(both))
    assert np.array_equal(one, caches[0]) and np.array_equal(two, caches[1])
    assert np.array_equal(less, caches[1] - caches[0])
    difference = frames_of(both)[2].panels[0]
    assert difference.low == -difference.high  # on a separate scale that is symmetric about zero
    assert [f.panels[0].detail for f in frames_of(both)] == ["14×14, a", "14×14, b", "14×14, b − a"]
    assert both.target == top_class(model, pictures[6])
    both.target = 2
    assert [frame.target for frame in frames_of(both)] == [model.class_names[2]] * 3
    assert both.figure()._repr_png_().startswith(b"\x89PNG")
    assert both._repr_mimebundle_()[0]["image/png"]
    both.close()
    assert_untouched(model, before)


def top_class(model, picture):
    with torch.no_grad():
        return int(model.eval()(hookviz.attribution.prepare_input(picture, model).args[0]).argmax())


def test_side_by_side_offers_only_layers_of_both_models():
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Conv2d(5, 2, 3))
    other = copy.deepcopy(one)
    other[1] = nn.Conv2d(4, 5, 3, stride=2)
    x = torch.randn(1, 3, 20, 20)
    both = hookviz.compare(one, other, x).show()
    assert both.frame.layers == ["0"]
    both.close()
    apart = nn.Sequential(nn.Conv2d(3, 4, 5))
    comparison = hookviz.compare(one, apart, x, pairs={"0": "0"})
    with pytest.raises(ValueError, match="share no layer with the same name"):
        comparison.show()


def test_a_row_of_the_table_goes_to_its_layer(model, pictures):
    port = copy.deepcopy(model)
    port.layer3[1].bn1.eps = 0.1
    comparison = hookviz.compare(model, port, pictures[6])
    before = snapshot(model), snapshot(port)
    both = comparison.show("layer3.*conv?")
    rows = both.children[0]
    texts = [text.replace("\N{NO-BREAK SPACE}", " ").split() for text, _ in rows.options]
    assert texts[1][:3] == ["first:", "layer3.1.bn1", "BatchNorm2d"]
    assert rows.index == 1 and both.layer == "layer3.1.bn1"
    (second,) = (
        n for n, words in enumerate(texts) if words[:3] == ["layer3.1.relu", "(call", "1)"]
    )
    rows.index = second  # as a click on it does
    assert (both.layer, both.call) == ("layer3.1.relu", 1)
    for network, frame in zip((model, port), frames_of(both), strict=False):
        with hookviz.capture(network.eval(), "layer3.1.relu") as cache:
            network(both.inputs.args[0])
        wanted = cache["layer3.1.relu"].calls[1].outputs[0].value[0, both.channel]
        assert np.array_equal(frame.panels[0].values, wanted.numpy())
    both.layer = "layer3.0.conv1"  # equal, and therefore in a row with others
    assert rows.index == 0 and texts[0][1] == "equal"
    assert both.layer == "layer3.0.conv1"  # rather than the first layer of that row
    both.close()
    for network, state in zip((model, port), before, strict=True):
        assert_untouched(network, state)


def test_a_layer_of_one_model_alone_is_refused_in_the_table():
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Conv2d(5, 2, 3))
    other = nn.Sequential(one[0], nn.Conv2d(4, 5, 3, stride=2), one[2])
    both = hookviz.compare(one, other, torch.randn(1, 3, 20, 20)).show()
    rows = both.children[0]
    before = rows.index
    for row in range(len(rows.options)):
        rows.index = row
        if "first:" in rows.options[row][0]:
            assert both.frame.note == "The outputs of 1 have different shapes in a and b."
            assert both.layer == "0" and rows.index == before
    with pytest.raises(ValueError, match="No layer of Sequential is called 'nine'"):
        both.go_to("nine")
    assert both.layer in ("0", "2", "")


def test_closing_a_comparison_leaves_no_widgets(model, pictures):
    gc.collect()
    before = registered()
    both = hookviz.compare(model, model, pictures[0], inputs_b=pictures[1]).show()
    assert registered() > before
    both.close()
    assert registered() == before
    assert both.closed


def test_a_comparison_in_a_browser_keeps_its_rows_above_the_canvas(model, pictures):
    both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()
    rows, names, *_ = both.children
    canvas = next(each for each in living() if isinstance(each, Canvas))
    canvas.alive = True
    assert both.children[:3] == (rows, names, canvas) and "DemoNet" in names.value


def test_beside_shows_another_picture_with_the_same_view_and_edits(model, pictures):
    before = snapshot(model)
    explorer = hookviz.explore(model, pictures[6], "moon", layer=LAYER, channel=17)
    explorer.edit("stem.0", 0.5)
    explorer.place = (0.25, 0.5)
    both = hookviz.widgets.beside(explorer, pictures[9])
    twin = hookviz.explore(model, pictures[9], "moon", layer=LAYER, channel=17)
    twin.edit("stem.0", 0.5)
    assert (both.layer, both.channel, both.target) == (LAYER, 17, "moon")
    assert both.position == explorer.position == (3, 7)
    both.position = 2, 1
    assert both.place == (2.5 / 14, 1.5 / 14)
    one, two, less = (frame.panels for frame in frames_of(both))
    for panel, wanted in zip(
        (*one[:2], *two[:2]), (*explorer.frame.panels, *twin.frame.panels), strict=True
    ):
        assert np.array_equal(panel.values, wanted.values)
    assert np.array_equal(less[0].values, two[0].values - one[0].values)
    for each in (both, twin, explorer):
        each.close()
    assert_untouched(model, before)
    with pytest.raises(ValueError, match="closed"):
        hookviz.widgets.beside(explorer, pictures[9])
