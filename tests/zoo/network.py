"""Export classifiers as networks of a page, run them in ONNX Runtime, and compare with torch.

Results are stored in test-output/network, a file per model; a second run checks only models without
a result or with a fault.
"""

from __future__ import annotations

import math
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import numpy as np
import torch
import torchvision
from torch import Tensor, nn

import hookviz
from hookviz.export.network.onnx_graph import export_network
from hookviz.export.network.traced import NetworkError
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session
from zoo.check import Result, said
from zoo.report import NAME, Report
from zoo.runner import Runner

SIDE, CLASS = 224, 3
MOST = {"logits": 1e-3, "maps": 1e-3, "by norm": 0.1}
"""The largest accepted distances. Where rounding moves one value across a ReLU's zero, its gradient
comes or goes as a whole, in all earlier layers: so gradients are compared by norm."""
NAMES = (
    *("alexnet", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x1_0", "resnet18"),
    *("efficientnet_b0", "regnet_y_400mf", "googlenet", "resnet50", "vgg11_bn", "convnext_tiny"),
    *("densenet121", "swin_t", "vit_b_16"),
)


@dataclass(frozen=True)
class Case:
    """A classifier of torchvision with random weights and calibrated BatchNorms."""

    name: str
    kind = "network"
    shape = (1, 3, SIDE, SIDE)
    refused = ""

    def build(self, gain=1.0):
        return calibrated(self.name)

    def input(self):
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(0))


@dataclass
class Exported(Result):
    """The result for one model: bytes, seconds, and the distances of the worst layer."""

    note: str = ""
    size: int = 0
    packed: int = 0
    exported: float = math.nan
    seconds: float = math.nan
    torch: float = math.nan
    logits: float = math.nan
    maps: float = math.nan
    gradients: float = math.nan
    by_norm: float = math.nan  # the gradients' distance, as a fraction of their norm


def calibrated(name):
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


def _options(name):
    return {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}


def check(case):
    """Export a network, and compare outputs and gradients for another input and class."""
    result = Exported(case.name, case.kind, case.shape)
    try:
        _compare(case, result)
    except NetworkError as error:
        result.refused.append(error.operation or str(error))
    except Exception as error:
        result.error = said(error)
    return result


def _compare(case, result):
    model, x = case.build(), case.input()
    session = Session(model, prepare_input(x, model))
    run = session.run()
    names = [each for each in run.cache if not hasattr(run.cache[each], "attends")]
    result.layers = result.calls = len(names)
    start = time.perf_counter()
    network = export_network(session, run, names)
    result.exported, result.note = time.perf_counter() - start, network.note
    result.size, result.packed = len(network.model), len(zlib.compress(network.model, 6))
    other = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    start = time.perf_counter()
    with hookviz.capture(model) as cache:
        logits = model(other)
        logits[0, CLASS].backward()
    result.torch = time.perf_counter() - start
    answer, result.seconds = answered(network, other, logits.shape[1])
    result.logits = farthest(answer["logits"], logits)
    pairs: dict[str, list[tuple[np.ndarray, Tensor]]] = {"activation": [], "gradient": []}
    for each in network.layers:
        call = cache[each.layer].calls[each.call]
        for what in ["activation", "gradient"][: 1 + each.graded]:
            pairs[what].append((answer[f"{what}:{each.name}"], getattr(call, what)))
    result.maps = max((farthest(*pair) for pair in pairs["activation"]), default=math.nan)
    result.gradients = max((farthest(*pair) for pair in pairs["gradient"]), default=math.nan)
    result.by_norm = max((relative(*pair) for pair in pairs["gradient"]), default=math.nan)
    distances = zip(MOST, (result.logits, result.maps, result.by_norm), strict=True)
    result.wrong = [f"{what}: {found:.1e}" for what, found in distances if found > MOST[what]]


def answered(network, x, classes):
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


def farthest(found, wanted):
    """Return the largest difference, as a fraction of the largest value."""
    expected = wanted.detach().numpy()
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-30))


def relative(found, wanted):
    """Return the Euclidean distance, as a fraction of the norm."""
    expected = wanted.detach().double().numpy()
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


NETWORK = Report(
    "Networks in a page",
    f"Classifiers of torchvision with random weights and calibrated BatchNorms, {SIDE}×{SIDE}. "
    "Written by `make network`.",
    "ONNX Runtime runs each for a picture and a class that the export did not see; logits, every "
    "layer's maps and gradients are compared with torch's float32: the largest difference, as a "
    "fraction of the tensor's largest value, in the worst layer; of gradients also "
    "`‖g − g'‖ / ‖g‖`, by norm. Where rounding moves one value across a ReLU's zero, its gradient "
    "comes or goes as a whole, in all earlier layers, so single gradients may differ; with the "
    "page's units in torch's backward all were equal to 2e-5 (measured once, up to commit "
    "1c4e0c31). MB are those of float32 weights, and packed as in a page, without the runtime's "
    "4.6. Seconds on one thread, of one forward and backward with all maps and gradients.",
    {
        "exported": lambda result: not result.refused,
        "refused": lambda result: bool(result.refused),
        "wrong": lambda result: bool(result.faults),
    },
    {
        **NAME,
        "layers": lambda result: result.layers,
        "MB": lambda result: f"{result.size / 1e6:.1f}",
        "packed": lambda result: f"{result.packed / 1e6:.1f}",
        "logits": lambda result: f"{result.logits:.1e}",
        "maps": lambda result: f"{result.maps:.1e}",
        "gradients": lambda result: f"{result.gradients:.1e}",
        "by norm": lambda result: f"{result.by_norm:.1e}",
        "export s": lambda result: f"{result.exported:.0f}",
        "run s": lambda result: f"{result.seconds:.2f}",
        "torch s": lambda result: f"{result.torch:.2f}",
        "": lambda result: "; ".join([*result.faults, *result.refused, result.note]),
    },
    ("torch", "torchvision", "onnxruntime"),
)

if __name__ == "__main__":
    runner = Runner(Path("test-output/network"), check, Exported)
    page = Path(__file__).with_name("NETWORK.md")
    sys.exit(runner.main(__doc__, {name: Case(name) for name in NAMES}, page, NETWORK))
