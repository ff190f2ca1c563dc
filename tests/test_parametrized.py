"""Inspecting a parametrized model changes its state no more than a plain run does."""

import re
from inspect import signature

import pytest
import torch
from heavy import heavy_but
from test_grammar import FUNCTIONS
from test_interrupts import CALLS, model_and_input
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from untouched import assert_untouched, snapshot

import hookviz


class Noise(nn.Module):
    """A parametrization that draws random numbers."""

    def forward(self, weight):
        return weight + 0.1 * torch.randn_like(weight)


def noisy(module):
    parametrize.register_parametrization(module, "bias", Noise())
    return parametrize.register_parametrization(module, "weight", Noise())


def pruned(module):
    prune.l1_unstructured(module, "bias", 0.3)
    return prune.l1_unstructured(module, "weight", 0.3)


REWRITES = {
    "spectral norm": parametrizations.spectral_norm,
    "spectral norm by a hook": nn.utils.spectral_norm,
    "weight norm": parametrizations.weight_norm,
    "weight norm by a hook": nn.utils.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "pruned": pruned,
    "random": noisy,
}
"""Ways in which a layer's weight is computed from other tensors."""

# Three of them change their state or draw random numbers, and the two spectral norms only in
# training; the others find the same faults.
MIXED = "spectral norm by a hook", "spectral norm", "random"
MODES = {f"{name} in training": ((name,) * 3, True) for name in REWRITES}
MODES |= {f"{name} in eval": ((name,) * 3, False) for name in ("spectral norm", "random")}
MODES["mixed in training"] = MIXED, True
in_modes = pytest.mark.parametrize(
    "mode", heavy_but({"mixed in training", "random in eval"}, MODES)
)

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")


def build(names, training):
    """Return a model that draws random numbers, with three parametrized layers, and its input."""
    model, x = model_and_input()
    for name, layer in zip(names, (model.body[0], model.shared, model.head), strict=True):
        REWRITES[name](layer)
    return model.train(training), x


def loss(output):
    return nn.functional.cross_entropy(output, torch.arange(2))


def explored(model, x):
    explorer = hookviz.explore(model, x, layers=lambda name, module: name != "", layer="body.0")
    for layer in ("shared", "attention", "head", "body.0"):
        explorer.layer = layer
        _ = explorer.frame
    for layer in ("shared", "head"):
        explorer.weights(layer, channel=1)
    explorer.contributions("shared", channel=1, position=(1, 1))
    explorer.contributions("head", channel=1)
    explorer.edit("shared", 0.0, channels=2)
    explorer.order = "score drop"
    explorer.heatmaps()
    explorer.to_html()


INSPECTIONS = CALLS | {
    "explore": explored,
    "feature_visualization": lambda model, x: hookviz.feature_visualization(
        model, "shared", 0, size=16, steps=1, transform=lambda picture: torch.zeros(3, 16, 16)
    ),
    "diagnose": lambda model, x: hookviz.diagnose(model, x, loss),
    "diagnose with an optimizer": lambda model, x: hookviz.diagnose(
        model, x, loss, optimizer=torch.optim.SGD(model.parameters(), 0.1)
    ),
    "contributions of a linear layer": lambda model, x: hookviz.contributions(
        model, x, "head", channel=1
    ),
    "hooks": lambda model, x: repr(hookviz.hooks(model)),
    "remove_hooks": lambda model, x: hookviz.remove_hooks(model, of="no such function"),
}
"""Functions that run the model themselves, or not at all."""


def test_every_function_that_takes_a_model_is_tested():
    models = {"model", "model_a"}
    taking = {
        name.rpartition(".")[2]
        for name, function in FUNCTIONS.items()
        if models & signature(function).parameters.keys()
    }
    tested = re.findall(r"\w+", " ".join([*INSPECTIONS, *AROUND]))
    assert taking - set(tested) == {
        *("prepare_input", "load"),  # they run no model
        *("deletion_curve", "insertion_curve", "sanity_check"),  # the metrics
    }


@in_modes
@pytest.mark.parametrize("inspect", INSPECTIONS)
def test_functions_run_no_parametrization(inspect, mode):
    model, x = build(*MODES[mode])
    torch.manual_seed(1)
    before = snapshot(model)
    INSPECTIONS[inspect](model, x)
    assert_untouched(model, before)


def step(model, x):
    loss(model(x)).backward()


def captured(model, x):
    with hookviz.capture(model, lambda name, module: name != "", inputs=True) as cache:
        step(model, x)
    hookviz.heatmap(cache["shared"])
    repr(cache)


def edited(model, x):
    with hookviz.edit(model, "shared", lambda output: output * 1.0):
        step(model, x)


def guarded(model, x):
    with hookviz.diagnose(model, optimizer=torch.optim.SGD(model.parameters(), 0.1)) as findings:
        step(model, x)
    repr(findings)


def examined(model, x):
    """Run the guard on a suspicious loss, so that it repeats the call."""
    with hookviz.diagnose(model) as findings:
        with_softmax(model, x)
    assert "loss" in {each.kind for each in findings}


def with_softmax(model, x):
    loss(model(x).softmax(1)).backward()


def watched(model, x):
    watch = hookviz.watch(model, every=1)
    for _ in range(2):
        with watch:
            step(model, x)
    repr(watch)


def twice(model, x):
    step(model, x)
    step(model, x)


AROUND = {
    "capture": (captured, step),
    "edit": (edited, step),
    "guard": (guarded, step),
    "guard that repeats the call": (examined, with_softmax),
    "watch": (watched, twice),
}
"""Blocks around a user's training step, and the step without a block."""


@in_modes
@pytest.mark.parametrize("block", AROUND)
def test_blocks_do_not_change_a_training_step(block, mode):
    states = []
    for run in AROUND[block]:
        model, x = build(*MODES[mode])
        torch.manual_seed(1)
        run(model, x)
        named = model.named_parameters()
        gradients = {f"gradient of {n}": p.grad for n, p in named if p.grad is not None}
        tensors = {**dict(model.state_dict()), **gradients, "random": torch.get_rng_state()}
        states.append(tensors)
    seen, plain = states
    assert seen.keys() == plain.keys()
    assert [name for name in plain if not torch.equal(seen[name], plain[name])] == []


@pytest.mark.parametrize("name", REWRITES)
def test_contributions_use_the_computed_weights(name):
    model, x = build((name,) * 3, False)
    model(x)  # hooks compute the weight when the layer runs
    if name != "random":  # which draws different weights in each run
        weight, bias = model.head.weight.detach().double(), model.head.bias.detach().double()
        contributions = hookviz.contributions(model, x, "head", channel=1)
        assert torch.equal(contributions.kernel, weight[1]) and contributions.bias == float(bias[1])
    contributions = hookviz.contributions(model, x, "head", channel=1, sample=1)
    assert contributions.value == pytest.approx(
        contributions.bias + float(contributions.products.sum()), rel=1e-5
    )


class Packed(torch.Tensor):
    """Quantized weights as torchao has them: their class refuses most operations."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    def dequantize(self):
        return self.whole * self.scale

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is nn.functional.linear:
            x, weight, bias = args
            return nn.functional.linear(x, weight.dequantize(), bias)
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Packed(args[0].whole, args[0].scale)
        raise NotImplementedError(f"Packed: {function}")


def packed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for layer in (model[0], model[2]):
        whole, scale = (layer.weight.detach() * 99).round().to(torch.int8), torch.tensor(1 / 99)
        layer.weight = nn.Parameter(Packed(whole, scale), requires_grad=False)
    return model


def test_weights_of_a_quantized_class_are_read():
    model, x = packed(), torch.rand(4, 6)
    found = hookviz.diagnose(model, x)
    assert found.healthy and "not examined" not in [each.kind for each in found]
    explorer = hookviz.explore(model, x, layers=nn.Linear)
    assert torch.equal(explorer.cache["2"].activation, model(x))
    assert hookviz.survey(model, list(x), layers=nn.Linear).records()


def test_weights_of_a_quantized_class_that_are_zero_are_found():
    model = packed()
    model[0].weight.whole.zero_()
    found = hookviz.diagnose(model, torch.rand(4, 6))
    assert ("zero weights", "0") in [(each.kind, each.layer) for each in found]


def test_weights_of_a_quantized_class_are_not_shuffled():
    with pytest.raises(ValueError, match=r"'0\.weight' is quantized \(Packed\) and cannot be shuf"):
        hookviz.metrics.sanity_check(packed(), torch.rand(4, 6), "saliency", layer="0")
