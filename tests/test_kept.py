"""A kept run: any value is taken apart and traced back, and nothing runs again."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session
from hookviz.studies.graph import kept as kept_module
from hookviz.studies.graph.kept import KeptRun
from hookviz.view.reason import reason_payload, without_payload


class Branching(nn.Module):
    """Sums, a concatenation, a gate, padding of its own, pooling, and in-place operations."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.two, self.gate = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.three, self.last = nn.Conv2d(8, 4, 2, stride=2), nn.Linear(4, 3)

    def forward(self, x):
        y = F.relu_(self.norm(self.one(x)))
        z = self.two(y)
        z = z * self.gate(z.mean((2, 3), keepdim=True)).sigmoid()
        z = F.pad(torch.cat([y + z, y], 1), (1, 0, 1, 0))
        return self.last(F.max_pool2d(self.three(z), 2).mean((2, 3)))


@pytest.fixture
def branching():
    torch.manual_seed(0)
    model = Branching().eval()
    nn.init.uniform_(model.norm.running_mean)
    return model, torch.randn(2, 2, 7, 7)


def kept_of(model, x):
    return KeptRun(Session(model, prepare_input(x, model)))


def test_values_as_contributions_without_another_run(branching):
    model, x = branching
    kept, ran = kept_of(model, x), []
    handle = model.register_forward_pre_hook(lambda *given: ran.append(given))
    places = {"one": (2, 3), "two": (6, 0), "gate": (0, 0), "three": (3, 1), "last": ()}
    found = {name: kept.value(name, 2, position, sample=1) for name, position in places.items()}
    assert not ran
    handle.remove()
    for name, value in found.items():
        wanted = hookviz.contributions(model, x, name, channel=2, position=places[name], sample=1)
        assert (value.value, value.after) == (wanted.value, wanted.after)
        assert torch.equal(value.terms.kernel, wanted.kernel)
        assert torch.equal(value.terms.patch, wanted.patch)
        assert kept.graph.sources(name) == wanted.sources


def test_origins_are_where_numbers_came_from(branching):
    """A branch's value is what its layer's number has become; a sum's branches add up."""
    model, x = branching
    kept = kept_of(model, x)
    value = kept.value("three", 1, (1, 2), sample=1)
    for channel in range(8):
        found = kept.origins(value, channel, (1, 0))
        taken = value.terms.patch[channel, 1, 0].item()
        places = {(each.layer, each.channel, each.position) for each in found}
        y = ("one", channel % 4, (2, 3))
        assert y in places
        if channel >= 4:
            assert places == {y}
            continue
        assert places == {y, ("two", channel, (2, 3)), ("gate", channel, (0, 0))}
        by_layer = {each.layer: each for each in found}
        for name in ("one", "two", "gate"):
            own = by_layer[name]
            start = kept.value(name, own.channel, own.position, sample=1)
            ends = [start.value, *(number for _, number in start.after)]
            assert own.value in ends
            assert own.exact
        one, two, gate = (by_layer[name].value for name in ("one", "two", "gate"))
        assert one + two * gate == pytest.approx(taken, rel=1e-5)
    assert kept.origins(kept.value("three", 1, (0, 0)), 0, (0, 0)) == []  # in the padding


def test_origins_through_pooling_and_to_the_input(branching):
    model, x = branching
    kept = kept_of(model, x)
    (logit,) = kept.output_origins((1, 2))
    assert (logit.layer, logit.channel, logit.position, logit.path) == ("last", 2, (), [])
    (found,) = kept.origins(kept.value("last", 2, sample=1), 3)
    assert (found.layer, found.channel, found.exact) == ("three", 3, False)
    assert found.path == ["max_pool2d_with_indices", "mean"]
    first = kept.value("one", 0, (3, 4), sample=1)
    (pixel,) = kept.origins(first, 1, (0, 2))
    assert (pixel.layer, pixel.channel, pixel.position) == ("input", 1, (2, 5))
    assert pixel.value == x[1, 1, 2, 5].item() == first.terms.patch[1, 0, 2].item()


class Deep(nn.Module):
    """A chain of sums: its last layer is fed by all others."""

    def __init__(self, blocks):
        super().__init__()
        self.body = nn.ModuleList(nn.Conv2d(1, 1, 1) for _ in range(blocks))
        self.last = nn.Linear(1, 1)

    def forward(self, x):
        for layer in self.body:
            x = (x + layer(x)).tanh().relu().mul(1.01)
        return self.last(x.mean((2, 3)))


def test_a_way_back_may_be_long():
    kept = kept_of(Deep(350).eval(), torch.rand(1, 1, 4, 4))
    found = kept.origins(kept.value("last", 0), 0)
    assert [each.layer for each in found] == ["input", *(f"body.{n}" for n in range(350))]
    assert len(found[0].path) == 4 * 350 + 1


def test_a_page_of_a_deep_network_keeps_its_budget():
    explorer = hookviz.explore(Deep(70).eval(), torch.rand(1, 1, 8, 8), face="plain")
    assert len(explorer.to_html(max_bytes=1e6)) <= 1e6
    explorer.close()


def test_beyond_the_budget_it_runs_again(branching, monkeypatch):
    model, x = branching
    monkeypatch.setattr(kept_module, "BUDGET", 1000)
    kept = kept_of(model, x)
    value = kept.value("three", 1, (1, 2), sample=1)
    assert value.value == kept_of(model, x).value("three", 1, (1, 2), sample=1).value


def test_changed_weights_are_told(branching):
    model, x = branching
    kept = kept_of(model, x)
    with torch.no_grad():
        model.two.weight.mul_(2)
    with pytest.raises(ValueError, match="has new weights since the run"):
        kept.value("two", 1, (1, 2))


def test_of_an_explorer(branching):
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one", "three"], layer="one", channel=2)
    explorer.sample, explorer.place = 1, (0.5, 0.2)
    runs = []
    handle = model.register_forward_pre_hook(lambda *given: runs.append(given))
    why = explorer.contributions()
    assert (why.layer, why.channel, why.position, why.sample) == ("one", 2, (3, 1), 1)
    other = explorer.contributions("last", channel=1)
    assert other.value == pytest.approx(model(x)[1, 1].item(), rel=1e-5)
    assert len(runs) == 2  # the kept run, and this test's own
    handle.remove()
    explorer.place = None
    with pytest.raises(ValueError, match="No position"):
        explorer.contributions()
    explorer.close()


def test_the_panels_answers(branching):
    """Terms add up; switching channels off changes the value as predicted; the walk goes on."""
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one", "three"])
    view = explorer._now
    said, arrays = reason_payload(view, {"output": 2, "sample": 1})
    assert (said["layer"], said["channel"], said["position"]) == ("last", 2, [])
    total = float(said["bias"]) + sum(float(each["contribution"]) for each in said["terms"])
    assert total + float(said["rest"]) == pytest.approx(float(said["value"]), rel=1e-5)
    while said["layer"] != "input":
        assert arrays["kernel"].shape == arrays["patch"].shape
        question = {key: said[key] for key in ("layer", "call", "channel", "position", "sample")}
        channels = [each["channel"] for each in said["terms"]][:2]
        off = without_payload(view, question | {"channels": channels, "target": 2})
        assert float(off["true"]) == pytest.approx(float(off["predicted"]), rel=1e-4, abs=1e-5)
        if said["layer"] == "last":
            assert float(off["score"]) == pytest.approx(float(off["true"]), abs=1e-5)
        found = said["terms"][0]["origins"][-1]
        if found["layer"] == "input":
            break
        said, arrays = reason_payload(view, found | {"sample": 1})
    assert said["layer"] == "one"
    assert arrays["maps"].shape[1:] == (7, 7)
    (top, left), (bottom, right) = said["terms"][0]["window"]
    row, column = said["position"]
    assert (top, left, bottom, right) == (row - 1, column - 1, row + 1, column + 1)
    explorer.close()


def test_channels_to_which_only_biases_lead(branching):
    """A channel trained away, and one given nothing but zeros, are constants, and are passed."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, groups=4),
        nn.Conv2d(4, 3, 1),
    ).eval()
    with torch.no_grad():
        model[0].weight[1] = 0
        model[1].bias[1], model[4].weight[0, 1], model[3].bias[1] = 9.0, 7.0, 9.0
    kept = kept_of(model, torch.randn(1, 2, 6, 6))
    value = kept.value("4", 0, (2, 3))
    taps = {n: kept.is_constant(value, n, (0, 0)) for n in range(4)}
    moved = kept_of(model, torch.randn(1, 2, 6, 6)).value("4", 0, (2, 3)).terms.patch
    same = (value.terms.patch - moved).abs().flatten(1).amax(1) < 1e-6
    assert [taps[n] for n in range(4)] == same.tolist()
    assert taps[1]

    class Shown:
        settings = type("Settings", (), {"place": None, "depth": 0})()

    view = Shown()
    view.memo = type("Memo", (), {"get_or_compute": lambda *given: kept})()
    question = {"layer": "4", "call": -1, "channel": 0, "position": [2, 3], "sample": 0}
    said, _ = reason_payload(view, question)
    assert said["constants"] == same.sum() and 1 not in [each["channel"] for each in said["terms"]]
    parts = ("bias", "rest", "constant")
    total = sum(float(said[each]) for each in parts)
    total += sum(float(each["contribution"]) for each in said["terms"])
    assert total == pytest.approx(float(said["value"]), rel=1e-6)


class Mixing(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.one, self.two, self.mix = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 1, 1), mix

    def forward(self, x):
        return self.two(F.relu(self.mix(self.one(x))))


@pytest.mark.parametrize(
    "mix",
    [
        nn.Softmax(1),
        nn.LayerNorm([4, 4]),
        nn.GroupNorm(1, 3),
        nn.InstanceNorm2d(3),
        lambda x: x.flip(-1),
        lambda x: x.cumsum(-1),
        lambda x: F.conv2d(x, torch.ones(3, 3, 1, 1)),
        nn.BatchNorm2d(3, track_running_stats=False),
    ],
)
def test_a_value_ends_where_several_are_mixed(mix):
    torch.manual_seed(0)
    kept = kept_of(Mixing(mix), torch.randn(1, 2, 4, 4))
    value = kept.value("one", 1, (2, 3))
    assert value.after == []
    assert kept.origins(kept.value("two", 0, (2, 3)), 1, (0, 0)) == []


@pytest.mark.parametrize(
    "go",
    [
        *(F.hardswish, F.hardsigmoid, F.hardshrink, F.gelu, F.relu6, F.elu, F.celu, F.selu, F.mish),
        *(F.softplus, F.leaky_relu, F.logsigmoid, nn.PReLU(), nn.Dropout(), nn.SiLU()),
    ],
)
def test_a_value_goes_on_number_by_number(go):
    kept = kept_of(Mixing(go), torch.randn(1, 2, 4, 4))
    value = kept.value("one", 1, (2, 3))
    wanted = F.relu(
        go(torch.tensor(value.value))
        if not isinstance(go, nn.Dropout)
        else torch.tensor(value.value)
    )
    assert value.after[-1] == ("relu", pytest.approx(wanted.item()))
    (origin,) = kept.origins(kept.value("two", 0, (2, 3)), 1, (0, 0))
    assert (origin.layer, origin.channel, origin.position) == ("one", 1, (2, 3))


def test_a_kept_run_that_is_stopped_says_so_and_is_asked_for_again(branching, monkeypatch):
    """The panel gets an answer; nothing is kept, so that the next question runs the model."""
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one"], face="canvas")
    sent = []
    monkeypatch.setattr(explorer._canvas, "send", lambda said, buffers=None: sent.append(said))
    before = snapshot(model)
    handle = model.one.register_forward_pre_hook(stop)
    explorer._canvas._handle_custom_msg({"ask": "prepare", "key": "1"}, [])
    question = {"ask": "why", "layer": "one", "call": 0, "channel": 0, "position": [1, 1]}
    explorer._canvas._handle_custom_msg(question | {"key": "2"}, [])
    handle.remove()
    assert_untouched(model, before)
    assert [each["stopped"] for each in sent] == [True, True]
    explorer._canvas._handle_custom_msg(question | {"key": "3", "again": 1}, [])
    assert float(sent[-1]["value"]) == pytest.approx(model.one(x)[0, 0, 1, 1].item())
    explorer.close()


def stop(*given):
    raise KeyboardInterrupt


def test_the_panel_answers_for_layers_that_were_not_captured(branching, monkeypatch):
    """The walk leaves the explored layers: the terms, the check by an edit and the weights."""
    model, x = branching
    explorer = hookviz.explore(model, x, layers=["one"], face="canvas")
    sent = []
    monkeypatch.setattr(explorer._canvas, "send", lambda said, buffers=None: sent.append(said))
    at = {"layer": "last", "call": 0, "channel": 2, "position": [], "sample": 1}
    for ask in ({"ask": "why"}, {"ask": "without", "channels": [0, 3]}, {"ask": "weights"}):
        explorer._canvas._handle_custom_msg(at | ask | {"key": ask["ask"]}, [])
    why, without, weights = sent
    assert why["value"] == str(hookviz.contributions(model, x, "last", channel=2, sample=1).value)
    assert float(without["true"]) == pytest.approx(float(without["predicted"]), abs=1e-6)
    assert float(without["true"]) != 0
    assert weights["layer"] == "last"
    explorer.close()


def halved(tensor):
    return tensor * 0.5 + 1


@pytest.mark.parametrize("layer", ["two", "last"])
def test_an_edited_layer_is_told_before_its_edit(branching, layer):
    """Its terms are of what it is given after all other edits, and the edit is told beside."""
    model, x = branching
    at = {"channel": 2, "position": (3, 4) if layer == "two" else (), "sample": 1}
    explorer = hookviz.explore(model, x, layers=["one", "two", "last"], layer=layer)
    explorer.edit("one", channels=1, change=3)
    explorer.edit(layer, channels=2, change=halved)
    explorer.edit(layer, channels=0, change=0)
    why = explorer.contributions(**at)

    def threefold(module, args, output):
        return output * torch.tensor([1.0, 3, 1, 1])[:, None, None]

    def own_edits(module, args, output):
        given.append((args[0], output))
        off, same, half, *others = output.unbind(1)
        return torch.stack([off * 0, same, halved(half), *others], 1)

    given, gates = [], []
    module = getattr(model, layer)
    hooks = [model.one.register_forward_hook(threefold), module.register_forward_hook(own_edits)]
    hooks += [model.gate.register_forward_hook(lambda *called: gates.append(called[2]))]
    with torch.no_grad():
        model(x)
    for each in hooks:
        each.remove()
    ((taken, returned),) = given
    value = returned[(1, 2, *at["position"])].item()
    own = (1, slice(None), *at["position"])
    terms = module.weight[2].flatten().double() * taken[own].double()
    assert why.value == value
    assert torch.equal(why.by_channel, terms)
    assert why.edited == pytest.approx(0.5 * value + 1)
    assert "after its edit" in repr(why)
    if layer == "two":  # on its way is what the edits made of it
        assert why.after[0] == ("mul", pytest.approx(why.edited * gates[0][1, 2].sigmoid().item()))

    question = {"layer": layer, "call": 0, **at, "position": list(at["position"])}
    said, _ = reason_payload(explorer._now, question)
    assert (said["value"], said["edited"]) == (str(value), str(why.edited))
    assert said["edits"] == ["halved", "off"]
    assert all(term["origins"] for term in said["terms"])
    checked = without_payload(explorer._now, question | {"channels": [1]})
    assert float(checked["predicted"]) == pytest.approx(-terms[1].item())
    assert float(checked["true"]) == pytest.approx(-terms[1].item(), abs=1e-5)
    explorer.close()


class Twice(nn.Module):
    """A layer that is given what its own edit made."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return self.one(self.one(x))


def test_a_layer_that_may_be_given_its_own_edit_is_refused_as_edited():
    explorer = hookviz.explore(Twice().eval(), torch.randn(1, 2, 4, 4), layer="one")
    explorer.edit("one", channels=1)
    with pytest.raises(ValueError, match="is edited.* take the edit out, or choose the original"):
        explorer.contributions(channel=1, position=(0, 0))
    explorer.shown_run = "original"
    assert explorer.contributions(channel=1, position=(0, 0)).edited is None
    explorer.close()


@pytest.mark.parametrize("layer", ["layer3.1.conv2", "head.2"])
def test_the_original_run_of_an_edited_layer(layer):
    model, picture = hookviz.demo_model(), hookviz.demo_images()[6]
    explorer = hookviz.explore(model, picture, layers=["layer1.0.conv1", layer], layer=layer)
    explorer.place = (0.4, 0.4)
    before = explorer.contributions(channel=3).value
    explorer.edit(layer, channels=[3])
    edited = explorer.contributions(channel=3)
    assert (edited.value, edited.edited) == (before, 0)
    explorer.shown_run = "original"
    assert explorer.contributions(channel=3).value == before
    explorer.shown_run = "edited"
    assert explorer.contributions("layer1.0.conv1", channel=3).edited is None
    explorer.close()
