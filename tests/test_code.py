"""`Explorer.code`: what it gives is run, without hookviz, and compared with what is shown."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import OrderedDict
from functools import partial
from html import escape

import matplotlib.pyplot as plt
import numpy as np
import pytest
import timm
import torch
import torchvision
from matplotlib import cbook
from PIL import Image
from seen import control, html, says
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.draw.overlay import heat_colours, muted, upsample
from hookviz.run.inputs import prepare_input
from hookviz.view.settings import EFFECTIVE, PRODUCT

MODEL = hookviz.demo_model()
# The explorer runs a batch in other pieces than its code does. In float32 the sums then differ so
# much that a path takes another side of a ReLU, on some processors more often than on others.
PRECISE = hookviz.demo_model().double()
PICTURES = hookviz.demo_images()


def precise(*pictures):
    """These of the pictures, a quarter as high and wide, for the model of float64."""
    x = torch.cat([prepare_input(PICTURES[each], MODEL).args[0] for each in pictures])
    return x[..., ::4, ::4].double()


IMPORTS = (ast.Import, ast.ImportFrom)
METHODS = (*hookviz.attribution.HEATMAPS, PRODUCT, "saliency")
PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


@pytest.fixture(autouse=True)
def no_stills(monkeypatch):
    """The plain face's picture is not what is compared here, and one is drawn at each change."""
    monkeypatch.setattr("hookviz.widgets.explorer.still_png", lambda frame: b"")


@pytest.fixture(autouse=True)
def no_windows():
    before = plt.get_backend()
    plt.switch_backend("agg")
    with torch.random.fork_rng():  # the code for smoothgrad seeds
        yield
    plt.close("all")
    plt.switch_backend(before)


def run(code, **scope):
    """Run code in a namespace of its own; the axes it drew are in ``axes``."""
    assert not uses_hookviz(code)
    plt.close("all")
    model = scope.get("model")
    before = None if model is None else snapshot(model)
    namespace = dict(scope)
    exec(compile(code, "code", "exec", dont_inherit=True), namespace)
    assert model is None or snapshot(model) == before
    for axes in plt.gcf().axes:
        axes.set_axis_off()  # ticks are not compared, and take longer than all else that is drawn
    plt.gcf().canvas.draw()  # autoscaling and clipping happen here
    return namespace


def uses_hookviz(code):
    """Whether it is imported or named; a comment, or the path of a file, may well say it."""
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in getattr(node, "names", ()) if isinstance(node, IMPORTS)]
        names += [getattr(node, "module", None), getattr(node, "id", None)]
        if any(str(name).partition(".")[0] == "hookviz" for name in names):
            return True
    return False


def snapshot(model):
    modules = list(model.modules())
    return (
        [(m.training, len(m._forward_hooks), len(m._backward_hooks)) for m in modules],
        [(p.requires_grad, p.grad, p.detach().sum().item()) for p in model.parameters()],
    )


def close(got, wanted, tolerance=1e-5):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    scale = max(np.abs(np.nan_to_num(wanted)).max(), 1e-12)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)


def compare(explorer, tolerance=1e-5, **scope):
    """Run the explorer's code and hold all it drew against what the explorer shows."""
    code = explorer.code()
    namespace = run(code, **scope)
    frame = explorer.frame
    axes = plt.gcf().axes
    alone = frame.heatmap is not None and frame.overlay is None
    shown = frame.panels[: len(frame.panels) - alone]
    assert len(axes) == len(shown) + (frame.heatmap is not None)
    for each, panel in zip(axes, shown, strict=False):
        check_panel(each, panel, tolerance)
    if frame.heatmap is not None:
        heatmap = torch.as_tensor(namespace["heatmap"]).reshape(frame.heatmap.shape)
        close(heatmap, frame.heatmap, 2e-4)
        check_heatmap(axes[-1], frame, tolerance=2e-4)
    return namespace


def check_panel(axes, panel, tolerance):
    if axes.lines:
        close(axes.lines[0].get_ydata(), panel.values[0], tolerance)
        return
    (image,) = axes.images
    close(np.ma.getdata(image.get_array()), panel.values, tolerance)
    close((image.norm.vmin, image.norm.vmax), (panel.low, panel.high))
    assert image.cmap.name == panel.cmap


def check_heatmap(axes, frame, tolerance):
    if axes.lines:
        close(axes.lines[0].get_ydata(), frame.heatmap[0], tolerance)
        return
    if frame.overlay is None:
        check_panel(axes, frame.panels[-1], tolerance)
        return
    picture, *over = axes.images
    pixels = np.asarray(picture.get_array())
    pixels = pixels if pixels.dtype == np.uint8 else np.round(pixels * 255)
    gray, colours = pixels.ndim == 2, heat_colours(frame.heatmap)
    ground = muted(frame.input.pixels, 0 if colours is None else frame.settings.alpha)
    assert np.abs((pixels[..., None] if gray else pixels) - ground).max() <= 2
    if not gray:
        assert pixels.shape == frame.input.pixels.shape
    if colours is None:
        assert not over
        assert "zero everywhere" in axes.get_title()
        return
    name, low, high = colours
    values = upsample(frame.heatmap, *pixels.shape[:2])
    close(np.ma.getdata(over[0].get_array()), values, tolerance)
    close((over[0].norm.vmin, over[0].norm.vmax), (low, high), tolerance)
    assert over[0].cmap.name == name
    share = np.clip(np.nan_to_num(np.abs(values) / high, nan=1), 0, 1)
    close(over[0].get_alpha(), frame.settings.alpha * share, 2 * tolerance)


def ruff(code, *builtins):
    names = ", ".join(f'"{name}"' for name in builtins)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    command += ["--config", f"builtins = [{names}]", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + code


# The plain case


@pytest.fixture(scope="module")
def fish():
    explorer = hookviz.explore(MODEL, PICTURES[6], layer="layer3.0.conv1", target="fish")
    explorer.channel, explorer.alpha = 17, 0.35
    yield explorer
    explorer.close()


@pytest.mark.parametrize("method", METHODS)
def test_every_method(fish, method):
    explorer = fish
    explorer.heatmap, explorer.over_input = method, True
    compare(explorer, model=MODEL, image=PICTURES[6])
    explorer.over_input = False
    compare(explorer, model=MODEL, image=PICTURES[6])
    code = explorer.code()
    ruff(code, "model", "image")
    assert max(map(len, code.splitlines())) <= 88


def test_it_is_short_and_has_no_dead_line():
    model = hookviz.demo_model()  # hooks stay on it here
    explorer = hookviz.explore(model, PICTURES[6], layer="layer3.0.conv1", channel=17)
    code = explorer.code()
    lines = [line for line in code.splitlines() if line and not line.startswith(("#", "import"))]
    assert len([line for line in lines if not line.startswith("from")]) <= 30
    source = code.splitlines()
    for place, line in enumerate(source):
        if not line or line.lstrip().startswith(("#", "def")):
            continue
        if line in ("plt.show()", "model.eval()"):
            continue
        without = "\n".join(source[:place] + source[place + 1 :])
        with pytest.raises((AssertionError, Exception)):  # something is missing, or not drawn
            namespace = run(without, model=model, image=PICTURES[6])
            assert len(plt.gcf().axes) == 3
            assert [len(a.images) for a in plt.gcf().axes] == [1, 1, 2]
            check_heatmap(plt.gcf().axes[-1], explorer.frame, tolerance=2e-4)
            close(namespace["heatmap"], explorer.frame.heatmap)
    explorer.close()


CONVOLUTIONS = [name for name, module in MODEL.named_modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.parametrize("layer", CONVOLUTIONS[::3])
def test_layers(layer):
    explorer = hookviz.explore(MODEL, PICTURES[3], layer=layer)
    explorer.channel = explorer.frame.counts["channel"] - 1
    compare(explorer, model=MODEL, image=PICTURES[3])
    explorer.close()


@pytest.fixture(scope="module")
def coloured():
    explorer = hookviz.explore(MODEL, PICTURES[0], layers=(nn.Conv2d, nn.ReLU))
    yield explorer
    explorer.close()


@pytest.mark.parametrize("normalize", ["channel", "layer", "percentile", "symmetric"])
@pytest.mark.parametrize("cmap", ["auto", "magma"])
def test_colours(coloured, normalize, cmap):
    explorer = coloured
    explorer.cmap, explorer.normalize = cmap, normalize
    for layer in ("layer1.0.conv1", "layer2.0.relu"):
        explorer.layer, explorer.call = layer, 0
        compare(explorer, model=MODEL, image=PICTURES[0])


# What goes in


@pytest.mark.parametrize(
    "image",
    [
        PICTURES[0].resize((300, 211)),
        PICTURES[0].convert("L"),
        np.asarray(PICTURES[0].resize((150, 200))),
        np.asarray(PICTURES[0].convert("L")),
    ],
    ids=["larger", "gray", "array", "gray array"],
)
def test_pictures(image):
    explorer = hookviz.explore(MODEL, image)
    compare(explorer, model=MODEL, image=image)
    ruff(explorer.code(), "model", "image")
    explorer.close()


def test_files(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned
    PICTURES[0].resize((150, 120)).save(tmp_path / "turned.jpg", exif=exif)
    PICTURES[0].convert("P").save(tmp_path / 'it\'s a "palette".png')
    for path in (PHOTOGRAPH, tmp_path / "turned.jpg", str(tmp_path / 'it\'s a "palette".png')):
        explorer = hookviz.explore(MODEL, path)
        namespace = compare(explorer, model=MODEL)
        assert torch.equal(namespace["x"], explorer.inputs.args[0])
        ruff(explorer.code(), "model")
        explorer.close()


def test_what_cannot_be_said_shortly_is_taken_as_it_is(tmp_path):
    see_through = PICTURES[0].convert("RGBA")
    see_through.putalpha(100)
    gone = tmp_path / "gone.png"
    PICTURES[0].save(gone)

    def own(picture):
        return torchvision.transforms.functional.to_tensor(picture.resize((64, 64)))

    for image, options in ((see_through, {}), (gone, {}), (PICTURES[0], {"transform": own})):
        explorer = hookviz.explore(MODEL, image, **options)
        if image is gone:
            gone.unlink()
        assert "explorer.inputs.args[0]" in explorer.code()
        compare(explorer, model=MODEL, x=explorer.inputs.args[0])
        ruff(explorer.code(), "model", "x")
        explorer.close()


@pytest.mark.parametrize("name", ["resnet10t", "convnext_atto", "test_vit"])
def test_timm(name):
    model = timm.create_model(name, pretrained=False).eval()
    layers = "blocks.*" if "vit" in name else None
    explorer = hookviz.explore(model, PHOTOGRAPH, layers=layers)
    explorer.layer = explorer.frame.layers[1]
    compare(explorer, model=model)
    explorer.close()


def test_constants_are_short_and_exact():
    model = timm.create_model("resnet10t", pretrained=False).eval()
    own = {"mean": (127 / 255,) * 3, "std": (128 / 255, 0.5, 0.1)}
    model.pretrained_cfg = {**model.pretrained_cfg, **own}
    explorer = hookviz.explore(model, PHOTOGRAPH)
    mean, std = "[0.49803922, 0.49803922, 0.49803922]", "[0.5019608, 0.5, 0.1]"
    assert f"{mean}, {std})" in explorer.code()
    namespace = compare(explorer, model=model)
    assert torch.equal(namespace["x"], explorer.inputs.args[0])
    explorer.close()


def test_torchvision_weights():
    weights = torchvision.models.ResNet18_Weights.DEFAULT
    model = torchvision.models.resnet18(weights=None)
    explorer = hookviz.explore(model, PHOTOGRAPH, weights=weights, target="tabby")
    compare(explorer, model=model)
    assert 'score = model(x)[0, 281]  # "tabby"' in explorer.code()
    ruff(explorer.code(), "model")
    explorer.close()


def test_a_model_by_name(monkeypatch):
    model = torchvision.models.resnet18(weights=None)
    weights = torchvision.models.ResNet18_Weights.DEFAULT
    monkeypatch.setattr("hookviz.models.pretrained", lambda name, given: (model, weights))
    monkeypatch.setattr(
        torchvision.models, "get_model", lambda name, weights: {"resnet18": model}[name]
    )
    explorer = hookviz.explore("resnet18", PHOTOGRAPH)
    assert 'model = get_model("resnet18", weights="IMAGENET1K_V1")' in explorer.code()
    compare(explorer)
    ruff(explorer.code())
    explorer.close()


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("low_high", [(0, 1), (-2, 2), (-30, 90)])
def test_tensors_are_drawn_as_in_the_widget(channels, low_high):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.LazyLinear(3))
    low, high = low_high
    x = torch.rand(2, channels, 9, 7) * (high - low) + low
    model(x)
    explorer = hookviz.explore(model, x, sample=1)
    compare(explorer, model=model, x=x)
    assert not x.requires_grad
    explorer.close()


# Targets


def second_largest(output):
    return output.topk(2).values[:, 1].sum()


TARGETS = [None, 3, "FISH", ["fish", None, 1], ("moon", "star"), (6, 9, 0)]
TARGETS += [second_largest]


@pytest.mark.parametrize(
    ("target", "method"),
    [(target, "gradcam") for target in TARGETS]
    + [(target, "saliency") for target in (None, ["fish", None, 1], second_largest)],
)
def test_targets(target, method):
    x = precise(0, 6, 9)
    scope = {"target": target} if callable(target) else {}
    explorer = hookviz.explore(PRECISE, x, layer="layer2.0.conv2", target=target, heatmap=method)
    for explorer.sample in (0, 2):
        compare(explorer, model=PRECISE, x=x, **scope)
    ruff(explorer.code(), "model", "x", *scope)
    explorer.close()
    if not isinstance(target, list):
        explorer = hookviz.explore(PRECISE, x[1], target=target, heatmap=method)
        compare(explorer, model=PRECISE, x=explorer.inputs.args[0], **scope)
        explorer.close()


def test_no_target():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1)), torch.rand(1, 3, 5, 5)
    explorer = hookviz.explore(model, x)  # no classifier, so no gradient and no heatmap
    assert "heatmap" not in compare(explorer, model=model, x=x)
    assert "torch.no_grad()" in explorer.code()
    ruff(explorer.code(), "model", "x")
    explorer.close()


class Answer(nn.Module):
    """A classifier that puts its logits into a dict or an object."""

    def __init__(self, wrap):
        super().__init__()
        self.conv, self.wrap = nn.Conv2d(3, 5, 3), wrap

    def forward(self, image, times=1):
        return self.wrap(self.conv(image * times).relu().mean((2, 3)))


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize("wrap", [lambda x: {"logits": x}, lambda x: Output(x)])
@pytest.mark.parametrize("method", ["layercam", "saliency"])
def test_logits_inside_and_an_argument_by_name(wrap, method):
    model, x = Answer(wrap), torch.rand(2, 3, 8, 8)
    explorer = hookviz.explore(model, {"image": x}, target=2, heatmap=method, sample=1)
    assert "model(image=x)" in explorer.code()
    assert 'explorer.inputs.kwargs["image"]' in explorer.code()
    compare(explorer, model=model, x=x)
    explorer.close()


# Edits


def test_channels_that_are_scaled_or_off():
    x = precise(6)
    explorer = hookviz.explore(PRECISE, x, channel=1)
    explorer.edit("stem.0", 1.5)
    explorer.edit("layer1.0.conv1", 0, channels=3)
    explorer.edit("layer1.0.conv1", -2, channels=[1, 2])
    explorer.edit("layer2.0.conv1", 0.5, channels=slice(2, 5))
    explorer.edit("layer2.0.conv1", 0, channels=torch.tensor([7, 6]))
    for explorer.layer in ("stem.0", "layer1.0.conv1", "layer3.0.conv1"):
        compare(explorer, model=PRECISE, x=x)
    ruff(explorer.code(), "model", "x")
    explorer.shown_run = "original"
    assert "edit_0" not in explorer.code()
    compare(explorer, model=PRECISE, x=x)
    explorer.close()


# Layers and models of all kinds


LARGE = [
    pytest.param(name, marks=pytest.mark.heavy)
    for name in ("vgg11", "densenet121", "mobilenet_v3_small")
]


@pytest.mark.parametrize("name", ["squeezenet1_1", *LARGE])
def test_networks(name):
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).train()
    x = torch.randn(2, 3, 64, 64)
    explorer = hookviz.explore(model, x, sample=1)
    layers = list(explorer.cache)
    for layer in (layers[0], layers[len(layers) // 2], layers[-1]):
        explorer.layer = layer
        for method in ("gradcam", "saliency"):
            explorer.heatmap = method
            compare(explorer, tolerance=1e-4, model=model, x=x)
    assert model.training
    explorer.close()


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["vit_b_16", "swin_t"])
def test_tokens(name):
    torch.manual_seed(0)
    size = {"image_size": 64} if name == "vit_b_16" else {}
    model = torchvision.models.get_model(name, weights=None, **size).eval()
    x = torch.randn(1, 3, 64, 64)
    layers = "*.layers.encoder_layer_1" if name == "vit_b_16" else ["features.1.0", "features.2"]
    explorer = hookviz.explore(model, x, layers=layers, channel=5)
    for layer in explorer.frame.layers:
        explorer.layer = layer
        compare(explorer, tolerance=1e-4, model=model, x=x)
    explorer.close()


class Twice(nn.Module):
    """One convolution, run first without a graph, and then twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 1), nn.Linear(3, 4)

    def forward(self, x):
        with torch.no_grad():
            shift = self.conv(x).mean()
        return self.head(self.conv(self.conv(x + shift)).mean((2, 3)))


def test_calls():
    model, x = Twice(), torch.rand(2, 3, 6, 6)
    explorer = hookviz.explore(model, x, sample=1)
    for call in range(3):
        explorer.call = call
        compare(explorer, model=model, x=x)
    ruff(explorer.code(), "model", "x")
    explorer.close()


def test_features_half_precision_and_the_model_itself():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    x = torch.rand(2, 3, 6, 6)
    model(x)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model, x = model.to(dtype), x.to(dtype)
        explorer = hookviz.explore(model, x, layers=lambda name, module: True, sample=1)
        for layer in explorer.frame.layers:
            explorer.layer = layer
            compare(explorer, model=model, x=x)
        explorer.heatmap = "saliency"
        compare(explorer, model=model, x=x)
        explorer.close()


class FromParameters(nn.Module):
    """One convolution sees a parameter instead of the input."""

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.rand(1, 3, 6, 6))
        self.conv, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return (self.conv(self.position) * self.other(x)).mean((2, 3))


@pytest.mark.parametrize("method", ["gradcam", "saliency"])
def test_layers_that_do_not_see_the_input(method):
    model, x = FromParameters(), torch.rand(1, 3, 6, 6)
    for frozen in (False, True):
        model.other.requires_grad_(not frozen)
        explorer = hookviz.explore(model, x, heatmap=method)
        for layer in ("conv", "other"):
            explorer.layer = layer
            compare(explorer, model=model, x=x)
        explorer.close()


@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
def test_training_flags(mode):
    model = hookviz.demo_model().train(mode != "eval")
    if mode == "mixed":
        model.layer1.eval()
    explorer = hookviz.explore(model, PICTURES[6], layer="layer2.0.conv1")
    compare(explorer, model=model, image=PICTURES[6])  # run() compares the flags
    ruff(explorer.code(), "model", "image")
    explorer.close()


def test_wrappers():
    torch.manual_seed(0)
    head = nn.Flatten(), nn.Linear(4 * 36, 3)
    core = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), *head).eval()
    x = torch.rand(1, 3, 8, 8)
    for model in (nn.DataParallel(core), torch.compile(core, backend="eager")):
        explorer = hookviz.explore(model, x, layer="0")
        compare(explorer, model=model, x=x)
        explorer.close()


def test_a_layer_over_the_budget():
    with pytest.warns(RuntimeWarning, match="max_bytes"):
        explorer = hookviz.explore(MODEL, PICTURES[6], max_bytes=1_000_000)
    explorer.layer = explorer.cache.over_budget[-1]
    compare(explorer, model=MODEL, image=PICTURES[6])
    explorer.close()


def test_dead_channels_and_empty_heatmaps():
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.weight[2], conv.bias[2] = 0, 0
    model = nn.Sequential(conv, nn.ReLU(), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.LazyLinear(3))
    x = torch.rand(1, 3, 8, 8)
    model(x)
    explorer = hookviz.explore(model, x, layer="0", channel=2, layers=(nn.Conv2d, nn.ReLU))
    for layer in ("0", "1"):
        explorer.layer = layer
        for method in (PRODUCT, "xgradcam", "gradcam++"):
            explorer.heatmap = method
            for explorer.over_input in (True, False):
                compare(explorer, model=model, x=x)
    explorer.close()


# The heatmap's function


def test_a_function_of_ones_own_is_taken(own_methods):
    nasty = "\nraise SystemExit('out')\n#"
    hookviz.attribution.HEATMAPS[nasty] = lambda activation: activation.amax(1)
    hookviz.attribution.HEATMAPS["layercam"] = partial(lambda a, g, by: a[:, by] * g[:, 0], by=1)
    for name in (nasty, "layercam"):
        explorer = hookviz.explore(MODEL, PICTURES[6], heatmap=name)
        assert "# method: your function: hookviz.attribution.HEATMAPS[" in explorer.code()
        method = hookviz.attribution.HEATMAPS[name]
        compare(explorer, model=MODEL, image=PICTURES[6], method=method)
        ruff(explorer.code(), "model", "image", "method")
        explorer.close()


# Names that try to be code

NASTY = [
    "'", '"', '"""', "\\", "\n", "\r", "\u2028", "\x0c", "#", "{0}", "%s", "$x$",
    "'); raise SystemExit('out", '"); raise SystemExit("out', "\nraise SystemExit('out')\n#",
    "</code><script>", "ünïcode \ud83d", "it's \"both\"\n",
]  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_names_stay_names(name, tmp_path):
    model = nn.Sequential(OrderedDict({name.replace(".", "_"): nn.Conv2d(3, 4, 3)}), *[])
    model.add_module("flat", nn.Flatten())
    x = torch.rand(1, 3, 6, 6)
    explorer = hookviz.explore(model, x, class_names=[name] * 64, target=3)
    compare(explorer, model=model, x=x)
    code = explorer.code()
    ast.parse(code)
    assert not {"SystemExit", "script"} & {
        node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)
    }
    explorer.close()


def test_functions_with_nasty_names():
    def score(output):
        return output.sum()

    score.__name__ = "\nraise SystemExit('out')\n"
    explorer = hookviz.explore(MODEL, PICTURES[6], target=score)
    compare(explorer, model=MODEL, image=PICTURES[6], target=score)
    explorer.close()


# Rare views


class Recomputing(torch.autograd.Function):
    @staticmethod
    def forward(context, x, layer):
        context.layer = layer
        context.save_for_backward(x)
        return layer(x)

    @staticmethod
    def backward(context, gradient):
        x = context.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(context.layer(x), x, gradient)[0], None


class Labelled(torch.Tensor):
    """A tensor class, as libraries have them that carry notes along with the values."""


class Through(nn.Module):
    """A convolution ``conv`` that is called in a way of its own."""

    def __init__(self, call, conv=None):
        super().__init__()
        self.conv, self.call = nn.Conv2d(3, 3, 1) if conv is None else conv, call

    def forward(self, *args):
        return self.call(self.conv, *args).mean((2, 3))


class Pair(nn.Conv2d):
    def forward(self, x):
        return None, super().forward(x)


class NaNs(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * torch.nan


X = torch.rand(1, 3, 4, 4)
PLAIN = Through(lambda conv, x: conv(x).relu())
RARE = {
    "reentrant checkpointing": (Through(partial(checkpoint, use_reentrant=True)), X, {}),
    "backward runs it again": (Through(lambda conv, x: Recomputing.apply(x, conv)), X, {}),
    "parts are compiled": (
        Through(lambda conv, x: conv(x), torch.compile(nn.Conv2d(3, 4, 1), backend="eager")),
        X,
        {},
    ),
    "returns more than a tensor": (Through(lambda conv, x: conv(x)[1], Pair(3, 4, 1)), X, {}),
    "no batch dimension": (Through(lambda conv, x: conv(x[0])[None]), X, {}),
    "tensors of other classes": (Through(lambda conv, x: conv(x)), X.as_subclass(Labelled), {}),
    "several arguments": (Through(lambda conv, x, shift: conv(x) + shift), (X, X), {}),
    "volumes": (
        Through(lambda conv, x: conv(x).mean(2), nn.Conv3d(3, 4, 1)),
        torch.rand(1, 3, 2, 4, 4),
        {},
    ),
    "input of whole numbers": (
        Through(lambda conv, x: conv(x)[..., None, None], nn.Embedding(9, 4)),
        torch.randint(9, (1,)),
        {},
    ),
    "one class against others": (MODEL, PICTURES[6], {"target": [("moon", "star")]}),
    "NaN or infinite values": (Through(lambda conv, x: conv(x), NaNs(3, 4, 1)), X, {}),
    **{
        f"'{method}': hookviz.attribute": (PLAIN, X, {"heatmap": method})
        for method in hookviz.attribution.ATTRIBUTIONS
        if method != "saliency"
    },
    "effective field takes more": (MODEL, PICTURES[6], {"heatmap": EFFECTIVE}),
}


@pytest.mark.parametrize("words", RARE)
def test_rare_views_are_refused_in_one_sentence(words):
    model, image, options = RARE[words]
    layers = None if model is MODEL else "conv*"
    explorer = hookviz.explore(model, image, layers=layers, **{"target": 1, **options})
    with pytest.raises(ValueError, match=f"^No short code exists for .*{words}") as error:
        explorer.code()
    assert str(error.value).endswith(".") and ":" in str(error.value)
    control(explorer, "code for this view").value = True
    assert says(explorer, escape(words))
    explorer.channel = 1  # goes on all the same
    explorer.close()


@pytest.mark.parametrize(
    ("change", "where"), [("mean", None), (torch.tanh, None), (torch.ones(1), None), (0, 1)]
)
def test_other_edits_are_refused_in_one_sentence(change, where):
    explorer = hookviz.explore(MODEL, PICTURES[6])
    explorer.edit("stem.0", change, channels=2, where=where)
    with pytest.raises(ValueError, match="No short code exists for the edit of stem.0, channel 2"):
        explorer.code()
    explorer.shown_run = "difference"
    with pytest.raises(
        ValueError, match="No short code exists for a difference: set shown_run='edited'"
    ):
        explorer.code()
    explorer.close()


def test_a_closed_explorer():
    explorer = hookviz.explore(MODEL, PICTURES[0])
    explorer.close()
    with pytest.raises(RuntimeError, match="closed"):
        explorer.code()


# In the widget


def test_the_button(monkeypatch):
    explorer = hookviz.explore(MODEL, PICTURES[6])
    asked = []
    code = hookviz.widgets.Explorer.code
    monkeypatch.setattr(
        hookviz.widgets.Explorer, "code", lambda self: asked.append(self) or code(self)
    )
    explorer.channel = 3
    assert asked == []
    assert not says(explorer, "<pre")
    button = control(explorer, "code for this view")
    button.value = True
    for channel in (5, 6):
        explorer.channel = channel
        assert f"activation[0, {channel}]" in html(explorer, "<pre").value
    button.value = False
    assert not says(explorer, "<pre")
    before = len(asked)
    explorer.channel = 7
    assert len(asked) == before
    explorer.close()


def test_text_is_escaped_in_the_page():
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Conv2d(3, 4, 1))
    explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2))
    control(explorer, "code for this view").value = True
    text = html(explorer, "<pre").value
    assert "<img" not in text
    assert "&lt;img" in text
    explorer.close()


def test_the_model_does_not_run_for_it(monkeypatch):
    explorer = hookviz.explore(MODEL, PICTURES[6])
    monkeypatch.setattr(MODEL, "forward", lambda *_: pytest.fail("the model ran"))
    explorer.code()
    explorer.close()
