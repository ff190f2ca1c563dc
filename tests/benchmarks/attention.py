"""The attention of a transformer's layers: its time and memory, and its gradients'."""

from __future__ import annotations

import math
import time
from runpy import run_path

import torch
import torchvision
from torch import Tensor, nn

import hookviz

from .capture import Contenders
from .memory import _LIMITS, attention
from .race import print_table, race


def run(*, quick: bool = False) -> None:
    """Race ViT-B/16, or with ``quick`` a small one, random weights, at 1×3×224×224."""
    torch.manual_seed(0)
    if quick:
        model = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32).eval()
        image = torch.randn(1, 3, 32, 32)
    else:
        model, image = torchvision.models.vit_b_16().eval(), torch.randn(1, 3, 224, 224)
    forward: Contenders = {
        "plain forward": lambda: _plain(model, image),
        "hooks that ask for the weights": lambda: _by_hooks(model, image),
        "hookviz.attention": lambda: hookviz.attention(model, image),
    }
    rounds = 2 if quick else 8
    title = "attention of all layers, processor time"
    print_table(title, race(forward, rounds, clock=time.process_time))
    backward: Contenders = {
        "plain forward and backward": lambda: _backward(model, image),
        "hookviz.attention with a target": lambda: hookviz.attention(model, image, target=1),
    }
    title = "attention and its gradients, processor time"
    print_table(title, race(backward, rounds, clock=time.process_time))
    if not quick:
        attention(run_path(str(_LIMITS / "peak.py"))["measure"], "vit_b_16")


def _plain(model: nn.Module, image: Tensor) -> Tensor:
    with torch.no_grad():
        return model(image)


def _backward(model: nn.Module, image: Tensor) -> Tensor:
    given = image.clone().requires_grad_()
    return torch.autograd.grad(model(given)[0, 1], given)[0]


def _by_hooks(model: nn.Module, image: Tensor) -> list[Tensor]:
    """The weights of all heads, by hooks that compute them again from what attends was given."""
    found: list[Tensor] = []

    def after(module: nn.MultiheadAttention, args: tuple[Tensor, ...], output: object) -> None:
        tokens = args[0]
        made = nn.functional.linear(tokens, module.in_proj_weight, module.in_proj_bias)
        q, k, _ = made.unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4)
        found.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1))

    attending = [each for each in model.modules() if isinstance(each, nn.MultiheadAttention)]
    handles = [each.register_forward_hook(after) for each in attending]
    try:
        _plain(model, image)
    finally:
        for handle in handles:
            handle.remove()
    return found
