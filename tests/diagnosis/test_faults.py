"""`diagnose` names classic faults of training code, and each cure that it advises works.

Each fault is described once: a call and a guarded step name it and nothing else, and with the cure
the network is healthy and learns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
import torch
from architectures import model_of
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz.studies.diagnosis.findings import KINDS

Loss = Callable[[Any, torch.Tensor], torch.Tensor]

LABELS = torch.arange(16) % 4
ONE_HOT = F.one_hot(LABELS, 4).float()


def rows(*shape):
    return torch.randn(shape or (16, 8), generator=torch.Generator().manual_seed(0))


def pictures():
    """Return pictures of four distinguishable classes."""
    return rows(16, 3, 12, 12) + 2 * LABELS[:, None, None, None]


def tokens():
    return rows() + 2 * LABELS[:, None]


def sequences():
    return rows(16, 64, 8) * 0.2 + LABELS[:, None, None] / 2


def same(x):
    return x


class Net(nn.Module):
    """A convolution, something between, and a head."""

    def __init__(self, between=lambda x: x, last=lambda x: x, classes=4):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, classes)
        self.between, self.last = between, last

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        return self.last(self.head(self.between(x).mean((2, 3))))


class Between(nn.Module):
    """Two layers with a function between them."""

    def __init__(self, change=torch.relu):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.change = nn.Linear(8, 8), nn.Linear(8, 4), change

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


@dataclass(frozen=True)
class Fault:
    """A fault, the finding that names it, and the cure that the finding advises."""

    kind: str
    message: str = ""
    advice: str = ""
    layer: str | None = None
    severity: str = "warning"
    sick: Callable[[], nn.Module] = Net
    cured: Callable[[], nn.Module] = Net
    wrong: Loss = F.cross_entropy
    right: Loss = F.cross_entropy
    given: Callable[[], Any] = pictures
    prepared: Callable[[Any], Any] = same  # applies the cure to the input
    forms: tuple[str, ...] = ("call", "guard")  # which find it
    line: bool = False  # whether the finding names a line that ends in "# planted"
    learns: bool = True  # whether the cured network learns; else it is only healthy


def net(*given, **options):
    return lambda: Net(*given, **options)


def changed(change, build=Net):
    def made():
        model = build()
        with torch.no_grad():
            change(model)
        return model

    return made


def stacked(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(each() for each in layers))


def linear(inputs, outputs):
    return lambda: nn.Linear(inputs, outputs)


def perceptron():
    model = stacked(linear(8, 32), nn.ReLU, linear(32, 4))
    nn.init.constant_(model[0].bias, -100.0)
    return model


def with_tanh():
    torch.manual_seed(0)
    pool = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), *pool, nn.Linear(8, 4))


def column(x):
    return x[:, 1:2].squeeze(1)


class Unfolded(nn.Module):
    """A recurrence written as a loop, whose weights make the state grow."""

    def __init__(self, weights, act=lambda state: state):
        super().__init__()
        torch.manual_seed(0)
        self.i, self.w, self.out = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 4)
        self.w.weight.data, self.act = weights, act

    def forward(self, x):
        state = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.act(self.i(step) + self.w(state))
        return self.out(state)


def rnn():
    layer = nn.RNN(8, 8, nonlinearity="relu", batch_first=True)
    layer.weight_hh_l0.data = 2 * torch.eye(8)
    return model_of(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=layer, out=nn.Linear(8, 4))


class ResidualBlock(nn.Module):
    """A normalization, a layer and a ReLU, with a residual connection."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        return x + self.branch(x)


def deep(act, count, scale=1.0):
    return changed(
        lambda model: [each.mul_(scale) for each in model.parameters()],
        lambda: stacked(*(linear(8, 8), act) * count, linear(8, 4)),
    )


class Listed(nn.Module):
    """Layers in a list: a plain one, which torch does not register, or a ModuleList."""

    def __init__(self, kind):
        super().__init__()
        self.layers, self.head = kind([nn.Linear(8, 8), nn.Linear(8, 8)]), nn.Linear(8, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()  # planted
        return self.head(x)


class OwnWeights(nn.Module):
    """The weights of its second layer are a plain tensor, or a parameter."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.own = nn.Linear(8, 16), kind(torch.randn(16, 4) / 4)

    def forward(self, x):
        own = self.own[0] if isinstance(self.own, list) else self.own
        return self.first(x).relu() @ own  # planted


def gated(*norm):
    """Return a builder of a network with a sigmoid, behind large weights and an optional norm."""
    layers = linear(8, 16), *norm, nn.Sigmoid, linear(16, 4)
    return changed(lambda model: model[0].weight.mul_(1e3), lambda: stacked(*layers))


class MaybeUnused(Between):
    def __init__(self, called):
        super().__init__()
        self.spare = nn.Linear(8, 8)
        self.change = lambda x: self.spare(x).relu() if called else x


class InContainer(nn.Module):
    """A model whose layers are also in a container that never runs, maybe beside an idle one."""

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


class WithoutGraph(Between):
    """A layer that is wrongly called under ``torch.no_grad()``."""

    def forward(self, x):
        with torch.no_grad():  # planted
            x = self.first(x)
        return self.second(x)


class Frozen(Between):
    @torch.no_grad()  # planted
    def forward(self, x):
        return super().forward(x)


def unit_pictures():
    """Return pictures with values from 0 to 1."""
    return (pictures() + 4) / 16


def trained(given):
    """Return a network in eval mode whose norm has seen the pictures."""
    model = Net()
    for _ in range(60):
        model(given())
    return model.eval()


def seen(module, args, output):
    """Stand in for a hook from a notebook cell."""


def hooked():
    model = Net()
    for _ in range(2):
        model.conv.register_forward_hook(seen)
    return model


def unhooked():
    model = hooked()
    hookviz.remove_hooks(model, of="seen")
    return model


def overwritten(x):
    x = x.sigmoid()
    x += 1  # planted
    return x


def overwriting(output, labels):
    chances = output.sigmoid()
    loss = chances.log().mean()
    torch.zeros(4).add_(1)  # harmless: no gradient needs this tensor
    chances.add_(1)  # planted
    return -loss


def soft_twice(x):
    return x.softmax(1).softmax(-1)  # planted


def detached_loss(output, labels):
    return F.cross_entropy(output, labels).detach().requires_grad_()  # planted


def detached(output, labels):
    return F.cross_entropy(output.detach(), labels)  # planted


def made_again(output, labels):
    return torch.tensor(F.cross_entropy(output, labels).item(), requires_grad=True)  # planted


def times_zero(output, labels):
    return output.sum() * 0 + F.cross_entropy(output, labels).item()  # planted


def root_of_zero(output, labels):
    return (output - output.detach()).pow(2).sum().sqrt()  # planted


def nan_targets(output, labels):
    return F.mse_loss(output, ONE_HOT * torch.nan)  # planted


def divergence(output, labels, truth=ONE_HOT, **options):
    return F.kl_div(output.log_softmax(1), truth, reduction="batchmean", **options)


def with_logits(output, labels):
    truth = ONE_HOT if output.ndim > 1 else ONE_HOT[:, 0]
    return F.binary_cross_entropy_with_logits(output, truth)


def square(output, labels):
    return (output - labels).square().mean()


ERROR = {"severity": "error"}
CALL = {"forms": ("call",)}
VECTORS = {"sick": Between, "cured": Between, "given": tokens}

FAULTS = {
    # The loss
    "softmax before cross entropy": Fault(
        "loss", "takes logits", "without the softmax", sick=net(last=nn.Softmax(1)),
    ),
    "sigmoid before BCE with logits": Fault(
        "loss", "binary_cross_entropy_with_logits", "without the sigmoid",
        sick=net(last=nn.Sigmoid()), wrong=with_logits, right=with_logits,
    ),
    "a column of a softmax": Fault(
        "loss", "binary_cross_entropy_with_logits", "without the softmax",
        sick=net(last=lambda x: column(x.softmax(1))), cured=net(last=column),
        wrong=with_logits, right=with_logits,
    ),
    "sigmoid in the loss": Fault(
        "loss", "cross_entropy (", wrong=lambda out, y: F.cross_entropy(out.sigmoid(), y),
    ),
    "softmax twice": Fault(
        "loss", "output of softmax of 'the model' (test_faults.py", "remove this", layer="",
        sick=net(last=soft_twice), **CALL, line=True,
        wrong=lambda out, y: -out[range(16), y].log().mean(),
    ),
    "softmax over the batch": Fault(
        "loss", "over dimension 0", "dim=1",
        wrong=lambda out, y: F.nll_loss(out.log_softmax(0), y),
    ),
    "nll of logits": Fault("loss", "never above 0", "log_softmax", wrong=F.nll_loss),
    "kl_div of probabilities": Fault(
        "loss", "kl_div (", "log_softmax in place", right=divergence,
        wrong=lambda out, y: F.kl_div(out.softmax(1), ONE_HOT, reduction="batchmean"),
    ),
    "kl_div of logits": Fault(
        "loss", "above 0", "log_softmax", right=divergence,
        wrong=lambda out, y: F.kl_div(out, ONE_HOT, reduction="batchmean"),
    ),
    "(N, 1) against (N,)": Fault(
        "loss", "(N, N)", "squeeze(1)", sick=net(classes=1), cured=net(classes=1),
        wrong=lambda out, y: F.mse_loss(out, y.float()),
        right=lambda out, y: F.mse_loss(out.squeeze(1), y.float()),
    ),
    "(N, 1) less (N,)": Fault(
        "loss", "(N, N)", "squeeze(1)", sick=net(classes=1), cured=net(classes=1),
        wrong=square, right=lambda out, y: square(out.squeeze(1), y),
    ),
    "one class": Fault(
        "loss", "over one class", "return two numbers", sick=net(classes=1), cured=net(classes=2),
        wrong=lambda out, y: F.cross_entropy(out, y * 0),
        right=lambda out, y: F.cross_entropy(out, (y > 1).long()),
    ),
    "labels off by one": Fault(
        "error", "out of bounds", "0 to 3", **ERROR,
        wrong=lambda out, y: F.cross_entropy(out, y + 1),
    ),
    "BCE of logits": Fault(
        "error", "", "through a sigmoid", **ERROR,
        wrong=lambda out, y: F.binary_cross_entropy(out, ONE_HOT),
        right=lambda out, y: F.binary_cross_entropy(out.sigmoid(), ONE_HOT),
    ),
    "BCE with integer targets": Fault(
        "error", "", "y.float()", **ERROR, right=with_logits,
        wrong=lambda out, y: F.binary_cross_entropy_with_logits(out, ONE_HOT.long()),
    ),
    "a mask of 0 and 255": Fault(
        "error", "", "by 255", **ERROR,
        wrong=lambda out, y: F.binary_cross_entropy(out.sigmoid(), ONE_HOT * 255),
        right=lambda out, y: F.binary_cross_entropy(out.sigmoid(), ONE_HOT),
    ),
    "a negative variance": Fault(
        "error", "", "softplus", **ERROR,
        wrong=lambda out, y: F.gaussian_nll_loss(out[:, 0], y.float(), out[:, 1] - 5),
        right=lambda out, y: F.gaussian_nll_loss(out[:, 0], y.float(), F.softplus(out[:, 1])),
    ),
    "accuracy as a loss": Fault(
        "no gradient", "argmax ends the graph in the score", "cross_entropy", **ERROR,
        wrong=lambda out, y: (out.argmax(1) == y).float().mean(),
    ),
    "not one number": Fault(
        "error", "", "loss.mean()", **ERROR, forms=("guard",),
        wrong=partial(F.cross_entropy, reduction="none"),
    ),
    "a detached loss": Fault(
        "no gradient", "cut off from the model", "without detach()", **ERROR, line=True,
        wrong=detached_loss,
    ),
    "a loss made again": Fault(
        "no gradient", "cut off from the model", **ERROR, line=True, wrong=made_again,
    ),
    "a detached output": Fault(
        "no gradient", "detach ends the graph in the score", **ERROR, line=True, wrong=detached
    ),
    "a count as the output": Fault(
        "no gradient", "argmax ends the graph in the model", "cross_entropy", **ERROR,
        sick=net(last=lambda x: x.argmax(1).float()), wrong=square,
    ),
    "a loss times zero": Fault(
        "no gradient", "all 16 samples", "factor of 0", layer="", line=True, wrong=times_zero,
    ),
    "a root of zero": Fault(
        "inf", "slope of sqrt", "1e-8", layer="", **ERROR, line=True, wrong=root_of_zero,
    ),
    "NaN in the truth": Fault("nan", "made NaN", layer="", **ERROR, line=True, wrong=nan_targets),
    "an in-place write in the loss": Fault(
        "in place", "gradient of log (", "x = x + 1", **ERROR, line=True, wrong=overwriting,
    ),
    # The input
    "channels last": Fault(
        "shape", "", "permute(0, 3, 1, 2)", layer="conv", **ERROR,
        given=lambda: pictures().permute(0, 2, 3, 1), prepared=lambda x: x.permute(0, 3, 1, 2),
    ),
    "uint8": Fault(
        "error", "", ".float() / 255", layer="conv", **ERROR,
        given=lambda: (unit_pictures() * 255).clamp(0).byte(), prepared=lambda x: x.float() / 255,
    ),
    "a list": Fault(
        "error", "", "not model([x])", **ERROR, given=lambda: [pictures()],
        prepared=lambda x: x[0],
    ),
    "labels with the input": Fault(
        "error", "", "lambda output", **ERROR, given=lambda: (pictures(), LABELS),
        prepared=lambda x: x[0],
    ),
    "pictures of 0 to 255": Fault(
        "input scale", "deviations away", "x / 255", layer="norm",
        sick=lambda: trained(unit_pictures), cured=lambda: trained(unit_pictures),
        given=lambda: unit_pictures() * 255, prepared=lambda x: x / 255,
    ),
    "an input of zeros": Fault(
        "input scale", "are 0: every", "how the data are loaded", **CALL,
        given=lambda: pictures() * 0, prepared=lambda x: pictures(),
    ),
    # Values and weights
    "an in-place write": Fault(
        "in place", "gradient of sigmoid", "x = x + 1", layer="", **ERROR, line=True,
        sick=net(overwritten), cured=net(lambda x: x.sigmoid() + 1),
    ),
    "half precision": Fault(
        "half precision", "reaches 40000", "compute it in float32", layer="", **CALL,
        sick=net(lambda x: x + ((x / x.max()).detach().half() * 4e4).float() / 4e9),
        cured=net(lambda x: x + (x / x.max()).detach() * 4e4 / 4e9),
    ),
    "weights next to nothing": Fault(
        "constant", "8 of 8 channels", "Look at the weights of '0'", layer="0", **CALL,
        sick=changed(lambda m: m[0].weight.mul_(1e-12), with_tanh), cured=with_tanh,
    ),
    "a sigmoid at its ends": Fault(
        "saturated", "at its ends", "a normalization before it", layer="1", **CALL,
        sick=gated(), cured=gated(lambda: nn.LayerNorm(16)), given=tokens,
    ),
    "weights of zero": Fault(
        "zero weights", "'conv' (Conv2d) are zero", "kaiming_normal_", layer="conv",
        sick=changed(lambda m: m.conv.weight.zero_()),
    ),
    "a norm's weights of zero": Fault(
        "zero weights", "zero", "nn.init.ones_(layer.weight)", layer="norm",
        sick=changed(lambda m: m.norm.weight.zero_()),
        cured=changed(lambda m: nn.init.ones_(m.norm.weight.zero_())),
    ),
    "a bias far below zero": Fault(
        "dead", "8 of 8", "'norm' again with zero bias", layer="",
        sick=changed(lambda m: nn.init.constant_(m.norm.bias, -100.0)),
    ),
    "a dead layer of a perceptron": Fault(
        "dead", "32 of 32", "'0' again with zero bias", layer="1", given=tokens,
        sick=perceptron, cured=changed(lambda m: nn.init.zeros_(m[0].bias), perceptron),
    ),
    "same channels": Fault(
        "same channels", "the same weights", "kaiming_normal_", layer="conv",
        sick=changed(lambda m: m.conv.weight.fill_(0.1)),
    ),
    "a dropout of everything": Fault(
        "dropout", "p=1", "p below 1", layer="between", **CALL,
        sick=net(nn.Dropout(1.0)), cured=net(nn.Dropout(0.1)),
    ),
    "a dropout function of everything": Fault(
        "dropout", "p=1", "p below 1", layer="", **CALL,
        sick=net(lambda x: F.dropout(x, 1.0)), cured=net(lambda x: F.dropout(x, 0.1)),
    ),
    # Sizes
    "a recurrence": Fault(
        "exploding", "", "a tanh into", given=sequences,
        sick=lambda: Unfolded(2 * torch.eye(8)),
        cured=lambda: Unfolded(nn.init.orthogonal_(torch.empty(8, 8)), torch.tanh),
    ),
    "nn.RNN with relu": Fault(
        "exploding", "have a size of ", "nn.init.orthogonal_", layer="rnn", given=sequences,
        sick=rnn, cured=Between, prepared=lambda x: x.mean(1) * 5,
    ),
    "twenty sigmoids": Fault(
        "vanishing", "no single layer is the cause", "Add a residual", given=tokens,
        sick=deep(nn.Sigmoid, 20), cured=lambda: stacked(*[ResidualBlock] * 40, linear(8, 4)),
    ),
    "numbers that grow to Inf": Fault(
        "exploding", "cannot hold them", "normalization", **ERROR, given=tokens,
        sick=deep(nn.Identity, 100, 8.0), cured=Between,
    ),
    # Parts that do not learn
    "a layer that never runs": Fault(
        "unused", "never ran", "Call it in forward", layer="spare", given=tokens,
        sick=lambda: MaybeUnused(False), cured=lambda: MaybeUnused(True),
    ),
    "layers in a list": Fault(
        "not registered", "not in model.parameters()", "nn.ModuleList", **CALL, line=True,
        sick=lambda: Listed(list), cured=lambda: Listed(nn.ModuleList), given=tokens,
    ),
    "one block four times": Fault(
        "one module", "under 4 names", "for _ in range(n)", given=tokens,
        sick=lambda: nn.Sequential(*[ResidualBlock()] * 4, nn.Linear(8, 4)),
        cured=lambda: nn.Sequential(*[ResidualBlock() for _ in range(4)], nn.Linear(8, 4)),
    ),
    "detached": Fault("no gradient", "detached", "detach()", sick=net(lambda x: x.detach())),
    ".data": Fault(
        "no gradient", "detached in the model at test_faults.py:", ".data",
        sick=net(lambda x: x.data),
    ),
    "tolist": Fault(
        "no gradient", "new tensor in the model at test_faults.py:", "tolist()",
        sick=net(lambda x: torch.tensor(x.tolist())),
    ),
    "item": Fault(
        "no gradient", "as a number in the model at test_faults.py:", "detach()",
        sick=net(lambda x: torch.ones(len(x), 8, 1, 1) * x.sum().item()),
    ),
    "no_grad": Fault(
        "no gradient", "torch.no_grad() in", "no_grad()", layer="first", line=True,
        **VECTORS | {"sick": WithoutGraph},
    ),
    "no_grad on all": Fault(
        "no gradient", "", "", **ERROR, line=True, **VECTORS | {"sick": Frozen}
    ),
    # The mode and hooks
    "a BatchNorm in training mode": Fault(
        "batchnorm", "in training mode", "model.eval()", layer="norm",
        sick=changed(lambda m: m.norm.train(), lambda: trained(pictures)),
        cured=lambda: trained(pictures),
    ),
    "a dropout in training mode": Fault(
        "dropout", "in training mode", "model.eval()", layer="between",
        sick=changed(lambda m: m.eval().between.train(), net(nn.Dropout(0.2))),
        cured=changed(lambda m: m.eval(), net(nn.Dropout(0.2))),
    ),
    "a dropout as a function": Fault(
        "dropout", "differs from run to run", "training=self.training", layer="", **CALL,
        sick=changed(lambda m: m.eval(), net(lambda x: F.dropout(x, 0.2))),
        cured=changed(lambda m: m.eval(), net(lambda x: F.dropout(x, 0.2, training=False))),
    ),
    "a cell that was run twice": Fault(
        "hooks left behind", "seen on conv is set 2 times", "hookviz.remove_hooks(model, of=",
        layer="conv", sick=hooked, cured=unhooked,
    ),
}  # fmt: skip

# Only the layer before an operation without a gradient is named; in a residual branch the others
# still get one through the shortcut.
for make, layer in ((Between, "first"), (Around, "branch")):
    for name, change, advice in (
        ("times 0", lambda x: x * 0 + x.mean().item(), "Remove the factor 0"),
        ("round", lambda x: x.round(), "x + (x.round() - x).detach()"),
        ("a clamp beyond its ends", lambda x: x.clamp(1e3, 1e4), "Compare its bounds"),
    ):
        FAULTS[f"{name} in {make.__name__}"] = Fault(
            "no gradient", "is 0:", advice, layer=layer, sick=partial(make, change), cured=make,
            given=tokens,
        )  # fmt: skip

for name, kind in {
    "a tensor": lambda x: x,
    "a tensor in a list": lambda x: [x],
    "a tensor that learns": lambda x: x.requires_grad_(),
}.items():
    FAULTS[f"weights in {name}"] = Fault(
        "not registered", "the plain tensor 'own', shape (16", "nn.Parameter(tensor)", layer="",
        sick=partial(OwnWeights, kind), cured=partial(OwnWeights, nn.Parameter), given=tokens,
        **CALL, line=True,
    )  # fmt: skip

for how in ("local", "assigned"):
    FAULTS[f"a layer that every forward creates, {how}"] = Fault(
        "not registered", "every forward", "in __init__", line=True, given=tokens,
        sick=partial(NewLayerInForward, how), cured=partial(NewLayerInForward, "once"),
    )  # fmt: skip

for name, container in CONTAINERS.items():
    FAULTS[f"an idle layer beside {name}"] = Fault(
        "unused", "never ran", layer="idle", sick=partial(InContainer, container, idle=True),
        cured=partial(InContainer, container), given=tokens,
    )  # fmt: skip


# Targets that a loss does not take


def ranking(output, truth):
    return F.margin_ranking_loss(output, output.flip(0), truth)


def cosine(output, truth):
    return F.cosine_embedding_loss(output[:, None].expand(16, 4), rows(16, 4), truth)


def kl(output, truth, **options):
    return divergence(output, LABELS, truth, **options)


def ctc(output, labels):
    """Compute the loss of one text, of two labels and padding with 0."""
    scores = output[:, None].log_softmax(2)
    return F.ctc_loss(scores, labels, torch.tensor([16]), torch.tensor([2]))


def two_heads(output, truth):
    return sum(BCE(output, each) for each in (ONE_HOT, truth))


def pixels(output, truth):
    maps = (each[..., None].expand(16, 4, 3) for each in (output, truth))
    return F.cross_entropy(*maps)


HALVES = (LABELS % 2).float()
SIGNS = 2 * HALVES - 1
TWO = ONE_HOT + ONE_HOT.flip(1)
BCE, CE = F.binary_cross_entropy_with_logits, F.cross_entropy

# A loss, targets that it does not take, targets that it takes, words of the message and fix.
TARGETS = [
    (BCE, ONE_HOT * 255, ONE_HOT, "from 0 to 255", "by 255"),
    (two_heads, ONE_HOT * 255, ONE_HOT, "from 0 to 255", "by 255"),
    (BCE, ONE_HOT * 2 - 1, ONE_HOT, "from −1 to 1", "(y + 1) / 2"),
    (F.multilabel_soft_margin_loss, ONE_HOT * 255, ONE_HOT, "from 0 to 255", "by 255"),
    (F.hinge_embedding_loss, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (F.soft_margin_loss, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (ranking, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (cosine, HALVES, SIGNS, "−1 and 1", "2 * y - 1"),
    (kl, ONE_HOT * 2 - 1, ONE_HOT.softmax(1), "takes probabilities", "y.softmax(1)"),
    (kl, ONE_HOT * 7, ONE_HOT * 0.9, "from 0 to 7", "y / y.sum(1, keepdim=True) for counts"),
    (ctc, torch.tensor([[0, 1, 0]]), torch.tensor([[2, 1, 0]]), "the blank", "from 1"),
    (ctc, torch.tensor([0, 1]), torch.tensor([2, 1]), "the blank", "target_lengths"),
    (
        partial(kl, log_target=True), ONE_HOT.softmax(1), ONE_HOT.log_softmax(1),
        "logarithms of probabilities", "log_target",
    ),
    (F.poisson_nll_loss, ONE_HOT * 6 - 3, ONE_HOT * 6, "counts, 0 or more", "counts"),
    (CE, TWO, TWO / 2, "sum to 1", "y / y.sum(1, keepdim=True)"),
    (CE, ONE_HOT * 4 - 2, ONE_HOT.softmax(1), "sum to 1", "y.softmax(1)"),
    (CE, TWO, ONE_HOT * 0.9 + 0.025, "sum to 1", "y.softmax(1)"),
    (CE, TWO, ONE_HOT * (HALVES > 0)[:, None], "sum to 1", "y.softmax(1)"),
    (pixels, ONE_HOT * 2, ONE_HOT, "sum to 1", "y / y.sum(1, keepdim=True)"),
]  # fmt: skip

for number, (loss, wrong, right, message, fix) in enumerate(TARGETS):
    one = net(classes=1, last=nn.Flatten(0)) if right is SIGNS else Net
    makes_nan = loss is ctc or (loss is kl and wrong.min() < 0)
    severity = "error" if makes_nan else "warning"
    FAULTS[f"targets {number}"] = Fault(
        "loss", message, fix, sick=one, cured=one, severity=severity, learns=False,
        wrong=lambda out, y, loss=loss, wrong=wrong: loss(out, wrong),
        right=lambda out, y, loss=loss, right=right: loss(out, right),
    )  # fmt: skip


def findings_in(form, model, x, loss, optimizer=None):
    """Return the findings of a call, or of a guarded step, which may raise."""
    if form == "call":
        return hookviz.diagnose(model, x, loss, optimizer=optimizer)
    findings = hookviz.diagnose(model, optimizer=optimizer)
    with suppress(RuntimeError, ValueError, TypeError, IndexError), findings:
        loss(model(*x) if isinstance(x, tuple) else model(x)).backward()
    return findings


def faults_of(findings):
    return [each for each in findings if each.severity != "note"]


FORMS = [(name, form) for name, fault in FAULTS.items() for form in fault.forms]


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:std")
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_fault_is_named_and_nothing_else(name, form):
    fault = FAULTS[name]
    torch.manual_seed(0)
    findings = findings_in(
        form, fault.sick(), fault.given(), lambda output: fault.wrong(output, LABELS)
    )
    told = faults_of(findings)
    assert {each.kind for each in told} == {fault.kind}, findings
    first = told[0]
    assert first.severity == fault.severity and fault.layer in (None, first.layer), findings
    assert fault.message in first.message and fault.advice in first.advice, findings
    assert not fault.line or "# planted" in first.code, findings
    assert len({each.phase for each in told}) == len(told)
    assert len(repr(findings).splitlines()) <= 25


@pytest.mark.parametrize("name", FAULTS)
def test_with_the_advised_cure_the_network_is_healthy_and_learns(name):
    fault = FAULTS[name]
    assert_healthy(fault.cured, fault.right, fault.given, fault.prepared, fault.learns)


@cache  # many faults have the same cure
def assert_healthy(build, loss, given, prepared, learns):
    torch.manual_seed(0)
    model, x = build(), prepared(given())
    goal = lambda output: loss(output, LABELS)  # noqa: E731
    for form in ("call", "guard"):
        findings = findings_in(form, model, x, goal)
        assert findings.healthy, findings
    if learns:
        training = model.training
        before, after = losses_of_training(model.train(), x, goal)
        assert after < 0.7 * before
        assert hookviz.diagnose(model.train(training), x, goal).healthy


def losses_of_training(model, x, goal, optimizer=None):
    """Return the loss before and after some steps."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        losses.append(goal(model(x)))
        losses[-1].backward()
        optimizer.step()
    return losses[0].item(), losses[-1].item()


def sgd(rate, part=""):
    return lambda model: torch.optim.SGD(model.get_submodule(part).parameters(), rate)


OPTIMIZERS = {
    ("optimizer", "with model.parameters()"): (sgd(0.1, "head"), sgd(0.1)),
    ("learning rate", "a hundredth in each step"): (sgd(1e3), sgd(0.1)),
}
"""Kind and advice -> the wrong optimizer and the advised one."""


@pytest.mark.parametrize("told", OPTIMIZERS, ids=lambda told: told[0])
def test_the_advised_optimizer_is_healthy(told):
    x, goal = pictures(), lambda output: F.cross_entropy(output, LABELS)
    for make, healthy in zip(OPTIMIZERS[told], (False, True), strict=True):
        model = Net()
        optimizer = make(model)
        findings = hookviz.diagnose(model, x, goal, optimizer=optimizer)
        said = [each.advice for each in findings if each.kind == told[0]]
        assert findings.healthy is healthy and any(told[1] in each for each in said) is not healthy
    before, after = losses_of_training(model, x, goal, optimizer)
    assert after < 0.7 * before


WATCHED = {
    ("learning rate", "50 times smaller"): ((10.0, True, 1e9), (0.2, True, 1e9)),
    ("learning rate", "200 times smaller"): ((100.0, True, 1e9), (0.5, True, 1e9)),
    ("does not move", "with a learning rate above 0"): ((0.0, True, 1.0), (0.1, True, 1.0)),
    ("does not move", "clipped to 0"): ((0.1, True, 0.0), (0.1, True, 1.0)),
    ("adds up", "optimizer.zero_grad()"): ((0.1, False, 1.0), (0.1, True, 1.0)),
}
"""Kind and advice -> the wrong and the advised training: the learning rate, whether gradients are
set to zero, and the norm to which they are clipped."""


@pytest.mark.parametrize("told", WATCHED, ids=lambda told: told[1])
def test_the_advice_of_a_watch_makes_the_training_healthy(told):
    x = pictures()
    for (rate, zeroed, norm), healthy in zip(WATCHED[told], (False, True), strict=True):
        model = Net()
        optimizer, watch, losses = sgd(rate)(model), hookviz.watch(model, every=1), []
        for _ in range(40):
            if zeroed:
                optimizer.zero_grad()
            with watch:
                losses.append(F.cross_entropy(model(x), LABELS))
                losses[-1].backward()
                nn.utils.clip_grad_norm_(model.parameters(), norm)
            optimizer.step()
        said = [each.advice for each in watch.findings if each.kind == told[0]]
        assert any(told[1] in each for each in said) is not healthy, watch.findings
        assert watch.findings.healthy is healthy
    assert losses[-1] < 0.7 * losses[0]


def test_an_empty_batch_is_refused_or_becomes_a_finding():
    with pytest.raises(ValueError, match="is empty: give a batch"):
        hookviz.diagnose(Net(), pictures()[:0])
    for counts, kinds in (([16, 0], ["empty"]), ([16], [])):
        model = Net()
        with hookviz.diagnose(model) as findings:
            for count in counts:
                model(pictures()[:count]).sum().backward()
        found = faults_of(findings)
        assert [each.kind for each in found] == kinds
        assert all("Leave empty batches out" in each.advice for each in found)


NOT_FAULTS = {"silent", "training mode", "not examined"}
"""Kinds that are always notes."""


def test_four_inputs_do_not_prove_that_a_channel_is_dead():
    assert hookviz.diagnose(perceptron(), rows(4, 8)).healthy


def test_the_cure_of_every_kind_of_finding_is_tested():
    """Those of NaN and Inf in test_causes.py, of merged steps in test_doctor_in_scripts.py."""
    tried = {fault.kind for fault in FAULTS.values()} | {
        kind for kind, _ in [*OPTIMIZERS, *WATCHED]
    }
    assert set(KINDS) - tried == NOT_FAULTS | {"empty", "merged steps"}


def test_a_finding_lists_all_layers_of_its_cause():
    findings = hookviz.diagnose(FAULTS["twenty sigmoids"].sick(), tokens())
    (found,) = (each for each in findings if each.kind == "vanishing")
    assert len(found.layers) >= 15 and found.layer == found.layers[0]
    assert found.record()["layers"] == found.layers


@pytest.mark.parametrize("which", ["norm", "between"])
def test_single_layers_in_eval_mode_are_a_note_in_training(which):
    model = Net(nn.Dropout(0.2))
    getattr(model, which).eval()
    found = hookviz.diagnose(model, pictures())
    kind = "batchnorm" if which == "norm" else "dropout"
    assert found.healthy and (kind, which) in [(each.kind, each.layer) for each in found]
    assert "model.train()" in found[0].advice
