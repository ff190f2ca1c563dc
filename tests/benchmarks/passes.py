"""The cost of hookviz relative to one forward, or one forward and backward, of a network."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torchvision
from captum.attr import LayerGradCam, LayerGradientXActivation
from pytorch_grad_cam import GradCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import Tensor, nn
from torchcam.methods import GradCAM as TorchCam

import hookviz
from benchmarks.race import Table, raced
from hookviz.hooking.edit import LayerEdit
from hookviz.run.inputs import prepare_input
from hookviz.run.replay import Replay
from hookviz.run.session import Session
from hookviz.view.map import map_payload
from hookviz.view.messages import WhyQuestion
from hookviz.view.reason import why_answer

CLASS = 0
IN_STAGES = "conv1", "layer2.0.conv2", "layer3.0.conv2", "layer4.2.conv2"
ABLATED = "layer3.2.conv2"
TAKEN_APART = {
    "resnet18": "layer3.0.conv1",
    "resnet152": "layer3.0.conv1",
    "densenet121": "features.denseblock3.denselayer1.conv1",
    "efficientnet_b0": "features.4.0.block.0.0",
    "googlenet": "inception4a.branch2.0.conv",
    "vit_b_16": "encoder.layers.encoder_layer_3.mlp.0",
}
"""Network -> a layer in which a value is explained."""


def network(name: str, **options: Any) -> nn.Module:
    """Return a network of torchvision with random weights, the same at every call."""
    torch.manual_seed(0)
    if name == "googlenet":
        options["init_weights"] = False
    return torchvision.models.get_model(name, **options).eval()


def picture(quick: bool) -> Tensor:
    side = 64 if quick else 224
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))


def capture(quick: bool) -> Iterator[Table]:
    """Capture every convolution's output and the gradient that reaches it."""
    rounds, slow_rounds = (2, 1) if quick else (15, 1)
    for name in ("vgg11",) if quick else ("resnet50", "vgg11"):
        model, x = network(name), picture(quick)
        plain = partial(input_gradient, model, x)
        yield raced(f"{name}: all convolutions, forward", forwards(model, x), rounds)
        with torch.no_grad():
            yield raced(f"{name}: the same within no_grad", forwards(model, x), rounds)
        both = {
            "plain": plain,
            "tensor hooks, gradients by reference": lambda m=model, x=x: by_hand(
                m, x, torch.Tensor.detach
            ),
            "tensor hooks, gradients cloned": lambda m=model, x=x: by_hand(m, x, torch.clone),
            "hookviz.capture": lambda m=model, x=x: captured(m, partial(input_gradient, m, x)),
        }
        yield raced(f"{name}: forward, and backward to the input", both, rounds)
        layers = convolutions(model)
        slow = {
            "plain": plain,
            "captum, a list of all layers": lambda m=model, x=x, each=layers: by_captum(m, x, each),
            "captum, layer by layer": lambda m=model, x=x, each=layers: [
                by_captum(m, x, one) for one in each
            ],
        }
        yield raced(f"{name}: activations and gradients by captum", slow, slow_rounds, 0)


def forwards(model: nn.Module, x: Tensor) -> dict[str, Callable[[], Any]]:
    """Return several ways to store the outputs of one forward."""

    def by_hooks(keep: Callable[[Tensor], Tensor]) -> Any:
        kept: list[Tensor] = []

        def after(module: nn.Module, args: object, output: Tensor) -> None:
            kept.append(keep(output))

        with hooked(convolutions(model), after):
            return model(x), kept

    return {
        "plain": lambda: model(x),
        "hooks, by reference (wrong where the next layer works in place)": lambda: by_hooks(
            Tensor.detach
        ),
        "hooks, clones": lambda: by_hooks(lambda output: output.detach().clone()),
        "hookviz.capture": lambda: captured(model, lambda: model(x)),
    }


def captured(model: nn.Module, act: Callable[[], Any]) -> Any:
    with hookviz.capture(model) as cache:
        return act(), cache


def by_hand(model: nn.Module, x: Tensor, keep_gradient: Callable[[Tensor], Tensor]) -> Any:
    """Store the outputs and gradients of one forward and backward with hand-written hooks."""
    kept: list[Tensor] = []

    def after(module: nn.Module, args: object, output: Tensor) -> None:
        kept.append(output.detach().clone())
        output.register_hook(lambda gradient: kept.append(keep_gradient(gradient)))

    with hooked(convolutions(model), after):
        return input_gradient(model, x), kept


def by_captum(model: nn.Module, x: Tensor, layers: Any) -> Any:
    gradient = LayerGradientXActivation(model, layers, multiply_by_inputs=False)
    with warnings.catch_warnings():  # captum warns that it sets requires_grad on the input
        warnings.simplefilter("ignore")
        return gradient.attribute(x.clone(), CLASS)


def input_gradient(model: nn.Module, x: Tensor) -> Tensor:
    """Run a forward, and a backward from one class to the picture."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x)[0, CLASS], x)[0]


def forward(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def convolutions(model: nn.Module) -> list[nn.Module]:
    return modules_of(model, nn.Conv2d)


def modules_of(model: nn.Module, *kinds: type[nn.Module]) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, kinds)]


@contextmanager
def hooked(modules: Iterable[nn.Module], after: Callable[..., None]) -> Iterator[None]:
    """Register a forward hook on each module within the block."""
    handles = [module.register_forward_hook(after) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def heatmaps(quick: bool) -> Iterator[Table]:
    """Compute Grad-CAM for every layer, and change the explorer's target, layer and heatmap."""
    rounds, slow_rounds = (2, 1) if quick else (10, 1)
    model, x = network("resnet50"), picture(quick)
    layers, plain = convolutions(model), partial(input_gradient, model, x)

    def by_hookviz() -> Any:
        with hookviz.capture(model) as cache:
            input_gradient(model, x)
        return [hookviz.heatmap(record) for record in cache.values()]

    def by_torchcam() -> Any:
        with TorchCam(model, list(layers)) as cam:
            return cam(CLASS, model(x))

    def by_grad_cam() -> Any:
        with GradCAM(model, layers) as cam:
            heat = cam(x, [ClassifierOutputTarget(CLASS)])
        model.zero_grad()  # GradCAM also computes gradients of the weights
        return heat

    def by_captum() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [LayerGradCam(model, layer).attribute(x.clone(), CLASS) for layer in layers]

    all_at_once = {
        "plain forward and backward, no heatmap": plain,
        "hookviz.capture, heatmap of each": by_hookviz,
        "torchcam, a list of all layers (wrong where a layer works in place)": by_torchcam,
        "pytorch-grad-cam, a list of all layers": by_grad_cam,
    }
    title = f"resnet50: Grad-CAM of all {len(layers)} convolutions"
    yield raced(title, all_at_once, rounds)
    yield raced(
        f"{title}, captum", {"plain": plain, "captum, layer by layer": by_captum}, slow_rounds
    )

    explorer = hookviz.explore(model, x, layer=IN_STAGES[0])
    choices = {"target": range(1000), "layer": IN_STAGES[::-1], "heatmap": ("layercam", "gradcam")}
    again = {f"explorer.{name} = …": steps(explorer, name, each) for name, each in choices.items()}
    yield raced("resnet50: another choice in the explorer", {"plain": plain, **again}, rounds)
    explorer.close()


def steps(explorer: Any, setting: str, values: Any) -> Callable[[], None]:
    """Return a function that sets the setting to the next value, different from the last one."""
    values = itertools.cycle(values)
    return lambda: setattr(explorer, setting, next(values))


def edits(quick: bool) -> Iterator[Table]:
    """Run a network with one channel off, and ablate every channel of a layer."""
    model, x = network("resnet50"), picture(quick)

    def by_hook(name: str, channel: int) -> Tensor:
        def off(module: nn.Module, args: object, output: Tensor) -> Tensor:
            output = output.clone()
            output[:, channel] = 0
            return output

        with model.get_submodule(name).register_forward_hook(off):
            return forward(model, x)

    def by_edit(name: str) -> Tensor:
        with hookviz.edit(model, name, 0, channels=0):
            return forward(model, x)

    def again(name: str) -> Callable[[], Any]:
        """Return a function that edits another channel at each call, as the explorer does."""
        session, module = Session(model, prepare_input(x, model)), model.get_submodule(name)
        replay, channels = Replay(model, [module]), itertools.cycle(range(module.out_channels))
        return lambda: session.edited([LayerEdit(name, 0, next(channels))]).replayed(replay)

    contenders = {
        "plain forward": partial(forward, model, x),
        f"a hook by hand at {IN_STAGES[-1]}": partial(by_hook, IN_STAGES[-1], 0),
        f"hookviz.edit at {IN_STAGES[-1]}": partial(by_edit, IN_STAGES[-1]),
    } | {f"the explorer's next edit at {name}": again(name) for name in IN_STAGES}
    yield raced("resnet50: logits with one channel off", contenders, 2 if quick else 7)
    channels = range(8 if quick else model.get_submodule(ABLATED).out_channels)
    ablated = {
        f"a hook by hand, {len(channels)} channels": lambda: [
            by_hook(ABLATED, n) for n in channels
        ],
        "hookviz.attribution.ablationcam, 256 channels": lambda: hookviz.attribution.ablationcam(
            model, x, ABLATED, 0
        ),
    }
    title = f"resnet50, {ABLATED}: what the score loses without each channel"
    yield raced(title, ablated, 1, warmups=0)


def attention(quick: bool) -> Iterator[Table]:
    """Compute the attention of all layers and its gradients."""
    if quick:
        model: nn.Module = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32).eval()
        x = torch.randn(1, 3, 32, 32)
    else:
        model, x = network("vit_b_16"), picture(quick)
    rounds = 2 if quick else 5

    def by_hooks() -> list[Tensor]:
        """Compute the weights of all heads again, from each attention's inputs."""
        found: list[Tensor] = []

        def after(module: nn.MultiheadAttention, args: tuple[Tensor, ...], output: object) -> None:
            made = nn.functional.linear(args[0], module.in_proj_weight, module.in_proj_bias)
            q, k, _ = made.unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4)
            found.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1))

        with hooked(modules_of(model, nn.MultiheadAttention), after):
            forward(model, x)
        return found

    contenders: dict[str, Callable[[], Any]] = {
        "plain forward": partial(forward, model, x),
        "hooks that compute the weights again": by_hooks,
        "hookviz.attention": partial(hookviz.attention, model, x),
    }
    yield raced("vit_b_16: the attention of all layers", contenders, rounds)
    contenders = {
        "plain forward and backward": partial(input_gradient, model, x),
        "hookviz.attention with a target": partial(hookviz.attention, model, x, target=1),
    }
    yield raced("vit_b_16: attention and its gradients", contenders, rounds)


def graph(quick: bool) -> Iterator[Table]:
    """Record a network's graph and explain a value. The ratios are relative to one forward."""
    for name in [*TAKEN_APART][: 1 if quick else None]:
        model, x, layer = network(name), picture(quick), TAKEN_APART[name]
        where = {"channel": 3, "position": (3,) if name.startswith("vit") else (3, 3)}
        explorer = hookviz.explore(model, x, layers=[layer], face="plain")
        explorer.contributions(layer, **where)  # keeps a run
        question = WhyQuestion(
            key="", layer=layer, call=0, channel=3, position=list(where["position"])
        )
        contenders = {
            "plain": partial(forward, model, x),
            "hookviz.graph": partial(hookviz.graph, model, x),
            "hookviz.contributions": partial(hookviz.contributions, model, x, layer, **where),
            "explorer.contributions, again": partial(explorer.contributions, layer, **where),
            "why?, again": partial(why_answer, explorer.displayed(), question),
            "the map": partial(map_payload, explorer.displayed()),
        }
        yield raced(f"{name}: graph and contributions", contenders, 2 if quick else 7)
        explorer.close()
