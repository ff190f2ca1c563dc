"""Compare receptive fields with perturbed pixels: ``python -m tests.zoo.fields``.

On every convolution of 20 torchvision models with random weights, each pixel of a small input is
changed, and the positions of each map that change with it are recorded. The field of a position is
the box around its pixels; `hookviz.receptive_field` must have the same box for every position.
`perturbed.py` explains the method. Results are stored in test-output/zoo/fields, a file per model;
a second run checks only models without a result or with a fault.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import torch
import torchvision
from perturbed import Perturbed, randomize, told
from torch import Tensor, nn

import hookviz
from zoo.report import table, with_version

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
Boxes = Tensor
"""``(2 * D, *places)``: from, and to."""


@dataclass
class Found:
    """The result of one model: its convolutions by status, and those that were not equal."""

    name: str
    size: tuple[int, ...]
    statuses: dict[str, int] = field(default_factory=dict)
    places: int = 0
    too_small: int = 0  # positions that changed with a pixel outside their box
    too_large: int = 0  # positions whose box no round of perturbations filled
    rounds: int = 0
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        """Return the number of positions whose boxes differ."""
        return self.too_small + self.too_large


def built(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model in double precision, and an input."""
    options = dict(MODELS[name])
    size = options.pop("size", SIZE)
    model = torchvision.models.get_model(name, weights=None, **options).eval().double()
    return model, torch.zeros(1, 3, *size, dtype=torch.float64)


def look(name: str) -> Found:
    """Check one model."""
    model, x = built(name)
    randomize(model, torch.Generator().manual_seed(0), biases=True)
    found = Found(name, tuple(x.shape[2:]))
    begun = time.perf_counter()
    fields = hookviz.receptive_field(model, x, None)
    found.seconds = time.perf_counter() - begun
    found.statuses = dict(Counter(each.status for each in fields.values()))
    boxes = {layer: told(each) for layer, each in fields.items()}
    truth = Perturbed(model, fields, x)
    for seed in range(ROUNDS):
        truth.round(seed)
        found.rounds = seed + 1
        if all(torch.equal(box, boxes[layer]) for layer, box in truth.boxes.items()):
            break
    half = x.ndim - 2
    for layer, seen in truth.boxes.items():
        said = boxes[layer]
        outside = (seen[:half] < said[:half]).any(0) | (seen[half:] > said[half:]).any(0)
        unlike = (seen != said).any(0)
        found.places += unlike.numel()
        found.too_small += int(outside.sum())
        found.too_large += int((unlike & ~outside).sum())
    return found


def written(found: list[Found]) -> str:
    """Return the page."""
    convolutions = sum(sum(each.statuses.values()) for each in found)
    places = sum(each.places for each in found)
    wrong = sum(each.wrong for each in found)
    rows = [
        (
            each.name,
            "×".join(map(str, each.size)),
            *(each.statuses.get(status, 0) for status in ("exact", "whole input")),
            each.statuses.get("data-dependent", 0) + each.statuses.get("unknown", 0),
            each.places,
            each.too_small,
            each.too_large,
            each.rounds,
            f"{each.seconds:.1f}",
        )
        for each in found
    ]
    header = ["model", "input", "exact", "whole input", "neither", "places", "too small"]
    header += ["too large", "rounds", "seconds"]
    lines = [
        "# Receptive fields",
        "",
        "Written by `python -m tests.zoo.fields`. Each pixel of an input was changed, one by one,",
        "and the places that changed with it noted, in every convolution; in each round with other",
        "random weights. Too small: places that saw a pixel outside of the box that",
        "`hookviz.receptive_field` says. Too large: boxes of which some side was never seen.",
        "",
        f"**{len(found)} models, {convolutions} convolutions, {places} places: "
        f"{wrong} boxes differ.**",
        "",
        *table(header, rows),
        "",
        "Seconds: of all fields of the model, on one thread.",
        "",
        ", ".join(with_version(each) for each in ("torch", "torchvision")),
    ]
    return "\n".join(lines) + "\n"


def kept(name: str) -> Found:
    """Return the stored result of a model, of this or an earlier run."""
    file = Path("test-output/zoo/fields", f"{name}.json")
    found = Found(**json.loads(file.read_text())) if file.exists() else None
    if found is not None and not found.wrong:
        return found
    found = look(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(found), indent=1))
    print(found, flush=True)
    return found


def main() -> int:
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(MODELS)
    found = [kept(name) for name in names]
    if names == list(MODELS):
        Path(__file__).with_name("FIELDS.md").write_text(written(found))
    return int(any(each.wrong for each in found))


if __name__ == "__main__":
    sys.exit(main())
