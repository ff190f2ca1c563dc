"""The snapshot detects everything that a run may change."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from untouched import assert_untouched, changes, snapshot

CHANGES = {
    "forward hook": lambda m: m[0].register_forward_hook(print),
    "pre-hook with keywords": lambda m: m[0].register_forward_pre_hook(print, with_kwargs=True),
    "full backward hook": lambda m: m[0].register_full_backward_hook(print),
    "state dict hook": lambda m: m[0]._register_state_dict_hook(lambda *args: None),
    "tensor hook": lambda m: m[0].weight.register_hook(print),
    "training flag": lambda m: m[1].eval(),
    "parameter's values": lambda m: m[0].weight.data.mul_(1.0001),
    "parameter": lambda m: setattr(m[0], "weight", nn.Parameter(m[0].weight.detach().clone())),
    "requires_grad": lambda m: m[0].bias.requires_grad_(False),
    "first .grad": lambda m: setattr(m[0].bias, "grad", torch.ones(2)),
    ".grad's values": lambda m: m[0].weight.grad.add_(1),
    ".grad, as a copy": lambda m: setattr(m[0].weight, "grad", m[0].weight.grad.clone()),
    "buffer's values": lambda m: m[1].running_var.add_(1),
    "the sign of a zero": lambda m: m[1].running_mean.mul_(-1),
    "an attribute more": lambda m: setattr(m[0], "cached", 1),
    "an attribute's value": lambda m: setattr(m[0], "padding", (1, 1)),
    "a list's entries": lambda m: m[0].kept_list.append(3),
    "a dict's entries": lambda m: m[0].kept_dict.update(more=1),
    "forward": lambda m: setattr(m[0], "forward", print),
    "class": lambda m: setattr(m[0], "__class__", type("Other", (nn.Conv2d,), {})),
    "submodule": lambda m: m.append(nn.ReLU()),
    "Python's random state": lambda m: random.random(),
    "numpy's random state": lambda m: np.random.rand(),
    "torch's random state": lambda m: torch.rand(1),
    "grad mode": lambda m: torch.set_grad_enabled(False),
}


@pytest.fixture
def model():
    made = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    made[0].weight.grad = torch.ones_like(made[0].weight)
    made[0].kept_list, made[0].kept_dict = [1, 2], {"a": [1]}
    return made


@pytest.mark.parametrize("what", CHANGES)
def test_the_snapshot_detects_a_change(model, what):
    before = snapshot(model)
    try:
        CHANGES[what](model)
        assert changes(model, before)
        with pytest.raises(AssertionError, match="things changed"):
            assert_untouched(model, before)
    finally:
        torch.set_grad_enabled(True)


def test_the_snapshot_detects_global_hooks(model):
    before = snapshot(model)
    handle = nn.modules.module.register_module_forward_hook(print)
    assert changes(model, before)
    handle.remove()
    assert_untouched(model, before)


def test_a_model_that_only_runs_is_untouched(model):
    model[1].running_mean.fill_(float("nan"))  # NaN counts as equal to NaN
    model.eval()
    before = snapshot(model)
    model(torch.ones(1, 1, 2, 2)).sum()
    assert_untouched(model, before)
