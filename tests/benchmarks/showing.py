"""The cost of drawing, of explorers and their pages, of a map's layout, and of memory."""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib
import numpy as np
import torch
from deno import find_deno_bin
from limits.networks import network as large_network
from limits.networks import pictures
from limits.peak import measure
from limits.spy import sent_by
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

import hookviz
from benchmarks.passes import network, steps
from benchmarks.race import Table, raced
from hookviz.draw.colours import palette
from hookviz.draw.mosaic import mosaic
from hookviz.studies.graph.graph import graph_payload

MB = 1_000_000
BLOCKS = {
    "unet": "down.1",
    "resnet152": "layer2.3",
    "densenet161": "features.denseblock2",
    "googlenet": "inception4a",
    "efficientnet_b0": "features.4",
    "fcos_resnet50_fpn": "backbone.body",
}
"""Network -> the block of its map that the benchmark opens."""


def drawing(quick: bool) -> Iterator[Table]:
    """Move a slider by one step, as measured in the kernel."""
    matplotlib.use("agg")
    explorer = hookviz.explore(network("resnet50"), photograph(), layer="conv1")
    maps = explorer.cache["conv1"].activation[0].numpy()
    names = [*list(explorer.cache)[1:], "conv1"]  # conv1 last, since it is shown at first
    contenders = {
        "a new pyplot figure of one map": new_figures(maps),
        "a kept figure of one map": kept_figure(maps),
        "explorer.channel = …, everything": steps(explorer, "channel", range(1, len(maps))),
        "explorer.layer = …, everything": steps(explorer, "layer", names),
    }
    yield raced("resnet50, 64 maps of 112×112: a step", contenders, 5 if quick else 50)
    explorer.close()
    mosaics = {"8×8 subplots": lambda: subplots(maps), "a mosaic": lambda: one_picture(maps)}
    yield raced("64 maps of 112×112 as one picture", mosaics, 1 if quick else 3)


def photograph() -> Image.Image:
    return hookviz.models.photographs()["chelsea"]


def new_figures(maps: np.ndarray) -> Callable[[], bytes]:
    """Return a function that draws as ``plt.imshow`` in a cell does."""
    channels = cycle(maps)

    def draw() -> bytes:
        figure = plt.figure()
        plt.imshow(next(channels), cmap="viridis")
        png = to_png(figure)
        plt.close(figure)
        return png

    return draw


def kept_figure(maps: np.ndarray) -> Callable[[], bytes]:
    """Return a function that changes the data of one figure, the usual advice for speed."""
    channels, figure = cycle(maps), Figure()
    shown = figure.subplots().imshow(maps[0], cmap="viridis")

    def draw() -> bytes:
        shown.set_data(next(channels))
        shown.autoscale()
        return to_png(figure)

    return draw


def subplots(maps: np.ndarray) -> bytes:
    figure, axes = plt.subplots(8, 8)
    for axis, values in zip(axes.flat, maps, strict=True):
        axis.imshow(values, cmap="viridis")
        axis.axis("off")
    png = to_png(figure)
    plt.close(figure)
    return png


def one_picture(maps: np.ndarray) -> bytes:
    """Draw the mosaic as a PNG, with a separate colour range for each map."""
    image = Image.fromarray(mosaic(maps, maps.min((1, 2)), maps.max((1, 2))).levels)
    image.putpalette(palette("viridis")[:, :3].tobytes())
    image.save(buffer := io.BytesIO(), "PNG", compress_level=1)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    figure.savefig(buffer := io.BytesIO(), format="png")
    return buffer.getvalue()


def explorers(quick: bool) -> Iterator[Table]:
    """Make an explorer, show it, and write it as a page."""
    rounds, warmups = (1, 0) if quick else (4, 1)
    lite, weights = hookviz.pretrained("efficientnet_lite0")
    cases: dict[str, tuple[Any, ...]] = {
        "demo": (hookviz.demo_model(), hookviz.demo_images()[6], None),
        "EfficientNet-Lite0": (lite, photograph(), weights),
        "resnet50": (network("resnet50"), photograph(), None),
    }
    for name, (model, picture, given) in [*cases.items()][: 1 if quick else None]:
        with ExitStack() as stack:
            # In a kernel, too, the explorer draws its still picture when it is made.
            stack.enter_context(patch("hookviz.widgets.plain.in_front_end", lambda widget: True))

            def make(stack=stack, model=model, picture=picture, given=given) -> Any:
                explorer = hookviz.explore(model, picture, weights=given)
                stack.callback(explorer.close)
                return explorer

            # Showing or writing an explorer again costs less, so each round uses a new explorer.
            shown, written = (iter([make() for _ in range(rounds + warmups)]) for _ in range(2))
            page = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "page.html"
            contenders = {
                "making an explorer": make,
                "showing it": lambda shown=shown: next(shown)._repr_mimebundle_(),
                "to_html": lambda written=written, page=page: next(written).to_html(page),
            }
            yield raced(f"{name}: an explorer and its page", contenders, rounds, warmups)


def memory(quick: bool) -> Iterator[Table]:
    """Measure each task's peak memory above model and input, and the messages to the browser."""
    cases = [("narrow", 1, 1024, 20)] if quick else [
        ("resnet50", 1, 2048, 1000), ("resnet152", 32, 224, 1000), ("vit_b_16", 1, 224, 10),
    ]  # fmt: skip
    for name, batch, side, budget in cases:
        ways = ["plain", "capture", "explore", "guard", "diagnose", "capture all", "compare"]
        if name.startswith("vit"):
            ways = ["plain", "attention", "attention and gradients"]
        rows, plain = [], 0
        for kind in ways:
            limits = (None, budget * MB) if kind in ("capture", "explore", "attention") else (None,)
            for most in limits:
                found = measure(kind, name, batch, side, most)
                plain = plain or found["peak"]
                numbers = [found["peak"] / MB, found["nbytes"] / MB]
                said = kind if most is None else f"{kind}, max_bytes={budget} MB"
                ratio = f"{found['peak'] / plain:.2f}"
                rows.append([said, f"{numbers[0]:.0f}", ratio, f"{numbers[1]:.0f}"])
        title = f"{name}, {batch} × {side}×{side}: peak memory"
        yield Table(title, ["", "peak MB", "ratio", "kept MB"], rows)
    yield messages(quick)


def messages(quick: bool) -> Table:
    """Count the messages and their bytes, which are the same on every machine."""
    cases = [("500 convolutions", 64), ("4096 channels", 56), ("narrow", 2048)]
    rows = []
    for name, side in cases[1:2] if quick else cases:
        model, x = large_network(name), pictures(1, side)
        with sent_by() as opening:
            explorer = hookviz.explore(model, x)
        sent, last = [opening], list(explorer.cache)[-1]
        for setting, value in (("channel", 1), ("layer", last), ("all_layers", True)):
            with sent_by() as sizes:
                setattr(explorer, setting, value)
            sent.append(sizes)
        explorer.close()
        told = [f"{len(s)}, {sum(s) / 1e3:.0f}, {max(s, default=0) / 1e3:.0f}" for s in sent]
        rows.append([f"{name}, {side}×{side}", *told])
    head = ["", "opened", "channel step", "layer step", "heatmaps of all layers"]
    return Table("messages to the browser: how many, kB, kB of the largest", head, rows)


class UNet(nn.Module):
    """Four steps down, four up, and a concatenation at each."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        sizes = [3, *(width * 2**n for n in range(5))]
        self.down = nn.ModuleList(double(a, b) for a, b in pairwise(sizes[:-1]))
        self.middle = double(sizes[-2], sizes[-1])
        ways = [*zip(sizes[:1:-1], sizes[-2:0:-1], strict=True)]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in ways)
        self.join = nn.ModuleList(double(a, b) for a, b in ways)
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


def double(before: int, after: int) -> nn.Sequential:
    first, second = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


def map_layout(quick: bool) -> Iterator[Table]:
    """Fold and lay out a network's map, compared with dagre on the whole graph."""
    rows = []
    for name, block in [*BLOCKS.items()][: 1 if quick else None]:
        x: Any = torch.rand(1, 3, 64, 64)
        if name.startswith("fcos"):
            options = {"weights_backbone": None, "min_size": 96, "score_thresh": 0.0}
            model, x = network(name, **options), ([x[0]],)
        else:
            model = UNet().eval() if name == "unet" else network(name)
        payload = graph_payload(hookviz.graph(model, x), model)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.json"
            path.write_text(json.dumps(payload))
            script = str(Path(__file__).with_name("map_layout.js"))
            command = [find_deno_bin(), "run", "--allow-read", script, str(path), block]
            command.append("1" if quick else "9")
            found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        ratio = f"{found['first'] / found['flat']:.2f}" if found["flat"] else "–"
        took = [f"{found[each]:.0f} ms" for each in ("first", "block", "warm")]
        rows.append([name, str(found["nodes"]), str(found["edges"]), *took, ratio])
    head = ["", "nodes", "edges", "opened", "a block opened", "again", "opened ÷ dagre on all"]
    yield Table("the map, folded and laid out", head, rows)
