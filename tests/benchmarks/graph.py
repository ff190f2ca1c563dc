"""What a graph costs, and why a value is what it is, in forwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

import hookviz
from hookviz.view.map import map_payload
from hookviz.view.messages import WhyQuestion
from hookviz.view.reason import why_answer

from .race import print_table, race

MODELS = {
    "resnet18": "layer3.0.conv1",
    "resnet152": "layer3.0.conv1",
    "densenet121": "features.denseblock3.denselayer1.conv1",
    "efficientnet_b0": "features.4.0.block.0.0",
    "googlenet": "inception4a.branch2.0.conv",
    "vit_b_16": "encoder.layers.encoder_layer_3.mlp.0",
}
"""Name -> a layer in which a value is taken apart."""


def run(*, quick: bool = False) -> None:
    """Race a graph and contributions against a forward without gradients."""
    for name, layer in MODELS.items():
        torch.manual_seed(0)
        options = {"init_weights": False} if name == "googlenet" else {}
        model, x = torchvision.models.get_model(name, **options).eval(), torch.randn(1, 3, 224, 224)
        position = (5,) if name.startswith("vit") else (5, 5)
        why = partial(hookviz.contributions, model, x, layer, channel=3, position=position)
        explorer = hookviz.explore(model, x, layers=[layer], face="plain")
        explorer.contributions(layer, channel=3, position=position)  # keeps a run
        question = WhyQuestion(key="", layer=layer, call=0, channel=3, position=list(position))
        contenders: dict[str, Callable[[], Any]] = {
            "plain": partial(plain, model, x),
            "hookviz.graph": partial(hookviz.graph, model, x),
            "hookviz.contributions": why,
            "explorer.contributions": partial(
                explorer.contributions, layer, channel=3, position=position
            ),
            "answer of the why panel": partial(why_answer, explorer.displayed(), question),
            "answer of the map": partial(map_payload, explorer.displayed()),
        }
        print_table(f"{name}: a forward, 1×3×224×224", race(contenders, 3 if quick else 15))
        explorer.close()


@torch.no_grad()
def plain(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)
