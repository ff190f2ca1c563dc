"""The code from `Explorer.code` runs without hookviz and gives the numbers of the view."""

import ast
import subprocess
import sys
from collections import OrderedDict
from contextlib import closing
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from architectures import model_of
from browsing import Browser
from seen import overlapping_texts
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.view.settings import PRODUCT

MODEL = hookviz.demo_model()
PICTURE = hookviz.demo_images()[6]


@pytest.fixture(autouse=True)
def no_stills(monkeypatch):
    """Skip the plain face's picture, which would be drawn at each change."""
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


def assert_close(values, expected, tolerance=1e-5):
    values, expected = np.asarray(values, np.float64), np.asarray(expected, np.float64)
    assert values.shape == expected.shape
    scale = max(np.abs(np.nan_to_num(expected)).max(), 1e-12)
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance * scale)


def assert_code_equals_view(explorer, **scope):
    """Run the explorer's code and compare its numbers and its figure with the view."""
    code, model = explorer.code(), explorer.displayed().session.given
    tree = [
        node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert not any("hookviz" in ast.unparse(node) for node in tree)
    plt.close("all")
    before = [(p.requires_grad, p.grad, p.detach().clone()) for p in model.parameters()]
    (x,) = (*explorer.inputs.args, *explorer.inputs.kwargs.values())
    namespace = {"model": model, "x": x, **scope}
    exec(compile(code, "code", "exec", dont_inherit=True), namespace)
    assert not any(len(module._forward_hooks) for module in model.modules())
    for parameter, (grad_is_required, gradient, values) in zip(
        model.parameters(), before, strict=True
    ):
        assert (parameter.requires_grad, parameter.grad) == (grad_is_required, gradient)
        assert torch.equal(parameter, values)
    assert not x.requires_grad

    frame, at = explorer.frame, explorer.frame.settings
    shown = {panel.role: panel for panel in frame.panels}
    for role, name in (("map", "activation"), ("gradient", "gradient")):
        assert (name in namespace) == (role in shown)
        if role in shown:
            own = namespace[name][at.sample, at.channel]
            assert_close(own.reshape(shown[role].values.shape), shown[role].values)
    assert ("heatmap" in namespace) == (frame.heatmap is not None)
    if frame.heatmap is not None:
        assert_close(namespace["heatmap"].reshape(frame.heatmap.shape), frame.heatmap, 2e-4)
    figure = plt.gcf()
    assert len(figure.axes) == len(shown.keys() & {"map", "gradient"}) + ("heatmap" in namespace)
    for axes, panel in zip(figure.axes, shown.values(), strict=False):
        (image,), (bar,) = axes.images, axes.child_axes
        assert_close((image.norm.vmin, image.norm.vmax), (panel.low, panel.high))
        assert image.cmap.name == panel.cmap
        assert bar.bbox.height == pytest.approx(axes.bbox.height)
    return code


def ruff(code, *builtins):
    names = ", ".join(f'"{name}"' for name in builtins)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    command += ["--config", f"builtins = [{names}]", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + code


# The view


@pytest.fixture(scope="module")
def fish():
    explorer = hookviz.explore(
        MODEL, PICTURE, layer="layer3.0.conv1", target="fish", channel=17, over_input=False
    )
    yield explorer
    explorer.close()


@pytest.mark.parametrize("method", [*hookviz.attribution.HEATMAPS, PRODUCT])
def test_code_of_every_heatmap_gives_the_values_of_the_view(fish, method):
    fish.heatmap = method
    ruff(assert_code_equals_view(fish), "model", "x")


@pytest.mark.parametrize("normalize", ["channel", "layer", "percentile", "symmetric"])
def test_code_uses_the_colours_of_the_view(fish, normalize):
    fish.normalize, fish.cmap = normalize, "magma"
    assert_code_equals_view(fish)
    fish.normalize, fish.cmap = "channel", "auto"


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3)).eval()


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [(3, (1, 3, 16, 16)), (3, (1, 3, 12, 102)), (3, (3, 2, 12, 14)), (8, (1, 3, 8, 8))],
    ids=["square", "wide", "batch", "one value"],
)
def test_figures_of_code_have_no_overlaps_for_any_shape(kernel, shape):
    model, x = (
        network(nn.Conv2d(shape[1], 4, kernel), nn.ReLU(inplace=True)),
        1000 * torch.rand(shape),
    )
    model(x)
    name = "a class with a rather long name, longer than a picture is wide, ${}$"
    names = [name.format(each) for each in "xyz"]
    with opened(model, x, layer="0", class_names=names, sample=shape[0] - 1) as explorer:
        ruff(assert_code_equals_view(explorer), "model", "x")
        assert overlapping_texts(plt.gcf()) == []


# The score


def second_largest(output):
    return output.topk(2).values[:, 1].sum()


@pytest.mark.parametrize("target", [None, 3, "FISH", ("moon", "star"), (6, 9, 0), second_largest])
def test_code_of_every_kind_of_target(target):
    # In float64: the explorer may run a batch in parts, and float32 sums could then take another
    # side of a ReLU.
    model = hookviz.demo_model().double()
    pictures = [hookviz.demo_images()[number] for number in (0, 6, 9)]
    inputs = [hookviz.attribution.prepare_input(picture, model).args[0] for picture in pictures]
    x = torch.cat(inputs)[..., ::4, ::4].double()
    scope = {"target": target} if callable(target) else {}
    with opened(model, x, layer="layer2.0.conv2", target=target) as explorer:
        for explorer.sample in (0, 2):
            code = assert_code_equals_view(explorer, **scope)
        ruff(code, "model", "x", *scope)
    assert ('].sum()  # "fish"' in code) == (target == "FISH")


class WrappedLogits(nn.Module):
    """A classifier that puts its logits into a dict or an object."""

    def __init__(self, wrap):
        super().__init__()
        self.conv, self.wrap = nn.Conv2d(3, 5, 3), wrap

    def forward(self, image, times=1):
        return self.wrap(self.conv(image * times).relu().mean((2, 3)))


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize("wrap", [lambda x: {"logits": x}, Output])
def test_code_of_a_model_with_wrapped_logits_and_a_named_argument(wrap):
    model, x = WrappedLogits(wrap), torch.rand(2, 3, 8, 8)
    with opened(model, {"image": x}, target=2, sample=1) as explorer:
        code = assert_code_equals_view(explorer)
    assert "model(image=x)" in code and 'explorer.inputs.kwargs["image"]' in code


def test_code_without_a_target_draws_only_the_map():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1)), torch.rand(1, 3, 5, 5)
    with opened(model, x) as explorer:
        code = assert_code_equals_view(explorer)
    assert "heatmap" not in code and "torch.no_grad()" in code
    ruff(code, "model", "x")


# The layer and the model


def run_twice(m, x):
    """One convolution that runs once without a graph, then twice with one."""
    with torch.no_grad():
        shift = m.conv(x).mean()
    return m.head(m.conv(m.conv(x + shift)).mean((2, 3)))


def test_code_of_every_call_of_a_layer():
    with opened(
        model_of(run_twice, conv=nn.Conv2d(3, 3, 1), head=nn.Linear(3, 4)),
        torch.rand(2, 3, 6, 6),
        sample=1,
    ) as explorer:
        for explorer.call in range(3):
            assert_code_equals_view(explorer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_code_of_linear_layers_and_the_model_itself_in_half_precision(dtype):
    model, x = network(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.rand(2, 3, 6, 6)
    model(x)
    model, x = model.to(dtype), x.to(dtype)
    with opened(model, x, layers=lambda name, module: True, sample=1) as explorer:
        for layer in explorer.frame.layers:
            explorer.layer = layer
            assert_code_equals_view(explorer)


def run_patches(m, x):
    """A transformer whose first norm has patches ``(N, H, W, C)``, and the second tokens."""
    patches = m.first(m.patches(x).permute(0, 2, 3, 1)).flatten(1, 2)
    return m.head(m.second(torch.cat([patches[:, :1].sin(), patches], 1)).tanh().mean(1))


@pytest.mark.parametrize("layer", ["first", "second"])
def test_code_of_layers_with_channels_last(layer):
    with opened(
        model_of(
            run_patches,
            patches=nn.Conv2d(3, 6, 4, stride=4),
            first=nn.LayerNorm(6),
            second=nn.LayerNorm(6),
            head=nn.Linear(6, 4),
        ),
        torch.rand(1, 3, 16, 20),
        layers=layer,
        channel=2,
    ) as explorer:
        assert_code_equals_view(explorer)


@pytest.mark.parametrize(
    "wrapped", [nn.DataParallel, partial(torch.compile, backend="eager")], ids=["data", "compiled"]
)
def test_code_of_wrapped_models(wrapped):
    core, x = network(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), torch.rand(1, 3, 8, 8)
    core(x)
    with opened(wrapped(core), x, layer="0") as explorer:
        assert_code_equals_view(explorer)


# Names that try to be code


NAMES = [
    'it\'s "both" \\',
    '"""{0} $x$',
    "\n\u2028",
    '"); raise SystemExit("out',
    "\nraise SystemExit('out')\n#",
    "</code><script>ünïcode \ud83d",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_names(name):
    """Names of the model's class, a layer, the classes and the user's function."""
    layers = OrderedDict({name.replace(".", "_"): nn.Conv2d(3, 4, 3), "flat": nn.Flatten()})
    kind = type(name.encode("utf-8", "ignore").decode(), (nn.Sequential,), {})
    model, x = kind(layers), torch.rand(1, 3, 6, 6)

    def score(output):
        return output.sum()

    score.__name__ = name
    for target, scope in ((3, {}), (score, {"target": score})):
        with opened(model, x, class_names=[name] * 64, target=target) as explorer:
            tree = ast.walk(ast.parse(assert_code_equals_view(explorer, **scope)))
        names = {node.id for node in tree if isinstance(node, ast.Name)}
        assert not {"SystemExit", "script"} & names


# Views that the code cannot express


class Through(nn.Module):
    """A model that calls its convolution ``conv`` in an unusual way."""

    def __init__(self, call, conv=None):
        super().__init__()
        self.conv, self.call = nn.Conv2d(3, 3, 1) if conv is None else conv, call

    def forward(self, *args):
        return self.call(self.conv, *args).flatten(2).mean(2)


class SecondOfPair(nn.Conv2d):
    def forward(self, x):
        return None, super().forward(x)


def plain(conv, x):
    return conv(x)


def convolving_a_parameter():
    """Return a model with a layer that no input reaches."""
    return model_of(
        lambda m, x: (m.conv(m.position) * m.conv2(x)).mean((2, 3)),
        position=nn.Parameter(torch.rand(1, 3, 4, 4)),
        conv=nn.Conv2d(3, 4, 3),
        conv2=nn.Conv2d(3, 4, 3),
    )


def partly_frozen():
    model = convolving_a_parameter()
    model.conv2.requires_grad_(False)
    return model


def with_two_heads():
    """Return a model with a layer that no score depends on."""
    return model_of(
        lambda m, x: {"logits": m.conv(x).mean((2, 3)), "map": m.head(m.conv(x).relu())},
        conv=nn.Conv2d(3, 4, 3),
        head=nn.Conv2d(4, 2, 1),
    )


@pytest.mark.parametrize("made", [convolving_a_parameter, with_two_heads])
def test_layers_beside_the_input_or_the_score_have_code(made):
    with opened(made(), X, layer="conv", target=1) as explorer:
        assert_code_equals_view(explorer)


X = torch.rand(1, 3, 4, 4)
COMPILED = torch.compile(nn.Conv2d(3, 4, 1), backend="eager")
RARE = {
    "run again in backward": (Through(partial(checkpoint, use_reentrant=True)), X, {}),
    "compiled parts": (Through(plain, COMPILED), X, {}),
    "not a batch of real maps": (Through(lambda conv, x: conv(x)[1], SecondOfPair(3, 4, 1)), X, {}),
    "several arguments": (Through(lambda conv, x, shift: conv(x) + shift), (X, X), {}),
    "signals and volumes": (Through(plain, nn.Conv3d(3, 4, 1)), torch.rand(1, 3, 2, 4, 4), {}),
    "not a plain tensor of floating": (
        Through(lambda conv, x: conv(x)[..., None, None], nn.Embedding(9, 4)),
        torch.randint(9, (1,)),
        {},
    ),
    "and frozen weights": (partly_frozen(), X, {}),
    "a target for each sample": (MODEL, PICTURE, {"target": ["moon"]}),
    "heatmap 'saliency'": (Through(plain), X, {"heatmap": "saliency"}),
    "shown_after='activation'": (MODEL, PICTURE, {"shown_after": "activation"}),
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


def test_code_of_a_users_heatmap_is_refused(restored_heatmaps):
    hookviz.attribution.HEATMAPS["gradcam"] = lambda activation: activation.amax(1)
    with (
        opened(MODEL, PICTURE, heatmap="gradcam") as explorer,
        pytest.raises(ValueError, match="exists for the heatmap 'gradcam'"),
    ):
        explorer.code()


def test_code_of_edited_views_is_refused_but_not_of_the_original_run():
    explorer = hookviz.explore(MODEL, PICTURE)
    explorer.edit("stem.0", 0, channels=2)
    with pytest.raises(ValueError, match="No short code exists for a view with 1 edit: set"):
        explorer.code()
    explorer.shown_run = "difference"
    with pytest.raises(ValueError, match="No short code exists for a difference of two runs"):
        explorer.code()
    explorer.shown_run = "original"
    assert_code_equals_view(explorer)
    explorer.close()
    with pytest.raises(RuntimeError, match="closed"):
        explorer.code()


def test_writing_the_code_does_not_run_the_model(monkeypatch):
    explorer = hookviz.explore(MODEL, PICTURE)
    monkeypatch.setattr(MODEL, "forward", lambda *_: pytest.fail("the model ran"))
    explorer.code()


def test_code_requested_by_the_browser_is_of_the_view_it_shows():
    explorer = hookviz.explore(MODEL, PICTURE, face="canvas")
    browser = Browser(explorer)
    settings = browser.canvas.settings | {"layer": "layer2.0.conv1", "channel": 4}
    browser.ask("code", settings=settings)
    assert explorer.layer == "layer2.0.conv1"
    code = browser.answers[-1]["code"]
    assert code == explorer.code() and "layer2.0.conv1" in code
