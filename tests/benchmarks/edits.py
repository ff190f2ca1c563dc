"""What an edit costs: a forward with a channel off, and all channels of a layer ablated."""

from __future__ import annotations

import itertools
import time

import torch
import torchvision
from torch import nn

import hookviz
from hookviz.hooking.edit import LayerEdit
from hookviz.run.inputs import prepare_input
from hookviz.run.replay import Replay
from hookviz.run.session import Session

from .capture import Contenders
from .race import print_table, race

STAGES = ("conv1", "layer2.0.conv2", "layer3.0.conv2", "layer4.0.conv2", "layer4.2.conv2")
ABLATED = "layer3.2.conv2"  # 256 channels


def run(*, quick: bool = False) -> None:
    """Race edits of resnet50, random weights, at 1×3×224×224."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().eval()
    image = torch.randn(1, 3, 224, 224)
    rounds = 2 if quick else 20
    contenders: Contenders = {
        "plain forward": lambda: _plain(model, image),
        "plain hook at layer4.2.conv2": lambda: _by_hook(model, image, STAGES[-1], 0),
        "hookviz.edit at layer4.2.conv2": lambda: _by_edit(model, image, STAGES[-1], 0),
    }
    for name in STAGES:
        contenders[f"edited again at {name}, as in the explorer"] = _again(model, image, name)
    title = "resnet50: logits with one channel off, processor time"
    print_table(title, race(contenders, rounds, clock=time.process_time))
    count = model.get_submodule(ABLATED).out_channels
    channels = range(8 if quick else count)
    ablated: Contenders = {
        "plain hook, channel by channel": lambda: [
            _by_hook(model, image, ABLATED, channel) for channel in channels
        ],
        f"hookviz.attribution.ablationcam, all {count}": lambda: hookviz.attribution.ablationcam(
            model, image, ABLATED, 0
        ),
    }
    title = f"resnet50, {ABLATED}: what the score loses without each of {len(channels)} channels"
    print_table(title, race(ablated, 1 if quick else 3, warmups=0))


def _plain(model: nn.Module, image: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(image)


def _by_hook(model: nn.Module, image: torch.Tensor, name: str, channel: int) -> torch.Tensor:
    def off(module: nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[:, channel] = 0
        return output

    with model.get_submodule(name).register_forward_hook(off):
        return _plain(model, image)


def _by_edit(model: nn.Module, image: torch.Tensor, name: str, channel: int) -> torch.Tensor:
    with hookviz.edit(model, name, 0, channels=channel):
        return _plain(model, image)


def _again(model: nn.Module, image: torch.Tensor, name: str):
    """What moves the explorer's bars, from the second edit of a layer on: another channel each."""
    session = Session(model, prepare_input(image, model))
    replay = Replay(model, [model.get_submodule(name)])
    channels = itertools.cycle(range(model.get_submodule(name).out_channels))

    def edited() -> torch.Tensor:
        return session.edited([LayerEdit(name, 0, next(channels))]).replayed(replay)

    edited()
    return edited
