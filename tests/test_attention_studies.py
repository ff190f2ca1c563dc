"""Attention in the diagnosis of a model, and in an exported page."""

from pathlib import Path
from runpy import run_path

import pytest
import torch
import torchvision
from test_attention import picture, scattered
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


def test_diagnose_notes_heads_that_have_collapsed():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(6, 6)
    mask[:, 3] = 50.0
    findings = hookviz.diagnose(Masked(mask), x)
    (note,) = told(findings)
    assert (note.severity, note.layers, note.evidence["keys"]) == ("note", ["one"], [3])
    assert "one token whatever the query: 100 % of the weight or more goes to token 3" in (
        note.message
    )
    assert findings.healthy
    assert not told(hookviz.diagnose(Masked(None), x))
    assert not told(hookviz.diagnose(Masked(mask), x, ignore=["attention"]))


def test_diagnose_notes_uniform_attention():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    model = Masked(None)
    nn.init.zeros_(model.one.in_proj_weight[:8].detach())  # the queries
    (note,) = told(hookviz.diagnose(model, x))
    assert note.severity == "note" and note.layers == ["one"]
    assert "everywhere alike" in note.message and "before training" not in note.message
    model.train()
    assert [each.layers for each in told(hookviz.diagnose(model, x))] == [["one"]]


def test_diagnose_is_silent_on_a_trained_transformer(helper):
    x, labels, _ = digits(helper, 32)
    loss = lambda output: nn.functional.cross_entropy(output, labels)  # noqa: E731
    for model in (hookviz.models.demo_transformer(), hookviz.models.demo_transformer().train()):
        findings = hookviz.diagnose(model, x, loss)
        assert not told(findings) and findings.healthy
        assert any("12 heads" in each for each in findings.looked_at)


def test_diagnose_says_that_an_untrained_one_is_as_before_training():
    """At step 0 small weights spread attention evenly: one note for all, and no warning."""
    torch.manual_seed(0)
    model = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=4).eval()
    with torch.no_grad():
        for name, each in model.named_parameters():
            if "in_proj_weight" in name:
                each.mul_(0.02)
    findings = hookviz.diagnose(model, picture(2))
    (note,) = told(findings)
    assert len(note.layers) == 2 and "as before training" in note.message
    assert note.severity == "note" and findings.healthy


# an exported page


def test_a_page_holds_the_matrices_as_far_as_they_fit():
    model, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(model, digit, face="plain")
    layers = "*encoder_layer_*"
    whole = explorer.to_html(layers=layers)
    assert whole.count('"queries":{"grid":[6,6],"before":1,"first":1,"query":0') == 3
    said = "Other queries need the notebook."
    assert said not in whole
    room = len(whole.encode())
    while said not in (small := explorer.to_html(max_bytes=room)):
        room -= 40_000  # the program's own size is not this test's
    assert len(small.encode()) <= room and "attention from other queries is" in small
    explorer.close()
