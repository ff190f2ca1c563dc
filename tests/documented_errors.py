"""Provoke each message that docs/troubleshooting.md explains, for test_docs.py."""

import copy
import warnings
from pathlib import Path

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

PROVOKED = []
"""Functions that raise an error or return a message that a user sees."""


def provoked(function):
    PROVOKED.append(function)
    return function


def error_text(provocation):
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


def convolutions(*, inplace=False):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.Conv2d(4, 4, 3), nn.Flatten())


X = torch.rand(1, 3, 8, 8)


def captured():
    model = convolutions()
    with hookviz.capture(model) as cache:
        model(X).sum().backward()
    return cache


def explorer():
    return hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[12])


# PyTorch's own


@provoked
def full_backward_hook_and_in_place():
    model = convolutions(inplace=True)
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(X)


@provoked
def modified_by_an_inplace_operation():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@provoked
def does_not_require_grad():
    model = convolutions().requires_grad_(False)
    model(X).sum().backward()


@provoked
def second_backward():
    score = convolutions()(X).sum()
    score.backward()
    score.backward()


@provoked
def only_for_scalars():
    convolutions()(X).backward()


@provoked
def leaf_in_place():
    nn.ReLU(inplace=True)(torch.ones(2, requires_grad=True))


@provoked
def hook_on_a_tensor_without_gradient():
    X.register_hook(print)


@provoked
def grad_of_a_non_leaf():
    y = torch.ones(2, requires_grad=True) * 2
    y.sum().backward()
    assert y.grad is None


def full_backward_hook_without_input_gradient():
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
def not_used_in_the_graph():
    x = X.clone().requires_grad_()
    torch.autograd.grad(torch.ones(1, requires_grad=True).sum(), x)


@provoked
def numpy_of_a_tensor_that_requires_grad():
    convolutions()(X).numpy()


@provoked
def numpy_of_bfloat16():
    X.bfloat16().numpy()


@provoked
def inference_tensor_in_backward():
    with torch.inference_mode():
        x = torch.ones(1, 3, 8, 8)
    convolutions()(x)


@provoked
def deepcopy_of_a_result():
    copy.deepcopy(convolutions()(X))


@provoked
def wrong_channels():
    convolutions()(torch.rand(1, 1, 8, 8))


@provoked
def wrong_type():
    convolutions()(X.double())


@provoked
def hook_on_a_script_module():
    torch.jit.script(convolutions()).register_forward_hook(lambda module, args, output: None)


@provoked
def trace_with_backward_hooks():
    model = convolutions()
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    torch.jit.trace(model, X)


# Model and layers


@provoked
def not_a_module():
    with hookviz.capture(nn.Conv2d):
        pass


@provoked
def no_convolutions():
    hookviz.capture(nn.Sequential(nn.Linear(3, 3)))


@provoked
def no_such_name():
    hookviz.capture(hookviz.demo_model(), "layer3.0.conv")


@provoked
def no_such_type():
    hookviz.capture(hookviz.demo_model(), nn.LSTM)


@provoked
def module_of_another_model():
    hookviz.capture(hookviz.demo_model(), nn.Conv2d(3, 3, 1))


@provoked
def script_module():
    hookviz.explore(torch.jit.script(convolutions()), X)


@provoked
def lazy():
    hookviz.explore(nn.Sequential(nn.LazyConv2d(4, 3)), X)


@provoked
def none_ran():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return x.mean((2, 3))

    hookviz.explore(Idle(), X)


@provoked
def cannot_be_shown():
    class Many(nn.Module):
        def forward(self, x):
            return x[None, None, None]

    hookviz.explore(nn.Sequential(Many()), X, layers="0")


@provoked
def no_such_torchvision_model():
    hookviz.explore("resnet3", X)


@provoked
def no_download():
    import torchvision

    def offline(*args, **kwargs):
        raise OSError("no network")

    get_model = torchvision.models.get_model
    torchvision.models.get_model = offline
    try:
        hookviz.pretrained("resnet18")
    finally:
        torchvision.models.get_model = get_model


# The input


@provoked
def no_file():
    hookviz.explore(hookviz.demo_model(), "no-such-photo.jpg")


@provoked
def not_a_picture_file():
    Path("notes.txt").write_text("no picture")
    hookviz.explore(hookviz.demo_model(), "notes.txt")


@provoked
def no_picture_shape():
    hookviz.explore(hookviz.demo_model(), np.zeros((5, 20, 20)))


@provoked
def picture_out_of_range():
    hookviz.explore(hookviz.demo_model(), np.full((20, 20, 3), 255.0))


@provoked
def not_finite():
    hookviz.explore(convolutions(), X / 0)


@provoked
def too_large():
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 10
    try:
        hookviz.explore(hookviz.demo_model(), "photo.jpg")
    finally:
        Image.MAX_IMAGE_PIXELS = limit


@provoked
def class_names_as_a_string():
    hookviz.explore(convolutions(), X, class_names="cat")


@provoked
def no_input():
    hookviz.explore(hookviz.demo_model(), 3)


@provoked
def does_not_take_pictures():
    hookviz.explore(nn.Sequential(nn.Conv2d(12, 4, 3)), Image.new("RGB", (20, 20)))


@provoked
def transform_without_tensor():
    picture = Image.new("RGB", (20, 20))
    hookviz.explore(hookviz.demo_model(), picture, transform=lambda each: each)


@provoked
def weights_as_a_name():
    picture = Image.new("RGB", (20, 20))
    hookviz.explore(hookviz.demo_model(), picture, weights="DEFAULT")


@provoked
def does_not_fit():
    hookviz.explore(convolutions(), torch.rand(1, 1, 8, 8))


@provoked
def the_model_raised():
    hookviz.explore(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(9, 2)), X)


# The target


@provoked
def no_scores():
    return explored_facts(nn.Sequential(nn.Conv2d(3, 4, 3)))


def explored_facts(model):
    summary = hookviz.explore(model, X).frame.summary
    return next(fact for fact in summary if fact.startswith("no "))


@provoked
def needs_class_scores():
    hookviz.explore(nn.Sequential(nn.Conv2d(3, 4, 3)), X, target=3)


@provoked
def no_such_key_of_the_output():
    hookviz.explore(convolutions(), X, target=hookviz.output["out"][0, 3])


@provoked
def not_one_number_of_the_output():
    hookviz.explore(convolutions(), X, target=hookviz.output[0])


@provoked
def no_such_class():
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], target="fisch")


@provoked
def no_such_class_number():
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], target=652)


@provoked
def no_class_names():
    hookviz.explore(convolutions(), X, target="tabby")


@provoked
def not_one_number():
    hookviz.explore(convolutions(), X, target=lambda out: out)


@provoked
def detached_target():
    hookviz.explore(convolutions(), X, target=lambda out: out.sum().detach())


@provoked
def none_of_the_targets():
    hookviz.explore(convolutions(), X, target=1.5)


@provoked
def targets_for_another_batch():
    hookviz.explore(convolutions(), X, target=[1, 2])


# What was captured


@provoked
def capture_twice():
    with hookviz.capture(convolutions()) as cache, cache:
        pass


@provoked
def not_captured():
    captured()["1"]


@provoked
def did_not_run():
    with hookviz.capture(convolutions()) as cache:
        pass
    cache["0"]


@provoked
def inputs_not_kept():
    return captured()["0"].input


@provoked
def over_the_budget():
    model = convolutions()
    with hookviz.capture(model, max_bytes=10):
        model(X)


@provoked
def over_the_budget_and_asked_for():
    model = convolutions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hookviz.capture(model, max_bytes=10) as cache:
            model(X)
    return cache["0"].activation


# The explorer


@provoked
def no_such_setting():
    hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[0], color="viridis")


@provoked
def no_such_layer():
    explorer().layer = "layer3.0.bn1"


@provoked
def no_such_channel():
    explorer().channel = 99


@provoked
def no_such_colormap():
    explorer().cmap = "viridi"


@provoked
def no_such_heatmap():
    explorer().heatmap = "grad-cam"


@provoked
def no_short_code():
    model = hookviz.demo_model()
    model.layer1 = torch.compile(model.layer1, backend="eager")
    hookviz.explore(model, hookviz.demo_images()[12]).code()


@provoked
def no_such_suffix():
    explorer().save("view.jpeg2")


@provoked
def closed():
    shown = explorer()
    shown.close()
    shown.figure()


# Heatmaps, attributions, metrics


@provoked
def no_such_method():
    hookviz.heatmap(captured()["0"], "grad-cam")


@provoked
def no_gradient_reached():
    model = convolutions()
    with hookviz.capture(model) as cache:
        model(X)
    hookviz.heatmap(cache["0"])


@provoked
def tokens_without_a_grid():
    with hookviz.capture(model := nn.LayerNorm(8), nn.LayerNorm) as cache:
        model(torch.rand(1, 60, 8))
    hookviz.heatmap(cache[""], "activation")


@provoked
def shape_that_cannot_be_maps():
    with hookviz.capture(model := nn.Softmax(-1), nn.Softmax) as cache:
        model(torch.rand(1, 2, 3, 4, 5, 6))
    hookviz.heatmap(cache[""], "activation")


@provoked
def no_such_attribution():
    hookviz.attribute(convolutions(), X, method="gradcam")


@provoked
def attribution_to_whole_numbers():
    hookviz.attribute(convolutions(), X.long())


@provoked
def no_captum():
    import sys

    held = {name: sys.modules.pop(name) for name in list(sys.modules) if "captum" in name}
    sys.modules["captum"] = None  # type: ignore[assignment]
    try:
        hookviz.attribute(convolutions(), X)
    finally:
        sys.modules.pop("captum")
        sys.modules.update(held)


@provoked
def no_relu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten())
    hookviz.attribute(model, X, method="guided_backprop")


@provoked
def score_without_a_gradient():
    class Rounds(nn.Module):
        def forward(self, x):
            return x.detach().mean((2, 3)) * torch.ones(3, requires_grad=True)

    hookviz.attribute(Rounds(), X)


@provoked
def several_layers():
    hookviz.attribution.scorecam(hookviz.demo_model(), hookviz.demo_images()[0], "layer3.*")


@provoked
def trained_only():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.auxiliary = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return (self.auxiliary if self.training else self.main)(x).mean((2, 3))

    hookviz.attribution.scorecam(Auxiliary(), X, "auxiliary")


@provoked
def empty_mask():
    hookviz.metrics.pointing_game(torch.rand(4, 4), torch.zeros(8, 8))


@provoked
def mask_too_small():
    hookviz.metrics.pointing_game(torch.rand(8, 8), torch.ones(4, 4))


@provoked
def heatmap_of_another_size():
    hookviz.metrics.deletion_curve(
        hookviz.demo_model(), hookviz.demo_images()[0], torch.rand(2, 14, 14)
    )
