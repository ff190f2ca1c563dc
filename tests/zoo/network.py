"""Export classifiers as networks of a page, run them in ONNX Runtime, and compare with torch.

``python -m tests.zoo.network`` writes NETWORK.md; with names of torchvision models only these run,
and the other rows stay.
"""

from __future__ import annotations

import copy
import math
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torch import Tensor, fx, nn

import hookviz
from hookviz.export.network.onnx_graph import export_network
from hookviz.export.network.traced import NetworkError
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session

PAGE = Path(__file__).with_name("NETWORK.md")
SIDE, CLASS = 224, 3
ROUNDING = 1e-5  # larger differences of gradients are explained by single values
NAMES = (
    *("alexnet", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x1_0", "resnet18"),
    *("efficientnet_b0", "regnet_y_400mf", "googlenet", "resnet50", "vgg11_bn", "convnext_tiny"),
    *("densenet121", "swin_t", "vit_b_16"),
)


@dataclass
class Row:
    """One network: sizes in bytes, times in seconds, distances of the worst layer."""

    name: str
    layers: int = 0
    refused: str = ""
    note: str = ""
    size: int = 0
    packed: int = 0
    exported: float = math.nan
    ran: float = math.nan
    torch: float = math.nan
    logits: float = math.nan
    maps: float = math.nan
    gradients: float = math.nan
    apart: float = math.nan  # the gradients' distance, as a fraction of their norm
    moved: str = "–"  # ReLUs active in only one of torch and the page, of all
    same: float = math.nan  # distance of gradients from torch with the page's ReLUs and maxima

    @property
    def cells(self) -> str:
        if self.refused:
            return f"| {self.name} | {self.layers} | refused: {self.refused} |||||||||||"
        figures = self.logits, self.maps, self.gradients, self.apart, self.same
        words = ["–" if math.isnan(each) else f"{each:.1e}" for each in figures]
        numbers = " | ".join([*words[:4], self.moved, words[4]])
        times = f"{self.exported:.0f} | {self.ran:.2f} | {self.torch:.2f}"
        sizes = f"{self.size / 1e6:.1f} | {self.packed / 1e6:.1f}"
        return f"| {self.name} | {self.layers} | {sizes} | {numbers} | {times} |"


def calibrated(name: str) -> nn.Module:
    """Return a network with random weights, with BatchNorm statistics of noise."""
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None, **_options(name))
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for each in norms:
        each.momentum = None  # the mean of all batches
    if norms:
        model.train()
        with torch.no_grad():
            model(torch.randn(8, 3, SIDE, SIDE))
    for each in model.modules():
        if isinstance(each, nn.Linear) and not each.weight.any():  # a ViT's initial head is zero
            nn.init.normal_(each.weight, std=0.02)
    return model.eval()


def _options(name: str) -> dict[str, Any]:
    return {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}


def examined(name: str) -> Row:
    """Export a network, and compare outputs and gradients for another picture and class."""
    model, x = calibrated(name), torch.randn(1, 3, SIDE, SIDE)
    session = Session(model, prepare_input(x, model))
    run = session.run()
    names = [each for each in run.cache if not hasattr(run.cache[each], "attends")]
    row = Row(name, len(names))
    start = time.perf_counter()
    try:
        network = export_network(session, run, names)
    except NetworkError as error:
        row.refused = error.operation or str(error)
        return row
    row.exported, row.note = time.perf_counter() - start, network.note
    row.size, row.packed = len(network.model), len(zlib.compress(network.model, 6))
    other = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    start = time.perf_counter()
    with hookviz.capture(model) as cache:
        logits = model(other)
        logits[0, CLASS].backward()
    row.torch = time.perf_counter() - start
    answer, row.ran = answered(network, other, logits.shape[1])
    row.logits = farthest(answer["logits"], logits)
    row.maps = row.gradients = row.apart = 0.0
    for each in network.layers:
        call = cache[each.layer].calls[each.call]
        row.maps = max(row.maps, farthest(answer[f"activation:{each.name}"], call.activation))
        if each.graded:
            gradient = answer[f"gradient:{each.name}"]
            row.gradients = max(row.gradients, farthest(gradient, call.gradient))
            row.apart = max(row.apart, relative(gradient, call.gradient))
    if not any(each.graded for each in network.layers):
        row.gradients = row.apart = math.nan
    if row.gradients > ROUNDING:
        row.moved, row.same = traced_back(model, x, other, names)
    return row


def traced_back(model: nn.Module, x: Tensor, other: Tensor, names: list[str]) -> tuple[str, float]:
    """Compare gradients again, with the page's ReLUs and maxima in torch's backward.

    Returns
    -------
    moved : str
        The number of units active in only one of torch and the page, of all.
    same : float
        The largest remaining difference of gradients, as a fraction of the largest value.
    """
    model, kinks = spelled_out(model)
    session = Session(model, prepare_input(x, model))
    # Also the inputs of max pooling, whose positions are computed again from the page's numbers.
    pools = [f"{each}.0" for each in kinks if not _is_relu(model, each)]
    every = [*names, *kinks, *pools]
    network = export_network(session, session.run(layers=every), every)
    with torch.no_grad():
        classes = model(other).shape[1]
    answer, _ = answered(network, other, classes)
    with hookviz.capture(model, kinks) as own:
        model(other)
    moved = total = 0
    for each in filter(lambda name: _is_relu(model, name), kinks):
        on = own[each].activation.detach().numpy() > 0
        moved += int(((answer[f"activation:{each}"] > 0) != on).sum())
        total += on.size
    twin = decided(model, kinks, answer)
    with hookviz.capture(twin, names) as cache:
        twin(other)[0, CLASS].backward()
    same = 0.0
    for layer in network.layers:
        if layer.graded and layer.layer in names:
            gradient = cache[layer.layer].calls[layer.call].gradient
            same = max(same, farthest(answer[f"gradient:{layer.name}"], gradient))
    return f"{moved} of {total:,}", same


def spelled_out(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """Return the network with a separate module for each ReLU and max pooling, and their names."""
    graph, names = fx.symbolic_trace(model), []
    modules = dict(graph.named_modules())
    for node in [*graph.graph.nodes]:
        module = modules.get(node.target) if node.op == "call_module" else None
        if isinstance(module, nn.ReLU) or node.target in (nn.functional.relu, torch.relu):
            kink: nn.Module = nn.ReLU()
        elif isinstance(module, nn.MaxPool2d):
            kink = nn.Sequential(nn.Identity(), copy.deepcopy(module))
        else:
            continue
        names.append(f"kink{len(names)}")
        graph.add_module(names[-1], kink)
        with graph.graph.inserting_before(node):
            node.replace_all_uses_with(graph.graph.call_module(names[-1], (node.args[0],)))
        graph.graph.erase_node(node)
    graph.recompile()
    return graph.eval(), names


def decided(model: nn.Module, kinks: Sequence[str], answer: dict[str, np.ndarray]) -> nn.Module:
    """Return a network that uses the ReLUs and maxima of a page's result, also in the backward."""
    twin = copy.deepcopy(model)
    for each in kinks:
        if _is_relu(model, each):
            on = torch.from_numpy(answer[f"activation:{each}"] > 0)
            setattr(twin, each, Gate(on))
        else:
            pool = copy.deepcopy(model.get_submodule(f"{each}.1"))
            pool.return_indices = True
            setattr(twin, each, Taken(pool(torch.from_numpy(answer[f"activation:{each}.0"]))[1]))
    return twin


def _is_relu(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name), nn.ReLU)


class Gate(nn.Module):
    """A ReLU with a fixed mask for the gradient."""

    def __init__(self, on: Tensor) -> None:
        super().__init__()
        self.on = on

    def forward(self, x: Tensor) -> Tensor:
        # The value is relu(x), but the gradient is the mask: the detached difference is constant.
        passed = x * self.on
        return passed + (x.relu() - passed).detach()


class Taken(nn.Module):
    """A max pooling with fixed positions of the maxima."""

    def __init__(self, places: Tensor) -> None:
        super().__init__()
        self.places = places

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).gather(2, self.places.flatten(2)).view(self.places.shape)


def answered(network: Any, x: Tensor, classes: int) -> tuple[dict[str, np.ndarray], float]:
    """Return all outputs for one class, and the seconds on one thread."""
    import onnxruntime  # imported here, since the oldest tested versions lack it

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(network.model, options)
    given = {"input": x.numpy(), "classes": np.eye(classes, dtype=np.float32)[CLASS][None]}
    given["scales"] = np.ones(network.inputs["scales"], np.float32)
    given = {name: each for name, each in given.items() if name in network.inputs}
    session.run(["logits"], given)
    start = time.perf_counter()
    found = session.run(network.outputs, given)
    return dict(zip(network.outputs, found, strict=True)), time.perf_counter() - start


def farthest(found: np.ndarray, wanted: Tensor) -> float:
    """Return the largest difference, as a fraction of the largest value."""
    expected = wanted.detach().numpy()
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-30))


def relative(found: np.ndarray, wanted: Tensor) -> float:
    """Return the Euclidean distance, as a fraction of the norm."""
    expected = wanted.detach().double().numpy()
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


def page_of(rows: dict[str, str], notes: list[str], apart: Sequence[str]) -> str:
    """Return the page with rows by network name; ``apart`` names networks that ran alone."""
    refused = sum("refused" in each for each in rows.values())
    when = "in one run"
    if apart:
        when = f"in more than one run ({', '.join(apart)} apart: compare no times with theirs)"
    text = (
        "# Networks in a page\n\n"
        f"Written by `make network`, {when}.\n\n"
        f"{len(rows)} classifiers of torchvision with random weights and calibrated\n"
        f"BatchNorms, {SIDE}×{SIDE}: {len(rows) - refused} exported, {refused} refused.\n"
        "ONNX Runtime runs each for a picture and a class of which the export knew nothing;\n"
        "logits, every layer's maps and gradients are compared with torch's float32: the\n"
        "largest difference, as a fraction of the tensor's largest value, in the worst layer; of\n"
        "gradients also `‖g − g'‖ / ‖g‖`, by norm. Where rounding moves one value across a ReLU's\n"
        "zero its gradient comes or goes as a whole, which all earlier layers have. So gradients\n"
        f"that differ by more than {ROUNDING:.0e} are traced: `moved` counts units that are on in\n"
        "one of torch and the page alone, and `same units` is the largest difference that is\n"
        "left where torch's backward has the page's own units and maxima. MB are those of\n"
        "float32 weights, and packed as in a page, without the runtime's 4.6. Seconds on one\n"
        "thread of a busy machine, of one forward and backward with all maps and gradients.\n\n"
        "| network | layers | MB | packed | logits | maps | gradients | by norm | moved "
        "| same units | export s | run s | torch s |\n|"
    )
    text += "---|" * 13 + "\n"
    text += "".join(f"{each}\n" for each in rows.values())
    return text + "".join(f"\n{each}\n" for each in notes)


def known() -> tuple[dict[str, str], list[str]]:
    """Return the rows and the notes of the existing page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    rows = {each.split(" | ")[0][2:]: each for each in lines if each.startswith("| ")}
    rows.pop("network", None)
    return rows, [each for each in lines if each.partition(":")[0] in rows]


def main(names: list[str]) -> None:
    """Write the page, with each network's row as soon as it is measured."""
    torch.set_num_threads(1)
    rows, notes = known() if names else ({}, [])
    for name in names or NAMES:
        row = examined(name)
        rows[name] = row.cells
        notes = [each for each in notes if not each.startswith(f"{name}:")]
        notes += [f"{name}: {row.note}"] if row.note else []
        print(row.cells, row.note, flush=True)
        PAGE.write_text(page_of(rows, notes, names), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
