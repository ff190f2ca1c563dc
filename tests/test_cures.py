"""Each cure that a finding advises is applied; then the network is healthy and learns."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from heavy import heavy_but
from test_named import Listed, Net, Unfolded, block, deep, overwritten, vectors
from torch import nn
from torch.nn import functional as F

import hookviz

Model = nn.Module
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A fault, and the cure that its finding advises."""

    kind: str
    named: str  # words of the advice
    sick: Callable[[], Model] = lambda: Net()
    cured: Callable[[], Model] = lambda: Net()
    wrong: Loss = F.cross_entropy
    right: Loss = F.cross_entropy
    given: Callable[[], torch.Tensor] = lambda: pictures()
    # Applies the cure to the input and the labels, if they are the fault.
    prepared: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = (
        lambda x, y: (x, y)
    )


def pictures():
    """Return pictures of four distinguishable classes."""
    x = torch.randn(16, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    return x + 2 * (torch.arange(16) % 4)[:, None, None, None]


def net(*given, **options):
    return lambda: Net(*given, **options)


def changed(change, build=Net):
    def made():
        model = build()
        with torch.no_grad():
            change(model)
        return model

    return made


def tokens():
    return vectors(16, 8) + 2 * (torch.arange(16) % 4)[:, None]


def sequences():
    return vectors(16, 64, 8) * 0.2 + (torch.arange(16) % 4)[:, None, None] / 2


def one_hot(labels):
    return F.one_hot(labels, 5).float()


def with_logits(output, labels):
    return F.binary_cross_entropy_with_logits(output, one_hot(labels))


class Registered(nn.Module):
    def __init__(self):
        super().__init__()
        plain = Listed()
        self.layers, self.head = nn.ModuleList(plain.layers), plain.head

    forward = Listed.forward


class PlainWeights(nn.Module):
    """The weights of its second layer are a plain tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.own = nn.Linear(8, 16), torch.randn(4, 16) / 4

    def forward(self, x):
        return F.linear(self.first(x).relu(), self.own)


class ParameterWeights(PlainWeights):
    def __init__(self):
        super().__init__()
        own = self.own
        del self.own
        self.own = nn.Parameter(own)


class BoundedRecurrence(Unfolded):
    """A tanh in the recurrence, and orthogonal weights."""

    act = staticmethod(torch.tanh)

    def __init__(self):
        super().__init__(2.0)
        nn.init.orthogonal_(self.w.weight)


class ResidualBlock(nn.Module):
    """A normalization, a layer and a ReLU, with a residual connection."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU())

    def forward(self, x):
        return x + self.branch(x)


def residual():
    return nn.Sequential(nn.Linear(8, 16), *[ResidualBlock() for _ in range(40)], nn.Linear(16, 4))


class WithTanh(nn.Module):
    """A convolution, a tanh and a head."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.conv(x).tanh().mean((2, 3)))


class WithSigmoid(nn.Module):
    """A sigmoid between two layers, with an optional norm before it."""

    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), norm, nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).sigmoid())


class MaybeUnused(nn.Module):
    def __init__(self, called):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.called = called

    def forward(self, x):
        x = self.first(x).relu()
        return self.last(self.between(x).relu() if self.called else x)


class FunctionalDropout(nn.Module):
    """A network in eval mode that calls dropout as a function."""

    def __init__(self, always=False):
        super().__init__()
        self.first, self.last, self.always = nn.Linear(8, 16), nn.Linear(16, 4), always
        self.eval()

    def forward(self, x):
        return self.last(F.dropout(self.first(x), 0.2, training=self.always or self.training))


def unit_pictures():
    """Return pictures with values from 0 to 1."""
    return (pictures() + 4) / 16


def trained_on_unit_pictures():
    """Return a network in eval mode whose statistics are those of pictures from 0 to 1."""
    model = Net()
    for _ in range(60):
        model(unit_pictures())
    return model.eval()


def eval_but_for_norm():
    """Return a network in eval mode except for its norm."""
    model = Net()
    for _ in range(60):
        model(pictures())
    model.eval().norm.train()
    return model


def seen(module, args, output):
    """Stand in for a hook from a notebook cell."""


def hooked():
    model = Net()
    for _ in range(2):
        model.conv.register_forward_hook(seen)
    return model


def removed(model):
    hookviz.remove_hooks(model, of="seen")
    return model


CASES = {
    "in place": Case("in place", "x = x + 1", net(overwritten), net(lambda x: x.sigmoid() + 1)),
    "softmax before cross entropy": Case("loss", "without the softmax", net(last=nn.Softmax(1))),
    "sigmoid before BCEWithLogits": Case(
        "loss", "without the sigmoid", net(last=nn.Sigmoid()), wrong=with_logits, right=with_logits
    ),
    "softmax over the batch": Case("loss", "dim=1", net(last=nn.LogSoftmax(0))),
    "nll of logits": Case(
        "loss", "log_softmax", Net, net(last=nn.LogSoftmax(1)), F.nll_loss, F.nll_loss
    ),
    "(N, 1) against (N,)": Case(
        "loss",
        "squeeze(1)",
        net(classes=1),
        net(classes=1),
        lambda out, y: F.mse_loss(out, y.float()),
        lambda out, y: F.mse_loss(out.squeeze(1), y.float()),
    ),
    "labels": Case(
        "error",
        "0 to 3",
        net(classes=4),
        net(classes=4),
        lambda out, y: F.cross_entropy(out, y + 1),
    ),
    "channels last": Case(
        "shape",
        "permute(0, 3, 1, 2)",
        given=lambda: pictures().permute(0, 2, 3, 1),
        prepared=lambda x, y: (x.permute(0, 3, 1, 2), y),
    ),
    "pictures of 0 to 255": Case(
        "input scale",
        "x / 255",
        trained_on_unit_pictures,
        trained_on_unit_pictures,
        given=lambda: unit_pictures() * 255,
        prepared=lambda x, y: (x / 255, y),
    ),
    "half precision": Case(
        "half precision",
        "compute it in float32",
        net(lambda x: ((x / x.max()).half() * 4e4).float() / 4e4),
        net(lambda x: (x / x.max()) * 4e4 / 4e4),
    ),
    "weights next to nothing": Case(
        "constant",
        "Look at the weights of 'conv'",
        changed(lambda m: m.conv.weight.mul_(1e-12), WithTanh),
        WithTanh,
    ),
    "a sigmoid at its ends": Case(
        "saturated",
        "a normalization before it",
        changed(lambda m: m.first.weight.mul_(1e3), lambda: WithSigmoid(nn.Identity())),
        changed(lambda m: m.first.weight.mul_(1e3), lambda: WithSigmoid(nn.LayerNorm(16))),
        given=tokens,
    ),
    "a layer that never runs": Case(
        "unused",
        "Call it in forward",
        lambda: MaybeUnused(False),
        lambda: MaybeUnused(True),
        given=tokens,
    ),
    "a BatchNorm in training mode": Case(
        "batchnorm", "model.eval()", eval_but_for_norm, lambda: eval_but_for_norm().eval()
    ),
    "a dropout as a function": Case(
        "dropout",
        "training=self.training",
        lambda: FunctionalDropout(True),
        FunctionalDropout,
        given=tokens,
    ),
    "a cell that was run twice": Case(
        "hooks left behind",
        "hookviz.remove_hooks(model, of=",
        hooked,
        lambda: removed(hooked()),
    ),
    "detached": Case("no gradient", "detach()", net(lambda x: x.detach())),
    "zero weights": Case(
        "zero weights", "kaiming_normal_", changed(lambda m: m.conv.weight.zero_())
    ),
    "a norm's zero weights": Case(
        "zero weights",
        "nn.init.ones_(layer.weight)",
        changed(lambda m: m.norm.weight.zero_()),
        changed(lambda m: nn.init.ones_(m.norm.weight.zero_())),
    ),
    "a bias far below zero": Case(
        "dead", "zero bias", changed(lambda m: nn.init.constant_(m.norm.bias, -100.0))
    ),
    "same channels": Case(
        "same channels", "kaiming_normal_", changed(lambda m: m.conv.weight.fill_(0.1))
    ),
    "layers in a list": Case("not registered", "nn.ModuleList", Listed, Registered, given=tokens),
    "one block four times": Case(
        "one module",
        "for _ in range(n)",
        lambda: nn.Sequential(*[block()] * 4, nn.Linear(8, 4)),
        lambda: nn.Sequential(*[block() for _ in range(4)], nn.Linear(8, 4)),
        given=tokens,
    ),
    "a recurrence": Case(
        "exploding", "a tanh into", lambda: Unfolded(2.0), BoundedRecurrence, given=sequences
    ),
    "forty sigmoids": Case(
        "vanishing",
        "Add a residual",
        lambda: nn.Sequential(nn.Linear(8, 16), deep(40, nn.Sigmoid, 1.0)),
        residual,
        given=tokens,
    ),
    "a detached loss": Case(
        "no gradient",
        "without detach()",
        wrong=lambda out, y: F.cross_entropy(out, y).detach().requires_grad_(),
    ),
    "times 0": Case("no gradient", "Remove the factor 0", net(lambda x: x * 0 + x.mean().item())),
    "a clamp beyond its ends": Case(
        "no gradient",
        "Compare its bounds",
        net(lambda x: x.clamp(1e3, 1e4)),
        net(lambda x: x.clamp(0, 1e4)),
    ),
    "an input of zeros": Case(
        "input scale",
        "how the data are loaded",
        given=lambda: pictures() * 0,
        prepared=lambda x, y: (pictures(), y),
    ),
    "kl_div of probabilities": Case(
        "loss",
        "log_softmax in place",
        wrong=lambda out, y: F.kl_div(out.softmax(1), one_hot(y), reduction="batchmean"),
        right=lambda out, y: F.kl_div(out.log_softmax(1), one_hot(y), reduction="batchmean"),
    ),
    "a plain tensor": Case(
        "not registered", "nn.Parameter(tensor)", PlainWeights, ParameterWeights, given=tokens
    ),
    "one class": Case(
        "loss",
        "return two numbers",
        net(classes=1),
        net(classes=2),
        lambda out, y: F.cross_entropy(out, y * 0),
        lambda out, y: F.cross_entropy(out, (y > 1).long()),
    ),
    "no_grad": Case(
        "no gradient", "no_grad()", net(torch.no_grad()(lambda x: x.sigmoid())), net(torch.sigmoid)
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:std")
@pytest.mark.parametrize("name", heavy_but({*CASES} - {"forty sigmoids", "a recurrence"}, CASES))
def test_the_advised_cure_makes_the_network_healthy_and_learn(name):
    case = CASES[name]
    x = case.given()
    y = torch.arange(len(x)) % 4
    torch.manual_seed(0)
    findings = hookviz.diagnose(case.sick(), x, lambda output: case.wrong(output, y))
    said = [each for each in findings if each.kind == case.kind]
    assert not findings.healthy and any(case.named in each.advice for each in said), findings
    x, y = case.prepared(x, y)
    torch.manual_seed(0)
    model = case.cured()
    goal = lambda output: case.right(output, y)  # noqa: E731
    cured = hookviz.diagnose(model, x, goal)
    assert cured.healthy, cured
    with hookviz.diagnose(model) as cured:
        goal(model(x)).backward()
    assert cured.healthy, cured
    training = model.training
    before, after = losses_of_training(model.train(), x, goal)
    assert after < 0.7 * before
    model.train(training)
    assert hookviz.diagnose(model, x, goal).healthy


def sgd(rate, part=""):
    return lambda model: torch.optim.SGD(model.get_submodule(part).parameters(), rate)


STEPS = {
    ("optimizer", "with model.parameters()"): (sgd(0.1, "head"), sgd(0.1)),
    ("learning rate", "a hundredth in each step"): (sgd(1e3), sgd(0.1)),
}
"""Kind and advice -> the wrong optimizer and the advised one."""


@pytest.mark.parametrize("told", STEPS, ids=lambda told: told[0])
def test_the_advised_optimizer_is_healthy(told):
    x, y = pictures(), torch.arange(16) % 4
    goal = lambda output: F.cross_entropy(output, y)  # noqa: E731
    for make, healthy in zip(STEPS[told], (False, True), strict=True):
        model = Net()
        optimizer = make(model)
        findings = hookviz.diagnose(model, x, goal, optimizer=optimizer)
        said = [each.advice for each in findings if each.kind == told[0]]
        assert findings.healthy is healthy and any(told[1] in each for each in said) is not healthy
    before, after = losses_of_training(model, x, goal, optimizer)
    assert after < 0.7 * before


WATCHED = {
    ("learning rate", "a hundred times smaller"): ((10.0, True, 1e9), (0.1, True, 1e9)),
    ("does not move", "with a learning rate above 0"): ((0.0, True, 1.0), (0.1, True, 1.0)),
    ("does not move", "clipped to 0"): ((0.1, True, 0.0), (0.1, True, 1.0)),
    ("adds up", "optimizer.zero_grad()"): ((0.1, False, 1.0), (0.1, True, 1.0)),
}
"""Kind and advice -> the wrong and the advised training: the learning rate, whether gradients are
set to zero, and the norm to which they are clipped."""


@pytest.mark.parametrize("told", WATCHED, ids=lambda told: told[1])
def test_the_advice_of_a_watch_makes_the_training_healthy(told):
    x, y = pictures(), torch.arange(16) % 4
    for (rate, zeroed, norm), healthy in zip(WATCHED[told], (False, True), strict=True):
        model = Net()
        optimizer, watch, losses = sgd(rate)(model), hookviz.watch(model, every=1), []
        for _ in range(40):
            if zeroed:
                optimizer.zero_grad()
            with watch:
                losses.append(F.cross_entropy(model(x), y))
                losses[-1].backward()
                nn.utils.clip_grad_norm_(model.parameters(), norm)
            optimizer.step()
        said = [each.advice for each in watch.findings if each.kind == told[0]]
        assert any(told[1] in each for each in said) is not healthy, watch.findings
        assert watch.findings.healthy is healthy
    assert losses[-1] < 0.7 * losses[0]


def test_a_step_without_its_empty_batch_is_healthy():
    x, model = pictures(), Net()
    for batches, healthy in (([x, x[:0]], False), ([b for b in (x, x[:0]) if len(b)], True)):
        with hookviz.diagnose(model) as findings:
            for each in batches:
                model(each).sum().backward()
        said = [each.advice for each in findings if each.kind == "empty"]
        assert findings.healthy is healthy
        assert any("Leave empty batches out" in each for each in said) is not healthy


TESTED_ELSEWHERE = {"silent", "training mode", "nan", "inf", "empty"}
"""Kinds that are always notes, or whose cures test_causes.py and the test above apply."""


def kinds():
    """Return the kinds of findings in the package's code."""
    known = set(re.findall('"([a-z ]+)"', str(hookviz.diagnose.__doc__)))
    found = set()
    for folder in ("diagnosis", "watch"):
        for path in (Path(str(hookviz.__file__)).parent / "studies" / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in known:
                    found.add(node.value)
                named = isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"
                if named and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(node.args[0].value)
    return found


def test_the_cure_of_every_kind_of_finding_is_tested():
    tried = {case.kind for case in CASES.values()} | {kind for kind, _ in [*STEPS, *WATCHED]}
    assert kinds() - tried == TESTED_ELSEWHERE


def losses_of_training(
    model,
    x,
    goal,
    optimizer=None,
):
    """Return the loss before and after some steps."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        losses.append(goal(model(x)))
        losses[-1].backward()
        optimizer.step()
    return losses[0].item(), losses[-1].item()
