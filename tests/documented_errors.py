"""Provoke each message that docs/troubleshooting.md explains, for test_docs.py."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import hookviz

SEEN_ELSEWHERE = [  # messages that appear only on a GPU or in a browser
    "OutOfMemoryError: CUDA out of memory.",
    "Error displaying widget: model not found",
    "Loading widget…",
    "A Jupyter widget could not be displayed because the widget state could not be found.",
    "Explorer(children=(HTML(value=…",
]

Provocation = Callable[[], Any]
PROVOKED: list[Provocation] = []
"""Functions that raise an error or return a message that a user sees."""


def provoked(function: Provocation) -> Provocation:
    PROVOKED.append(function)
    return function


def error_text(provocation: Provocation) -> str:
    """Return the error as a user sees it, ``"ValueError: …"``, or else the function's result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", r"The \.grad attribute|Full backward hook|.*max_bytes")
        try:
            text = provocation()
        except Exception as error:
            message = error.args[0] if isinstance(error, KeyError) else str(error)
            return f"{type(error).__name__}: {message}"
    assert isinstance(text, str), f"{provocation.__name__} did not raise"
    return text


def convolutions(*, inplace: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.Conv2d(4, 4, 3), nn.Flatten())


X = torch.rand(1, 3, 8, 8)


def captured() -> hookviz.results.FeatureCache:
    model = convolutions()
    with hookviz.capture(model) as cache:
        model(X).sum().backward()
    return cache


def explorer() -> hookviz.widgets.Explorer:
    return hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[12])


# PyTorch's own


@provoked
def full_backward_hook_and_in_place() -> None:
    model = convolutions(inplace=True)
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(X)


@provoked
def modified_by_an_inplace_operation() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@provoked
def does_not_require_grad() -> None:
    model = convolutions().requires_grad_(False)
    model(X).sum().backward()


@provoked
def second_backward() -> None:
    score = convolutions()(X).sum()
    score.backward()
    score.backward()


@provoked
def only_for_scalars() -> None:
    convolutions()(X).backward()


@provoked
def leaf_in_place() -> None:
    nn.ReLU(inplace=True)(torch.ones(2, requires_grad=True))


@provoked
def hook_on_a_tensor_without_gradient() -> None:
    X.register_hook(print)


@provoked
def grad_of_a_non_leaf() -> None:
    y = torch.ones(2, requires_grad=True) * 2
    y.sum().backward()
    assert y.grad is None


def full_backward_hook_without_input_gradient() -> None:
    model = convolutions()
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(X).sum().backward()


if torch.__version__.startswith("2.4."):  # torch 2.4 does not warn
    SEEN_ELSEWHERE.append(
        "UserWarning: Full backward hook is firing when gradients are computed with respect to "
        "module outputs since no inputs require gradients."
    )
else:
    provoked(full_backward_hook_without_input_gradient)


@provoked
def not_used_in_the_graph() -> None:
    x = X.clone().requires_grad_()
    torch.autograd.grad(torch.ones(1, requires_grad=True).sum(), x)


@provoked
def numpy_of_a_tensor_that_requires_grad() -> None:
    convolutions()(X).numpy()


@provoked
def numpy_of_bfloat16() -> None:
    X.bfloat16().numpy()


@provoked
def inference_tensor_in_backward() -> None:
    with torch.inference_mode():
        x = torch.ones(1, 3, 8, 8)
    convolutions()(x)


@provoked
def deepcopy_of_a_result() -> None:
    copy.deepcopy(convolutions()(X))


@provoked
def wrong_channels() -> None:
    convolutions()(torch.rand(1, 1, 8, 8))


@provoked
def wrong_type() -> None:
    convolutions()(X.double())


@provoked
def hook_on_a_script_module() -> None:
    torch.jit.script(convolutions()).register_forward_hook(lambda module, args, output: None)


@provoked
def trace_with_backward_hooks() -> None:
    model = convolutions()
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    torch.jit.trace(model, X)


# Model and layers


@provoked
def not_a_module() -> None:
    with hookviz.capture(nn.Conv2d):
        pass


@provoked
def no_convolutions() -> None:
    hookviz.capture(nn.Sequential(nn.Linear(3, 3)))


@provoked
def no_such_name() -> None:
    hookviz.capture(hookviz.demo_model(), "layer3.0.conv")


@provoked
def no_such_type() -> None:
    hookviz.capture(hookviz.demo_model(), nn.LSTM)


@provoked
def module_of_another_model() -> None:
    hookviz.capture(hookviz.demo_model(), nn.Conv2d(3, 3, 1))


@provoked
def script_module() -> None:
    hookviz.explore(torch.jit.script(convolutions()), X)


@provoked
def lazy() -> None:
    hookviz.explore(nn.Sequential(nn.LazyConv2d(4, 3)), X)


@provoked
def none_ran() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3))

    hookviz.explore(Idle(), X)


@provoked
def cannot_be_shown() -> None:
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[None, None, None]

    hookviz.explore(nn.Sequential(Many()), X, layers="0")


@provoked
def no_such_torchvision_model() -> None:
    hookviz.explore("resnet3", X)


@provoked
def no_download() -> None:
    import torchvision

    def offline(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network")

    get_model = torchvision.models.get_model
    torchvision.models.get_model = offline
    try:
        hookviz.pretrained("resnet18")
    finally:
        torchvision.models.get_model = get_model


# The input


@provoked
def no_file() -> None:
    hookviz.explore(hookviz.demo_model(), "no-such-photo.jpg")


@provoked
def not_a_picture_file() -> None:
    Path("notes.txt").write_text("no picture")
    hookviz.explore(hookviz.demo_model(), "notes.txt")


@provoked
def no_picture_shape() -> None:
    hookviz.explore(hookviz.demo_model(), np.zeros((5, 20, 20)))


@provoked
def picture_out_of_range() -> None:
    hookviz.explore(hookviz.demo_model(), np.full((20, 20, 3), 255.0))


@provoked
def not_finite() -> None:
    hookviz.explore(convolutions(), X / 0)


@provoked
def too_large() -> None:
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 10
    try:
        hookviz.explore(hookviz.demo_model(), "photo.jpg")
    finally:
        Image.MAX_IMAGE_PIXELS = limit


@provoked
def class_names_as_a_string() -> None:
    hookviz.explore(convolutions(), X, class_names="cat")


@provoked
def no_input() -> None:
    hookviz.explore(hookviz.demo_model(), 3)


@provoked
def does_not_take_pictures() -> None:
    hookviz.explore(nn.Sequential(nn.Conv2d(12, 4, 3)), Image.new("RGB", (20, 20)))


@provoked
def transform_without_tensor() -> None:
    picture = Image.new("RGB", (20, 20))
    hookviz.explore(hookviz.demo_model(), picture, transform=lambda each: each)


@provoked
def weights_as_a_name() -> None:
    picture = Image.new("RGB", (20, 20))
    hookviz.explore(hookviz.demo_model(), picture, weights="DEFAULT")


@provoked
def does_not_fit() -> None:
    hookviz.explore(convolutions(), torch.rand(1, 1, 8, 8))


@provoked
def the_model_raised() -> None:
    hookviz.explore(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(9, 2)), X)


# The target


@provoked
def no_scores() -> str:
    return explored_facts(nn.Sequential(nn.Conv2d(3, 4, 3)))


def explored_facts(model: nn.Module) -> str:
    return hookviz.explore(model, X).frame.summary[-1]


@provoked
def needs_class_scores() -> None:
    hookviz.explore(nn.Sequential(nn.Conv2d(3, 4, 3)), X, target=3)


@provoked
def no_such_key_of_the_output() -> None:
    hookviz.explore(convolutions(), X, target=hookviz.output["out"][0, 3])


@provoked
def not_one_number_of_the_output() -> None:
    hookviz.explore(convolutions(), X, target=hookviz.output[0])


@provoked
def no_such_class() -> None:
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], target="fisch")


@provoked
def no_such_class_number() -> None:
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], target=652)


@provoked
def no_class_names() -> None:
    hookviz.explore(convolutions(), X, target="tabby")


@provoked
def not_one_number() -> None:
    hookviz.explore(convolutions(), X, target=lambda out: out)


@provoked
def detached_target() -> None:
    hookviz.explore(convolutions(), X, target=lambda out: out.sum().detach())


@provoked
def none_of_the_targets() -> None:
    hookviz.explore(convolutions(), X, target=1.5)


@provoked
def targets_for_another_batch() -> None:
    hookviz.explore(convolutions(), X, target=[1, 2])


# What was captured


@provoked
def capture_twice() -> None:
    with hookviz.capture(convolutions()) as cache, cache:
        pass


@provoked
def not_captured() -> None:
    captured()["1"]


@provoked
def did_not_run() -> None:
    with hookviz.capture(convolutions()) as cache:
        pass
    cache["0"]


@provoked
def inputs_not_kept() -> Any:
    return captured()["0"].input


@provoked
def over_the_budget() -> None:
    model = convolutions()
    with hookviz.capture(model, max_bytes=10):
        model(X)


@provoked
def over_the_budget_and_asked_for() -> Any:
    model = convolutions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hookviz.capture(model, max_bytes=10) as cache:
            model(X)
    return cache["0"].activation


# The explorer


@provoked
def no_such_setting() -> None:
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], color="viridis")


@provoked
def no_such_layer() -> None:
    explorer().layer = "layer3.0.bn1"


@provoked
def no_such_channel() -> None:
    explorer().channel = 99


@provoked
def no_such_colormap() -> None:
    explorer().cmap = "viridi"


@provoked
def no_such_heatmap() -> None:
    explorer().heatmap = "grad-cam"


@provoked
def no_short_code() -> None:
    model = hookviz.demo_model()
    model.layer1 = torch.compile(model.layer1, backend="eager")
    hookviz.explore(model, hookviz.demo_images()[12]).code()


@provoked
def no_such_suffix() -> None:
    explorer().save("view.jpeg2")


@provoked
def closed() -> None:
    shown = explorer()
    shown.close()
    shown.figure()


# Heatmaps, attributions, metrics


@provoked
def no_such_method() -> None:
    hookviz.heatmap(captured()["0"], "grad-cam")


@provoked
def no_gradient_reached() -> None:
    model = convolutions()
    with hookviz.capture(model) as cache:
        model(X)
    hookviz.heatmap(cache["0"])


@provoked
def tokens_without_a_grid() -> None:
    with hookviz.capture(model := nn.LayerNorm(8), nn.LayerNorm) as cache:
        model(torch.rand(1, 60, 8))
    hookviz.heatmap(cache[""], "activation")


@provoked
def shape_that_cannot_be_maps() -> None:
    with hookviz.capture(model := nn.Softmax(-1), nn.Softmax) as cache:
        model(torch.rand(1, 2, 3, 4, 5, 6))
    hookviz.heatmap(cache[""], "activation")


@provoked
def no_such_attribution() -> None:
    hookviz.attribute(convolutions(), X, method="gradcam")


@provoked
def attribution_to_whole_numbers() -> None:
    hookviz.attribute(convolutions(), X.long())


@provoked
def no_captum() -> None:
    import sys

    held = {name: sys.modules.pop(name) for name in list(sys.modules) if "captum" in name}
    sys.modules["captum"] = None  # type: ignore[assignment]
    try:
        hookviz.attribute(convolutions(), X)
    finally:
        sys.modules.pop("captum")
        sys.modules.update(held)


@provoked
def no_relu() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten())
    hookviz.attribute(model, X, method="guided_backprop")


@provoked
def score_without_a_gradient() -> None:
    class Rounds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.detach().mean((2, 3)) * torch.ones(3, requires_grad=True)

    hookviz.attribute(Rounds(), X)


@provoked
def several_layers() -> None:
    hookviz.attribution.scorecam(hookviz.demo_model(), hookviz.demo_images()[0], "layer3.*")


@provoked
def trained_only() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.auxiliary = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.auxiliary if self.training else self.main)(x).mean((2, 3))

    hookviz.attribution.scorecam(Auxiliary(), X, "auxiliary")


@provoked
def empty_mask() -> None:
    hookviz.metrics.pointing_game(torch.rand(4, 4), torch.zeros(8, 8))


@provoked
def mask_too_small() -> None:
    hookviz.metrics.pointing_game(torch.rand(8, 8), torch.ones(4, 4))


@provoked
def heatmap_of_another_size() -> None:
    hookviz.metrics.deletion_curve(
        hookviz.demo_model(), hookviz.demo_images()[0], torch.rand(2, 14, 14)
    )
