"""Heatmap methods: formulas compared with NumPy, special values, and refused arguments."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import hookviz
from hookviz.attribution.cam import needs_gradient
from hookviz.hooking.records import Call, CapturedTensor

WITHOUT_GRADIENT = ("eigencam", "activation")  # these methods use no gradient
SHAPES = [
    (2, 5),
    (2, 3, 7),
    (2, 3, 4, 5),
    (2, 9, 2, 3),  # more channels than positions
    (2, 1, 3, 4),
    (2, 4, 1, 1),
    (2, 3, 2, 3, 4),
]


def captured_call(activation, gradient=None, module=None):
    taken = CapturedTensor("conv", "", activation.shape, activation.dtype, 0, None, activation)
    taken._gradient = gradient
    return Call((taken,), (), "conv", module)


def random_pair(shape):
    """Return an activation and a gradient of both signs, with some zeros in the gradient."""
    generator = torch.Generator().manual_seed(0)
    activation = torch.randn(shape, generator=generator) + 0.2
    gradient = torch.randn(shape, generator=generator)
    return activation, gradient * (torch.rand(shape, generator=generator) > 0.2)


def largest(tensor):
    return tensor.abs().max().item()


# Each formula in NumPy, for one sample (C, positions) in float64.


def relu(values):
    return np.where(values < 0, 0, values)  # NaN stays


def weighted(weights, maps):
    return relu((weights[:, None] * maps).sum(0))


def gradcam_plus_plus(maps, slopes):
    below = 2 * slopes**2 + maps.sum(1, keepdims=True) * slopes**3
    alpha = np.divide(slopes**2, below, out=np.zeros_like(maps), where=below != 0)
    return weighted((alpha * relu(slopes)).sum(1), maps)


def xgradcam(maps, slopes):
    total = maps.sum(1)
    weights = (maps * slopes).sum(1)
    return weighted(np.divide(weights, total, out=np.zeros_like(total), where=total != 0), maps)


def first_component(maps):
    """Compute the component from the covariance of the channels."""
    if not np.isfinite(maps).all():
        return np.full(maps.shape[1], np.nan)
    centred = maps - maps.mean(1, keepdims=True)
    heat = np.linalg.eigh(centred @ centred.T)[1][:, -1] @ centred
    return heat * np.sign(heat[np.abs(heat).argmax()])


BY_NUMPY = {
    "gradcam": lambda maps, slopes: weighted(slopes.mean(1), maps),
    "gradcam++": gradcam_plus_plus,
    "hirescam": lambda maps, slopes: (maps * slopes).sum(0),
    "xgradcam": xgradcam,
    "layercam": lambda maps, slopes: relu((relu(slopes) * maps).sum(0)),
    "eigencam": lambda maps, slopes: first_component(maps),
    "eigengradcam": lambda maps, slopes: first_component(maps * slopes),
    "gradient": lambda maps, slopes: slopes.mean(0),
    "activation": lambda maps, slopes: maps.mean(0),
}


METHODS = tuple(BY_NUMPY)


def by_numpy(method, activation, gradient):
    """Return the heatmap ``(N, *spatial)`` of tensors ``(N, C, *spatial)``."""
    pairs = zip(*(each.double().flatten(2).numpy() for each in (activation, gradient)), strict=True)
    heat = np.stack([BY_NUMPY[method](maps, slopes) for maps, slopes in pairs])
    return torch.from_numpy(heat).view(len(heat), *activation.shape[2:])


# The formulas


def test_every_method_has_a_numpy_reference():
    assert set(hookviz.attribution.HEATMAPS) == set(METHODS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_methods_equal_numpy_and_overwrite_nothing(method, shape, dtype):
    """The result has the activation's dtype and shares no memory with it."""
    activation, gradient = (tensor.to(dtype) for tensor in random_pair(shape))
    before = activation.clone(), gradient.clone()
    call = captured_call(activation, gradient)
    heat = hookviz.heatmap(call, method)
    first = heat.clone()
    heat.mul_(0)  # must not change the captured tensors
    assert torch.equal(hookviz.heatmap(call, method), first)
    assert torch.equal(activation, before[0]) and torch.equal(gradient, before[1])
    if len(shape) == 2:
        activation, gradient = activation[..., None], gradient[..., None]
    truth = by_numpy(method, activation, gradient)
    near = 1e-5 if dtype == torch.float32 else 1e-10
    assert first.shape == (shape[0], *(shape[2:] or (1,))) and first.dtype == dtype
    torch.testing.assert_close(
        first.double(), truth, rtol=10 * near, atol=near * max(largest(truth), 1)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_computed_in_float32(method, dtype):
    activation, gradient = (tensor.to(dtype) for tensor in random_pair((2, 64, 12, 12)))
    # The sums of a channel and over channels exceed 65504, the limit of float16.
    activation = activation.abs() * 1000
    heat = hookviz.heatmap(captured_call(activation, gradient), method)
    wide = hookviz.heatmap(captured_call(activation.float(), gradient.float()), method)
    assert heat.dtype == torch.float32
    assert heat.isfinite().all()
    assert torch.equal(heat, wide)


# Special values


def test_gradcam_plus_plus_with_a_denominator_of_zero():
    # 2 + sum(A) * G is 2 - 2 * 1 = 0 at the first position, which then has no weight; that of the
    # second one (G = 3) is 3 / (2 - 2 * 3).
    activation, gradient = torch.tensor([[[-3.0, 1.0]]]), torch.tensor([[[1.0, 3.0]]])
    heat = hookviz.heatmap(captured_call(activation, gradient), "gradcam++")
    torch.testing.assert_close(heat, torch.tensor([[-3.0 * -0.75, 0.0]]))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_gradcam_plus_plus_of_gradients_whose_cube_overflows(scale):
    """The square of such a gradient is near the limit of float32, and its cube exceeds it."""
    activation, gradient = random_pair((2, 3, 4, 5))
    heat = hookviz.heatmap(captured_call(activation, gradient * scale), "gradcam++")
    truth = by_numpy("gradcam++", activation.double(), gradient.double() * scale)
    assert largest(truth) > 0
    torch.testing.assert_close(heat.double(), truth, rtol=1e-4, atol=1e-5 * largest(truth))


def test_xgradcam_of_a_channel_that_sums_to_zero():
    activation = torch.tensor([[[2.0, -2.0], [1.0, 3.0]]])
    gradient = torch.tensor([[[5.0, 1.0], [1.0, 1.0]]])
    heat = hookviz.heatmap(captured_call(activation, gradient), "xgradcam")
    torch.testing.assert_close(heat, torch.tensor([[1.0, 3.0]]))


@pytest.mark.parametrize("where", ["activation", "gradient"])
@pytest.mark.parametrize("method", METHODS)
def test_nan_is_kept_and_does_not_affect_other_samples(method, where):
    activation, gradient = random_pair((2, 3, 4, 5))
    clean = hookviz.heatmap(captured_call(activation, gradient), method)
    (activation if where == "activation" else gradient)[0, 1, 2, 3] = math.nan
    heat = hookviz.heatmap(captured_call(activation, gradient), method)
    truth = by_numpy(method, activation, gradient)
    assert torch.equal(heat[0].isnan(), truth[0].isnan())
    untouched = (*WITHOUT_GRADIENT,) if where == "gradient" else ("gradient",)
    assert heat[0, 2, 3].isnan() == (method not in untouched)
    torch.testing.assert_close(heat[1], clean[1], rtol=1e-4, atol=1e-5)


# Requesting a heatmap


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_need_a_gradient_refuse_without_it(method):
    activation, gradient = random_pair((2, 3, 4, 5))
    assert needs_gradient(method) == (method not in WITHOUT_GRADIENT)
    if method in WITHOUT_GRADIENT:
        expected = hookviz.heatmap(captured_call(activation, gradient), method)
        assert torch.equal(hookviz.heatmap(captured_call(activation), method), expected)
        return
    with pytest.raises(ValueError) as caught:
        hookviz.heatmap(captured_call(activation), method)
    message = str(caught.value)
    for part in ("'conv'", repr(method), "backward()", "'eigencam'", "'activation'"):
        assert part in message
    assert "'layercam'" not in message.replace(repr(method), "")


def test_an_unknown_method_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"method='GradCAM\+\+'; close to it: .*'gradcam\+\+'"):
        hookviz.heatmap(captured_call(*random_pair((1, 2, 3, 3))), "GradCAM++")


def test_a_users_method_takes_one_or_two_arguments(monkeypatch):
    """The method gets maps in float32."""
    seen = []
    both = lambda activation, gradient: seen.append((activation, gradient)) or activation[:, 0]  # noqa: E731
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, "both", both)
    monkeypatch.setitem(hookviz.attribution.HEATMAPS, "max", lambda a, g=None: a.amax(1))
    activation, gradient = (tensor.half() for tensor in random_pair((2, 17, 6)))
    call = captured_call(activation, gradient, nn.LayerNorm(6))
    hookviz.heatmap(call, "both", grid=(4, 4))
    for given, tensor in zip(seen[0], (activation, gradient), strict=True):
        assert torch.equal(given, tensor[:, 1:].mT.reshape(2, 6, 4, 4).float())
    activation, _ = random_pair((2, 3, 4, 5))
    assert torch.equal(hookviz.heatmap(captured_call(activation), "max"), activation.amax(1))
    with pytest.raises(ValueError, match="'both' needs.*'max'"):
        hookviz.heatmap(captured_call(activation), "both")


# Tokens


@pytest.mark.parametrize(
    ("count", "grid", "message"),
    [
        (13, (4, 4), "13 tokens cannot be arranged as 4×4"),  # too few
        (30, (3, 7), "30 tokens cannot be arranged as 3×7"),  # nine too many
    ],
)
def test_a_grid_that_does_not_fit_the_tokens_is_refused(count, grid, message):
    call = captured_call(*random_pair((2, count, 6)), nn.LayerNorm(6))
    with pytest.raises(ValueError, match=message):
        hookviz.heatmap(call, grid=grid)


def test_a_shape_that_cannot_be_maps_is_refused():
    with pytest.raises(ValueError, match="cannot be shown as maps"):
        hookviz.heatmap(captured_call(*random_pair((1, 2, 2, 2, 2, 2))))


# Complex layers


def test_complex_layers_are_treated_as_twice_as_many_real_channels():
    """The product of gradient and activation is then Re(conj(G) * A)."""
    maps, slopes = (torch.randn(2, 3, 4, 5, dtype=torch.complex64) for _ in range(2))
    doubled = [torch.cat([each.real, each.imag], 1) for each in (maps, slopes)]
    for method in METHODS:
        expected = hookviz.heatmap(captured_call(*doubled), method)
        assert torch.equal(hookviz.heatmap(captured_call(maps, slopes), method), expected)


def test_a_model_or_a_capture_instead_of_a_layer_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with hookviz.capture(model) as cache:
        model(torch.ones(1, 3, 5, 5)).sum().backward()
    with pytest.raises(TypeError, match=r"one layer.*cache\['0'\]"):
        hookviz.heatmap(cache, "gradcam")
    with pytest.raises(TypeError, match="not of a model: run the model within hookviz.capture"):
        hookviz.heatmap(model, torch.rand(1, 3, 8, 8))
    with pytest.raises(TypeError, match=r"is of type Tensor: give a layer of a capture"):
        hookviz.heatmap(torch.rand(1, 3, 4, 4), "activation")
    with pytest.raises(ValueError, match="No layer has run in this capture"):
        hookviz.heatmap(hookviz.capture(model), "gradcam")
