"""Plant faults in trained networks, diagnose them in both forms, and write TRAINED_FAULTS.md.

EfficientNet-Lite0 with ImageNet's weights and photographs, and networks that learn the digits: some
minutes. A fault is named if an error or a warning has its kind, and found alone if there is no
other error or warning.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it
sys.path.insert(0, str(Path(__file__).parents[2] / "diagnosis"))

import torch
from digits import NETS, digits, trained
from test_healthy import cat_and_coffee
from torch import Tensor, nn
from torch.nn import functional as F

import hookviz

Loss = Callable[[Tensor, Tensor], Tensor]
Case = tuple[nn.Module, Tensor, Tensor]


def convolutions(model):
    return [each for each in model.modules() if isinstance(each, nn.Conv2d)]


def norms(model):
    return [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]


def middle(layers):
    return layers[len(layers) // 2]


def change_output(layer, change):
    own = layer.forward
    layer.forward = lambda given: change(own(given))


def without_graph(model):
    layer = middle(convolutions(model))
    layer.forward = torch.no_grad()(layer.forward)


def with_zeros(layer):
    for each in layer.parameters():
        nn.init.zeros_(each)


MODELS: dict[str, tuple[str, Callable[[nn.Module], object]]] = {
    "one norm in training": ("batchnorm", lambda m: middle(norms(m)).train()),
    "zero convolution": ("zero weights", lambda m: with_zeros(middle(convolutions(m)))),
    "same channels": (
        "same channels",
        lambda m: convolutions(m)[0].weight.copy_(convolutions(m)[0].weight[:1].clone()),
    ),
    "no variance": ("batchnorm", lambda m: middle(norms(m)).running_var.zero_()),
    "bias far below": ("dead", lambda m: norms(m)[0].bias.fill_(-100.0)),
    "nan weight": ("nan", lambda m: middle(convolutions(m)).weight.view(-1)[:1].fill_(torch.nan)),
    "softmax at the end": ("loss", lambda m: change_output(m, lambda output: output.softmax(1))),
    "detached": ("no gradient", lambda m: change_output(middle(norms(m)), Tensor.detach)),
    "without graph": ("no gradient", without_graph),
}
"""A fault of the model, its kind, and the change."""

INPUTS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "to 255": ("input scale", lambda x: (x - x.min()) / (x.max() - x.min()) * 255),
    "channels last": ("shape", lambda x: x.permute(0, 2, 3, 1)),
}
"""A fault of the input, its kind, and the change."""


def divergence(output, labels):
    return F.kl_div(output, F.one_hot(labels, output.shape[1]).float(), reduction="batchmean")


LOSSES: dict[str, tuple[str, Loss]] = {
    "loss detached": ("no gradient", lambda o, y: F.cross_entropy(o, y).detach().requires_grad_()),
    "loss times 0": ("no gradient", lambda o, y: o.sum() * 0 + F.cross_entropy(o, y).item()),
    "kl_div of probabilities": ("loss", lambda o, y: divergence(o.softmax(1), y)),
    "nll_loss of logits": ("loss", lambda o, y: F.nll_loss(o, y)),
    "softmax over the batch": ("loss", lambda o, y: F.nll_loss(o.log_softmax(0), y)),
    "NaN in the loss": ("inf", lambda o, y: -(o.softmax(1) * 0).log().mean()),
    "labels out of range": ("error", lambda o, y: F.cross_entropy(o, y + 2000)),
}  # fmt: skip
"""A fault of the loss, its kind, and the loss."""

FAULTS = ("nothing", *INPUTS, *MODELS, *LOSSES)
LITE0 = "EfficientNet-Lite0"
NETWORKS = (
    LITE0,
    *(f"digits: {n}" for n in ("batchnorm", "depthwise", "resnet", "squeeze-excite")),
)


@cache
def network(name):
    """Return a trained network in eval mode, with its inputs and labels."""
    if name == LITE0:
        lite0 = hookviz.pretrained("efficientnet_lite0")[0].eval()
        return lite0, cat_and_coffee(), torch.tensor([282, 967])
    name, (x, y, _, _) = name.removeprefix("digits: "), digits()
    return trained(name).stages["the end"].eval(), NETS[name].given(x[:32]), y[:32]


def answers(fault, name):
    """Diagnose in both forms; return for each: found alone, with others, missed, or other kinds."""
    model, x, labels = copy.deepcopy(network(name))
    kind, loss = LOSSES.get(fault, ("", F.cross_entropy))
    if fault in MODELS:
        kind, plant = MODELS[fault]
        with torch.no_grad():
            plant(model)
    elif fault in INPUTS:
        kind, change = INPUTS[fault]
        x = change(x)
    if kind == "shape" and x.shape[-1] == 1:
        model[0], x = nn.Conv2d(3, 16, 3, padding=1), x.expand(-1, -1, -1, 3)
    if kind == "dead" and any(isinstance(each, nn.SiLU) for each in model.modules()):
        kind = "constant"  # SiLU of a number far below zero is not quite 0
    once = hookviz.diagnose(model, x, lambda output: loss(output, labels))
    guard = hookviz.diagnose(model)
    with suppress(Exception), guard:
        loss(model(x), labels).backward()
    said = []
    for findings in (once, guard):
        kinds = {each.kind for each in findings if each.severity != "note"}
        if kind in kinds:
            said.append("yes" if kinds == {kind} else f"and {', '.join(sorted(kinds - {kind}))}")
        else:
            said.append(f"no: {', '.join(sorted(kinds)) or 'healthy'}")
    return said


def page(cells):
    """Return the table: a row a fault, a column a network, both answers where they differ."""
    planted = [said for (fault, _), said in cells.items() if fault != "nothing"]
    counts = [sum(not said[way].startswith("no") for said in planted) for way in range(2)]
    alone = [sum(said[way] == "yes" for said in planted) for way in range(2)]
    calm = [said for (fault, _), said in cells.items() if fault == "nothing"]
    alarms = sum(each != "no: healthy" for said in calm for each in said)
    lines = [
        "<!-- by python -m tests.zoo.faults.trained -->",
        f"{len(planted)} faults planted in trained networks: `diagnose(model, x, loss)` names "
        f"{counts[0]}, {alone[0]} of them with nothing else beside it; the guard names "
        f"{counts[1]}, {alone[1]} alone. Nothing planted: {alarms} alarms in "
        f"{2 * len(NETWORKS)} answers. "
        "A slash parts the call's answer from the guard's.",
        "",
        "| fault | " + " | ".join(NETWORKS) + " |",
        "|---" * (len(NETWORKS) + 1) + "|",
    ]
    for fault in FAULTS:
        said = [cells[fault, name] for name in NETWORKS]
        told = [one if one == two else f"{one} / {two}" for one, two in said]
        if fault == "nothing":
            told = [each.removeprefix("no: ") for each in told]
        lines.append(f"| {fault} | " + " | ".join(told) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    text = page({(fault, name): answers(fault, name) for name in NETWORKS for fault in FAULTS})
    (Path(__file__).parents[1] / "TRAINED_FAULTS.md").write_text(text, encoding="utf-8")
    print(text)
