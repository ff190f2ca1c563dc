"""Faults once missed and false alarms from public reports, each with a healthy counterpart."""

import pytest
import torch
from architectures import model_of
from test_correct_code import entropy
from test_faults import faults_of, rows
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz.studies.diagnosis.examination import Examination

X = rows(16, 8)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def faults(findings, kind):
    return [each for each in faults_of(findings) if each.kind == kind]


DECAYS = [
    (torch.optim.SGD, 1000.0, True), (torch.optim.AdamW, 2500.0, True),
    (torch.optim.SGD, 1e-2, False), (torch.optim.AdamW, 0.5, False),
    (torch.optim.Adam, 1000.0, False),  # Adam adds the decay to the gradient, not to the weights
]  # fmt: skip


@pytest.mark.parametrize("optimizer, decay, erases", DECAYS)
def test_a_weight_decay_that_erases_the_weights_is_found(optimizer, decay, erases):
    model = network()
    decaying = optimizer(model.parameters(), 1e-3, weight_decay=decay)
    found = faults(hookviz.diagnose(model, X, entropy, optimizer=decaying), "optimizer")
    assert len(found) == erases and all("erases" in each.message for each in found)


def network_with_tiny_kernels(count):
    """Return a network trained on inputs from 0 to 1 with some kernels close to 0."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 36, 4),
    )  # fmt: skip
    for _ in range(150):
        model(pictures())
    with torch.no_grad():  # after long training some weights decay to almost zero
        model[0].weight[:count] *= 1e-5
        model[1].running_mean[:count] *= 1e-5
    return model.eval()


def pictures():
    return torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [0, 6, 10, 13])
def test_a_wrong_input_scale_is_found_although_some_kernels_are_tiny(count):
    model = network_with_tiny_kernels(count)
    findings = hookviz.diagnose(model, pictures(), entropy)
    assert not faults(findings, "input scale"), findings
    for factor in (255, 1 / 255):
        found = faults(hookviz.diagnose(model, pictures() * factor, entropy), "input scale")
        assert found, factor


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def residual_network(bias):
    torch.manual_seed(0)
    first = nn.Conv2d(3, 16, 3)
    nn.init.constant_(first.bias, bias)
    convolution = lambda: nn.Conv2d(16, 16, 3, padding=1, bias=False)  # noqa: E731
    return nn.Sequential(first, nn.ReLU(), *[Residual(convolution()) for _ in range(3)])


def test_layers_behind_a_dead_one_are_not_reported_across_sums():
    findings = hookviz.diagnose(residual_network(-100.0), pictures())
    assert [(each.kind, each.layer) for each in faults_of(findings)] == [("dead", "1")]
    assert hookviz.diagnose(residual_network(0.0), pictures()).healthy


def test_a_dead_sum_is_reported_beside_the_dead_one_of_its_branches():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), Residual(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()), nn.ReLU()
    )
    for layer in (model[0], model[1][0]):
        nn.init.constant_(layer.bias, -100.0)
    nn.init.normal_(model[1][0].weight, std=0.01)
    found = faults(hookviz.diagnose(model, pictures()), "dead")
    assert [each.layers for each in found] == [["1.1", "2"]]


@pytest.mark.parametrize(("bias", "healthy"), [(-60.0, False), (0.0, True)])
def test_a_dead_relu_of_the_models_own_forward_is_blamed_on_the_layers_before_it(bias, healthy):
    torch.manual_seed(0)
    forward = lambda m, x: m.out(F.relu(m.one(x) + m.two(x))).mean((2, 3))  # noqa: E731
    model = model_of(
        forward, one=nn.Conv2d(3, 8, 3), two=nn.Conv2d(3, 8, 3), out=nn.Conv2d(8, 3, 1)
    )
    nn.init.constant_(model.one.bias, bias)
    findings = hookviz.diagnose(model, pictures())
    assert findings.healthy == healthy
    for found in faults(findings, "dead"):
        assert "Initialise the layers before it again" in found.advice


def test_the_advice_on_tensors_that_do_not_fit_is_about_their_line():
    forward = lambda m, x: torch.cat([m.one(x), m.two(x)], 1)  # noqa: E731
    model = model_of(forward, one=nn.Conv2d(3, 8, 3), two=nn.Conv2d(3, 8, 3, stride=2))
    (found,) = faults(hookviz.diagnose(model, pictures()), "shape")
    assert found.operation == "cat" and found.advice.startswith("Change this line")


def of_complex_numbers(shift):
    """Return a complex convolution of real numbers, before a shift that may silence it."""
    return model_of(
        lambda m, x: (m.conv(x.to(torch.complex64)).abs() - shift).relu().mean((2, 3)),
        conv=nn.Conv2d(3, 8, 3, dtype=torch.complex64),
    )


def test_a_complex_convolution_of_real_numbers_is_healthy():
    """Torch computes it by three real ones, one of which convolves an imaginary part of zero."""
    assert hookviz.diagnose(of_complex_numbers(0.0), pictures()).healthy
    found = faults(hookviz.diagnose(of_complex_numbers(100.0), pictures()), "dead")
    assert [each.operation for each in found] == ["relu"]


def test_a_gradient_whose_squares_overflow_has_a_finite_norm(monkeypatch):
    """Otherwise the model would run once more, to look for an operation that made Inf."""
    runs, begin = [], Examination.begin
    monkeypatch.setattr(Examination, "begin", lambda *given: (runs.append(1), begin(*given)))
    model = network()
    x = X * 1e15  # the squares of its gradient by the weights overflow, those of no output do
    findings = hookviz.diagnose(model, x, lambda output: output.mean() * 1e6)
    assert len(runs) == 1 and not faults(findings, "inf")


@pytest.mark.parametrize("seen, severity", [(0, "note"), (100, "warning")])
def test_a_constant_output_behind_norms_without_a_batch_is_a_note(seen, severity):
    """They do not normalize yet: so little is left at the end that the last bias rounds it away."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        for _ in range(24)
    ]
    model = nn.Sequential(nn.Conv2d(3, 16, 1), *blocks, nn.Conv2d(16, 16, 1)).eval()
    for block in blocks:
        block[1].num_batches_tracked += seen
    findings = hookviz.diagnose(model, pictures())
    (found,) = (each for each in findings if each.kind == "constant")
    assert found.severity == severity and findings.healthy == (not seen)
    assert ("seen no batch" in found.advice) == (not seen)


def applied(function):
    """Return a linear layer and a function of its output."""
    return model_of(lambda m, x: function(m.linear(x)), linear=nn.Linear(8, 4))


def squared_error(output):
    return F.mse_loss(output, torch.zeros(16, 4))


def guarded(model, loss):
    """Return the findings of a guard around one step."""
    with hookviz.diagnose(model) as findings:
        loss(model(X)).backward()
    return findings


CLASS_0 = torch.tensor([True, False, False, False])
CONSTANTS = {
    "added": lambda h: h + torch.inf,
    "subtracted": lambda h: h - torch.inf,
    "an added tensor": lambda h: h + torch.tensor(torch.inf),
    "a subtracted tensor": lambda h: h - torch.full((4,), torch.inf),
    "a mask": lambda h: h.masked_fill(CLASS_0, -torch.inf),
    "NaN": lambda h: h * torch.tensor(torch.nan),
    "filled with NaN": lambda h: h.clone().fill_(torch.nan),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_nan_and_inf_of_a_constant_in_output_and_loss_are_errors(name):
    model = applied(CONSTANTS[name])
    for findings in (hookviz.diagnose(model, X, squared_error), guarded(model, squared_error)):
        (found,) = findings
        assert (found.severity, found.phase) == ("error", "forward")
        assert found.kind == ("nan" if "NaN" in name else "inf")
        assert "constant in the code" in found.message or "the code writes" in found.message
        assert found.file == __file__
    assert hookviz.diagnose(model, X).healthy == (name == "a mask")


def test_infinite_targets_are_an_error():
    model, targets = network(), torch.full((16, 4), torch.inf)
    loss = lambda output: F.mse_loss(output, targets)  # noqa: E731
    for findings in (hookviz.diagnose(model, X, loss), guarded(model, loss)):
        assert "beside the model's output holds Inf" in findings[0].message


def test_masked_logits_with_a_finite_loss_are_healthy():
    model = applied(CONSTANTS["a mask"])
    loss = lambda output: F.cross_entropy(output, torch.ones(16).long())  # noqa: E731
    assert hookviz.diagnose(model, X, loss).healthy and guarded(model, loss).healthy


def test_probabilities_in_the_second_divergence_of_a_line_are_found():
    def loss(output):
        given = (output.log_softmax(1), output.softmax(1))
        return sum(F.kl_div(each, torch.full((16, 4), 0.25), reduction="sum") for each in given)

    for findings in (hookviz.diagnose(network(), X, loss), guarded(network(), loss)):
        (found,) = faults(findings, "loss")
        assert "gets the output of softmax" in found.message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", [F.kl_div, F.nll_loss])
def test_a_loss_of_nothing_is_not_said_to_get_numbers_above_0(loss):
    empty = torch.zeros(0, 4) if loss is F.kl_div else torch.zeros(0).long()
    findings = hookviz.diagnose(network(), X, lambda output: loss(output[:0], empty))
    assert [each.kind for each in findings] == ["nan"]
