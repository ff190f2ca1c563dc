"""Pictures of the how-tos, drawn when the documentation is built: one function for each page."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import hookviz
from hookviz.studies.trace.trace import trace_figure


def draw_howtos(folder: Path, write: Callable[[Path, bytes], None]) -> None:
    """Draw the pictures into `folder`, each named after its page."""
    for draw in (
        heatmaps, trust, edit, side_by_side, field, port, feature_visualization, plain, layers,
        debug, teach, network_page, lesson_plan,
    ):  # fmt: skip
        name = draw.__name__.replace("_", "-")
        write(folder / f"{name}.png", as_png(draw(), dpi=90, bbox_inches="tight"))
    write(folder / "map.svg", graph().encode())
    write(folder / "hooks.png", as_png(trace(), dpi=72))


def as_png(figure: Figure, **options: Any) -> bytes:
    """Return the bytes of a figure as a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", **options)
    return content.getvalue()


def shown_once(explorer: Any) -> Figure:
    """Return the figure of an explorer, and close it."""
    figure: Figure = explorer.figure()
    explorer.close()
    return figure


def row(pictures: dict[str, np.ndarray]) -> Figure:
    """Draw pictures in a row, each below its title."""
    figure = Figure(figsize=(2.5 * len(pictures), 2.8), layout="constrained")
    for axes, (title, pixels) in zip(
        figure.subplots(1, len(pictures)), pictures.items(), strict=True
    ):
        axes.imshow(pixels)
        axes.set_title(title, fontsize="medium")
        axes.set_axis_off()
    return figure


def heatmaps() -> Figure:
    """Draw the heatmaps of four methods at one layer."""
    cat = hookviz.models.photographs()["chelsea"]
    explorer = hookviz.explore("efficientnet_lite0", cat, layer="_blocks.14._project_conv")
    shown = {}
    names = {
        "gradcam": "Grad-CAM",
        "gradcam++": "Grad-CAM++",
        "hirescam": "HiResCAM",
        "layercam": "LayerCAM",
    }
    for method, title in names.items():
        explorer.heatmap = method
        assert explorer.frame.overlay is not None
        shown[title] = explorer.frame.overlay.pixels
    explorer.close()
    return row(shown)


def trust() -> Figure:
    """Draw the curve of a sanity check."""
    model, images = hookviz.demo_model(), hookviz.demo_images()
    return hookviz.metrics.sanity_check(model, images[6], "gradcam", steps=4).figure()


def edit() -> Figure:
    """Draw the difference in a later layer after a part of the input is covered."""
    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    explorer = hookviz.explore(model, fish, layer="layer3.0.conv1", channel=17, target="fish")
    explorer.edit("input", "mean", where=(slice(10, 48), slice(14, 62)))
    explorer.shown_run = "difference"
    return shown_once(explorer)


def side_by_side() -> Figure:
    """Draw the maps of two pictures at one layer, and their difference."""
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()
    return shown_once(both)


def field() -> Figure:
    """Draw the receptive fields of three layers around one position of the picture."""
    from matplotlib.patches import Rectangle

    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    figure = Figure(figsize=(3.4, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(fish)
    axes.set_axis_off()
    for colour, name in zip(("C0", "C1", "C2"), ("stem", "layer1.1", "layer2.0"), strict=True):
        found: Any = hookviz.receptive_field(model, fish, name)
        reach = found.start[0] + found.size[0] // 2
        place = [(pixel - reach) // found.stride[0] for pixel in (24, 32)]
        top, left, bottom, right = found.box(*place)
        axes.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, color=colour, label=name)
        )
    axes.legend(loc="lower left", fontsize="small")
    return figure


def port() -> Figure:
    """Draw the differences between two networks, layer by layer."""
    model = hookviz.demo_model()
    changed = copy.deepcopy(model)
    changed.get_submodule("layer2.1.bn1").eps = 0.1  # type: ignore[assignment]
    return hookviz.compare(model, changed, hookviz.demo_images()[6]).figure()


def feature_visualization() -> Figure:
    """Draw what excites the channels of two classes."""
    found = hookviz.feature_visualization(hookviz.demo_model(), "head.2", [1, 2], size=64, steps=96)
    return found.figure()


def plain() -> Figure:
    """Draw the plain face's picture."""
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6], face="plain")
    return shown_once(explorer)


def layers() -> Figure:
    """Draw the strongest channel of four layers, from the first to the last."""
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    shown = {}
    for name in ("stem.0", "layer1.1.conv2", "layer2.1.conv2", "layer3.1.conv2"):
        explorer.layer = name
        activation = explorer.cache[name].activation[0]
        shown[name] = activation[int(activation.flatten(1).amax(1).argmax())].numpy()
    explorer.close()
    return row(shown)


def debug() -> Figure:
    """Draw a layer whose gradient has an infinite value wherever a square root is 0."""

    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt().sum((1, 2, 3))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), Root())
    x = hookviz.attribution.prepare_input(hookviz.demo_images()[6], hookviz.demo_model()).args[0]
    explorer = hookviz.explore(model, x, layers="1", target=lambda output: output.sum())
    return shown_once(explorer)


def teach() -> Figure:
    """Draw the channel that is the answer to a question."""
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[3])
    explorer.layer, explorer.channel = "layer3.0.conv1", 81
    return shown_once(explorer)


def network_page() -> Figure:
    """Draw the difference in the last convolution after an earlier channel is switched off."""
    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    explorer = hookviz.explore(model, fish, layer="layer3.1.conv2", target="fish")
    explorer.edit("layer3.0.conv1", 0, channels=17)
    explorer.shown_run = "difference"
    return shown_once(explorer)


def lesson_plan() -> Figure:
    """Draw pictures with the class that the demo model sees in them."""
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    shown = {}
    for number in (0, 3, 6, 12):
        (x,) = hookviz.attribution.prepare_input(pictures[number], model).args
        with torch.no_grad():
            probability, top = model(x).softmax(1).max(1)
        name = model.class_names[int(top)]
        shown[f"{name}, {float(probability):.0%}"] = np.asarray(pictures[number])
    return row(shown)


def graph() -> str:
    """Draw a small network with a skip connection."""
    drawn = hookviz.graph(hookviz.demo_model().layer2[0], torch.rand(1, 24, 28, 28))._repr_html_()
    svg = drawn[drawn.index("<svg") : drawn.index("</svg>") + len("</svg>")]
    return svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)


def trace() -> Figure:
    """Draw an event of a trace."""
    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    return trace_figure(hookviz.trace(model, fish))
