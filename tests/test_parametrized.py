"""Inspecting a parametrized model changes its state no more than a plain run does."""

import re
from inspect import signature

import pytest
import torch
from heavy import heavy_but
from test_grammar import FUNCTIONS
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from untouched import assert_untouched, snapshot

import hookviz
from hookviz import attribution, metrics


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
QUICK = {"spectral norm", "spectral norm by a hook", "random"}
MODES = {f"{name} in training": (name, True) for name in REWRITES}
MODES |= {"spectral norm in eval": ("spectral norm", False), "random in eval": ("random", False)}
QUICK_MODES = {mode for mode, (name, _) in MODES.items() if name in QUICK}
in_modes = pytest.mark.parametrize("mode", heavy_but(QUICK_MODES, MODES))

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")


class Net(nn.Module):
    """Convolutions, a norm, attention and linear layers, each parametrized by `rewrite`."""

    def __init__(self, rewrite):
        super().__init__()
        self.first = rewrite(nn.Conv2d(3, 4, 3))
        self.norm = nn.BatchNorm2d(4)
        self.second = rewrite(nn.Conv2d(4, 8, 3, 2))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = rewrite(nn.Linear(8, 5))

    def forward(self, x):
        x = self.second(self.norm(self.first(x)).relu()).relu()
        tokens = x.flatten(2).mT
        return self.head(self.attention(tokens, tokens, tokens)[0].mean(1))


def build(name, training):
    torch.manual_seed(0)
    return Net(REWRITES[name]).train(training)


def pictures():
    return torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))


X = pictures()
LABELS = torch.arange(4)


OTHER = Net(lambda layer: layer).eval()


def loss(output):
    return nn.functional.cross_entropy(output, LABELS)


def explored(model):
    explorer = hookviz.explore(model, X, layers=lambda name, module: name != "", layer="first")
    for layer in ("second", "attention", "head"):
        explorer.layer = layer
        _ = explorer.frame
    explorer.layer = "first"
    explorer.weights("first", channel=1)
    explorer.weights("head", channel=1)
    explorer.contributions("second", channel=1, position=(1, 1))
    explorer.contributions("head", channel=1)
    explorer.edit("second", 0.0, channels=2)
    explorer.order = "score drop"
    explorer.heatmaps()
    explorer.to_html()
    explorer.close()


def perturbed(model):
    attribution.scorecam(model, X[:1], "first")
    attribution.ablationcam(model, X[:1], "first")
    attribution.occlusion(model, X[:1], window=9)
    metrics.deletion_curve(model, X[:1], X[0, 0], steps=1)
    metrics.insertion_curve(model, X[:1], X[0, 0], steps=1)
    metrics.sanity_check(model, X[:1], "activation", "first", steps=1)


INSPECTIONS = {
    "explore": explored,
    "scorecam, ablationcam, occlusion and metrics": perturbed,
    "feature_visualization": lambda m: hookviz.feature_visualization(
        m, "first", 0, size=16, steps=1, transform=lambda picture: torch.zeros(3, 16, 16)
    ),
    "trace": lambda m: hookviz.trace(m, X),
    "diagnose": lambda m: hookviz.diagnose(m, X, loss),
    "diagnose with an optimizer": lambda m: hookviz.diagnose(
        m, X, loss, optimizer=torch.optim.SGD(m.parameters(), 0.1)
    ),
    "survey": lambda m: hookviz.survey(m, list(X), batch_size=2),
    "compare": lambda m: hookviz.compare(m, OTHER, X),
    "graph": lambda m: hookviz.graph(m, X)._repr_html_(),
    "contributions": lambda m: hookviz.contributions(
        m, X, "second", channel=1, position=(1, 1)
    ),
    "contributions of a linear layer": lambda m: hookviz.contributions(m, X, "head", channel=1),
    "attribute": lambda m: hookviz.attribute(m, X),
    "attention": lambda m: hookviz.attention(m, X),
    "similarity": lambda m: hookviz.similarity(m, m, [X]),
    "receptive_field": lambda m: hookviz.receptive_field(m, X),
    "hooks": lambda m: repr(hookviz.hooks(m)),
    "remove_hooks": lambda m: hookviz.remove_hooks(m, of="no such function"),
}  # fmt: skip
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
    model = build(*MODES[mode])
    torch.manual_seed(1)
    before = snapshot(model)
    INSPECTIONS[inspect](model)
    assert_untouched(model, before)


def step(model):
    loss(model(X)).backward()


def captured(model):
    with hookviz.capture(model, lambda name, module: name != "", inputs=True) as cache:
        step(model)
    hookviz.heatmap(cache["second"])
    repr(cache)


def edited(model):
    with hookviz.edit(model, "second", lambda output: output * 1.0):
        step(model)


def guarded(model):
    with hookviz.diagnose(model, optimizer=torch.optim.SGD(model.parameters(), 0.1)) as findings:
        step(model)
    repr(findings)


def examined(model):
    """Run the guard on a suspicious loss, so that it repeats the call."""
    with hookviz.diagnose(model) as findings:
        loss(model(X).softmax(1)).backward()
    assert "loss" in {each.kind for each in findings}


def with_softmax(model):
    loss(model(X).softmax(1)).backward()


def watched(model):
    watch = hookviz.watch(model, every=1)
    for _ in range(2):
        with watch:
            step(model)
    repr(watch)


def twice(model):
    step(model)
    step(model)


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
        model = build(*MODES[mode])
        torch.manual_seed(1)
        run(model)
        gradients = {f"gradient of {n}": p.grad for n, p in model.named_parameters()}
        tensors = {**dict(model.state_dict()), **gradients, "random": torch.get_rng_state()}
        states.append(tensors)
    seen, plain = states
    assert seen.keys() == plain.keys()
    assert [name for name in plain if not torch.equal(seen[name], plain[name])] == []


@pytest.mark.parametrize("name", REWRITES)
def test_contributions_use_the_computed_weights(name):
    model = build(name, False)
    model(X)  # hooks compute the weight when the layer runs
    if name != "random":  # which draws different weights in each run
        weight, bias = model.head.weight.detach().double(), model.head.bias.detach().double()
        contributions = hookviz.contributions(model, X, "head", channel=1)
        assert torch.equal(contributions.kernel, weight[1]) and contributions.bias == float(bias[1])
    contributions = hookviz.contributions(model, X, "head", channel=1, sample=2)
    assert contributions.value == pytest.approx(
        contributions.bias + float(contributions.products.sum()), rel=1e-5
    )


@pytest.mark.parametrize("name", [name for name in REWRITES if name != "random"])
@pytest.mark.parametrize("layer", ["first", "head"])
def test_the_explorer_shows_the_computed_weights(name, layer):
    model = build(name, False)
    model(X)
    explorer = hookviz.explore(model, X)
    weight = getattr(model, layer).weight.detach().double()
    assert torch.equal(explorer.weights(layer).kernels, weight)
