"""Attributions equal handwritten references and leave the model unchanged."""

import sys
import warnings

import captum.attr  # noqa: F401 (here, since the libraries that it imports warn of each other)
import numpy as np
import pytest
import torch
import torchvision
from architectures import model_of
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.attribution.gradients import ATTRIBUTIONS, attribute, picture_map

# In float64: in float32 two orders of summation may take different sides of a ReLU, and how often
# they do depends on the processor.
MODEL = hookviz.demo_model().double()
PICTURES = hookviz.demo_images()
X = torch.cat([hookviz.attribution.prepare_input(PICTURES[i], MODEL).args[0] for i in (6, 20)])
X = X[..., ::4, ::4].double()  # small, because some methods run the model many times

# Small numbers suffice to test a method; the defaults are for pictures.
QUICK = {"smoothgrad": {"nt_samples": 3}, "integrated_gradients": {"n_steps": 3}}


def quick(model, x, method, target=None, **options):
    return attribute(model, x, target, method=method, **{**QUICK.get(method, {}), **options})


def gradient(score, x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(score(x), x)[0]


def logit(target, model=MODEL):
    return lambda x: model(x)[:, target].sum()


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # warnings of captum
        yield


# Saliency, SmoothGrad and integrated gradients against handwritten references


def test_saliency_is_the_gradients_magnitude():
    expected = gradient(logit(3), X)
    assert torch.equal(attribute(MODEL, X, target=np.int64(3)), expected.abs())
    assert torch.equal(attribute(MODEL, X, target=torch.tensor(3)), expected.abs())
    assert torch.equal(attribute(MODEL, X, target="flower", abs=False), expected)


def test_smoothgrad_is_a_mean_over_noisy_copies():
    def by_hand(x, target, stdev):
        torch.manual_seed(0)
        stdevs = torch.full_like(x, stdev, dtype=torch.float32)  # the noise is in float32
        copies = [x + torch.normal(0, stdevs) for _ in range(4)]
        return sum(gradient(logit(target), noisy) for noisy in copies) / 4

    top = MODEL(X).argmax(1).tolist()
    found = attribute(MODEL, X, method="smoothgrad", nt_samples=4)
    other = attribute(MODEL, X[:1], 3, method="smoothgrad", nt_samples=4, stdevs=1)
    with torch.random.fork_rng():
        for i, x in enumerate(X.split(1)):
            spread = 0.15 * (x.max() - x.min()).item()
            torch.testing.assert_close(found[i : i + 1], by_hand(x, top[i], spread))
        torch.testing.assert_close(other, by_hand(X[:1], 3, 1.0))


@pytest.mark.parametrize("baselines", [0, -1.0, torch.full((1, 3, 1, 1), 0.4)])
def test_integrated_gradients_equal_a_handwritten_sum(baselines):
    points, widths = np.polynomial.legendre.leggauss(5)
    start = torch.zeros_like(X) + baselines
    expected = sum(
        width / 2 * gradient(logit(3), start + (1 + point) / 2 * (X - start)) * (X - start)
        for point, width in zip(points.tolist(), widths.tolist(), strict=True)
    )
    options = {"method": "integrated_gradients", "n_steps": 5, "baselines": baselines}
    torch.testing.assert_close(attribute(MODEL, X, 3, **options), expected, rtol=1e-4, atol=1e-5)


# Guided backpropagation against a ReLU whose backward is written by hand


class GuidedByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inplace):
        ctx.save_for_backward(x > 0)
        if inplace:
            ctx.mark_dirty(x)
            return x.clamp_(min=0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, arriving):
        (positive,) = ctx.saved_tensors
        return arriving.clamp(min=0) * positive, None


def guided_by_hand(model, x, target):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "relu", lambda x, inplace=False: GuidedByHand.apply(x, inplace))
        patch.setattr(torch, "relu", lambda x: GuidedByHand.apply(x, False))
        patch.setattr(torch.Tensor, "relu", lambda x: GuidedByHand.apply(x, False))
        patch.setattr(torch.Tensor, "relu_", lambda x: GuidedByHand.apply(x, True))
        return gradient(lambda x: model(x.clone())[:, target].sum(), x)


def clearly_different(first, second):
    return (first - second).abs().max() > 0.01 * second.abs().max()


class Small(nn.Module):
    """Base of the small models below."""

    def __init__(self, inplace=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.features(self.conv1(x)).mean((2, 3)))


class PreActivation(Small):
    """A pre-activation ResNet: a ReLU's input is also used by the shortcut."""

    def features(self, x):
        x = x + self.conv2(self.relu(x))
        x = x + self.conv2(self.relu(x))
        return self.relu(x)


class ReliesOnInPlace(Small):
    def features(self, x):
        self.relu(x)
        return x


class Functional(Small):
    def features(self, x):
        x = self.conv2(torch.relu(x))
        x = self.conv2(x.relu_())
        return functional.relu(self.conv2(x.relu()), inplace=True)


class ReluOfABuffer(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("gate", torch.linspace(-1, 1, 8).view(8, 1, 1))

    def features(self, x):
        return self.relu(x) * self.relu(self.gate)


MODELS = {
    "resnet18": torchvision.models.resnet18,
    "shared": PreActivation,
    "shared, in place": lambda: PreActivation(inplace=True),
    "relies on in place": lambda: ReliesOnInPlace(inplace=True),
    "functional": Functional,
    "of a buffer": ReluOfABuffer,
}


@pytest.mark.parametrize("name", MODELS)
def test_guided_backprop_equals_a_relu_with_a_handwritten_backward(name):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = MODELS[name]().eval()
        x = torch.randn(2, 3, 40, 40)
    expected = guided_by_hand(model, x, 3)
    assert torch.equal(attribute(model, x, 3, method="guided_backprop"), expected)
    assert clearly_different(gradient(logit(3, model), x), expected)


# Targets and inputs


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_attributions_do_not_depend_on_other_samples(method):
    both = quick(MODEL, X, method)
    for i in (0, 1):
        alone = quick(MODEL, X[i : i + 1], method)
        torch.testing.assert_close(both[i : i + 1], alone, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_targets_may_be_contrasts_or_differ_between_samples(method):
    def contrast(output):
        return (output[:, 3] - output[:, [6, 8]].mean(1)).sum()

    options = {"stdevs": 0.0} if method == "smoothgrad" else {}
    given = quick(MODEL, X, method, (3, "moon", 8), **options)
    expected = quick(MODEL, X, method, contrast, **options)
    torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-6)
    mixed = quick(MODEL, X, method, [None, (3, 6, 8)], **options)
    torch.testing.assert_close(mixed[1], given[1], rtol=1e-3, atol=1e-6)
    top = quick(MODEL, X, method, **options)
    torch.testing.assert_close(mixed[0], top[0], rtol=1e-3, atol=1e-6)
    assert clearly_different(mixed[0], given[0])


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_frozen_and_half_precision_models_in_any_gradient_mode(method):
    """The result does not depend on the caller's gradient mode or on frozen parameters."""
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    x = torch.rand(2, 3, 6)
    expected = quick(model, x, method)
    model.requires_grad_(False)
    for block in (torch.no_grad, torch.inference_mode):
        with block():
            found = quick(model, x.clone(), method)
        assert torch.equal(found, expected) and not found.is_inference()
    assert not any(each.requires_grad for each in model.parameters())
    half = quick(model.bfloat16(), x.bfloat16(), method)
    assert half.dtype == torch.bfloat16 and half.shape == x.shape and half.isfinite().all()


class Scaled(nn.Module):
    """Changes its input in place, and multiplies the scores by factors for each sample."""

    def forward(self, picture, factors):
        return (picture.sub_(0.5) ** 2).mean((2, 3)) * factors


@pytest.mark.parametrize("method", ["saliency", "smoothgrad", "integrated_gradients"])
def test_inputs_passed_by_name_or_changed_in_place(method):
    """Only the first of several inputs has an attribution; the others are split by sample."""
    x, factors = torch.rand(2, 3, 4, 4), torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    kept = x.clone()
    both = quick(Scaled(), {"picture": x, "factors": factors}, method, 1)
    assert torch.equal(x, kept)
    assert both[:, 1].abs().min() > 0 and not both[:, [0, 2]].any()
    for i in (0, 1):
        alone = quick(Scaled(), (x[i : i + 1], torch.ones(1, 3)), method, 1)
        torch.testing.assert_close(both[i : i + 1], alone * factors[i, 1])


@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_reentrant_checkpoints_change_no_attribution(method):
    warnings.filterwarnings("ignore", "None of the inputs have requires_grad")  # torch's
    layers = [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)]
    plain, x = nn.Sequential(*layers), torch.rand(2, 1, 6, 6)
    again = lambda m, x: checkpoint(m.inner, x, use_reentrant=True)  # noqa: E731
    block = model_of(again, inner=nn.Sequential(*layers[1:3]))
    model = nn.Sequential(layers[0], block, *layers[3:])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = snapshot(model)
    if method == "guided_backprop":
        with pytest.raises(ValueError, match="does not reach the ReLUs in checkpoint"):
            quick(model, x, method)
    else:
        assert torch.equal(quick(model, x, method), quick(plain, x, method))
    assert_untouched(model, before)


def test_picture_map_sums_channels_as_the_method_requires():
    attribution = torch.tensor([[[1.0, -4.0], [-3.0, 2.0]]])
    assert picture_map(attribution).tolist() == [[3.0, 4.0]]
    for method in ("guided_backprop", "integrated_gradients"):
        assert picture_map(attribution, method).tolist() == [[-2.0, -2.0]]
    with pytest.raises(ValueError, match=r"shape \(3,\) has no channels"):
        picture_map(torch.rand(3))
    with pytest.raises(ValueError, match="Unknown attribution method='grad'"):
        picture_map(attribution, "grad")


# Errors


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("saliencey", {}, r"attribution method='saliencey'; close to it: 'saliency'"),
        ("guided_backprop", {"abs": True}, r"Unknown option 'abs' .* has none\."),
        ("integrated_gradients", {"n_steps": 0}, r"n_steps=0 cannot be used"),
        ("integrated_gradients", {"baselines": "black"}, r"baselines='black' cannot"),
        ("integrated_gradients", {"baselines": torch.rand(7)}, r"\(7,\), which does not fit the"),
        ("smoothgrad", {"nt_samples": True}, r"nt_samples=True cannot be used"),
        ("smoothgrad", {"stdevs": -1.0}, r"stdevs=-1\.0 cannot be used"),
        ("smoothgrad", {"seed": 1}, r"Unknown option 'seed' of 'smoothgrad'; .* stdevs"),
        ("saliency", {"target": 10}, r"target=10 is not a class .* 0 to 9"),
        ("saliency", {"target": lambda output: output}, r"shape \(2, 10\), not one"),
    ],
)
def test_errors_say_what_to_do(method, options, words):
    kind = TypeError if words.startswith("Unknown option") else ValueError
    with pytest.raises(kind, match=words):
        quick(MODEL, X, method, **options)


def test_unsupported_inputs_and_models_are_refused():
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, not type"):
        attribute(nn.Conv2d, X)
    for wrong in ([torch.rand(3, 9, 9)], X.long()):
        with pytest.raises(ValueError, match="no floating-point tensor"):
            attribute(MODEL, wrong)
    with pytest.raises(ValueError, match=r"shape \(2, 4, 56, 56\), does not fit layer 'stem\.0'"):
        attribute(MODEL, torch.rand(2, 4, 56, 56).double())
    with pytest.raises(ValueError, match=r"class scores \(N, K\), .* tensor of shape \(2, 4, 26"):
        attribute(nn.Conv2d(3, 4, 3).double(), X)
    with pytest.raises(ValueError, match=r"'0' is lazy"):
        attribute(nn.Sequential(nn.LazyConv2d(4, 3)), X)


def test_a_bag_of_pictures_with_one_prediction_is_refused():
    bag = model_of(
        lambda m, x: m.score(x.mean((2, 3))).amax(0, keepdim=True), score=nn.Linear(3, 2)
    )
    pictures = torch.rand(5, 3, 8, 8)
    for target in (None, 1):
        for study in (attribute, hookviz.attribution.occlusion):
            with pytest.raises(
                ValueError, match="1 row of scores for 5 samples, .* one sample, or"
            ):
                study(bag, pictures, target)
    found = attribute(bag, pictures, lambda output: output[0, 1], method="saliency")
    assert found.shape == pictures.shape


def test_an_error_of_the_model_keeps_its_cause():
    model = Small().double()
    model.features = lambda x: torch.rand(2).backward()
    with pytest.raises(RuntimeError, match="The model raised RuntimeError in Small") as caught:
        attribute(model, X)
    assert "does not require grad" in str(caught.value.__cause__)


def test_scores_that_do_not_depend_on_the_input_are_refused():
    model = Small().double()
    model.features = lambda x: x.detach()
    with pytest.raises(ValueError, match="does not depend on the input"):
        attribute(model, X)
    with pytest.raises(ValueError, match="does not depend on the input"):
        attribute(model.requires_grad_(False), X)


@pytest.mark.parametrize(
    "target", [lambda y: y[0, 1].item(), lambda y: y[0].argmax(), lambda y: y[0, 1].detach()]
)
@pytest.mark.parametrize("method", ATTRIBUTIONS)
def test_a_function_without_a_gradient_is_named_as_the_cause(method, target):
    with pytest.raises(ValueError, match="target= returned .* gradient: compute it .* without flo"):
        quick(MODEL, X[:1], method, target)


@pytest.mark.parametrize("study", [attribute, hookviz.explore])
def test_a_model_without_a_gradient_is_named_as_the_cause_of_a_functions(study):
    model = Small().double().requires_grad_(False)
    model.features = lambda x: x.detach()
    with pytest.raises(ValueError, match="nor has the model's output one: see whether the model"):
        study(model, X, lambda y: y[0, 1])


def test_guided_backprop_without_a_relu_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU6(), nn.Flatten()).double()
    with pytest.raises(ValueError, match=r"No ReLU ran, .* use method='saliency'"):
        attribute(model, X, method="guided_backprop")


def test_a_missing_captum_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(ImportError, match=r'need captum.*: pip install "hookviz\[attributions\]"'):
        attribute(MODEL, X)
