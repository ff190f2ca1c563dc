"""What goes into what an operation makes: rules for kinds of operations, not for layers.

A rule gets a `TracedOperation` and returns the dependencies of its outputs; see `dependency.py`.
There are few kinds: operations that work element by element, reduce, mix along some dimensions,
multiply matrices, slide windows (`windows.py`), or move elements. torch decomposes all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ...run.recorder import tensors
from . import windows
from .operation import EMPTY, TracedOperation, spread

_MASKED = -1e30  # added to a score, nothing is left of it; transformers take the least number


def _hull(operation: TracedOperation, read: list[Tensor]) -> Tensor:
    shape = tuple(operation.made[0].shape)
    parts = [spread(operation.shade(each), shape) for each in read]
    return reduce(torch.maximum, parts, operation.nothing(shape))


# Number by number


def pointwise(operation: TracedOperation) -> Tensor:
    """Each number that it makes is made of those in the same place."""
    return _hull(operation, operation.given)


def overwritten(operation: TracedOperation) -> Tensor:
    """Nothing is left of what was there."""
    return _hull(operation, [each for each in operation.given if each is not operation["self"]])


def unread(operation: TracedOperation) -> list[None]:
    """Only the shape of what it was given goes into it."""
    return [None] * len(operation.made)


def product(operation: TracedOperation) -> Tensor:
    """Nothing is left of what is multiplied by zero."""
    found = pointwise(operation)
    for name in ("self", "other"):
        zeros = operation.zeros(operation[name])
        found = found if zeros is None else found.masked_fill(zeros, EMPTY)
    return found


def added(operation: TracedOperation) -> Tensor:
    """Nothing is left of a score to which −Inf is added."""
    found = pointwise(operation)
    for part in (operation["self"], operation["other"]):
        if isinstance(part, Tensor) and part.is_floating_point():
            masked = operation.constant(part) & (part < _MASKED)
            found = found.masked_fill(masked, EMPTY) if masked.any() else found
    return found


def chosen(operation: TracedOperation) -> Tensor:
    """One of two, number by number; which one may be said by a constant."""
    if operation.name == "where":
        where, yes, no = operation["condition"], operation["self"], operation["other"]
    else:
        where, yes, no = operation["mask"], operation["value"], operation["self"]
    one, two = (_hull(operation, tensors([each])) for each in (yes, no))
    either = torch.maximum(_hull(operation, [where]), torch.maximum(one, two))
    return torch.where(operation.constant(where), torch.where(where.bool(), one, two), either)


def normalized_by_batch(operation: TracedOperation) -> list[Tensor | None]:
    """As BatchNorm does: by what it learned, number by number, or by the batch's statistics."""
    planes = operation.shade(operation["input"])
    by_batch = operation.argument.get("training", "no_training" not in operation.name)
    if by_batch:
        planes = operation.union_interval(planes, [1, *range(3, planes.ndim)]).expand_as(planes)
    return [planes, *[None] * (len(operation.made) - 1)]


# Along dimensions


def _dimensions(operation: TracedOperation, tensor: Tensor) -> list[int]:
    """Of a shadow, those which an operation's ``dim`` names; all if it names none."""
    named = operation.argument.get("dim")
    named = [named] if isinstance(named, int) else named
    if not named:
        named = range(tensor.ndim)
    return sorted({each % max(tensor.ndim, 1) + 1 for each in named}) if tensor.ndim else []


def reduced(operation: TracedOperation) -> Any:
    """All numbers along some dimensions go into one."""
    tensor = operation.given[0]
    after, dimensions = operation.shade(tensor), _dimensions(operation, tensor)
    if dimensions:
        after = operation.union_interval(after, dimensions)
    return (
        after
        if operation.argument.get("keepdim") or not dimensions
        else _without(after, dimensions)
    )


def _without(planes: Tensor, dimensions: list[int]) -> Tensor:
    return planes[tuple(0 if axis in dimensions else slice(None) for axis in range(planes.ndim))]


def mixed(operation: TracedOperation) -> Any:
    """All numbers along some dimensions go into each of them, or into as many as it makes."""
    tensor = operation.given[0]
    after = operation.shade(tensor)
    if tensor.ndim:
        after = operation.union_interval(after, _dimensions(operation, tensor))
    return [after.expand(-1, *each.shape) for each in operation.made]


def attended(operation: TracedOperation) -> Tensor:
    """As softmax does: what was masked by −Inf stays zero."""
    scores = operation["self"]
    found = mixed(operation)[0]
    masked = operation.constant(scores) & (scores < _MASKED)
    return found.masked_fill(masked, EMPTY) if masked.any() else found


def accumulated(operation: TracedOperation) -> Tensor:
    """All numbers before it along a dimension go into each."""
    planes = operation.shade(operation["self"])
    return planes.cummax(operation["dim"] % max(planes.ndim - 1, 1) + 1).values


def recurrent(operation: TracedOperation) -> list[Tensor | None]:
    """One direction of an LSTM: each step sees those before it."""
    steps = operation.shade(operation["input"]).amax(-1, keepdim=True)
    for name in ("hx_", "cx_"):
        state = operation.shade(operation[name]).amax(-1, keepdim=True)
        steps = torch.maximum(steps, state[:, None])  # of no one step
    steps = steps.flip(1) if operation["reverse"] else steps
    seen = steps.cummax(1).values
    last = seen[:, -1]
    seen = seen.flip(1) if operation["reverse"] else seen
    found = [seen, last, last]
    made = [each.expand(-1, *m.shape) for each, m in zip(found, operation.made, strict=False)]
    return [*made, *[None] * (len(operation.made) - 3)]


def normalized_by_place(operation: TracedOperation) -> list[Tensor | None]:
    """As LayerNorm does, over the last dimensions."""
    before = operation.shade(operation["input"])
    count = len(operation["normalized_shape"])
    after = operation.union_interval(before, range(before.ndim - count, before.ndim))
    return [after.expand_as(before), *[after] * (len(operation.made) - 1)]


def normalized_by_group(operation: TracedOperation) -> list[Tensor | None]:
    """As GroupNorm does: each group of channels by all its places."""
    before = operation.shade(operation["input"])
    grouped = before.flatten(2).unflatten(2, (operation["group"], -1))
    after = operation.union_interval(grouped, [grouped.ndim - 1])
    statistics = after[..., 0]
    return [after.expand_as(grouped).reshape_as(before), statistics, statistics]


# Matrices

_FACTORS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
}


def multiplied(operation: TracedOperation) -> Tensor:
    """A product of matrices, or of many, maybe with something added."""
    first, second = (operation[name] for name in _FACTORS[operation.name])
    rows = first[None] if first.ndim == 1 else first
    columns = second[:, None] if second.ndim == 1 else second
    shape = (*rows.shape[:-1], columns.shape[-1])
    parts = []
    if operation.footprints.of(first) is not None:
        parts.append(_picked(operation, rows.mT, columns.mT).mT)
    if operation.footprints.of(second) is not None:
        parts.append(_picked(operation, columns, rows))
    parts = [each.expand(-1, *shape).reshape(len(each), *operation.made[0].shape) for each in parts]
    if operation.name.startswith(("add", "badd")):
        parts.append(_hull(operation, [operation["self"]]))
    return reduce(torch.maximum, parts)


def _picked(operation: TracedOperation, tensor: Tensor, factor: Tensor) -> Tensor:
    """The hulls ``(P, ..., I or 1, J)`` of a tensor ``(..., K, J)``, by factors ``(..., I, K)``.

    Zeros pick none. Most rows are alike, or each is one longer than the last.
    """
    zeros = operation.zeros(factor)
    planes = operation.shade(tensor)
    if zeros is None:
        return operation.union_interval(planes, [planes.ndim - 2])
    return _unmasked(planes, zeros.expand(factor.shape))


def _unmasked(planes: Tensor, zeros: Tensor) -> Tensor:
    """Of ``(P, ..., K, J)`` the hulls ``(P, ..., I, J)``, without ``zeros`` ``(..., I, K)``."""
    patterns, which = zeros.flatten(0, -2).unique(dim=0, return_inverse=True)
    which = which.view(zeros.shape[:-1])[..., None]
    found = planes.new_full((), EMPTY)
    for number, pattern in enumerate(patterns):
        union_interval = planes.masked_fill(pattern[:, None], EMPTY).amax(-2, keepdim=True)
        found = torch.where(which == number, union_interval, found)
    return found


def attention(operation: TracedOperation) -> list[Tensor | None]:
    """Scaled dot products: a query sees all keys and values that are not masked."""
    query, key, value = (operation.shade(operation[name]) for name in ("query", "key", "value"))
    shared = query.shape[2] // key.shape[2] if query.ndim == 5 else 1  # grouped queries
    seen = torch.maximum(key.amax(-1, keepdim=True), value)
    seen = seen.repeat_interleave(shared, 2) if shared > 1 else seen
    shape = (*operation["query"].shape[:-1], seen.shape[-2])
    mask = operation.argument.get("attn_mask", operation.argument.get("attn_bias"))
    zeros = torch.zeros((), dtype=torch.bool, device=seen.device)
    parts = [query.amax(-1, keepdim=True)]
    if mask is not None:
        off = ~mask if mask.dtype == torch.bool else mask < _MASKED
        zeros = zeros | (off & operation.constant(mask))
        parts.append(operation.shade(mask).amax(-1, keepdim=True))
    if operation["is_causal"]:
        zeros = zeros | torch.ones(shape[-2:], dtype=torch.bool, device=seen.device).triu(1)
    if zeros.any():
        parts.append(_unmasked(seen, zeros.expand(shape)))
    else:
        parts.append(operation.union_interval(seen, [seen.ndim - 2]))
    made = operation.made[0].shape
    found = reduce(torch.maximum, [spread(each, made) for each in parts])
    return [found, *[None] * (len(operation.made) - 1)]


def rule_of(operation: TracedOperation) -> Callable[[TracedOperation], Any] | None:
    """The rule for an operation, None if there is none."""
    rule = RULES.get(operation.name)
    if rule is None:
        pools = re.fullmatch(r".*?(adaptive_)?(max|avg)_pool[123]d(_with_indices)?", operation.name)
        if pools:
            return windows.adaptively_pooled if pools[1] else windows.pooled
        if operation.name.startswith("upsample_"):
            return windows.resampled
        if operation.name.startswith("scaled_dot_product"):
            return attention
        if operation.name.endswith("_like") or operation.name.startswith(("new_", "empty")):
            return unread
        if torch.Tag.pointwise in getattr(operation.pure, "tags", ()):  # not of all in-place ones
            return pointwise
    return rule


_KINDS: list[tuple[Callable[[TracedOperation], Any], str]] = [
    (pointwise, "to_copy prelu prelu_kernel hardswish bernoulli dropout lift_fresh_copy"),
    (overwritten, "copy fill zero uniform normal random exponential log_normal cauchy geometric"),
    (product, "mul"),
    (added, "add"),
    (chosen, "where masked_fill"),
    (
        normalized_by_batch,
        "batch_norm batch_norm_legit batch_norm_legit_no_training cudnn_batch_norm "
        "miopen_batch_norm batch_norm_with_update batch_norm_no_update",
    ),
    (
        reduced,
        "sum mean amax amin max min prod var std var_mean std_mean any all argmax argmin logsumexp "
        "linalg_vector_norm norm median nanmedian mode kthvalue count_nonzero nansum aminmax",
    ),
    (mixed, "sort topk fft_r2c fft_c2r fft_c2c"),
    (attended, "softmax log_softmax safe_softmax"),
    (accumulated, "cumsum cumprod logcumsumexp"),
    (recurrent, "mkldnn_rnn_layer"),
    (normalized_by_place, "layer_norm"),
    (normalized_by_group, "group_norm"),
    (multiplied, " ".join(_FACTORS)),
    (windows.convolution, "convolution convolution_overrideable"),
    (windows.padded, "constant_pad_nd"),
    (windows.joined, "cat"),
    (
        windows.moved,
        "index unsafe_index index_select gather slice_scatter select_scatter diagonal_scatter "
        "as_strided_scatter index_put unsafe_index_put index_copy index_fill scatter roll "
        "flip repeat take reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
        "replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle im2col "
        "tril triu diag_embed masked_select masked_scatter embedding unfold_copy stack",
    ),
    (windows.gathered, "scatter_add scatter_reduce index_add"),
    (
        TracedOperation.routed,
        "roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d nms grid_sampler_3d "
        "max_unpool2d max_unpool3d",
    ),
]
RULES = {name: rule for rule, names in _KINDS for name in names.split()}
"""Names of operations, by which the rules are found; some go by a pattern, see `rule_of`."""
