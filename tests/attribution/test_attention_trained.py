"""A transformer trained to find a digit in noise attends to the digit."""

from pathlib import Path
from runpy import run_path

import pytest
import torch

import hookviz

COUNT = 40


@pytest.fixture(scope="module")
def digits():
    """Return the network, correctly classified pictures, and the digit's fraction of each patch."""
    helper = run_path(str(Path(__file__).parents[2] / "assets" / "train_digit_transformer.py"))
    model = hookviz.models.demo_transformer()
    pictures, labels = helper["digits"](train=False)
    x, corners = helper["scattered"](pictures, torch.Generator().manual_seed(1))
    with torch.no_grad():
        right = model(x).argmax(1) == labels
    assert right.float().mean() > 0.9
    chosen = right.nonzero().flatten()[:COUNT]
    covered = torch.zeros(COUNT, 24, 24)
    for one, (row, column) in zip(covered, corners[chosen].tolist(), strict=True):
        one[row : row + 8, column : column + 8] = 1
    return model, x[chosen], labels[chosen], covered.view(COUNT, 6, 4, 6, 4).mean((2, 4))


def fraction_on_the_digit(heat, share):
    """Return the fraction of a map's sum that lies on the digit, over the pictures ``(...)``."""
    return (heat * share).sum((-2, -1)) / heat.sum((-2, -1))


def test_heads_of_the_class_token_attend_to_the_digit(digits):
    """The digit covers a ninth of the picture but gets a much larger fraction of the weights."""
    model, x, _, share = digits
    maps = hookviz.attention(model, x)
    for name in maps:
        found = fraction_on_the_digit(maps.patches(name, 0), share[:, None]).mean(0)
        assert (found > 0.33).all(), (name, found)


@pytest.mark.parametrize("method", ["gradient × attention", "rollout"])
def test_heatmaps_lie_on_the_digit(digits, method):
    model, x, labels, share = digits
    maps = hookviz.attention(model, x, target=labels.tolist())
    found = fraction_on_the_digit(hookviz.heatmap(maps, method), share)
    assert found.mean() > 0.33
