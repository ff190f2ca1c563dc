"""Planted divergences: does `hookviz.compare` name the layer in which two models begin to differ?

``python -m tests.zoo.divergences`` writes DIVERGENCES.md.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

import hookviz

PAGE = Path(__file__).with_name("DIVERGENCES.md")


@dataclass(frozen=True)
class Planted:
    """One model changed in one place."""

    name: str
    network: str  # a network of torchvision
    layer: str  # where the difference arises
    plant: Callable[[nn.Module], object]  # changes the layer or a module inside it
    side: int = 96


def flip_exponent(layer: nn.Module) -> None:
    """Flip one bit in the exponent of one weight, which doubles or halves it."""
    with torch.no_grad():
        bits = layer.weight.view(torch.int32).flatten()
        bits[int(layer.weight.abs().argmax())] ^= 1 << 23


def flip_lower_bit(layer: nn.Module) -> None:
    """Flip the upper bit of the mantissa in a whole channel."""
    with torch.no_grad():
        layer.weight.view(torch.int32)[0] ^= 1 << 22


def setting(name: str, value: Any) -> Callable[[nn.Module], None]:
    return lambda layer: setattr(layer, name, value)


def returns(change: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[nn.Module], None]:
    """Return a function that changes the forward of one module."""

    def plant(layer: nn.Module) -> None:
        layer.forward = lambda x, *rest: change(layer, x)

    return plant


def half_accumulation(layer: nn.Module, x: Tensor) -> Tensor:
    return F.conv2d(
        x.half(), layer.weight.half(), None, layer.stride, layer.padding, 1, layer.groups
    ).float()


def transposed_kernel(layer: nn.Module) -> None:
    with torch.no_grad():
        layer.weight.copy_(layer.weight.transpose(2, 3).clone())


def swapped_channels(layer: nn.Module) -> None:
    with torch.no_grad():
        layer.weight.copy_(layer.weight.flip(1))


def scaled(name: str, by: float) -> Callable[[nn.Module], None]:
    def plant(layer: nn.Module) -> None:
        with torch.no_grad():
            getattr(layer, name).mul_(by)

    return plant


def shifted(name: str, by: float) -> Callable[[nn.Module], None]:
    def plant(layer: nn.Module) -> None:
        with torch.no_grad():
            getattr(layer, name).add_(by)

    return plant


def no_shortcut(block: nn.Module) -> None:
    """Halve a block's shortcut in the sum: in the block's code, not in any layer."""

    def forward(x: Tensor) -> Tensor:
        out = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))
        return block.relu(out + 0.5 * (x if block.downsample is None else block.downsample(x)))

    block.forward = forward


def relu_before_sum(block: nn.Module) -> None:
    def forward(x: Tensor) -> Tensor:
        out = F.relu(block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x))))))
        return block.relu(out + (x if block.downsample is None else block.downsample(x)))

    block.forward = forward


def nearest(model: nn.Module) -> None:
    """Upsample a segmentation's logits differently, in the model's code."""

    def forward(x: Tensor) -> dict[str, Tensor]:
        features = model.backbone(x)["out"]
        return {"out": F.interpolate(model.classifier(features), x.shape[-2:], mode="nearest")}

    model.forward = forward


def one_off(layer: nn.Module) -> None:
    """Pad only at the right and the bottom instead of all around."""
    pad = layer.padding[0]

    def forward(x: Tensor) -> Tensor:
        wide = F.pad(x, (pad - 1, pad + 1, pad - 1, pad + 1))
        return F.conv2d(wide, layer.weight, layer.bias, layer.stride, 0, 1, layer.groups)

    layer.forward = forward


PLANTED = [
    Planted("a weight, one bit of its exponent", "resnet18", "layer2.0.conv2", flip_exponent),
    Planted("a weight, one bit, in the last stage", "resnet50", "layer4.2.conv2", flip_exponent),
    Planted("a weight, one bit, in a 1×1", "mobilenet_v2", "features.7.conv.2", flip_exponent),
    Planted("a weight of the head, one bit", "efficientnet_b0", "classifier.1", flip_exponent),
    Planted("mantissas of a channel", "densenet121", "features.denseblock2.denselayer3.conv2",
            flip_lower_bit),
    Planted("epsilon of a BatchNorm", "resnet18", "layer3.0.bn1", setting("eps", 1e-3)),
    Planted("epsilon 1e-5 for 1e-3", "inception_v3", "Mixed_5b.branch1x1.bn",
            setting("eps", 1e-5), 128),
    Planted("epsilon of a LayerNorm", "convnext_tiny", "features.3.1.block.2",
            setting("eps", 1e-3)),
    Planted("epsilon of a LayerNorm among tokens", "vit_b_16",
            "encoder.layers.encoder_layer_4.ln_1", setting("eps", 1e-2), 224),
    Planted("LeakyReLU for ReLU", "vgg11_bn", "features.5",
            returns(lambda m, x: F.leaky_relu(x, 0.01))),
    Planted("ReLU6 for ReLU", "squeezenet1_1", "features.3.squeeze_activation",
            returns(lambda m, x: x.clamp(0, 0.05))),
    Planted("GELU by tanh", "convnext_tiny", "features.5.2.block.4",
            returns(lambda m, x: F.gelu(x, approximate="tanh"))),
    Planted("sigmoid for hard sigmoid", "mobilenet_v3_large",
            "features.4.block.2.scale_activation", returns(lambda m, x: x.sigmoid())),
    Planted("SiLU for Hardswish", "mobilenet_v3_small", "features.0.2",
            returns(lambda m, x: F.silu(x))),
    Planted("mean pooling for max pooling", "googlenet", "maxpool2",
            returns(lambda m, x: F.avg_pool2d(x, 3, 2, ceil_mode=True))),
    Planted("a pooling that counts its padding", "inception_v3", "avgpool",
            returns(lambda m, x: x.mean((2, 3), keepdim=True) * 1.01), 128),
    Planted("padding off by one", "resnet18", "layer1.0.conv1", one_off),
    Planted("padding off by one at the stem", "resnet50", "conv1", one_off),
    Planted("padding by reflection", "vgg11", "features.3", setting("padding_mode", "reflect")),
    Planted("half-precision sums", "resnet18", "layer3.1.conv1", returns(half_accumulation)),
    Planted("half-precision sums in a depthwise layer", "mobilenet_v2", "features.5.conv.1.0",
            returns(half_accumulation)),
    Planted("a transposed kernel", "resnet18", "layer4.0.conv1", transposed_kernel),
    Planted("a transposed kernel of one channel each", "shufflenet_v2_x1_0",
            "stage3.1.branch2.3", transposed_kernel),
    Planted("input channels swapped", "regnet_y_400mf", "trunk_output.block2.block2-1.f.a.0",
            swapped_channels),
    Planted("a running variance, 1 %", "wide_resnet50_2", "layer2.1.bn3",
            scaled("running_var", 1.01)),
    Planted("a running mean", "mnasnet1_0", "layers.9.0.layers.4", shifted("running_mean", 0.01)),
    Planted("a bias", "swin_t", "features.1.0.mlp.3", shifted("bias", 0.001), 224),
    Planted("the shortcut halved", "resnet18", "layer3.1", no_shortcut),
    Planted("ReLU before the sum", "resnet34", "layer2.2", relu_before_sum),
    Planted("another interpolation", "fcn_resnet50", "", nearest, 64),
    Planted("dropout left on", "alexnet", "classifier.3",
            returns(lambda m, x: F.dropout(x, 0.5, True))),
]  # fmt: skip

HEALTHY: list[tuple[str, Callable[[nn.Module], nn.Module]]] = [
    ("its copy", copy.deepcopy),
    ("its DataParallel self", nn.DataParallel),
    ("its compiled self", torch.compile),
    ("channels last", lambda model: copy.deepcopy(model).to(memory_format=torch.channels_last)),
    ("in half precision", lambda model: copy.deepcopy(model).half()),
    ("in bfloat16", lambda model: copy.deepcopy(model).bfloat16()),
    ("in double precision", lambda model: copy.deepcopy(model).double()),
]
NETWORKS = ("resnet18", "mobilenet_v2", "densenet121", "convnext_tiny", "vit_b_16", "googlenet")


def build(name: str) -> nn.Module:
    """Build a torchvision network with random weights large enough for every layer to matter."""
    torch.manual_seed(0)
    more = {"weights_backbone": None} if name.startswith("fcn") else {}
    if name in ("googlenet", "inception_v3"):
        more = {"init_weights": True, "aux_logits": name != "googlenet"}
    return torchvision.models.get_model(name, weights=None, **more).eval()


def models(planted: Planted) -> tuple[nn.Module, nn.Module, Tensor]:
    """Return the network, its changed copy, and an input."""
    model = build(planted.network)
    other = copy.deepcopy(model)
    planted.plant(other.get_submodule(planted.layer))
    return model, other, torch.randn(1, 3, planted.side, planted.side)


def by_compare(model: nn.Module, other: nn.Module, x: Tensor) -> str | None:
    """Return the layer that hookviz names."""
    first = hookviz.compare(model, other, x).first()
    return None if first is None else first.layer


def by_numeric_suite(model: nn.Module, other: nn.Module, x: Tensor) -> str:
    """Return the first subgraph with a finite signal-to-noise ratio in torch.ao.ns."""
    from torch.ao.ns import _numeric_suite_fx as suite
    from torch.ao.ns.fx.utils import compute_sqnr

    try:
        traced = [torch.fx.symbolic_trace(copy.deepcopy(each)) for each in (model, other)]
        pair = suite.add_loggers("a", traced[0], "b", traced[1], suite.OutputLogger)
        for each in pair:
            each(x)
        logged = suite.extract_logger_info(*pair, suite.OutputLogger, "b")
        suite.extend_logger_results_with_comparison(logged, "a", "b", compute_sqnr, "sqnr")
    except Exception as error:  # any error means that it does not run on these models
        return f"{type(error).__name__}"
    for name, result in logged.items():
        if not all(float(ratio) == float("inf") for ratio in result["node_output"]["b"][0]["sqnr"]):
            return name
    return "none"


def planted_row(each: Planted) -> tuple[bool, str]:
    """Return whether the right layer is named, and the row of the page."""
    model, other, x = models(each)
    layer, theirs = by_compare(model, other, x), by_numeric_suite(model, other, x)
    right = layer == each.layer
    where = each.layer or "(the model's own code)"
    said = "right" if right else f"**{layer}**"
    named = "right" if theirs == each.layer.replace(".", "_") else f"`{theirs}`"
    return right, f"| {each.name} | {each.network} | `{where}` | {said} | {named} |"


def healthy_rows(network: str) -> Iterator[tuple[bool, str]]:
    """Compare a network with itself; yield whether no layer is named, and the rows of the page."""
    side = 224 if network.startswith("vit") else 96
    model, x = build(network), torch.randn(1, 3, side, side)
    for name, change in HEALTHY:
        found = hookviz.compare(model, change(model), x)
        first = found.first()
        apart = max(row.output.distance for row in found)
        said = "none" if first is None else f"**{first.layer}**"
        yield first is None, f"| {network} | {name} | {said} | {apart:.2g} |"


def main() -> int:
    """Write the page; return 1 if a wrong layer is named."""
    planted = [_said(*planted_row(each)) for each in PLANTED]
    healthy = [_said(*row) for network in NETWORKS for row in healthy_rows(network)]
    right, quiet = (sum(good for good, _ in rows) for rows in (planted, healthy))
    lines = [
        "# Where two models begin to differ",
        "",
        "Written by `make divergences`. One thing is changed in one of two equal models with",
        "random weights, and asked is `hookviz.compare(model, changed, x).first()`: the layer in",
        f"which it arises. Of {len(PLANTED)} hookviz names {right} right. Beside it the first",
        "subgraph to which torch.ao.ns gives a finite signal-to-noise ratio, or why it does not",
        "run: it names the end of a pattern, such as convolution, BatchNorm and ReLU.",
        "",
        "| what | network | where it arises | hookviz | torch.ao.ns |",
        "|---|---|---|---|---|",
        *(row for _, row in planted),
        "",
        f"A model beside what should be itself: no first difference in {quiet} of {len(healthy)}.",
        "",
        "| network | beside | first difference | largest relative difference of a layer |",
        "|---|---|---|---|",
        *(row for _, row in healthy),
    ]
    PAGE.write_text("\n".join(lines) + "\n")
    return 0 if right == len(PLANTED) and quiet == len(healthy) else 1


def _said(good: bool, row: str) -> tuple[bool, str]:
    print("right" if good else "WRONG", row, flush=True)
    return good, row


if __name__ == "__main__":
    sys.exit(main())
