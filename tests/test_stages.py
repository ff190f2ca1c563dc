"""Maps as the network goes on with them: after normalization, and after activation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hookviz
from hookviz.view.payload import layer_payload


class Net(nn.Module):
    """One layer with a functional ReLU, one whose output is added to, one gated, one in place."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.gated, self.last = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 6, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(x + self.norm2(self.second(x)))
        y = self.gated(x)
        y = y * torch.sigmoid(y)
        return self.act(self.last(y)).mean((2, 3))


@pytest.fixture
def made():
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    for norm in (model.norm, model.norm2):
        norm.running_mean.normal_()
    explorer = hookviz.explore(model, x, layers=nn.Conv2d, layer="first", sample=1)
    yield model, x, explorer
    explorer.close()


def shown(explorer, layer, shown_after):
    explorer.layer, explorer.shown_after = layer, shown_after
    header, arrays = layer_payload(explorer._now)
    assert explorer.frame.panels[0].values.tolist() == arrays["maps"][explorer.channel].tolist()
    return header["shown_after"], torch.from_numpy(arrays["maps"])


def test_maps_are_shown_after_the_norm_and_the_activation_that_follow(made):
    model, x, explorer = made
    with torch.no_grad():
        first = model.first(x)
        normalized = model.norm(first)
        inner = F.relu(normalized)
        second = model.norm2(model.second(inner))
        gated = model.gated(F.relu(inner + second))
        last = model.last(F.silu(gated))
    for layer, shown_after, words, tensor in (
        ("first", "output", "", first),
        ("first", "norm", "after normalization", normalized),
        ("first", "activation", "after activation", inner),
        ("second", "activation", "after normalization (no activation follows directly)", None),
        ("gated", "norm", "as returned (no normalization follows directly)", gated),
        ("gated", "activation", "after activation", F.silu(gated)),
        ("last", "activation", "after activation", F.relu(last)),
        ("last", "output", "", last),
    ):
        found, maps = shown(explorer, layer, shown_after)
        assert found == words
        assert torch.allclose(maps, (second if layer == "second" and words else tensor)[1])


def test_gradient_and_heatmap_stay_those_of_the_output(made):
    _, _, explorer = made
    before = explorer.frame
    explorer.shown_after = "activation"
    after = explorer.frame
    assert after.panels[1].values.tolist() == before.panels[1].values.tolist()
    assert after.heatmap.tolist() == before.heatmap.tolist()
    assert after.panels[0].values.min() == 0 > before.panels[0].values.min()
    assert "after activation" in after.panels[0].caption


def test_edits_and_code(made):
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
