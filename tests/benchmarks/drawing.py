"""What it costs the kernel to draw a step of the sliders."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import torch
import torchvision
from matplotlib import pyplot as plt
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from PIL import Image

import hookviz
from hookviz.draw.colours import palette
from hookviz.draw.mosaic import mosaic

from .race import print_table, race

CMAP = "viridis"


def run(*, quick: bool = False) -> None:
    """Race pictures of resnet50's first convolution: 64 maps of 112×112."""
    matplotlib.use("agg")
    rounds, slow_rounds = (10, 2) if quick else (100, 11)
    explorer = new_explorer()
    maps = explorer.cache["conv1"].activation[0].numpy()
    layers = len(explorer.cache)

    channel_steps = {
        "a new pyplot figure, one map": new_figures(maps),
        "a kept figure, one map": kept_figure(maps),
        "explorer.channel = k, everything": steps(explorer, "channel", range(1, len(maps))),
    }
    print_table("channel step, one map of 112×112", race(channel_steps, rounds))

    names = [*list(explorer.cache)[1:], "conv1"]  # it stands on conv1
    layer_steps = {"explorer.layer = name": steps(explorer, "layer", names)}
    title = f"layer step, everything redrawn, all {layers} layers in turn"
    print_table(title, race(layer_steps, (1 if quick else 4) * layers, warmups=0))
    explorer.close()

    mosaics = {"8×8 subplots": lambda: subplots(maps), "mosaic": lambda: one_picture(maps)}
    print_table("mosaic of 64 maps of 112×112", race(mosaics, slow_rounds))


def new_explorer() -> hookviz.widgets.Explorer:
    """An explorer of resnet50 with random weights, at its first layer."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().eval()
    with get_sample_data("grace_hopper.jpg") as file:
        return hookviz.explore(model, file.name, layer="conv1")


def steps(explorer: hookviz.widgets.Explorer, setting: str, values: Any) -> Callable[[], None]:
    """Set the setting to the next value at each call; every one differs from the one before."""
    values = cycle(values)
    return lambda: setattr(explorer, setting, next(values))


def new_figures(maps: np.ndarray) -> Callable[[], bytes]:
    """What ``plt.imshow`` in a cell does."""
    channels = cycle(maps)

    def draw() -> bytes:
        figure = plt.figure()
        plt.imshow(next(channels), cmap=CMAP)
        png = to_png(figure)
        plt.close(figure)
        return png

    return draw


def kept_figure(maps: np.ndarray) -> Callable[[], bytes]:
    """The usual advice for speed: one figure, whose data change."""
    channels = cycle(maps)
    figure = Figure()
    picture = figure.subplots().imshow(maps[0], cmap=CMAP)

    def draw() -> bytes:
        picture.set_data(next(channels))
        picture.autoscale()
        return to_png(figure)

    return draw


def subplots(maps: np.ndarray) -> bytes:
    figure, axes = plt.subplots(8, 8)
    for axis, values in zip(axes.flat, maps, strict=True):
        axis.imshow(values, cmap=CMAP)
        axis.axis("off")
    png = to_png(figure)
    plt.close(figure)
    return png


def one_picture(maps: np.ndarray) -> bytes:
    """The mosaic, from the maps to the PNG, every map in its own colour range."""
    tiles = mosaic(maps, maps.min((1, 2)), maps.max((1, 2)))
    image = Image.fromarray(tiles.levels)
    image.putpalette(palette(CMAP)[:, :3].tobytes())
    image.save(buffer := io.BytesIO(), "PNG", compress_level=1)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
