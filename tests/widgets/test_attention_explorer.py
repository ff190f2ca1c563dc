"""Attention among the explorer's layers."""

import math

import numpy as np
import pytest
import timm
import torch
import torchvision
import traitlets
from architectures import model_of
from test_attention import picture, scattered
from torch import nn

import hookviz
from hookviz.attribution.heads import AttentionRecord, may_attend, token_names
from hookviz.view.attending import weights_beside
from hookviz.view.payload import field_payload, layer_payload, model_payload

SMALL = {"img_size": 32, "patch_size": 8, "depth": 2, "num_classes": 4}


def vit(name="vit_tiny_patch16_224"):
    return scattered(timm.create_model(name, **SMALL))


@pytest.fixture(scope="module")
def explorer_and_maps():
    """Return an explorer of a small ViT, and the result of `hookviz.attention` for it."""
    model, x = vit(), picture(2)
    explorer = hookviz.explore(model, x, 1, face="plain")
    yield explorer, hookviz.attention(model, x, target=1)
    explorer.close()


def test_heads_are_listed_in_execution_order(explorer_and_maps):
    explorer, _ = explorer_and_maps
    names = ["blocks.0.attn.heads", "blocks.0", "blocks.1.attn.heads", "blocks.1"]
    assert list(explorer.cache) == ["patch_embed.proj", *names]
    assert isinstance(explorer.cache["blocks.0.attn.heads"], AttentionRecord)


def test_a_head_shows_the_weights_of_the_class_token_or_of_a_patch(explorer_and_maps):
    explorer, maps = explorer_and_maps
    explorer.layer, explorer.channel, explorer.sample = "blocks.1.attn", 2, 1
    assert explorer.layer == "blocks.1.attn.heads"
    weights, gradients = maps["blocks.1.attn"][1, 2], maps.gradients["blocks.1.attn"][1, 2]
    for place, query in ((None, 0), ((0.3, 0.8), 1 + 1 * 4 + 3)):
        explorer.place = place
        shown, slope = explorer.frame.panels[:2]
        assert np.allclose(shown.values, weights[query, 1:].view(4, 4), atol=1e-6)
        assert np.allclose(slope.values, gradients[query, 1:].view(4, 4), atol=1e-6)
        words = "the class token" if place is None else "patch (1, 3)"
        assert f"head 2 of 3 of layer blocks.1.attn.heads (Attention), a map of 4×4, query: {words}"
        assert f"query: {words}" in explorer.frame.description
    assert explorer.frame.input.box == (0.75, 0.25, 0.25, 0.25)  # the box of the selected patch
    explorer.place, explorer.sample = None, 0


def test_the_browser_gets_the_weights_of_the_class_token(explorer_and_maps):
    explorer, maps = explorer_and_maps
    explorer.layer = "blocks.0.attn.heads"
    view = explorer.displayed()
    header, arrays = layer_payload(view)
    weights = maps["blocks.0.attn"][0]
    assert np.allclose(arrays["maps"], weights[:, 0, 1:].unflatten(-1, (4, 4)), atol=1e-6)
    assert (header.word, header.query, header.beside) == (
        "head",
        "the class token",
        ["class token"],
    )
    assert np.allclose(arrays["beside"], weights[:, 0, :1], atol=1e-6)
    entries = {each["name"]: each.get("attends") for each in model_payload(view)["layers"]}
    assert entries["blocks.0.attn.heads"] and not entries["blocks.0"]
    field = field_payload(view)
    assert field["ends"][0]["from"] == [0, 8, 16, 24]


def test_heatmaps_use_the_weights_of_the_selected_query(explorer_and_maps):
    explorer, maps = explorer_and_maps
    explorer.layer, explorer.place = "blocks.1.attn.heads", (0.0, 0.0)
    weights, gradients = (each["blocks.1.attn"][0, :, 1, 1:] for each in (maps, maps.gradients))
    expected = (gradients.mean(1)[:, None] * weights).sum(0).relu().view(4, 4)
    assert np.allclose(explorer.frame.heatmap, expected, atol=1e-6)
    explorer.place = None


def test_tokens_before_the_patches_are_named():
    torchvisions = torchvision.models.VisionTransformer(16, 8, 1, 2, 8, 8)
    assert token_names(torchvisions) == ("class token",)
    registers = vit("vit_small_patch14_reg4_dinov2")
    with_page = hookviz.explore(registers, picture(), layers="blocks.1.attn", face="plain")
    assert list(with_page.cache) == ["blocks.1.attn.heads", "blocks.1.attn"]
    with_page.layer = "blocks.1.attn.heads"
    names = weights_beside(with_page.displayed())
    assert list(names) == ["class token", *(f"token {n}" for n in range(1, 5))]


def test_attention_without_patches_is_shown_as_the_query_key_matrix():
    model, words = (
        scattered(
            model_of(
                lambda m, words: m.head(m.encoder(m.embedding(words)).mean(1)),
                embedding=nn.Embedding(9, 8),
                encoder=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
                head=nn.Linear(8, 3),
            )
        ),
        torch.arange(6)[None],
    )
    explorer = hookviz.explore(model, words, face="plain")
    weights = hookviz.attention(model, words)["encoder.self_attn"]
    explorer.layer, explorer.channel = "encoder.self_attn.heads", 0
    assert np.allclose(explorer.frame.panels[0].values, weights[0, 0], atol=1e-6)
    assert "query" not in explorer.frame.description


def test_attention_over_the_memory_budget_is_computed_when_selected():
    model, x = vit(), picture()
    with pytest.warns(RuntimeWarning, match="max_bytes"):
        explorer = hookviz.explore(model, x, 1, max_bytes=35_000, face="plain")
    over = explorer.cache.over_budget
    assert "blocks.1.attn.heads" in over and explorer.cache.nbytes <= 35_000
    weights = hookviz.attention(model, x)["blocks.1.attn"]
    known = explorer.cache["blocks.1.attn.heads"].last.outputs[0].statistics
    assert math.isclose(known.max, float(weights.max()), rel_tol=1e-5)
    with pytest.raises(ValueError, match="need the weights of every layer, and some went over"):
        explorer.heatmap = "rollout"
    assert explorer.heatmap == "gradcam"


def test_only_models_that_may_attend_are_searched_for_attention():
    assert not may_attend(torchvision.models.resnet18(weights=None))
    swin = torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [7, 7])
    assert may_attend(swin) and may_attend(vit())


def test_rollout_and_other_heatmaps_over_all_attention_are_offered(explorer_and_maps):
    explorer, maps = explorer_and_maps
    for method in ("rollout", "gradient × attention", "legrad"):
        expected = hookviz.heatmap(maps, method)
        for layer, sample in (("blocks.0", 1), ("blocks.1.attn.heads", 0)):
            explorer.layer, explorer.sample, explorer.heatmap = layer, sample, method
            assert np.allclose(explorer.frame.heatmap, expected[sample], atol=1e-6)
            assert explorer.frame.overlay is not None
    assert "rollout" in model_payload(explorer.displayed())["choices"]["heatmap"]
    explorer.layer, explorer.heatmap = "blocks.0", "norm"
    tokens = explorer.cache["blocks.0"].activation[0, 1:].view(4, 4, -1)
    assert np.allclose(explorer.frame.heatmap, tokens.norm(dim=-1), atol=1e-5)
    with pytest.raises(ValueError, match="exists for the heatmap 'norm'"):
        explorer.code()
    explorer.heatmap = "gradcam"


def test_heatmaps_over_all_attention_are_not_offered_without_it_or_refused():
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 2))
    explorer = hookviz.explore(model, picture(1, 8), face="plain")
    assert "rollout" not in explorer.frame.choices["heatmap"]
    with pytest.raises(traitlets.TraitError, match="Unknown heatmap 'rollout'"):
        explorer.heatmap = "rollout"
    swin = torchvision.models.SwinTransformer([4, 4], 12, [2], [2], [4, 4], num_classes=3)
    explorer = hookviz.explore(scattered(swin), picture(), face="plain")
    with pytest.raises(ValueError, match="some layers do not attend over all patches"):
        explorer.heatmap = "rollout"
    assert explorer.heatmap == "gradcam"
    explorer.heatmap = "norm"
    assert "norm" in explorer.to_html()


def test_attention_has_no_kernels_to_show(explorer_and_maps):
    explorer, _ = explorer_and_maps
    layer = next(name for name in explorer.frame.layers if name.endswith(".heads"))
    expected = rf"{layer!r} has no kernels: .* such as '{layer[:-6]}\.qkv'\.$"
    with pytest.raises(ValueError, match=expected):
        explorer.weights(layer)
