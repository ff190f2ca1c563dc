"""Heatmaps beside the peers': captum, pytorch-grad-cam, torchcam.

Conventions that differ. The peers capture what in-place operations have left of a layer's
output, so that their formulas are given hookviz's activation and gradient, which
test_capture_exact.py has checked; where a peer captures right, it is run whole, too. The
peers take the positive part of every map, and torchcam and pytorch-grad-cam scale it to 0..1:
compared is what they have before that, and once also what comes out in the end.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import pytorch_grad_cam
import torch
import torchcam.methods
import torchvision
from captum.attr import LayerActivation, LayerGradCam, LayerGradientXActivation
from heavy import heavy_but
from pytorch_grad_cam.utils.image import scale_cam_image
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from reference import true_outputs
from torch import nn

import hookviz

CLASS = 7
TOLERANCE = 1e-4  # of a map's maximum
LAYERS = {
    "resnet18": (
        "conv1",
        "layer1.0.conv2",
        "layer2.0.downsample.0",
        "layer3.1.conv1",
        "layer4.1.conv2",
    ),
    # Behind each of these is an in-place ReLU.
    "vgg11": ("features.0", "features.3", "features.8", "features.13", "features.18"),
    "densenet121": (
        "features.conv0",
        "features.denseblock1.denselayer2.conv1",
        "features.transition1.conv",
        "features.denseblock3.denselayer7.conv2",
        "features.denseblock4.denselayer9.conv1",
    ),
    "mobilenet_v3_small": (
        "features.0.0",
        "features.1.block.0.0",
        "features.4.block.0.0",
        "features.8.block.3.0",
        "features.12.0",
    ),
}
MODELS = tuple(LAYERS)
OVERWRITTEN = ("vgg11",)
PLAIN = tuple(name for name in MODELS if name not in OVERWRITTEN)

GRAD_CAM = {
    "gradcam": pytorch_grad_cam.GradCAM,
    "gradcam++": pytorch_grad_cam.GradCAMPlusPlus,
    "hirescam": pytorch_grad_cam.HiResCAM,
    "xgradcam": pytorch_grad_cam.XGradCAM,
    "layercam": pytorch_grad_cam.LayerCAM,
    "eigencam": pytorch_grad_cam.EigenCAM,
    "eigengradcam": pytorch_grad_cam.EigenGradCAM,
}
TORCHCAM = {"gradcam": "GradCAM", "xgradcam": "XGradCAM", "layercam": "LayerCAM"}
SIGNED = ("hirescam", "eigencam", "eigengradcam", "gradient", "activation")
EIGEN = ("eigencam", "eigengradcam")


@pytest.fixture(scope="module", autouse=True)
def forget_the_models():
    """They are large: not to be kept while other files are tested."""
    yield
    network.cache_clear()
    captured.cache_clear()


@functools.cache
def network(name):
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval().requires_grad_(False)
    return model, torch.randn(2, 3, 64, 64)


@functools.cache
def captured(name):
    model, image = network(name)
    with hookviz.capture(model, list(LAYERS[name])) as cache:
        model(image.clone().requires_grad_())[:, CLASS].sum().backward()
    return cache


def module_of(name, layer):
    return network(name)[0].get_submodule(layer)


def difference(ours, theirs):
    """Largest difference over the largest value."""
    ours, theirs = ours.double(), theirs.double()
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 0  # else there would be nothing to compare
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


# The peers' formulas, on the activation and the gradient that they are given


def some_model():
    """What the peers' constructors ask for; none of its values enters."""
    return nn.Sequential(nn.Conv2d(1, 1, 1))


def by_grad_cam(method, activation, gradient):
    """The map of pytorch-grad-cam, before anything is cut off or scaled, (N, H, W)."""
    with GRAD_CAM[method](some_model(), []) as cam:
        arrays = activation.numpy(), gradient.numpy()
        return torch.from_numpy(cam.get_cam_image(None, None, None, *arrays, False))


def by_torchcam(kind, activation, gradient):
    """The map of torchcam, before it is scaled, (N, H, W)."""
    with torchcam.methods.__dict__[kind](some_model(), "0") as cam:
        cam.hook_a, cam.hook_g = [activation.clone()], [gradient.clone()]
        cam._backprop = lambda *args, **kwargs: None  # the gradient is there already
        return cam.compute_cams(0, None, normalized=False)[0]


def pairs(name, method):
    """Activation and gradient of each layer, in float64: what differs then is the formula.

    The peers add a constant to what they divide by, which is not to be seen: to the squared
    gradient 1e-6 (gradcam++), to the sum of a channel 1e-7 or 1e-8 (xgradcam). Therefore the
    score, and with it the gradient, or else the activation is multiplied by what brings its
    maximum to 1e6. In networks with random weights it would be as small as 1e-10.
    """
    for layer, record in captured(name).items():
        activation, gradient = record.activation.double(), record.gradient.double()
        if method == "gradcam++":
            gradient *= 1e6 / gradient.abs().max()
        if method == "xgradcam":
            activation *= 1e6 / activation.abs().max()
        yield layer, activation, gradient


@pytest.mark.parametrize("method", GRAD_CAM)
@pytest.mark.parametrize("name", heavy_but({"resnet18"}, MODELS))
def test_formula_of_grad_cam(name, method):
    for layer, activation, gradient in pairs(name, method):
        if method in EIGEN and activation[0, 0].numel() > 1024:
            continue  # it decomposes into a matrix of places × places, which takes seconds
        ours = hookviz.attribution.HEATMAPS[method](activation, gradient)
        theirs = by_grad_cam(method, activation, gradient)
        if method in EIGEN:  # either sign is right
            sign = (ours * theirs).sum((1, 2), keepdim=True).sign()
            theirs = theirs * sign
        elif method not in SIGNED:
            theirs = theirs.relu()  # it does so later
        assert difference(ours, theirs) < TOLERANCE, layer


@pytest.mark.parametrize("method", TORCHCAM)
@pytest.mark.parametrize("name", heavy_but({"resnet18", "vgg11"}, MODELS))
def test_formula_of_torchcam(name, method):
    for layer, activation, gradient in pairs(name, method):
        ours = hookviz.attribution.HEATMAPS[method](activation, gradient)
        theirs = by_torchcam(TORCHCAM[method], activation, gradient)
        assert difference(ours, theirs) < TOLERANCE, layer


def test_no_two_methods_agree():
    """Else the tolerance would tell nothing."""
    record = captured("resnet18")["layer3.1.conv1"]
    maps = {name: scaled(hookviz.heatmap(record, name)) for name in hookviz.attribution.HEATMAPS}
    for one, other in itertools.combinations(maps, 2):
        assert difference(maps[one], maps[other]) > 0.1, (one, other)


# The peers as they are run, each with its own capture, in float32


def by_captum(method, name, layer):
    model, module = network(name)[0], module_of(name, layer)
    image = network(name)[1].clone().requires_grad_()
    if method == "gradcam":
        heat = LayerGradCam(model, module).attribute(image, CLASS, relu_attributions=True)
        return heat.squeeze(1).detach()
    if method == "activation":
        return LayerActivation(model, module).attribute(image).mean(1).detach()
    times = method == "hirescam"
    heat = LayerGradientXActivation(model, module, multiply_by_inputs=times)
    maps = heat.attribute(image, CLASS).detach()
    return maps.sum(1) if times else maps.mean(1)


@pytest.mark.parametrize("method", ["gradcam", "hirescam", "gradient", "activation"])
@pytest.mark.parametrize("name", heavy_but({"resnet18"}, MODELS))
def test_captum(name, method):
    for layer, record in captured(name).items():
        ours, theirs = hookviz.heatmap(record, method), by_captum(method, name, layer)
        assert difference(ours, theirs) < TOLERANCE, layer


# Not its XGradCAM of MobileNet, whose activations are as small as what it adds to their sums.
RUNS = [(name, method) for name in PLAIN for method in TORCHCAM]
RUNS.remove(("mobilenet_v3_small", "xgradcam"))


@pytest.mark.parametrize(
    ("name", "method"),
    [pytest.param(*run, marks=[pytest.mark.heavy] * (run[0] != "resnet18")) for run in RUNS],
)
def test_torchcam(name, method):
    model, image = network(name)
    layers = list(LAYERS[name])
    with torchcam.methods.__dict__[TORCHCAM[method]](model, layers) as cam:
        theirs = cam(CLASS, model(image.clone().requires_grad_()), normalized=False)
    for layer, their in zip(layers, theirs, strict=True):
        ours = hookviz.heatmap(captured(name)[layer], method)
        assert difference(ours, their) < TOLERANCE, layer


def scaled(maps, size=None):
    """As pytorch-grad-cam does it: the positive part, 0 to 1, resized."""
    return torch.from_numpy(scale_cam_image(np.maximum(maps.numpy(), 0), size))


def run_grad_cam(method, name, layer):
    """The map of pytorch-grad-cam, run as usual."""
    model, image = network(name)
    targets = [ClassifierOutputTarget(CLASS)] * len(image)
    with GRAD_CAM[method](model, [module_of(name, layer)]) as cam:
        return torch.from_numpy(cam(image.clone().requires_grad_(), targets))


@pytest.mark.parametrize("method", ["gradcam", "hirescam", "layercam"])
@pytest.mark.parametrize("name", heavy_but({"resnet18"}, PLAIN))
def test_grad_cam(name, method):
    for layer, record in captured(name).items():
        theirs = run_grad_cam(method, name, layer)
        ours = scaled(scaled(hookviz.heatmap(record, method), (64, 64)))  # twice, as it does
        assert difference(ours, theirs) < TOLERANCE, layer


# Where the peers capture the overwritten output


@pytest.fixture(scope="module")
def overwritten():
    """What the convolutions of VGG returned and what gradient reached it, without hookviz."""
    model, image = network("vgg11")
    with true_outputs(model) as truths:
        model(image.clone().requires_grad_())[:, CLASS].sum().backward()
    return {layer: truths[layer][0] for layer in LAYERS["vgg11"]}


@pytest.mark.parametrize("layer", LAYERS["vgg11"])
def test_in_place_relu_hookviz(layer, overwritten):
    record, truth = captured("vgg11")[layer], overwritten[layer]
    assert (truth < 0).any()
    assert torch.equal(record.activation, truth.detach())
    assert torch.equal(record.gradient, truth.grad)
    weights = truth.grad.mean((2, 3), keepdim=True)
    expected = (weights * truth.detach()).sum(1).relu()
    assert difference(hookviz.heatmap(record), expected) < TOLERANCE
