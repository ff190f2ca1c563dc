"""The check of edits on a few models, and that it can fail."""

import pytest
import torch
from heavy import heavy_but
from torch import nn

from hookviz.hooking.edit import Edit
from zoo.check import Result
from zoo.edits.check import check
from zoo.edits.report import LABELS, report
from zoo.edits.ways import HOOKVIZ, WAYS
from zoo.edits.written import written
from zoo.models import classifiers
from zoo.rivals import Tally

CASES = classifiers()
ALONE = {HOOKVIZ: WAYS[HOOKVIZ]}

SAMPLE = {
    "torchvision/squeezenet1_1": 2,  # followed by an in-place ReLU
    "torchvision/swin_t": 0,
    "timm/levit_128s": 0,  # it caches values computed from its weights
    "timm/vit_tiny_r_s16_p8_224": 0,
}
"""And how many of the five edits a hook that returns does not do."""

QUICK = {"torchvision/squeezenet1_1"}


@pytest.mark.parametrize("name", heavy_but(QUICK, SAMPLE))
def test_edits_equal_a_change_of_the_models_code(name):
    ways = {label: WAYS[label] for label in (HOOKVIZ, "hook that returns", "hook that overwrites")}
    result = check(CASES[name], ways)
    assert not result.faults
    assert result.calls == len(LABELS)
    assert [key for key in result.rivals if HOOKVIZ in key] == [f"{HOOKVIZ} · {e}" for e in LABELS]
    not_called = [key for key, tally in result.rivals.items() if tally.crashed or tally.wrong]
    assert ("hook that returns · function" in not_called) == bool(SAMPLE[name])


def test_the_zoo_has_at_least_two_hundred_classifiers():
    assert len(CASES) >= 200


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
    result = check(CASES["torchvision/squeezenet1_1"], ALONE)
    assert [each.partition(":")[0] for each in result.wrong] == [LABELS[0], LABELS[1], LABELS[3]]


def test_the_check_finds_an_unedited_gradient_and_a_remaining_hook(monkeypatch):
    monkeypatch.setattr(Edit, "_arrived", lambda self, *given: None)
    began = Edit._begin

    def and_leave_one(self):
        began(self)
        next(iter(self._hooks))[0].register_forward_hook(lambda *given: None)

    monkeypatch.setattr(Edit, "_begin", and_leave_one)
    result = check(CASES["torchvision/squeezenet1_1"], ALONE)
    assert {each.partition(":")[0] for each in result.wrong} == set(LABELS[3:])
    assert "_forward_hooks" in result.touched[0]


def test_the_report_counts_the_results():
    right, wrong, raised = Tally(1), Tally(1, 1), Tally(1, crashed="KeyError: no | x")
    first = {f"{HOOKVIZ} · scale": right, "nnsight · scale": raised}
    second = {f"{HOOKVIZ} · scale": wrong, "nnsight · scale": right}
    fine = Result("timm/a", "vgg", (1, 3), layer="conv (Conv2d)", ran=4, rivals=first)
    bad = Result("timm/b", "vgg", (2, 3), wrong=["scale: x|y"], rivals=second)
    lines = report([fine, bad], 3).splitlines()
    assert any(line.startswith("2 of 3 models") for line in lines)
    assert "| hookviz.edit | 2 | 1 / 1 / 0 | — | — | — | — |" in lines
    assert "| nnsight | 2 | 1 / 0 / 1 | — | — | — | — |" in lines
    assert "- nnsight, 1 times: KeyError: no" in lines
    assert "| timm/a | 1×3 | conv (Conv2d) | 4 | exact, untouched | — |" in lines
    assert "| timm/b | 2×3 |  | 0 | scale: x/y | r |" in lines
