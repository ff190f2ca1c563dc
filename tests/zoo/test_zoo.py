"""The zoo's check on one model of every kind, and that it can fail."""

import pytest
import timm
import torch
import torchvision
from heavy import heavy_but

import hookviz
from hookviz.hooking.capture import Capture
from hookviz.hooking.records import TensorStore
from zoo.check import check
from zoo.models import TORCHVISION, all_cases

CASES = all_cases()

# `make test` runs the quick ones, `make test-all` a model of each kind, and `make zoo` all models.
QUICK = {"torchvision/squeezenet1_1", "timm/starnet_s050"}
SAMPLE = [
    "torchvision/googlenet",
    "torchvision/mobilenet_v3_small",
    "torchvision/shufflenet_v2_x1_0",
    "torchvision/squeezenet1_1",
    "torchvision/swin_t",
    "torchvision/deeplabv3_mobilenet_v3_large",
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn",
    "torchvision/mc3_18",
    "timm/efficientnet_cc_b0_4e",
    "timm/levit_conv_128s",
    "timm/starnet_s050",
    "timm/vit_tiny_r_s16_p8_224",
]


@pytest.mark.parametrize("name", heavy_but(QUICK, SAMPLE))
def test_zoo_models_are_exact_untouched_and_explored(name):
    result = check(CASES[name])
    assert not result.faults
    assert result.explored == result.ran > 0


def test_cached_attention_biases_do_not_become_stale():
    """LeViT in eval mode would keep the biases of its first run after new weights are loaded."""
    case = CASES["timm/levit_128s"]
    model, other = case.build(), case.build(gain=0.8)
    hookviz.explore(model, case.input()).close()
    model.load_state_dict(other.state_dict())
    assert torch.equal(model(case.input()), other(case.input()))


def test_the_check_finds_an_overwritten_activation(monkeypatch):
    monkeypatch.setattr(TensorStore, "copy", lambda self, tensor: tensor.detach())
    assert len(check(CASES["torchvision/squeezenet1_1"]).wrong) == 26


def test_the_check_finds_a_remaining_hook(monkeypatch):
    register = Capture._register

    def and_leave_one(self, target, kind, function):
        register(self, target, kind, function)
        if kind == "forward":
            target.register_forward_hook(lambda *given: None)

    monkeypatch.setattr(Capture, "_register", and_leave_one)
    assert "_forward_hooks" in check(CASES["timm/starnet_s050"]).touched[0]


def test_the_zoo_has_every_torchvision_model():
    listed = {
        name for kind in TORCHVISION.values() for name in torchvision.models.list_models(kind)
    }
    elsewhere = {"quantized", "raft"}
    every = {n for n in torchvision.models.list_models() if not any(e in n for e in elsewhere)}
    assert listed == every
    assert {f"torchvision/{name}" for name in listed} <= set(CASES)


def test_the_zoo_has_most_timm_families():
    families = {case.kind for name, case in CASES.items() if name.startswith("timm/")}
    modules = {timm.model_entrypoint(n).__module__.split(".")[-1] for n in timm.list_models()}
    assert families <= modules
    assert len(families) >= 90
