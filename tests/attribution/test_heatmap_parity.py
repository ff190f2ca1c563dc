"""Heatmaps compared with pytorch-grad-cam.

It captures a layer's output after in-place operations have overwritten it. Its formulas therefore
get the activation and gradient of hookviz, which test_capture_exact.py checks. It takes the
positive part of every map and scales it to 0..1: the maps are compared before that step.
"""

import functools
import itertools

import numpy as np
import pytest
import pytorch_grad_cam
import torch
import torchvision
from heavy import heavy_but
from pytorch_grad_cam.utils.image import scale_cam_image
from torch import nn

import hookviz

CLASS = 7
TOLERANCE = 1e-4  # fraction of a map's maximum
LAYERS = {
    "resnet18": (
        "conv1",
        "layer1.0.conv2",
        "layer2.0.downsample.0",
        "layer3.1.conv1",
        "layer4.1.conv2",
    ),
    # Each of these is followed by an in-place ReLU.
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

GRAD_CAM = {
    "gradcam": pytorch_grad_cam.GradCAM,
    "gradcam++": pytorch_grad_cam.GradCAMPlusPlus,
    "hirescam": pytorch_grad_cam.HiResCAM,
    "xgradcam": pytorch_grad_cam.XGradCAM,
    "layercam": pytorch_grad_cam.LayerCAM,
    "eigencam": pytorch_grad_cam.EigenCAM,
    "eigengradcam": pytorch_grad_cam.EigenGradCAM,
}
SIGNED = ("hirescam", "eigencam", "eigengradcam", "gradient", "activation")
EIGEN = ("eigencam", "eigengradcam")


@pytest.fixture(scope="module", autouse=True)
def clear_model_caches():
    """Free the large models before other files are tested."""
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


def difference(ours, theirs):
    """Return the largest difference divided by the largest value."""
    ours, theirs = ours.double(), theirs.double()
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 0  # maps of zeros would prove nothing
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


# The formulas of the other libraries, applied to the same activation and gradient


def dummy_model():
    """Return a model for the constructors of the other libraries; its values are not used."""
    return nn.Sequential(nn.Conv2d(1, 1, 1))


def grad_cam_map(method, activation, gradient):
    """Return the map (N, H, W) of pytorch-grad-cam before it is clipped and scaled."""
    with GRAD_CAM[method](dummy_model(), []) as cam:
        arrays = activation.numpy(), gradient.numpy()
        return torch.from_numpy(cam.get_cam_image(None, None, None, *arrays, False))


def activations_and_gradients(name, method):
    """Yield the activation and gradient of each layer in float64, so that only formulas can differ.

    The other libraries add a constant to their divisors: 1e-6 to the squared gradient
    (gradcam++), 1e-7 or 1e-8 to the sum of a channel (xgradcam). To make it negligible, the
    gradient or the activation is scaled to a maximum of 1e6. In networks with random weights the
    gradient can be as small as 1e-10.
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
def test_formulas_equal_those_of_pytorch_grad_cam(name, method):
    for layer, activation, gradient in activations_and_gradients(name, method):
        if method in EIGEN and activation[0, 0].numel() > 1024:
            continue  # its decomposition of a positions × positions matrix takes seconds
        ours = hookviz.attribution.HEATMAPS[method](activation, gradient)
        theirs = grad_cam_map(method, activation, gradient)
        if method in EIGEN:  # the sign of a component is arbitrary
            sign = (ours * theirs).sum((1, 2), keepdim=True).sign()
            theirs = theirs * sign
        elif method not in SIGNED:
            theirs = theirs.relu()  # pytorch-grad-cam applies the ReLU later
        assert difference(ours, theirs) < TOLERANCE, layer


def test_methods_differ_by_more_than_the_tolerance():
    """Otherwise the tolerance would be too large to tell methods apart."""
    record = captured("resnet18")["layer3.1.conv1"]
    maps = {name: scaled(hookviz.heatmap(record, name)) for name in hookviz.attribution.HEATMAPS}
    for one, other in itertools.combinations(maps, 2):
        assert difference(maps[one], maps[other]) > 0.1, (one, other)


def scaled(maps, size=None):
    """Scale as pytorch-grad-cam does: the positive part, to 0..1, resized."""
    return torch.from_numpy(scale_cam_image(np.maximum(maps.numpy(), 0), size))
