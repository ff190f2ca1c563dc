"""Attention of all layers -> heatmap of the patches: one short function a method.

Every method is a function of an `Attention` alone: of the weights ``A`` of all layers in which all
tokens look at all, ``(N, heads, T, T)``, and of the score's gradients ``G`` at them. Read is what
reaches the class token, the first of all; without one, the mean over the patches. Values are raw,
at the size of the model's grid of patches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .attention import Attention, prefix_of


def rollout(maps: Attention) -> Tensor:
    """Attention rollout: how much of each patch has flowed to the class token; knows of no class.

    The row of the class token in ``Â_L … Â_2 Â_1`` with ``Â = (mean over heads of A + I) / 2``,
    Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.1.

    Notes
    -----
    Popular code also sets small weights to zero (``discard_ratio``); the paper does not.
    """
    flow: Tensor | None = None
    for weights in _square(maps).values():
        mixed = weights.mean(1)
        mixed = (mixed + torch.eye(mixed.shape[-1]).to(mixed)) / 2
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return _read(maps, flow)


def gradient_attention(maps: Attention) -> Tensor:
    """Gradient × attention: relevance that is passed on from layer to layer, for the target.

    The row of the class token in ``R``, which begins as the identity and takes up ``Ā R`` at each
    layer, with ``Ā = mean over heads of relu(G * A)``; Chefer, Gur and Wolf 2021, "Generic
    Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
    equations 5 and 6, for self-attention.
    """
    relevance: Tensor | None = None
    for name, weights in _square(maps).items():
        if name not in maps.gradients:
            continue  # the score does not depend on it
        passed = (maps.gradients[name] * weights).relu().mean(1)
        if relevance is None:
            relevance = torch.eye(passed.shape[-1]).to(passed).expand_as(passed)
        relevance = relevance + passed @ relevance
    if relevance is None:
        raise ValueError("No gradient reaches any attention: give a target that depends on it.")
    return _read(maps, relevance)


def legrad(maps: Attention) -> Tensor:
    """LeGrad: how the score would answer to each patch being looked at more, layer by layer.

    ``mean over layers, heads and queries of relu(dS_l/dA_l)``, where ``S_l`` is the score of what
    layer l returns, handed to what follows the last layer; Bousselham et al. 2024, "LeGrad: An
    Explainability Method for Vision Transformers via Feature Formation Sensitivity", equations 5
    to 8. The model runs once for each layer.

    Notes
    -----
    The model reads ``S_l`` off a layer as it reads its last one: off the class token, or the mean.
    The authors' code for CLIP takes the mean of all tokens, and scales the map to 0..1.
    """
    known = maps.layer_gradients
    found = [known[name].relu().mean((1, 2)) for name in _square(maps) if name in known]
    if not found:
        raise ValueError("No gradient reaches any attention: give a target that depends on it.")
    return _on_patches(maps, torch.stack(found).mean(0))


ATTENTION_HEATMAPS: dict[str, Callable[[Attention], Tensor]] = {
    "rollout": rollout,
    "gradient × attention": gradient_attention,
    "legrad": legrad,
}
"""Method name -> function of an `Attention` -> ``(N, rows, columns)``."""


def _square(maps: Attention) -> dict[str, Tensor]:
    """Return the layers in which all tokens attend to all, in the order in which they ran."""
    found = {
        name: weights
        for name, weights in maps.items()
        if weights.shape[-2] == weights.shape[-1]
        and prefix_of(weights.shape[-1], maps.grid) is not None
    }
    sizes = {(len(each), each.shape[-1]) for each in found.values()}
    if len(sizes) != 1:
        raise ValueError(
            f"In {maps.model} not all patches look at all in every layer: such a heatmap needs "
            "tokens that stay the same from layer to layer, as in ViT; see a layer's own with "
            "patches() or figure()."
        )
    return found


def _read(maps: Attention, matrix: Tensor) -> Tensor:
    """Return the row of the class token in ``(N, T, T)``, or the mean over the patches."""
    before = prefix_of(matrix.shape[-1], maps.grid)
    return _on_patches(maps, matrix[:, 0] if before else matrix.mean(1))


def _on_patches(maps: Attention, tokens: Tensor) -> Tensor:
    before = prefix_of(tokens.shape[-1], maps.grid)
    assert before is not None and maps.grid is not None
    return tokens[:, before:].unflatten(1, maps.grid)
