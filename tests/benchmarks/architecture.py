"""The time in which a network's map is folded and laid out, beside dagre on the whole graph."""

from __future__ import annotations

import json
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
import torchvision
from deno import find_deno_bin
from torch import Tensor, nn

import hookviz
from hookviz.studies.graph.graph import graph_payload

BLOCKS = {
    "resnet152": "layer2.3",
    "densenet161": "features.denseblock2",
    "googlenet": "inception4a",
    "efficientnet_b0": "features.4",
    "unet": "down.1",
    "fcos_resnet50_fpn": "backbone.body",
}
"""Network -> a block that is opened."""


class UNet(nn.Module):
    """Four steps down, four up, and a concatenation at each."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        sizes = [3, *(width * 2**n for n in range(5))]
        self.down = nn.ModuleList(_double(a, b) for a, b in pairwise(sizes[:-1]))
        self.middle = _double(sizes[-2], sizes[-1])
        ways = [*zip(sizes[:1:-1], sizes[-2:0:-1], strict=True)]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in ways)
        self.join = nn.ModuleList(_double(a, b) for a, b in ways)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = nn.functional.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept), strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


def _double(before: int, after: int) -> nn.Sequential:
    first, second = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "unet":
        return UNet().eval()
    if name.startswith("fcos"):
        options = {"weights": None, "weights_backbone": None, "min_size": 96, "score_thresh": 0.0}
        return torchvision.models.get_model(name, **options).eval()
    options = {"init_weights": False} if name == "googlenet" else {}
    return torchvision.models.get_model(name, **options).eval()


def run(*, quick: bool = False) -> None:
    """Print milliseconds: the library loaded and the map opened, a block opened, that once more."""
    head = ("network", "nodes", "edges", "boxes", "first", "block", "warm", "dagre, all", "ratio")
    print("".join(each.rjust(18 if not n else 11) for n, each in enumerate(head)))
    for name, block in BLOCKS.items():
        model, x = model_of(name), torch.rand(1, 3, 64, 64)
        given = ([x[0]],) if name.startswith("fcos") else x
        graph = graph_payload(hookviz.graph(model, given), model)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.json"
            path.write_text(json.dumps(graph))
            here = Path(__file__).with_name("architecture.js")
            command = [find_deno_bin(), "run", "--allow-read", str(here), str(path), block]
            command += ["1" if quick else "9"]
            found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        flat = found["flat"]
        cells = [name, found["nodes"], found["edges"], f"{found['boxes']}, {found['opened']}"]
        cells += [f"{found[each]:.0f} ms" for each in ("first", "block", "warm")]
        cells += [f"{flat:.0f} ms", f"{found['first'] / flat:.2f}"] if flat else ["–", "–"]
        print("".join(str(each).rjust(18 if not n else 11) for n, each in enumerate(cells)))
