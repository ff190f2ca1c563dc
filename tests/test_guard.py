"""What the guard, ``with hookviz.diagnose(model)``, tells of a step that runs to its end."""

from __future__ import annotations

import gc
import re
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from digits import Rounded
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import hookviz
from hookviz.results import Diagnosis


def pictures() -> torch.Tensor:
    return torch.randn(16, 3, 12, 12, generator=torch.Generator().manual_seed(1))


LABELS = torch.arange(16) % 4
ONE_HOT = F.one_hot(LABELS, 4).float()


def net(*last: nn.Module, classes: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(8, classes), *last,
    )  # fmt: skip


class Between(nn.Module):
    """Something that a forward does between two layers."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.change = nn.Linear(4, 8), nn.Linear(8, 4), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.change(self.first(x)))


def guarded(
    model: nn.Module, loss: Callable[[Any], torch.Tensor], x: torch.Tensor | None = None
) -> Diagnosis:
    with hookviz.diagnose(model) as findings:
        loss(model(pictures() if x is None else x)).backward()
    return findings


def cross_entropy(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, LABELS)


class Column(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 1:2].squeeze(1)


WIRED = {
    "softmax": (lambda: net(nn.Softmax(1)), cross_entropy, "log_softmax"),
    "sigmoid": (
        lambda: net(nn.Sigmoid()),
        lambda output: F.binary_cross_entropy_with_logits(output, ONE_HOT),
        "binary_cross_entropy_with_logits",
    ),
    "softmax, of which one column is taken": (
        lambda: net(nn.Softmax(1), Column()),
        lambda output: F.binary_cross_entropy_with_logits(output, ONE_HOT[:, 0]),
        "binary_cross_entropy_with_logits",
    ),
    "sigmoid in the loss": (
        net,
        lambda output: F.binary_cross_entropy_with_logits(output.sigmoid(), ONE_HOT),
        "binary_cross_entropy_with_logits",
    ),
    "sigmoid before a cross entropy": (
        net,
        lambda output: F.cross_entropy(torch.sigmoid(output), LABELS),
        "log_softmax",
    ),
    "(N, 1)": (
        lambda: net(classes=1),
        lambda output: F.mse_loss(output, LABELS.float()),
        "mse_loss",
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", WIRED)
def test_how_the_loss_is_wired(name):
    make, loss, operation = WIRED[name]
    (found,) = guarded(make(), loss)
    assert (found.kind, found.severity) == ("loss", "warning")
    assert (found.layer, found.operation) == ("", operation)
    assert "test_guard.py" in found.at


def test_a_softmax_over_the_batch_in_the_loss():
    (found,) = guarded(net(), lambda output: F.nll_loss(output.log_softmax(0), LABELS))
    assert (found.kind, found.operation) == (
        "loss",
        "log_softmax",
    ) and "dimension 0" in found.message


def deep(scale: float, between: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [each for _ in range(16) for each in (nn.Linear(4, 4), between())]
    for each in layers[::2]:
        nn.init.orthogonal_(each.weight, gain=scale)  # type: ignore[arg-type]
    return nn.Sequential(*layers, nn.Linear(4, 4))


def alike() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    nn.init.constant_(model[0].weight, 0.1)
    return model


class Recurrent(nn.Module):
    """It begins with a state of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.step, self.head = (
            nn.Linear(4, 4, bias=False),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        )
        self.again.weight.data = 2 * torch.eye(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x)
        for _ in range(40):
            state = self.again(state) + self.step(x)
        return self.head(state)


SICK = {
    "vanishing": lambda: deep(1.0, nn.Sigmoid),
    "exploding": lambda: deep(6.0, nn.Identity),
    "same channels": alike,
}


@pytest.mark.parametrize("kind", SICK)
def test_a_step_with_finite_numbers_that_is_sick(kind):
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    once = hookviz.diagnose(SICK[kind](), x, cross_entropy)
    for findings in (once, guarded(SICK[kind](), cross_entropy, x)):
        assert {each.kind for each in findings if each.severity != "note"} == {kind}, findings


@pytest.mark.parametrize("form", ["call", "guard"])
def test_what_a_loss_refuses_is_told_with_its_cause(form):
    """A binary cross entropy raises where it is given NaN; that came from a weight."""
    model = net(nn.Sigmoid())
    with torch.no_grad():
        model[-2].weight[0, 0] = torch.nan
    loss = lambda output: F.binary_cross_entropy(output, ONE_HOT)  # noqa: E731
    if form == "call":
        findings = hookviz.diagnose(model, pictures(), loss)
    else:
        with suppress(RuntimeError), hookviz.diagnose(model) as findings:
            loss(model(pictures())).backward()
    kinds = [(each.kind, each.layer) for each in findings if each.severity == "error"]
    assert {("nan", "6"), ("error", "")} <= set(kinds), findings


def perceptron(width: int, bias: float) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))
    nn.init.constant_(model[0].bias, bias)
    return model


@pytest.mark.parametrize("count", [2, 4, 15])
@pytest.mark.parametrize("form", ["call", "guard"])
def test_a_dead_layer_is_told_of_few_inputs(form, count):
    """A channel has a number of each input alone; that all inputs get one answer tells enough."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    loss = lambda output: F.cross_entropy(output, LABELS[:count])  # noqa: E731
    for bias, dead in ((-100.0, True), (0.0, False)):  # as is advised
        model = perceptron(32, bias)
        findings = guarded(model, loss, x) if form == "guard" else hookviz.diagnose(model, x, loss)
        told = [(each.kind, each.layer) for each in findings if each.severity != "note"]
        assert told == ([("dead", "1")] if dead else []), findings


class Gated(nn.Module):
    """A gate of which all channels are zero: the rest answers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.body = perceptron(32, -100.0), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.gate(x).sigmoid()


def test_few_inputs_say_nothing_where_the_answers_differ_or_the_inputs_do_not():
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    assert hookviz.diagnose(Gated(), x, lambda output: F.cross_entropy(output, LABELS[:4])).healthy
    alike = x[:1].expand(4, -1).clone()
    for few in (x[:1], alike):
        assert hookviz.diagnose(perceptron(32, -100.0), few).healthy


class Around(nn.Module):
    """A residual connection around a layer, and what its output goes through."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stem, self.branch, self.head = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(x + self.change(self.branch(x).relu()))


CLOSED = {
    "times 0": lambda x: x * 0,
    "round": lambda x: x.round(),
    "a clamp": lambda x: x.clamp(1e3, 1e4),
}


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("change", CLOSED)
@pytest.mark.parametrize("make", [Around, Between])
def test_a_layer_without_a_slope_behind_it_is_named_alone(make, change, form):
    """In a residual branch, too, where all else has another way open."""
    torch.manual_seed(0)
    model = make(CLOSED[change])
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    if form == "guard":
        findings = guarded(model, cross_entropy, x)
    else:
        findings = hookviz.diagnose(model, x, cross_entropy)
    (found,) = [each for each in findings if each.severity != "note"]
    assert found.kind == "no gradient" and found.layer == ("branch" if make is Around else "first")
    assert "test_guard.py" in found.at


def test_a_branch_that_is_left_out_at_random_or_has_no_weight_yet_is_no_fault():
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    for seed in range(4):
        torch.manual_seed(seed)
        model = Around(lambda y: y * float(torch.rand(()) < 0.5))
        assert hookviz.diagnose(model, x, cross_entropy).healthy
    loss = lambda output: cross_entropy(output) + 0 * output.square().mean()  # noqa: E731
    assert hookviz.diagnose(Around(torch.tanh), x, loss).healthy

    class Two(Around):
        def forward(self, x):
            return self.head(self.stem(x)), self.branch(self.stem(x))

    findings = hookviz.diagnose(
        Two(torch.tanh), x, lambda output: cross_entropy(output[0]) + 0 * output[1].sum()
    )
    (note,) = [each for each in findings if each.kind == "no gradient"]
    assert note.severity == "note" and "begins with the weight 0" in note.advice


class Tempered(nn.Module):
    """Scores by a temperature that is learnt and has come to its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(9.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale.exp().clamp(max=100.0) * F.normalize(self.body(x), dim=1) / 50


class Cell(nn.Module):
    """One step of an LSTM by hand, whose first state is zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.forget = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(x), 4)
        one, two, three = (gate(x).sigmoid() for gate in self.gates[:3])
        state = self.forget(x).sigmoid() * state + one * two
        return three * state.tanh() + self.gates[3](x)


@pytest.mark.parametrize("form", ["call", "guard"])
@pytest.mark.parametrize("make", [Tempered, Cell])
def test_a_limit_of_one_number_and_a_first_state_of_zeros_are_well(make, form):
    torch.manual_seed(0)
    model, x = make(), torch.randn(16, 4)
    findings = guarded(model, cross_entropy, x) if form == "guard" else None
    assert (findings or hookviz.diagnose(model, x, cross_entropy)).healthy


def test_numbers_that_are_far_too_large_throughout_are_examined():
    """No layer's are larger than another's; the length of the step follows from them."""

    class Grown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(4, 8, nonlinearity="relu", batch_first=True)
            self.out = nn.Linear(8, 4)
            self.rnn.weight_hh_l0.data = 2 * torch.eye(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.rnn(x)[0][:, -1])

    torch.manual_seed(0)
    model, x = Grown(), torch.randn(16, 64, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hookviz.diagnose(model, optimizer=optimizer) as findings:
        cross_entropy(model(x)).backward()
    for each in (findings, hookviz.diagnose(model, x, cross_entropy, optimizer=optimizer)):
        assert [(e.kind, e.layer) for e in each if e.severity != "note"] == [("exploding", "rnn")]


def test_a_margin_that_a_whole_batch_keeps_is_no_fault():
    """A loss that a ReLU or a clamp makes 0 of is one."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 4), torch.randn(64, 4)
    kept = lambda output: F.relu(output - output.detach() - 1.0).mean()  # noqa: E731
    assert hookviz.diagnose(model, x, kept).healthy
    for shut in (F.relu, lambda loss: loss.clamp(max=0.0)):
        loss = lambda output, shut=shut: shut(-output.square().mean() - 1.0).relu()  # noqa: E731
        (found,) = [e for e in hookviz.diagnose(model, x, loss) if e.severity != "note"]
        assert (found.kind, found.evidence["samples"]) == ("no gradient", 64)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_an_input_of_one_number_is_told_instead_of_what_comes_of_it(value, training):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4, bias=False), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 4),
    ).train(training)  # fmt: skip
    x = torch.full((16, 3, 12, 12), value)
    for target in (None, cross_entropy):
        findings = hookviz.diagnose(model, x, target)
        (found,) = [each for each in findings if each.kind != "training mode"]
        assert found.kind == "input scale" and f"are {value:.0f}: every" in found.message
        assert found.severity == ("note" if target is None else "warning")
    mask = torch.ones(16, 12)  # beside words it says nothing
    assert hookviz.diagnose(Words(), (torch.arange(192).view(16, 12), mask), cross_entropy).healthy


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(192, 8), nn.Linear(8, 4)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head((self.words(words) * mask[..., None]).sum(1))


def test_a_recurrence_names_the_layer_that_makes_it_larger():
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    for findings in (
        hookviz.diagnose(Recurrent(), x, cross_entropy),
        guarded(Recurrent(), cross_entropy, x),
    ):
        (found,) = [each for each in findings if each.severity != "note"]
        assert (found.kind, found.layer) == ("exploding", "again")


def raised(model: nn.Module, step: Callable[[nn.Module], Any]) -> Diagnosis:
    findings = hookviz.diagnose(model)
    with pytest.raises((RuntimeError, ValueError)), findings:
        step(model)
    return findings


def test_an_error_is_located_in_its_call_beside_nan_in_an_earlier_one():
    def step(model):
        model(torch.randn(16, 4))
        model(torch.randn(16, 5))

    findings = raised(Between(torch.log), step)
    found = next(each for each in findings if each.kind == "shape")
    assert found.layer == "first" and "takes 4 features" in found.message


def test_a_loss_that_is_detached_names_what_detached_it():
    found = raised(net(), lambda model: cross_entropy(model(pictures()).detach()).backward())[0]
    assert (found.severity, found.operation) == ("error", "detach")
    assert "model(pictures()).detach()" in found.code


def test_weights_that_were_changed_before_the_backward():
    def step(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        first, second = cross_entropy(model(pictures())), cross_entropy(model(pictures()))
        first.backward()
        optimizer.step()
        second.backward()

    found = raised(net(), step)[0]
    assert found.kind == "in place" and "optimizer.step() after" in found.advice


def test_a_loss_over_an_empty_batch_is_its_doing():
    model, x = whole(), torch.zeros(0, 4)
    with hookviz.diagnose(model) as findings:
        F.cross_entropy(model(x), LABELS[:0]).backward()
    assert [each.kind for each in findings if each.severity != "note"] == ["empty"]


def learnt() -> nn.Sequential:
    """A network whose BatchNorm has seen batches enough."""
    model = net()
    for _ in range(30):
        model(pictures())
    return model


@pytest.mark.parametrize("training", [False, True])
def test_input_on_another_scale(training):
    model, x = learnt().train(training), pictures()
    assert guarded(model, cross_entropy).healthy
    once = hookviz.diagnose(model, x * 255, cross_entropy)
    for findings in (once, guarded(model, cross_entropy, x * 255)):
        assert [each.kind for each in findings if each.severity == "warning"] == ["input scale"]
        assert findings[0].layer == "1"


def test_a_fault_of_the_step_and_of_its_examination_is_reported_once():
    twice = lambda output: cross_entropy(output.softmax(1))  # noqa: E731
    findings = guarded(learnt(), twice, pictures() * 255)
    told = [each.kind for each in findings if each.severity != "note"]
    assert sorted(told) == ["input scale", "loss"]


def test_a_training_that_has_begun_tells_nothing_of_the_scale():
    model = net()
    assert guarded(model, cross_entropy, pictures() * 255).healthy


def test_a_slope_that_is_passed_on_is_well():
    straight = Between(lambda x: x + (x.round() - x).detach())
    masked = Between(lambda x: x * (x > 0))
    for model in (straight, masked):
        x = torch.randn(16, 4)
        assert hookviz.diagnose(model, x, cross_entropy).healthy
        assert guarded(model, cross_entropy, x).healthy


def test_weights_that_a_module_keeps_as_a_plain_tensor():
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.own = nn.Linear(4, 4), torch.randn(4, 4, requires_grad=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x @ self.own)

    (found,) = hookviz.diagnose(Kept(), torch.randn(16, 4), cross_entropy)
    assert (found.kind, found.severity, found.operation) == ("not registered", "warning", "mm")
    x = torch.randn(16, 4, requires_grad=True)  # an input that asks for a gradient is none
    assert hookviz.diagnose(nn.Linear(4, 4), x, cross_entropy).healthy


class Without(nn.Module):
    """A layer under ``torch.no_grad()``, which was meant for the evaluation alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # planted
            x = self.first(x)
        return self.second(x)


class Frozen(Without):
    @torch.no_grad()  # planted
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Plain(nn.Module):
    """Weights that are neither parameter nor buffer, and so never learn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.own, self.bias = nn.Linear(4, 8), torch.randn(4, 8), torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.first(x), self.own, self.bias)  # planted


class Rows(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.rows = [torch.randn(8, 4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) @ self.rows[0]  # planted


def whole() -> nn.Module:
    torch.manual_seed(0)
    return Between(lambda x: x.relu())


def no_label(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, LABELS * 0 - 100)  # planted


def over_zero(output: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output) / 0  # planted


def no_logarithm(output: torch.Tensor) -> torch.Tensor:
    return F.kl_div(output.softmax(1), ONE_HOT, reduction="batchmean")  # planted


def no_log_target(output: torch.Tensor) -> torch.Tensor:
    truth = (ONE_HOT + 1).log_softmax(1)
    return F.kl_div(output.softmax(1), truth, reduction="batchmean", log_target=True)  # planted


def logits(output: torch.Tensor) -> torch.Tensor:
    return F.kl_div(output, ONE_HOT, reduction="batchmean")  # planted


def cut(output: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output).detach().requires_grad_()  # planted


def cut_and_scaled(output: torch.Tensor) -> torch.Tensor:
    return 3 * cross_entropy(output).data.requires_grad_()  # planted


def made_anew(output: torch.Tensor) -> torch.Tensor:
    return torch.tensor(cross_entropy(output).item(), requires_grad=True)  # planted


def times_zero(output: torch.Tensor) -> torch.Tensor:
    return output.sum() * 0 + cross_entropy(output).item()  # planted


def root_of_zero(output: torch.Tensor) -> torch.Tensor:
    return (output - output.detach()).pow(2).sum().sqrt()  # planted


def log_of_zero(output: torch.Tensor) -> torch.Tensor:
    return -(ONE_HOT * (output.softmax(1) * 0).log()).sum()  # planted


def one_of_one(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output[:, :1], LABELS * 0)  # planted


def mixed_up(x: torch.Tensor) -> torch.Tensor:
    return x * 0 + x.mean().item()  # planted


STEPS: dict[str, tuple[Callable[[], nn.Module], Any, tuple[str, str, str, str]]] = {
    "a detached loss": (whole, cut, ("error", "no gradient", "", "cut off from the model")),
    "a loss of .data": (whole, cut_and_scaled, ("error", "no gradient", "", "cut off from the")),
    "a loss made anew": (whole, made_anew, ("error", "no gradient", "", "cut off from the model")),
    "a loss times zero": (whole, times_zero, ("warning", "no gradient", "", "all 16 samples")),
    "between the layers": (
        lambda: Between(mixed_up), cross_entropy,
        ("warning", "no gradient", "first", "multiplied by 0"),
    ),
    "kl_div of probabilities": (whole, no_logarithm, ("warning", "loss", "", "Kl_div")),
    "kl_div of a logarithm": (whole, no_log_target, ("warning", "loss", "", "Kl_div")),
    "kl_div of logits": (whole, logits, ("warning", "loss", "", "above 0")),
    "no label": (whole, no_label, ("error", "nan", "", "ignore_index")),
    "divided by 0": (whole, over_zero, ("error", "inf", "", "division by 0")),
    "one class": (whole, one_of_one, ("warning", "loss", "", "over one class")),
    "no_grad": (Without, cross_entropy, ("warning", "no gradient", "first", "torch.no_grad() in")),
    "no_grad on all": (Frozen, cross_entropy, ("error", "error", "", "")),
    "a root of zero": (whole, root_of_zero, ("error", "inf", "", "infinite at 0")),
    "a log of zero": (whole, log_of_zero, ("error", "", "", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_names_the_line_of_its_fault(name):
    """As a call with the loss, and as a guard around the step: the same, and nothing else."""
    make, loss, (severity, kind, layer, said) = STEPS[name]
    torch.manual_seed(0)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    once, findings = hookviz.diagnose(make(), x, loss), hookviz.diagnose(model := make())
    with suppress(RuntimeError), findings:  # what has no graph raises
        loss(model(x)).backward()
    for each in (once, findings):
        (found,) = [one for one in each if one.severity != "note"]
        assert found.severity == severity and kind in found.kind and found.layer == layer, each
        assert said in found.message and "# planted" in found.code, each


@pytest.mark.parametrize("make, words", [(Plain, "'own', shape (4"), (Rows, "'rows', shape (8")])
def test_a_plain_tensor_as_weights_is_named(make, words):
    (found,) = hookviz.diagnose(make(), torch.randn(16, 4), cross_entropy)
    assert (found.kind, found.severity, found.layer) == ("not registered", "warning", "")
    assert words in found.message and "# planted" in found.code


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # planted: call
        return self.first(x) * mask


class Given(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x, 3)  # planted: call, guard


@pytest.mark.parametrize("make, wanted", [(Masked, "(x, mask)"), (Given, "(input)")])
@pytest.mark.parametrize("form", ["call", "guard"])
def test_wrong_arguments_are_told_by_their_line(make, wanted, form):
    """As a call by the line of the forward that takes others; as a guard by that of the call."""
    model, x = make(), torch.randn(2, 4)
    findings = hookviz.diagnose(model, x) if form == "call" else hookviz.diagnose(model)
    if form == "guard":
        with suppress(TypeError), findings:
            model(x)  # planted: guard
    assert findings[0].kind == "error" and wanted in findings[0].advice
    assert re.search(f"# planted: .*{form}", findings[0].code)


def logarithm(output: torch.Tensor) -> torch.Tensor:
    return F.kl_div(output.log_softmax(1), ONE_HOT, reduction="batchmean")


def log_target(output: torch.Tensor) -> torch.Tensor:
    truth = (ONE_HOT + 1).log_softmax(1)
    return F.kl_div(output.log_softmax(1), truth, reduction="batchmean", log_target=True)


def by_hand(output: torch.Tensor) -> torch.Tensor:
    """Cross entropy, with a mask that is 0 for some classes of each sample."""
    return -(ONE_HOT * output.log_softmax(1)).sum(1).mean()


def masked(output: torch.Tensor) -> torch.Tensor:
    """−Inf in between is a mask, and no fault."""
    return (
        -output.masked_fill(ONE_HOT == 0, -torch.inf).logsumexp(1).mean()
        + output.logsumexp(1).mean()
    )


def logged(output: torch.Tensor) -> torch.Tensor:
    loss = cross_entropy(output)
    assert loss.detach().item() > 0 and not loss.detach().requires_grad
    return loss


class Registered(Plain):
    def __init__(self) -> None:
        super().__init__()
        own = self.own
        del self.own
        self.own = nn.Parameter(own)


class Buffered(Plain):
    def __init__(self) -> None:
        super().__init__()
        own = self.own
        del self.own
        self.register_buffer("own", own)


class Remembering(Without):
    """It keeps what it has computed as a plain attribute."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean = x.mean(0, keepdim=True)
        self.seen = self.first(x - self.mean)
        return self.second(self.seen)


TWINS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "kl_div": (whole, logarithm),
    "kl_div of a logarithm": (whole, log_target),
    "cross entropy by hand": (whole, by_hand),
    "masked with −Inf": (whole, masked),
    "a number for the log": (whole, logged),
    "a parameter": (Registered, cross_entropy),
    "a buffer": (Buffered, cross_entropy),
    "a state": (Remembering, cross_entropy),
}


@pytest.mark.parametrize("name", TWINS)
def test_its_twin_is_well(name):
    make, loss = TWINS[name]
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    model = make()
    for findings in (hookviz.diagnose(model, x, loss), guarded(model, loss, x)):
        told = [each for each in findings if each.severity != "note"]
        assert findings.healthy and not told, findings
    again = guarded(model, loss, x)  # what it keeps is there by now
    assert again.healthy, again


def test_a_step_of_another_network_is_well():
    """The generator gets no gradient while its critic learns; nor does what only answers."""
    made, critic, x = whole(), nn.Linear(4, 1), torch.randn(16, 4)
    with hookviz.diagnose(made) as findings:
        critic(made(x).detach()).sigmoid().log().mean().neg().backward()
    assert findings.healthy, findings
    with hookviz.diagnose(made) as findings, torch.no_grad():
        made(x)
    assert findings.healthy, findings


def test_experts_to_which_nothing_was_sent():
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.experts[0](x[:5]), self.experts[1](x[5:])])

    findings = hookviz.diagnose(Experts(), torch.randn(16, 4), cross_entropy)
    assert findings.healthy and [each.layer for each in findings] == ["experts.2"]


class Modes(nn.Module):
    """Notes which modes are on while it runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = _get_current_dispatch_mode()
        if x.shape[-1] == 5:
            raise ValueError("five classes")
        return x


class Counting(TorchDispatchMode):
    """A user's own mode."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_a_model_runs_without_the_guards_mode():
    """It costs each operation of a small model a third of its time."""
    modes = Modes()
    model = net(modes)
    with hookviz.diagnose(model) as findings:
        output = model(pictures())
        assert modes.seen is None and _get_current_dispatch_mode() is not None
        cross_entropy(output.softmax(1)).backward()
    assert [each.kind for each in findings] == ["loss"]
    assert _get_current_dispatch_mode() is None


def test_a_users_mode_stays_where_it_is():
    modes = Modes()
    model = net(modes)
    with hookviz.diagnose(model) as findings:
        with Counting() as own:
            output = model(pictures())
            assert modes.seen is own and _get_current_dispatch_mode() is own
        cross_entropy(output.softmax(1)).backward()
    assert own.count and [each.kind for each in findings] == ["loss"]
    assert _get_current_dispatch_mode() is None


def test_no_mode_is_left_where_the_model_raises():
    modes = Modes()
    model = net(modes, classes=5)
    with Counting() as own, hookviz.diagnose(model) as findings:
        for _ in range(2):
            with pytest.raises(ValueError, match="five"):
                model(pictures())
            assert _get_current_dispatch_mode() is own
        with pytest.raises(ValueError, match="five"), Counting():
            model(pictures())
    assert not len(findings) and _get_current_dispatch_mode() is None


def test_a_backward_is_heard_until_the_gradient_has_come_to_the_model():
    """What the loss does before is told by its line, in a second call, too."""
    model = net()
    with hookviz.diagnose(model) as findings:
        cross_entropy(model(pictures())).backward()
        output = model(pictures())
        (output - output.detach()).abs().sum().sqrt().backward()
    found = next(each for each in findings if each.severity == "error")
    assert (found.kind, found.operation, found.phase) == ("inf", "sqrt", "backward")
    assert "sqrt().backward()" in Path(found.file).read_text().splitlines()[found.line - 1]


def overwriting(output: torch.Tensor) -> torch.Tensor:
    chances = output.sigmoid()
    loss = chances.log().mean()
    chances.add_(1)
    return -loss


def test_what_the_loss_overwrites_is_named_by_its_line():
    model = net()
    with pytest.raises(RuntimeError), hookviz.diagnose(model) as findings:
        overwriting(model(pictures())).backward()
    for found in (findings[0], hookviz.diagnose(model, pictures(), overwriting)[0]):
        assert (found.kind, found.operation) == ("in place", "add")
        assert "chances.add_(1)" in found.code and "gradient of log (" in found.message


def test_what_returns_its_output_detached_is_named_once():
    model = net()
    own = model[0].forward
    model[0].forward = lambda x: own(x).detach()
    for findings in (
        hookviz.diagnose(model, pictures(), cross_entropy),
        guarded(model, cross_entropy),
    ):
        (found,) = [each for each in findings if each.severity == "warning"]
        assert found.layer == "0" and "own(x).detach()" in found.code


def test_frozen_weights_are_noted():
    model = net()
    model[0].requires_grad_(False)
    (found,) = guarded(model, cross_entropy)
    assert (found.severity, found.layer) == ("note", "0") and "2 of 6 parameters" in found.message


def test_a_buffer_that_grows_is_as_it_was_afterwards():
    model = nn.Sequential(Rounded(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 4))
    hookviz.diagnose(model, pictures(), cross_entropy)
    assert not model[0].most.numel()
    with hookviz.diagnose(model) as findings:  # runs it again, from an empty buffer
        cross_entropy(model(pictures()).sqrt()).backward()
    assert findings[0].operation == "sqrt"
    model[1].weight.data[0, 0, 0, 0] = torch.nan
    model[0].most.resize_(0)
    with hookviz.diagnose(model) as findings:
        cross_entropy(model(pictures())).backward()
    assert (findings[0].kind, findings[0].operation) == ("nan", "")
    assert "1.weight" in findings[0].message


def test_a_failing_block_is_drawn_up_to_its_error():
    model = net(nn.Linear(5, 2))
    twin = deepcopy(model.train())
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        twin(pictures())
    drawn = torch.rand(1)
    torch.manual_seed(0)
    findings = hookviz.diagnose(model)
    with pytest.raises(RuntimeError), findings:
        model(pictures())
    assert torch.equal(torch.rand(1), drawn)  # the block is all that has happened
    for one, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    html = findings._repr_html_()
    (svg,) = re.findall("<svg.*?</svg>", html)
    (failed,) = (each for each in re.findall("<g>.*?</g>", svg) if 'class="failed"' in each)
    assert "7: the forward failed here" in failed
    fine = hookviz.diagnose(model)
    with fine:
        model[:7](pictures())
    assert "<svg" not in fine._repr_html_()


@pytest.mark.parametrize("learns", [True, False])
def test_a_frozen_layer_that_never_runs_is_a_note(learns):
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spare = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(learns)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x)

    findings = hookviz.diagnose(Spare(), torch.randn(16, 4), cross_entropy)
    told = {each.severity for each in findings if each.kind == "unused"}
    assert told == {"warning" if learns else "note"} and findings.healthy is not learns


@pytest.mark.parametrize("mode", [True, False])
def test_a_choice_in_eval_mode_has_no_slope_and_needs_none(mode):
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(nn.functional.one_hot(self.first(x).argmax(1), 8).float())

    findings = hookviz.diagnose(Choosing().train(mode), torch.randn(16, 4), cross_entropy)
    assert [(each.kind, each.severity) for each in findings] == [
        ("no gradient", "warning" if mode else "note")
    ]


def test_a_margin_that_all_answers_keep_is_no_dead_layer():
    """The loss rectifies what the model returns, which has no channels of its own there."""
    model, x = nn.Linear(8, 10), torch.randn(32, 8)
    with torch.no_grad():
        model.weight.mul_(1e-3)

    def margin(output: torch.Tensor) -> torch.Tensor:
        return (nn.functional.relu(output - 2.0) + nn.functional.relu(0.9 - output)).mean()

    assert hookviz.diagnose(model, x, margin).healthy


@pytest.mark.parametrize("module", [False, True])
def test_pairs_within_the_model(module):
    """(N, 1) against (N,) in a loss that the model computes itself."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = nn.Linear(4, 1), nn.MSELoss()

        def forward(self, x: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
            loss = self.loss if module else nn.functional.mse_loss
            return loss(self.net(x), truth)

    given = torch.randn(8, 4), torch.randn(8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = hookviz.diagnose(Own(), given)
    assert found.kind == "loss" and "(N, N)" in found.message


def test_what_a_loss_is_given_holds_nan_and_has_a_line():
    truth = torch.full((16, 4), torch.nan)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output, truth)  # read here

    once = hookviz.diagnose(net(), pictures(), loss)
    for findings in (once, guarded(net(), loss)):
        (found,) = [each for each in findings if each.severity == "error"]
        assert found.kind == "nan" and "beside the model's output" in found.message
        assert found.code.endswith("# read here")


def test_a_model_that_is_called_without_a_graph_has_its_line():
    model = net()
    findings = hookviz.diagnose(model)
    with pytest.raises(RuntimeError), findings:
        with torch.no_grad():  # planted
            output = model(pictures())
        cross_entropy(output).backward()
    found = findings[0]
    assert (found.severity, found.operation) == ("error", "no_grad")
    assert found.code.endswith("# planted")


def test_the_gradient_of_the_truth_is_nobodys():
    """A model computes its loss, of targets whose own gradient is NaN: nobody asks for it."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prepare, self.net = nn.Identity(), nn.Linear(4, 3)

        def forward(self, truth: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            weight = self.prepare(truth).square().sqrt()
            return (self.net(x) * weight).sum()

    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    findings = hookviz.diagnose(Own(), (torch.tensor([[0.0, 1.0, 2.0]]), x), lambda loss: loss)
    assert findings.healthy, findings


def test_a_norm_that_has_hardly_begun_is_no_fault():
    """After two steps its statistics are mostly what they began with: in eval mode all shrinks."""
    torch.manual_seed(0)
    blocks = [
        layer
        for _ in range(24)
        for layer in (nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    ]
    for layer in blocks[::3]:
        nn.init.kaiming_normal_(layer.weight, a=5**0.5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.Linear(800, 4))
    for _ in range(2):
        cross_entropy(model(pictures()))
    for findings in (
        hookviz.diagnose(model.eval(), pictures(), cross_entropy), guarded(model, cross_entropy),
    ):  # fmt: skip
        assert findings.healthy, findings
    told = hookviz.diagnose(model, pictures(), cross_entropy)
    assert any("have seen 2 batches" in each.advice for each in told)


def test_a_sum_that_overflows_is_no_inf():
    """All that the layer returns is finite, and nearly as large as its type holds."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.again, self.last = (
                nn.Linear(4, 32),
                nn.Linear(32, 32),
                nn.Linear(32, 4),
            )
            nn.init.orthogonal_(self.again.weight, 3.6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for _ in range(66):
                x = self.again(x)
            return self.last(x)

    model, x = Recurrent(), torch.randn(16, 4)
    hidden = [model.first(x)]
    for _ in range(66):
        hidden.append(model.again(hidden[-1]))
    assert hidden[-1].isfinite().all() and not hidden[-1].abs().sum().isfinite()
    findings = hookviz.diagnose(model)
    with findings:
        (model(x) * 1e-30).sum().backward()
    assert [each.kind for each in findings if each.severity != "note"] == ["exploding"], findings


def test_a_norm_that_saw_no_batch_knows_no_scale():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(800, 4))
    with torch.no_grad():
        model[0].weight.mul_(1e-2)
    model.eval()
    for findings in (
        hookviz.diagnose(model, pictures(), cross_entropy), guarded(model, cross_entropy),
    ):  # fmt: skip
        assert findings.healthy, findings


@pytest.mark.parametrize("raises", [False, True])
def test_findings_hold_neither_inputs_nor_the_graph(raises):
    model = net(nn.Sigmoid(), nn.Linear(4, 4))
    if raises:
        model[-1].register_forward_pre_hook(lambda module, args: 1 / 0)
    x = pictures().requires_grad_()
    alive = weakref.ref(x)
    with suppress(ZeroDivisionError), hookviz.diagnose(model) as findings:
        model(x).square().mean().backward()
    del x
    gc.collect()
    assert alive() is None
    assert any(each.kind == "error" for each in findings) == raises
