"""Heads that are silenced, or multiplied, against a model in which that is written out."""

import math

import numpy as np
import pytest
import timm
import torch
from test_attention import picture, scattered
from test_attention_explorer import SMALL, Words
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookviz
from hookviz.attribution import prepare_input
from hookviz.attribution.heads import HeadEdit
from hookviz.run.session import Session
from hookviz.view.maps import run_session


def head_edit(model, x, attends, change, head):
    """The edit that the explorer makes of a head."""
    run = run_session(Session(model, prepare_input(x, model)), None, None)
    return run.cache[f"{attends}.heads" if attends else "heads"].edit(change, head)


class Own(nn.Module):
    """Attention whose heads have factors; fused or by hand."""

    def __init__(self, fused=False):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.num_heads, self.fused = 2, fused
        self.factors = None

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            y = y if self.factors is None else y * self.factors.view(1, 2, 1, 1)
        else:
            weights = (q @ k.mT / math.sqrt(4)).softmax(-1)
            weights = weights if self.factors is None else weights * self.factors.view(1, 2, 1, 1)
            y = weights @ v
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class Net(nn.Module):
    def __init__(self, repeated=False, **options):
        super().__init__()
        self.repeated = repeated
        self.attn, self.attn2, self.head = Own(**options), Own(**options), nn.Linear(8, 3)

    def forward(self, x):
        y = x + checkpoint(self.attn, x, use_reentrant=False) if self.repeated else x + self.attn(x)
        return self.head(self.attn2(y).mean(1))


@pytest.mark.parametrize("factor", [0, 0.5, -2])
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"fused": True, "repeated": True}])
def test_output_and_gradients(options, factor):
    model = scattered(Net(**options)).double()
    x = torch.rand(2, 5, 8, dtype=torch.float64, requires_grad=True)

    def passed():
        y = model(x)
        return y, torch.autograd.grad(y[:, 1].sum(), [x, *model.parameters()])

    plain, _ = passed()
    with head_edit(model, x.detach(), "attn", factor, 1).block(model):
        found, gradients = passed()
    model.attn.factors = torch.tensor([1.0, factor])
    wanted, expected = passed()
    assert not torch.allclose(plain, wanted)
    assert torch.allclose(found, wanted)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("fused", [True, False])
def test_explorer(fused):
    model, x = scattered(timm.create_model("vit_tiny_patch16_224", **SMALL)), picture()
    for block in model.blocks:
        block.attn.fused_attn = fused
    explorer = hookviz.explore(model, x, 1, face="plain")
    explorer.layer, explorer.channel = "blocks.0.attn.heads", 2
    before = explorer.frame.panels[0].values
    explorer.edit()
    assert [str(each) for each in explorer.edits] == ["blocks.0.attn.heads, head 2: off"]
    assert not explorer.frame.panels[0].values.any() and before.all()

    def without(module, args):  # the columns of the projection that are the head's
        kept = args[0].clone()
        kept[..., 2 * 64 :] = 0
        return kept

    with model.blocks[0].attn.proj.register_forward_pre_hook(without), torch.no_grad():
        wanted = model(x)
    assert torch.allclose(explorer.displayed().run.logits, wanted, atol=1e-5)
    explorer.shown_run = "original"
    assert np.array_equal(explorer.frame.panels[0].values, before)
    explorer.shown_run = "edited"
    with pytest.raises(ValueError, match="a view with 1 edit"):
        explorer.layer = "blocks.1"
        explorer.code()
    explorer.undo()
    explorer.layer = "blocks.0.attn.heads"
    explorer.order = "score drop"
    scores = explorer.frame.tiles.ablation_scores
    with torch.no_grad():
        plain = model(x)
    lost = dict(zip(explorer.frame.tiles.channels.tolist(), scores, strict=True))[2]
    assert lost == pytest.approx(float((plain - wanted)[0, 1]), abs=1e-4)
    explorer.close()


class Inside(Own):
    """Attention that is checkpointed within its module: no module runs again in the backward."""

    def __init__(self, reentrant, **options):
        super().__init__(**options)
        self.reentrant = reentrant

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("factor", [0, 0.5, -2])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_checkpointed_method_has_the_edit_in_its_gradients(fused, reentrant, factor):
    """Against the same heads' factors written out, in float64, through `torch.autograd`."""
    model = Net()
    model.attn, model.attn2 = Inside(reentrant, fused=fused), Inside(reentrant, fused=fused)
    scattered(model).double()
    x = torch.rand(2, 5, 8, dtype=torch.float64)

    def gradients():
        given = x.clone().requires_grad_()
        model.zero_grad()
        y = model(given)
        y[:, 1].sum().backward()
        return [y.detach(), given.grad, *(each.grad for each in model.parameters())]

    plain = gradients()
    for name in ("attn", "attn2"):
        with head_edit(model, x, name, factor, 1).block(model):
            found = gradients()
        getattr(model, name).factors = torch.tensor([1.0, factor])
        expected = gradients()
        getattr(model, name).factors = None
        assert not torch.allclose(plain[1], expected[1])
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_checkpointed_method_has_its_weights_and_gradients(fused, reentrant):
    model, plain, x = Net(), Net(fused=fused), torch.rand(2, 5, 8)
    model.attn, model.attn2 = Inside(reentrant, fused=fused), Inside(reentrant, fused=fused)
    scattered(model)
    plain.load_state_dict(model.state_dict())
    found, wanted = (hookviz.attention(each, x, target=1) for each in (model, plain.eval()))
    assert list(found) == list(wanted) == ["attn", "attn2"]
    for name in wanted:
        assert torch.allclose(found[name], wanted[name])
        assert torch.allclose(found.gradients[name], wanted.gradients[name])


def test_where_a_whole_layer_would_be_one_operation():
    model, words = scattered(Words()), torch.arange(6)[None]
    edit = head_edit(model, words, "encoder.self_attn", 0, None)
    with torch.no_grad():
        plain = model(words)
        with edit.block(model):
            found = model(words)
        model.encoder.self_attn.out_proj.weight.zero_()
        assert torch.allclose(found, model(words), atol=1e-6) and not torch.allclose(found, plain)
    assert torch.backends.mha.get_fastpath_enabled()


def test_what_cannot_be():
    with pytest.raises(ValueError, match="multiplied by a number"):
        HeadEdit("attn.heads", "mean")
    model, x = scattered(Net()), torch.rand(1, 5, 8)
    with pytest.raises(ValueError, match="heads=7 are not heads of layer 'attn.heads'"):
        head_edit(model, x, "attn", 0, 7).block(model)
    unused = head_edit(model, x, "attn", 0, 1).block(model)
    with pytest.warns(RuntimeWarning, match="changed nothing"), unused:
        pass
