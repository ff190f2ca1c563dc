"""Preparing pictures, tensors and other arguments as model input, and showing it as a picture."""

import copy
import re

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from architectures import model_of
from matplotlib import cbook
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import Inception_V3_Weights, ResNet18_Weights, ResNet34_Weights
from torchvision.transforms import Compose, Normalize, ToTensor, v2

import hookviz
from hookviz.draw.overlay import as_fed, picture_of
from hookviz.export.network.transform import page_transform
from hookviz.run.inputs import prepare_input
from hookviz.run.pictures import load_picture
from hookviz.run.session import Session
from hookviz.run.target import class_names_of
from hookviz.view.payload import model_payload

RGB = nn.Conv2d(3, 2, 1)
PHOTOGRAPH = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
PICTURE = hookviz.demo_images()[6]
RANDOM = np.random.default_rng(0)


def classifier(channels):
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), *pooled).eval()


# The transform


def test_the_transform_of_torchvisions_weights_is_used():
    weights = ResNet34_Weights.DEFAULT
    prepared = prepare_input(PHOTOGRAPH, RGB, weights=weights)
    assert torch.equal(prepared.args[0], weights.transforms()(load_picture(PHOTOGRAPH).rgb())[None])
    assert prepared.mean == (0.485, 0.456, 0.406)
    assert class_names_of(RGB, weights)[652] == "military uniform"
    inception = prepare_input(PHOTOGRAPH, RGB, weights=Inception_V3_Weights.DEFAULT)
    assert inception.args[0].shape == (1, 3, 299, 299)
    with pytest.raises(TypeError, match="has no transforms"):
        prepare_input(PHOTOGRAPH, RGB, weights="DEFAULT")


def test_pretrained_cfg_gives_timms_transform():
    model = timm.create_model("efficientnet_lite0", pretrained=False)
    config = timm.data.resolve_model_data_config(model)
    expected = timm.data.create_transform(**config)(load_picture(PHOTOGRAPH).rgb())[None]
    prepared = prepare_input(PHOTOGRAPH, model).args[0]
    assert prepared.shape == expected.shape
    assert (prepared - expected).abs().max() < 0.02  # about one gray level of 255


def test_the_source_of_the_transform_is_described():
    origins = {
        "ImageNet's transform, a guess: resize to 256, crop 224×224, (x − (0.485, 0.456": {},
        "transform of the weights IMAGENET1K_V1: resize to 256, crop": {
            "weights": ResNet18_Weights.DEFAULT
        },
        "transform= as given: to values from 0 to 1": {"transform": ToTensor()},
    }
    for words, options in origins.items():
        preprocessing = prepare_input(PICTURE, RGB, **options).preprocessing
        assert preprocessing.words.startswith(words)
        assert preprocessing.guessed == words.startswith("ImageNet")
    own = v2.Compose([v2.Resize((5, 7)), v2.PILToTensor(), v2.ToDtype(torch.float32)])
    prepared = prepare_input(PHOTOGRAPH, RGB, weights=ResNet34_Weights.DEFAULT, transform=own)
    assert prepared.args[0].shape == (1, 3, 5, 7)  # transform= takes precedence over weights=
    with pytest.raises(TypeError, match="returned Image, not a tensor"):
        prepare_input(PICTURE, RGB, transform=lambda picture: picture)


TRANSFORMS = {  # mode -> the picture, and a transform for it
    "L": (PICTURE.convert("L"), Compose([ToTensor(), Normalize((0.1307,), (0.3081,))])),
    "RGBA": (PICTURE.convert("RGBA"), Compose([ToTensor(), Normalize([0.5] * 4, [0.2] * 4)])),
    "F": (Image.fromarray(RANDOM.random((28, 28), dtype=np.float32) * 900), ToTensor()),
    "I;16": (
        Image.fromarray(RANDOM.integers(0, 4000, (28, 28), dtype=np.uint16)),
        lambda scan: torch.from_numpy(np.asarray(scan).astype(np.float32) / 4095)[None],
    ),
    "RGB": (PICTURE, lambda picture: ToTensor()(picture)[:1] - 0.5),  # keeps the red channel
}


@pytest.mark.parametrize("mode", TRANSFORMS)
def test_a_transform_gets_the_picture_in_its_original_mode(mode):
    picture, transform = TRANSFORMS[mode]
    expected = transform(picture)[None]
    model = classifier(expected.shape[1])
    assert picture.mode == mode
    explorer = hookviz.explore(model, picture, transform=transform)
    assert torch.equal(explorer.displayed().session.inputs.main, expected)
    assert explorer.displayed().session.inputs.note == ""
    survey = hookviz.survey(model, [picture], "0", transform=transform)
    mean = model[0](expected).mean((0, 2, 3))
    assert survey["0"].mean == pytest.approx(mean.tolist(), rel=1e-4, abs=1e-6)
    diagonal = Image.new(mode, (4, 6))
    assert prepare_input(diagonal, model, transform=transform).args[0].shape[-2:] == (6, 4)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_a_picture_is_converted_for_a_transform_that_needs_other_channels(mode):
    transform = Compose([ToTensor(), Normalize([0.5] * 3, [0.25] * 3)])
    gray = Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64) * 16)
    picture = gray if mode == "I;16" else PICTURE.convert("L").convert(mode)
    prepared = prepare_input(picture, RGB, transform=transform)
    assert torch.equal(prepared.args[0], transform(load_picture(picture).rgb())[None])
    assert prepared.note.startswith(f"converted from mode {mode} to RGB")
    assert ("8 bits" in prepared.note) == (mode == "I;16")


def test_a_16_bit_picture_is_scaled_for_a_transform_that_expects_floats():
    scan = RANDOM.integers(0, 4001, (28, 28), dtype=np.uint16)
    scan[0, :2] = 0, 4000
    transform = Compose([ToTensor(), Normalize((0.5,), (0.5,))])
    for own in (transform, ToTensor()):
        prepared = prepare_input(Image.fromarray(scan), classifier(1), transform=own)
        levels = (
            prepared.args[0] * prepared.std[0] + prepared.mean[0]
            if prepared.std
            else prepared.args[0]
        )
        assert torch.allclose(levels[0, 0], torch.from_numpy(scan / 4000).float(), atol=1e-6)
        assert prepared.note == "values 0 to 4000 stretched to 0 to 1"


def test_a_page_converts_pictures_to_gray_for_a_gray_transform():
    prepared = prepare_input(PICTURE.convert("L"), classifier(1), transform=TRANSFORMS["L"][1])
    steps, note = page_transform(prepared, prepared.args[0])
    assert steps == {"steps": [{"kind": "gray"}], "mean": [0.1307], "std": [0.3081]}
    assert note == ""


def test_an_error_of_a_transform_is_raised_unchanged():
    def transform(picture):
        raise KeyError(picture.mode)

    with pytest.raises(KeyError, match="^'L'$"):
        prepare_input(PICTURE.convert("L"), RGB, transform=transform)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "F"])
def test_without_a_transform_pictures_get_the_models_channels(mode, channels):
    picture = PICTURE.convert("L").convert(mode) if mode == "F" else PICTURE.convert(mode)
    model = nn.Conv2d(channels, 2, 3)
    prepared = prepare_input(np.asarray(picture) / 255 if mode == "F" else picture, model)
    assert prepared.args[0].shape == (1, channels, 224, 224)
    assert sum(prepared.mean[:3]) / min(channels, 3) == pytest.approx(0.449, abs=1e-3)
    shown = picture_of(prepared)[0]
    assert shown.shape == (224, 224, 3)
    small = np.asarray(Image.fromarray(shown).resize((56, 56)), float)
    wanted = PICTURE.convert("RGB" if channels > 1 and mode not in "LF" else "L").convert("RGB")
    wanted = wanted.resize((256, 256)).crop((16, 16, 240, 240)).resize((56, 56))
    assert np.abs(small - np.asarray(wanted, float)).mean() < 6


def test_models_without_picture_channels_refuse_pictures():
    for model, words in ((nn.Conv2d(7, 2, 3), "7 channels in 2d"), (nn.Conv1d(3, 2, 3), "in 1d")):
        with pytest.raises(ValueError, match=f"takes .*{words}, not a picture: pass a tensor"):
            prepare_input(PHOTOGRAPH, model)


def test_the_input_has_the_dtype_of_the_model():
    assert prepare_input(PHOTOGRAPH, nn.Conv2d(3, 2, 1).bfloat16()).args[0].dtype == torch.bfloat16


def with_input_statistics(mean, deviation):
    """Return a small network trained with inputs of this mean and standard deviation."""
    model = nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3), nn.Flatten())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3)[..., None, None])
        model[1].running_mean.fill_(mean)
        model[1].running_var.fill_(deviation**2)
    return model.eval()


def test_the_explorer_names_the_transform_and_doubts_a_wrong_guess():
    photograph = hookviz.models.photographs()["chelsea"]
    own = v2.Compose([v2.Resize([32, 32]), v2.PILToTensor(), v2.ToDtype(torch.float32)])
    notes = {
        "guessed": (
            with_input_statistics(0.0, 1.0),
            photograph,
            {},
            "preprocessing: guessed (ImageNet)",
        ),
        # The statistics of the first BatchNorm contradict this guess.
        "doubted": (
            with_input_statistics(120.0, 60.0),
            photograph,
            {},
            "at the first BatchNorm, '1'",
        ),
        "given": (
            with_input_statistics(120.0, 60.0),
            photograph,
            {"transform": own},
            "preprocessing: as given",
        ),
        "tensor": (with_input_statistics(0.0, 1.0), torch.rand(1, 3, 8, 8), {}, ""),
    }
    for case, (model, inputs, options, note) in notes.items():
        explorer = hookviz.explore(model, inputs, **options)
        assert note in explorer.frame.input.note
        facts = model_payload(explorer.displayed())["transform"]
        if case == "tensor":
            assert facts is None
        else:
            assert ("Give transform= or weights=." in facts["doubt"]) == (case == "doubted")


# Batches


class Column:
    """A stand-in for a column of a data frame."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_several_pictures_become_a_batch(tmp_path):
    path = tmp_path / "cat.png"
    PICTURE.save(path)
    model, array = hookviz.demo_model(), np.asarray(PICTURE)
    one = prepare_input(PICTURE, model).args[0]
    frames = np.stack([array, array])
    forms = [
        [str(path), PICTURE],
        [array, path],
        frames,
        frames.transpose(0, 3, 1, 2),
        frames / 255,
        np.array([str(path), str(path)]),
        Column(np.array([str(path), path], object)),
        list(torch.from_numpy(frames)),
    ]
    for form in forms:
        prepared = prepare_input(form, model)
        assert torch.allclose(prepared.args[0], torch.cat([one, one]), atol=1e-6), type(form)
        assert prepared.name == "2 pictures" and len(prepared.pictures) == 2
    for other in (None, float("nan"), 7, [0, 0]):
        with pytest.raises(TypeError, match=f"The Column holds {re.escape(str(other))}, which is"):
            prepare_input(Column(np.array([str(path), other], object)), model)
    with pytest.raises(ValueError, match="empty list"):
        prepare_input([], model)
    with pytest.raises(ValueError, match="tensors of 2 sizes"):
        prepare_input([PICTURE, PICTURE.crop((0, 0, 50, 60))], model, transform=ToTensor())


# Tensors


NEED_VALUES = {
    "explore": lambda m, x: hookviz.explore(m, x),
    "diagnose": lambda m, x: hookviz.diagnose(m, x),
    "compare": lambda m, x: hookviz.compare(m, copy.deepcopy(m), x),
    "compare inputs_b": lambda m, x: hookviz.compare(m, m, torch.ones(1, 3, 8, 8), inputs_b=x),
    "attribute": lambda m, x: hookviz.attribute(m, x, 1),
    "sanity_check": lambda m, x: hookviz.metrics.sanity_check(m, x, "gradcam", target=1),
    "receptive_field": lambda m, x: hookviz.receptive_field(m, x, "0"),
}


@pytest.mark.parametrize("name", NEED_VALUES)
@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 3, 0, 8)])
def test_an_empty_batch_is_refused_where_values_are_needed(name, shape):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(ValueError, match=re.escape(f"{shape}, is empty: give a batch of one")):
        NEED_VALUES[name](model, torch.zeros(shape))
    assert hookviz.graph(model, torch.zeros(0, 3, 8, 8)).nodes


def test_an_empty_tensor_beside_others_is_an_argument():
    prepared = prepare_input((torch.ones(1, 3, 4, 4), torch.zeros(0, 5)), nn.Flatten())
    assert prepared.args[1].shape == (0, 5)
    with pytest.raises(ValueError, match="is empty"):
        prepare_input(torch.zeros(0, 5, dtype=torch.int64), nn.Flatten())


def test_tuples_dicts_and_lists_become_arguments():
    x = torch.rand(1, 3, 4, 4)
    assert len(prepare_input((x, x), RGB).args) == 2
    assert prepare_input({"input": x}, RGB).kwargs["input"].equal(x)
    whole = prepare_input({"pixel_values": x}, RGB)  # not the name of an argument
    assert whole.kwargs == {} and whole.args[0]["pixel_values"].equal(x)
    assert isinstance(prepare_input([x[0]], RGB).args[0], list)


@pytest.mark.parametrize("order", ["HW", "CHW", "HWC", "NCHW", "NHWC"])
def test_tensors_of_bytes_are_read_as_pictures(order):
    picture = PICTURE.convert("L") if order == "HW" else PICTURE
    tensor = torch.from_numpy(np.array(picture))
    tensor = tensor.permute(2, 0, 1) if "CHW" in order else tensor
    tensor = tensor[None] if order.startswith("N") else tensor
    model = hookviz.demo_model()
    inputs = Session(model, prepare_input(tensor, model)).inputs
    assert torch.allclose(inputs.args[0], prepare_input(picture, model).args[0], atol=1e-6)
    assert inputs.note == "a tensor of bytes was taken as pictures"


def test_a_model_that_takes_bytes_gets_bytes():
    x = torch.randint(0, 255, (2, 3, 8, 8), dtype=torch.uint8)
    model = model_of(lambda m, x: m.conv(x / 255).mean((2, 3)), conv=nn.Conv2d(3, 2, 3))
    assert torch.equal(Session(model, prepare_input(x, model)).inputs.args[0], x)


# Inputs on which the model raises, with advice

X, LABELS = torch.rand(2, 3, 9, 9), torch.tensor([0, 1])
REJECTED = [
    (torch.zeros(3, 9, 9, dtype=torch.long), "is of type int64: give floats, or a picture's"),
    (torch.zeros(2, 7, 9, 9, dtype=torch.uint8), "is of type uint8: give floats"),
    (torch.ones(3, 9, 9, dtype=torch.bool), "is of type bool: give floats"),
    (torch.randn(1, 9, 8, 3), r"channels last: give tensor.permute\(0, 3, 1, 2\)"),
    (torch.randn(9, 8, 3), r"channels last: give tensor.permute\(2, 0, 1\)"),
    ([torch.rand(3, 9, 9)] * 2, r"is one argument: give torch.stack\(tensors\), which takes"),
    ([torch.rand(3, 9, 9), torch.rand(3, 8, 7)], "which takes tensors of one size, or a list of"),
    ((PICTURE,) * 2, "give a list for a batch of pictures"),
    (("cat.jpg", "dog.jpg"), "given str and str: .* give a list for a batch"),
    ([PICTURE, "cat.jpg", 3], "given a list of 3: .*, or a list of pictures and paths"),
    ({"input": X, "label": LABELS}, r"The keys 'label' are not arguments of forward\(input\)\."),
    ((X, X), r"Give a dict of the arguments of forward\(input\); .* as \(\(a, b\),\)\."),
    ({}, r"The dict lacks arguments of forward\(input\)\."),
    *((batch, r"as a DataLoader gives them: give batch\[0\]") for batch in (
        [X, LABELS], (X, LABELS), [X], [X, X[:, :1]], [X, LABELS, ["a", "b"]], (PICTURE, 3),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "cure"), REJECTED)
@pytest.mark.parametrize("study", [hookviz.explore, hookviz.trace])
def test_rejected_inputs_are_reported_with_advice(inputs, cure, study):
    with pytest.raises((ValueError, RuntimeError), match=cure) as error:
        study(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), inputs)
    assert "\n" not in str(error.value) and "Give the tensor itself" not in str(error.value)


def test_a_model_that_got_too_few_arguments_is_reported_with_them():
    model = model_of(lambda m, x, *, mask: m.conv(x * mask), conv=nn.Conv2d(3, 2, 3))
    with pytest.raises(RuntimeError, match=r"Give a dict of the arguments of forward\(.*mask\)\.$"):
        hookviz.explore(model, X)
    with pytest.raises(RuntimeError, match=r"The dict lacks arguments of forward\(.*mask\)\.$"):
        hookviz.explore(model, {"x": X})


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": X, "task": "zz"}, r"KeyError in .*, given x=\(2, 3, 9, 9\): 'zz'"),
        ({"x": (X, X[:1]), "task": "zz"}, r"given x=\(2, 3, 9, 9\) and x=\(1, 3, 9, 9\): 'zz'"),
        ((X, "zz"), r"KeyError in .*, given \(2, 3, 9, 9\): 'zz'"),
        ({"x": 3, "task": "zz"}, "KeyError in .*, given x=int and task=str: 'zz'"),
        ({"x": X[:, :2], "task": "a"}, r"shape \(2, 2, 9, 9\), does not fit layer 'conv'"),
    ],
)
def test_arguments_by_name_are_listed_when_the_model_raises(inputs, words):
    def forward(model, x, task):
        return {"a": model.conv}[task](input=x)

    with pytest.raises((ValueError, RuntimeError), match=words):
        hookviz.explore(model_of(forward, conv=nn.Conv2d(3, 2, 3)), inputs)


def test_unsupported_inputs_are_refused():
    with pytest.raises(TypeError, match="Cannot make an input of int"):
        prepare_input(3, RGB)
    with pytest.raises(TypeError, match=r"give the inputs of one, next\(iter\(loader\)\)\[0\]"):
        prepare_input(DataLoader([X]), RGB)
    with pytest.raises(TypeError, match=r"A data set holds many .*, dataset\[0\]\[0\]"):
        prepare_input(TensorDataset(X), RGB)
    with pytest.raises(TypeError, match="transform='centre' is not a function"):
        prepare_input(X, RGB, transform="centre")


def test_no_advice_on_lists_if_the_model_takes_lists():
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as error:
        hookviz.explore(
            model_of(
                lambda m, tensors: m.conv(torch.stack(tensors)).mean((2, 3)),
                conv=nn.Conv2d(3, 2, 3),
            ),
            [torch.rand(3, 9, 9), torch.rand(3, 8, 8)],
        )
    assert "torch.stack(tensors)" not in str(error.value)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (F.relu, "layers=relu is a function.* such as torch.nn.ReLU, or a layer's name"),
        (torch.relu, "such as torch.nn.ReLU"),
        (lambda name: True, r"does not take \(name, module\)"),
        ([F.relu], "give types as a tuple"),
        ([nn.Conv2d], "give types as a tuple"),
    ],
)
def test_functions_as_layers_are_refused(layers, words):
    with pytest.raises(TypeError, match=words):
        hookviz.capture(RGB, layers)


# NaN


def without_missing(m, x):
    """Replace NaN by 0 and pass its positions to the network."""
    known = x.isfinite()
    present = known.all(1, keepdim=True).float()
    return m.net(torch.cat([torch.where(known, x, 0.0), present], 1))


def with_nan():
    x = torch.rand(1, 3, 4, 4)
    x[0, 0, 0, :2] = torch.tensor([torch.nan, torch.inf])
    return x


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: {"input": x}])
@pytest.mark.parametrize("study", [hookviz.explore, hookviz.trace])
def test_nan_that_reaches_the_output_is_refused(wrap, study):
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten())
    with pytest.raises(ValueError, match="has 1 NaN and 1 infinite values of 48, and so the"):
        study(model, wrap(with_nan()))


def test_a_model_that_handles_nan_is_explored_and_healthy():
    model, x = model_of(without_missing, net=classifier(4)).eval(), with_nan()
    explorer = hookviz.explore(model, x)
    assert "the input has 1 NaN and 1 infinite values of 48" in explorer.frame.summary
    assert explorer.frame.input.pixels.shape == (4, 4, 3)
    assert torch.equal(explorer.displayed().run.logits, model(x).detach())
    diagnosis = hookviz.diagnose(model, x, lambda output: F.cross_entropy(output, LABELS[:1]))
    assert [finding.severity for finding in diagnosis] == ["note"]
    assert diagnosis[0].message.endswith("the model handles it: no layer returns it.")
    faulty = hookviz.diagnose(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten()), x)
    assert faulty[0].severity == "error" and "The input holds NaN" in faulty[0].message


# Sparse inputs


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, features, adjacency):
        return self.b(torch.sparse.mm(adjacency, self.a(features)).relu())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
def test_all_functions_accept_sparse_inputs(layout):
    model, other = GraphNetwork(), GraphNetwork()
    inputs = torch.rand(6, 5), (torch.eye(6) + torch.ones(6, 6).triu()).to_sparse(layout=layout)
    expected = model(*inputs)
    explorer = hookviz.explore(model, inputs, layers=nn.Linear)
    assert torch.equal(explorer.displayed().run.logits, expected)
    assert sorted(hookviz.graph(model, inputs).sources("b")) == [("a", 0), ("input", 1)]
    fired = [row["layer"] for row in hookviz.trace(model, inputs).records()]
    assert fired.index("a") < fired.index("b")
    for second in (model, other):
        rows = hookviz.compare(model, second, inputs).records()
        assert {row["relative"] > 0 for row in rows} == {second is other}
    assert hookviz.diagnose(model, inputs).verdict == "GraphNetwork: healthy"
    x = inputs[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x, inputs[1]).amax(1).sum(), x)
    assert torch.equal(hookviz.attribute(model, inputs), gradient.abs())


# Complex inputs


def test_functions_with_a_target_accept_complex_inputs():
    model = nn.Sequential(*[nn.Conv2d(n, 4, 3, dtype=torch.complex64) for n in (1, 4)])
    x, target = torch.randn(1, 1, 8, 8, dtype=torch.complex64), lambda y: y.abs().square().sum()
    record = hookviz.explore(model, x, target=target).cache["1"]
    torch.testing.assert_close(record.gradient, 2 * record.activation)
    assert "9 in the backward" in repr(hookviz.trace(model, x, target=target))
    assert "equal to the bit" in hookviz.compare(model, model, x, target=target).verdict
    check = hookviz.metrics.sanity_check(model, x, target=target, steps=1)
    assert check.maps.shape == (2, 1, 4, 4)
    with pytest.raises(ValueError, match="no floating-point tensor .* complex numbers"):
        hookviz.attribute(model, x, target)


# Back to a picture


def test_the_shown_picture_is_the_models_input():
    model = hookviz.demo_model()
    for image in hookviz.demo_images()[:3]:
        shown, _ = picture_of(prepare_input(image, model))
        assert np.abs(shown.astype(int) - np.asarray(image)).max() <= 1


def test_normalization_of_tensors_is_undone():
    pixels = torch.rand(1, 3, 8, 8)
    mean, std = (
        torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    shown, _ = picture_of(prepare_input((pixels - mean) / std, RGB))
    assert np.abs(shown.transpose(2, 0, 1) / 255 - pixels[0].numpy()).max() < 0.01
    plain, _ = picture_of(prepare_input(pixels, RGB))
    assert (plain == shown).all()


def test_volumes_signals_and_other_inputs_have_pictures():
    wide, _ = picture_of(prepare_input(torch.randn(1, 7, 8, 8) * 100, nn.Conv2d(7, 1, 1)))
    assert wide.shape == (8, 8, 3)
    signal, _ = picture_of(prepare_input(torch.randn(1, 2, 60), nn.Conv1d(2, 1, 1)))
    assert signal.shape == (10, 60, 3)
    volume = torch.zeros(1, 1, 3, 4, 4)
    volume[0, 0, 2] = 1
    inputs = prepare_input(volume, nn.Conv3d(1, 1, 1))
    assert picture_of(inputs, depth=0.0)[0].max() == 0
    assert picture_of(inputs, depth=1.0)[0].min() == 255
    assert picture_of(prepare_input(torch.zeros(1, 4, dtype=torch.long), RGB)) == (None, "")
    batch = torch.stack([torch.zeros(3, 2, 2), torch.ones(3, 2, 2)])
    assert picture_of(prepare_input(batch, RGB), sample=1)[0].min() == 255


def test_shown_model_inputs_equal_the_tensor():
    prepared = prepare_input(
        hookviz.models.photographs()["coffee"], with_input_statistics(0.0, 1.0)
    )
    picture, _ = picture_of(prepared)
    fed = as_fed(prepared)
    seen = picture / 255 * np.array(fed["gain"]) + np.array(fed["shift"])
    numbers = prepared.args[0][0].permute(1, 2, 0).numpy()
    stretched = (numbers - numbers.min()) / np.ptp(numbers)
    assert np.abs(seen - stretched).max() < 1 / 255
    # A picture that contains black and white is not stretched.
    full = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).resize((224, 224))
    weights = hookviz.pretrained("efficientnet_lite0")[1]
    fed = as_fed(prepare_input(full, with_input_statistics(0.0, 1.0), weights=weights))
    assert fed["words"] == "−0.992 (black) to 1 (white)" and np.allclose(fed["gain"], 1, atol=1e-4)
    assert as_fed(prepare_input(torch.rand(1, 3, 8, 8), with_input_statistics(0.0, 1.0))) is None


# Names of classes


def test_class_names_come_from_several_sources():
    assert class_names_of(hookviz.demo_model())[6] == "moon"
    assert class_names_of(RGB, None, ["a", "b"]) == ["a", "b"]
    assert class_names_of(RGB) == []
    with pytest.raises(TypeError, match="list of strings"):
        class_names_of(RGB, None, "abc")
    model, x = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()), torch.rand(1, 3, 8, 8)
    with pytest.raises(ValueError, match="class_names has 2 names for 4 classes"):
        hookviz.explore(model, x, class_names=["cat", "dog"])
    model.class_names = ["cat", "dog"]  # names for another number of classes
    explorer = hookviz.explore(model, x)
    assert explorer.frame.predictions[0].name not in model.class_names


def colour_and_depth(m, rgb, depth):
    return (m.colour(rgb) * m.depth(depth)).mean((2, 3))


def test_a_list_of_tensors_is_the_arguments_of_a_model_that_needs_as_many():
    both = [torch.rand(1, 3, 8, 8), torch.rand(1, 1, 8, 8)]
    model = model_of(colour_and_depth, colour=nn.Conv2d(3, 4, 3), depth=nn.Conv2d(1, 4, 3)).eval()
    args = prepare_input(both, model).args
    assert [arg.shape for arg in args] == [tensor.shape for tensor in both]
    hookviz.explore(model, both).close()
    assert isinstance(prepare_input([torch.rand(3, 8, 8)], RGB).args[0], list)
