"""The check of edits on a few models, and that it can fail."""

import pytest
import torch
from heavy import heavy_but
from torch import nn

from hookviz.hooking.edit import Edit
from zoo.edits.check import check
from zoo.edits.written import written
from zoo.models import classifiers

CASES = classifiers()
LABELS = ["scale", "replace", "function", "gradient, scale", "gradient, function"]

SAMPLE = [
    "torchvision/squeezenet1_1",  # followed by an in-place ReLU
    "torchvision/swin_t",
    "timm/levit_128s",  # it caches values computed from its weights
    "timm/vit_tiny_r_s16_p8_224",
]

QUICK = {"torchvision/squeezenet1_1"}


@pytest.mark.parametrize("name", heavy_but(QUICK, SAMPLE))
def test_edits_equal_a_change_of_the_models_code(name):
    result = check(CASES[name])
    assert not result.faults
    assert result.calls == len(LABELS)


def test_the_wrapper_of_the_reference_changes_nothing_by_itself():
    """This includes layers used twice and access to a layer's attributes."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    model.append(model[0])
    x = torch.rand(3, 2)
    plain, layers = model(x), list(model)
    with written(model, {"0": torch.clone}):
        assert torch.equal(model(x), plain)
        assert model[0] is model[3] is not layers[0]
        assert model[0].weight is layers[0].weight
    with written(model, {"0": torch.zeros_like}):
        assert not model(x).any()
    assert list(model) == layers


def test_the_check_finds_an_edit_of_the_wrong_channels(monkeypatch):
    mask = Edit._mask
    monkeypatch.setattr(
        Edit,
        "_mask",
        lambda self, like, *given: mask(self, like, *given).roll(1, 1) if self.channels else None,
    )
    result = check(CASES["torchvision/squeezenet1_1"])
    assert [each.partition(":")[0] for each in result.wrong] == [LABELS[0], LABELS[1], LABELS[3]]


def test_the_check_finds_an_unedited_gradient_and_a_remaining_hook(monkeypatch):
    monkeypatch.setattr(Edit, "_arrived", lambda self, *given: None)
    began = Edit._begin

    def and_leave_one(self):
        began(self)
        next(iter(self._hooks))[0].register_forward_hook(lambda *given: None)

    monkeypatch.setattr(Edit, "_begin", and_leave_one)
    result = check(CASES["torchvision/squeezenet1_1"])
    assert {each.partition(":")[0] for each in result.wrong} == set(LABELS[3:])
    assert "_forward_hooks" in result.touched[0]
