"""A cut run splits any value into terms and traces it back without running the model again."""

from __future__ import annotations

import copy
from functools import partial
from typing import NamedTuple

import pytest
import torch
from architectures import model_of
from browsing import Browser
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session
from hookviz.studies.graph import cut as cut_module
from hookviz.studies.graph.cut import CutRun
from hookviz.view.messages import WhyQuestion, WithoutQuestion, as_json
from hookviz.view.reason import why_answer, without_answer


def run_branching(m, x):
    """A model with sums, concatenation, a gate, padding, pooling and in-place operations."""
    y = F.relu_(m.norm(m.one(x)))
    z = m.two(y)
    z = z * m.gate(z.mean((2, 3), keepdim=True)).sigmoid()
    z = F.pad(torch.cat([y + z, y], 1), (1, 0, 1, 0))
    return m.last(F.max_pool2d(m.three(z), 2).mean((2, 3)))


@pytest.fixture
def branching():
    torch.manual_seed(0)
    model = model_of(
        run_branching,
        one=nn.Conv2d(2, 4, 3, padding=1),
        norm=nn.BatchNorm2d(4),
        two=nn.Conv2d(4, 4, 1),
        gate=nn.Conv2d(4, 4, 1),
        three=nn.Conv2d(8, 4, 2, stride=2),
        last=nn.Linear(4, 3),
    ).eval()
    nn.init.uniform_(model.norm.running_mean)
    return model, torch.randn(2, 2, 7, 7)


def cut_of(model, x):
    run = CutRun(Session(model, prepare_input(x, model)))
    assert not run.problem
    return run


def origins_of(run, layer, channel, position, sample=0, given=0, tap=(0, 0)):
    """Trace one value of a layer's input back."""
    return run.origins(run.value(layer, channel, position, sample), given, tap)


def check_that_parts_add_up(origins):
    total = sum(part.part for part in origins.parts) + origins.rest + origins.remainder
    assert total == pytest.approx(origins.value, rel=1e-6, abs=1e-7)


def input_after_change(model, x, layer, part, by):
    """Return a layer's input after a change of one source value, all other layers held fixed."""
    modules = {n: m for n, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    outputs, given = {}, []

    def note(name):
        return modules[name].register_forward_hook(lambda m, a, out: outputs.update({name: out}))

    def hold(name):
        output = outputs[name].clone()
        if name == part.layer:
            linear = isinstance(modules[name], nn.Linear)
            inner = (*part.position, part.channel) if linear else (part.channel, *part.position)
            output[(part.sample, *inner)] += by
        return modules[name].register_forward_hook(lambda m, a, out: output.clone())

    def run(x, handles):
        with torch.no_grad():
            model(x)
        for each in handles:
            each.remove()

    run(x, [note(name) for name in modules])
    if part.layer == "input":
        x = x.clone()
        x[(part.sample, part.channel, *part.position)] += by
    handles = [hold(name) for name in modules]
    run(x, [*handles, modules[layer].register_forward_pre_hook(lambda m, a: given.append(a[0]))])
    return given[0].double()


def check_weights(model, x, layer, found, index):
    """Compare each part's weight with the change of the value per change of its source."""
    check_that_parts_add_up(found)
    for part in found.parts:
        changes = (input_after_change(model, x, layer, part, by) for by in (1e-6, -1e-6))
        after, before = (given[index] for given in changes)
        slope = float(after - before) / 2e-6
        assert slope == pytest.approx(part.weight, rel=1e-4, abs=1e-6), part


def test_weights_of_parts_equal_finite_differences(branching):
    model, x = (each.double() for each in branching)
    run = cut_of(model, x)
    for channel in range(8):
        found = origins_of(run, "three", 1, (1, 2), 1, channel, (1, 0))
        places = {(part.layer, part.channel, part.position) for part in found.parts}
        y = ("one", channel % 4, (2, 3))
        if channel >= 4:  # a copy after a batch norm and a ReLU
            assert found.kind == "constant"
            assert places <= {y}
        else:  # a sum with a gated value
            assert found.kind == "linearisation" and found.bent_by == ["mul", "sigmoid"]
            assert {("two", channel, (2, 3)), ("gate", channel, (0, 0))} <= places
        # The layer's input includes the model's padding; the tap (1, 0) is at row 3, column 4.
        check_weights(model, x, "three", found, (1, channel, 3, 4))
    assert origins_of(run, "three", 0, (0, 0)).value == 0  # padding by the model's code
    assert origins_of(run, "one", 0, (0, 0)) is None  # padding by the layer
    pooled = origins_of(run, "last", 2, None, 1, 3, ())
    assert {(part.layer, part.channel) for part in pooled.parts} == {("three", 3)}
    assert pooled.parts[0].path == ["max_pool2d_with_indices", "mean"]
    assert pooled.kind == "constant" and pooled.remainder == pytest.approx(0, abs=1e-7)
    check_weights(model, x, "last", pooled, (1, 3))


def test_the_output_and_the_input_are_ends_of_the_trace(branching):
    model, x = branching
    run = cut_of(model, x)
    found = run.origins_of_output(run.output[1, 2])
    (logit,) = found.parts
    assert (logit.layer, logit.channel, logit.position, logit.path) == ("last", 2, (), [])
    assert (logit.weight, found.remainder) == (1, 0)
    found = run.origins_of_output(run.output[1] @ torch.tensor([1.0, -3.0, 2.0]))
    assert [part.channel for part in found.parts] == [2, 0, 1]  # by weight
    first = run.value("one", 0, (3, 4), sample=1)
    (pixel,) = run.origins(first, 1, (0, 2)).parts
    assert (pixel.layer, pixel.channel, pixel.position) == ("input", 1, (2, 5))
    assert pixel.part == x[1, 1, 2, 5].item() == first.terms.patch[1, 0, 2].item()


class Between(nn.Module):
    """Two layers and functions between them."""

    def __init__(self, between, then=lambda x: x):
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 1, 1)
        self.between, self.then = between, then

    def forward(self, x):
        return self.two(self.then(self.between(self.one(x))))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, slope):
        return -slope


def without_graph(context):
    def between(x):
        with context():
            x = x * 2
        return x + 1

    return between


@pytest.mark.parametrize(
    "between",
    [
        Reversed.apply,
        torch.round,
        torch.sign,
        lambda x: x + (2 * x).detach(),
        lambda x: x * x.detach(),
        without_graph(torch.no_grad),
        without_graph(torch.inference_mode),
        lambda x: torch.from_numpy(x.detach().numpy() * 2),
    ],
    ids=["reversal", "round", "sign", "partly", "product", "no_grad", "inference", "numpy"],
)
def test_paths_that_autograd_does_not_follow_are_unexplained(between):
    """The value must not be called constant, since a layer computed it."""
    torch.manual_seed(0)
    run = cut_of(Between(between), torch.randn(1, 2, 4, 4))
    found = origins_of(run, "two", 0, (2, 3), given=1)
    check_that_parts_add_up(found)
    assert found.kind == "unexplained" or (
        found.value == found.remainder and not run.graph.sources("two")
    )


def test_a_layer_that_only_decides_leaves_a_value_unexplained():
    """A comparison has no gradient, so the values of its layer are missing among the parts."""
    model = model_of(
        lambda m, x: m.two(torch.where(m.gate(x) > 0, m.one(x), 0.5)),
        **{name: nn.Conv2d(2, 2, 1) for name in ("one", "gate", "two")},
    )
    run = cut_of(model, torch.randn(1, 2, 4, 4))
    assert run.graph.sources("two") == [("gate", 0), ("one", 0)]
    for column in range(4):
        found = origins_of(run, "two", 0, (0, column), given=1)
        check_that_parts_add_up(found)
        assert found.kind == "unexplained"


def test_reentrant_checkpoints_are_refused_in_one_sentence():
    between = partial(checkpoint, torch.relu, use_reentrant=True)
    run = cut_of(Between(between), torch.randn(1, 2, 4, 4))
    with pytest.raises(ValueError, match="This number cannot be traced back: When use_reentrant"):
        origins_of(run, "two", 0, (2, 3))


def checkpointed(on):
    """Return a model in training mode, whose block a backward runs again."""

    def block(m, x):
        return F.dropout(m.norm(x).sigmoid(), 0.5, m.training)

    def run(m, x):
        x = m.first(x)
        return m.second(checkpoint(block, m, x, use_reentrant=False) if on else block(m, x))

    parts = {"first": nn.Conv2d(1, 3, 1), "norm": nn.BatchNorm2d(3), "second": nn.Conv2d(3, 2, 1)}
    return model_of(run, **parts).train()


def test_a_checkpointed_block_is_run_again_as_in_the_forward():
    """Not in training mode, in which its BatchNorm and its dropout do something else."""
    found = []
    for on in (True, False):
        torch.manual_seed(0)
        model, x = checkpointed(on), torch.randn(2, 1, 4, 4)
        run, before = cut_of(model, x), snapshot(model)
        parts = origins_of(run, "second", 0, (1, 2), given=1).parts
        found.append([part.weight for part in parts])
        assert_untouched(model, before)
    assert found[0] == found[1]


def test_a_model_that_autograd_cannot_follow_is_refused_in_one_sentence():
    model, x = Between(lambda x: torch.from_numpy(x.numpy() * 2)), torch.randn(1, 2, 4, 4)
    run = CutRun(Session(model, prepare_input(x, model)))
    value = run.value("two", 0, (2, 3))
    with torch.no_grad():
        assert value.value == pytest.approx(float(model(x)[0, 0, 2, 3]))
    with pytest.raises(ValueError, match="Autograd cannot follow this model: .*requires grad"):
        run.origins(value, 1, (0, 0))


@pytest.mark.parametrize(
    ("between", "by"),
    [
        (nn.Softmax(1), ["softmax"]),
        (nn.GroupNorm(1, 3), ["group_norm"]),
        (lambda x: x * x.sigmoid(), ["mul", "sigmoid"]),
        (nn.GELU(), ["gelu"]),
        (nn.BatchNorm2d(3, track_running_stats=False), ["batch_norm"]),
    ],
)
def test_a_curved_path_is_a_linearisation(between, by):
    torch.manual_seed(0)
    found = origins_of(cut_of(Between(between), torch.randn(1, 2, 4, 4)), "two", 0, (2, 3))
    check_that_parts_add_up(found)
    assert (found.kind, found.bent_by) == ("linearisation", by)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: F.relu6(3 * x + 1) / 2 - torch.linspace(-1, 1, 4),
        lambda x: F.hardsigmoid(F.leaky_relu(x)).flip(-1).cumsum(-1),
        lambda x: F.conv2d(torch.cat([x[:, 1:], x[:, :1]], 1), torch.ones(3, 3, 1, 1).to(x)),
        lambda x: torch.where(x > 0, x, -2 * x).roll(1, 3),
        lambda x: F.interpolate(F.max_pool2d(x, 2), size=(4, 4), mode="bilinear"),
        lambda x: torch.maximum(x, x.transpose(2, 3)).abs(),
        nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), nn.PReLU()),
    ],
)
def test_a_piecewise_linear_path_leaves_a_constant(between):
    torch.manual_seed(0)
    model, x = Between(between).double().eval(), torch.randn(1, 2, 4, 4).double()
    found = origins_of(cut_of(model, x), "two", 0, (2, 3), given=1)
    assert found.kind == "constant" and found.bent_by == []
    check_weights(model, x, "two", found, (0, 1, 2, 3))


@pytest.mark.parametrize("inplace", [False, True])
def test_clipped_values_are_listed_as_sources(inplace):
    """At the bound 6 the slope is 0, but the value still comes from a layer."""
    model = model_of(
        lambda m, x: m.two(m.act(m.one(x)).mean((2, 3))),
        one=nn.Conv2d(1, 1, 1),
        act=nn.ReLU6(inplace),
        two=nn.Linear(1, 1),
    )
    nn.init.constant_(model.one.weight, 2)
    nn.init.constant_(model.one.bias, 1)
    x = torch.tensor([[[[5.0, 1.0], [-4.0, 0.5]]]])  # 11, 3, -7 and 2; then 6, 3, 0 and 2
    found = origins_of(cut_of(model, x), "two", 0, None, tap=())
    parts = [(part.position, part.value, part.part) for part in found.parts]
    assert parts == [((0, 0), 11, 0), ((0, 1), 3, 0.75), ((1, 1), 2, 0.5)]
    assert (found.value, found.remainder) == (2.75, 1.5)  # a quarter of 6
    assert (found.kind, found.bent_by) == ("linearisation", ["relu6"])


def test_an_input_that_is_overwritten_later_keeps_its_values():
    def preactivated(m, x):
        x = m.one(x)
        side = m.side(x)
        return m.two(x.relu_()) + side

    names = ("one", "side", "two")
    model = model_of(preactivated, **{name: nn.Conv2d(2, 2, 1) for name in names})
    x = torch.randn(1, 2, 4, 4)
    run = cut_of(model, x)
    with torch.no_grad():
        wanted = model.one(x)[0, :, 2, 3]
    assert (wanted < 0).any()
    value = run.value("side", 0, (2, 3))
    assert value.terms.patch.flatten().tolist() == wanted.tolist()
    for channel in (0, 1):
        (part,) = run.origins(value, channel, (0, 0)).parts
        assert (part.layer, part.channel, part.weight) == ("one", channel, 1)
        assert part.value == wanted[channel]


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def named_tuples(m, x):
    """A model with a named tuple between modules, and a layer called by keyword."""
    pair = Pair(m.one(x), m.two(x))
    return m.last(input=pair.first - pair.second)


def test_values_are_traced_through_named_tuples_and_keyword_calls():
    run = cut_of(
        model_of(named_tuples, one=nn.Linear(4, 4), two=nn.Linear(4, 4), last=nn.Linear(4, 2)),
        torch.randn(3, 4),
    )
    found = origins_of(run, "last", 0, None, 1, 2, ())
    parts = {part.layer: (part.channel, part.sample, part.weight) for part in found.parts}
    assert parts == {"one": (2, 1, 1), "two": (2, 1, -1)}
    assert found.remainder == pytest.approx(0, abs=1e-6)


def test_a_step_through_attention_lists_the_largest_and_sums_the_rest():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True))
    x = torch.randn(1, 40, 8)
    run = cut_of(model.eval(), x)
    found = origins_of(run, "1.linear1", 3, (5,), 0, 2, ())
    assert len(found.parts) == 100 and found.others > 100
    check_that_parts_add_up(found)
    assert found.kind == "linearisation" and "layer_norm" in found.bent_by
    sizes = [abs(part.part) for part in found.parts]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_contributions_of_a_sparse_input(kind):
    torch.manual_seed(0)
    x = torch.rand(3, 5) * (torch.rand(3, 5) > 0.5)
    sparse = x.to_sparse() if kind == "coo" else x.to_sparse_csr()
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    for layer, given in (("0", x), ("2", model[:2](x))):
        why = hookviz.contributions(model, sparse, layer, channel=1, sample=2)
        weight = model.get_submodule(layer).weight[1].detach()
        torch.testing.assert_close(why.products.float(), weight * given[2].detach())
    assert why.value == pytest.approx(model(x)[2, 1].item(), rel=1e-6)


def deep(m, x):
    """A chain of residual sums, whose last layer gets values from all others."""
    for layer in m.body:
        x = (x + layer(x)).tanh().relu().mul(1.01)
    return m.last(x.mean((2, 3)))


def test_a_path_through_hundreds_of_layers_is_traced():
    body = nn.ModuleList(nn.Conv2d(1, 1, 1) for _ in range(220))  # deeper than Python may recurse
    model = model_of(deep, body=body, last=nn.Linear(1, 1))
    for layer in model.body:
        nn.init.constant_(layer.weight, 0.5)
        nn.init.zeros_(layer.bias)
    run = cut_of(model, torch.rand(1, 1, 4, 4))
    found = origins_of(run, "last", 0, None, tap=())
    check_that_parts_add_up(found)
    assert "tanh" in found.bent_by
    layers = {part.layer for part in found.parts}
    assert "body.219" in layers and len(found.parts) + found.others > 1000


def test_values_over_the_memory_budget_have_terms_but_no_origins(branching, monkeypatch):
    model, x = branching
    whole = cut_of(model, x).value("three", 1, (1, 2), sample=1)
    monkeypatch.setattr(cut_module, "BUDGET", 1000)
    run = CutRun(Session(model, prepare_input(x, model)))
    value = run.value("three", 1, (1, 2), sample=1)
    assert value.value == whole.value
    with pytest.raises(ValueError, match=r"take more than 1\.0 kB\. Give fewer or smaller inputs"):
        run.origins(value, 0, (1, 1))


def test_weights_that_changed_since_the_run_are_reported(branching):
    model, x = branching
    run = cut_of(model, x)
    with torch.no_grad():
        model.two.weight.mul_(2)
    with pytest.raises(ValueError, match="has new weights since the run"):
        run.value("two", 1, (1, 2))


def test_an_explorer_runs_the_model_once_for_all_contributions(branching):
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one", "three"], layer="one", channel=2)
    explorer.sample, explorer.place = 1, (0.5, 0.2)
    runs = []
    handle = model.register_forward_pre_hook(lambda *given: runs.append(given))
    why = explorer.contributions()
    assert (why.layer, why.channel, why.position, why.sample) == ("one", 2, (3, 1), 1)
    explorer.contributions("last", channel=1)
    assert len(runs) == 1
    handle.remove()
    explorer.place = None
    with pytest.raises(ValueError, match="No position"):
        explorer.contributions()


def test_the_why_panel_walks_from_the_output_to_the_input(branching):
    """Terms add up, and switching channels off changes the value as predicted.

    The walk starts at a layer that was not captured.
    """
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one", "three"])
    view = explorer.displayed()
    said, arrays = why_answer(view, WhyQuestion(key="", output=2, sample=1))
    assert (said.layer, said.channel, said.position) == ("last", 2, [])
    total = float(said.bias) + sum(float(each.contribution) for each in said.terms)
    assert total + float(said.rest) == pytest.approx(float(said.value), rel=1e-5)
    while said.layer != "input":
        assert arrays["kernel"].shape == arrays["patch"].shape
        names = ("layer", "call", "channel", "position", "sample")
        channels = [each.channel for each in said.terms][:2]
        place = {name: getattr(said, name) for name in names}
        off = without_answer(view, WithoutQuestion(key="", channels=channels, target=2, **place))
        assert float(off.true) == pytest.approx(float(off.predicted), rel=1e-4, abs=1e-5)
        if said.layer == "last":
            assert float(off.score) == pytest.approx(float(off.true), abs=1e-5)
        found = said.terms[0].origins[-1]
        if found.layer == "input":
            break
        place = {name: getattr(found, name) for name in names} | {"sample": 1}
        said, arrays = why_answer(view, WhyQuestion(key="", **place))
    assert said.layer == "one"
    assert arrays["maps"].shape[1:] == (7, 7)
    (top, left), (bottom, right) = said.terms[0].window
    row, column = said.position
    assert (top, left, bottom, right) == (row - 1, column - 1, row + 1, column + 1)


@pytest.fixture
def partly_constant():
    """Return an explorer, and a value of which two of four input channels only carry biases.

    One has zero weights, and one gets only zeros as input.
    """
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 3, 1),
    ).eval()
    with torch.no_grad():
        model[1].weight[1], model[1].bias[1] = 0, -1  # the ReLU makes it zero
        model[3].weight[2] = 0
        model[4].bias[1:3], model[5].weight[0, 1:3] = 5, 7
    explorer = hookviz.explore(model, torch.randn(1, 2, 6, 6), layers=["5"], face="canvas")
    yield explorer, {"layer": "5", "call": -1, "channel": 0, "position": [2, 3], "sample": 0}
    explorer.close()


def total_of(answer):
    total = sum(float(answer[name]) for name in ("bias", "rest", "constant"))
    return total + sum(float(term["contribution"]) for term in answer["terms"])


def test_channels_that_depend_only_on_biases_are_constant(partly_constant):
    explorer, question = partly_constant
    said, _ = why_answer(explorer.displayed(), WhyQuestion(key="", **question))
    assert said.constants == 2
    assert sorted(each.channel for each in said.terms) == [0, 3]
    assert total_of(as_json(said)) == pytest.approx(float(said.value), rel=1e-6)


@pytest.mark.parametrize("part", [0, 60])
def test_terms_come_at_once_and_are_traced_back_by_later_answers(
    partly_constant, part, monkeypatch
):
    """A later answer traces back as many as it can in a moment, and at least one."""
    monkeypatch.setattr("hookviz.view.replies.PART", part)
    explorer, question = partly_constant
    browser = Browser(explorer)
    browser.ask("prepare")
    with monkeypatch.context() as patch:
        patch.setattr("torch.autograd.grad", None)  # no backward runs
        answer, arrays = browser.ask("why", **question)
    assert len(answer["terms"]) == len(arrays["kernel"]) == 4 and answer["constants"] == 0
    later = 0
    while not all(term["traced"] for term in answer["terms"]):
        assert total_of(answer) == pytest.approx(float(answer["value"]), rel=1e-6)
        assert not any(term["origins"] for term in answer["terms"] if not term["traced"])
        traced = answer["constants"] + sum(term["traced"] for term in answer["terms"])
        answer, arrays = browser.ask("why", **question, traced=traced)
        assert bool(arrays) == (answer["constants"] > 0)  # else those that the browser has
        later += 1
    whole, wanted = why_answer(explorer.displayed(), WhyQuestion(key="", **question))
    assert answer["terms"] == as_json(whole)["terms"] and answer["constants"] == 2
    assert torch.equal(torch.tensor(arrays["kernel"]), torch.tensor(wanted["kernel"]))
    assert later == (1 if part else 4)


@pytest.mark.parametrize(
    "mix",
    [
        nn.Softmax(1),
        nn.LayerNorm([4, 4]),
        nn.GroupNorm(1, 3),
        nn.InstanceNorm2d(3),
        lambda x: x.flip(-1),
        lambda x: x.transpose(2, 3),
        lambda x: torch.cat([x, x], 1)[:, 1:4],
        lambda x: x.cumsum(-1),
        lambda x: F.conv2d(x, torch.ones(3, 3, 1, 1)),
        nn.BatchNorm2d(3, track_running_stats=False),
    ],
)
def test_a_value_is_followed_until_values_are_mixed_or_moved(mix):
    torch.manual_seed(0)
    run = cut_of(Between(mix, F.relu), torch.randn(1, 2, 4, 4))
    value = run.value("one", 1, (2, 3))
    assert run.after(value) == []


@pytest.mark.parametrize(
    "go",
    [
        *(F.hardswish, F.hardsigmoid, F.hardshrink, F.gelu, F.relu6, F.elu, F.celu, F.selu, F.mish),
        *(F.softplus, F.leaky_relu, F.logsigmoid, nn.PReLU(), nn.Dropout(), nn.SiLU()),
    ],
)
def test_a_value_is_followed_through_elementwise_functions(go):
    run = cut_of(Between(go, F.relu), torch.randn(1, 2, 4, 4))
    value = run.value("one", 1, (2, 3))
    alone = torch.tensor(value.value)
    wanted = F.relu(alone if isinstance(go, nn.Dropout) else go(alone)).item()
    assert run.after(value)[-1] == ("relu", pytest.approx(wanted))
    (part,) = origins_of(run, "two", 0, (2, 3), given=1).parts
    assert (part.layer, part.channel, part.position) == ("one", 1, (2, 3))
    assert (part.weight == 0) == (wanted == 0)  # clipped by the ReLU


def test_an_interrupted_run_is_reported_and_repeated_on_request(branching):
    """The panel gets an answer, and the next question runs the model again."""
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one"], face="canvas")
    browser = Browser(explorer)
    before = snapshot(model)
    handle = model.one.register_forward_pre_hook(stop)
    browser.ask("prepare")
    question = {"ask": "why", "layer": "one", "call": 0, "channel": 0, "position": [1, 1]}
    browser.ask(**question)
    handle.remove()
    assert_untouched(model, before)
    assert [answer["stopped"] for answer in browser.answers] == [True, True]
    answer, _ = browser.ask(**question)
    assert float(answer["value"]) == pytest.approx(model.one(x)[0, 0, 1, 1].item())
    explorer.close()


def stop(*given):
    raise KeyboardInterrupt


def halved(tensor):
    return tensor.mul_(0.5).add_(1)  # in place: the value before must not change


@pytest.mark.parametrize("layer", ["two", "last"])
def test_terms_of_an_edited_layer_add_up_to_the_value_before_its_edit(branching, layer):
    """The input has all other edits; `edited` is the value after the layer's edit."""
    model, x = branching
    at = {"channel": 2, "position": (3, 4) if layer == "two" else (), "sample": 1}
    explorer = hookviz.explore(model, x, layers=["one", "two", "last"], layer=layer)
    explorer.edit("one", channels=1, change=3)
    explorer.edit(layer, channels=2, change=halved)
    explorer.edit(layer, channels=0, change=0)
    why = explorer.contributions(**at)

    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.one.parameters():
            parameter[1] *= 3
    wanted = hookviz.contributions(twin, x, layer, **at)
    torch.testing.assert_close(why.by_channel, wanted.by_channel, rtol=1e-5, atol=1e-6)
    assert why.value == pytest.approx(wanted.value, rel=1e-5)
    assert why.edited == pytest.approx(0.5 * why.value + 1)
    assert "after its edit" in repr(why)
    if layer == "two":  # the gate multiplies the edited value
        name, value = why.after[0]
        assert name == "mul" and 0 < value / why.edited < 1

    question = {"layer": layer, "call": 0, **at, "position": list(at["position"])}
    said, _ = why_answer(explorer.displayed(), WhyQuestion(key="", **question))
    assert (said.value, said.edited) == (str(why.value), str(why.edited))
    assert said.edits == ["halved", "off"]
    assert all(term.origins for term in said.terms)
    checked = without_answer(
        explorer.displayed(), WithoutQuestion(key="", channels=[1], **question)
    )
    lost = -float(why.by_channel[1])
    assert float(checked.predicted) == pytest.approx(lost)
    assert float(checked.true) == pytest.approx(lost, abs=1e-5)


def test_an_edited_value_stays_although_it_is_overwritten_later():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(inplace=True)), torch.randn(1, 2, 3, 3)
    explorer = hookviz.explore(model, x, layer="0")
    explorer.edit("0", change=-2)
    for channel in range(3):
        why = explorer.contributions(channel=channel, position=(1, 1))
        assert why.edited == -2 * why.value == model[0](x)[0, channel, 1, 1].item() * -2


def test_a_layer_whose_edited_output_is_its_next_input():
    torch.manual_seed(0)
    # A model that runs one layer twice, so that its edit changes its next input.
    model, x = (
        model_of(lambda m, x: m.one(m.one(x)), one=nn.Conv2d(2, 2, 1)).eval(),
        torch.randn(1, 2, 4, 4),
    )
    explorer = hookviz.explore(model, x, layer="one")
    explorer.edit("one", channels=1)  # channel 1 is off after each call
    why = explorer.contributions(channel=1, position=(0, 0), call=1)
    with torch.no_grad():
        given = model.one(x)[0, :, 0, 0] * torch.tensor([1.0, 0])
        wanted = float(model.one.weight[1].flatten() @ given + model.one.bias[1])
    assert why.patch.flatten().tolist() == given.tolist()
    assert why.value == pytest.approx(wanted, rel=1e-6) and why.edited == 0
    run = cut_of(model, x)  # without edits; a channel is off in one call only
    value = run.value("one", 1, (0, 0), call=1)
    lost = float((value.terms.kernel * value.terms.patch)[0].sum())
    assert run.without(value, [0])[0] == pytest.approx(value.value - lost, abs=1e-6)
    explorer.shown_run = "original"
    assert explorer.contributions(channel=1, position=(0, 0)).edited is None
