"""Edits equal the same change in the model's code, and end with their block."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
import torchvision
from architectures import model_of
from torch import nn
from torch.distributions import Normal
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot
from zoo.edits.written import Written

import hookviz


def with_change_in_code(model, name, change):
    """Return a copy of the model in which one layer's code makes the change."""
    model = copy.deepcopy(model)
    parent = model.get_submodule(name.rpartition(".")[0])
    setattr(parent, name.rpartition(".")[2], Written(model.get_submodule(name), change))
    return model


def scaled(number, channels):
    def change(x):
        x = x.clone()
        x[:, channels] = x[:, channels] * number
        return x

    return change


def results(model, x):
    """Return the logits, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    logits = model(x)
    score = (logits * torch.arange(logits.numel()).view_as(logits)).sum()
    sources = [x, *model.parameters()]
    return [logits.detach(), *torch.autograd.grad(score, sources, materialize_grads=True)]


def assert_equal(got, wanted):
    assert len(got) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


class VGG(nn.Module):
    """A network with in-place ReLUs after its convolutions."""

    def __init__(self):
        super().__init__()
        self.features = torchvision.models.vgg.make_layers([4, "M", 8, "M"])
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def vgg():
    torch.manual_seed(0)
    return VGG().eval()


X = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([False, True, False, True])

CHANGES = {
    "off": (0, [1, 3], scaled(0, [1, 3])),
    "half": (0.5, slice(None, None, 2), scaled(0.5, slice(None, None, 2))),
    "doubled": (2, None, lambda x: x * 2),
    "mean": ("mean", None, lambda x: x.mean((2, 3), keepdim=True).expand_as(x).clone()),
    "function": (torch.tanh, None, lambda x: torch.tanh(x).clone()),
    "tensor": (torch.full((8, 1, 1), 0.3), None, lambda x: torch.full_like(x, 0.3) + 0 * x),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_an_edit_equals_the_same_change_in_the_models_code(kind):
    change, channels, by_hand = CHANGES[kind]
    model = vgg()
    before = snapshot(model)
    with hookviz.edit(model, "features.3", change, channels=channels) as edit:
        got = results(model, X)
    assert edit.count == 1
    assert_untouched(model, before)
    assert_equal(got, results(with_change_in_code(model, "features.3", by_hand), X))
    assert not torch.equal(got[0], model(X))


def test_positions_are_selected_in_1d_2d_and_3d():
    for layer, shape, where in (
        (nn.Conv1d(1, 2, 3), (1, 1, 9), slice(1, 3)),
        (nn.Conv2d(1, 2, 3), (1, 1, 9, 9), (slice(1, 3), slice(None))),
        (nn.Conv3d(1, 2, 3), (1, 1, 6, 6, 6), (0, slice(1, 3), slice(None))),
    ):
        x = torch.rand(shape)
        wanted = layer(x).detach().clone()
        wanted[:, 1][(slice(None), *(where if isinstance(where, tuple) else (where,)))] = 0
        with hookviz.edit(layer, "", 0, channels=1, where=where):
            assert torch.equal(layer(x), wanted)
            assert torch.equal(layer(x[0]), wanted[0])  # without a batch dimension
        mask = torch.zeros(wanted.shape[2:], dtype=torch.bool)
        mask[where] = True
        with hookviz.edit(layer, "", 0, channels=1, where=mask):
            assert torch.equal(layer(x), wanted)


def run_tokens(m, x):
    """Patches and a class token, as in a vision transformer."""
    tokens = m.patches(x).flatten(2).mT
    return m.act(m.norm(torch.cat([tokens.mean(1, keepdim=True), tokens], 1)))


@pytest.mark.parametrize("layer", ["norm", "act"])  # GELU has no size to read
def test_channels_and_positions_of_tokens_can_be_edited(layer):
    model, x = (
        model_of(
            run_tokens, patches=nn.Conv2d(3, 6, 4, stride=4), norm=nn.LayerNorm(6), act=nn.GELU()
        ),
        torch.rand(2, 3, 16, 8),
    )  # 4×2 patches
    plain = model(x).detach()
    with hookviz.edit(model, layer, 0, channels=[5]):
        edited = model(x)
    assert (edited[..., 5] == 0).all() and torch.equal(edited[..., :5], plain[..., :5])
    with hookviz.edit(model, layer, 0, where=(3, slice(None))):  # the last row of patches
        edited = model(x)
    assert (edited[:, 7:] == 0).all() and torch.equal(edited[:, :7], plain[:, :7])


@pytest.mark.parametrize("change", [0.5, torch.ones(4, 1, 1), "mean", torch.tanh])
@pytest.mark.parametrize("channels", [None, [1, 2]])
def test_edits_keep_the_memory_format(change, channels):
    """Convolutions would round differently in another memory format."""
    layer, x = nn.Conv2d(3, 4, 1), torch.rand(2, 3, 5, 6).to(memory_format=torch.channels_last)
    seen = []
    with hookviz.edit(layer, "", change, channels=channels):
        y = layer(x)
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    with hookviz.edit(layer, "", change, channels=channels, gradient=True):
        y = layer(x)
        y.register_hook(lambda gradient: seen.append(gradient.stride()))
        (y * y).sum().backward()
    assert seen == [y.stride()]


def test_an_activation_of_another_picture_can_be_patched_in():
    model, other = vgg(), torch.rand(2, 3, 16, 16)
    with hookviz.capture(model) as there:
        model(other)
    value = there["features.3"].activation
    with hookviz.edit(model, "features.3", value, channels=[2, 5]), hookviz.capture(model) as here:
        model(X)
    got = here["features.3"].activation
    assert torch.equal(got[:, [2, 5]], value[:, [2, 5]])
    with hookviz.capture(model) as plain:
        model(X)
    rest = [0, 1, 3, 4, 6, 7]
    assert torch.equal(got[:, rest], plain["features.3"].activation[:, rest])
    for order in ([2, 5], (5, 2), torch.tensor([-3, 2])):
        part = hookviz.edit(model, "features.3", value[:, order], channels=order)
        with part, hookviz.capture(model) as again:
            model(X)
        assert torch.equal(again["features.3"].activation, got)
    assert torch.equal(value, there["features.3"].activation)  # although an in-place ReLU follows


# Gradients


def test_gradients_of_layers_are_edited():
    model = vgg()
    by_hand = with_change_in_code(model, "features.3", lambda x: _Clamped.apply(x.clone()))
    with hookviz.edit(model, "features.3", lambda g: g.clamp(-1, 1), gradient=True) as edit:
        got = results(model, X)
    assert edit.count == 1
    assert_equal(got, results(by_hand, X))


class _Clamped(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient.clamp(-1, 1)


def test_gradients_of_parameters_are_edited():
    model = vgg()
    plain = results(model, X)
    names = [name for name, _ in model.named_parameters()]
    with hookviz.edit(
        model, ["*.bias", "features.3.weight"], 0, channels=[1], gradient=True
    ) as edit:
        got = results(model, X)
    assert edit.count == 4
    for name, one, other in zip(names, got[2:], plain[2:], strict=True):
        if name.endswith("bias") or name == "features.3.weight":
            assert (one[1] == 0).all() and torch.equal(one[0], other[0])
        else:
            assert torch.equal(one, other)


def test_clip_norm_shortens_only_long_gradients():
    model = vgg()
    plain = results(model, X)
    weights = sum(name.endswith("weight") for name, _ in model.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an edit that keeps the values must not warn
        with hookviz.edit(model, "*.weight", hookviz.edits.clip_norm(1e9), gradient=True) as edit:
            assert_equal(results(model, X), plain)
    assert edit.count == weights
    with hookviz.edit(model, "*.weight", hookviz.edits.clip_norm(0.01), gradient=True):
        model(X).square().sum().backward()
    for name, parameter in model.named_parameters():
        norm = parameter.grad.norm().item()
        assert norm <= 0.01001 if name.endswith("weight") else norm > 0
    clipped = hookviz.edits.clip_norm(1.0)(torch.tensor([3 + 4j, 0]))
    assert torch.allclose(clipped, torch.tensor([0.6 + 0.8j, 0]))


def test_gradients_of_an_overwritten_view_are_edited():
    layer, x = (
        nn.Conv2d(1, 2, 3),
        torch.rand(1, 5, 5),
    )  # without a batch dimension it returns a view
    with hookviz.edit(layer, "", 0, channels=[0], gradient=True):
        torch.relu_(layer(x)).sum().backward()
    assert (layer.weight.grad[0] == 0).all()


# Several edits, several calls, several outputs


def test_edits_apply_in_order_and_captures_see_their_results():
    layer, x = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    plain = layer(x).detach()
    seen = []
    handle = layer.register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    first, second = hookviz.edit(layer, "", lambda y: y + 1), hookviz.edit(layer, "", 3)
    with hookviz.capture(layer, "") as cache, first, second:
        layer(x)
    handle.remove()
    assert torch.equal(cache[""].activation, (plain + 1) * 3)
    assert torch.equal(seen[0], (plain + 1) * 3)


class Twice(nn.Module):
    """Runs a convolution one after the other, or ``beside``, with equal values."""

    def __init__(self, checkpointed=None, beside=False):
        super().__init__()
        self.conv, self.checkpointed = nn.Conv2d(2, 2, 1), checkpointed
        self.beside = beside

    def run(self, x):
        return self.conv(self.conv(x).tanh()).tanh()

    def once(self, function, x):
        if self.checkpointed is None:
            return function(x)
        return checkpoint(function, x, use_reentrant=self.checkpointed)

    def forward(self, x):
        if self.beside:
            return self.once(self.conv, x) + 3 * self.once(self.conv, x)
        return self.once(self.run, x)


@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize(("reentrant", "beside"), [(False, False), (True, False), (True, True)])
def test_one_call_can_be_edited_also_under_checkpointing(call, reentrant, beside):
    plain = Twice(beside=beside)
    checkpointed = Twice(reentrant, beside)
    checkpointed.load_state_dict(plain.state_dict())
    outcomes = []
    for model in (plain, checkpointed):
        x = torch.rand(1, 2, 3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        with hookviz.edit(model, "conv", torch.sin, call=call) as edit:
            y = model(x)
            y.sum().backward()
        assert edit.count == 1  # a rerun does not count
        outcomes.append([y.detach(), x.grad, *(p.grad for p in model.parameters())])
    assert_equal(*outcomes)
    y = plain.conv(x)
    if beside:
        expected = torch.sin(y) + 3 * y if call == 0 else y + 3 * torch.sin(y)
    else:
        first = plain.conv((torch.sin(y) if call == 0 else y).tanh())
        expected = (first if call == 0 else torch.sin(first)).tanh()
    assert torch.equal(outcomes[0][0], expected)


class AttributeDict(OrderedDict):
    """An output with access by key and by attribute, as some libraries return."""

    @property
    def main(self):
        return self["main"]


@dataclass
class Pair:
    main: torch.Tensor
    other: torch.Tensor


class SeveralOutputs(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return self.kind(x)


@pytest.mark.parametrize(
    ("kind", "path", "get"),
    [
        (lambda x: (x, x + 1), "[1]", lambda y: (y[0], y[1])),
        (lambda x: {"a": x, "b": x + 1}, "['b']", lambda y: (y["a"], y["b"])),
        (lambda x: AttributeDict(main=x, other=x + 1), "['other']", lambda y: (y.main, y["other"])),
        (lambda x: Pair(x, x + 1), ".other", lambda y: (y.main, y.other)),
        (lambda x: Normal(x, x + 1, validate_args=False), ".scale", lambda y: (y.loc, y.scale)),
    ],
)
def test_one_output_of_several_is_edited(kind, path, get):
    model, x = nn.Sequential(SeveralOutputs(kind)), torch.ones(2)
    with hookviz.edit(model, "0", 0, output=path):
        y = model(x)
    assert type(y) is type(kind(x))
    first, second = get(y)
    assert torch.equal(first, x) and (second == 0).all()
    with hookviz.edit(model, "0", 0):
        first, second = get(model(x))
    assert (first == 0).all() and (second == 2).all()
    report = pytest.raises(ValueError, match="'0' returns no tensor at 'x': there are")
    with report, hookviz.edit(model, "0", 0, output="x"):
        model(x)


@pytest.mark.parametrize(
    "channels",
    [
        *([1, 3], (1, -1), slice(1, None, 2), range(1, 4, 2)),
        *(MASK, MASK.numpy(), MASK.tolist()),
    ],
    ids=repr,
)
def test_channels_are_selected_in_every_form(channels):
    model = vgg()
    with hookviz.edit(model, "features.0", 0, channels=channels):
        assert torch.equal(model(X), with_change_in_code(model, "features.0", scaled(0, [1, 3]))(X))


def test_off_replaces_nan_by_zero():
    layer, x = nn.Identity(), torch.full((1, 2, 1, 1), torch.nan)
    with hookviz.edit(layer, "", 0, channels=0):
        assert layer(x).isnan().flatten().tolist() == [False, True]


@pytest.mark.parametrize(
    "chosen",
    [
        *({"channels": []}, {"channels": torch.tensor([])}, {"channels": slice(4, None)}),
        {"where": (slice(0, 0), slice(None))},
    ],
    ids=repr,
)
@pytest.mark.parametrize("gradient", [False, True])
def test_an_empty_selection_changes_nothing(chosen, gradient):
    model = vgg()
    with hookviz.edit(model, "features.0", 0, gradient=gradient, **chosen) as edit:
        output = model(X)
        output.sum().backward()
    assert torch.equal(output, vgg()(X)) and edit.count == 0


def test_other_hooks_keep_their_order():
    layer, seen = nn.Conv2d(1, 1, 1), []
    for name in "abc":
        layer.register_forward_hook(lambda module, args, output, name=name: seen.append(name))
    hooks = list(layer._forward_hooks.items())
    with hookviz.edit(layer, "", 2), hookviz.edit(layer, "", 3):
        layer(torch.ones(1, 1, 2, 2))
    assert seen == ["a", "b", "c"]
    assert list(layer._forward_hooks.items()) == hooks


def test_a_replacement_gets_autocasts_dtype():
    model = vgg()
    with (
        torch.autocast("cpu", torch.bfloat16),
        hookviz.edit(model, "features.3", torch.ones(8, 1, 1)),
        hookviz.capture(model) as cache,
    ):
        model(X)
    assert cache["features.3"].activation.dtype == torch.bfloat16
    assert (cache["features.3"].activation == 1).all()


# Errors and warnings


def test_an_edit_without_effect_warns_with_the_reason():
    model = vgg()
    report = pytest.warns(RuntimeWarning, match="features.0 changed nothing: it did not run")
    with report, hookviz.edit(model, "features.0", 0):
        pass
    report = pytest.warns(RuntimeWarning, match="no gradient arrived: run backward")
    with report, hookviz.edit(model, "features.0", 0, gradient=True):
        y = model(X)
    y.sum().backward()
    report = pytest.warns(RuntimeWarning, match=r"input changed nothing: .*requires_grad_\(\)")
    with report, hookviz.edit(model, "input", 0, gradient=True):
        model(X).sum().backward()
    for gradient in (False, True):
        report = pytest.warns(RuntimeWarning, match="returned its input unchanged")
        with report, hookviz.edit(model, "features.0", lambda x: None, gradient=gradient):
            model(X).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError), hookviz.edit(model, "features.0", 0):
            1 / 0  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("features.9", 0), "No layer of VGG is called 'features.9'; close to it"),
        (("features.0", "media"), "'media' is not 'mean'"),
        (("features.0", float("nan")), "not finite"),
        ((None, 0), "layers= is needed"),
    ],
)
def test_wrong_values_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        hookviz.edit(vgg(), *arguments)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (torch.ones(3, 5), {}, r"shape \(3, 5\), which does not fit the shape \(2, 4, 16, 16\)"),
        (lambda x: x[:1], {}, r"must return a tensor of shape \(2, 4, 16, 16\).*\(1, 4,"),
        (lambda x: 3, {}, "returned int"),
        (0, {"channels": 4}, "channels=4 are not channels of layer 'features.0'.* 4"),
        (0, {"channels": slice(5, 9)}, "channels=.* are not channels of layer 'features.0'.* 4"),
        (0, {"channels": ["a"]}, "channels="),
        (0, {"where": (slice(None), slice(17, 20))}, "where=.* 16×16"),
        (0, {"where": (slice(1), slice(1), slice(1))}, "where=.* 16×16"),
        (0, {"where": torch.ones(3, 3, dtype=torch.bool)}, r"\(3, 3\).*16×16"),
    ],
)
def test_changes_that_do_not_fit_are_refused_when_the_layer_runs(change, options, words):
    model = vgg()
    before = snapshot(model)
    with (
        pytest.raises(ValueError, match=words),
        hookviz.edit(model, "features.0", change, **options),
    ):
        model(X)
    assert_untouched(model, before)


def test_an_error_in_the_function_names_both_layer_and_function():
    def broken(x):
        raise KeyError("no")

    model = vgg()
    report = pytest.raises(
        RuntimeError, match="change 'broken' of layer 'features.0' raised KeyError"
    )
    with report, hookviz.edit(model, "features.0", broken):
        model(X)
    with pytest.raises(TypeError, match="not a number, a tensor"):
        hookviz.edit(model, "features.0", [1])


def test_edits_of_parameters_refuse_positions_and_frozen_parameters():
    model = vgg()
    with pytest.raises(ValueError, match="No layer or parameter is called 'features.0.wieght'"):
        hookviz.edit(model, "features.0.wieght", 0, gradient=True)
    with pytest.raises(ValueError, match="where= is of feature maps"):
        hookviz.edit(model, "features.0.weight", 0, gradient=True, where=0)
    model.features[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        hookviz.edit(model, "features.0.weight", 0, gradient=True)


def test_noise_comes_from_the_given_generator():
    model = vgg()
    outputs = []
    for _ in range(2):
        noisy = hookviz.edits.noise(0.1, torch.Generator().manual_seed(3))
        with hookviz.edit(model, "features.0", noisy):
            outputs.append(model(X))
    assert torch.equal(*outputs) and not torch.equal(outputs[0], model(X))
