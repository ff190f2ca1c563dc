"""Compare receptive fields with perturbed pixels: ``python -m tests.zoo.fields``.

On every convolution of 20 torchvision models with random weights, each pixel of a small input is
changed, and the positions of each map that change with it are recorded. The field of a position is
the box around its pixels; `hookviz.receptive_field` must have the same box for every position.
`perturbed.py` explains the method. Results are stored in test-output/fields, a file per model;
a second run checks only models without a result or with a fault.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import torch
import torchvision
from perturbed import Perturbed, all_boxes, randomize

import hookviz
from zoo.check import Result, said
from zoo.report import NAME, Report
from zoo.runner import Runner

SIZE, ROUNDS = (40, 32), 12
MODELS: dict[str, dict[str, Any]] = {
    "alexnet": {"size": (72, 64)},
    "vgg11_bn": {"size": (48, 40)},
    "squeezenet1_1": {"size": (48, 40)},
    "googlenet": {"init_weights": False, "size": (48, 40)},
    "inception_v3": {"init_weights": False, "size": (84, 76)},
    "densenet121": {},
    "resnet18": {},
    "resnext50_32x4d": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mnasnet0_5": {},
    "shufflenet_v2_x0_5": {"size": (64, 48)},
    "regnet_x_400mf": {},
    "regnet_y_400mf": {},
    "efficientnet_b0": {},
    "convnext_tiny": {},
    "swin_t": {},
    "vit_b_32": {"image_size": 64, "size": (64, 64)},
    "fcn_resnet50": {"weights_backbone": None, "size": (32, 24)},
    "r3d_18": {"size": (4, 16, 12)},
}


@dataclass(frozen=True)
class Case:
    """A model of torchvision in double precision, and its input."""

    name: str
    kind = "fields"
    refused = ""

    @property
    def shape(self):
        """Return the shape of the input."""
        return 1, 3, *MODELS[self.name].get("size", SIZE)

    def build(self, gain=1.0):
        """Build the model with random weights."""
        options = {key: value for key, value in MODELS[self.name].items() if key != "size"}
        model = torchvision.models.get_model(self.name, weights=None, **options).eval().double()
        randomize(model, torch.Generator().manual_seed(0), biases=True)
        return model

    def input(self):
        return torch.zeros(self.shape, dtype=torch.float64)


@dataclass
class Fields(Result):
    """The result for one model: its convolutions by status, and the positions that differ."""

    statuses: dict[str, int] = field(default_factory=dict)
    positions: int = 0
    too_small: int = 0  # positions that changed with a pixel outside their box
    too_large: int = 0  # positions whose box no round of perturbations filled
    rounds: int = 0
    seconds: float = 0.0


def check(case):
    """Check one model; never raises."""
    result = Fields(case.name, case.kind, case.shape)
    try:
        _compare(case, result)
    except Exception as error:
        result.error = said(error)
    return result


def _compare(case, result):
    model, x = case.build(), case.input()
    begun = time.perf_counter()
    fields = hookviz.receptive_field(model, x, None)
    result.seconds = time.perf_counter() - begun
    result.layers = result.calls = len(fields)
    result.statuses = dict(Counter(each.status for each in fields.values()))
    boxes = {layer: all_boxes(each) for layer, each in fields.items()}
    truth = Perturbed(model, fields, x)
    for seed in range(ROUNDS):
        truth.round(seed)
        result.rounds = seed + 1
        if all(torch.equal(box, boxes[layer]) for layer, box in truth.boxes.items()):
            break
    half = x.ndim - 2
    for layer, seen in truth.boxes.items():
        expected = boxes[layer]
        outside = (seen[:half] < expected[:half]).any(0) | (seen[half:] > expected[half:]).any(0)
        unlike = (seen != expected).any(0)
        result.positions += unlike.numel()
        result.too_small += int(outside.sum())
        result.too_large += int((unlike & ~outside).sum())
        if unlike.any():
            result.wrong.append(f"{layer}: {unlike.sum()} positions")


FIELDS = Report(
    "Receptive fields",
    "Each pixel of an input was changed, one by one, and the positions that changed with it "
    "recorded, in every convolution; in each round with other random weights. Written by `make "
    "fields`.",
    "Too small: positions that changed with a pixel outside of the box that "
    "`hookviz.receptive_field` names. Too large: boxes of which some side was never seen. Seconds: "
    "of all fields of the model, on one thread.",
    {
        "convolutions": lambda result: result.layers,
        "positions": lambda result: result.positions,
        "boxes that differ": lambda result: result.too_small + result.too_large,
    },
    {
        **NAME,
        "exact": lambda result: result.statuses.get("exact", 0),
        "whole input": lambda result: result.statuses.get("whole input", 0),
        "neither": lambda result: (
            result.statuses.get("data-dependent", 0) + result.statuses.get("unknown", 0)
        ),
        "positions": lambda result: result.positions,
        "too small": lambda result: result.too_small,
        "too large": lambda result: result.too_large,
        "rounds": lambda result: result.rounds,
        "seconds": lambda result: f"{result.seconds:.1f}",
    },
    ("torch", "torchvision"),
)

if __name__ == "__main__":
    runner = Runner(Path("test-output/fields"), check, Fields)
    cases = {name: Case(name) for name in MODELS}
    page = Path(__file__).with_name("FIELDS.md")
    sys.exit(runner.main(__doc__, cases, page, FIELDS))
