"""Silenced and scaled heads, compared with a model whose code scales them."""

import math

import pytest
import timm
import torch
import torchvision
from test_attention import picture, scattered
from test_attention_explorer import SMALL
from torch import nn
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.attribution import prepare_input
from hookviz.attribution.heads import HeadEdit
from hookviz.run.session import Session
from hookviz.view.maps import run_session
from hookviz.view.orders import score_drops


def head_edit(model, x, attends, change, head):
    """Return the edit that the explorer applies to a head."""
    run = run_session(Session(model, prepare_input(x, model)), None)
    return run.cache[f"{attends}.heads" if attends else "heads"].edit(change, head)


class ScaledHeads(nn.Module):
    """Attention that scales its heads, fused or not, and optionally checkpoints its inner function.

    With such a checkpoint no module runs again in the backward.
    """

    def __init__(self, fused=False, inside=None):
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.num_heads, self.fused, self.inside = 2, fused, inside
        self.factors = torch.ones(2, dtype=torch.float64)

    def forward(self, x):
        if self.inside is not None:
            return checkpoint(self.attend, x, use_reentrant=self.inside)
        return self.attend(x)

    def attend(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.mT / math.sqrt(4)).softmax(-1) @ v
        y = y * self.factors.to(y).view(1, 2, 1, 1) if (self.factors != 1).any() else y
        return self.proj(self.joined(y))

    def joined(self, y):
        return y.transpose(1, 2).flatten(2)


class TwoAttentions(nn.Module):
    def __init__(self, repeated=False, **options):
        super().__init__()
        self.repeated = repeated
        self.attn, self.attn2, self.head = (
            ScaledHeads(**options),
            ScaledHeads(**options),
            nn.Linear(8, 3),
        )

    def forward(self, x):
        y = x + checkpoint(self.attn, x, use_reentrant=False) if self.repeated else x + self.attn(x)
        return self.head(self.attn2(y).mean(1))


def outcome(model, x):
    """Return the output, and the gradients of the input and all weights."""
    given = x.clone().requires_grad_()
    model.zero_grad()
    y = model(given)
    y[:, 1].sum().backward()
    return [y.detach(), given.grad, *(each.grad for each in model.parameters())]


CHECKPOINTED = [{}, {"repeated": True}, {"inside": True}, {"inside": False}]


@pytest.mark.parametrize("factor", [0, -2])
@pytest.mark.parametrize("options", CHECKPOINTED, ids=str)
@pytest.mark.parametrize("fused", [True, False])
def test_edited_heads_give_the_same_output_and_gradients_as_written_out(fused, options, factor):
    """The reference multiplies the heads in the model's code, in float64."""
    model = scattered(TwoAttentions(fused=fused, **options)).double()
    x = torch.rand(2, 5, 8, dtype=torch.float64)
    plain = outcome(model, x)
    for name in ("attn", "attn2"):
        with head_edit(model, x, name, factor, 1).block(model):
            found = outcome(model, x)
        model.get_submodule(name).factors[1] = factor
        expected = outcome(model, x)
        model.get_submodule(name).factors[1] = 1
        assert not torch.allclose(plain[0], expected[0])
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("factor", [0, 0.5])
@pytest.mark.parametrize("kind", ["torch", "swin"])
def test_heads_are_edited_if_the_projection_is_not_called_as_a_module(kind, factor):
    """The reference scales the columns of the projection's weight that belong to the heads."""
    if kind == "torch":
        model = torchvision.models.VisionTransformer(32, 8, 2, 4, 16, 32, num_classes=4)
        name, weight = "encoder.layers.encoder_layer_0.self_attention", "out_proj"
    else:
        model = torchvision.models.SwinTransformer([4, 4], 16, [2], [4], [4, 4], num_classes=4)
        name, weight = "features.1.1.attn", "proj"
    x = picture(2)
    scattered(model)
    before = snapshot(model)
    with head_edit(model, x, name, factor, [0, 2]).block(model), torch.no_grad():
        found = model(x)
    assert_untouched(model, before)
    model.get_submodule(name).get_submodule(weight).weight.data[:, [0, 1, 2, 3, 8, 9, 10, 11]] *= (
        factor
    )
    with torch.no_grad():
        assert torch.allclose(found, model(x), atol=1e-5)


class Adapted(nn.Module):
    """A linear layer with a low-rank addition, as LoRA has it."""

    def __init__(self, linear):
        super().__init__()
        self.base, self.down, self.up = linear, nn.Linear(8, 2), nn.Linear(2, 8)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class SharedDropout(ScaledHeads):
    """Attention whose dropout also runs before the projection of its input."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()

    def attend(self, x):
        return super().attend(self.dropout(x))

    def joined(self, y):
        return self.dropout(super().joined(y))


@pytest.mark.parametrize("kind", ["activation", "adapter", "dropout"])
def test_heads_are_edited_before_whatever_takes_them_side_by_side(kind):
    model, x = TwoAttentions().double(), torch.rand(2, 5, 8, dtype=torch.float64)
    if kind == "activation":  # as in LeViT
        model.attn.proj = nn.Sequential(nn.Hardswish(), nn.Linear(8, 8))
    elif kind == "adapter":
        model.attn.proj = Adapted(model.attn.proj)
    else:
        model.attn = SharedDropout()
    scattered(model).double()
    with head_edit(model, x, "attn", 0, 1).block(model):
        found = model(x)
    model.attn.factors[1] = 0
    assert torch.allclose(found, model(x), atol=1e-12)


class Interleaved(ScaledHeads):
    """Attention that interleaves the values of its heads before the projection."""

    def joined(self, y):
        return y.permute(0, 2, 3, 1).flatten(2)


class OwnWeight(ScaledHeads):
    """Attention with its projection as a parameter, as wide as its input."""

    def __init__(self):
        super().__init__()
        del self.proj
        self.weight = nn.Parameter(torch.rand(8, 8))

    def proj(self, y):
        return y @ self.weight


class Talking(ScaledHeads):
    """Attention that mixes its heads' weights by a linear layer."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(2, 2)

    def attend(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = self.mix((q @ k.mT).softmax(-1).movedim(1, -1)).movedim(-1, 1)
        return self.proj(self.joined(weights @ v))


@pytest.mark.parametrize("kind", [Interleaved, OwnWeight, Talking])
def test_heads_that_are_mixed_or_not_adjacent_inputs_of_a_layer_are_refused(kind):
    model, x = TwoAttentions(), torch.rand(2, 5, 8)
    model.attn = kind()
    scattered(model)
    with pytest.raises(ValueError, match="Heads of 'attn.heads' cannot be scaled"):
        head_edit(model, x, "attn", 0, 1)
    assert head_edit(model, x, "attn2", 0, 1).projection == "attn2.proj"


def test_the_explorer_silences_a_head_and_ranks_heads_by_score_drop():
    model, x = scattered(timm.create_model("vit_tiny_patch16_224", **SMALL)), picture()
    explorer = hookviz.explore(model, x, 1, face="plain")
    explorer.layer, explorer.channel = "blocks.0.attn.heads", 2
    explorer.edit()
    assert [str(each) for each in explorer.edits] == ["blocks.0.attn.heads, head 2: off"]
    assert not explorer.frame.panels[0].values.any()

    def without(module, args):  # the input columns of the projection that belong to the head
        kept = args[0].clone()
        kept[..., 2 * 64 :] = 0
        return kept

    with model.blocks[0].attn.proj.register_forward_pre_hook(without), torch.no_grad():
        wanted = model(x)
    assert torch.allclose(explorer.displayed().run.logits, wanted, atol=1e-5)
    explorer.undo()
    explorer.order = "score drop"
    scores = score_drops(explorer.displayed())
    with torch.no_grad():
        plain = model(x)
    assert scores[2] == pytest.approx(float((plain - wanted)[0, 1]), abs=1e-4)


class Twice(ScaledHeads):
    """Attends twice within one checkpoint, which repeats both calls in the backward."""

    def attend(self, x):
        return super().attend(super().attend(x))


@pytest.mark.parametrize("kind", [ScaledHeads, Twice])
@pytest.mark.parametrize("options", CHECKPOINTED[1:], ids=str)
@pytest.mark.parametrize("fused", [True, False])
def test_weights_and_gradients_of_checkpointed_attention(fused, options, kind):
    model, plain, x = (
        TwoAttentions(fused=fused, **options),
        TwoAttentions(fused=fused),
        torch.rand(2, 5, 8),
    )
    inside = options.get("inside")
    model.attn, plain.attn = kind(fused, inside), kind(fused)
    plain.load_state_dict(scattered(model).state_dict())
    found, wanted = (hookviz.attention(each, x, target=1) for each in (model, plain.eval()))
    names = ["attn", "attn2"] if kind is ScaledHeads else ["attn", "attn#1", "attn2"]
    assert list(found) == list(wanted) == names
    for name in wanted:
        assert torch.allclose(found[name], wanted[name])
        if not inside:
            assert torch.allclose(found.gradients[name], wanted.gradients[name])
    if inside:  # such a forward builds no graph
        assert found.gradients == {}


def test_invalid_or_unused_head_edits_are_reported():
    with pytest.raises(ValueError, match="multiplied by a number"):
        HeadEdit("attn.heads", "mean")
    model, x = scattered(TwoAttentions()), torch.rand(1, 5, 8)
    with pytest.raises(ValueError, match="channels=7 are not channels of attention 'attn.heads'"):
        head_edit(model, x, "attn", 0, 7).block(model)
    unused = head_edit(model, x, "attn", 0, 1).block(model)
    with pytest.warns(RuntimeWarning, match="changed nothing"), unused:
        pass
