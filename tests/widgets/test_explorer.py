"""The explorer without a browser: settings, figures, targets, errors, and cleaning up."""

import base64
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import traitlets
from architectures import model_of
from PIL import Image
from reference import assert_exact, true_outputs
from seen import HEADING, NOTE, control, html, labels, overlapping_texts, registered, says
from torch import nn

import hookviz
from hookviz import explore
from hookviz.draw.colours import DIVERGING
from hookviz.run.inputs import prepare_input
from hookviz.view.health import overview_of
from hookviz.view.settings import PRODUCT
from hookviz.widgets.canvas import Canvas

MODEL = hookviz.demo_model()
PICTURES = hookviz.demo_images()


@pytest.fixture
def explorer():
    return explore(MODEL, PICTURES[6], layer="stem.0")


# What is shown


def test_the_shown_values_are_those_of_the_model(explorer):
    x = prepare_input(PICTURES[6], MODEL).args[0].requires_grad_()
    with true_outputs(MODEL) as truths:
        MODEL(x)[0, 6].backward()
    MODEL.zero_grad()
    assert assert_exact(explorer.cache, truths) == 15
    explorer.layer, explorer.channel = "layer2.0.conv1", 11
    output = truths["layer2.0.conv1"][0]
    values, slopes = output[0, 11].detach(), output.grad[0, 11]
    shown, gradient = explorer.frame.panels[:2]
    assert (shown.values == values.numpy()).all() and (gradient.values == slopes.numpy()).all()
    edge = values.abs().max().item()
    assert (shown.cmap, shown.low, shown.high) == (DIVERGING, -edge, edge)
    edge = slopes.abs().max().item()  # an outlier at a few positions
    assert gradient.note.endswith(f"the largest is {edge:.3g}") and gradient.high < edge / 2
    explorer.normalize = "symmetric"
    assert (explorer.frame.panels[1].low, explorer.frame.panels[1].high) == (-edge, edge)
    assert "48×28×28" in html(explorer, HEADING).value


def test_changing_settings_does_not_run_the_model(explorer, monkeypatch):
    monkeypatch.setattr(nn.Module, "__call__", lambda *_: pytest.fail("the model ran"))
    for name in list(explorer.cache)[::4]:
        explorer.layer = name
        for setting in ("channel", "sample", "call", "depth"):
            setattr(explorer, setting, explorer.frame.counts[setting] - 1)
        for order in ("mean", "max", "zeros", "gradient", "index"):
            explorer.order = order
        for normalize in ("layer", "percentile", "symmetric", "channel"):
            explorer.normalize = normalize
        for explorer.heatmap in (*hookviz.attribution.HEATMAPS, PRODUCT):
            explorer.all_layers = not explorer.all_layers


def test_silent_and_constant_channels_are_counted():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.bias[:2] = conv.weight[:3] = 0
        conv.bias[2] = 1
    explorer = explore(conv, torch.rand(1, 3, 8, 8), channel=1)
    assert explorer.frame.tiles.caption.endswith("2 silent, 1 constant, crossed out")
    assert explorer.frame.panels[0].note == "zero everywhere"
    details = "No NaN or Inf in 1 layer, on 1 picture."  # near-zero weights are no fault
    assert explorer.frame.verdict == ("No problems found", "good", None, details)
    conv.weight.data[0], conv.bias.data[0] = -1.0, -100.0
    model = nn.Sequential(conv, nn.ReLU(), nn.Conv2d(4, 4, 1, groups=4, bias=False))
    explorer = explore(model, torch.rand(1, 3, 8, 8), layers=["0", "1", "2"], layer="2")
    cells = overview_of(explorer.displayed())
    assert [(cell.silent, cell.channels) for cell in cells] == [(1, 4), (2, 4), (2, 4)]
    assert explorer.frame.verdict.kind == "good"
    # A map of one position is not constant.
    head = explore(nn.Sequential(nn.Flatten(), nn.Linear(8, 5)), torch.rand(1, 8), layers="1")
    assert "constant" not in head.frame.tiles.caption


def test_unsigned_data_gets_a_sequential_colormap():
    shown, gradient = explore(MODEL, PICTURES[0], layers=nn.ReLU).frame.panels[:2]
    assert (shown.cmap, gradient.cmap, gradient.low) == ("viridis", DIVERGING, -gradient.high)


def test_nan_and_inf_are_counted():
    class Bad(nn.Conv2d):
        def forward(self, x):
            out = super().forward(x)
            out[0, 0, 0, :2] = torch.tensor([torch.nan, torch.inf])
            return out

    explorer = explore(Bad(3, 2, 1), torch.rand(1, 3, 4, 4), torch.sum, channel=0)
    assert explorer.frame.panels[0].note == "1 NaN (magenta), 1 Inf (+ green, − cyan)"


def test_nan_leaves_no_predicted_class():
    model = hookviz.demo_model()
    with torch.no_grad():
        model.layer3[0].conv1.weight[3] = torch.nan
    explorer = explore(model, PICTURES[6], layer="layer3.0.conv1", channel=3)
    assert (explorer.frame.predictions, explorer.frame.target) == ([], "NaN scores")
    assert (
        list(control(explorer, "target").options)[1] == "ball"
    )  # the first class, not a prediction
    details = "NaN in 4 of 15 layers, first in layer3.0.conv1."
    assert explorer.frame.verdict == ("NaN in 4 layers", "bad", "layer3.0.conv1", details)


def test_the_overview_has_the_size_and_block_of_each_layer(explorer):
    cells = overview_of(explorer.displayed())
    assert [cell.name for cell in cells] == list(explorer.cache)
    for cell in cells:
        record = explorer.cache[cell.name]
        for name in ("activation", "gradient"):
            exact = getattr(record, name).double().pow(2).mean().sqrt().item()
            assert getattr(cell, name) == pytest.approx(exact, rel=1e-5)
        assert cell.side == record.activation.shape[-1]
    assert [cell.block for cell in cells[:2]] == ["stem", "layer1"]


# Models of all kinds


def test_layers_over_the_memory_budget_are_computed_when_selected():
    with pytest.warns(RuntimeWarning, match="went over max_bytes"):
        small = explore(MODEL, PICTURES[6], max_bytes=1_000_000)
    whole = explore(MODEL, PICTURES[6])
    assert small.cache.nbytes <= 1_000_000 and 0 < len(small.cache.over_budget) < 15
    for name in whole.cache:
        small.layer = whole.layer = name
        for one, other in zip(small.frame.panels, whole.frame.panels, strict=True):
            assert (one.values == other.values).all()


def test_layers_that_do_not_depend_on_the_input_get_their_gradient():
    model, x = (
        model_of(
            lambda m, x: (m.own(m.code) * m.conv(x)).mean((2, 3)),
            code=nn.Parameter(torch.rand(1, 2, 4, 4)),
            own=nn.Conv2d(2, 3, 1),
            conv=nn.Conv2d(3, 3, 1),
        ),
        torch.rand(1, 3, 4, 4),
    )
    explorer = explore(model, x, target=1)
    assert all(parameter.grad is None for parameter in model.parameters())
    with hookviz.capture(model) as cache:
        model(x)[0, 1].backward()
    for name in ("own", "conv"):
        assert torch.equal(explorer.cache[name].gradient, cache[name].gradient)


class WithConstantLayer(nn.Module):
    """A model with a convolution and a layer that returns a constant."""

    def __init__(self, value):
        super().__init__()
        self.odd, self.conv = nn.Identity(), nn.Conv2d(3, 4, 1)
        self.odd.forward = lambda x: value

    def forward(self, x):
        self.odd(x)
        return self.conv(x).mean((2, 3))


@pytest.mark.parametrize("value", ["text", torch.ones(3), torch.ones(0, 3, 2, 2)])
def test_layers_without_maps_are_skipped(value):
    explorer = explore(WithConstantLayer(value), torch.rand(1, 3, 4, 4), layers=["odd", "conv"])
    assert explorer.layer == "conv" and explorer.frame.layers == ["conv"]
    assert "layer" not in labels(explorer)
    with pytest.raises(traitlets.TraitError, match="layer='odd' cannot be shown: "):
        explorer.layer = "odd"
    with pytest.raises(ValueError, match="Layer 'odd' cannot be shown"):
        explore(WithConstantLayer(value), torch.rand(1, 3, 4, 4), layers="odd")


# Targets


def test_the_five_top_classes_are_listed(explorer):
    with torch.no_grad():
        exact = MODEL(prepare_input(PICTURES[6], MODEL).args[0]).softmax(1)[0]
    best, ranked = exact.topk(5), explorer.frame.predictions
    assert [each.number for each in ranked] == best.indices.tolist()
    assert [each.value for each in ranked] == pytest.approx(best.values.tolist())
    assert (ranked[0].name, ranked[0].words) == ("moon", f"{100 * ranked[0].value:.1f} %")
    listed = control(explorer, "target").options
    assert list(listed[1:6]) == [f"{each.name} · {each.words}" for each in ranked]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (10, "target=10 is not a class of this model: its classes are 0 to 9"),
        ("mooon", "No class is called 'mooon'; close to it: 'moon'"),
        (2.5, "target=2.5 is none of"),
        (True, "none of"),
        ([], "none of"),
        (lambda output: output, r"returned shape \(1, 10\), not one number"),
        (lambda output: [output[0, 1]], r"returned \[tensor\(.*\], not one number"),
        (lambda output: 3, "returned a number without a gradient"),
        (lambda output: output.detach().sum(), "without a gradient"),
    ],
)
def test_invalid_targets_are_refused(explorer, target, words):
    before = explorer.cache
    with pytest.raises(ValueError, match=words):
        explorer.target = target
    assert explorer.target is None and explorer.cache is before
    with pytest.raises(ValueError, match=words):
        explore(MODEL, PICTURES[0], target=target)


TWO_CRANES = ["crane", "crane", "Moon", "moon", *"abcdef"]


def test_a_name_of_several_classes_is_refused_as_a_target():
    words = "2 classes are called 'crane', 0, 1: give the number of one"
    for target in ("crane", ("moon", "crane"), "moon - crane", ["crane"]):
        with pytest.raises(ValueError, match=words):
            explore(MODEL, PICTURES[0], target=target, class_names=TWO_CRANES)
    explorer = explore(MODEL, PICTURES[0], target="moon", class_names=TWO_CRANES)  # not "Moon"
    assert torch.equal(gradient_of(explorer), gradient_of(explore(MODEL, PICTURES[0], target=3)))
    with pytest.raises(ValueError, match=words):
        explorer.target = "crane"
    for number in (0, 1):
        explorer.target = number
        assert explorer.frame.target == f"crane ({number})"
        assert explorer.settings()["target"] == number


def gradient_of(explorer):
    return explorer.cache["layer3.1.conv2"].gradient


def test_targets_of_models_without_class_names_or_scores_are_refused():
    flat = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten())
    with pytest.raises(ValueError, match="no class names are known"):
        explore(flat, torch.rand(1, 3, 2, 2), target="cat")
    with pytest.raises(ValueError, match="needs class scores .* give a number in it as target"):
        explore(nn.Conv2d(3, 2, 1), torch.rand(1, 3, 2, 2), target=1)


# Settings and controls


def test_unknown_settings_are_refused(explorer):
    count = len(registered())
    with pytest.raises(TypeError, match="Unknown setting 'chanel'; close to it: 'channel'"):
        explore(MODEL, PICTURES[0], chanel=3)
    with pytest.raises(AttributeError, match="Unknown setting 'chanel'; close to it: 'channel'"):
        explorer.chanel = 3
    with pytest.raises(traitlets.TraitError):
        explore(MODEL, PICTURES[0], channel=99)
    assert len(registered()) == count


def test_controls_set_the_explorer(explorer):
    controls = labels(explorer)
    controls["layer"].value = 4
    assert explorer.layer == list(explorer.cache)[4]
    explorer.channel = 7
    controls["order"].value = "max"
    best = explorer.cache[explorer.layer].activation[0].amax((1, 2)).argmax().item()
    assert explorer.channel == best  # the first channel in the new order
    rank = control(explorer, "rank")
    assert (rank.min, rank.value, rank.max) == (1, 1, len(explorer.frame.channels))
    assert says(explorer, f"rank 1 of {rank.max} by largest maximum: channel {best}")
    rank.value = 3
    assert explorer.channel == explorer.frame.channels[2]
    explorer.channel = 0
    assert rank.value == explorer.frame.channels.tolist().index(0) + 1
    controls["heatmap"].value, controls["opacity"].value = "layercam", 30
    assert (explorer.heatmap, explorer.alpha) == ("layercam", 0.3)
    controls["target"].value = controls["target"].options[2]
    assert explorer.target == explorer.frame.predictions[1].number
    assert "run" not in labels(explorer) and "depth" not in labels(explorer)
    explorer.edit(change=0)
    control(explorer, "run").value = "difference"
    assert explorer.shown_run == "difference"


def test_a_class_can_be_typed_by_name_or_number(explorer):
    field = control(explorer, "target")
    for typed, target in (("fish", 2), ("3", 3), ("Moon", "Moon"), ("top prediction", None)):
        field.value = typed
        assert (explorer.target, field.value) == (target, "")
    assert len(field.options) == 1 + 5 + 10
    field.value = "mooon"
    assert "close to it" in html(explorer, NOTE).value
    assert explorer.target is None


def test_an_error_in_a_control_is_shown(explorer, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the <model> broke")

    monkeypatch.setattr(MODEL, "forward", fail)
    field = control(explorer, "target")
    field.value = field.options[2]
    assert "the <model> broke" in explorer.frame.note
    assert "the &lt;model&gt; broke" in html(explorer, NOTE).value
    assert (explorer.target, field.value, field.placeholder) == (None, "", "moon")
    explorer.channel = 3
    assert explorer.frame.note == "" and not says(explorer, NOTE)


def test_tiles_of_many_channels_are_paged():
    explorer = explore(nn.Conv2d(3, 300, 1), torch.rand(1, 3, 7, 7), torch.sum, channel=256)
    tiles = explorer.frame.tiles
    assert (tiles.page, tiles.pages) == (2, 3)
    assert tiles.caption.startswith("channels 256–299 of 300")
    assert tiles.channels.tolist() == list(range(256, 300))
    explorer.channel = 130
    tiles = explorer.frame.tiles
    assert (tiles.page, tiles.place, len(tiles.channels)) == (1, 2, 128)


def test_a_new_picture_or_new_weights_keep_the_view():
    model, at = hookviz.demo_model(), {"layer": "layer2.0.conv1", "channel": 11}
    explorer = explore(model, PICTURES[6], "fish", heatmap="layercam", **at)
    explorer.image = PICTURES[12]
    twin = explore(model, PICTURES[12], "fish")
    assert (explorer.channel, explorer.heatmap) == (11, "layercam")
    name = "layer3.0.conv1"
    assert torch.equal(explorer.cache[name].gradient, twin.cache[name].gradient)
    assert explorer.frame.predictions == twin.frame.predictions
    assert (explorer.frame.input.pixels == twin.frame.input.pixels).all()
    with torch.no_grad():
        model.stem[0].weight.mul_(2)
    before = explorer.cache["stem.0"].activation
    explorer.refresh()
    assert torch.allclose(explorer.cache["stem.0"].activation, 2 * before, atol=1e-5)
    assert explorer.channel == 11
    with pytest.raises(FileNotFoundError):
        explorer.image = "no such picture.png"
    assert explorer.image is PICTURES[12]


def test_linked_explorers_keep_their_layer_if_one_cannot_follow(explorer):
    other = explore(MODEL, PICTURES[7], layers=["stem.0", "layer1.0.conv1"], layer="stem.0")
    for name in ("layer", "channel"):
        traitlets.link((explorer, name), (other, name))
    explorer.channel = 5
    with pytest.raises(traitlets.TraitError, match="was not captured"):
        explorer.layer = "layer3.0.conv1"
    assert explorer.layer == other.layer == explorer.frame.settings.layer == "stem.0"
    assert (explorer.channel, other.channel) == (5, 5)
    explorer.layer = "layer1.0.conv1"
    assert other.layer == "layer1.0.conv1"


def test_a_failed_change_restores_all_settings(explorer):
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
    explorer.channel = 3  # the method was removed, so Grad-CAM replaces it
    assert explorer.heatmap == "gradcam"


# The plain face


def picture_widget_of(explorer):
    return html(explorer, '<img class="smooth"')


@pytest.fixture
def front_end(monkeypatch):
    """Pretend that a browser may show any widget, as in a kernel."""
    monkeypatch.setattr("hookviz.widgets.plain.in_front_end", lambda widget: True)


def test_the_plain_face_redraws_only_after_changes(front_end, explorer):
    drawn = []
    picture_widget_of(explorer).observe(lambda change: drawn.append(change["new"]), "value")
    explorer.say("a word")
    assert says(explorer, "a word") and drawn == []
    explorer.channel = 5
    assert len(drawn) == 1 and "channel 5 of 24" in drawn[0]
    explorer.layer = "layer3.0.conv1"
    assert len(drawn) == 2
    control(explorer, "channel").value = 7
    assert explorer.channel == 7 and len(drawn) > 2


def test_without_a_kernel_pictures_are_drawn_on_request(explorer, monkeypatch):
    made = []
    monkeypatch.setattr("hookviz.widgets.faces.still_png", lambda frame: made.append(1) or b"")
    explorer.channel, explorer.layer = 5, "layer3.0.conv1"
    assert made == []
    explorer._repr_mimebundle_()
    assert made == [1]


def test_a_face_can_be_chosen(front_end, monkeypatch):
    monkeypatch.delenv("HOOKVIZ_CANVAS", raising=False)
    assert says(explore(MODEL, PICTURES[6], face="plain"), '<img class="smooth"')
    assert picture_widget_of(explore(MODEL, PICTURES[6]))
    canvas = explore(MODEL, PICTURES[6], face="canvas")
    canvas.channel, canvas.layer = 5, "layer3.0.conv1"
    (drawn, *_) = canvas.children
    assert isinstance(drawn, Canvas) and drawn.settings["layer"] == "layer3.0.conv1"
    with pytest.raises(ValueError, match="face='core' is unknown: give 'canvas', 'plain' or None"):
        explore(MODEL, PICTURES[6], face="core")


# Figures


def test_a_figure_has_the_values_and_is_not_registered_with_pyplot(explorer):
    explorer.layer, explorer.channel = "layer3.1.conv2", 17
    figures = plt.get_fignums()
    figure = explorer.figure()
    exact = explorer.cache["layer3.1.conv2"].activation[0, 17].numpy()
    assert (figure.axes[1].images[0].get_array() == exact).all()
    assert "layer3.1.conv2" in figure.get_suptitle()
    assert plt.get_fignums() == figures


@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (1, 3, 20, 180), (1, 3, 150, 20), (2, 2, 90)])
def test_nothing_overlaps_in_a_figure(shape):
    torch.manual_seed(0)
    convolution = (nn.Conv1d if len(shape) == 3 else nn.Conv2d)(shape[1], 4, 3)
    model, x = nn.Sequential(convolution, nn.Flatten(), nn.LazyLinear(2)), torch.rand(shape)
    model(x)
    names = ["a class whose name is longer than a picture is wide, with $x$"] * 2
    figure = explore(model, x, layer="0", class_names=names).figure()
    assert overlapping_texts(figure) == []
    for axes in figure.axes:
        for bar in axes.child_axes:
            assert bar.bbox.height == pytest.approx(axes.bbox.height)


@pytest.mark.parametrize("size", [(2000,), (3, 2000)])
@pytest.mark.parametrize("column", [9, 1000, 1999])
def test_positions_narrower_than_a_pixel_are_marked_in_the_still_picture(size, column):
    kind = nn.Conv1d if len(size) == 1 else nn.Conv2d
    model = nn.Sequential(kind(1, 2, 1), nn.Flatten(), nn.LazyLinear(3))
    inputs = torch.rand(1, 1, *size)
    model(inputs)
    explorer = explore(model, inputs, position=(len(size) - 1, column))
    data, _ = explorer._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    assert (np.asarray(picture) == (255, 140, 0)).all(-1).any()  # the accent


def test_views_are_saved_as_png_svg_or_pdf(explorer, tmp_path):
    for suffix, start in {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}.items():
        explorer.save(tmp_path / f"dollar$.{suffix}", dpi=50)
        assert start in (tmp_path / f"dollar$.{suffix}").read_bytes()[:100]
    with pytest.raises(ValueError, match=r"Cannot save as '.gif': end the name in .png, .svg"):
        explorer.save(tmp_path / "view.gif")


def test_the_output_of_a_notebook_has_a_picture(explorer):
    data, metadata = explorer._repr_mimebundle_()
    assert Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).size[0] > 300
    assert metadata["image/png"]["alt"] == data["text/plain"]
    assert f"channel {explorer.channel} of 24 of layer stem.0 (Conv2d)" in data["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in data


# Cleaning up


def test_closed_explorers_leave_no_widgets_figures_or_hooks():
    count, figures = len(registered()), plt.get_fignums()
    for _ in range(3):  # tests/limits opens two hundred
        explorer = explore(MODEL, PICTURES[0], layers="stem.*")
        explorer.channel = 3
        explorer.close()
        explorer.close()
    assert len(registered()) == count and plt.get_fignums() == figures
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in MODEL.modules())
    with pytest.raises(RuntimeError, match="closed"):
        _ = explorer.cache


def test_an_observer_may_close_the_explorer(explorer):
    explorer.layer, explorer.channel = "layer3.0.conv1", 95
    explorer.observe(lambda change: explorer.close(), "channel")
    explorer.layer = "stem.0"
    assert explorer.closed
    with pytest.raises(RuntimeError, match="is closed"):
        explorer.layer = "layer3.0.conv1"


# Errors


@pytest.mark.parametrize(
    ("model", "inputs", "error", "words"),
    [
        (nn.Linear(3, 2), torch.rand(1, 3), ValueError, "no convolution layers"),
        (MODEL, "no.png", FileNotFoundError, "check the path"),
        (nn.LazyConv2d(3, 1), torch.rand(1, 3, 4, 4), ValueError, "is lazy and has no weights yet"),
        (MODEL, torch.full((1, 3, 112, 112), torch.nan), ValueError, "NaN"),
        (
            model_of(lambda m, x: x, unused=nn.Conv2d(1, 1, 1)),
            torch.rand(1, 1, 2, 2),
            ValueError,
            "None of the layers ran: unused",
        ),
    ],
)
def test_errors_before_the_first_view_are_clear(model, inputs, error, words):
    with pytest.raises(error, match=words):
        explore(model, inputs)
