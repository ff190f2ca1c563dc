"""`diagnose` names classic faults of training code by layer, line and remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz

Y = torch.tensor([0, 1, 2, 3])


def pictures(count=4, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, 12, 12, generator=generator) * scale


class Net(nn.Module):
    """A convolution, something between, and a head."""

    def __init__(self, between=lambda x: x, last=lambda x: x, classes=5):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, classes)
        self.between, self.last = between, last

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        return self.last(self.head(self.between(x).mean((2, 3))))


@dataclass(frozen=True)
class Planted:
    """A planted fault and the finding that `diagnose` must report."""

    build: Callable[[], tuple[Any, ...]]  # model, input and an optional target
    kind: str
    layer: str | None = None
    message: str = ""
    advice: str = ""
    severity: str = "warning"
    line: bool = False  # whether the finding points at a line that ends in "# planted"


def cross_entropy(output):
    return F.cross_entropy(output, Y)


def mixed(training, which):
    model = Net(nn.Dropout(0.2)).train(training)
    getattr(model, which).train(not training)
    return model, pictures()


def changed(change, **options):
    model = Net(**options)
    with torch.no_grad():
        change(model)
    return model, pictures(), cross_entropy


class Unfolded(nn.Module):
    """A recurrence written as a loop, whose weights make the state grow."""

    act = staticmethod(lambda state: state)

    def __init__(self, scale):
        super().__init__()
        torch.manual_seed(0)
        self.i, self.w, self.out = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 5)
        with torch.no_grad():
            self.w.weight.copy_(torch.eye(8) * scale)

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.act(self.i(step) + self.w(state))
        return self.out(state)


class Rnn(nn.Module):
    def __init__(self, scale):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.out = nn.RNN(8, 8, nonlinearity="relu", batch_first=True), nn.Linear(8, 5)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(torch.eye(8) * scale)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


class Listed(nn.Module):
    """Layers in a plain Python list, which torch does not register."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8), nn.Linear(8, 8)]
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()  # planted
        return self.head(x)


def deep(count, act, scale):
    torch.manual_seed(0)
    layers = [each for _ in range(count) for each in (nn.Linear(16, 16), act())]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def overwritten(x):
    x = x.sigmoid()
    x += 1  # planted
    return x


def block():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())


def vectors(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


softmax = nn.Softmax(1)

FAULTS = {
    "an in-place write": Planted(
        lambda: (Net(overwritten), pictures(), cross_entropy),
        "in place", "", "gradient of sigmoid", "x = x + 1", "error", line=True,
    ),
    "a dropout in train in an eval model": Planted(
        lambda: mixed(False, "between"), "dropout", "between", "in training mode", "model.eval()"
    ),
    "a BatchNorm in eval in training": Planted(
        lambda: mixed(True, "norm"), "batchnorm", "norm", "in eval mode", "model.train()", "note"
    ),
    "a dropout in eval in training": Planted(
        lambda: mixed(True, "between"), "dropout", "between", "in eval", "model.train()", "note"
    ),
    "softmax twice": Planted(
        lambda: (Net(last=lambda x: softmax(x).softmax(-1)), pictures()),  # planted
        "loss", "", "output of softmax of 'the model' (test_named.py", "remove this", line=True,
    ),
    "(N, 1) less (N,)": Planted(
        lambda: (Net(classes=1), pictures(), lambda out: (out - torch.ones(4)).square().mean()),
        "loss", "", "(N, N)", "squeeze(1)",
    ),
    "uint8": Planted(
        lambda: (Net(), torch.zeros(2, 3, 12, 12, dtype=torch.uint8)),
        "error", "conv", "", ".float()", "error",
    ),
    "labels off by one": Planted(
        lambda: (Net(), pictures(), lambda out: F.cross_entropy(out, Y + 2)),
        "error", None, "out of bounds", "0 to 4", "error",
    ),
    ".data": Planted(
        lambda: (Net(lambda x: x.abs().data), pictures()),
        "no gradient", None, "detached in the model at test_named.py:", ".data",
    ),
    "tolist": Planted(
        lambda: (Net(lambda x: torch.tensor(x.tolist())), pictures()),
        "no gradient", None, "new tensor in the model at test_named.py:", "tolist()",
    ),
    "item": Planted(
        lambda: (Net(lambda x: torch.ones(len(x), 8, 1, 1) * x.sum().item()), pictures()),
        "no gradient", None, "as a number in the model at test_named.py:", "detach()",
    ),
    "all weights zero": Planted(
        lambda: changed(lambda model: [each.zero_() for each in model.parameters()]),
        "zero weights", "conv", "zero", "kaiming_normal_",
    ),
    "a bias far below zero": Planted(
        lambda: changed(lambda model: model.norm.bias.fill_(-100)), "dead", "", "8 of 8", "bias"
    ),
    "nn.RNN with relu": Planted(
        lambda: (Rnn(2.0), vectors(4, 72, 8)), "exploding", "rnn", "The activation is 2", "tanh"
    ),
    "forty sigmoids": Planted(
        lambda: (deep(40, nn.Sigmoid, 1.0), vectors(8, 16)),
        "vanishing", None, "no single layer is the cause", "use ReLU",
    ),
    "numbers that grow to Inf": Planted(
        lambda: (deep(100, nn.Identity, 8.0), vectors(8, 16)),
        "exploding", None, "no single layer is the cause", "normalization", "error",
    ),
    "layers in a list": Planted(
        lambda: (Listed(), vectors(4, 8)), "not registered", "", "", "nn.ModuleList", line=True
    ),
    "a loss that is clamped": Planted(
        lambda: (Net(), pictures(), lambda out: (cross_entropy(out) * 0)),
        "no gradient", "", "all 4 samples", "clamp",
    ),
    "an input in a list": Planted(
        lambda: (Net(), [pictures()]), "error", None, "", "not model([x])", "error"
    ),
    "labels with the input": Planted(
        lambda: (Net(), (pictures(), Y)), "error", None, "", "lambda output", "error"
    ),
}  # fmt: skip


def named(findings, fault):
    """Return the finding that names the fault; it must be the first of its severity."""
    found = [each for each in findings if each.kind == fault.kind]
    assert found, repr(findings)
    first = found[0]
    assert first.severity == fault.severity, repr(findings)
    assert fault.layer is None or first.layer == fault.layer, repr(findings)
    assert fault.message in first.message and fault.advice in first.advice, repr(findings)
    assert not fault.line or "# planted" in first.code, repr(findings)
    return first


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:std")
@pytest.mark.parametrize("name", FAULTS)
def test_diagnose_names_the_planted_fault(name):
    fault = FAULTS[name]
    findings = hookviz.diagnose(*fault.build())
    named(findings, fault)
    assert findings.healthy is (fault.severity == "note")
    assert len(repr(findings).splitlines()) <= 25 + 8 * (len(findings) - 1)
    for each in findings:
        assert "line of your code" not in each.advice or each.line


@pytest.mark.parametrize("name", ["nn.RNN with relu", "numbers that grow to Inf", "softmax twice"])
def test_one_cause_gives_one_finding(name):
    findings = hookviz.diagnose(*FAULTS[name].build())
    told = [each for each in findings if each.severity != "note"]
    assert len({(each.kind, each.phase) for each in told}) == len(told) <= 2
    assert len(repr(findings).splitlines()) <= 25


def test_a_finding_lists_all_layers_of_its_cause():
    (found,) = [
        each
        for each in hookviz.diagnose(*FAULTS["forty sigmoids"].build())
        if each.kind == "vanishing"
    ]
    assert len(found.layers) >= 30 and found.layer == found.layers[0]
    assert found.record()["layers"] == found.layers


def labels_out_of_range(model, x):
    F.cross_entropy(model(x), Y + 9).backward()  # planted


def other_error(model, x):
    model(x)
    raise KeyError("batch")  # planted


def not_one_number(model, x):
    model(x).backward()  # planted


def write_in_place(model, x):
    model.between = overwritten
    cross_entropy(model(x)).backward()


def before_the_model(model, x):
    raise OSError("no such file")  # planted


RAISED = {
    labels_out_of_range: ("error", "0 to 4"),
    other_error: ("error", "traceback"),
    not_one_number: ("error", "loss.mean()"),
    write_in_place: ("in place", "x = x + 1"),
    before_the_model: ("error", "traceback"),
}


@pytest.mark.parametrize("step", RAISED, ids=lambda step: step.__name__)
def test_an_exception_in_the_block_becomes_a_finding(step):
    kind, advice = RAISED[step]
    model = Net()
    with (
        pytest.raises((RuntimeError, IndexError, KeyError, OSError)),
        hookviz.diagnose(model) as found,
    ):
        step(model, pictures())
    assert not found.healthy
    assert (found[0].kind, found[0].severity) == (kind, "error")
    assert advice in found[0].advice and "# planted" in found[0].code


def test_an_empty_batch_is_refused_or_becomes_a_finding():
    model = Net().eval()
    with pytest.raises(ValueError, match="is empty: give a batch"):
        hookviz.diagnose(model, pictures(0))
    with hookviz.diagnose(model) as findings:
        model(pictures(0))
    assert not findings.healthy and findings[0].kind == "empty"


@pytest.mark.parametrize("target", [Y, nn.CrossEntropyLoss(), (pictures(), Y)])
def test_invalid_targets_are_refused_with_a_remedy(target):
    with pytest.raises(ValueError, match=r"target= is .*lambda output: "):
        hookviz.diagnose(Net(), pictures(), target)
