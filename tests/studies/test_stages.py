"""Maps after the normalization and the activation that follow a layer."""

import pytest
import torch
import torch.nn.functional as F
from architectures import model_of
from torch import nn

import hookviz
from hookviz.view.payload import layer_payload


@pytest.fixture
def made():
    torch.manual_seed(0)
    # Layers followed by a norm and a functional ReLU, by an in-place ReLU, and by neither.
    model, x = (
        model_of(
            lambda m, x: m.last(m.act(m.second(F.relu(m.norm(m.first(x)))))).mean((2, 3)),
            first=nn.Conv2d(3, 4, 3, padding=1),
            norm=nn.BatchNorm2d(4),
            second=nn.Conv2d(4, 4, 1),
            last=nn.Conv2d(4, 6, 1),
            act=nn.ReLU(inplace=True),
        ).eval(),
        torch.randn(2, 3, 8, 8),
    )
    model.norm.running_mean.normal_()
    explorer = hookviz.explore(model, x, layers=nn.Conv2d, layer="first", sample=1)
    yield model, x, explorer
    explorer.close()


def test_maps_are_shown_after_norm_and_activation(made):
    model, x, explorer = made
    with torch.no_grad():
        first = model.first(x)
        normalized = model.norm(first)
        second = model.second(F.relu(normalized))
        last = model.last(F.relu(second))
    for layer, shown_after, words, expected in (
        ("first", "output", "", first),
        ("first", "norm", "after normalization", normalized),
        ("first", "activation", "after activation", F.relu(normalized)),
        ("second", "norm", "raw output (no normalization follows directly)", second),
        ("second", "activation", "after activation", F.relu(second)),
        ("last", "activation", "raw output (no activation follows directly)", last),
    ):
        explorer.layer, explorer.shown_after = layer, shown_after
        header, arrays = layer_payload(explorer.displayed())
        assert explorer.frame.panels[0].values.tolist() == arrays["maps"][explorer.channel].tolist()
        assert header.shown_after == words
        assert torch.allclose(torch.from_numpy(arrays["maps"]), expected[1])


def test_gradients_and_heatmaps_stay_those_of_the_layers_output(made):
    _, _, explorer = made
    before = explorer.frame
    explorer.shown_after = "activation"
    after = explorer.frame
    assert after.panels[1].values.tolist() == before.panels[1].values.tolist()
    assert after.heatmap.tolist() == before.heatmap.tolist()
    assert after.panels[0].values.min() == 0 > before.panels[0].values.min()
    assert "after activation" in after.panels[0].caption


def test_shown_after_works_with_edits_and_generated_code(made):
    model, _, explorer = made
    explorer.shown_after = "activation"
    with pytest.raises(ValueError, match="shown_after='activation': set shown_after='output'"):
        explorer.code()
    explorer.edit("first", channels=0)
    explorer.channel = 0
    assert torch.allclose(
        torch.from_numpy(explorer.frame.panels[0].values),
        F.relu(model.norm(torch.zeros(1, 4, 8, 8)))[0, 0].detach(),
    )
