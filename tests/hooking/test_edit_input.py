"""Edits of the model's input (occlusion, blur, paint) work as edits of layers do."""

import numpy as np
import pytest
import torch
from architectures import model_of
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.edits import blur, noise

PICTURE = 6
LAYER = "layer3.1.conv2"
WINDOW = (slice(20, 60), slice(30, 80))


@pytest.fixture(scope="module")
def model():
    return hookviz.demo_model()


@pytest.fixture(scope="module")
def x(model):
    return hookviz.attribution.prepare_input(hookviz.demo_images()[PICTURE], model).args[0]


@pytest.fixture
def explorer(model):
    return hookviz.explore(model, hookviz.demo_images()[PICTURE], layer=LAYER, channel=32)


def edited_input(x, change):
    changed = x.clone()
    changed[..., *WINDOW] = change(x)[..., *WINDOW]
    return changed


COLOUR = torch.tensor([1.0, -1.0, 0.5]).view(3, 1, 1)
CHANGES = {
    "occlude": (0, torch.zeros_like),
    "mean": ("mean", lambda x: x.mean((2, 3), keepdim=True).expand_as(x)),
    "paint": (COLOUR, COLOUR.expand_as),
    "blur": (blur(3.0), blur(3.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_model_gets_the_edited_input(model, x, name):
    change, reference = CHANGES[name]
    argument, before = x.clone(), snapshot(model)
    with hookviz.edit(model, "input", change, where=WINDOW) as edit, torch.no_grad():
        output = model(argument)
    assert torch.equal(output, model(edited_input(x, reference)).detach())
    assert torch.equal(argument, x) and edit.count == 1
    assert_untouched(model, before)


def test_blur_equals_scipys_gaussian_filter(x):
    from scipy.ndimage import gaussian_filter

    wide = x.double()
    wanted = gaussian_filter(wide.numpy(), (0, 0, 2.0, 2.0), mode="nearest", truncate=3.0)
    assert np.allclose(blur(2.0)(wide).numpy(), wanted, atol=1e-12)
    with pytest.raises(ValueError, match="sigma=0 cannot be used"):
        blur(0)


def several_inputs(m, image, mask=None, *, scale=1.0, other=None):
    if isinstance(image, list):
        return [m.conv(each).sum() for each in image]
    y = m.conv(image).mean((2, 3)) * scale
    return y if other is None else y + other["x"].mean()


def test_one_of_several_inputs_is_edited():
    model, x = model_of(several_inputs, conv=nn.Conv2d(3, 2, 3)), torch.rand(1, 3, 8, 8)
    other = {"x": torch.rand(2, 2)}
    with hookviz.edit(model, 'input["other"]["x"]', 0), torch.no_grad():
        assert torch.equal(model(x, other=other), model(x, other={"x": torch.zeros(2, 2)}))
    with hookviz.edit(model, "input", 0), torch.no_grad():  # the first input
        assert torch.equal(model(x, other=other), model(0 * x, other=other))
    pictures = [torch.rand(3, 8, 8), torch.rand(3, 6, 9)]
    with (
        hookviz.edit(model, "input[0][1]", blur(1.0), where=(slice(3), slice(None))),
        torch.no_grad(),
    ):
        one, two = model(pictures)
    changed = pictures[1].clone()
    changed[:, :3] = blur(1.0)(pictures[1][None])[0, :, :3]
    assert torch.equal(one, model(pictures)[0].detach())
    assert torch.equal(two, model([changed])[0].detach())
    wrong = pytest.raises(ValueError, match=r"known: input\[0\], input\['other'\]\['x'\]")
    with wrong, hookviz.edit(model, "input[1]", 0):
        model(x, other=other)
    wrong = pytest.raises(ValueError, match="not in the maps of 'input', which are 8×8")
    with wrong, hookviz.edit(model, "input", 0, where=(0, 0, 0)):
        model(x)


def test_inputs_are_edited_together_with_layers_and_their_gradients(model, x):
    with hookviz.edit(model, ["input", LAYER], 0) as edit, torch.no_grad():
        model(x)
    assert edit.count == 2
    leaf = x.clone().requires_grad_()
    with hookviz.edit(model, "input", 0, where=WINDOW, gradient=True):
        model(leaf).sum().backward()
    whole = x.clone().requires_grad_()
    with torch.enable_grad():
        (wanted,) = torch.autograd.grad(model(whole).sum(), whole)
    wanted[(..., *WINDOW)] = 0
    assert torch.equal(leaf.grad, wanted)
    for parameter in model.parameters():
        parameter.grad = None


def test_random_and_repeated_edits_of_the_input_are_shown(model, explorer):
    state = torch.get_rng_state()
    explorer.edit("input", noise(0.5), where=WINDOW)
    explorer.edit("input", 0, channels=0)
    assert torch.equal(torch.get_rng_state(), state)
    edited = explorer.displayed().run.edited_inputs.args[0]
    assert not edited[:, 0].any()
    with torch.no_grad(), hookviz.capture(model, LAYER) as cache:
        model(edited)
    # The shown picture contains the same noise as the run.
    assert torch.equal(explorer.cache[LAYER].activation, cache[LAYER].activation)


def test_a_layer_named_input_is_a_layer():
    model, x = model_of(lambda m, x: m.input(x), input=nn.Conv2d(1, 2, 1)), torch.ones(1, 1, 2, 2)
    with hookviz.edit(model, "input", 0), torch.no_grad():
        assert not model(x).any()
