"""Attention in the diagnosis of a model, and in an exported page."""

from pathlib import Path
from runpy import run_path

import pytest
import torch
from test_attention import scattered
from torch import nn

import hookviz


@pytest.fixture(scope="module")
def helper():
    """The small transformer of the documentation, and its digits."""
    return run_path(str(Path(__file__).parents[1] / "assets" / "train_digit_transformer.py"))


def digits(helper, count):
    pictures, labels = helper["digits"](train=False)
    x, corners = helper["scattered"](pictures, torch.Generator().manual_seed(1))
    return x[:count], labels[:count], corners[:count]


def told(findings):
    return [each for each in findings if each.kind == "attention"]


class Masked(nn.Module):
    """Two blocks of attention; an added mask says where the first one's heads look."""

    def __init__(self, mask):
        super().__init__()
        self.one = nn.MultiheadAttention(8, 2, batch_first=True)
        self.two = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mask = mask
        scattered(self)

    def forward(self, x):
        x = x + self.one(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        return x + self.two(3 * x, 3 * x, x, need_weights=False)[0]


# an exported page


def test_a_page_says_which_query_its_attention_has():
    model, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(model, digit, face="plain")
    page = explorer.to_html(layers="*encoder_layer_*")
    assert "The attention in this page has one query: the class token." in page
    explorer.close()
