"""The attention weights of operations that never make them: computed beside, from their arguments.

Fused kernels go from queries, keys and values to the result at once. Their weights are those of
``softmax(scale * Q K^T + mask)``, which these functions compute in float32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from ..hooking.tensors import at_least_float32
from ..run.recorder import Operation


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return ``softmax(scale * Q K^T + mask)``, as `scaled_dot_product_attention` has it.

    Parameters
    ----------
    query, key : torch.Tensor
        ``(..., heads, queries, d)`` and ``(..., heads, keys, d)``; the keys may have fewer heads,
        each then serves a group of as many neighbouring query heads.
    mask : torch.Tensor, optional
        Broadcasts to the weights: bool, true where a query may look, or added before the softmax.
    causal : bool
        True if a query looks at no later key.
    scale : float, optional
        ``1 / sqrt(d)`` if left out.

    Returns
    -------
    torch.Tensor
        ``(..., heads, queries, keys)``, float32 at least. A query that may look nowhere has zeros.

    Examples
    --------
    >>> attention_weights(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), causal=True)
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]])
    """
    query, key = at_least_float32(query), at_least_float32(key)
    if key.ndim > 2 and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    logits = query @ key.mT
    logits *= 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if mask is not None:
        logits = _masked(logits, mask)
    if causal:
        seen = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits.masked_fill_(~seen, -math.inf)
    if mask is None:  # the diagonal is always seen
        return logits.softmax(-1)
    nowhere = (logits == -math.inf).all(-1, keepdim=True)
    return logits.softmax(-1).masked_fill_(nowhere, 0)


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return logits.masked_fill(~mask, -math.inf)
    return logits + mask


def is_fused(operation: Operation) -> bool:
    """Return whether an operation is a whole attention."""
    return operation.name in _WHOLE or (
        operation.name.startswith("scaled_dot_product") and "backward" not in operation.name
    )


def fused_weights(operation: Operation) -> Tensor | None:
    """Return the weights ``(N, heads, queries, keys)`` of such an operation; None if unknown."""
    if any(each.is_nested for each in operation.inputs):
        return None
    return _WHOLE.get(operation.name, _scaled_dot_product)(operation.argument)


def _scaled_dot_product(given: dict[str, Any]) -> Tensor:
    mask = given.get("attn_mask")
    return attention_weights(
        given["query"],
        given["key"],
        given.get("attn_bias") if mask is None else mask,
        causal=bool(given.get("is_causal")),
        scale=given.get("scale"),
    )


def _encoder_layer(given: dict[str, Any]) -> Tensor:
    """Return the weights of `nn.TransformerEncoderLayer` as one operation."""
    tokens = given["src"]
    if given["norm_first"]:
        weight, bias = given["norm_weight_1"], given["norm_bias_1"]
        tokens = layer_norm(tokens, tokens.shape[-1:], weight, bias, given["eps"])
    return _projected([tokens, tokens], given["num_heads"], given)


def _multi_head(given: dict[str, Any]) -> Tensor:
    """Return the weights of `nn.MultiheadAttention` as one operation."""
    return _projected([given["query"], given["key"]], given["num_head"], given)


def _projected(tokens: list[Tensor], heads: int, given: dict[str, Any]) -> Tensor:
    weights, biases = given["qkv_weight"].chunk(3), given["qkv_bias"].chunk(3)
    query, key = (
        linear(each, weight, bias).unflatten(-1, (heads, -1)).transpose(1, 2)
        for each, weight, bias in zip(tokens, weights, biases, strict=False)
    )
    mask = given["mask"]
    if mask is not None:  # bool, true where a query must not look
        mask = ~mask.bool()
        if given["mask_type"] == _OF_KEYS:
            mask = mask[:, None, None, :]
    return attention_weights(query, key, mask)


_OF_KEYS = 1  # torch's number for a mask (N, keys)
_WHOLE: dict[str, Callable[[dict[str, Any]], Tensor]] = {
    "multi_head_attention": _multi_head,
    "transformer_encoder_layer_fwd": _encoder_layer,
}


def fused_gradient(operation: Operation) -> Tensor | None:
    """Return the score's gradient at the weights, from the backward of such an operation.

    ``dS/dA = dS/dO V^T`` where ``O = A V``; None where dropout, which is not told, lies between.
    """
    given = operation.argument
    if given.get("dropout_p"):
        return None
    arrived, value = at_least_float32(operation.args[0]), at_least_float32(given["value"])
    if value.shape[-3] != arrived.shape[-3]:
        value = value.repeat_interleave(arrived.shape[-3] // value.shape[-3], -3)
    return arrived @ value.mT


def is_fused_backward(operation: Operation) -> bool:
    """Return whether an operation is the backward of a whole attention."""
    return operation.name.startswith("scaled_dot_product") and "backward" in operation.name
