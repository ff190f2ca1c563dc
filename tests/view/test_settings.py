"""The settings of a view are a JSON dict that opens the same view again."""

import json
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch
import traitlets
from demo import explore_demo
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz import output
from hookviz.view.layer import SCORE_DROP
from hookviz.view.settings import CMAPS, PRODUCT, SETTINGS, SHOWN_RUNS, choices

NAMES = ["ball", "moon", "half - moon", "star"]


class Shared(nn.Module):
    """A convolution that runs twice, and a norm whose calls differ in their channels."""

    class_names = NAMES

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.norm, self.act = nn.BatchNorm2d(6), nn.ReLU()
        self.head = nn.Conv2d(12, 4, 1)

    def forward(self, x):
        x = self.act(self.norm(self.first(x)))
        for _ in range(2):
            x = F.max_pool2d(self.second(x), 2)
        x = self.act(torch.cat([x, -x], 1))  # twelve channels in its second call
        return self.head(x).mean((2, 3))


class Dense(nn.Module):
    """A volume, and two maps as output."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv3d(1, 4, 3, padding=1), nn.Conv3d(4, 2, 1)

    def forward(self, x):
        x = F.relu(self.body(x))
        return {"out": self.head(x), "more": [x]}


HEATMAPS = ("gradcam", "layercam", "activation", "saliency", PRODUCT)
LEAVES = ["first", "second", "norm", "act"]
CLASSES = [None, 2, "Moon", "half - moon", (1, 3), ("half - moon", "ball", 0)]
MODELS = {
    "shared": (
        Shared,
        (3, 3, 16, 20),
        [*CLASSES, [1, None, ("moon", 0)], output[1, 3], output[:, 0].sum() - output[:, 1].mean()],
    ),
    "dense": (
        Dense,
        (2, 1, 4, 6, 8),
        [output["out"][0, 1, 2, 3, -1], output["more"][0][..., 2:5].mean()],
    ),
}


def plain(value):
    """Return a value that `==` can compare: arrays become their bytes."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.name, value.tobytes()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def shown(explorer):
    """Return everything on the screen."""
    return {
        k: v for k, v in plain(explorer.frame).items() if k not in ("settings", "note", "opened")
    }


def wander(explorer, targets, draw):
    """Set every setting to a drawn value."""
    explorer.layer = draw(st.sampled_from(explorer.frame.layers))
    explorer.target = draw(st.sampled_from(targets))
    menus = choices(explorer.displayed())
    explorer.heatmap = draw(st.sampled_from(HEATMAPS))
    explorer.shown_run = draw(st.sampled_from(SHOWN_RUNS))
    # A score drop needs one score per sample; a function of the whole batch has none.
    drops = not callable(explorer.target)
    explorer.order = draw(st.sampled_from([o for o in menus["order"] if drops or o != SCORE_DROP]))
    for name in ("call", "sample", "depth", "channel"):
        count = explorer.frame.counts[name]
        setattr(explorer, name, draw(st.integers(0, count - 1), label=name))
    share = st.floats(0, 1)
    explorer.place = draw(st.none() | st.tuples(share, share))
    explorer.reference_channel = draw(st.integers(0, explorer.frame.counts["channel"] - 1))
    explorer.cmap = draw(st.sampled_from([*CMAPS, "plasma"]))
    explorer.normalize = draw(st.sampled_from(menus["normalize"]))
    explorer.alpha = draw(share)
    explorer.over_input, explorer.all_layers = draw(st.booleans()), draw(st.booleans())
    explorer.shown_after = draw(st.sampled_from(menus["shown_after"]))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_settings_open_the_same_view(name, data):
    kind, shape, targets = MODELS[name]
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(shape)
    layers = LEAVES if name == "shared" else None
    explorer = hookviz.explore(model, x, targets[0], layers=layers)
    wander(explorer, targets, data.draw)
    found = explorer.settings()
    assert set(found) == {*SETTINGS, "position"} - {"place"}
    kept = json.loads(json.dumps(found, allow_nan=False))
    assert kept == found
    again = hookviz.explore(model, x, layers=layers, **kept)
    assert again.settings() == found
    assert again.position == explorer.position
    assert shown(again) == shown(explorer)


@pytest.fixture
def explorer():
    return explore_demo(layer="layer3.1.conv2")


def test_settings_have_only_plain_python_values(explorer):
    explorer.channel, explorer.alpha = np.int64(17), torch.tensor(0.5)
    explorer.over_input, explorer.target = np.bool_(False), (np.int64(3), 1)
    explorer.position = torch.tensor([5, 8])
    found = explorer.settings()
    assert {type(value) for value in found.values()} <= {str, int, float, bool, list}
    assert (found["channel"], found["alpha"], found["over_input"]) == (17, 0.5, False)
    assert (found["target"], found["position"]) == ("3 - 1", [5, 8])
    assert all(type(each) is int for each in found["position"])


def test_a_function_as_target_is_left_out(explorer):
    def target(scores):
        return scores[0, 3] - scores[0, 5]

    explorer.target = target
    found = explorer.settings()
    assert "target" not in found
    image = hookviz.demo_images()[6]
    again = hookviz.explore(hookviz.demo_model(), image, target=target, **found)
    assert shown(again) == shown(explorer)


def test_the_position_follows_the_place_in_maps_of_any_size(explorer):
    assert explorer.position is None and explorer.settings()["position"] is None
    explorer.position = 5, 8
    assert explorer.place == (5.5 / 14, 8.5 / 14)
    explorer.layer = "stem.0"  # the place is a fraction, so it fits maps of any size
    assert explorer.position == (22, 34)
    explorer.position = None
    assert explorer.place is None
    at = explorer.contributions(position=(3, 4)).position
    assert at == (3, 4)


@pytest.fixture(scope="module")
def unchanged():
    image = hookviz.demo_images()[6]
    explorer = hookviz.explore(hookviz.demo_model(), image, layer="layer3.1.conv2")
    yield explorer
    explorer.close()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layer", "conv9", "layer='conv9' was not captured; there are: 'stem.0'"),
        ("layer", "layer3.1.relu", "relu' was not captured: make .* with layers='layer3.1.relu'"),
        ("channel", 96, "channel=96 is not in layer 'layer3.1.conv2': give 0 to 95"),
        ("channel", "a", "channel='a' is not a whole number"),
        ("position", (14, 0), r"position=\(14, 0\) is not in layer .*: give row and column, up to"),
        ("position", 3, "position=3 is not in layer"),
        ("order", "weight", "order='weight' is unknown; close to it: 'gradcam weight'"),
        ("shown_after", None, "shown_after=None is not a string"),
        ("over_input", "yes", "over_input='yes' is not True or False"),
        ("alpha", 1.5, "alpha=1.5 is not an opacity: give 0 to 1"),
        ("heatmap", "gradcm", "Unknown heatmap 'gradcm'; close to it: 'gradcam'"),
        ("heatmap", "GradCAM", "Unknown heatmap 'GradCAM'; close to it: 'gradcam'"),
        (
            "heatmap",
            "?",
            r"Unknown heatmap '\?'; there are: 'gradcam', [^…;]* 'activation', [^;]*$",
        ),
        ("target", "output[", "is not an expression of the output"),
    ],
)
def test_invalid_settings_are_refused(unchanged, name, value, message):
    before = unchanged.settings()
    with pytest.raises(ValueError, match=message) as raised:
        setattr(unchanged, name, value)
    assert unchanged.settings() == before
    assert name == "target" or isinstance(raised.value, traitlets.TraitError)
    image = hookviz.demo_images()[6]
    with pytest.raises(ValueError, match=message):
        hookviz.explore(hookviz.demo_model(), image, **before | {name: value})


def test_unknown_settings_and_conflicting_positions_are_refused():
    model, image = hookviz.demo_model(), hookviz.demo_images()[6]
    for old in ("stage", "like", "overlay", "strip", "version", "pins"):
        with pytest.raises(TypeError, match=f"Unknown setting '{old}'; "):
            hookviz.explore(model, image, **{old: 1})
    with pytest.raises(ValueError, match="place= and position= are the same: give only one"):
        hookviz.explore(model, image, place=(0.5, 0.5), position=(0, 0))


def test_saved_settings_become_the_steps_of_a_page(explorer):
    views = []
    for channel in (3, 17):
        explorer.channel, explorer.position = channel, (channel % 14, 2)
        views.append(explorer.settings())
    steps = [hookviz.classroom.Step(f"Channel {view['channel']}", view) for view in views]
    page = explorer.to_html(layers="layer3.1.conv2", max_bytes=1e6, steps=steps)
    assert f'"channel":{views[1]["channel"]}' in page.replace(" ", "")
    for name, value in (("sample", 1), ("call", 1), ("shown_after", "norm"), ("target", 0)):
        step = hookviz.classroom.Step("?", views[0] | {name: value})
        with pytest.raises(ValueError, match=rf"Step 1: {name}="):
            explorer.to_html(layers="layer3.1.conv2", max_bytes=1e6, steps=[step])
    for name, value in (("order", "score drop"), ("heatmap", "saliency")):
        step = hookviz.classroom.Step("?", views[0] | {name: value})
        with pytest.raises(ValueError, match=f"Step 1: {name}='{value}' is not in the page; "):
            explorer.to_html(layers="layer3.1.conv2", max_bytes=1e6, steps=[step])
