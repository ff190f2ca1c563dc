"""`transform`, `weights` and `class_names` mean the same in every function that takes them."""

import inspect
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from test_grammar import FUNCTIONS
from torch import nn
from torchvision.transforms import functional

import hookviz

NAMES = ["cat", "dog", "fish"]
PICTURE = Image.linear_gradient("L").resize((12, 10)).convert("RGB")


class Patches(nn.Module):
    """A classifier by patches and attention that stores its input tensors."""

    def __init__(self, calls):
        super().__init__()
        self.conv, self.attention = nn.Conv2d(3, 4, 4, 4), nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, 3)
        self._calls = (calls.append,)  # in a tuple, because hookviz restores the lists of a model

    def forward(self, x):
        self._calls[0](x.detach().clone())
        tokens = self.conv(x).relu().flatten(2).permute(2, 0, 1)
        return self.head((tokens + self.attention(tokens, tokens, tokens)[0]).mean(0))


def transform(picture):
    return functional.to_tensor(functional.resize(picture, [8, 8])) * 2 - 1


WEIGHTS = SimpleNamespace(transforms=lambda: transform, meta={"categories": NAMES})
HEAT = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))


def explore(model, x, target=None, **how):
    hookviz.explore(model, x, target=target, **how).close()


def survey(model, x, **how):
    hookviz.survey(model, [x], nn.Conv2d, k=1, **how)


def contributions(model, x, **how):
    hookviz.contributions(model, x, "conv", channel=0, position=(0, 1), **how)


def compare(model, x, **how):
    hookviz.compare(model, model, x, **how)


def by_layer(method, model, x, target=None, **how):
    getattr(hookviz.attribution, method)(model, x, "conv", target, **how)


def by_window(model, x, target=None, **how):
    hookviz.attribution.occlusion(model, x, target=target, **how)


def curve(name, model, x, target=None, **how):
    getattr(hookviz.metrics, name)(model, x, HEAT, target, steps=2, **how)


def sanity_check(model, x, target=None, **how):
    hookviz.metrics.sanity_check(model, x, "activation", "conv", target, steps=1, **how)


CALLS = {
    "hookviz.attention": hookviz.attention,
    "hookviz.attribute": hookviz.attribute,
    "hookviz.compare": compare,
    "hookviz.contributions": contributions,
    "hookviz.diagnose": hookviz.diagnose,
    "hookviz.explore": explore,
    "hookviz.graph": hookviz.graph,
    "hookviz.receptive_field": partial(hookviz.receptive_field, layer="conv"),
    "hookviz.survey": survey,
    "hookviz.trace": hookviz.trace,
    "hookviz.attribution.ablationcam": partial(by_layer, "ablationcam"),
    "hookviz.attribution.occlusion": by_window,
    "hookviz.attribution.scorecam": partial(by_layer, "scorecam"),
    "hookviz.metrics.deletion_curve": partial(curve, "deletion_curve"),
    "hookviz.metrics.insertion_curve": partial(curve, "insertion_curve"),
    "hookviz.metrics.sanity_check": sanity_check,
}
"""All functions that prepare pictures and run a model."""

# These functions run no model.
ELSEWHERE = {
    "hookviz.load",
    "hookviz.pretrained",
    "hookviz.attribution.prepare_input",
    "hookviz.feature_visualization",  # takes no picture
}


def takes(name):
    """Return the functions that have an argument of this name."""
    return [f for f in FUNCTIONS if name in inspect.signature(FUNCTIONS[f]).parameters]


NAMED = [name for name in takes("class_names") if name in CALLS and name in takes("target")]


@pytest.fixture
def calls():
    return []


@pytest.fixture
def model(calls):
    return Patches(calls).eval()


def test_every_function_that_takes_pictures_is_tested():
    assert set(takes("transform")) - ELSEWHERE == set(CALLS) == set(takes("weights")) - ELSEWHERE


@pytest.mark.parametrize("how", [{"transform": transform}, {"weights": WEIGHTS}], ids=[*"tw"])
@pytest.mark.parametrize("name", CALLS)
def test_every_function_transforms_pictures(model, calls, name, how):
    CALLS[name](model, PICTURE, **how)
    assert torch.equal(calls[0][:1], transform(PICTURE)[None])


@pytest.mark.parametrize("name", NAMED)
def test_every_function_takes_a_class_name_as_target(model, name):
    for how in ({"class_names": NAMES}, {"weights": WEIGHTS}):
        CALLS[name](model, PICTURE, target="dog", **({"transform": transform} | how))
        with pytest.raises(ValueError, match="'horse'"):
            CALLS[name](model, PICTURE, target="horse", **({"transform": transform} | how))
    with pytest.raises(ValueError, match="'dog'"):
        CALLS[name](model, PICTURE, target="dog", transform=transform)
