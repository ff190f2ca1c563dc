"""Heatmaps of transformers against plain float64 computations and pytorch-grad-cam."""

import pytest
import pytorch_grad_cam
import timm
import torch
import torchvision
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from test_attention import picture, scattered

import hookviz
from hookviz.attribution import ATTENTION_HEATMAPS

CLASSES = [3, 1]


def vit(name="vit_tiny_patch16_224", **options):
    chosen = {"img_size": (32, 48), "patch_size": 8, "depth": 3, "num_classes": 4} | options
    return scattered(timm.create_model(name, **chosen))


def wide(n=2):
    return torch.rand(n, 3, 32, 48, generator=torch.Generator().manual_seed(4))


def by_hand(model, x, blocks):
    """Return weights and gradients in float64 of a model cut after this many blocks."""
    model = model.double()
    kept, handles = [], []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda m, a, o: kept.append(o)))
    tokens = model.norm_pre(model._pos_embed(model.patch_embed(x.double())))
    for block in model.blocks[:blocks]:
        tokens = block(tokens)
    logits = model.forward_head(model.norm(tokens))
    score = sum(logits[n, each] for n, each in enumerate(CLASSES))
    gradients = torch.autograd.grad(score, kept)
    for each in handles:
        each.remove()
    return [each.detach() for each in kept], gradients


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_rollout_and_gradient_attention_equal_a_plain_computation(pool):
    options = {} if pool == "token" else {"global_pool": "avg", "class_token": False}
    model, x = vit(**options), wide()
    maps = hookviz.attention(model, x, target=CLASSES)
    weights, gradients = by_hand(model, x, 3)
    for sample in range(2):
        tokens = weights[0].shape[-1]
        flow, relevance = torch.eye(tokens, dtype=torch.float64), torch.eye(tokens).double()
        for a, g in zip(weights, gradients, strict=True):
            mixed = sum(a[sample]) / 3
            flow = (0.5 * mixed + 0.5 * torch.eye(tokens)) @ flow
            relevance = relevance + (g[sample] * a[sample]).clamp(min=0).mean(0) @ relevance
        for method, matrix in (("rollout", flow), ("gradient × attention", relevance)):
            row = matrix[0, 1:] if pool == "token" else matrix.mean(0)
            found = hookviz.heatmap(maps, method)[sample]
            assert found.shape == (4, 6)
            assert (found.flatten() - row).abs().max() < 1e-5 * row.max()


def test_legrad_equals_a_plain_computation():
    model, x = vit(), wide()
    maps = hookviz.attention(model, x, target=CLASSES)
    found, expected = hookviz.heatmap(maps, "legrad"), 0
    for blocks in (1, 2, 3):
        _, gradients = by_hand(model, x, blocks)
        expected = expected + gradients[-1].clamp(min=0).mean((1, 2))[:, 1:] / 3
    assert (found.flatten(1) - expected).abs().max() < 1e-5 * expected.max()


def test_legrad_of_the_top_class():
    model, x = vit(), wide()
    top = model(x).argmax(1).tolist()
    ours, given = (hookviz.attention(model, x, target=each) for each in (None, top))
    assert torch.equal(hookviz.heatmap(ours, "legrad"), hookviz.heatmap(given, "legrad"))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("method", ATTENTION_HEATMAPS)
def test_heatmaps_of_torchvision_register_and_distilled_transformers_have_patch_size(method):
    for model, x in (
        (torchvision.models.VisionTransformer(32, 8, 2, 4, 16, 32, num_classes=4), picture()),
        (vit("vit_small_patch14_reg4_dinov2", depth=2, embed_dim=24, num_heads=2), wide(1)),
        (vit("deit_tiny_distilled_patch16_224", depth=2), wide(1)),
    ):
        heat = hookviz.heatmap(hookviz.attention(scattered(model), x), method)
        assert heat.shape == ((1, 4, 4) if x.shape[-1] == 32 else (1, 4, 6))
        assert heat.isfinite().all() and heat.max() > 0


def test_unknown_methods_and_models_without_full_attention_are_refused():
    swin = torchvision.models.SwinTransformer([4, 4], 12, [2, 2], [2, 4], [4, 4], num_classes=3)
    maps = hookviz.attention(swin.eval(), picture())
    for method in ATTENTION_HEATMAPS:
        with pytest.raises(ValueError, match="some layers do not attend over all patches"):
            hookviz.heatmap(maps, method)
    with pytest.raises(ValueError, match="Unknown heatmap of attention .*; close to it"):
        hookviz.heatmap(maps, "gradcam")


# Grad-CAM on tokens: hookviz finds the reshape itself.


def dropped(count, grid):
    return lambda tokens: tokens[:, count:].unflatten(1, grid).movedim(-1, 1)


def last(maps):
    return maps.movedim(-1, 1)


GRIDS = {
    "class token": (vit, "blocks.1.mlp.fc2", dropped(1, (4, 6)), wide),
    "registers": (
        lambda: vit("vit_small_patch14_reg4_dinov2"), "blocks.1.mlp.fc2", dropped(5, (4, 6)), wide
    ),
    "torchvision": (
        lambda: torchvision.models.VisionTransformer(32, 8, 2, 4, 16, 32, num_classes=4),
        "encoder.layers.encoder_layer_0", dropped(1, (4, 4)), lambda: picture(2),
    ),
    "swin": (
        lambda: torchvision.models.SwinTransformer(
            [4, 4], 12, [2, 2], [2, 4], [4, 4], num_classes=4
        ),
        "features.3.1.norm2", last, lambda: picture(2),
    ),
    "timm swin, tokens": (  # the MLP's input is (N, T, C), of patches merged 2×2
        lambda: timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=(32, 64), window_size=4, embed_dim=12,
            depths=(2, 2), num_heads=(2, 4), num_classes=4,
        ),
        "layers.1.blocks.1.mlp.fc2", dropped(0, (4, 8)), lambda: torch.rand(2, 3, 32, 64),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_gradcam_on_tokens_equals_pytorch_grad_cam_with_an_explicit_reshape(name):
    make, layer, reshape, inputs = GRIDS[name]
    model, x = scattered(make()), inputs()
    with hookviz.capture(model, layer) as cache:
        model(x)[:, 2].sum().backward()
    ours = hookviz.heatmap(cache[layer], "gradcam")
    cam = pytorch_grad_cam.GradCAM(model, [model.get_submodule(layer)], reshape_transform=reshape)
    with cam:
        cam(x, [ClassifierOutputTarget(2)] * len(x))
        activations, gradients = (
            cam.activations_and_grads.activations,
            cam.activations_and_grads.gradients,
        )
        theirs = cam.get_cam_image(
            x, cam.target_layers[0], None, activations[0].numpy(), gradients[0].numpy(), False
        )
    assert ours.shape == theirs.shape
    theirs = torch.from_numpy(theirs).relu()
    assert theirs.max() > 0
    assert (ours - theirs).abs().max() < 1e-4 * theirs.max()
