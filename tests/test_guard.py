"""A guard, ``with hookviz.diagnose(model)``, and a call with a loss find the same faults."""

import gc
import re
import warnings
import weakref
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from digits import Rounded
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import hookviz

LABELS = torch.arange(16) % 4
ONE_HOT = F.one_hot(LABELS, 4).float()


def rows(*shape):
    return torch.randn(shape or (16, 4), generator=torch.Generator().manual_seed(0))


def pictures():
    return rows(16, 3, 12, 12)


def cross_entropy(output):
    return F.cross_entropy(output, LABELS)


def net(*last, classes=4):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(8, classes), *last,
    )  # fmt: skip


class Between(nn.Module):
    """Two layers with a function between them."""

    def __init__(self, change=torch.relu):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.change = nn.Linear(4, 8), nn.Linear(8, 4), change

    def forward(self, x):
        return self.second(self.change(self.first(x)))


class Around(Between):
    """A residual connection around a layer and a function."""

    def __init__(self, change=torch.relu):
        super().__init__(change)
        self.branch = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        return self.second(x + self.change(self.branch(x).relu()))


def guarded(model, loss, *given):
    """Return the findings of a guarded step, which may raise."""
    findings = hookviz.diagnose(model)
    with suppress(RuntimeError, ValueError, TypeError), findings:
        loss(model(*given)).backward()
    return findings


def both(make, loss, *given):
    """Yield the findings of a call, then of a guarded step."""
    yield hookviz.diagnose(make(), given if len(given) > 1 else given[0], loss)
    yield guarded(make(), loss, *given)


def kinds_and_layers(findings):
    return [(each.kind, each.layer) for each in findings if each.severity != "note"]


class Column(nn.Module):
    def forward(self, x):
        return x[:, 1:2].squeeze(1)


def with_logits(output):
    truth = ONE_HOT if output.ndim > 1 else ONE_HOT[:, 0]
    return F.binary_cross_entropy_with_logits(output, truth)


WRONG_LOSSES = {
    "softmax": (lambda: net(nn.Softmax(1)), cross_entropy, "log_softmax"),
    "sigmoid": (lambda: net(nn.Sigmoid()), with_logits, "binary_cross_entropy_with_logits"),
    "softmax, of which one column is taken": (
        lambda: net(nn.Softmax(1), Column()), with_logits, "binary_cross_entropy_with_logits",
    ),
    "sigmoid in the loss": (net, lambda out: cross_entropy(out.sigmoid()), "log_softmax"),
    "(N, 1)": (lambda: net(classes=1), lambda out: F.mse_loss(out, LABELS.float()), "mse_loss"),
    "softmax over the batch": (
        net, lambda out: F.nll_loss(out.log_softmax(0), LABELS), "log_softmax",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", WRONG_LOSSES)
def test_a_guard_finds_wrong_inputs_of_a_loss(name):
    make, loss, operation = WRONG_LOSSES[name]
    (found,) = guarded(make(), loss, pictures())
    assert (found.kind, found.severity, found.operation) == ("loss", "warning", operation)
    assert "test_guard.py" in found.at


def deep(scale, between):
    torch.manual_seed(0)
    layers = [each for _ in range(16) for each in (nn.Linear(4, 4), between())]
    for each in layers[::2]:
        nn.init.orthogonal_(each.weight, gain=scale)
    return nn.Sequential(*layers, nn.Linear(4, 4))


def changed(model, change):
    with torch.no_grad():
        change(model)
    return model


class Recurrent(nn.Module):
    """A recurrence that starts at zero and doubles its state in each step."""

    def __init__(self):
        super().__init__()
        self.again, self.step = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        self.again.weight.data = 2 * torch.eye(4)

    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(40):
            state = self.again(state) + self.step(x)
        return self.head(state)


class GrowingRnn(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.out = nn.RNN(4, 8, nonlinearity="relu", batch_first=True), nn.Linear(8, 4)
        self.rnn.weight_hh_l0.data = 2 * torch.eye(8)

    def forward(self, x):
        return self.out(self.rnn(x[:, None].expand(-1, 48, -1))[0][:, -1])


FAULTY = {
    "forty sigmoids": (lambda: deep(1.0, nn.Sigmoid), "vanishing", ""),
    "grows from layer to layer": (lambda: deep(6.0, nn.Identity), "exploding", ""),
    "grows in a layer by hand": (Recurrent, "exploding", "again"),
    "grows within nn.RNN": (GrowingRnn, "exploding", "rnn"),
    "channels alike": (
        lambda: changed(Between(), lambda m: m.first.weight.fill_(0.1)), "same channels", "first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_vanishing_and_exploding_gradients_and_equal_channels_are_found(name):
    make, kind, layer = FAULTY[name]
    for findings in both(make, cross_entropy, rows()):
        ((found, where),) = kinds_and_layers(findings)
        assert found == kind and layer in ("", where), findings


def test_an_error_of_the_loss_is_reported_with_the_nan_that_caused_it():
    """Binary cross entropy raises on NaN, which comes from a weight."""
    loss = lambda output: F.binary_cross_entropy(output, ONE_HOT)  # noqa: E731
    broken = lambda: changed(net(nn.Sigmoid()), lambda m: m[-2].weight.fill_(torch.nan))  # noqa: E731
    for findings in both(broken, loss, pictures()):
        assert {("nan", "6"), ("error", "")} <= set(kinds_and_layers(findings)), findings


def perceptron(width, bias):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))
    nn.init.constant_(model[0].bias, bias)
    return model


def test_a_dead_layer_of_a_perceptron_is_found_with_16_inputs():
    """With fewer inputs the values of a channel prove nothing."""
    for bias, dead in ((-100.0, [("dead", "1")]), (0.0, [])):  # 0.0 is the advised bias
        for findings in both(lambda bias=bias: perceptron(32, bias), cross_entropy, rows()):
            assert kinds_and_layers(findings) == dead, findings
    assert hookviz.diagnose(perceptron(32, -100.0), rows(4, 4)).healthy


WITHOUT_SLOPE = {
    "times 0": lambda x: x * 0,
    "round": lambda x: x.round(),
    "a clamp": lambda x: x.clamp(1e3, 1e4),
}


@pytest.mark.parametrize("change", WITHOUT_SLOPE)
@pytest.mark.parametrize("make", [Around, Between])
def test_only_the_layer_before_an_operation_without_gradient_is_named(make, change):
    """In a residual branch the other layers still get a gradient through the shortcut."""
    for findings in both(lambda: make(WITHOUT_SLOPE[change]), cross_entropy, rows()):
        assert kinds_and_layers(findings) == [
            ("no gradient", "branch" if make is Around else "first")
        ]
        assert "test_guard.py" in findings[0].at


class WithTemperature(nn.Module):
    """Scores with a learned temperature that has reached its limit."""

    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(9.0))

    def forward(self, x):
        return self.scale.exp().clamp(max=100.0) * F.normalize(self.body(x), dim=1) / 50


class TwoOutputs(Around):
    def forward(self, x):
        return self.second(self.first(x)), self.branch(self.first(x))


def logarithm(output):
    return F.kl_div(output.log_softmax(1), ONE_HOT, reduction="batchmean")


def handwritten_cross_entropy(output):
    """Compute cross entropy with a mask that is 0 for most classes."""
    return -(ONE_HOT * output.log_softmax(1)).sum(1).mean()


def masked(output):
    """Mask scores with −Inf before a logsumexp."""
    hidden = output.masked_fill(ONE_HOT == 0, -torch.inf)
    return output.logsumexp(1).mean() - hidden.logsumexp(1).mean()


def loss_that_is_logged(output):
    loss = cross_entropy(output)
    assert loss.detach().item() > 0 and not loss.detach().requires_grad
    return loss


class Remembering(Between):
    """A model that stores computed tensors as plain attributes."""

    def forward(self, x):
        with torch.no_grad():
            self.mean = x.mean(0, keepdim=True)
        self.seen = self.first(x - self.mean)
        return self.second(self.seen)


HEALTHY = {
    "a branch without weight yet": (
        lambda: Around(torch.tanh), lambda out: cross_entropy(out) + 0 * out.square().mean(),
    ),
    "a part of the loss without weight yet": (
        TwoOutputs, lambda out: cross_entropy(out[0]) + 0 * out[1].sum(),
    ),
    "a limit of one number": (WithTemperature, cross_entropy),
    "a slope that is passed on": (
        lambda: Between(lambda x: x + (x.round() - x).detach()), cross_entropy,
    ),
    "a mask": (lambda: Between(lambda x: x * (x > 0)), cross_entropy),
    "kl_div": (Between, logarithm),
    "cross entropy by hand": (Between, handwritten_cross_entropy),
    "masked with −Inf": (Between, masked),
    "a number for the log": (Between, loss_that_is_logged),
    "a state": (Remembering, cross_entropy),
    "a margin that all answers keep": (
        Between, lambda out: F.relu(out - out.detach() - 1.0).mean(),
    ),
    "a margin beyond which no channel is": (
        lambda: changed(Between(), lambda m: m.second.weight.mul_(1e-3)),
        lambda out: (F.relu(out - 2.0) + F.relu(0.9 - out)).mean(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_correct_code_is_healthy(name):
    make, loss = HEALTHY[name]
    model = make()
    for findings in (*both(lambda: model, loss, rows()), guarded(model, loss, rows())):
        assert findings.healthy, findings


def test_a_branch_that_is_dropped_at_random_is_healthy():
    for seed in range(4):
        model = Around(lambda y: y * float(torch.rand(()) < 0.5))
        torch.manual_seed(seed)
        assert hookviz.diagnose(model, rows(), cross_entropy).healthy


@pytest.mark.parametrize("training", [True, False])
def test_a_constant_input_is_reported_instead_of_its_consequences(training):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4, bias=False), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 4),
    ).train(training)  # fmt: skip
    for value, target in ((0.0, None), (1.0, cross_entropy)):
        findings = hookviz.diagnose(model, torch.full((16, 3, 12, 12), value), target)
        (found,) = [each for each in findings if each.kind != "training mode"]
        assert found.kind == "input scale" and f"are {value:.0f}: every" in found.message
        assert found.severity == ("note" if target is None else "warning")


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(192, 8), nn.Linear(8, 4)

    def forward(self, words, mask):
        return self.head((self.words(words) * mask[..., None]).sum(1))


def test_a_constant_mask_input_beside_words_is_healthy():
    given = torch.arange(192).view(16, 12), torch.ones(16, 12)
    assert hookviz.diagnose(Words(), given, cross_entropy).healthy


def test_an_error_is_located_although_an_earlier_call_made_nan():
    model = Between(torch.log)
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        model(rows())
        model(rows(16, 5))
    found = next(each for each in findings if each.kind == "shape")
    assert found.layer == "first" and "takes 4 features" in found.message


def test_an_optimizer_step_before_a_backward_is_found():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        first, second = cross_entropy(model(pictures())), cross_entropy(model(pictures()))
        first.backward()
        optimizer.step()
        second.backward()
    assert findings[0].kind == "in place" and "optimizer.step() after" in findings[0].advice


def trained_norm_network():
    """Return a network whose BatchNorm has seen enough batches."""
    model = net()
    for _ in range(30):
        model(pictures())
    return model


@pytest.mark.parametrize("training", [False, True])
def test_an_input_on_another_scale_than_in_training_is_found(training):
    make = lambda: trained_norm_network().train(training)  # noqa: E731
    assert guarded(make(), cross_entropy, pictures()).healthy
    for findings in both(make, cross_entropy, pictures() * 255):
        assert kinds_and_layers(findings) == [("input scale", "1")]
    assert guarded(
        net(), cross_entropy, pictures() * 255
    ).healthy  # its BatchNorm has seen too few batches to judge


def test_faults_of_the_input_and_of_the_loss_are_each_reported_once():
    findings = guarded(
        trained_norm_network(), lambda out: cross_entropy(out.softmax(1)), pictures() * 255
    )
    assert sorted(kind for kind, _ in kinds_and_layers(findings)) == ["input scale", "loss"]


class WithoutGraph(Between):
    """A layer that is wrongly called under ``torch.no_grad()``."""

    def forward(self, x):
        with torch.no_grad():  # planted
            x = self.first(x)
        return self.second(x)


class Frozen(Between):
    @torch.no_grad()  # planted
    def forward(self, x):
        return self.second(self.first(x))


class Plain(nn.Module):
    """Weights that are neither parameters nor buffers, and so never learn."""

    def __init__(self):
        super().__init__()
        self.first, self.own, self.rows = nn.Linear(4, 8), torch.randn(4, 8), [torch.randn(8, 4)]

    def forward(self, x):
        return F.linear(self.first(x), self.own, torch.zeros(4))  # planted


class Rows(Plain):
    def forward(self, x):
        return self.first(x) @ self.rows[0]  # planted


class Learning(Plain):
    def __init__(self):
        super().__init__()
        self.own.requires_grad_()


@pytest.mark.parametrize(
    "make, words", [(Plain, "'own', shape (4"), (Rows, "'rows', shape (8"), (Learning, "'own'")]
)
def test_weights_that_are_plain_tensors_are_found(make, words):
    (found,) = hookviz.diagnose(make(), rows(), cross_entropy)
    assert (found.kind, found.severity, found.layer) == ("not registered", "warning", "")
    assert words in found.message and "# planted" in found.code
    asking = rows().requires_grad_()  # an input that requires a gradient is not a weight
    assert hookviz.diagnose(nn.Linear(4, 4), asking, cross_entropy).healthy


def no_label(output):
    return F.cross_entropy(output, LABELS * 0 - 100)  # planted


def over_zero(output):
    return cross_entropy(output) / 0  # planted


def no_logarithm(output):
    return F.kl_div(output.softmax(1), ONE_HOT, reduction="batchmean")  # planted


def logits(output):
    return F.kl_div(output, ONE_HOT, reduction="batchmean")  # planted


def detached_loss(output):
    return cross_entropy(output).detach().requires_grad_()  # planted


def detached(output):
    return cross_entropy(output.detach())  # planted


def made_again(output):
    return torch.tensor(cross_entropy(output).item(), requires_grad=True)  # planted


def times_zero(output):
    return output.sum() * 0 + cross_entropy(output).item()  # planted


def root_of_zero(output):
    return (output - output.detach()).pow(2).sum().sqrt()  # planted


def log_of_zero(output):
    return -(ONE_HOT * (output.softmax(1) * 0).log()).sum()  # planted


def one_of_one(output):
    return F.cross_entropy(output[:, :1], LABELS * 0)  # planted


def nan_targets(output):
    return F.mse_loss(output, ONE_HOT * torch.nan)  # planted


STEPS = {
    "a loss cut off": (
        Between, detached_loss, "error", "no gradient", "", "cut off from the model",
    ),
    "a loss made again": (Between, made_again, "error", "no gradient", "", "cut off from the"),
    "a detached loss": (Between, detached, "error", "error", "", ""),
    "a loss times zero": (Between, times_zero, "warning", "no gradient", "", "all 16 samples"),
    "kl_div of probabilities": (Between, no_logarithm, "warning", "loss", "", "Kl_div"),
    "kl_div of logits": (Between, logits, "warning", "loss", "", "above 0"),
    "no label": (Between, no_label, "error", "nan", "", "ignore_index"),
    "divided by 0": (Between, over_zero, "error", "inf", "", "a divisor other than 0"),
    "one class": (Between, one_of_one, "warning", "loss", "", "over one class"),
    "no_grad": (
        WithoutGraph, cross_entropy, "warning", "no gradient", "first", "torch.no_grad() in",
    ),
    "no_grad on all": (Frozen, cross_entropy, "error", "error", "", ""),
    "a root of zero": (Between, root_of_zero, "error", "inf", "", "slope of sqrt"),
    "a log of zero": (Between, log_of_zero, "error", "", "", ""),
    "NaN in the truth": (Between, nan_targets, "error", "nan", "", "made NaN"),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_names_the_line_of_its_fault(name):
    make, loss, severity, kind, layer, said = STEPS[name]
    for findings in both(make, loss, rows()):
        (found,) = [each for each in findings if each.severity != "note"]
        assert found.severity == severity and kind in found.kind and found.layer == layer
        assert said in found.message and "# planted" in found.code, findings


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x, mask):  # planted: call
        return self.first(x) * mask


class WrongCall(Masked):
    def forward(self, x):
        return self.first(x, 3)  # planted: call, guard


@pytest.mark.parametrize("make, wanted", [(Masked, "(x, mask)"), (WrongCall, "(input)")])
def test_wrong_arguments_are_reported_with_their_line(make, wanted):
    """A call names the line of the forward's signature, a guard the line of the user's call."""
    model, x = make(), rows()
    guard = hookviz.diagnose(model)
    with suppress(TypeError), guard:
        model(x)  # planted: guard
    for form, findings in (("call", hookviz.diagnose(model, x)), ("guard", guard)):
        assert findings[0].kind == "error" and wanted in findings[0].advice
        assert re.search(f"# planted: .*{form}", findings[0].code)


def test_a_step_that_trains_another_network_is_healthy():
    """Neither a generator during its critic's step nor a model in inference gets gradients."""
    made, critic = Between(), nn.Linear(4, 1)
    with hookviz.diagnose(made) as findings:
        critic(made(rows()).detach()).sigmoid().log().mean().neg().backward()
    assert findings.healthy, findings
    with hookviz.diagnose(made) as findings, torch.no_grad():
        made(rows())
    assert findings.healthy, findings


def test_an_expert_without_samples_is_a_note():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return torch.cat([self.experts[0](x[:5]), self.experts[1](x[5:])])

    findings = hookviz.diagnose(Experts(), rows(), cross_entropy)
    assert findings.healthy and [each.layer for each in findings] == ["experts.2"]


class Modes(nn.Module):
    """A layer that records the active dispatch mode."""

    def forward(self, x):
        self.seen = _get_current_dispatch_mode()
        if x.shape[-1] == 5:
            raise ValueError("five classes")
        return x


class Counting(TorchDispatchMode):
    """A dispatch mode of the user."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("counted", [False, True])
def test_a_model_runs_only_in_the_users_dispatch_modes(counted):
    """The guard's mode is off within the model: it would slow a small model by a third."""
    modes = Modes()
    model, own = net(modes), Counting()
    with hookviz.diagnose(model) as findings:
        with own if counted else nullcontext():
            output = model(pictures())
            assert modes.seen is (own if counted else None)
            assert _get_current_dispatch_mode() is not None
        cross_entropy(output.softmax(1)).backward()
    assert bool(own.count) is counted and [each.kind for each in findings] == ["loss"]
    assert _get_current_dispatch_mode() is None


def test_no_dispatch_mode_is_left_after_an_error():
    model = net(Modes(), classes=5)
    with Counting() as own, hookviz.diagnose(model):
        for _ in range(2):
            with pytest.raises(ValueError, match="five"):
                model(pictures())
            assert _get_current_dispatch_mode() is own
        with pytest.raises(ValueError, match="five"), Counting():
            model(pictures())
    assert _get_current_dispatch_mode() is None


def test_a_fault_in_a_second_backward_names_its_line():
    model = net()
    with hookviz.diagnose(model) as findings:
        cross_entropy(model(pictures())).backward()
        output = model(pictures())
        (output - output.detach()).abs().sum().sqrt().backward()
    found = next(each for each in findings if each.severity == "error")
    assert (found.kind, found.operation, found.phase) == ("inf", "sqrt", "backward")
    assert "sqrt().backward()" in Path(found.file).read_text().splitlines()[found.line - 1]


def overwriting(output):
    chances = output.sigmoid()
    loss = chances.log().mean()
    torch.zeros(4).add_(1)  # harmless: no gradient needs this tensor
    chances.add_(1)
    return -loss


def test_an_in_place_change_in_the_loss_names_its_line():
    for findings in both(net, overwriting, pictures()):
        found = findings[0]
        assert (found.kind, found.operation) == ("in place", "add")
        assert "chances.add_(1)" in found.code and "gradient of log (" in found.message


def test_a_buffer_that_changes_its_size_is_restored():
    model = nn.Sequential(Rounded(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 4))
    hookviz.diagnose(model, pictures(), cross_entropy)
    assert not model[0].most.numel()
    changed(model, lambda m: m[1].weight[0, 0, 0, 0].fill_(torch.nan))
    findings = guarded(
        model, cross_entropy, pictures()
    )  # repeats the run, which must start from an empty buffer
    assert findings[0].kind == "nan" and "1.weight" in findings[0].message


def test_a_failing_block_is_drawn_up_to_its_error():
    model = net(nn.Linear(5, 2))
    twin = deepcopy(model.train())
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        twin(pictures())
    drawn = torch.rand(1)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError), hookviz.diagnose(model) as findings:
        model(pictures())
    assert torch.equal(torch.rand(1), drawn)  # hookviz has drawn no random numbers
    for one, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    (svg,) = re.findall("<svg.*?</svg>", findings._repr_html_())
    (failed,) = (each for each in re.findall("<g>.*?</g>", svg) if 'class="failed"' in each)
    assert "7: the forward failed here" in failed


@pytest.mark.parametrize("learns", [True, False])
def test_a_frozen_layer_that_never_runs_is_a_note(learns):
    model = Between()
    model.spare = nn.Linear(4, 4).requires_grad_(learns)
    assert (
        kinds_and_layers(hookviz.diagnose(model, rows(), cross_entropy))
        == [("unused", "spare")] * learns
    )


@pytest.mark.parametrize("training", [True, False])
def test_an_argmax_without_gradient_is_a_note_in_eval_mode(training):
    model = Between(lambda x: F.one_hot(x.argmax(1), 8).float()).train(training)
    findings = hookviz.diagnose(model, rows(), cross_entropy)
    assert [(each.kind, each.severity) for each in findings] == [
        ("no gradient", "warning" if training else "note")
    ]


def test_broadcasting_in_a_loss_within_the_model_is_found():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.loss = nn.Linear(4, 1), nn.MSELoss()

        def forward(self, x, truth):
            return self.loss(self.net(x), truth)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = hookviz.diagnose(Own(), (rows(), rows(16)))
    assert found.kind == "loss" and "(N, N)" in found.message


def test_a_call_of_the_model_under_no_grad_names_its_line():
    model = net()
    with suppress(RuntimeError), hookviz.diagnose(model) as findings:
        with torch.no_grad():  # planted
            output = model(pictures())
        cross_entropy(output).backward()
    found = findings[0]
    assert (found.severity, found.operation) == ("error", "no_grad")
    assert found.code.endswith("# planted")


def test_nan_in_the_gradient_of_the_targets_is_healthy():
    """A model computes its loss, and the gradient of the targets is not used."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.prepare, self.net = nn.Identity(), nn.Linear(4, 3)

        def forward(self, truth, x):
            weight = self.prepare(truth).square().sqrt()
            return (self.net(x) * weight).sum()

    given = torch.tensor([[0.0, 1.0, 2.0]]), rows()
    assert hookviz.diagnose(Own(), given, lambda loss: loss).healthy


@pytest.mark.parametrize("steps", [0, 2])
def test_a_batchnorm_that_has_seen_few_batches_is_healthy(steps):
    """Its statistics are close to their initial values, so that outputs shrink in eval mode."""
    torch.manual_seed(0)
    blocks = [
        layer
        for _ in range(24)
        for layer in (nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    ]
    for layer in blocks[::3]:
        nn.init.kaiming_normal_(layer.weight, a=5**0.5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.Linear(800, 4))
    for _ in range(steps):
        cross_entropy(model(pictures()))
    once, guard = both(model.eval, cross_entropy, pictures())
    assert once.healthy and guard.healthy
    words = f"have seen {steps} batches" if steps else "have seen no batch"
    assert any(words in each.advice for each in once)


@pytest.mark.parametrize("raises", [False, True])
def test_findings_keep_neither_inputs_nor_the_graph_alive(raises):
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
