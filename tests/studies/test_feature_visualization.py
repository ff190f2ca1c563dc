"""Feature visualization: known optima, comparison with natural pictures, and interrupts."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from architectures import model_of
from torch import nn
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot

import hookviz
from hookviz import feature_visualization
from hookviz.run.progress import Progress

MODEL, PICTURES = hookviz.demo_model(), hookviz.demo_images()


def gabor(angle, side=11):
    y, x = torch.meshgrid(*[torch.arange(side) - side // 2] * 2, indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    return torch.exp(-(x**2 + y**2) / 18) * torch.cos(2 * math.pi * along / 6)


def correlation_with_kernel(found, layer, channel, seed):
    """Return the correlation of a kernel with the patch of the picture that excites it most."""
    kernel = layer.weight[channel].detach()
    inputs = found.inputs[found.channels.index(channel), seed]
    patches = nn.functional.unfold(inputs[None], kernel.shape[1:], stride=layer.stride)[0]
    best = patches[:, (kernel.flatten() @ patches).argmax()]
    return float(torch.corrcoef(torch.stack([best, kernel.flatten()]))[0, 1])


def test_the_optimum_of_a_gabor_layer_is_its_kernel():
    layer = nn.Conv2d(1, 2, 11)
    layer.weight.data = torch.stack([gabor(0.0), gabor(1.0)])[:, None]
    found = feature_visualization(layer, "", [0, 1], size=48, steps=64)
    assert all(
        correlation_with_kernel(found, layer, n, seed) > 0.8 for n in (0, 1) for seed in (0, 1)
    )
    # Without a known transform the input has mean 0 and variance 1.
    torch.testing.assert_close(found.inputs.mean((2, 3, 4)), torch.zeros(2, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.inputs.std((2, 3, 4)), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("channel", "channels"), [(torch.tensor(1), [1]), (torch.tensor([1, 0]), [1, 0])]
)
def test_channels_may_be_a_tensor(channel, channels):
    found = feature_visualization(nn.Conv2d(3, 2, 3), "", channel, size=16, steps=1)
    assert found.channels == channels and len(found.records()) == 2 * len(channels)


@pytest.mark.heavy
def test_the_picture_of_the_class_eye_is_classified_as_an_eye():
    eye = MODEL.class_names.index("eye")
    found = feature_visualization(MODEL, "head.2", eye, size=64, steps=96)
    assert MODEL(found.inputs[0]).softmax(1)[:, eye].min() > 0.9
    torch.testing.assert_close(found.activation[0], MODEL(found.inputs[0])[:, eye].detach())
    assert (found.activation > found.natural).all()
    assert found.verdict.endswith(
        "2 of 2 pictures excite the channel more than any of 32 natural pictures"
    )
    # The picture is the measured input, rounded to 8 bits.
    shown = torch.from_numpy(np.array(found.image)).permute(2, 0, 1) / 255
    torch.testing.assert_close(shown, found.inputs[0, 0] / 4 + 0.5, atol=0.6 / 255, rtol=0)
    natural = torch.cat([hookviz.attribution.prepare_input(p, MODEL).args[0] for p in PICTURES])
    assert float(found.natural) == pytest.approx(MODEL(natural)[:, eye].max().item(), rel=1e-4)
    first, second, *patches = found.pieces(eye)
    assert first.caption.startswith("seed 0: ") and second.caption.startswith("seed 1: ")
    assert len(patches) == 4


def test_the_model_is_unchanged_and_pictures_depend_on_the_seed():
    torch.manual_seed(0)
    # A model with running statistics, dropout and random numbers.
    model = model_of(
        lambda m, x: m.drop(m.norm(m.conv(x)).relu() + torch.rand(1)),
        conv=nn.Conv2d(3, 4, 3),
        norm=nn.BatchNorm2d(4),
        drop=nn.Dropout(),
    ).train()
    before = snapshot(model)
    both = feature_visualization(model, "conv", [2, 3], size=16, steps=4)
    assert_untouched(model, before)
    again = feature_visualization(model, model.conv, 3, size=16, steps=4, seed=1)
    torch.testing.assert_close(again.inputs[0, 0], both.inputs[1, 1])
    assert not torch.equal(both.inputs[0, 0], both.inputs[0, 1])


def test_natural_pictures_are_those_of_the_survey(tmp_path):
    survey = hookviz.survey(MODEL, PICTURES[:6], "stem.0", k=2)
    found = feature_visualization(MODEL, "stem.0", 5, size=24, steps=2, survey=survey)
    assert found.natural.tolist() == [survey["stem.0"].top(5)[0].value]
    captions = [piece.caption for piece in survey.patches("stem.0", 5)]
    assert [piece.caption for piece in found.pieces(5)[2:]] == captions
    assert "any of 6 natural pictures" in found.verdict
    (row, _) = found.records()
    std = float(survey["stem.0"].std[5])
    assert row["above"] == pytest.approx((row["activation"] - row["natural"]) / std)
    survey.save(tmp_path / "survey.npz")
    numbers = hookviz.load(tmp_path / "survey.npz")
    alone = feature_visualization(MODEL, "stem.0", 5, size=24, steps=2, survey=numbers)
    assert len(alone.pieces(5)) == 2 and alone.records() == found.records()


def test_records_page_figure_and_explorer_of_a_result(tmp_path):
    found = feature_visualization(MODEL, "layer2.1", [1, 3], size=32, steps=2, seed=7)
    rows = found.records()
    json.dumps(rows, allow_nan=False)
    assert [(row["channel"], row["seed"]) for row in rows] == [(1, 7), (1, 8), (3, 7), (3, 8)]
    assert repr(found).startswith("layer2.1, channels 1, 3: ") and "largest natural" in repr(found)
    found.to_html(tmp_path / "found.html")
    assert (tmp_path / "found.html").read_text(encoding="utf-8").count("<img") == 12
    assert len(found.figure().axes) == 12 and len(found.images) == 4
    explorer = found.show()
    assert (explorer.layer, explorer.channel) == ("layer2.1", 1)
    explorer.close()


def test_long_class_names_leave_room_for_those_beside_them():
    model = nn.Conv2d(3, 2, 3)
    names = ["greater flamingo, Phoenicopterus roseus", "lesser flamingo, Phoeniconaias minor"]
    data = [(torch.rand(3, 8, 8), n % 2) for n in range(4)]
    survey = hookviz.survey(model, data, "", class_names=names)
    figure = feature_visualization(model, "", 0, size=8, steps=1, survey=survey).figure()
    figure.draw_without_rendering()
    captions = [axes.title.get_window_extent() for axes in figure.axes]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(captions))


class OfOneSize(nn.Module):
    """A model that takes only one size, and calls a layer twice."""

    pretrained_cfg = {"input_size": (3, 144, 144), "crop_pct": 1.0}

    def __init__(self):
        super().__init__()
        self.conv, self.twice = nn.Conv2d(3, 2, 16, stride=16), nn.Linear(162, 162)
        self.unused = nn.Linear(1, 1)

    def forward(self, x):
        return self.twice(self.twice(self.conv(x).flatten(1)))


def test_the_size_is_128_unless_the_model_takes_only_another():
    torch.manual_seed(0)
    found = feature_visualization(OfOneSize(), "twice", 5, steps=1)
    assert found.inputs.shape[-2:] == (144, 144) and found.call == 1
    plain = nn.Sequential(nn.Conv2d(3, 2, 16, stride=16))
    assert feature_visualization(plain, "0", 1, steps=1).inputs.shape[-2:] == (128, 128)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_size_is_also_that_of_the_natural_pictures_of_a_model_without_a_transform(channels):
    head = nn.Linear(2 * 14 * 14, 3)
    model = nn.Sequential(nn.Conv2d(channels, 2, 3), nn.ReLU(), nn.Flatten(), head)
    found = feature_visualization(model, "0", 1, size=16, steps=1)
    assert found.inputs.shape[2:] == (channels, 16, 16) and found.survey.seen == 32
    assert len(found.pieces(1)) == 6


@pytest.mark.parametrize("after", [0, 3])
def test_an_interrupt_returns_the_pictures_so_far(after, monkeypatch):
    def update(self, fraction, text=""):
        if fraction == after / 8 and not text:
            raise KeyboardInterrupt

    def forward(module, args):
        if not after and len(args[0]) == 2:
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    monkeypatch.setattr(Progress, "update", update)
    handle = model.register_forward_pre_hook(forward)
    before = snapshot(model)
    if after:
        with pytest.warns(RuntimeWarning, match="Interrupted after 3 of 8 steps"):
            assert feature_visualization(model, "0", 0, size=16, steps=8).steps == 3
    else:
        with pytest.raises(KeyboardInterrupt):
            feature_visualization(model, "0", 0, size=16, steps=8)
    assert_untouched(model, before)
    handle.remove()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layer": "stem.9"}, "No layer .* is called 'stem.9'"),
        ({"channel": 24}, "Layer 'stem.0' has no channel 24: there are 24, counted from 0"),
        ({"channel": []}, r"channel=\[\] names no channel: give a number, or several"),
        ({"channel": torch.tensor([])}, "names no channel"),
        ({"steps": 0}, "steps=0 cannot be used"),
        ({"size": 0}, "size=0 cannot be used"),
        ({"model": nn.Conv1d(3, 2, 3), "layer": ""}, "takes 3 channels in 1d, not a picture"),
        ({"model": OfOneSize(), "layer": "unused"}, "Layer 'unused' does not run"),
        ({"model": nn.Conv2d(3, 8, 3), "layer": "", "survey": True}, "not of the shown model"),
    ],
)
def test_wrong_arguments_are_refused(given, words):
    if "survey" in given:
        given["survey"] = hookviz.survey(MODEL, PICTURES[:2], "stem.0")
    arguments = {"model": MODEL, "layer": "stem.0", "channel": 0} | given
    with pytest.raises(ValueError, match=words):
        feature_visualization(**arguments)


@pytest.mark.parametrize(
    ("model", "layer", "words"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), "1", "224×224 were assumed: give size="),
        (
            model_of(lambda m, x, t: m.conv(x), conv=nn.Conv2d(3, 4, 3)),
            "conv",
            "Model takes more than",
        ),
        (nn.Conv1d(1, 4, 3), "", "1 channel in 1d, not a picture: only"),
        (nn.ConvTranspose2d(100, 3, 4), "", "100 channels in 2d, not a picture: only"),
    ],
)
def test_a_model_of_other_inputs_is_refused_with_the_cure(model, layer, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        feature_visualization(model, layer, 0, steps=1)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("between", "layer", "words"),
    [
        (lambda m, x: m.inner(x).detach(), "after", "No gradient leads from layer 'after' to"),
        (lambda m, x: checkpoint(m.inner, x, use_reentrant=True), "inner.0", "in checkpoint"),
        (lambda m, x: checkpoint(m.inner, x, use_reentrant=True), "after", "'after' is checkpoint"),
    ],
)
def test_a_layer_without_a_gradient_is_refused(between, layer, words):
    parts = {
        "conv": nn.Conv2d(3, 2, 3),
        "inner": nn.Sequential(nn.ReLU(), nn.Tanh()),
        "after": nn.Identity(),
    }
    model = model_of(lambda m, x: m.after(between(m, m.conv(x))), **parts)
    with pytest.raises(ValueError, match=words):
        feature_visualization(model, layer, 0, size=16)
