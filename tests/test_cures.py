"""Cures that cure: each that is named is applied; then the network learns, the doctor is silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from test_named import Listed, Net, Rnn, Unfolded, block, deep, overwritten, vectors
from torch import nn
from torch.nn import functional as F

import hookviz

Model = nn.Module
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A fault, and the cure that its finding names."""

    kind: str
    named: str  # in the advice
    sick: Callable[[], tuple[Model, Loss]]
    cured: Callable[[], tuple[Model, Loss]]
    given: Callable[[], torch.Tensor] = lambda: pictures()
    labels: Callable[[int], torch.Tensor] = lambda count: torch.arange(count) % 4


def pictures() -> torch.Tensor:
    """Four sorts of pictures that can be told apart."""
    x = torch.randn(16, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    return x + 2 * (torch.arange(16) % 4)[:, None, None, None]


def net(*given: Any, **options: Any) -> Callable[[], tuple[Model, Loss]]:
    return lambda: (Net(*given, **options), F.cross_entropy)


def changed(change: Callable[[Any], object]) -> Callable[[], tuple[Model, Loss]]:
    def build() -> tuple[Model, Loss]:
        model = Net()
        with torch.no_grad():
            change(model)
        return model, F.cross_entropy

    return build


def with_loss(loss: Loss, **options: Any) -> Callable[[], tuple[Model, Loss]]:
    return lambda: (Net(**options), loss)


def lone(build: Callable[[], Model]) -> Callable[[], tuple[Model, Loss]]:
    return lambda: (build(), F.cross_entropy)


def tokens() -> torch.Tensor:
    return vectors(16, 8) + 2 * (torch.arange(16) % 4)[:, None]


def sequences() -> torch.Tensor:
    return vectors(16, 64, 8) * 0.2 + (torch.arange(16) % 4)[:, None, None] / 2


def one_hot(labels: torch.Tensor) -> torch.Tensor:
    return F.one_hot(labels, 5).float()


class Registered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        plain = Listed()
        self.layers, self.head = nn.ModuleList(plain.layers), plain.head

    forward = Listed.forward


class Unlearnt(nn.Module):
    """Its second layer's weights are no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.own = nn.Linear(8, 16), torch.randn(4, 16) / 4

    def forward(self, x):
        return F.linear(self.first(x).relu(), self.own)


class Learnt(Unlearnt):
    def __init__(self) -> None:
        super().__init__()
        own = self.own
        del self.own
        self.own = nn.Parameter(own)


class Tamed(Unfolded):
    """With a tanh in the recurrence, and weights of length 1."""

    def __init__(self) -> None:
        super().__init__(2.0)
        nn.init.orthogonal_(self.w.weight)

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            state = torch.tanh(self.i(step) + self.w(state))
        return self.out(state)


def orthogonal() -> Model:
    model = Rnn(2.0)
    nn.init.orthogonal_(model.rnn.weight_hh_l0)
    with torch.no_grad():
        model.rnn.weight_hh_l0.mul_(0.9)
    return model


class Around(nn.Module):
    """A normalization, a layer and a ReLU, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU())

    def forward(self, x):
        return x + self.branch(x)


def residual() -> Model:
    return nn.Sequential(nn.Linear(8, 16), *[Around() for _ in range(40)], nn.Linear(16, 4))


def kept_above_zero(x):
    return x.clamp(min=1e-6).log()


CASES = {
    "in place": Case("in place", "x = x + 1", net(overwritten), net(lambda x: x.sigmoid() + 1)),
    "softmax before cross entropy": Case("loss", "without softmax", net(last=nn.Softmax(1)), net()),
    "sigmoid before BCEWithLogits": Case(
        "loss",
        "without the sigmoid",
        with_loss(
            lambda out, y: F.binary_cross_entropy_with_logits(out, one_hot(y)), last=nn.Sigmoid()
        ),
        with_loss(lambda out, y: F.binary_cross_entropy_with_logits(out, one_hot(y))),
    ),
    "the other loss": Case(
        "loss",
        "use binary_cross_entropy",
        with_loss(
            lambda out, y: F.binary_cross_entropy_with_logits(out, one_hot(y)), last=nn.Sigmoid()
        ),
        with_loss(lambda out, y: F.binary_cross_entropy(out, one_hot(y)), last=nn.Sigmoid()),
    ),
    "softmax over the batch": Case("loss", "dim=1", net(last=nn.LogSoftmax(0)), net()),
    "nll of logits": Case(
        "loss", "log_softmax", with_loss(F.nll_loss), with_loss(F.nll_loss, last=nn.LogSoftmax(1))
    ),
    "(N, 1) against (N,)": Case(
        "loss",
        "squeeze(1)",
        with_loss(lambda out, y: F.mse_loss(out, y.float()), classes=1),
        with_loss(lambda out, y: F.mse_loss(out.squeeze(1), y.float()), classes=1),
    ),
    "log of a softmax": Case(
        "inf",
        "log_softmax(x)",
        with_loss(F.nll_loss, last=lambda x: (x * 1e4).softmax(1).log()),
        with_loss(F.nll_loss, last=lambda x: x.log_softmax(1)),
    ),
    "log of zeros": Case("inf", "clamp(min=1e-6)", net(torch.log), net(kept_above_zero)),
    "labels": Case(
        "error", "0 to 3", net(classes=4), net(classes=4), labels=lambda n: torch.arange(n) % 4 + 1
    ),
    "detached": Case("no gradient", "detach()", net(lambda x: x.detach()), net()),
    "zero weights": Case(
        "zero weights",
        "kaiming_normal_",
        changed(lambda m: m.conv.weight.zero_()),
        changed(lambda m: nn.init.kaiming_normal_(m.conv.weight)),
    ),
    "a bias far below zero": Case(
        "dead",
        "the bias with 0",
        changed(lambda m: nn.init.constant_(m.norm.bias, -100.0)),
        changed(lambda m: nn.init.zeros_(m.norm.bias)),
    ),
    "same channels": Case(
        "same channels",
        "kaiming_normal_",
        changed(lambda m: m.conv.weight.fill_(0.1)),
        changed(lambda m: nn.init.kaiming_normal_(m.conv.weight)),
    ),
    "layers in a list": Case(
        "not registered", "nn.ModuleList", lone(Listed), lone(Registered), tokens
    ),
    "one block four times": Case(
        "one module",
        "for _ in range(n)",
        lone(lambda: nn.Sequential(*[block()] * 4, nn.Linear(8, 4))),
        lone(lambda: nn.Sequential(*[block() for _ in range(4)], nn.Linear(8, 4))),
        tokens,
    ),
    "a recurrence": Case(
        "exploding", "a tanh into", lone(lambda: Unfolded(2.0)), lone(Tamed), sequences
    ),
    "nn.RNN": Case(
        "exploding", "nn.init.orthogonal_", lone(lambda: Rnn(2.0)), lone(orthogonal), sequences
    ),
    "forty sigmoids": Case(
        "vanishing",
        "Add a residual",
        lone(lambda: nn.Sequential(nn.Linear(8, 16), deep(40, nn.Sigmoid, 1.0))),
        lone(residual),
        tokens,
    ),
    "a detached loss": Case(
        "no gradient",
        "without detach()",
        with_loss(lambda out, y: F.cross_entropy(out, y).detach().requires_grad_()),
        net(),
    ),
    "times 0": Case(
        "no gradient", "Take the factor 0 away", net(lambda x: x * 0 + x.mean().item()), net()
    ),
    "kl_div of probabilities": Case(
        "loss",
        "log_softmax in place",
        with_loss(lambda out, y: F.kl_div(out.softmax(1), one_hot(y), reduction="batchmean")),
        with_loss(lambda out, y: F.kl_div(out.log_softmax(1), one_hot(y), reduction="batchmean")),
    ),
    "a plain tensor": Case(
        "not registered", "nn.Parameter(tensor)", lone(Unlearnt), lone(Learnt), tokens
    ),
    "one class": Case(
        "loss",
        "return two numbers",
        with_loss(lambda out, y: F.cross_entropy(out, y * 0), classes=1),
        with_loss(lambda out, y: F.cross_entropy(out, (y > 1).long()), classes=2),
    ),
    "no_grad": Case(
        "no gradient", "no_grad()", net(torch.no_grad()(lambda x: x.sigmoid())), net(torch.sigmoid)
    ),
    "masked samples": Case(
        "no gradient",
        "all samples",
        with_loss(
            lambda out, y: (F.cross_entropy(out, y, reduction="none") * (y == 0)).mean(),
        ),
        with_loss(F.cross_entropy),
    ),
    "one sample": Case(
        "no gradient",
        "all samples",
        with_loss(lambda out, y: F.cross_entropy(out[:1], y[:1])),
        with_loss(F.cross_entropy),
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", CASES)
def test_the_cure_that_is_named_cures(name):
    case = CASES[name]
    x = case.given()
    y = case.labels(len(x))
    torch.manual_seed(0)
    model, loss = case.sick()
    findings = hookviz.diagnose(model, x, lambda output: loss(output, y))
    said = [each for each in findings if each.kind == case.kind]
    assert not findings.healthy and any(case.named in each.advice for each in said), findings
    if name == "labels":
        y = y - 1
    torch.manual_seed(0)
    model, loss = case.cured()
    goal = lambda output: loss(output, y)  # noqa: E731
    cured = hookviz.diagnose(model, x, goal)
    assert cured.healthy, cured
    with hookviz.diagnose(model) as cured:
        goal(model(x)).backward()
    assert cured.healthy, cured
    before, after = learnt(model, x, goal)
    assert after < 0.7 * before
    assert hookviz.diagnose(model, x, goal).healthy


def learnt(model: Model, x: torch.Tensor, goal: Callable[..., torch.Tensor]) -> tuple[float, float]:
    """The loss before and after some steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        losses.append(goal(model(x)))
        losses[-1].backward()
        optimizer.step()
    return losses[0].item(), losses[-1].item()


def test_what_does_not_cure_is_not_named():
    """A small number within the logarithm of a softmax leaves the loss where it is."""
    model, loss = CASES["log of a softmax"].sick()
    x, y = pictures(), torch.arange(16) % 4
    (found,) = [
        each
        for each in hookviz.diagnose(model, x, lambda output: loss(output, y))
        if each.kind == "inf" and each.phase == "forward"
    ]
    assert "Add a small number" not in found.advice
