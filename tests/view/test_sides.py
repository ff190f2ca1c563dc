"""The two heatmaps of a target that is a difference of two scores, against plain PyTorch."""

import pytest
import torch
from test_answer import face_network

import hookviz

LAYER = "layer3.1.conv2"


def gradcam(model, layer, x, score):
    kept = []
    handle = model.get_submodule(layer).register_forward_hook(lambda *given: kept.append(given[2]))
    output = model(x.clone().requires_grad_())
    handle.remove()
    (slopes,) = torch.autograd.grad(score(output), kept)
    return (slopes.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()[0].detach()


def test_sides_of_a_difference_of_two_classes():
    model = hookviz.demo_model()
    explorer = hookviz.explore(model, hookviz.demo_images()[6], ("moon", "fish"), layer=LAYER)
    sides = explorer.sides()
    (x,) = explorer.inputs.args
    moon, fish = (model.class_names.index(name) for name in sides.names)
    wanted = [gradcam(model, LAYER, x, lambda y, k=k: y[0, k]).numpy() for k in (moon, fish)]
    for heat, other in zip(sides.heats, wanted, strict=True):
        assert heat == pytest.approx(other, abs=1e-6)
    assert sides.difference == pytest.approx(wanted[0] - wanted[1], abs=1e-6)
    explorer.heatmap = "activation × gradient"  # a heatmap of one channel is replaced by Grad-CAM
    assert explorer.sides().method == "gradcam"
    explorer.edit("stem.0", 0.5)
    assert not (explorer.sides().heats[0] == sides.heats[0]).all()
    explorer.target = "moon"
    with pytest.raises(ValueError, match="'moon' is not a difference of two: give a tuple"):
        explorer.sides()


def test_sides_of_a_difference_of_two_positions():
    model, x = face_network(), torch.rand(1, 3, 60, 48)
    explorer = hookviz.explore(model, x, layer="conv2")
    explorer.target = "output[1][0, 1, 12, 9] - output[1][0, 1, 3, 3]"
    sides = explorer.sides()
    assert sides.names == ("output[1][0, 1, 12, 9]", "output[1][0, 1, 3, 3]")
    for heat, (row, column) in zip(sides.heats, ((12, 9), (3, 3)), strict=True):
        other = gradcam(model, "conv2", x, lambda y, r=row, c=column: y[1][0, 1, r, c])
        assert heat == pytest.approx(other.numpy(), abs=1e-7)
