"""The pictures of the how-tos, drawn when the documentation is built: a function for each page."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import hookviz

HOWTOS: dict[str, Callable[[], Figure]] = {}
"""What each how-to shows, by the name of its page."""


def howto(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    """Register a function that draws the picture of the how-to of its name."""
    HOWTOS[draw.__name__.replace("_", "-")] = draw
    return draw


def draw_howtos(folder: Path, write: Callable[[Path, bytes], None]) -> None:
    """Draw the picture of each how-to into `folder`."""
    for name, draw in HOWTOS.items():
        drawn = io.BytesIO()
        draw().savefig(drawn, format="png", dpi=90, bbox_inches="tight")
        write(folder / f"{name}.png", drawn.getvalue())


def row(pictures: dict[str, np.ndarray]) -> Figure:
    """Return a row of pictures, each below its title."""
    figure = Figure(figsize=(2.5 * len(pictures), 2.8), layout="constrained")
    for axes, (title, pixels) in zip(
        figure.subplots(1, len(pictures)), pictures.items(), strict=True
    ):
        axes.imshow(pixels)
        axes.set_title(title, fontsize="medium")
        axes.set_axis_off()
    return figure


@howto
def heatmaps() -> Figure:
    """Draw the heatmaps of one layer by four methods."""
    model, weights = hookviz.pretrained("efficientnet_lite0")
    cat = hookviz.models.photographs()["chelsea"]
    explorer = hookviz.explore(model, cat, weights=weights, layer="_blocks.14._project_conv")
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


@howto
def trust() -> Figure:
    """Draw the curve of a sanity check."""
    model, images = hookviz.demo_model(), hookviz.demo_images()
    return hookviz.metrics.sanity_check(model, images[6], "gradcam", steps=4).figure()


@howto
def edit() -> Figure:
    """Draw what a covered part of the input changes in a later layer."""
    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    explorer = hookviz.explore(model, fish, layer="layer3.0.conv1", channel=17, target="fish")
    explorer.edit("input", "mean", where=(slice(10, 48), slice(14, 62)))
    explorer.shown_run = "difference"
    figure = explorer.figure()
    explorer.close()
    return figure


@howto
def side_by_side() -> Figure:
    """Draw two pictures in one layer, and the difference."""
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    both = hookviz.compare(model, model, pictures[6], inputs_b=pictures[9]).show()
    figure = both.figure()
    both.close()
    return figure


@howto
def field() -> Figure:
    """Draw the boxes of three layers around the fish, over the picture."""
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


@howto
def port() -> Figure:
    """Draw the differences of two networks over their layers."""
    model = hookviz.demo_model()
    changed = copy.deepcopy(model)
    changed.get_submodule("layer2.1.bn1").eps = 0.1  # type: ignore[assignment]
    return hookviz.compare(model, changed, hookviz.demo_images()[6]).figure()


@howto
def share() -> Figure:
    """Draw a view."""
    explorer = hookviz.explore(
        hookviz.demo_model(), hookviz.demo_images()[12], layer="layer3.0.conv1"
    )
    figure = explorer.figure()
    explorer.close()
    return figure
