"""Heatmaps in the explorer: overlays, single maps, all layers, and notes on empty maps."""

import numpy as np
import pytest
import torch
import torchvision
import traitlets
from matplotlib import colormaps
from seen import control
from torch import nn

import hookviz
from hookviz.draw.overlay import HEAT, blend, heat_colours, upsample
from hookviz.view.settings import PRODUCT

MODEL = hookviz.demo_model()
PICTURES = hookviz.demo_images()


@pytest.fixture
def explorer():
    return hookviz.explore(MODEL, PICTURES[12], layer="layer3.1.conv2")


# Blending


def test_blend_equals_hand_computed_values():
    picture = np.full((4, 4, 3), 100, np.uint8)
    heat = np.array([[0.0, 0.0], [0.0, 8.0]])
    assert (blend(picture, heat, 0.0) == picture).all()
    full = blend(picture, heat, 1.0)
    highest = np.array(colormaps[HEAT](1.0, bytes=True)[:3], int)
    assert (full[0, 0] == 100).all()  # no heat: the picture itself, which is gray
    assert abs(full[3, 3].astype(int) - highest).max() <= 3
    half = blend(picture, heat, 0.5).astype(float)
    assert abs(half - (100 + full.astype(float)) / 2).max() <= 1


def luminance(pixels):
    """Return relative luminance by the sRGB formula; the code uses a simple gamma."""
    share = pixels / 255
    light = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return light @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("picture", [0, 6, 12])
def test_cold_areas_keep_their_brightness_and_lose_colour(picture):
    with hookviz.capture(MODEL, "layer3.1.conv2") as cache:
        MODEL(hookviz.attribution.prepare_input(PICTURES[picture], MODEL).args[0]).max().backward()
    MODEL.zero_grad()
    heat = hookviz.heatmap(cache["layer3.1.conv2"], "gradcam")[0].numpy()
    pixels = np.asarray(PICTURES[picture].convert("RGB"))
    for alpha in (0.3, 0.8, 1.0):
        drawn = blend(pixels, heat, alpha)
        share = upsample(heat, *pixels.shape[:2]) / heat.max()
        before, after = (luminance(each[share < 0.1]).mean() for each in (pixels, drawn))
        assert (share < 0.1).mean() > 0.2
        assert abs(after / before - 1) < 0.05
        spread = np.ptp(drawn[share < 0.1].astype(int), 1).mean()  # the colour is reduced
        assert spread < np.ptp(pixels[share < 0.1].astype(int), 1).mean() * (1.2 - alpha)


def test_heatmaps_of_zeros_or_nan_are_not_drawn():
    picture = np.random.default_rng(0).integers(0, 255, (6, 6, 3)).astype("uint8")
    for empty in (np.zeros((2, 2)), np.full((2, 2), np.nan)):
        assert heat_colours(empty) is None
        assert (blend(picture, empty, 0.7) == picture).all()
    assert heat_colours(np.array([[np.inf, 2.0, 0.0]]))[1:] == (0.0, 2.0)


# In the explorer


def test_the_overlay_equals_the_heatmap_function(explorer):
    explorer.alpha = 0.8
    pixels = explorer.frame.input.pixels
    assert abs(pixels.astype(int) - np.asarray(PICTURES[12])).max() <= 1
    for method in hookviz.attribution.HEATMAPS:
        explorer.heatmap = method
        heat = hookviz.heatmap(explorer.cache["layer3.1.conv2"], method)[0].numpy()
        assert (explorer.frame.overlay.pixels == blend(pixels, heat, 0.8)).all(), method


def test_activation_times_gradient_is_of_the_shown_channel(explorer):
    explorer.heatmap, explorer.over_input = PRODUCT, False
    record = explorer.cache["layer3.1.conv2"]
    for channel in (0, 31):
        explorer.channel = channel
        exact = (record.activation * record.gradient)[0, channel].numpy()
        assert (explorer.frame.panels[-1].values == exact).all()
    explorer.over_input = True
    first = explorer.frame.overlay.pixels
    explorer.channel = 69
    assert (first != explorer.frame.overlay.pixels).any()


def test_heatmaps_returns_the_maps_of_all_layers(explorer):
    maps = explorer.heatmaps("layercam")
    assert list(maps) == list(explorer.cache)
    for name, heat in maps.items():
        assert torch.equal(heat, hookviz.heatmap(explorer.cache[name], "layercam"))
    assert list(explorer.heatmaps()) == list(explorer.cache)
    with pytest.raises(ValueError, match="Unknown heatmap method='grad'; close to it"):
        explorer.heatmaps("grad")


def test_channels_are_ordered_by_gradcam_weight(explorer):
    explorer.order = "gradcam weight"
    weights = explorer.cache["layer3.1.conv2"].gradient[0].mean((1, 2))
    assert explorer.frame.channels.tolist()[:5] == weights.argsort(descending=True)[:5].tolist()
    explorer.channel = int(weights.argmax())
    assert control(explorer, "rank").value == 1


def test_empty_and_nan_heatmaps_have_a_note():
    class Net(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.conv, self.factor = nn.Conv2d(3, 2, 1), factor

        def forward(self, x):
            return (self.conv(x) * self.factor).mean((2, 3))

    for factor, words in ((0.0, "zero everywhere"), (torch.nan, "16 of 16 values are NaN")):
        explorer = hookviz.explore(Net(factor), torch.rand(1, 3, 4, 4), target=0)
        assert words in explorer.frame.overlay.note
        shown = explorer.frame.overlay.pixels
        assert (shown == explorer.frame.input.pixels).all()


def test_without_a_gradient_only_other_heatmaps_are_shown():
    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None
    )
    explorer = hookviz.explore(model, torch.rand(1, 3, 64, 64))
    assert explorer.frame.overlay is None
    explorer.heatmap = "eigencam"
    assert explorer.frame.overlay is not None
    explorer.target = lambda output: output["out"][:, 3].mean()
    explorer.heatmap = "gradcam"
    assert explorer.frame.overlay is not None


def test_heatmaps_of_signals_and_volumes():
    net = nn.Sequential(nn.Conv1d(2, 8, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    signal = hookviz.explore(net, torch.randn(2, 2, 60))
    assert signal.frame.overlay.pixels.shape == (10, 60, 3)
    net = nn.Sequential(nn.Conv3d(1, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten())
    volume = hookviz.explore(net, torch.rand(1, 1, 9, 8, 8), over_input=False, heatmap="hirescam")
    volume.depth = 5
    exact = hookviz.heatmap(volume.cache["0"], "hirescam")[0, 5].numpy()
    assert (volume.frame.panels[-1].values == exact).all()


# Targets


def test_targets_may_differ_by_sample_or_be_contrasts():
    x = torch.cat([hookviz.attribution.prepare_input(PICTURES[i], MODEL).args[0] for i in (12, 6)])
    explorer = hookviz.explore(MODEL, x, target=["fish", ("moon", "ring")])
    assert explorer.frame.target == "fish"
    explorer.sample = 1
    assert explorer.frame.target == "moon against ring"
    got = explorer.cache["stem.0"].gradient
    y = x.clone().requires_grad_()
    with hookviz.capture(MODEL, "stem.0") as cache:
        scores = MODEL(y)
        torch.autograd.grad(scores[0, 2] + scores[1, 6] - scores[1, 8], y)
    assert torch.allclose(got, cache["stem.0"].gradient, atol=1e-7)
    explorer.target = ("fish", "moon", 0)
    assert explorer.frame.target == "fish against moon and ball"
    with pytest.raises(ValueError, match="list of 3 for a batch of 2"):
        explorer.target = [0, 1, 2]
    with pytest.raises(ValueError, match="none of"):
        explorer.target = (1,)


def test_attributions_are_shown_as_heatmaps_if_captum_is_installed(explorer, monkeypatch):
    explorer.heatmap = "saliency"
    attribution = hookviz.attribute(MODEL, PICTURES[12], method="saliency")
    exact = attribution.abs().amax(1)[0].numpy()
    shown = explorer.frame.overlay.pixels
    assert (shown == blend(explorer.frame.input.pixels, exact, explorer.alpha)).all()
    explorer.channel = 3  # does not run the model again
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(traitlets.TraitError, match="Unknown heatmap"):
        explorer.heatmap = "smoothgrad"
