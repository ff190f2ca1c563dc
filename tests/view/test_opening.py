"""The layer and channel at which an explorer opens, and its notes on flat maps."""

import numpy as np
import pytest
import torch
from architectures import model_of
from browsing import Browser
from torch import nn
from torchvision.models import VisionTransformer

import hookviz
from hookviz.draw.colours import robust_end
from hookviz.view.health import Cell, verdict
from hookviz.view.layer import LayerView
from hookviz.view.opening import _differs, strongest_in
from hookviz.view.panels import FLAT


def opened(model, x, **options):
    explorer = hookviz.explore(model, x, **options)
    found = explorer.layer, explorer.channel
    explorer.close()
    return found


def test_the_explorer_opens_where_gradient_and_heatmap_differ_between_positions():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(5, 6, 1),
    )
    classifier = nn.Sequential(*model, nn.Flatten())
    x = torch.randn(1, 3, 9, 9)
    layer, channel = opened(classifier, x)
    assert layer == "0"  # the next layer has a flat gradient, and the last map is 1×1
    with hookviz.capture(classifier, "0") as cache:
        classifier(x).amax(1).sum().backward()
    contributions = (cache["0"].gradient[0] * cache["0"].activation[0]).sum((1, 2))
    assert channel == int(contributions.argmax())
    with torch.no_grad():  # its Grad-CAM is zero
        classifier[4].weight.zero_()
    assert opened(classifier, x)[0] == "0"  # no layer has a heatmap: the first layer
    # Without a class score it is the last map that differs between positions.
    maps = model[:3](x)[0].detach()
    widest = int((maps.amax((1, 2)) - maps.amin((1, 2))).argmax())
    assert opened(model[:3], x) == ("2", widest) and widest != 0
    with torch.no_grad():
        model[2].weight.zero_()
    assert opened(model[:3], x)[0] == "0"
    assert opened(classifier, x, layer="0")[0] == "0"


def test_the_explorer_opens_at_a_layer_that_the_gradient_reaches():
    """Of two heads, the target's is opened, even if all heatmaps are zero."""
    model, x = (
        model_of(
            lambda m, x: {"one": m.one(x), "other": m.other(x)},
            one=nn.Conv2d(3, 2, 3),
            other=nn.Conv2d(3, 2, 1),
        ),
        torch.rand(1, 3, 6, 6),
    )
    with torch.no_grad():
        for each in (model.one, model.other):
            each.weight.zero_()
            each.bias.fill_(-1.0)  # Grad-CAM is zero everywhere
    for name in ("one", "other"):
        assert opened(model, x, target=hookviz.output[name][0, 1].sum())[0] == name


def test_the_explorer_opens_where_nan_begins():
    """The first layer and channel with NaN values is opened, or else with a NaN gradient."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.LazyLinear(3))
    x = torch.randn(1, 1, 9, 9)
    model(x)
    explorer = hookviz.explore(model, x)
    channel, target = explorer.channel, explorer.frame.target
    assert explorer.frame.opened == (
        "Opened at 1, the last layer whose gradient and heatmap differ between positions; "
        f"channel {channel} contributes most to {target}."
    )
    assert opened(model, x, target=lambda out: (out * torch.inf * 0).sum()) == ("1", 0)
    with torch.no_grad():
        model[0].weight[2] = torch.nan
    explorer = hookviz.explore(model, x)
    assert (explorer.layer, explorer.channel) == ("0", 2)
    assert explorer.frame.opened == "Opened at 0, the layer in which NaN or Inf first appears."
    assert opened(model, x, layer="1")[0] == "1"


def test_the_reason_for_the_opened_channel_goes_with_its_sample():
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6:8])
    reason = explorer.frame.opened
    assert "contributes most to" in reason
    explorer.sample = 1
    assert explorer.frame.opened == ""
    explorer.sample = 0
    assert explorer.frame.opened == reason


def test_heads_of_attention_are_called_heads():
    digit = hookviz.models.demo_digits()[3]
    explorer = hookviz.explore(hookviz.models.demo_transformer(), digit)
    assert f"; head {explorer.channel} contributes most to 5." in explorer.frame.opened


def test_a_note_explains_a_flat_gradient():
    """Average pooling follows, also after a ReLU, or a ReLU blocks one channel or all."""
    x = torch.rand(1, 1, 6, 6) - 0.5
    for middle, biases, kind in (
        (nn.Identity(), (0.0, 0.0), 2),
        (nn.ReLU(), (0.0, 0.0), 3),
        (nn.ReLU(), (-9.0, 0.0), 1),
        (nn.ReLU(), (-9.0, -9.0), 4),
    ):
        conv = nn.Conv2d(1, 2, 1)
        nn.init.ones_(conv.weight)
        with torch.no_grad():
            conv.bias.copy_(torch.tensor(biases))
        head = nn.Linear(2, 1)
        model = nn.Sequential(conv, middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
        explorer = hookviz.explore(model, x, channel=0)
        assert explorer.frame.panels[1].note == FLAT[kind]


def test_a_note_on_a_missing_gradient_is_true_of_other_layers_and_queries():
    """No ReLU is named where none follows, and a query without a gradient is not the layer."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1)).eval()
    explorer = hookviz.explore(model, torch.rand(1, 1, 6, 6), hookviz.output[0, 0, 3, 3], channel=1)
    note = "zero everywhere: the target does not use this map, or a later layer blocks the gradient"
    assert explorer.frame.panels[1].note == note
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Conv2d(2, 1, 3)).eval()
    nn.init.constant_(model[0].bias, 9)  # both ReLUs are open, until a channel is switched off
    target = hookviz.output.sum()
    explorer = hookviz.explore(model, torch.rand(1, 1, 6, 6), target, layer="0", channel=0)
    explorer.edit(channels=0)
    assert explorer.frame.panels[1].note == note

    digit = hookviz.models.demo_digits()[3]
    last = "encoder.layers.encoder_layer_2.self_attention.heads"
    explorer = hookviz.explore(hookviz.models.demo_transformer(), digit, layer=last, face="canvas")
    browser = Browser(explorer)
    for position, note in ((None, ""), ((2, 2), FLAT[6])):
        explorer.position = position
        assert explorer.frame.panels[1].note.startswith(note)
        _, arrays = browser.ask("layer", layer=last, place=browser.canvas.settings["place"])
        assert FLAT[arrays["flat"][0]] == note


def test_a_head_of_zeros_is_named():
    """Torchvision's untrained transformers have such a head: no layer before it gets a gradient."""
    model = VisionTransformer(
        image_size=16, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=8
    ).eval()
    explorer = hookviz.explore(model, torch.rand(1, 3, 16, 16))
    line = explorer.frame.verdict
    count = len(explorer.cache)
    assert line.text == "Zero weights stop the gradient"
    assert line.details == (
        f"All weights of heads.head are zero, so the gradient is zero in {count} of {count} "
        "layers, on 1 picture."
    )
    assert line.kind == "odd"
    kinds = {finding.kind for finding in hookviz.diagnose(model, torch.rand(1, 3, 16, 16))}
    assert "zero weights" in kinds
    # The last layer, not the first, though all heatmaps are zero.
    assert explorer.layer == "encoder.layers.encoder_layer_1" == list(explorer.cache)[-1]
    assert explorer.frame.panels[1].note == FLAT[4]


def test_a_few_large_values_do_not_hide_the_rest_of_a_map():
    values = np.linspace(-1, 1, 10_000).reshape(100, 100)
    assert robust_end(values, 1.0) is None
    values[4, 4] = -30.0
    assert 0.97 < robust_end(values, 30.0) < 1
    values[:] = 0
    values[4, 4] = 1.0
    # The 99th percentile is 0, which cannot end a colour range.
    assert robust_end(values, 1.0) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"nans": 1},
        {"infs": 1},
        {"gradient_nans": 1},
        {"gradient_infs": 1},
        {"zero_weights": True},
        {"zeros": 1},
        {"gradient": 0},
        {"silent": 64, "channels": 64},
        {},
    ],
)
def test_the_health_chip_has_three_to_six_words(changes):
    values = {"activation": 1, "gradient": 1, "zeros": 0.5, "nans": 0, "infs": 0, **changes}
    said = verdict([Cell(name, name, 8, **values) for name in "abc"], samples=64)
    assert 3 <= len(said.text.split()) <= 6 and said.details.endswith(".")
    assert (said.kind == "good") == (not changes)


def test_the_strongest_channel_is_never_silent():
    """Not even where all others lower the score: a map of zeros shows nothing."""
    maps = np.array([[[0.0, 0.0]], [[2.0, 1.0]], [[0.5, 1.0]]], np.float32)
    layer = LayerView(maps, -np.ones_like(maps), None, 1, 1)
    assert strongest_in(layer) == 2


def test_maps_that_differ_by_rounding_alone_are_not_opened():
    flat = np.full((1, 2, 2), 0.3, np.float32)
    rounded = flat.copy()
    rounded[0, 0, 0] = np.nextafter(np.float32(0.3), np.float32(1))
    differ = [
        _differs(LayerView(maps, None, None, 1, 1)) for maps in (flat, rounded, 1000 * rounded)
    ]
    assert differ == [False, False, False]
    assert _differs(LayerView(np.array([[[1e-9, 2e-9]]], np.float32), None, None, 1, 1))
