"""`Explorer.code`: what it gives is run, without hookviz, and compared with what is shown."""

from __future__ import annotations

import ast
import importlib
import linecache
import re
import subprocess
import sys
from collections import OrderedDict
from html import unescape
from operator import is_
from pathlib import Path

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
from torch.nn.functional import interpolate
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.draw.overlay import heat_colours, muted, upsample
from hookviz.run.inputs import prepare_input
from hookviz.view.settings import PRODUCT

ROOT = Path(__file__).parent.parent
MODEL = hookviz.demo_model()
# The explorer runs a batch in other pieces than its code does. In float32 the sums then differ so
# much that a path takes another side of a ReLU, on some processors more often than on others.
PRECISE = hookviz.demo_model().double()
PICTURES = hookviz.demo_images()
IMPORTS = (ast.Import, ast.ImportFrom)
METHODS = (*hookviz.attribution.HEATMAPS, PRODUCT, *hookviz.attribution.ATTRIBUTIONS)
PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


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


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("import torch, hookviz as h", True),
        ("from hookviz.inputs import prepare_input", True),
        ("model = hookviz.demo_model()", True),
        ("# as hookviz shows it\nimage = Image.open('hookviz/hookviz.png')", False),
    ],
)
def test_use_of_hookviz_is_seen(code, used):
    assert uses_hookviz(code) == used


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method):
    explorer = hookviz.explore(MODEL, PICTURES[6], layer="layer3.0.conv1", target="fish")
    explorer.channel, explorer.heatmap, explorer.alpha = 17, method, 0.35
    compare(explorer, model=MODEL, image=PICTURES[6])
    explorer.overlay = False
    compare(explorer, model=MODEL, image=PICTURES[6])
    code = explorer.code()
    ruff(code, "model", "image")
    assert max(map(len, code.splitlines())) <= 88
    explorer.close()


def test_it_is_short_and_has_no_dead_line():
    model = hookviz.demo_model()  # hooks stay on it here
    explorer = hookviz.explore(model, PICTURES[6], layer="layer3.0.conv1", channel=17)
    code = explorer.code()
    lines = [line for line in code.splitlines() if line and not line.startswith(("#", "import"))]
    assert len([line for line in lines if not line.startswith("from")]) <= 26
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
            close(namespace["heatmap"], explorer.frame.heatmap)
    explorer.close()


@pytest.mark.parametrize("layer", list(hookviz.explore(MODEL, PICTURES[0]).cache))
def test_every_layer(layer):
    explorer = hookviz.explore(MODEL, PICTURES[3], layer=layer)
    explorer.channel = explorer.frame.counts["channel"] - 1
    compare(explorer, model=MODEL, image=PICTURES[3])
    explorer.close()


@pytest.mark.parametrize("normalize", ["channel", "layer", "percentile", "symmetric"])
@pytest.mark.parametrize("cmap", ["auto", "magma"])
def test_colours(normalize, cmap):
    explorer = hookviz.explore(MODEL, PICTURES[0], layers=(nn.Conv2d, nn.ReLU))
    explorer.cmap, explorer.normalize = cmap, normalize
    for layer in ("layer1.0.conv1", "layer2.0.relu"):
        explorer.layer, explorer.call = layer, 0
        compare(explorer, model=MODEL, image=PICTURES[0])
    explorer.close()


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


def test_a_file_in_a_folder_called_hookviz(tmp_path):
    path = tmp_path / "hookviz" / "moon.png"
    path.parent.mkdir()
    PICTURES[6].save(path)
    explorer = hookviz.explore(MODEL, path)
    assert str(path) in explorer.code()
    compare(explorer, model=MODEL)
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


TARGETS = [None, 3, "FISH", ("moon", "star"), (6, 9, 0), ["fish", None, ("moon", 1, 2)]]
TARGETS += [second_largest]


def every_target():
    """All targets by all methods; a method more of captum's asks for them in the same words."""
    for target in TARGETS:
        for method in ("gradcam", *hookviz.attribution.ATTRIBUTIONS):
            other = method in ("smoothgrad", "guided_backprop")
            again = other and target not in (None, ("moon", "star"))
            name = f"{getattr(target, '__name__', target)}-{method}"
            marks = [pytest.mark.heavy] if again else []
            yield pytest.param(target, method, id=name, marks=marks)


@pytest.mark.parametrize(("target", "method"), list(every_target()))
def test_targets_in_a_batch(target, method):
    x = torch.cat([prepare_input(PICTURES[i], MODEL).args[0] for i in (0, 6, 9)])
    x = interpolate(x, (32, 32)).double()  # the methods run the model fifty times
    explorer = hookviz.explore(PRECISE, x, layer="layer2.0.conv2", target=target)
    explorer.heatmap = method
    scope = {"target": target} if callable(target) else {}
    for sample in (0, 2) if method == "gradcam" else (2,):
        explorer.sample = sample
        compare(explorer, model=PRECISE, x=x, **scope)
    ruff(explorer.code(), "model", "x", *scope)
    explorer.close()


@pytest.mark.parametrize("method", ["gradcam", "integrated_gradients", "guided_backprop"])
@pytest.mark.parametrize("target", [None, ("moon", "star"), ("moon", 1, 2), second_largest])
def test_targets_of_one_picture(target, method):
    picture = PICTURES[6].resize((40, 40))  # the methods run the model fifty times
    explorer = hookviz.explore(MODEL, picture, target=target, heatmap=method)
    scope = {"target": target} if callable(target) else {}
    compare(explorer, model=MODEL, image=picture, **scope)
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
@pytest.mark.parametrize("method", ["layercam", "integrated_gradients", "smoothgrad"])
def test_logits_inside(wrap, method):
    model = Answer(wrap)
    x = torch.rand(1, 3, 8, 8)
    explorer = hookviz.explore(model, x, target=(1, 2), heatmap=method)
    compare(explorer, model=model, x=x)
    explorer.close()


def test_arguments_by_name():
    model = Answer(nn.Identity())
    x = torch.rand(2, 3, 8, 8)
    for method in ("gradcam", "saliency", "smoothgrad"):
        explorer = hookviz.explore(model, {"image": x, "times": 3}, heatmap=method, sample=1)
        assert "model(image=x, times=3)" in explorer.code()
        assert "explorer.inputs.kwargs[" in explorer.code()
        compare(explorer, model=model, x=x)
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
        for method in ("gradcam", "guided_backprop"):
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


@pytest.mark.parametrize("method", METHODS)
def test_signals_and_volumes(method):
    torch.manual_seed(0)
    for first, shape in ((nn.Conv1d(2, 6, 5), (2, 2, 40)), (nn.Conv3d(1, 4, 3), (2, 1, 7, 8, 9))):
        model, x = (
            nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)),
            torch.randn(shape),
        )
        model(x)
        explorer = hookviz.explore(model, x, channel=3, sample=1, heatmap=method)
        explorer.depth = explorer.frame.counts["depth"] - 2 if len(shape) == 5 else 0
        compare(explorer, model=model, x=x)
        ruff(explorer.code(), "model", "x")
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


class Tuples(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return {"it's": (None, self.inner(x).relu())}


class WithTuples(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Tuples()

    def forward(self, x):
        return self.part(x)["it's"][1].mean((2, 3))


def test_layers_that_return_more_than_a_tensor():
    model, x = WithTuples(), torch.rand(1, 3, 6, 6)
    explorer = hookviz.explore(model, x, layers="part")
    compare(explorer, model=model, x=x)
    explorer.close()


class Unbatched(nn.Module):
    """Its convolution returns a view, which is then overwritten in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x[0]).relu_().mean((1, 2))[None]


def test_a_view_overwritten_in_place():
    model, x = Unbatched(), torch.randn(1, 3, 6, 6)
    explorer = hookviz.explore(model, x, target=2, channel=2)
    assert explorer.cache["conv"].gradient is not None
    compare(explorer, model=model, x=x)
    explorer.close()


class Labelled(torch.Tensor):
    """A tensor class, as libraries have them that carry notes along with the values."""


def test_tensors_of_other_classes_overwritten_in_place():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    x = torch.rand(1, 3, 6, 6).as_subclass(Labelled)
    explorer = hookviz.explore(model, x, target=2, channel=2)
    compare(explorer, model=model, x=x)
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


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(20, 8), nn.Conv1d(8, 6, 3)

    def forward(self, tokens):
        return self.conv(self.embed(tokens).mT).amax(2)


@pytest.mark.parametrize("frozen", [True, False, "half"])
def test_text(frozen):
    model, x = Text(), torch.randint(20, (2, 12))
    model.requires_grad_(frozen is False)
    model.conv.requires_grad_(frozen is not True)
    explorer = hookviz.explore(model, x, sample=1)
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


def test_lists_of_pictures():
    model = torchvision.models.get_model(
        "ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None
    ).eval()
    x = torch.rand(3, 64, 64)
    explorer = hookviz.explore(model, [x], target=lambda out: out[0]["scores"].sum())
    explorer.overlay = False  # a list's pictures may have many sizes: the heatmap is drawn alone
    compare(explorer, model=model, args=explorer.inputs.args, target=explorer.target)
    explorer.target = None  # no classifier, so no gradient and no heatmap
    explorer.heatmap = "gradcam"
    namespace = compare(explorer, model=model, args=explorer.inputs.args)
    assert "heatmap" not in namespace
    ruff(explorer.code(), "model", "args")
    explorer.close()


class Pathways(nn.Module):
    """Writes into the list that it is given, as SlowFast does."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, pathways):
        pathways[0] = self.conv(pathways[0])
        return pathways[0].mean((2, 3)) + pathways[1].mean()


class Late(nn.Module):
    """Two inputs, and only the last layer learns."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3).requires_grad_(False), nn.Linear(4, 5)

    def forward(self, x, shift):
        return self.fc((self.conv(x) + shift).relu_().mean((2, 3)))


def test_several_inputs_and_frozen_layers():
    model, x = Late(), {"x": torch.rand(1, 3, 8, 8), "shift": torch.rand(1, 4, 1, 1)}
    explorer = hookviz.explore(model, x, target=1, overlay=False)
    assert explorer.cache["conv"].gradient is not None
    inputs = explorer.inputs
    compare(explorer, model=model, args=inputs.args, kwargs=inputs.kwargs)
    assert not any(tensor.requires_grad for tensor in inputs.kwargs.values())
    ruff(explorer.code(), "model", "args", "kwargs")
    explorer.close()


def test_a_list_that_the_model_writes_into_stays_as_it_was():
    model, x = Pathways(), [torch.rand(1, 3, 8, 8), torch.rand(1, 3, 4, 4)]
    explorer = hookviz.explore(model, (x,), target=1, overlay=False)
    given = list(x)
    for _ in range(2):
        compare(explorer, model=model, args=explorer.inputs.args)
        explorer.target = 2
    assert all(map(is_, x, given)) and len(x) == 2
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
    core = torchvision.models.resnet18(weights=None).eval()
    x = torch.rand(1, 3, 64, 64)
    for model in (nn.DataParallel(core), torch.compile(core, backend="eager")):
        explorer = hookviz.explore(model, x, layer="layer1.0.conv1")
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
    explorer = hookviz.explore(model, x, channel=2, layers=(nn.Conv2d, nn.ReLU))
    for layer in ("0", "1"):
        explorer.layer = layer
        for method in (PRODUCT, "xgradcam", "gradcam++"):
            explorer.heatmap = method
            for explorer.overlay in (True, False):
                compare(explorer, model=model, x=x)
    explorer.close()


def test_values_that_are_not_finite():
    class Bad(nn.Conv2d):
        def forward(self, x):
            out = super().forward(x).clone()
            out[0, 0, 0, :2] = torch.tensor([torch.nan, torch.inf])
            return out

    model = nn.Sequential(Bad(3, 2, 1))
    x = torch.rand(1, 3, 4, 4)
    explorer = hookviz.explore(model, x, target=torch.sum, heatmap=PRODUCT, layers="0")
    compare(explorer, model=model, x=x, target=torch.sum)
    explorer.close()


# The heatmap's function


def cell(source, name="<cell>"):
    """Run source as a notebook does, which keeps it for `inspect`; the names that it makes."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"__name__": "__main__"}
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return namespace


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


PRINTED = {
    "CONTRIBUTING": (python_blocks("CONTRIBUTING.md")[0] + "method = peak\n", "def peak(act"),
    "lambda": ("method = lambda a, g=None: a.std(1)", "def method(a, g=None):"),
    "one of two": ("one, method = (lambda a: a.amin(1)), (lambda a: a.amax(1))", "a.amax(1)"),
    "nested": ("method = lambda a, g: max([a], key=lambda maps: 1)[:, 0]", "lambda maps: 1)[:, 0]"),
    "lambda over lines": ("table = dict(\n  m=lambda a, g: (\n    a\n    + g\n  ).sum(1)\n)\n"
                          "method = table['m']", "return (a + g).sum(1)"),
    "future": ("from __future__ import annotations\nfrom torch import Tensor\n"
               "def mine(a: Tensor, g: Tensor | None) -> Tensor:\n  return a[:, 0]\nmethod = mine",
               "from torch import Tensor"),
    "helpers": (
        """
import numpy as np
import torch.nn.functional as F
import xml.dom.minidom
from math import sqrt as root
from torch import nn, Tensor as T
FLOOR, WORDS = 0.25, ("it's", None)
def above(maps): return F.relu(maps - FLOOR)
def spread(maps: T) -> T:
    '''Of the channels.'''

    if maps is WORDS or xml.dom.minidom.Node.TEXT_NODE != 3:
        return spread(maps)
    return torch_from(np.std(above(maps).numpy(), 1)) * root(4)  # a comment
torch_from = lambda array: __import__("torch").from_numpy(array)
@nn.init.torch.no_grad()
def mine(activation, gradient):
    "Two helpers and a constant."
    # a first comment
    return spread(activation)
method = mine
""",
        "    # a first comment\n",
    ),
    "closure": (
        "def make(k, pick):\n    def best(a, g):\n        '''Text.'''\n"
        "        return pick(a, k)\n    return best\n"
        "def kth(maps, k): return maps.topk(k, 1).values[:, -1]\nmethod = make(2, kth)",
        "k = 2\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_the_function_that_ran_is_printed(name, monkeypatch):
    source, part = PRINTED[name]
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, '"mine"\n', cell(source)["method"])
    explorer = hookviz.explore(MODEL, PICTURES[6], heatmap='"mine"\n')
    control(explorer, "show the hooks").value = True
    explorer.channel = 5
    code = explorer.code()
    assert part in code
    assert part.strip() in unescape(html(explorer, "<pre").value)
    assert "'''" not in code
    compare(explorer, model=MODEL, image=PICTURES[6])
    ruff(code, "model", "image")
    explorer.close()


TAKEN = {
    "partial": "from functools import partial\nmethod = partial(lambda a, g, by: a[:, by], by=1)",
    "built-in": "import torch\nmethod = torch.hypot",
    "object": "class Method:\n  def __call__(self, a, g): return a[:, 0]\nmethod = Method()",
    "bound": "class Method:\n  def of(self, a, g): return a[:, 0]\nmethod = Method().of",
    "a class of the notebook": "class Own: at = 0\nmethod = lambda a, g: a[:, Own.at]",
    "a tensor": "import torch\nw = torch.ones(1)\nmethod = lambda a, g: a[:, 0] * w",
    "a default of another time": "for k in (1, 2):\n  method = lambda a, g, k=k: a[:, k]\nk = 0",
    "wrapped elsewhere": (
        "from functools import wraps\ndef one(a, g): return a[:, 1]\n@wraps(one)\n"
        "def two(a, g): return a[:, 2]\nmethod = two"
    ),
    "a name of the code's": "x = 3\nmethod = lambda a, g: a[:, x]",
    "another import": "import math as torch\nmethod = lambda a, g: a[:, int(torch.pi)]",
    "two things": (
        "k = 1\ndef make(k): return lambda a: a[:, k]\nthird = make(3)\n"
        "method = lambda a, g: third(a) + a[:, k]"
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_function_without_a_source_of_its_own_is_taken(name, monkeypatch):
    method = cell(TAKEN[name])["method"]
    if name == "built-in":  # it does not say what it takes
        method = type("Sized", (), {"__call__": lambda self, a, g: torch.hypot(a, g)[:, 0]})()
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, "\nraise SystemExit('out')\n#", method)
    explorer = hookviz.explore(MODEL, PICTURES[6], heatmap="\nraise SystemExit('out')\n#")
    assert "# method: your function: hookviz.attribution.HEATMAPS[" in explorer.code()
    compare(explorer, model=MODEL, image=PICTURES[6], method=method)
    explorer.close()


def test_a_function_of_a_file_that_has_changed_is_taken(tmp_path, monkeypatch):
    path = tmp_path / "own_heatmaps.py"
    path.write_text("def mine(a, g):\n    return a[:, 0]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    method = importlib.import_module("own_heatmaps").mine
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, "mine", method)
    for change in (False, True):
        explorer = hookviz.explore(MODEL, PICTURES[6], heatmap="mine")
        assert ("# method: your function" in explorer.code()) == change
        compare(explorer, model=MODEL, image=PICTURES[6], method=method)
        path.write_text("def mine(a, g):\n    return -a[:, 0] * 5\n")
        explorer.close()


def test_built_in_heatmaps_that_are_replaced_or_removed(own_methods):
    def mine(activation, gradient):
        return (activation * gradient).amax(1)

    explorer = hookviz.explore(MODEL, PICTURES[6], heatmap="layercam")
    control(explorer, "show the hooks").value = True
    assert "def layercam" in html(explorer, "<pre").value
    hookviz.attribution.HEATMAPS["layercam"] = mine
    explorer.channel = 3
    assert "def mine" in html(explorer, "<pre").value
    compare(explorer, model=MODEL, image=PICTURES[6])
    del hookviz.attribution.HEATMAPS["layercam"]
    explorer.channel = 4
    assert "def gradcam" in html(explorer, "<pre").value
    compare(explorer, model=MODEL, image=PICTURES[6])
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
    explorer = hookviz.explore(model, x, class_names=[name] * 64, target=(3, 5))
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


# What a few lines cannot do


def test_reentrant_checkpointing_is_refused_in_one_sentence():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return checkpoint(self.conv, x, use_reentrant=True).mean((2, 3))

    explorer = hookviz.explore(Checkpointed(), torch.rand(1, 3, 4, 4), target=1)
    with pytest.raises(ValueError, match="no short code for reentrant checkpointing"):
        explorer.code()
    control(explorer, "show the hooks").value = True
    assert says(explorer, "reentrant checkpointing")
    explorer.channel = 2  # goes on all the same
    explorer.close()


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


class WithFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return Recomputing.apply(x, self.conv).mean((2, 3))


def test_functions_that_run_a_layer_again_are_refused():
    explorer = hookviz.explore(WithFunction(), torch.rand(1, 3, 4, 4), target=1)
    assert explorer.cache["conv"].gradient is not None
    with pytest.raises(ValueError, match="'conv': backward runs it again"):
        explorer.code()
    explorer.close()


def test_compiled_parts_are_refused():
    model = nn.Sequential(torch.compile(nn.Conv2d(3, 4, 1), backend="eager"), nn.Flatten())
    explorer = hookviz.explore(model, torch.rand(1, 3, 4, 4))
    with pytest.raises(ValueError, match="parts are compiled"):
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
    button = control(explorer, "show the hooks")
    button.value = True
    assert button.description == "hide the hooks"
    for channel in (5, 6):
        explorer.channel = channel
        assert f"activation[0, {channel}]" in html(explorer, "<pre").value
    button.value = False
    assert button.description == "show the hooks"
    assert not says(explorer, "<pre")
    before = len(asked)
    explorer.channel = 7
    assert len(asked) == before
    explorer.close()


def test_text_is_escaped_in_the_page():
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Conv2d(3, 4, 1))
    explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2))
    control(explorer, "show the hooks").value = True
    text = html(explorer, "<pre").value
    assert "<img" not in text
    assert "&lt;img" in text
    explorer.close()


def test_the_model_does_not_run_for_it(monkeypatch):
    explorer = hookviz.explore(MODEL, PICTURES[6])
    monkeypatch.setattr(MODEL, "forward", lambda *_: pytest.fail("the model ran"))
    explorer.code()
    explorer.close()
