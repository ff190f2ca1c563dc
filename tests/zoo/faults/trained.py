"""Plant faults in trained networks, diagnose them in both forms, and write TRAINED_FAULTS.md.

EfficientNet-Lite0 with ImageNet's weights and photographs, and networks that learn the digits: some
minutes. A fault is named if its finding is an error or a warning of the kind, and found alone if no
other error or warning stands beside it.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest has it

import torch
from digits import NETS, digits, trained
from test_healthy import cat_and_coffee
from test_planted import PLANTS, channels_last, convolutions, middle
from torch import Tensor, nn
from torch.nn import functional as F

import hookviz

Loss = Callable[[Tensor, Tensor], Tensor]
Case = tuple[nn.Module, Tensor, Tensor]


def divergence(output: Tensor, labels: Tensor) -> Tensor:
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


def without_graph(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    layer = model.get_submodule(middle(convolutions(model)))
    layer.forward = torch.no_grad()(layer.forward)
    return model, x


MODELS = {**PLANTS, without_graph: "no gradient"}


def networks() -> dict[str, Case]:
    """Return trained networks in eval mode, with their inputs and labels."""
    lite0 = hookviz.pretrained("efficientnet_lite0")[0].eval()
    found: dict[str, Case] = {
        "EfficientNet-Lite0": (lite0, cat_and_coffee(), torch.tensor([282, 967]))
    }
    x, y, _, _ = digits()
    for name in ("batchnorm", "depthwise", "resnet", "squeeze-excite"):
        model = trained(name).stages["the end"].eval()
        found[f"digits: {name}"] = model, NETS[name].given(x[:32]), y[:32]
    return found


def asked(model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor], kind: str) -> list[str]:
    """Diagnose in both forms; return for each: found alone, with others, missed, or other kinds."""
    once, findings = hookviz.diagnose(model, x, loss), hookviz.diagnose(model)
    with suppress(Exception), findings:
        loss(model(x)).backward()
    said = []
    for each in (once, findings):
        kinds = {one.kind for one in each if one.severity != "note"}
        if kind in kinds:
            said.append("yes" if kinds == {kind} else f"and {', '.join(sorted(kinds - {kind}))}")
        else:
            said.append(f"no: {', '.join(sorted(kinds)) or 'healthy'}")
    return said


def run() -> list[tuple[str, str, list[str]]]:
    """Plant each fault in each network; return the fault, the network, and both answers."""
    rows = []
    for name, (model, x, y) in networks().items():
        entropy = lambda output, y=y: F.cross_entropy(output, y)  # noqa: E731
        rows.append(("nothing", name, asked(copy.deepcopy(model), x, entropy, "")))
        for plant, kind in MODELS.items():
            sick, given = plant(copy.deepcopy(model), x)
            if plant is channels_last and x.shape[1] == 1:
                sick[0] = nn.Conv2d(3, 16, 3, padding=1)
                given = given.expand(-1, -1, -1, 3)
            if kind == "dead" and any(isinstance(each, nn.SiLU) for each in model.modules()):
                kind = "constant"  # SiLU of a number far below zero is not quite 0
            rows.append((plant.__name__.replace("_", " "), name, asked(sick, given, entropy, kind)))
        for fault, (kind, loss) in LOSSES.items():
            of_truth = lambda output, loss=loss, y=y: loss(output, y)  # noqa: E731
            rows.append((fault, name, asked(copy.deepcopy(model), x, of_truth, kind)))
        print(name, flush=True)
    return rows


def page(rows: list[tuple[str, str, list[str]]]) -> str:
    """Return the table: a row a fault, a column a network, both answers where they differ."""
    names = list(dict.fromkeys(name for _, name, _ in rows))
    faults = list(dict.fromkeys(fault for fault, *_ in rows))
    cells = {(fault, name): said for fault, name, said in rows}
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
        f"{2 * len(names)} answers. "
        "A slash parts the call's answer from the guard's.",
        "",
        "| fault | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for fault in faults:
        said = [cells[fault, name] for name in names]
        told = [one if one == two else f"{one} / {two}" for one, two in said]
        if fault == "nothing":
            told = [each.removeprefix("no: ") for each in told]
        lines.append(f"| {fault} | " + " | ".join(told) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    text = page(run())
    (Path(__file__).parents[1] / "TRAINED_FAULTS.md").write_text(text, encoding="utf-8")
    print(text)
