"""Picture, strokes, edits, target, channel and notes on the screen are consistent."""

import numpy as np
import pytest
import torch
from browsing import Browser
from torch import nn

import hookviz

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()


@pytest.fixture
def explorer():
    return hookviz.explore(MODEL, PICTURES[6], face="canvas")


def strongest(explorer, layer):
    """Return the channel with the largest sum of activation × gradient."""
    call = explorer.cache[layer].last
    return int((call.activation * call.gradient)[0].sum((1, 2)).argmax())


def paint(browser):
    covered = np.zeros((112, 112), np.uint8)
    covered[20:60, 20:60] = 1
    browser.request("paint", covered.tobytes(), shape=[112, 112])


def test_a_layer_opens_at_its_strongest_or_last_used_channel(explorer):
    for layer in ("layer2.0.conv1", "layer3.0.conv1"):
        explorer.layer = layer
        assert explorer.channel == strongest(explorer, layer)
    explorer.channel = 3
    explorer.layer = "stem.0"
    explorer.layer = layer
    assert explorer.channel == 3  # the last used channel


def test_the_next_layer_opens_at_the_same_rank_if_channels_are_sorted(explorer):
    explorer.order = "mean"
    explorer.channel = int(explorer.frame.channels[2])
    explorer.layer = "layer2.0.conv1"
    assert explorer.channel == explorer.frame.channels[2]


def test_a_channel_out_of_range_from_the_browser_is_clipped(explorer):
    """With quick key presses, the browser may send the channel of the wider layer before."""
    Browser(explorer).move(layer="stem.0", channel=95)
    assert (explorer.layer, explorer.channel) == ("stem.0", 23)


def test_strokes_are_removed_with_their_picture(explorer):
    browser = Browser(explorer)
    paint(browser)
    explorer.edit("layer2.0.conv1", 0.5, channels=3)
    explorer.image = PICTURES[2]
    assert [edit.layer for edit in explorer.edits] == ["layer2.0.conv1"]
    browser.request("again", key=0, sample=0)
    assert [edit.layer for edit in explorer.edits] == ["layer2.0.conv1"]


def test_edits_do_not_change_the_target(explorer):
    """The target stays the original top class, even if an edit changes the top class."""
    first = explorer.frame.target
    explorer.edit("layer3.1.conv2", 0, channels=slice(None))
    explorer.edit("stem.0", 0, channels=slice(0, 20))
    assert explorer.frame.predictions[0].name != first
    assert explorer.frame.target == first and explorer.target is None
    (x,) = explorer.inputs.args
    with (
        torch.enable_grad(),
        hookviz.capture(MODEL) as cache,
        hookviz.edit(MODEL, "layer3.1.conv2", 0),
        hookviz.edit(MODEL, "stem.0", 0, channels=slice(0, 20)),
    ):
        x = x.clone().requires_grad_()
        MODEL(x)[0, MODEL.class_names.index(first)].backward()
    name = "layer2.0.conv1"  # between the two edits
    assert torch.equal(explorer.cache[name].gradient, cache[name].gradient)
    explorer.reset()
    explorer.image = PICTURES[2]
    assert explorer.frame.target == explorer.frame.predictions[0].name


def test_a_target_outside_the_top_five_has_its_probability(explorer):
    last = int(MODEL(explorer.inputs.args[0])[0].argmin())
    explorer.target = last
    shown = explorer.frame.predictions
    assert len(shown) == 6 and shown[-1].number == last
    shares = MODEL(explorer.inputs.args[0]).detach().softmax(1)[0]
    assert shown[-1].value == pytest.approx(float(shares[last]), abs=1e-6)
    assert shown[-1].words.endswith(" %")
    explorer.target = None
    assert len(explorer.frame.predictions) == 5


def test_a_note_disappears_at_the_next_change(explorer):
    browser = Browser(explorer)
    for channel, move in ((3, browser.move), (4, lambda **to: explorer.set_trait(*to.popitem()))):
        explorer.image = PICTURES[channel]
        assert "The top class is" in browser.canvas.note
        move(channel=channel)
        assert browser.canvas.note == explorer.frame.note == ""


def test_an_untrained_model_and_training_mode_are_mentioned():
    first = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()
    model = nn.Sequential(*first, nn.Conv2d(16, 4, 3), nn.Flatten(), nn.LazyLinear(3))
    x = torch.rand(1, 3, 8, 8)
    model.eval()(x)
    model.train()
    made = hookviz.explore(model, x)
    assert "untrained: random weights" in made.frame.summary
    assert "in training mode, shown in eval mode" in made.frame.summary
    trained = hookviz.explore(MODEL, PICTURES[6])
    assert not [words for words in trained.frame.summary if "untrained" in words]


def test_one_uneven_layer_of_many_does_not_make_a_model_trained():
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16) for _ in range(3000)]
    uneven = max(layers, key=lambda layer: abs(layer.weight.detach().square().mean() - 1 / 48))
    model = nn.Sequential(nn.Flatten(2), uneven)
    made = hookviz.explore(model, torch.rand(1, 3, 4, 4), layers="1")
    assert "untrained: random weights" in made.frame.summary
    with torch.no_grad():
        uneven.weight *= 1.2
    again = hookviz.explore(model, torch.rand(1, 3, 4, 4), layers="1")
    assert "untrained: random weights" not in again.frame.summary
