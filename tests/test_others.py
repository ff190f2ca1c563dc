"""Regression tests for faults found with about sixty models of other libraries."""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
import types
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.fsdp
import torchvision
from architectures import model_of
from torch import nn
from torch.func import grad, jacrev
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.draw.overlay import picture_of
from hookviz.run.inputs import ModelInput
from hookviz.run.target import class_names_of

TESTS = Path(__file__).parent


def raw(m, x):
    """Take waveforms ``(N, T)`` and add the channel dimension."""
    assert x.ndim == 2, "waves (N, T)"
    return m.head(m.conv(x[:, None]).mean(2))


def test_a_batch_of_one_waveform_gets_no_extra_dimension():
    explorer = hookviz.explore(
        model_of(raw, conv=nn.Conv1d(1, 4, 9, 4), head=nn.Linear(4, 3)), torch.randn(1, 4000)
    )
    assert explorer.inputs.args[0].shape == (1, 4000)
    assert explorer.inputs.note == ""


def test_a_sample_gets_a_batch_dimension_only_if_the_model_needs_it():
    sample = torch.rand(3, 9, 9)
    batched = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(392, 3))
    explorer = hookviz.explore(batched.eval(), sample)
    assert explorer.inputs.args[0].shape == (1, 3, 9, 9)
    assert "a batch dimension was added" in explorer.frame.summary
    alone = hookviz.explore(nn.Conv2d(3, 8, 3), sample, target=torch.sum)
    assert alone.inputs.args[0] is not None
    assert alone.inputs.args[0].shape == (3, 9, 9)
    assert alone.frame.summary.count("a batch dimension was added") == 0


@dataclass
class Notes:
    calls: int = 0
    seen: list | None = None


class Restless(nn.Module):
    """Changes all kinds of attributes in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.tensor, self.array = torch.zeros(3), np.zeros(3)
        self.queue = collections.deque([1, 2], maxlen=2)
        self.default, self.counter = collections.defaultdict(list), collections.Counter("a")
        self.set, self.deep = {1}, {"a": [(torch.zeros(2), {"b": [0]})]}
        self.ordered = collections.OrderedDict(x=1, y=2)
        self.notes, self.space = Notes(seen=[]), types.SimpleNamespace(last=None)
        self.torch_random, self.random = torch.Generator().manual_seed(1), random.Random(1)
        self.numpy_random = np.random.default_rng(1)

    def forward(self, x):
        self.tensor += 1
        self.array += 1
        self.queue.append(3)
        self.default["new"].append(1)
        self.counter.update("ab")
        self.set.add(2)
        tensor, inner = self.deep["a"][0]
        tensor.add_(1)
        inner["b"].append(1)
        self.ordered.move_to_end("x")
        self.notes.calls += 1
        self.notes.seen.append(x)
        self.space.last = x
        torch.rand(1, generator=self.torch_random)
        self.random.random()
        self.numpy_random.random()
        return self.conv(x)

    def state(self):
        return (
            self.tensor.tolist(), self.array.tolist(), list(self.queue), dict(self.default),
            dict(self.counter), set(self.set), str(self.deep), list(self.ordered), str(self.notes),
            self.space.last, self.torch_random.get_state().tolist(), self.random.getstate(),
            str(self.numpy_random.bit_generator.state), self.queue.maxlen,
        )  # fmt: skip


def test_attributes_that_a_forward_changes_in_place_are_restored():
    model, x = Restless(), torch.rand(1, 1, 5, 5)
    before, objects = model.state(), snapshot(model)
    hookviz.explore(model, x).close()
    hookviz.trace(model, x)
    assert model.state() == before
    assert_untouched(model, objects)


@pytest.mark.parametrize(
    "transform",
    [
        lambda m, x: jacrev(m)(x),
        lambda m, x: grad(lambda y: m(y).sum())(x),
        partial(torch.autograd.functional.jacobian, vectorize=True),
    ],
)
def test_capture_under_transforms_stores_plain_tensors(transform):
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(0)), torch.rand(1, 6, 6)
    with hookviz.capture(model) as cache:
        transform(model, x)
    assert torch.equal(cache["0"].activation, model[0](x))
    assert "Conv2d" in repr(cache)


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_models_on_the_meta_device_are_refused():
    with torch.device("meta"):
        model = type(hookviz.demo_model())()
    with pytest.raises(ValueError, match="'stem.0.weight' is on the meta device.*load the weights"):
        hookviz.explore(model, torch.rand(1, 3, 112, 112))


@pytest.mark.parametrize(
    "function",
    [
        *(hookviz.explore, hookviz.diagnose, hookviz.graph, hookviz.trace, hookviz.attribute),
        *(hookviz.attention, hookviz.metrics.sanity_check, lambda m, x: hookviz.compare(m, m, x)),
    ],
)
def test_inputs_on_the_meta_device_are_refused(function):
    model, words = hookviz.demo_model(), "The input is on the meta device and has no values"
    for device in ("cpu", "meta"):
        with pytest.raises(ValueError, match=words):
            x = torch.rand(1, 3, 112, 112, device="meta")
            function(hookviz.demo_model().to(device), x)
    with torch.device("meta"), pytest.raises(ValueError, match=words):
        function(model, hookviz.demo_images()[0])


def test_a_capture_on_the_meta_device_shows_shapes():
    model = nn.Conv2d(3, 4, 3, device="meta")
    with hookviz.capture(model) as cache:
        model(torch.rand(1, 3, 8, 8, device="meta")).sum().backward()
    assert "1×4×6×6" in repr(cache) and "nan" not in repr(cache)
    (row,) = cache.records()
    assert row["shape"] == [1, 4, 6, 6] and row["min"] is row["nans"] is row["norm"] is None


class Offload:
    """Load weights only while their layer runs, like accelerate's ``cpu_offload``."""

    execution_device = torch.device("cpu")

    def __init__(self, module):
        self.values = {name: p.data for name, p in module.named_parameters(recurse=False)}
        self.inner, self.module = module.forward, module
        self.fill("meta")
        module._hf_hook, module.forward = self, self.forward

    def fill(self, device):
        for name, value in self.values.items():
            setattr(self.module, name, nn.Parameter(value.to(device)))

    def forward(self, *args):
        self.fill("cpu")
        try:
            return self.inner(*args)
        finally:
            self.fill("meta")


def test_offloaded_weights_stay_offloaded():
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    x = torch.rand(1, 3, 8, 8)
    with hookviz.capture(plain) as true:
        plain(x)
    for module in (plain[0], plain[3]):
        Offload(module)
    explorer = hookviz.explore(plain, x)
    assert torch.equal(explorer.cache["0"].activation, true["0"].activation)
    assert all(parameter.is_meta for parameter in plain.parameters())


def quantized():
    import torch.ao.quantization.quantize_fx as fx
    from torch.ao.quantization import get_default_qconfig_mapping

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()
    x = torch.rand(1, 3, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = fx.prepare_fx(model, get_default_qconfig_mapping(), x)
        prepared(x)
        return fx.convert_fx(prepared), x


def test_quantized_convolutions_are_shown():
    model, x = quantized()
    with hookviz.capture(model) as cache:
        model(x)
    assert list(cache) == ["0", "2"]
    assert cache["0"].activation.is_quantized
    assert cache["0"].gradient is None
    exact = cache["0"].activation.dequantize()
    assert torch.equal(hookviz.heatmap(cache["0"], "activation"), exact.mean(1))
    assert hookviz.heatmap(cache["0"], "eigencam").shape == (1, 14, 14)
    explorer = hookviz.explore(model, x, layer="0", heatmap="activation")
    assert np.array_equal(explorer.frame.panels[0].values, exact[0, explorer.channel].numpy())
    assert any("without a graph, as in int8 layers" in fact for fact in explorer.frame.summary)


def test_the_summary_names_layers_left_out_and_code_that_adds_them():
    model, x = (
        model_of(
            lambda m, x: m.deform(x, m.offsets(x)),
            offsets=nn.Conv2d(3, 18, 3, padding=1),
            deform=torchvision.ops.DeformConv2d(3, 4, 3, padding=1),
        ),
        torch.rand(1, 3, 8, 8),
    )
    explorer = hookviz.explore(model, x, target=torch.sum)
    told = next(fact for fact in explorer.frame.summary if "not among them" in fact)
    assert told in " ".join(repr(hookviz.capture(model)).split())
    layers = eval(told.rpartition("layers=")[2])
    with hookviz.capture(model, layers) as cache:
        model(x)
    assert list(cache) == ["deform"]
    with hookviz.capture(hookviz.demo_model()) as cache:
        pass
    assert cache.unseen == ""


def test_the_summary_says_that_complex_maps_show_absolute_values():
    model, x = (
        model_of(
            lambda m, x: m.conv(torch.complex(x, x * x)).abs().mean((2, 3)),
            conv=nn.Conv2d(1, 2, 3, dtype=torch.complex64),
        ),
        torch.rand(1, 1, 8, 8),
    )
    explorer = hookviz.explore(model, x, target=1, channel=1, heatmap="activation × gradient")
    shown, slopes = explorer.frame.panels[:2]
    with hookviz.capture(model) as cache:
        torch.autograd.grad(model(x)[0, 1], list(model.parameters()))
    here = cache["conv"]
    assert here.gradient.imag.abs().max() > 0
    assert np.allclose(shown.values, here.activation[0, 1].abs())
    assert np.allclose(slopes.values, here.gradient[0, 1].abs())
    assert all("absolute values" in panel.caption for panel in (shown, slopes))
    assert "absolute values" in explorer.frame.overlay.caption
    explorer.heatmap = "gradcam"
    assert np.allclose(explorer.frame.heatmap, hookviz.heatmap(here)[0])
    assert "<html" in explorer.to_html()
    assert hookviz.attribution.scorecam(model, x, "conv").shape == (1, 6, 6)
    with pytest.raises(ValueError, match="Ablation-CAM is not defined for them: take scorecam"):
        hookviz.attribution.ablationcam(model, x, "conv")


def test_a_single_logit_is_a_score():
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(9, 1))
    explorer = hookviz.explore(model, torch.rand(1, 1, 5, 5))
    (only,) = explorer.frame.predictions
    assert "sigmoid" in only.words
    assert "100.0 %" not in only.words


def test_a_feature_vector_is_not_treated_as_class_scores():
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(9, 128))
    x = torch.rand(1, 1, 5, 5)
    explorer = hookviz.explore(model, x)
    assert all(each.words.startswith("score ") for each in explorer.frame.predictions)
    assert all(each.name.startswith("output ") for each in explorer.frame.predictions)
    named = hookviz.explore(model, x, class_names=[f"c{n}" for n in range(128)])
    assert all(each.words.endswith(" %") for each in named.frame.predictions)


def test_class_names_are_read_from_the_attributes_of_libraries():
    model = nn.Conv2d(1, 1, 1)
    assert class_names_of(model) == []
    model.config = types.SimpleNamespace(id2label={0: "cat", 1: "dog"})
    assert class_names_of(model) == ["cat", "dog"]
    model.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    model.names = {0: "person", 1: "bicycle"}
    assert class_names_of(model) == ["person", "bicycle"]
    import timm

    net = timm.create_model("resnet10t", pretrained=False)
    assert class_names_of(net)[0].startswith("tench")
    assert class_names_of(timm.create_model("resnet10t", num_classes=7)) == []


def test_black_is_shown_as_black():
    black = ModelInput((-torch.ones(1, 3, 4, 4),))
    picture, words = picture_of(black)
    assert (picture == 0).all() and words == "shown as (x + 1) / 2"
    known = ModelInput((torch.zeros(1, 3, 4, 4),), {}, "", (0.5,) * 3, (0.25,) * 3, True)
    assert (picture_of(known)[0] == 128).all()
    far = ModelInput((torch.linspace(-9, 9, 48).view(1, 3, 4, 4),))
    assert picture_of(far)[1] == "stretched from -9 to 9"
    imagenet = ModelInput((torch.full((1, 3, 4, 4), 2.0),))
    assert picture_of(imagenet)[1].endswith("a guess")


def test_a_huggingface_style_processor_is_accepted_as_transform():
    def processor(picture):
        return {"x": [np.zeros((3, 40, 40), np.float32)]}

    inputs = hookviz.attribution.prepare_input(
        hookviz.demo_images()[0], hookviz.demo_model(), transform=processor
    )
    assert inputs.args == ()
    assert inputs.kwargs["x"].shape == (1, 3, 40, 40)


def test_the_error_for_a_wrapper_object_names_its_model_attribute():
    class Learner:
        model = nn.Conv2d(1, 1, 1)

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Conv2d(1, 1, 1)

    for around in (Learner(), Yolo()):
        with pytest.raises(TypeError, match=r"pass its \.model, a Conv2d"):
            hookviz.explore(around, torch.rand(1, 1, 3, 3))


# FSDP2 came with torch 2.6.
SHARDED = ["fsdp1", *(["fsdp2"] if hasattr(torch.distributed.fsdp, "fully_shard") else [])]


@pytest.mark.heavy  # two processes that each import torch
@pytest.mark.parametrize("kind", SHARDED)
def test_a_sharded_model_stays_sharded(kind):
    paths = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(TESTS / "sharded.py"), kind],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    asked = ("explore", "trace", "capture", "remove_hooks")
    every = {name: [True, True, True] for name in asked}
    assert found == {"0": every, "1": every}
