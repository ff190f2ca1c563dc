"""The explorer without a browser: settings, drawings, targets, errors, and what stays behind."""

from __future__ import annotations

import base64
import gc
import io
import random
from collections import OrderedDict

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torchvision
import traitlets
from PIL import Image
from reference import assert_exact, true_outputs
from seen import (
    HEADING,
    NOTE,
    READINGS,
    control,
    html,
    labels,
    overlapping_texts,
    registered,
    says,
)
from torch import nn

import hookviz
from hookviz.draw.colours import DIVERGING
from hookviz.run.inputs import prepare_input
from hookviz.view.health import overview_of
from hookviz.view.layer import LayerView
from hookviz.widgets.canvas import Canvas

MODEL = hookviz.demo_model()
PICTURES = hookviz.demo_images()


@pytest.fixture
def explorer():
    made = hookviz.explore(MODEL, PICTURES[6], layer="stem.0")
    yield made
    made.close()


def assert_drawn(panel, values, edge):
    """The panel holds these values, in colours around zero."""
    assert (panel.values == values).all()
    assert (panel.cmap, panel.low, panel.high) == (DIVERGING, -edge, edge)


# What is shown


def test_a_first_layer_may_overwrite_the_input():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 4, 1), nn.Flatten())
    x = torch.randn(1, 3, 4, 4)
    before = x.clone()
    explorer = hookviz.explore(model, x)
    assert torch.equal(x, before)
    assert torch.equal(explorer.cache["1"].activation, model[1](before.relu()))
    explorer.close()


def test_what_is_shown_is_what_the_model_computed(explorer):
    x = prepare_input(PICTURES[6], MODEL).args[0].requires_grad_()
    with true_outputs(MODEL) as truths:
        MODEL(x)[0, 6].backward()
    MODEL.zero_grad()
    assert assert_exact(explorer.cache, truths) == 15
    explorer.layer, explorer.channel = "layer2.0.conv1", 11
    values = truths["layer2.0.conv1"][0][0, 11]
    edge = values.abs().max().item()
    assert_drawn(explorer.frame.panels[0], values.detach().numpy(), edge)
    slopes = truths["layer2.0.conv1"][0].grad[0, 11]
    edge = slopes.abs().max().item()
    panel = explorer.frame.panels[1]  # a few places of its gradient are far beyond the others
    assert panel.note.endswith(f"the largest is {edge:.3g}") and panel.high < edge / 2
    explorer.normalize = "symmetric"
    assert_drawn(explorer.frame.panels[1], slopes.numpy(), edge)
    readings = html(explorer, READINGS).value
    assert "48×28×28" in html(explorer, HEADING).value
    assert f"{values.max():.3g}" in readings


def test_steps_run_no_model_code(explorer, monkeypatch):
    monkeypatch.setattr(nn.Module, "__call__", lambda *_: pytest.fail("the model ran"))
    for name in list(explorer.cache)[::4]:
        explorer.layer = name
        for setting in ("channel", "sample", "call", "depth"):
            setattr(explorer, setting, explorer.frame.counts[setting] - 1)
        for order in ("mean", "max", "zeros", "gradient", "index"):
            explorer.order = order
        for normalize in ("layer", "percentile", "symmetric", "channel"):
            explorer.normalize = normalize
        explorer.cmap = "magma"
        explorer.cmap = "auto"


def test_silent_channels_are_counted_and_crossed_out():
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.weight[2] = 0
    explorer = hookviz.explore(conv, torch.rand(1, 3, 8, 8))
    assert explorer.frame.tiles.caption.endswith("1 constant, crossed out")
    assert explorer.frame.verdict.kind == "good"
    with torch.no_grad():
        conv.bias[:2] = conv.weight[:2] = 0
    explorer.refresh()
    explorer.channel = 1
    assert explorer.frame.tiles.caption.endswith("2 silent, 1 constant, crossed out")
    assert explorer.frame.panels[0].note == "zero everywhere"
    assert [(cell.silent, cell.channels) for cell in overview_of(explorer.displayed())] == [(2, 4)]
    details = "No NaN or Inf in 1 layer, on 1 picture. 2 channels have near-zero weights."
    assert explorer.frame.verdict == (
        "No problems found",
        "good",
        "",
        details,
    )  # in the model itself
    explorer.close()
    conv.weight.data[0] = -1.0
    conv.bias.data[0] = -100.0
    model = nn.Sequential(conv, nn.ReLU(), nn.Conv2d(4, 4, 1, groups=4, bias=False))
    explorer = hookviz.explore(model, torch.rand(1, 3, 8, 8), layers=nn.Conv2d)
    assert "Silent on this picture: " in explorer.frame.verdict.details
    assert explorer.frame.verdict[:2] == ("No problems found", "good")
    assert says(explorer, "Silent on this picture: ")
    explorer.close()


def test_what_counts_as_silent():
    """Of a ReLU it is told where it stands, but no verdict; a map of one place is not constant."""
    torch.manual_seed(0)  # some draws kill a sixth channel
    conv, linear = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(conv, nn.ReLU(), pool, linear)
    with torch.no_grad():
        conv.bias[:5], conv.bias[5:] = -100, 1
    explorer = hookviz.explore(model, torch.rand(2, 3, 8, 8), layers=["0", "1", "3"], layer="3")
    assert "constant" not in explorer.frame.tiles.caption
    assert [cell.silent for cell in overview_of(explorer.displayed())] == [0, 5, 0]
    assert explorer.frame.verdict.kind == "good" and "Silent" not in explorer.frame.verdict.details
    with torch.no_grad():
        linear.bias[1] = linear.weight[1] = 0
    explorer.refresh()
    assert explorer.frame.tiles.caption.endswith("1 silent, crossed out")
    assert "Silent" not in explorer.frame.verdict.details  # its weights are zero: trained away
    assert [cell.away for cell in overview_of(explorer.displayed())] == [0, 0, 1]
    explorer.close()


def test_unsigned_data_gets_the_sequential_map():
    explorer = hookviz.explore(MODEL, PICTURES[0], layers=nn.ReLU)
    frame = explorer.frame
    assert frame.panels[0].cmap == "viridis"
    assert frame.panels[1].cmap == DIVERGING
    assert frame.panels[1].low == -frame.panels[1].high
    explorer.close()


def test_nan_and_inf_are_said():
    class Bad(nn.Conv2d):
        def forward(self, x):
            out = super().forward(x)
            out[0, 0, 0, :2] = torch.tensor([torch.nan, torch.inf])
            return out

    explorer = hookviz.explore(Bad(3, 2, 1), torch.rand(1, 3, 4, 4), target=torch.sum)
    assert "<th>NaN</th><th>Inf</th>" in html(explorer, READINGS).value
    assert "<td>1 (magenta)</td><td>1 (+ green, − cyan)</td>" in html(explorer, READINGS).value
    explorer.close()


# Models of all kinds


def test_signals_and_volumes():
    signal = hookviz.explore(
        nn.Sequential(nn.Conv1d(2, 8, 5)), torch.randn(2, 2, 60), target=torch.sum
    )
    assert signal.frame.panels[0].values.shape == (1, 56)
    assert signal.frame.counts == {"channel": 8, "call": 1, "sample": 2, "depth": 1}
    assert len(signal.figure().axes[1].lines) == 2
    signal.close()
    volume = hookviz.explore(nn.Sequential(nn.Conv3d(1, 4, 3)), torch.randn(1, 1, 9, 8, 8))
    assert volume.frame.counts["depth"] == 7
    volume.depth = 6
    exact = volume.cache["0"].activation[0, 0, 6].numpy()
    assert (volume.frame.panels[0].values == exact).all()
    assert "depth" in labels(volume)
    assert "sample" not in labels(volume)
    volume.close()


def test_many_calls_and_samples():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.other = nn.Conv2d(3, 2, 1)

        def forward(self, x):
            return self.other(self.conv(self.conv(x)))

    explorer = hookviz.explore(Twice(), torch.rand(4, 3, 6, 6), target=torch.sum, layer="conv")
    explorer.call, explorer.sample, explorer.channel = 1, 3, 2
    exact = explorer.cache["conv"].calls[1].activation[3, 2].numpy()
    assert (explorer.frame.panels[0].values == exact).all()
    explorer.layer = "other"  # has one call and two channels
    assert (explorer.call, explorer.sample) == (0, 3) and explorer.channel < 2
    explorer.close()


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("segmentation.lraspp_mobilenet_v3_large", 64),
        pytest.param("detection.maskrcnn_resnet50_fpn", 64, marks=pytest.mark.heavy),
    ],
)
def test_models_that_are_no_classifiers(name, size):
    kind = name.rpartition(".")[2]
    options = {"weights_backbone": None} if "tion." in name else {}
    model = torchvision.models.get_model(kind, weights=None, **options).train()
    x = torch.rand(1, 3, size, size)
    explorer = hookviz.explore(model, [x[0]] if "detection" in name else x)
    for layer in explorer.cache:
        explorer.layer = layer
    assert all(module.training for module in model.modules())
    explorer.close()


def test_text_models():
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.conv = nn.Conv1d(8, 6, 3)

        def forward(self, tokens):
            return self.conv(self.embed(tokens).mT).amax(2)

    model = Text().requires_grad_(False)
    explorer = hookviz.explore(model, torch.randint(20, (2, 12)))
    assert explorer.cache["conv"].gradient is not None
    assert explorer.frame.input is None
    assert not any(p.requires_grad or p.grad is not None for p in model.parameters())
    explorer.close()


def test_compiled_and_no_grad_around():
    layers = OrderedDict(conv1=nn.Conv2d(3, 4, 3), relu=nn.ReLU(), head=nn.Flatten())
    model = torch.compile(nn.Sequential(layers), backend="eager")
    with torch.inference_mode():
        explorer = hookviz.explore(model, torch.rand(1, 3, 8, 8))
        assert torch.is_inference_mode_enabled()
    assert explorer.cache["conv1"].gradient is not None
    explorer.close()


def test_the_budget_is_kept_and_layers_are_fetched():
    with pytest.warns(RuntimeWarning, match="went over max_bytes"):
        small = hookviz.explore(MODEL, PICTURES[6], max_bytes=1_000_000)
    whole = hookviz.explore(MODEL, PICTURES[6])
    assert small.cache.nbytes <= 1_000_000
    assert 0 < len(small.cache.over_budget) < 15
    for name in whole.cache:
        small.layer = whole.layer = name
        for mine, other in zip(small.frame.panels, whole.frame.panels, strict=True):
            assert (mine.values == other.values).all()
    small.close()
    whole.close()


# Targets


def test_top_five(explorer):
    with torch.no_grad():
        exact = MODEL(prepare_input(PICTURES[6], MODEL).args[0]).softmax(1)[0]
    best = exact.topk(5)
    ranked = explorer.frame.predictions
    assert [each.number for each in ranked] == best.indices.tolist()
    assert [each.value for each in ranked] == pytest.approx(best.values.tolist())
    assert ranked[0][1] == "moon"
    listed = control(explorer, "target").options
    assert list(listed[1:6]) == [f"{each.name} · {each.words}" for each in ranked]
    assert ranked[0].words == f"{100 * ranked[0][2]:.1f} %"


@pytest.mark.parametrize("target", [3, "flower", "FLOWER", lambda output: output[:, 3].sum()])
def test_targets(explorer, target):
    top = explorer.cache["stem.0"].gradient
    explorer.target = target
    x = prepare_input(PICTURES[6], MODEL).args[0].requires_grad_()
    with true_outputs(MODEL) as truths:
        MODEL(x)[0, 3].backward()
    MODEL.zero_grad()
    assert_exact(explorer.cache, truths)
    assert not torch.equal(top, explorer.cache["stem.0"].gradient)


def test_a_batch_gets_each_pictures_own_target():
    x = torch.cat([prepare_input(PICTURES[i], MODEL).args[0] for i in (0, 6, 9)])
    together = hookviz.explore(MODEL, x)
    for sample, index in enumerate((0, 6, 9)):
        alone = hookviz.explore(MODEL, x[sample : sample + 1])
        a, b = (e.cache["layer3.1.conv2"].gradient for e in (together, alone))
        assert torch.allclose(a[sample], b[0], atol=1e-7)
        together.sample = sample
        assert together.frame.target == MODEL.class_names[index]
        alone.close()
    together.close()


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (10, ValueError, "target=10 is not a class of this model: its classes are 0 to 9"),
        (-1, ValueError, "0 to 9"),
        ("mooon", ValueError, "No class is called 'mooon'; close to it: 'moon'"),
        (2.5, ValueError, "target=2.5 is none of"),
        (lambda output: output, ValueError, r"returned shape \(1, 10\), not one number"),
        (lambda output: 3, ValueError, "returned 3, not one number"),
        (lambda output: output.detach().sum(), ValueError, "without a gradient"),
    ],
)
def test_bad_targets(explorer, target, error, words):
    before = explorer.cache
    with pytest.raises(error, match=words):
        explorer.target = target
    assert explorer.target is None
    assert explorer.cache is before
    with pytest.raises(error, match=words):
        hookviz.explore(MODEL, PICTURES[0], target=target)


def test_names_need_class_names():
    with pytest.raises(ValueError, match="no class names are known"):
        hookviz.explore(
            nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten()), torch.rand(1, 3, 2, 2), target="cat"
        )
    with pytest.raises(ValueError, match="needs class scores .* give a number in it as target"):
        hookviz.explore(nn.Conv2d(3, 2, 1), torch.rand(1, 3, 2, 2), target=1)


# Settings


def test_settings_at_the_start():
    explorer = hookviz.explore(MODEL, PICTURES[0], channel=90, layer="layer3.0.conv1", cmap="magma")
    assert (explorer.layer, explorer.channel, explorer.cmap) == ("layer3.0.conv1", 90, "magma")
    explorer.close()
    with pytest.raises(TypeError, match="Unknown setting 'chanel'; close to it: 'channel'"):
        hookviz.explore(MODEL, PICTURES[0], chanel=3)
    count = len(registered())
    with pytest.raises(traitlets.TraitError):
        hookviz.explore(MODEL, PICTURES[0], channel=99)
    assert len(registered()) == count


def test_controls_set_the_explorer(explorer, no_pictures):
    controls = labels(explorer)
    controls["layer"].value = 4
    assert explorer.layer == list(explorer.cache)[4]
    explorer.channel = 7
    controls["order"].value = "max"
    best = explorer.cache[explorer.layer].activation[0].amax((1, 2)).argmax().item()
    assert explorer.channel == best  # the first by the new order
    rank = control(explorer, "rank")
    assert (rank.min, rank.value, rank.max) == (1, 1, len(explorer.frame.channels))
    assert says(explorer, f"rank 1 of {rank.max} by max: channel {best}")
    controls["target"].value = controls["target"].options[2]
    assert explorer.target == explorer.frame.predictions[1][0]
    explorer.channel = 0
    assert rank.value == explorer.frame.channels.tolist().index(0) + 1


def test_any_class_is_found_by_typing(explorer, no_pictures):
    field = control(explorer, "target")
    for typed, target in (("fish", 2), ("3", 3), ("Moon", "Moon"), ("top prediction", None)):
        field.value = typed
        assert (explorer.target, field.value) == (target, "")
    assert len(field.options) == 1 + 5 + 10
    field.value = "mooon"
    assert "close to it" in html(explorer, NOTE).value
    assert explorer.target is None


def test_pages_of_channels():
    explorer = hookviz.explore(nn.Conv2d(3, 300, 1), torch.rand(1, 3, 7, 7), target=torch.sum)
    explorer.channel = 256
    tiles = explorer.frame.tiles
    assert (tiles.page, tiles.pages) == (2, 3)
    assert tiles.caption.startswith("channels 256–299 of 300")
    assert tiles.channels.tolist() == list(range(256, 300))
    explorer.channel = 130
    tiles = explorer.frame.tiles
    assert (tiles.page, tiles.place, len(tiles.channels)) == (1, 2, 128)
    explorer.close()


def test_another_picture_and_other_weights_in_the_same_view():
    model = hookviz.demo_model()
    explorer = hookviz.explore(model, PICTURES[6], layer="layer2.0.conv1", channel=11)
    explorer.heatmap, explorer.target = "layercam", "fish"
    explorer.image = PICTURES[12]
    twin = hookviz.explore(model, PICTURES[12], target="fish")
    assert (explorer.layer, explorer.channel, explorer.heatmap) == (
        "layer2.0.conv1",
        11,
        "layercam",
    )
    name = "layer3.0.conv1"
    assert torch.equal(explorer.cache[name].gradient, twin.cache[name].gradient)
    assert explorer.frame.predictions == twin.frame.predictions
    assert (explorer.frame.input.pixels == twin.frame.input.pixels).all()
    assert explorer.image is PICTURES[12]
    with torch.no_grad():
        model.stem[0].weight.mul_(2)
    before = explorer.cache["stem.0"].activation
    explorer.refresh()
    assert torch.allclose(explorer.cache["stem.0"].activation, 2 * before, atol=1e-5)
    assert explorer.channel == 11
    with pytest.raises(FileNotFoundError):
        explorer.image = "no such picture.png"
    assert explorer.image is PICTURES[12]
    twin.close()
    explorer.close()


def test_a_name_that_is_no_setting(explorer):
    with pytest.raises(AttributeError, match="Unknown setting 'chanel'; close to it: 'channel'"):
        explorer.chanel = 3


def test_a_link_that_cannot_be_followed_leaves_both(explorer):
    other = hookviz.explore(MODEL, PICTURES[7], layers=["stem.0", "layer1.0.conv1"])
    other.layer = "stem.0"
    for name in ("layer", "channel"):
        traitlets.link((explorer, name), (other, name))
    explorer.channel = 5
    with pytest.raises(traitlets.TraitError, match="was not captured"):
        explorer.layer = "layer3.0.conv1"
    assert (explorer.layer, other.layer) == ("stem.0", "stem.0")
    assert explorer.frame.settings.layer == "stem.0"
    assert (explorer.channel, other.channel) == (5, 5)
    explorer.layer = "layer1.0.conv1"
    assert other.layer == "layer1.0.conv1"
    other.close()


def test_one_scale_for_the_whole_network(explorer):
    explorer.normalize = "network"
    every = [record.activation for record in explorer.cache.values()]
    most = max(each.abs().max().item() for each in every)
    for name in ("stem.0", "layer3.1.conv2"):
        explorer.layer = name
        panel = explorer.frame.panels[0]
        assert (panel.low, panel.high) == pytest.approx((-most, most))


def test_what_is_stretched_from_nothing_is_said():
    conv = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        conv.weight[:] = torch.tensor([1.0, 1e-12]).view(2, 1, 1, 1)
        conv.bias.zero_()
    explorer = hookviz.explore(conv, torch.rand(1, 1, 6, 6), target=torch.sum)
    assert explorer.frame.panels[0].note == ""
    explorer.channel = 1
    assert explorer.frame.panels[0].note == "stretched: less than 1e-08 of the layer's scale"
    explorer.normalize = "layer"
    assert explorer.frame.panels[0].note == ""
    explorer.close()


def test_nan_is_no_norm_and_no_class():
    model = hookviz.demo_model()
    with torch.no_grad():
        model.layer3[0].conv1.weight[3] = torch.nan
    explorer = hookviz.explore(model, PICTURES[6], layer="layer3.0.conv1", channel=3)
    assert explorer.frame.predictions == []
    assert explorer.frame.target == "NaN scores"
    assert list(control(explorer, "target").options)[1] == "ball"  # a class, no prediction
    readings = {name: dict(pairs) for name, pairs in explorer.frame.readings}
    assert readings["channel 3"]["norm"] == "NaN"
    assert readings["its gradient"]["norm"] == "NaN"
    verdict = explorer.frame.verdict
    assert verdict.kind == "bad"
    assert verdict.text == "NaN in 4 of 15 layers, first in layer3.0.conv1"
    assert verdict.layer == "layer3.0.conv1"
    explorer.layer = "stem.0"
    assert "NaN" not in dict(explorer.frame.readings)[f"channel {explorer.channel}"]
    explorer.close()


def test_an_error_in_a_control_is_shown(explorer, monkeypatch, no_pictures):
    def fail(*args, **kwargs):
        raise RuntimeError("the <model> broke")

    monkeypatch.setattr(MODEL, "forward", fail)
    field = control(explorer, "target")
    field.value = field.options[2]
    assert "the <model> broke" in explorer.frame.note
    assert "the &lt;model&gt; broke" in html(explorer, NOTE).value
    assert explorer.target is None
    assert (field.value, field.placeholder) == ("", "moon")
    explorer.channel = 3
    assert explorer.frame.note == ""
    assert not says(explorer, NOTE)


def test_the_ribbon_says_what_the_layers_are(explorer):
    cells = overview_of(explorer.displayed())
    assert [cell.name for cell in cells] == list(explorer.cache)
    for cell in cells:
        record = explorer.cache[cell.name]
        exact = record.activation.double().pow(2).mean().sqrt().item()
        slope = record.gradient.double().pow(2).mean().sqrt().item()
        assert cell.activation == pytest.approx(exact, rel=1e-5)
        assert cell.gradient == pytest.approx(slope, rel=1e-5)
        assert cell.side == record.activation.shape[-1]
    assert [cell.block for cell in cells[:2]] == ["stem", "layer1"]


# The plain face


def picture_of(explorer):
    return html(explorer, '<img class="smooth"')


@pytest.fixture
def front_end(monkeypatch):
    """As in a kernel, where a browser may show any widget."""
    monkeypatch.setattr("hookviz.widgets.plain.in_front_end", lambda widget: True)


def test_the_plain_face_draws_what_changed_and_nothing_else(front_end, explorer):
    drawn = []
    picture_of(explorer).observe(lambda change: drawn.append(change["new"]), "value")
    explorer.say("a word")
    assert says(explorer, "a word") and drawn == []
    explorer.channel = 5
    assert len(drawn) == 1 and "channel 5 of 24" in drawn[0]
    explorer.layer = "layer3.0.conv1"
    assert len(drawn) == 2
    quick = drawn[-1]
    explorer._repr_mimebundle_()
    assert (drawn[-1] != quick) == (
        type(explorer.children[0]).__name__ == "Canvas"
    )  # by matplotlib, once it is seen
    control(explorer, "channel").value = 7
    assert explorer.channel == 7 and len(drawn) > 2


def test_without_a_kernel_no_picture_is_made_before_it_is_asked_for(explorer, monkeypatch):
    made = []
    monkeypatch.setattr("hookviz.widgets.faces.still_png", lambda frame: made.append(1) or b"")
    explorer.channel, explorer.layer = 5, "layer3.0.conv1"
    assert made == []
    explorer._repr_mimebundle_()
    assert made == [1]


def test_a_face_can_be_chosen(front_end, monkeypatch):
    monkeypatch.delenv("HOOKVIZ_CANVAS", raising=False)
    plain = hookviz.explore(MODEL, PICTURES[6], face="plain")
    assert picture_of(plain)
    canvas = hookviz.explore(MODEL, PICTURES[6], face="canvas")
    assert isinstance(canvas.children[0], Canvas)
    canvas.channel, canvas.layer = 5, "layer3.0.conv1"
    assert canvas.children[0].settings["layer"] == "layer3.0.conv1"
    both = hookviz.explore(MODEL, PICTURES[6])
    assert picture_of(both)
    for each in (plain, canvas, both):
        each.close()
    with pytest.raises(ValueError, match="face='core' is unknown: give 'canvas', 'plain' or None"):
        hookviz.explore(MODEL, PICTURES[6], face="core")


def test_each_setting_has_its_control(explorer, no_pictures):
    controls = labels(explorer)
    controls["heatmap"].value = "layercam"
    controls["opacity"].value = 30
    assert (explorer.heatmap, explorer.alpha) == ("layercam", 0.3)
    assert "run" not in controls and "depth" not in controls
    explorer.edit(change=0)
    control(explorer, "run").value = "difference"
    assert explorer.shown_run == "difference"


# Figures


def test_figure_has_the_values_and_their_colours(explorer):
    explorer.layer, explorer.channel = "layer3.1.conv2", 17
    figures = plt.get_fignums()
    figure = explorer.figure()
    image = figure.axes[1].images[0]
    assert (image.get_array() == explorer.cache["layer3.1.conv2"].activation[0, 17].numpy()).all()
    assert "layer3.1.conv2" in figure.get_suptitle()
    assert plt.get_fignums() == figures


@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (1, 3, 20, 180), (1, 3, 150, 20), (2, 2, 90)])
def test_nothing_overlaps_in_a_figure(shape):
    torch.manual_seed(0)
    convolution = (nn.Conv1d if len(shape) == 3 else nn.Conv2d)(shape[1], 4, 3)
    model, x = nn.Sequential(convolution, nn.Flatten(), nn.LazyLinear(2)), torch.rand(shape)
    model(x)
    names = ["a class whose name is longer than a picture is wide, with $x$"] * 2
    made = hookviz.explore(model, x, layer="0", class_names=names)
    figure = made.figure()
    made.close()
    assert overlapping_texts(figure) == []
    for axes in figure.axes:
        for bar in axes.child_axes:
            assert bar.bbox.height == pytest.approx(axes.bbox.height)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_save(explorer, tmp_path, suffix):
    path = tmp_path / f"view.{suffix}"
    explorer.save(path)
    start = path.read_bytes()[:100]
    assert {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix] in start


def test_save_elsewhere(explorer, tmp_path):
    with pytest.raises(
        ValueError, match=r"Cannot save as '.gif': end the name in .png, .svg, .pdf"
    ):
        explorer.save(tmp_path / "view.gif")
    explorer.layer = "layer1.0.conv1"
    explorer.save(tmp_path / "dollar$.PNG", dpi=50)


def test_static_picture_in_the_output(explorer):
    data, metadata = explorer._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert picture.size[0] > 300
    assert metadata["image/png"]["alt"] == data["text/plain"]
    assert "channel 0 of 24 of layer stem.0 (Conv2d)" in data["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in data


# What stays behind


def test_open_and_close_leave_nothing():
    count, figures = len(registered()), plt.get_fignums()
    for _ in range(10):  # two hundred of them: tests/limits
        explorer = hookviz.explore(MODEL, PICTURES[0], layers="stem.*")
        explorer.channel = 3
        explorer.close()
        explorer.close()
    assert len(registered()) == count
    assert plt.get_fignums() == figures
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in MODEL.modules())
    with pytest.raises(RuntimeError, match="closed"):
        _ = explorer.cache


def test_what_is_remembered_is_bounded(explorer):
    def remembered():
        gc.collect()
        return sum(issubclass(type(each), LayerView) for each in gc.get_objects())

    before = remembered()
    for name in explorer.cache:
        explorer.layer = name
        for method in ("gradcam", "eigencam"):
            explorer.heatmap = method
    assert len(explorer.cache) > 10 and remembered() == before


class Messy(nn.Module):
    """Does in its forward all that a forward should not."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.steps = 0

    def forward(self, x):
        self.seen += 1
        self.steps += 1
        self.last = x
        noise = torch.rand(1) + random.random() + np.random.rand()
        out = self.drop(self.bn(self.conv(x)).relu_()) + noise
        return out.mean((2, 3))


@pytest.mark.parametrize("fail", [False, True])
def test_the_model_is_as_it_was(fail):
    model = Messy().train()
    model.bn.eval()
    model.conv.bias.requires_grad_(False)
    model.conv.weight.grad = torch.full_like(model.conv.weight, 2.0)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    held = [set(module.__dict__) for module in model.modules()]
    x = torch.rand(2, 3, 8, 8)
    kept = x.clone()
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].copy()
    if fail:
        with pytest.raises(KeyboardInterrupt):
            hookviz.explore(
                model, x, target=lambda output: (_ for _ in ()).throw(KeyboardInterrupt)
            )
    else:
        hookviz.explore(model, x).close()
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert [set(module.__dict__) for module in model.modules()] == held
    assert model.steps == 0
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model.conv.weight.grad.eq(2).all()
    assert model.conv.bias.grad is None
    assert not model.conv.bias.requires_grad
    assert torch.equal(torch_state, torch.get_rng_state())
    assert python_state == random.getstate()
    assert (numpy_state == np.random.get_state()[1]).all()
    assert torch.equal(x, kept)
    assert x.grad is None
    assert not x.requires_grad
    assert not any(m._forward_hooks for m in model.modules())


# Errors


class Picky(nn.Module):
    def forward(self, x):
        raise ArithmeticError("of no use\nat all")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 1, 64, 64), r"shape \(1, 1, 64, 64\), does not fit layer 'conv1' .*takes 3 channels"),
        ((1, 64, 64), r"does not fit layer 'conv1'"),
        ((64,), "does not fit layer 'conv1'"),
        ((1, 2, 3, 64, 64), "does not fit layer 'conv1' .* in 2d"),
    ],
)
def test_inputs_that_do_not_fit(shape, words):
    model = nn.Sequential(OrderedDict(conv1=nn.Conv2d(3, 4, 3), head=nn.Flatten())).train()
    with pytest.raises(ValueError, match=words):
        hookviz.explore(model, torch.rand(shape))
    assert model.training


def test_a_model_that_raises():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(inplace=True), Picky()))
    model.train()
    with pytest.raises(RuntimeError) as caught:
        hookviz.explore(model, torch.rand(1, 3, 8, 8))
    assert str(caught.value) == (
        "The model raised ArithmeticError in layer '1.1' (Picky), given (1, 4, 6, 6): of no use"
    )
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert model.training
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("model", [nn.Conv2d, {}, b"model.pt"])
def test_what_is_no_model(model):
    calls = (hookviz.explore, hookviz.trace, hookviz.attribution.scorecam, hookviz.attribute)
    for call, more in zip(calls, ((), (), ("0",), ("saliency",)), strict=True):
        with pytest.raises(TypeError, match="must be a torch.nn.Module, not (type|dict|bytes)"):
            call(model, torch.rand(1, 3, 4, 4), *more)


def test_other_errors(tmp_path):
    with pytest.raises(ValueError, match="no convolution layers"):
        hookviz.explore(nn.Linear(3, 2), torch.rand(1, 3))
    with pytest.raises(FileNotFoundError, match="check the path"):
        hookviz.explore(MODEL, tmp_path / "no.png")
    with pytest.raises(ValueError, match="is lazy and has no weights yet"):
        hookviz.explore(nn.Sequential(nn.LazyConv2d(3, 1)), torch.rand(1, 3, 4, 4))
    with pytest.raises(ValueError, match="NaN"):
        hookviz.explore(MODEL, torch.full((1, 3, 112, 112), torch.nan))
    with pytest.raises(ValueError, match="None of the layers ran: unused"):

        class Unused(nn.Module):
            def __init__(self):
                super().__init__()
                self.unused = nn.Conv2d(1, 1, 1)

            def forward(self, x):
                return x

        hookviz.explore(Unused(), torch.rand(1, 1, 2, 2))


# What a sceptical user tried


class Odd(nn.Module):
    """Returns whatever it was told to, beside its input."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what


class WithOdd(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.odd, self.conv = Odd(what), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        self.odd(x)
        return self.conv(x).mean((2, 3))


@pytest.mark.parametrize(
    "what", [None, "text", torch.tensor(1.0), torch.ones(3), torch.ones(0, 3, 2, 2)]
)
def test_layers_that_cannot_be_shown_are_passed_over(what):
    explorer = hookviz.explore(WithOdd(what), torch.rand(1, 3, 4, 4), layers=["odd", "conv"])
    assert explorer.layer == "conv"
    assert explorer.frame.layers == ["conv"]
    assert "layer" not in labels(explorer)
    if what is None or isinstance(what, str):
        assert explorer.cache["odd"].calls[0].outputs == ()
    with pytest.raises(traitlets.TraitError, match="layer='odd' cannot be shown: "):
        explorer.layer = "odd"
    assert explorer.layer == "conv"
    explorer.close()
    with pytest.raises(ValueError, match="Layer 'odd' cannot be shown"):
        hookviz.explore(WithOdd(what), torch.rand(1, 3, 4, 4), layers="odd")


def test_layers_that_do_not_depend_on_the_input_get_their_gradient():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.code = nn.Parameter(torch.rand(1, 2, 4, 4))
            self.own, self.conv = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return (self.own(self.code) * self.conv(x)).mean((2, 3))

    model, x = Constant(), torch.rand(1, 3, 4, 4)
    explorer = hookviz.explore(model, x, target=1)
    with hookviz.capture(model) as cache:
        model(x)[0, 1].backward()
    for name in ("own", "conv"):
        assert torch.equal(explorer.cache[name].gradient, cache[name].gradient)
    model.zero_grad()
    hookviz.explore(model, x).close()
    assert all(parameter.grad is None for parameter in model.parameters())
    explorer.close()


@pytest.mark.parametrize("wrap", [lambda x: ({"x": x},), lambda x: ([x],), lambda x: ((x,),)])
def test_nested_inputs_stay_as_they_are(wrap):
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, given):
            x = given["x"] if isinstance(given, dict) else given[0]
            with torch.no_grad():
                x.mul_(2)
            return self.conv(x).mean((2, 3))

    x = torch.rand(1, 3, 4, 4)
    kept = x.clone()
    explorer = hookviz.explore(Careless(), wrap(x))
    assert torch.equal(x, kept)
    assert explorer.frame.input is not None
    assert explorer.cache["conv"].gradient is not None
    explorer.close()


def test_a_failed_change_is_taken_back_whole(explorer):
    def broken(activation, gradient):
        if activation.shape[1] == 48:
            raise ArithmeticError("not this layer")
        return activation.mean(1)

    hookviz.attribution.HEATMAPS["broken"] = broken
    try:
        explorer.heatmap, explorer.layer = "broken", "layer3.0.conv1"
        explorer.channel = 95
        with pytest.raises(ArithmeticError):
            explorer.layer = "layer2.0.conv1"
        assert (explorer.layer, explorer.channel) == ("layer3.0.conv1", 95)
    finally:
        del hookviz.attribution.HEATMAPS["broken"]
    explorer.channel = 3  # the method is gone: Grad-CAM takes its place
    assert explorer.heatmap == "gradcam"


def test_windows_belong_to_their_sample():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 5, 1)

        def forward(self, x):
            windows = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
            return self.conv(windows).mean((2, 3)).view(len(x), 4, 5).mean(1)

    x = torch.rand(2, 3, 8, 8)
    explorer = hookviz.explore(Windows(), x, target=[2, 4])
    for row in range(8):
        explorer.sample = row
        assert explorer.frame.target == f"class {(2, 4)[row // 4]}"
        exact = (x[row // 4] * 255).round().byte().permute(1, 2, 0).numpy()
        assert (explorer.frame.input.pixels == exact).all()
    explorer.close()


def test_closing_from_an_observer(explorer):
    explorer.layer, explorer.channel = "layer3.0.conv1", 95
    explorer.observe(lambda change: explorer.close(), "channel")
    explorer.layer = "stem.0"
    assert explorer.closed
    with pytest.raises(RuntimeError, match="is closed"):
        explorer.layer = "layer3.0.conv1"
    explorer.close()


def test_odd_values(explorer):
    with pytest.raises(traitlets.TraitError, match="alpha=nan"):
        explorer.alpha = float("nan")
    for target in (3.5, True, [], {}):
        with pytest.raises((ValueError, traitlets.TraitError), match="none of"):
            explorer.target = target
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(64, 0))
    empty = hookviz.explore(model, torch.rand(1, 3, 4, 4))
    assert empty.frame.predictions == []
    empty.close()


def test_doubles_and_extremes_are_exact():
    conv = nn.Conv2d(1, 1, 1).double()
    nn.init.constant_(conv.weight, 1e200)
    nn.init.zeros_(conv.bias)
    explorer = hookviz.explore(conv, torch.linspace(0, 1, 16).double().view(1, 1, 4, 4))
    assert dict(explorer.frame.readings)["channel 0"][1] == ("max", "1e+200")
    assert "<th>Inf</th>" not in html(explorer, READINGS).value
    explorer.close()
