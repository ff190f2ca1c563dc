"""Linked explorers, and two runs under one set of controls."""

import copy
import gc

import numpy as np
import pytest
import torch
from seen import registered
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.view.settings import SETTINGS

LAYER = "layer3.1.conv2"
NEW = {
    "layer": LAYER,
    "channel": 17,
    "cmap": "magma",
    "normalize": "layer",
    "order": "mean",
    "heatmap": "layercam",
    "alpha": 0.5,
    "over_input": False,
    "all_layers": True,
    "target": 3,
}


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture(scope="module")
def pictures():
    return hookviz.demo_images()


@pytest.fixture
def explorers(model, pictures):
    made = [hookviz.explore(model, picture) for picture in pictures[:2]]
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("first", [0, 1])
def test_settings_of_linked_explorers_stay_equal(explorers, first):
    one, other = explorers[first], explorers[1 - first]
    linked = hookviz.widgets.link(*explorers)
    for name, value in NEW.items():
        setattr(one, name, value)
        assert getattr(other, name) == getattr(one, name), name
    assert linked.cannot == {}
    assert all(getattr(one, name) == getattr(other, name) for name in SETTINGS)
    assert one.frame.layers == other.frame.layers
    linked.unlink()
    one.channel = 1
    assert other.channel != 1


def test_settings_that_the_other_cannot_take_are_reported(model, pictures, explorers):
    left, _ = explorers
    narrow = hookviz.explore(model, pictures[1], layers="layer3.*")
    left.layer = "stem.0"
    linked = hookviz.widgets.link(left, narrow)
    assert "layer" in linked.cannot and "stem.0" in repr(linked)
    assert "Not linked" in narrow.frame.note
    left.layer = LAYER
    assert narrow.layer == LAYER
    assert linked.cannot == {}
    left.layer = "layer1.0.conv1"  # raises nothing
    assert narrow.layer == LAYER
    assert "layer1.0.conv1" in linked.cannot["layer"]
    narrow.close()
    left.layer = LAYER  # raises nothing either after the other is closed


def test_invalid_links_are_refused(explorers):
    left, right = explorers
    with pytest.raises(TypeError, match="takes two explorers, not a int"):
        hookviz.widgets.link(left, 3)
    with pytest.raises(ValueError, match="linked with itself"):
        hookviz.widgets.link(left, left)
    right.close()
    with pytest.raises(ValueError, match="closed"):
        hookviz.widgets.link(left, right)


# Side by side


def frames_of(both):
    """Return the frames of both runs and of their difference."""
    return [both.right.frame_of(run) for run in ("original", "edited", "difference")]


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
    torch.manual_seed(0)
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Conv2d(5, 2, 3))
    other = copy.deepcopy(one)
    other[1] = nn.Conv2d(4, 5, 3, stride=2)
    x = torch.randn(1, 3, 20, 20)
    both = hookviz.compare(one, other, x).show()
    assert both.right.frame.layers == both.left.frame.layers == ["0"]
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
    assert texts[0][:3] == ["first:", "layer3.1.bn1", "BatchNorm2d"]
    assert rows.index == 0 and both.layer == "layer3.1.bn1"
    (second,) = (
        n for n, words in enumerate(texts) if words[:3] == ["layer3.1.relu", "(call", "1)"]
    )
    rows.index = second  # as a click on it does
    assert (both.layer, both.call, both.left.call) == ("layer3.1.relu", 1, 1)
    for explorer, network in ((both.left, model), (both.right, port)):
        x = explorer.inputs.args[0]
        with hookviz.capture(network.eval(), "layer3.1.relu") as cache:
            network(x)
        shown = explorer.cache["layer3.1.relu"].calls[1].outputs[0].value
        assert torch.equal(shown, cache["layer3.1.relu"].calls[1].outputs[0].value)
    both.layer = "layer3.0.conv1"  # equal, and therefore in a row with others
    assert "equal: stem.0 … layer3.1.conv1" in " ".join(texts[rows.index])
    assert both.layer == "layer3.0.conv1"  # rather than the first layer of that row
    both.close()
    for network, state in zip((model, port), before, strict=True):
        assert_untouched(network, state)


def test_a_layer_of_one_model_alone_is_refused_in_the_table():
    torch.manual_seed(0)
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Conv2d(5, 2, 3))
    other = nn.Sequential(one[0], nn.Conv2d(4, 5, 3, stride=2), one[2])
    both = hookviz.compare(one, other, torch.randn(1, 3, 20, 20)).show()
    rows = both.children[0]
    before = rows.index
    for row in range(len(rows.options)):
        rows.index = row
        if both._calls[row][0][0] == "1":
            assert both.right.frame.note == "The outputs of 1 have different shapes in a and b."
            assert both.layer == "0" and rows.index == before
    with pytest.raises(ValueError, match="No layer of Sequential is called 'nine'"):
        both.go_to("nine")
    assert both.layer in ("0", "2", "") and set(both.cache) == set(both.left.cache)
    both.close()


def test_closing_a_comparison_leaves_no_widgets(model, pictures):
    gc.collect()
    before = registered()
    both = hookviz.compare(model, model, pictures[0], inputs_b=pictures[1]).show()
    assert registered() > before
    both.close()
    assert registered() == before
    assert both.closed


def test_a_comparison_in_a_browser_is_one_explorer(model, pictures):
    both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()
    assert len(both.children) == 2  # the list of layers, and one box with both plain faces
    both.right._canvas.alive = True
    _, heads, shown = both.children
    assert shown is both.right and "DemoNet" in heads.children[1].value
    both.channel = 3
    assert both.left.channel == both.right.channel == 3
    both.close()
    assert both.left is None


def test_beside_shows_another_picture_with_the_same_view_and_edits(model, pictures):
    before = snapshot(model)
    explorer = hookviz.explore(model, pictures[6], "moon", layer=LAYER, channel=17)
    explorer.edit("stem.0", 0.5)
    explorer.place = (0.25, 0.5)
    both = hookviz.widgets.beside(explorer, pictures[9])
    twin = hookviz.explore(model, pictures[9], "moon", layer=LAYER, channel=17)
    twin.edit("stem.0", 0.5)
    assert (both.layer, both.channel, both.target, both.place) == (LAYER, 17, "moon", (0.25, 0.5))
    assert both.position == explorer.position == (3, 7)
    both.position = 2, 1
    assert both.left.place == both.right.place == (2.5 / 14, 1.5 / 14)
    assert torch.equal(both.left.cache[LAYER].activation, explorer.cache[LAYER].activation)
    assert torch.equal(both.right.cache[LAYER].activation, twin.cache[LAYER].activation)
    assert torch.equal(both.right.cache[LAYER].gradient, twin.cache[LAYER].gradient)
    less = both.right.frame.panels[0].values
    wanted = twin.cache[LAYER].activation - explorer.cache[LAYER].activation
    assert np.array_equal(less, wanted[0, 17].numpy())
    for each in (both, twin, explorer):
        each.close()
    assert_untouched(model, before)
    with pytest.raises(ValueError, match="closed"):
        hookviz.widgets.beside(explorer, pictures[9])
