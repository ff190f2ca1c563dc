"""A model and its gradients exported to ONNX give the same numbers for any class and channels."""

import hashlib
import io
import math
import re
import tarfile

import numpy as np
import pytest
import torch
from heavy import heavy_but
from torch import nn
from torch.nn import functional

import hookviz
from hookviz.__main__ import main
from hookviz.export.network import runtime
from hookviz.export.network.runtime import ARCHIVE, read_runtime
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session

pytestmark = pytest.mark.usefixtures("translations")
onnx = pytest.importorskip("onnx", reason="the oldest versions have no such export")
onnxruntime = pytest.importorskip("onnxruntime", reason="the oldest versions have no such export")
pytest.importorskip("onnxscript")

from hookviz.export.network.onnx_graph import export_network, target_weights  # noqa: E402
from hookviz.export.network.traced import NetworkError  # noqa: E402


class Small(nn.Module):
    """Strides, groups, a dilation, a transposed convolution, in-place work and a second call.

    The last block has a skip connection that passes its input on, as many ResNets have it.
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1)
        self.down = nn.Conv2d(6, 8, 1, stride=2)
        self.inner, self.skip = nn.Conv2d(8, 8, 3, padding=1), nn.Identity()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.bn(self.stem(x)))
        x = self.relu(self.grouped(x))
        x = self.pool(self.relu(self.grouped(x)))
        x = self.relu(self.down(self.relu(self.up(x))))
        return self.head((self.inner(x).sin() + self.skip(x)).mean((2, 3)))


def ran(model, x, target=None, layers=None, **options):
    session = Session(model, prepare_input(x, model))
    run = session.run(target, layers=layers)
    return export_network(session, run, list(run.cache), target=target, **options), run


def run_file(model, outputs, given):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options)
    assert {each.name for each in session.get_outputs()} == {*outputs}
    return dict(zip(outputs, session.run(outputs, given), strict=True))


def answer(network, x, number=None, scales=None):
    given = {name: np.zeros(shape, np.float32) for name, shape in network.inputs.items()}
    if number is not None:
        given["classes"][0, number] = 1
    given["input"] = x.numpy()
    given["scales"] = np.ones_like(given["scales"]) if scales is None else scales
    return run_file(network.model, network.outputs, given)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(4)  # with which the top class depends on the size of the values
    model = Small().eval()
    with torch.no_grad():
        model.bn.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 3, 21, 26)
    network, _ = ran(model, x, layers=["stem", "grouped", "up", "down", "inner", "skip"])
    return model, x, network


def close(found, wanted):
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max()) <= 2e-5 * float(np.abs(wanted).max())


def assert_equals_torch(network, model, x, number, **options):
    """Compare the logits, maps and gradients of a class with torch; return those of the file."""
    found = answer(network, x, number, **options)
    with hookviz.capture(model, [each.layer for each in network.layers]) as cache:
        logits = model(x)
        (logits.max() if number is None else logits[0, number]).backward()
    assert close(found["logits"], logits)
    for each in network.layers:
        call = cache[each.layer].calls[each.call]
        assert close(found[f"activation:{each.name}"], call.activation), each
        assert close(found[f"gradient:{each.name}"], call.gradient), each
    return found


def test_maps_and_gradients_equal_torch_for_any_class_and_picture(small):
    model, _, network = small
    names = ["stem", "grouped", "grouped#1", "up", "down", "inner", "skip"]
    assert [each.name for each in network.layers] == names
    assert network.difference < 1e-5 and network.gradient_difference < 1e-5
    for number in (1, 4):
        assert_equals_torch(network, model, torch.randn(1, 3, 21, 26), number)


def test_without_a_class_the_gradients_are_of_the_top_class(small):
    model, _, network = small
    likeliest = set()
    for size in (1, 300):
        found = assert_equals_torch(network, model, size * torch.randn(1, 3, 21, 26), None)
        likeliest.add(int(found["logits"].argmax()))
    assert len(likeliest) > 1


def test_the_weights_of_a_class_against_others_give_its_score(small):
    model, x, _ = small
    target = 1, 3, 4
    session = Session(model, prepare_input(x, model))
    run = session.run(target)
    score = (target_weights(session, run, 0, target) * run.logits.numpy()).sum()
    logits = run.logits[0]
    assert score == pytest.approx(float(logits[1] - (logits[3] + logits[4]) / 2))


class Pooled(nn.Module):
    """Pooling layers, each after its own convolution, and channels last as in ConvNeXt and Swin.

    The adaptive pooling is that of AlexNet and VGG, also with windows that overlap, or with an
    output larger than its input.
    """

    def __init__(self, sides, means):
        super().__init__()
        kinds = [nn.AdaptiveAvgPool2d((4, 6)) for _ in sides]
        self.pools = nn.ModuleList([*kinds, *(nn.AvgPool2d(*each) for each in means)])
        self.sides = [*sides, *(9 for _ in means)]
        self.convs = nn.ModuleList(nn.Conv2d(3, 4, 3, padding=1) for _ in self.pools)
        self.weights = nn.ModuleList(nn.LazyLinear(5) for _ in self.pools)
        self.last = nn.Conv2d(3, 8, 3)
        self.norm = nn.LayerNorm(8)
        self.one = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        scores = self.norm(self.last(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        scores = self.head(self.one(scores.exp()).flatten(1))
        for side, conv, pool, weights in zip(
            self.sides, self.convs, self.pools, self.weights, strict=True
        ):
            maps = conv(x[..., :side, : side + 1]).relu()
            scores = scores + weights(pool(maps).flatten(1))
        return scores


@pytest.mark.heavy
def test_pooling_layers_have_the_gradients_of_torch():
    means = [(2,), (3, 2), ((2, 3), (1, 2)), (3, 2, 1)]
    model, x = Pooled([12, 9, 5], means).eval(), torch.randn(1, 3, 12, 13)
    model(x)  # creates the lazy weights
    network, _ = ran(model, x)
    assert network.note == ""
    assert_equals_torch(network, model, x, 2)


class Dense(nn.Module):
    """Scores of two classes per position, upsampled to the input's size, and an inner map."""

    def __init__(self, **how):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.head = nn.Conv2d(4, 2, 1)
        self.aside = nn.Conv2d(4, 1, 1)
        self.how = how

    def forward(self, x):
        low = self.conv(x).relu()
        out = nn.functional.interpolate(self.head(low), size=x.shape[-2:], **self.how)
        return {"out": out, "aside": self.aside(low)}


UPSAMPLED = [
    {"mode": "bilinear", "align_corners": False},
    {"mode": "bilinear", "align_corners": True},
    {"mode": "bicubic", "align_corners": False},
    {"mode": "nearest"},
    {"mode": "nearest-exact"},
]


@pytest.mark.parametrize(
    "how", heavy_but({"bilinear-False"}, UPSAMPLED, lambda how: "-".join(map(str, how.values())))
)
def test_gradients_of_selected_output_values_equal_torch(how):
    """Export the gradient of the run's target and of any weighting of the model's outputs."""
    model, x, out = Dense(**how).eval(), torch.randn(2, 3, 9, 12), hookviz.output["out"]
    own = out[1, 1].mean()
    answers = out, hookviz.output["aside"]
    network, _ = ran(model, x, own, sample=1, answers=answers)
    assert network.note == "" and network.gradient_difference < 1e-5
    reached = {each.name: each.targets for each in network.layers}
    assert reached["conv"] == ("weights:0", "weights:1", "own")
    assert reached["head"] == ("weights:0", "own") and reached["aside"] == ("weights:1",)
    shapes = network.inputs
    assert shapes["weights:0"] == (1, 2, 9, 12) and shapes["weights:1"] == (1, 1, 5, 6)

    given = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    given["input"], given["scales"] = x[1:].numpy(), np.ones(shapes["scales"], np.float32)
    given["weights:0"][0, 0, 4, 7], given["weights:1"][0, 0, 2, 2] = 1, -2
    found = run_file(network.model, network.outputs, given)
    with hookviz.capture(model) as cache:
        returned = model(x)
        (returned["out"][1, 0, 4, 7] - 2 * returned["aside"][1, 0, 2, 2]).backward()
    for name in ("conv", "head", "aside"):
        assert close(found[f"gradient:{name}"], cache[name].gradient[1:]), name


def test_the_first_bytes_of_the_model_are_a_forward_only_model(small):
    """A runtime computes all of the model that it loads, so the forward is stored separately."""
    _, x, network = small
    begins = network.model[: network.forward]
    asked = [each for each in network.outputs if not each.startswith("gradient:")]
    given = {"input": x.numpy(), "scales": np.ones(network.inputs["scales"], np.float32)}
    found, whole = run_file(begins, asked, given), answer(network, x)
    for name in asked:
        assert np.allclose(found[name], whole[name], 1e-6, 1e-6), name
    first, every = (onnx.load_from_string(each).graph for each in (begins, network.model))
    assert len(first.node) < 0.7 * len(every.node)
    names = [each.name for each in every.initializer]
    assert len(set(names)) == len(names)  # each weight is stored once


def test_a_channel_scale_applies_to_all_calls_like_an_edit(small):
    model, x, network = small
    layer = network.layers[1]
    scales = np.ones(network.inputs["scales"], np.float32)
    scales[layer.start + 3], scales[layer.start + 6] = 0, 2
    off = hookviz.edit(model, "grouped", 0, channels=3)
    twice = hookviz.edit(model, "grouped", 2, channels=6)
    with off, twice:
        found = assert_equals_torch(network, model, x, 2, scales=scales)
    assert (found["activation:grouped#1"][0, 3] == 0).all()


def test_the_export_leaves_the_model_unchanged(small):
    model, _, _ = small
    assert all(each.requires_grad for each in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_reduced_weight_precision_is_smaller_and_reports_its_error():
    layers = nn.Conv2d(3, 64, 9), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    model, x = nn.Sequential(*layers, nn.Linear(64, 5)).eval(), torch.randn(1, 3, 12, 12)
    half, quarter = (ran(model, x, precision=each)[0] for each in ("float16", "int8"))
    weights = 4 * model[0].weight.numel()
    assert len(half.model) - len(quarter.model) > 0.24 * weights
    assert len(half.model) < 0.51 * weights + 20_000
    assert 1e-5 < half.difference < 2e-3 < quarter.difference < 0.1
    assert (half.precision, quarter.precision) == ("float16", "int8")
    assert quarter.farthest == "0"


def test_linear_layers_weights_are_stored_once_each():
    """Two matrices that are as large as each other's transpose, but not equal, stay two."""
    layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
    rest = nn.Linear(256, 40), nn.Tanh(), nn.Linear(40, 256), nn.Tanh(), nn.Linear(256, 100)
    model, x = nn.Sequential(*layers, *rest).eval(), torch.randn(1, 3, 12, 12)
    network, _ = ran(model, x)
    weights = 4 * sum(each.numel() for each in model.parameters())
    assert len(network.model) < weights + 50_000
    assert_equals_torch(network, model, x, 2)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        x = self.conv(x)
        return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))


class Sorting(nn.Module):
    """A model with an operation that ONNX lacks, in the forward or only in the backward."""

    def __init__(self, forward):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.forward_too = forward

    def forward(self, x):
        x = self.conv(x)
        x = torch.cummax(x, 2).values if self.forward_too else Late.apply(x)
        return x.mean((2, 3))


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        return torch.cummax(gradient, 2).values


def test_the_refusal_names_the_operation_that_cannot_be_exported():
    x = torch.randn(1, 3, 8, 8)
    refused = r"Sorting cannot .* page: ONNX lacks an operation \(aten\.cummax\)\. .*network=False"
    with pytest.raises(NetworkError, match=refused) as error:
        ran(Sorting(True).eval(), x)
    assert error.value.operation.startswith("aten.cummax")
    with pytest.raises(NetworkError, match=r"Branching.*depends on a tensor's values"):
        ran(Branching().eval(), x)
    with pytest.raises(NetworkError, match=r"float32, and Small has values of torch\.float64"):
        ran(Small().eval().double(), torch.randn(1, 3, 16, 16).double())
    with pytest.raises(ValueError, match=r"precision='int4' is not one of"):
        explorer = hookviz.explore(Small().eval(), torch.randn(1, 3, 16, 16))
        explorer.to_html(network=True, precision="int4")


def test_the_forward_is_exported_if_only_the_backward_cannot_be():
    network, _ = ran(Sorting(False).eval(), torch.randn(1, 3, 8, 8))
    assert "gradients" in network.note and "aten.cummax" in network.note
    assert network.outputs == ["logits", "activation:conv"]
    assert not network.layers[0].graded and network.difference < 1e-5


class Between(nn.Module):
    """Two convolutions with a function between them that also takes the model."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.kernels, self.head = nn.Linear(4, 144), nn.Linear(4, 3)
        self.function, self.stored = function, None

    def forward(self, x):
        x = self.second(self.function(self, self.first(x)))
        return self.head(x.flatten(2).mean(2))

    def predicted(self, x, *shape):
        """Predict the values of a tensor from the mean of each channel."""
        return self.kernels(x.flatten(2).mean(2)).flatten()[: math.prod(shape)].view(shape)

    def store(self, x):
        self.stored = x.detach().numpy(), x.mean().tolist()
        return x


def leaky(model, x):
    x = x.clone()
    x[x < 0] = 0.1 * x[x < 0]
    return x


TRIANGLE = torch.ones(8, 8).triu().bool()


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        (
            "Tensor.numpy",
            lambda _, x: x * torch.from_numpy(x.detach().mean((0, 2, 3), True).numpy()),
        ),
        ("Tensor.__array__", lambda _, x: x * float(np.asarray(x.detach()).mean())),
        ("Tensor.tolist", lambda _, x: x[:, x.mean((0, 2, 3)).argsort().tolist()]),
        ("aten._unique2", lambda _, x: x / x.unique().numel()),
        ("aten.nonzero", lambda _, x: x / len((x > 0).nonzero())),
        ("aten.masked_select", lambda _, x: x + x.masked_select(x > 0).sum()),
        ("aten.index by a mask", leaky),
    ],
)
def test_models_whose_values_would_become_constants_are_refused(operation, function):
    named = rf"Between cannot be written for a page: .*\({re.escape(operation)}\)\. Write"
    with pytest.raises(NetworkError, match=named):
        ran(Between(function).eval(), torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize(
    "function",
    [
        Between.store,
        lambda _, x: x + x[:, :, TRIANGLE].mean(),
        lambda _, x: x * torch.ones_like(x).mean((2, 3)).tolist()[0][0],
        lambda _, x: x.masked_fill(x < 0, 0)[:, x.mean((0, 2, 3)).argsort()],
    ],
    ids=["stored only", "constant mask", "constant list", "computed index"],
)
def test_values_that_a_graph_computes_for_each_input_are_not_refused(function):
    x, model = torch.randn(1, 3, 8, 8), Between(function).eval()
    network, _ = ran(model, x)
    assert close(answer(network, 3 * x.flip(3))["logits"], model(3 * x.flip(3)))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: functional.conv2d(
            x, m.predicted(x, 4, 2, 3, 2), m.predicted(x, 4), (2, 3), (1, 2), (2, 1), groups=2
        ),
        lambda m, x: functional.conv_transpose2d(
            x, m.predicted(x, 4, 2, 3, 3), m.predicted(x, 4), 2, padding=1, groups=2, dilation=2
        ),
        lambda m, x: functional.conv1d(x.flatten(2), m.predicted(x, 4, 4, 5), stride=3)[..., None],
        lambda m, x: functional.conv2d(x.new_ones(1, 4, 6, 6), m.predicted(x, 4, 4, 3, 3)),
    ],
    ids=["grouped", "transposed", "one axis", "constant input"],
)
def test_computed_kernels_have_the_gradients_of_torch(function):
    model, x = Between(function).eval(), torch.randn(1, 3, 8, 9)
    network, _ = ran(model, x)
    assert_equals_torch(network, model, torch.randn(1, 3, 8, 9), 2)


# The runtime


def archive(path, files):
    with tarfile.open(path, "w:gz") as made:
        for name, data in files.items():
            said = tarfile.TarInfo(f"package/dist/{name}")
            said.size = len(data)
            made.addfile(said, io.BytesIO(data))
    return path


@pytest.fixture
def files(monkeypatch):
    """Return two small files that pass for the runtime: pages can be written, but not opened."""
    script = b"export{a as env};\n//# sourceMappingURL=ort.map\n"
    made = {runtime.SCRIPT: script, runtime.BINARY: b"\0asm"}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in made.items()}
    monkeypatch.setattr(runtime, "DIGESTS", digests)
    return made


def test_the_runtime_is_read_from_an_archive_or_a_folder(files, tmp_path, monkeypatch):
    path = archive(tmp_path / ARCHIVE, files)
    monkeypatch.setenv(runtime.VARIABLE, str(path))
    found = runtime.load_runtime()
    assert found.script == "export{a as env};\n" and found.binary == b"\0asm"
    with tarfile.open(path) as opened:
        opened.extractall(tmp_path / "there", filter="data")
    assert read_runtime(tmp_path / "there").binary == b"\0asm"
    with pytest.raises(ValueError, match=r"holds no ort-wasm-simd-threaded\.wasm"):
        read_runtime(archive(tmp_path / "half.tgz", {runtime.SCRIPT: files[runtime.SCRIPT]}))
    monkeypatch.setenv(runtime.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="is missing: give the file"):
        runtime.load_runtime()


@pytest.mark.parametrize("changed", [runtime.SCRIPT, runtime.BINARY, "half"])
def test_a_changed_runtime_is_refused_if_passed_and_fetched_again_if_cached(
    changed, files, tmp_path, monkeypatch
):
    good = archive(tmp_path / "good.tgz", files).read_bytes()
    if changed == "half":
        bad = good[: len(good) // 2]
    else:
        bad = archive(tmp_path / "bad.tgz", files | {changed: b"changed"}).read_bytes()
    given = tmp_path / ARCHIVE
    given.write_bytes(bad)
    monkeypatch.setenv(runtime.VARIABLE, str(given))
    with pytest.raises(ValueError, match=f"npm pack {runtime.PACKAGE}"):
        runtime.load_runtime()
    monkeypatch.delenv(runtime.VARIABLE)

    def fetched(folder):
        (folder / ARCHIVE).write_bytes(good)
        return folder / ARCHIVE

    monkeypatch.setattr(runtime, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    monkeypatch.setattr(runtime, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(runtime, "fetch_runtime", fetched)
    assert runtime.load_runtime().binary == b"\0asm"
    assert given.read_bytes() == good


def test_the_error_for_a_missing_runtime_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "npm", lambda: None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'hookviz\[network\]'"):
        runtime.fetch_runtime(tmp_path)
    monkeypatch.setattr(runtime, "npm", lambda: ["/nowhere/npm"])
    with pytest.raises(FileNotFoundError, match=f"npm pack {runtime.PACKAGE}"):
        runtime.fetch_runtime(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_a_page_that_runs_the_network(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(runtime.VARIABLE, str(archive(tmp_path / ARCHIVE, files)))
    path, picture = tmp_path / "network.html", tmp_path / "picture.png"
    hookviz.demo_images()[0].save(picture)
    asked = ["page", f"{__name__}:Small", str(picture), "--layers", "stem", "--network"]
    assert main([*asked, "--precision", "float16", "-o", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert "wasm-unsafe-eval" in page and "This page runs the network: weights in float16" in page
    assert re.search(r"gradients by \d[\d.]* % of their norm", page)
    assert f"{path}: {len(page) / 1e6:.1f} MB, 1 layer\n" in capsys.readouterr().err
