"""Faults once missed and false alarms from public reports, each with a healthy counterpart."""

from functools import partial

import pytest
import torch
from test_guard import LABELS, ONE_HOT, both, cross_entropy, rows
from torch import nn
from torch.nn import functional as F

import hookviz

X = rows(16, 8)
HALVES = (torch.arange(16) % 2).float()
SIGNS = 2 * HALVES - 1


def network(outputs=4, *last):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs), *last)


def one_output_network():
    """Return a network with one output per sample, ``(N,)``."""
    return network(1, nn.Flatten(0))


def faults(findings, kind):
    return [each for each in findings if each.kind == kind and each.severity != "note"]


def divergence(output, truth, **options):
    return F.kl_div(output.log_softmax(1), truth, reduction="batchmean", **options)


def ranking(output, truth):
    return F.margin_ranking_loss(output, output.flip(0), truth)


def cosine(output, truth):
    return F.cosine_embedding_loss(output[:, None].expand(16, 4), X[:, :4], truth)


def pixels(output, truth):
    maps = (each[..., None].expand(16, 4, 3) for each in (output, truth))
    return F.cross_entropy(*maps)


TWO = ONE_HOT + ONE_HOT.flip(1)

# A loss, targets that it does not take, targets that it takes, and words of the message and fix.
TARGETS = [
    (F.binary_cross_entropy_with_logits, ONE_HOT * 255, ONE_HOT, "from 0 to 255", "by 255"),
    (F.binary_cross_entropy_with_logits, ONE_HOT * 2 - 1, ONE_HOT, "from −1 to 1", "(y + 1) / 2"),
    (F.multilabel_soft_margin_loss, ONE_HOT * 255, ONE_HOT, "from 0 to 255", "by 255"),
    (F.hinge_embedding_loss, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (F.soft_margin_loss, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (ranking, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (cosine, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (divergence, ONE_HOT * 2 - 1, ONE_HOT.softmax(1), "takes probabilities", "y.softmax(1)"),
    (
        partial(divergence, log_target=True), ONE_HOT.softmax(1), ONE_HOT.log_softmax(1),
        "logarithms of probabilities", "log_target",
    ),
    (F.poisson_nll_loss, ONE_HOT * 6 - 3, ONE_HOT * 6, "counts, 0 or more", "counts"),
    (F.cross_entropy, TWO, TWO / 2, "sum to 1", "y / y.sum(1, keepdim=True)"),
    (F.cross_entropy, ONE_HOT * 4 - 2, ONE_HOT.softmax(1), "sum to 1", "y.softmax(1)"),
    (F.cross_entropy, TWO, ONE_HOT * 0.9 + 0.025, "sum to 1", "y.softmax(1)"),
    (F.cross_entropy, TWO, ONE_HOT * (HALVES > 0)[:, None], "sum to 1", "y.softmax(1)"),
    (pixels, ONE_HOT * 2, ONE_HOT, "sum to 1", "y / y.sum(1, keepdim=True)"),
]  # fmt: skip


@pytest.mark.parametrize("loss, wrong, right, words, fix", TARGETS)
def test_targets_that_the_loss_does_not_take_are_found(loss, wrong, right, words, fix):
    make = one_output_network if right is SIGNS else network
    for findings in both(make, lambda output: loss(output, wrong), X):
        [found] = faults(findings, "loss")
        assert words in found.message and fix in found.advice, findings
        assert not faults(findings, "nan")
    for findings in both(make, lambda output: loss(output, right), X):
        assert findings.healthy, findings


BCE, LOGITS_BCE = F.binary_cross_entropy, F.binary_cross_entropy_with_logits
REFUSED = {
    "BCE of probabilities with a mask of 0 and 255": (
        lambda out: BCE(out.sigmoid(), ONE_HOT * 255), "by 255",
        lambda out: BCE(out.sigmoid(), ONE_HOT),
    ),
    "BCE of logits": (
        lambda out: BCE(out, ONE_HOT), "sigmoid", lambda out: BCE(out.sigmoid(), ONE_HOT),
    ),
    "BCE with integer targets": (
        lambda out: LOGITS_BCE(out, ONE_HOT.long()), "y.float()",
        lambda out: LOGITS_BCE(out, ONE_HOT),
    ),
    "a negative variance": (
        lambda out: F.gaussian_nll_loss(out[:, 0], HALVES, out[:, 1] - 5), "softplus",
        lambda out: F.gaussian_nll_loss(out[:, 0], HALVES, F.softplus(out[:, 1] - 5)),
    ),
    "accuracy as a loss": (
        lambda out: (out.argmax(1) == LABELS).float().mean(), "cross_entropy", cross_entropy,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_in_a_loss_has_the_right_fix(name):
    wrong, fix, right = REFUSED[name]
    [found] = hookviz.diagnose(network(), X, wrong)
    assert found.severity == "error" and fix in found.advice, found
    assert "do not detach" not in str(found)
    assert hookviz.diagnose(network(), X, right).healthy


DECAYS = [
    (torch.optim.SGD, 1000.0, True), (torch.optim.AdamW, 2500.0, True),
    (torch.optim.SGD, 1e-2, False), (torch.optim.AdamW, 0.5, False),
    (torch.optim.Adam, 1000.0, False),  # Adam adds the decay to the gradient, not to the weights
]  # fmt: skip


@pytest.mark.parametrize("optimizer, decay, erases", DECAYS)
def test_a_weight_decay_that_erases_the_weights_is_found(optimizer, decay, erases):
    model = network()
    decaying = optimizer(model.parameters(), 1e-3, weight_decay=decay)
    found = faults(hookviz.diagnose(model, X, cross_entropy, optimizer=decaying), "optimizer")
    assert len(found) == erases and all("erases" in each.message for each in found)


class WithDropout(nn.Module):
    """A network with a dropout, as a layer or as a function."""

    def __init__(self, probability, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.drop, self.probability = nn.Dropout(0.0 if function else probability), probability
        self.function = function

    def forward(self, x):
        x = self.drop(self.first(x).relu())
        if self.function:
            x = F.dropout(x, self.probability, self.training)
        return self.last(x)


@pytest.mark.parametrize("function", [False, True])
def test_a_dropout_of_everything_is_found(function):
    findings = hookviz.diagnose(WithDropout(1.0, function), X, cross_entropy)
    [found] = faults(findings, "dropout")
    assert found.layer == ("" if function else "drop") and "p=1" in found.message
    assert not [each for each in findings if each.severity != "note" and each is not found]
    assert hookviz.diagnose(WithDropout(0.1, function), X, cross_entropy).healthy
    assert hookviz.diagnose(WithDropout(1.0, function).eval(), X, cross_entropy).healthy


class NewLayerInForward(nn.Module):
    """A model that creates its last layer in every forward, or once."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.how = nn.Linear(8, 16), how
        self.head = nn.Linear(16, 4) if how == "once" else None

    def forward(self, x):
        x = self.first(x).relu()
        if self.how == "once":
            return self.head(x)
        head = nn.Linear(16, 4)  # planted
        if self.how == "assigned":
            self.head = head
        return head(x)


@pytest.mark.parametrize("how", ["local", "assigned"])
def test_a_layer_that_every_forward_creates_is_found(how):
    [found] = hookviz.diagnose(NewLayerInForward(how), X, cross_entropy)
    assert found.kind == "not registered" and "every forward" in found.message
    assert "__init__" in found.advice and "# planted" in found.code
    assert hookviz.diagnose(NewLayerInForward("once"), X, cross_entropy).healthy


class InContainer(nn.Module):
    """A model whose layers are also in a container that never runs."""

    def __init__(self, container, idle=False):
        super().__init__()
        torch.manual_seed(0)
        self.layer1, self.layer2 = nn.Linear(8, 16), nn.Linear(16, 4)
        self.stages = container(self.layer1, self.layer2)
        self.idle = nn.Linear(4, 4) if idle else None

    def forward(self, x):
        return self.layer2(self.layer1(x).relu())


CONTAINERS = {
    "a list": lambda one, two: nn.ModuleList([one, two]),
    "a dict": lambda one, two: nn.ModuleDict({"one": one, "two": two}),
    "a row": lambda one, two: nn.Sequential(one, nn.ReLU(), two),
    "a list in a list": lambda one, two: nn.ModuleList([nn.ModuleList([one]), two]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_of_layers_that_run_under_other_names_is_used(name):
    findings = hookviz.diagnose(InContainer(CONTAINERS[name]), X, cross_entropy)
    assert findings.healthy, findings
    [found] = faults(
        hookviz.diagnose(InContainer(CONTAINERS[name], idle=True), X, cross_entropy), "unused"
    )
    assert found.layer == "idle"


def test_a_quantized_model_is_refused_in_a_sentence():
    quantized = torch.ao.quantization.quantize_dynamic(network().eval(), {nn.Linear})
    with pytest.raises(ValueError, match="'0' .* is quantized.* take the float model"):
        hookviz.diagnose(quantized, X)
    with pytest.raises(ValueError, match="is quantized"):
        hookviz.diagnose(quantized)
    assert hookviz.diagnose(network().eval(), X).healthy


class WithMissingValues(nn.Module):
    """A model that replaces NaN in its input and passes a mask, or passes NaN on."""

    def __init__(self, handles):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.handles = nn.Conv2d(4, 4, 3), handles

    def forward(self, x):
        known = x.isfinite()
        values = torch.where(known, x, 0.0) if self.handles else x
        return self.net(torch.cat([values, known.all(1, True).float()], 1)).mean((2, 3))


def test_nan_that_the_model_handles_is_a_note():
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x[0, 0, 0, 0] = torch.nan
    loss = lambda output: F.cross_entropy(output, LABELS[:4])  # noqa: E731
    findings = hookviz.diagnose(WithMissingValues(True), x, loss)
    assert findings.healthy and [each.kind for each in findings] == ["nan"]
    assert faults(hookviz.diagnose(WithMissingValues(False), x, loss), "nan")


class Ensemble(nn.Module):
    """An ensemble that runs its members by vmap, by jvp, or one after the other."""

    def __init__(self, by):
        super().__init__()
        torch.manual_seed(0)
        self.members, self.by = nn.ModuleList([nn.Linear(8, 4) for _ in range(3)]), by

    def forward(self, x):
        if self.by == "vmap":
            parameters, buffers = torch.func.stack_module_state(list(self.members))
            call = lambda p, b: torch.func.functional_call(self.members[0], (p, b), (x,))  # noqa: E731
            return torch.vmap(call)(parameters, buffers).mean(0)
        if self.by == "jvp":
            return sum(torch.func.jvp(self.members[0], (x,), (torch.ones_like(x),)))
        return sum(member(x) for member in self.members) / 3


@pytest.mark.parametrize(("by", "transform"), [("vmap", "torch.vmap"), ("jvp", "torch.func.jvp")])
def test_models_with_vmap_or_jvp_are_refused(by, transform):
    with pytest.raises(RuntimeError, match=f"within .*{transform}"):
        hookviz.diagnose(Ensemble(by), X, cross_entropy)
    assert hookviz.diagnose(Ensemble("loop"), X, cross_entropy).healthy


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
    findings = hookviz.diagnose(model, pictures(), cross_entropy)
    assert not faults(findings, "input scale"), findings
    for factor in (255, 1 / 255):
        found = faults(hookviz.diagnose(model, pictures() * factor, cross_entropy), "input scale")
        assert found, factor
