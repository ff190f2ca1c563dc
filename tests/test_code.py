"""`Explorer.code` runs as it stands, without hookviz, and gives the numbers of the view."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import OrderedDict
from contextlib import closing
from functools import partial
from html import escape

import matplotlib.pyplot as plt
import numpy as np
import pytest
import timm
import torch
import torchvision
from browsing import Browser
from matplotlib import cbook
from PIL import Image
from seen import control, html, overlapping_texts, says
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.view.settings import PRODUCT

MODEL = hookviz.demo_model()
PICTURES = hookviz.demo_images()
PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)


@pytest.fixture(autouse=True)
def no_stills(monkeypatch):
    """Leave out the plain face's picture, which is drawn at each change and not compared here."""
    monkeypatch.setattr("hookviz.widgets.faces.still_png", lambda frame: b"")


@pytest.fixture(autouse=True)
def no_windows():
    before = plt.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def opened(*args, **settings):
    return closing(hookviz.explore(*args, **settings))


def run(code, **scope):
    """Execute code in a fresh namespace; it must not import hookviz or change the model."""
    tree = ast.walk(ast.parse(code))
    imported = [node for node in tree if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not any("hookviz" in ast.unparse(node) for node in imported)
    plt.close("all")
    model = scope.get("model")
    before = None if model is None else snapshot(model)
    namespace = dict(scope)
    exec(compile(code, "code", "exec", dont_inherit=True), namespace)
    assert model is None or snapshot(model) == before
    return namespace


def snapshot(model):
    modules = list(model.modules())
    return (
        [(m.training, len(m._forward_hooks), len(m._backward_hooks)) for m in modules],
        [(p.requires_grad, p.grad, p.detach().sum().item()) for p in model.parameters()],
    )


def close(values, expected, tolerance=1e-5):
    values, expected = np.asarray(values, np.float64), np.asarray(expected, np.float64)
    assert values.shape == expected.shape
    scale = max(np.abs(np.nan_to_num(expected)).max(), 1e-12)
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance * scale)


def compare(explorer, tolerance=1e-5, **scope):
    """Run the explorer's code and compare its numbers and its figure with the view."""
    namespace = run(explorer.code(), **scope)
    frame, at = explorer.frame, explorer.frame.settings
    shown = {panel.role: panel for panel in frame.panels}
    for role, name in (("map", "activation"), ("gradient", "gradient")):
        assert (name in namespace) == (role in shown)
        if role in shown:
            own = namespace[name][at.sample, at.channel]
            close(own.reshape(shown[role].values.shape), shown[role].values, tolerance)
    assert ("heatmap" in namespace) == (frame.heatmap is not None)
    if frame.heatmap is not None:
        close(namespace["heatmap"].reshape(frame.heatmap.shape), frame.heatmap, 2e-4)

    figure = plt.gcf()
    assert len(figure.axes) == len(shown.keys() & {"map", "gradient"}) + ("heatmap" in namespace)
    for axes, panel in zip(figure.axes, shown.values(), strict=False):
        if axes.lines:
            close(axes.lines[0].get_ydata(), panel.values[0], tolerance)
        elif axes.images[-1].get_alpha() is None:
            image, (bar,) = axes.images[-1], axes.child_axes
            close((image.norm.vmin, image.norm.vmax), (panel.low, panel.high))
            assert image.cmap.name == panel.cmap
            assert bar.bbox.height == pytest.approx(axes.bbox.height)
    return namespace


def ruff(code, *builtins):
    names = ", ".join(f'"{name}"' for name in builtins)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    command += ["--config", f"builtins = [{names}]", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + code


# The view


@pytest.fixture(scope="module")
def fish():
    explorer = hookviz.explore(MODEL, PICTURES[6], layer="layer3.0.conv1", target="fish")
    explorer.channel, explorer.alpha = 17, 0.35
    yield explorer
    explorer.close()


@pytest.mark.parametrize("method", [*hookviz.attribution.HEATMAPS, PRODUCT])
def test_every_heatmap_of_the_family(fish, method):
    fish.heatmap, fish.over_input = method, True
    compare(fish, model=MODEL, image=PICTURES[6])
    fish.over_input = False
    compare(fish, model=MODEL, image=PICTURES[6])
    ruff(fish.code(), "model", "image")


def test_the_input_is_below_the_heatmap(fish):
    fish.heatmap, fish.over_input = "gradcam", True
    compare(fish, model=MODEL, image=PICTURES[6])
    picture, heat = plt.gcf().axes[-1].images
    expected = fish.frame.input.pixels / 255
    assert np.abs(np.asarray(picture.get_array()) - expected).max() < 1 / 255
    assert list(heat.get_extent()) == list(picture.get_extent())
    assert float(np.max(heat.get_alpha())) == pytest.approx(0.35)


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3)).eval()


SHAPES = {  # the kernel, and the input
    "square": (3, (1, 3, 16, 16)),
    "7×7": (3, (1, 3, 9, 9)),
    "wide": (3, (1, 3, 12, 102)),
    "tall": (3, (1, 1, 60, 9)),
    "1d": (3, (1, 2, 300)),
    "batch": (3, (3, 2, 12, 14)),
    "one value": (8, (1, 3, 8, 8)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_drawn_without_overlaps(name):
    kernel, shape = SHAPES[name]
    torch.manual_seed(0)
    layer = (nn.Conv1d if len(shape) == 3 else nn.Conv2d)(shape[1], 4, kernel)
    model, x = network(layer, nn.ReLU(inplace=True)), 1000 * torch.rand(shape)
    model(x)
    names = ["a class with a rather long name, longer than a picture is wide, $x$"] * 3
    with opened(model, x, layer="0", class_names=names) as explorer:
        explorer.sample = shape[0] - 1
        compare(explorer, model=model, x=x)
        assert overlapping_texts(plt.gcf()) == []
        ruff(explorer.code(), "model", "x")
    assert not x.requires_grad


@pytest.mark.parametrize("normalize", ["channel", "layer", "percentile", "symmetric"])
def test_colours_are_those_of_the_view(fish, normalize):
    fish.normalize, fish.cmap = normalize, "magma"
    compare(fish, model=MODEL, image=PICTURES[6])
    fish.normalize, fish.cmap = "channel", "auto"


# The input


@pytest.mark.parametrize(
    "image",
    [
        PICTURES[0].resize((300, 211)),
        PICTURES[0].convert("L"),
        np.asarray(PICTURES[0].resize((150, 200))),
    ],
    ids=["larger", "gray", "array"],
)
def test_pictures(image):
    with opened(MODEL, image) as explorer:
        namespace = compare(explorer, model=MODEL, image=image)
        assert torch.equal(namespace["x"], explorer.inputs.args[0])
        ruff(explorer.code(), "model", "image")


def test_files(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a photograph that was taken sideways
    PICTURES[0].resize((150, 120)).save(tmp_path / "turned.jpg", exif=exif)
    PICTURES[0].convert("P").save(tmp_path / 'it\'s a "palette".png')
    for path in (PHOTOGRAPH, tmp_path / "turned.jpg", str(tmp_path / 'it\'s a "palette".png')):
        with opened(MODEL, path) as explorer:
            namespace = compare(explorer, model=MODEL)
            assert torch.equal(namespace["x"], explorer.inputs.args[0])
            ruff(explorer.code(), "model")


def test_the_tensor_is_taken_where_its_making_is_unknown(tmp_path):
    transparent = PICTURES[0].convert("RGBA")
    transparent.putalpha(100)
    removed = tmp_path / "removed.png"
    PICTURES[0].save(removed)

    def own(picture):
        return torchvision.transforms.functional.to_tensor(picture.resize((64, 64)))

    for image, options in ((transparent, {}), (removed, {}), (PICTURES[0], {"transform": own})):
        with opened(MODEL, image, **options) as explorer:
            removed.unlink(missing_ok=True) if image is removed else None
            assert "explorer.inputs.args[0]" in explorer.code()
            compare(explorer, model=MODEL, x=explorer.inputs.args[0])


@pytest.mark.parametrize("name", ["resnet10t", "test_vit"])
def test_timm(name):
    model = timm.create_model(name, pretrained=False).eval()
    layers = "blocks.*" if "vit" in name else None
    with opened(model, PHOTOGRAPH, layers=layers) as explorer:
        explorer.layer = explorer.frame.layers[1]
        namespace = compare(explorer, model=model)
        assert torch.equal(namespace["x"], explorer.inputs.args[0])


def test_torchvision_weights():
    weights = torchvision.models.ResNet18_Weights.DEFAULT
    model = torchvision.models.resnet18(weights=None)
    with opened(model, PHOTOGRAPH, weights=weights, target="tabby") as explorer:
        namespace = compare(explorer, model=model)
        assert torch.equal(namespace["x"], explorer.inputs.args[0])
        assert 'score = model(x)[:, 281].sum()  # "tabby"' in explorer.code()
        ruff(explorer.code(), "model")


# The score


def second_largest(output):
    return output.topk(2).values[:, 1].sum()


@pytest.mark.parametrize("target", [None, 3, "FISH", ("moon", "star"), (6, 9, 0), second_largest])
def test_targets(target):
    # In float64: the explorer may run a batch in parts, and float32 sums could then take another
    # side of a ReLU.
    model = hookviz.demo_model().double()
    inputs = [hookviz.attribution.prepare_input(PICTURES[i], model).args[0] for i in (0, 6, 9)]
    x = torch.cat(inputs)[..., ::4, ::4].double()
    scope = {"target": target} if callable(target) else {}
    with opened(model, x, layer="layer2.0.conv2", target=target) as explorer:
        for explorer.sample in (0, 2):
            compare(explorer, model=model, x=x, **scope)
        ruff(explorer.code(), "model", "x", *scope)


def test_a_number_in_the_output():
    target = hookviz.output["heat"][:, 1].max()

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return {"heat": self.conv(x).tanh()}

    model, x = Dense(), torch.rand(1, 3, 9, 9)
    with opened(model, x, target) as explorer:
        compare(explorer, model=model, x=x)
        ruff(explorer.code(), "model", "x")


def test_without_a_target_only_the_map_is_drawn():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1)), torch.rand(1, 3, 5, 5)
    with opened(model, x) as explorer:
        assert "heatmap" not in compare(explorer, model=model, x=x)
        assert "torch.no_grad()" in explorer.code()
        ruff(explorer.code(), "model", "x")


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
def test_logits_inside_and_an_argument_by_name(wrap):
    model, x = Answer(wrap), torch.rand(2, 3, 8, 8)
    with opened(model, {"image": x}, target=2, sample=1) as explorer:
        assert "model(image=x)" in explorer.code()
        assert 'explorer.inputs.kwargs["image"]' in explorer.code()
        compare(explorer, model=model, x=x)


# The layer and the model


class Twice(nn.Module):
    """One convolution, run first without a graph, and then twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 1), nn.Linear(3, 4)

    def forward(self, x):
        with torch.no_grad():
            shift = self.conv(x).mean()
        return self.head(self.conv(self.conv(x + shift)).mean((2, 3)))


def test_every_call_of_a_layer():
    model, x = Twice(), torch.rand(2, 3, 6, 6)
    with opened(model, x, sample=1) as explorer:
        for explorer.call in range(3):
            compare(explorer, model=model, x=x)


def test_features_half_precision_and_the_model_itself():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    x = torch.rand(2, 3, 6, 6)
    model(x)
    for dtype in (torch.float32, torch.bfloat16):
        model, x = model.to(dtype), x.to(dtype)
        with opened(model, x, layers=lambda name, module: True, sample=1) as explorer:
            for layer in explorer.frame.layers:
                explorer.layer = layer
                compare(explorer, model=model, x=x)


@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
def test_training_flags_are_restored(mode):
    model = hookviz.demo_model().train(mode != "eval")
    if mode == "mixed":
        model.layer1.eval()
    with opened(model, PICTURES[6], layer="layer2.0.conv1") as explorer:
        compare(explorer, model=model, image=PICTURES[6])  # run() compares the flags


def test_wrappers():
    core = network(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
    x = torch.rand(1, 3, 8, 8)
    core(x)
    for model in (nn.DataParallel(core), torch.compile(core, backend="eager")):
        with opened(model, x, layer="0") as explorer:
            compare(explorer, model=model, x=x)


def test_a_layer_over_the_budget():
    with pytest.warns(RuntimeWarning, match="max_bytes"):
        explorer = hookviz.explore(MODEL, PICTURES[6], max_bytes=1_000_000)
    explorer.layer = explorer.cache.over_budget[-1]
    compare(explorer, model=MODEL, image=PICTURES[6])
    explorer.close()


def test_a_silent_channel_and_an_empty_heatmap():
    conv = nn.Conv2d(3, 4, 3)
    nn.init.zeros_(conv.weight)
    nn.init.zeros_(conv.bias)
    model, x = network(conv, nn.ReLU()), torch.rand(1, 3, 8, 8)
    model(x)
    with opened(model, x, layer="0", channel=2) as explorer:
        for explorer.over_input in (True, False):
            compare(explorer, model=model, x=x)


# Names that try to be code

NASTY = [
    "'", '"', '"""', "\\", "\n", "\r", "\u2028", "\x0c", "#", "{0}", "%s", "$x$",
    "'); raise SystemExit('out", '"); raise SystemExit("out', "\nraise SystemExit('out')\n#",
    "</code><script>", "ünïcode \ud83d", "it's \"both\"\n",
]  # fmt: skip


@pytest.mark.parametrize("name", NASTY)
def test_names_stay_names(name):
    """Of the model's class, a layer, the classes, the user's function."""
    layers = OrderedDict({name.replace(".", "_"): nn.Conv2d(3, 4, 3), "flat": nn.Flatten()})
    kind = type(name.encode("utf-8", "ignore").decode(), (nn.Sequential,), {})
    model, x = kind(layers), torch.rand(1, 3, 6, 6)

    def score(output):
        return output.sum()

    score.__name__ = name
    for target, scope in ((3, {}), (score, {"target": score})):
        with opened(model, x, class_names=[name] * 64, target=target) as explorer:
            compare(explorer, model=model, x=x, **scope)
            names = [node.id for node in ast.walk(ast.parse(explorer.code()))
                     if isinstance(node, ast.Name)]  # fmt: skip
            assert not {"SystemExit", "script"} & {*names}


# Views that the code cannot express


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
    """A convolution ``conv`` that is called in an unusual way."""

    def __init__(self, call, conv=None):
        super().__init__()
        self.conv, self.call = nn.Conv2d(3, 3, 1) if conv is None else conv, call

    def forward(self, *args):
        return self.call(self.conv, *args).mean((2, 3))


class Pair(nn.Conv2d):
    def forward(self, x):
        return None, super().forward(x)


class FromParameters(nn.Module):
    """One convolution sees a parameter instead of the input."""

    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.rand(1, 3, 4, 4))
        self.conv, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return (self.conv(self.position) * self.conv2(x)).mean((2, 3))


X = torch.rand(1, 3, 4, 4)
PLAIN = Through(lambda conv, x: conv(x).relu())
VOLUME = torch.rand(1, 3, 2, 4, 4)
COMPILED = torch.compile(nn.Conv2d(3, 4, 1), backend="eager")
RARE = {
    "run again in backward": (Through(partial(checkpoint, use_reentrant=True)), X, {}),
    "layers that run again": (Through(lambda conv, x: Recomputing.apply(x, conv)), X, {}),
    "compiled parts": (Through(lambda conv, x: conv(x), COMPILED), X, {}),
    "not a batch of real maps": (Through(lambda conv, x: conv(x)[1], Pair(3, 4, 1)), X, {}),
    "whose output is not": (Through(lambda conv, x: conv(x[0])[None]), X, {}),
    "class Labelled": (Through(lambda conv, x: conv(x)), X.as_subclass(Labelled), {}),
    "several arguments": (Through(lambda conv, x, shift: conv(x) + shift), (X, X), {}),
    "volumes": (Through(lambda conv, x: conv(x).mean(2), nn.Conv3d(3, 4, 1)), VOLUME, {}),
    "input of whole numbers": (
        Through(lambda conv, x: conv(x)[..., None, None], nn.Embedding(9, 4)),
        torch.randint(9, (1,)),
        {},
    ),
    "do not depend on the input": (FromParameters(), X, {}),
    "a target for each sample": (MODEL, PICTURES[6], {"target": ["moon"]}),
    "heatmap 'saliency'": (PLAIN, X, {"heatmap": "saliency"}),
    "heatmap 'effective field'": (MODEL, PICTURES[6], {"heatmap": "effective field"}),
}


@pytest.mark.parametrize("words", RARE)
def test_rare_views_are_refused_in_one_sentence(words):
    model, image, options = RARE[words]
    layers = None if model is MODEL else "conv*"
    explorer = hookviz.explore(model, image, layers=layers, **{"target": 1, **options})
    with pytest.raises(ValueError, match=f"^No short code exists for .*{words}") as error:
        explorer.code()
    message = str(error.value)
    assert message.endswith(".") and ": " in message and message.count(". ") == 0
    control(explorer, "code for this view").value = True
    assert says(explorer, escape(words))
    explorer.channel = 1  # the explorer still works
    explorer.close()


def test_own_heatmaps_are_refused(own_methods):
    hookviz.attribution.HEATMAPS["gradcam"] = lambda activation: activation.amax(1)
    with (
        opened(MODEL, PICTURES[6], heatmap="gradcam") as explorer,
        pytest.raises(ValueError, match="exists for the heatmap 'gradcam'"),
    ):
        explorer.code()


def test_edits_are_refused_and_the_original_run_is_not():
    explorer = hookviz.explore(MODEL, PICTURES[6])
    explorer.edit("stem.0", 0, channels=2)
    with pytest.raises(ValueError, match="No short code exists for a view with 1 edit: set"):
        explorer.code()
    explorer.shown_run = "difference"
    with pytest.raises(ValueError, match="No short code exists for a difference of two runs"):
        explorer.code()
    explorer.shown_run = "original"
    compare(explorer, model=MODEL, image=PICTURES[6])
    explorer.close()


def test_a_closed_explorer():
    explorer = hookviz.explore(MODEL, PICTURES[0])
    explorer.close()
    with pytest.raises(RuntimeError, match="closed"):
        explorer.code()


# In the widget


def test_the_button_shows_the_code_of_the_view():
    explorer = hookviz.explore(MODEL, PICTURES[6])
    assert not says(explorer, "<pre")
    button = control(explorer, "code for this view")
    button.value = True
    for channel in (5, 6):
        explorer.channel = channel
        assert f"activation[0, {channel}]" in html(explorer, "<pre").value
    button.value = False
    assert not says(explorer, "<pre")
    explorer.close()


def test_code_is_escaped_in_the_widget():
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Conv2d(3, 4, 1))
    explorer = hookviz.explore(model, torch.rand(1, 3, 2, 2))
    control(explorer, "code for this view").value = True
    text = html(explorer, "<pre").value
    assert "<img" not in text
    assert "&lt;img" in text
    explorer.close()


def test_writing_the_code_does_not_run_the_model(monkeypatch):
    explorer = hookviz.explore(MODEL, PICTURES[6])
    monkeypatch.setattr(MODEL, "forward", lambda *_: pytest.fail("the model ran"))
    explorer.code()
    explorer.close()


def test_code_is_of_what_the_browser_shows():
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], face="canvas")
    browser = Browser(explorer)
    settings = browser.canvas.settings | {"layer": "layer2.0.conv1", "channel": 4}
    browser.ask("code", settings=settings)
    assert explorer.layer == "layer2.0.conv1"
    code = browser.answers[-1]["code"]
    assert code == explorer.code() and "layer2.0.conv1" in code
    explorer.close()
