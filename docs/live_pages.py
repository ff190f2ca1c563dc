"""The pages that the documentation shows live: written when it is built, by trained networks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, cross_entropy

import hookviz

LARGEST = 1.5e6
STEPS, FAULT = 120, 90  # said in live.md, too


def write_pages(folder: Path, write: Callable[[Path, bytes], None]) -> None:
    """All of them, into a folder that Sphinx copies as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in (network, explorer, trace, survey, training):
        write(folder / f"{make.__name__}.html", make().encode())


def network() -> str:
    """Return a page in which the demo network runs; without its runtime, of what it returned."""
    model, fish = hookviz.demo_model(), hookviz.demo_images()[12]
    shown = hookviz.explore(model, fish, layer="layer2.1.conv2")
    for name in ("onnxscript", "onnx_ir"):  # which warn of each weight
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        page = shown.to_html(network=True)
    except (ImportError, OSError) as error:  # of onnx, and of the runtime
        print(f"The first page shows a network that does not run: {error}")
        page = shown.to_html(max_bytes=LARGEST)
    shown.close()
    return page or ""


def explorer() -> str:
    """Return a page of some layers of EfficientNet-Lite0, trained on ImageNet, on a photograph."""
    cat = hookviz.models.photographs()["chelsea"]
    layers = ["_conv_stem", "*._depthwise_conv", "_conv_head"]
    shown = hookviz.explore("efficientnet_lite0", cat, layers=layers, layer=layers[-1])
    page = shown.to_html(max_bytes=2 * LARGEST)
    shown.close()
    return page or ""


def trace() -> str:
    """Every hook of one forward and backward."""
    found = hookviz.trace(hookviz.demo_model(), hookviz.demo_images()[12])
    return found.to_html(max_bytes=LARGEST) or ""


def survey() -> str:
    """Survey the channels of two layers."""
    model, pictures = hookviz.demo_model(), hookviz.demo_images()
    labelled = [(each, model.class_names.index(each.info["label"])) for each in pictures]
    found = hookviz.survey(model, labelled, "layer3.*.conv2")
    return found.to_html(max_bytes=LARGEST) or ""


def training() -> str:
    """Record a training whose learning rate is a thousand times too large from step `FAULT` on."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential()
        for number, (given, made) in enumerate(((3, 12), (12, 24), (24, 24))):
            model.add_module(f"conv{number}", nn.Conv2d(given, made, 3, stride=1 + number % 2))
            model.add_module(f"norm{number}", nn.BatchNorm2d(made))
            model.add_module(f"relu{number}", nn.ReLU())
        model.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)])
        names, pictures = hookviz.demo_model().class_names, hookviz.demo_images()
        classes = torch.tensor([names.index(each.info["label"]) for each in pictures])
        inputs = torch.cat(
            [hookviz.attribution.prepare_input(each, model).args[0] for each in pictures]
        )
        inputs = avg_pool2d(inputs, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        watch = hookviz.watch(model, every=2, probe=inputs[12:13], max_bytes=1e6)
        for step in range(STEPS):
            some = torch.randint(0, len(classes), (16,))
            if step == FAULT:
                optimizer.param_groups[0]["lr"] *= 1000
            with watch:
                loss = cross_entropy(model(inputs[some]), classes[some])
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
    return watch.to_html(max_bytes=LARGEST) or ""
