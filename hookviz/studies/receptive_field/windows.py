"""What goes into what an operation makes that slides windows over maps, or moves numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...run.recorder import tensors
from .operation import EMPTY, TracedOperation, spread


def extended(planes: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """A shadow with padding at both ends of its last dimensions; where it is negative, cropped.

    Nothing is in padding. But what is said of maps that go on past their borders goes on in even
    steps, if its steps are even.
    """
    half = len(planes) // 2
    exact, unpadded = planes[:half], planes[half:]
    pads = [each for pair in zip(reversed(before), reversed(after), strict=True) for each in pair]
    exact = F.pad(exact, pads, value=EMPTY)
    for place, (first, last) in enumerate(zip(before, after, strict=True)):
        axis = planes.ndim - len(before) + place
        unpadded = _continued(unpadded, axis, first, last)
    return torch.cat([exact, unpadded])


def _continued(planes: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Planes that go on in even steps along an axis."""
    size = planes.shape[axis]
    if before > 0 or after > 0:
        first, last = planes.narrow(axis, 0, 1), planes.narrow(axis, size - 1, 1)
        step = planes.narrow(axis, min(1, size - 1), 1) - first
        steps = planes.diff(dim=axis)
        even = (steps == step).all(axis, keepdim=True) & (size > 1)
        step = step.masked_fill(~even, torch.nan)
        same = (first == last) & ~first.isfinite()  # nothing is seen, or all
        step = step.masked_fill(same, 0)
        parts = [_steps(first, -step, before, axis).flip(axis), planes]
        planes = torch.cat([*parts, _steps(last, step, after, axis)], axis)
    start = max(-before, 0)
    return planes.narrow(axis, start, planes.shape[axis] - start - max(-after, 0))


def _steps(edge: Tensor, step: Tensor, count: int, axis: int) -> Tensor:
    shape = [1] * edge.ndim
    shape[axis] = max(count, 0)
    numbers = torch.arange(1, max(count, 0) + 1, device=edge.device, dtype=edge.dtype)
    return edge + step * numbers.view(shape)


def slid(
    planes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
) -> Tensor:
    """The hull in each window over the last dimensions, of which there will be ``size``."""
    planes = _ready(planes, kernel, stride, before, dilation, size)
    count = len(kernel)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    flat = planes.reshape(-1, 1, *planes.shape[-count:])
    found = pool(flat, tuple(kernel), tuple(stride), 0, tuple(dilation))
    return found.view(*planes.shape[:-count], *size)


def _ready(
    planes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
) -> Tensor:
    """Padded so that there are as many windows as asked for."""
    there = planes.shape[-len(kernel) :]
    after = [
        (windows - 1) * step + gap * (width - 1) + 1 - length - first
        for windows, step, gap, width, length, first in zip(
            size, stride, dilation, kernel, there, before, strict=True
        )
    ]
    if not any(before) and not any(after):
        return planes
    return extended(planes, before, after)


def _each(value: Any, count: int) -> list[int]:
    value = [value] if isinstance(value, int) else list(value)
    return value * count if len(value) == 1 else value


def convolution(operation: TracedOperation) -> Tensor:
    """Each group of channels by windows; all weights count, but those that a mask makes zero."""
    planes, weight = operation.shade(operation["input"]), operation["weight"]
    kernel, groups = tuple(weight.shape[2:]), operation["groups"]
    count, zeros = len(kernel), operation.zeros(weight)
    stride, padding, dilation = (
        _each(operation[name], count) for name in ("stride", "padding", "dilation")
    )
    grouped = planes.unflatten(2, (groups, -1))
    if zeros is None:
        grouped = grouped.amax(3, keepdim=True)
    if operation["transposed"]:
        more = _each(operation["output_padding"], count)
        grouped, before = _stuffed(grouped, kernel, stride, padding, dilation, more)
        stride = [1] * count
        if zeros is not None:
            zeros = zeros.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
            zeros = zeros.flip(tuple(range(2, zeros.ndim)))
    else:
        before = padding
    made = operation.made[0]
    size = made.shape[2:]
    if zeros is None:
        found = slid(grouped[:, :, :, 0], kernel, stride, before, dilation, size)
        found = found[:, :, :, None].expand(-1, -1, -1, made.shape[1] // groups, *size)
    else:
        ready = _ready(grouped, kernel, stride, before, dilation, size)
        found = _tapped(ready, zeros.unflatten(0, (groups, -1)), stride, dilation, size)
    found = found.reshape(len(planes), *made.shape)
    for each in (weight, operation["bias"]):
        own = None if each is None else operation.footprints.of(each)
        if own is not None:  # weights that are computed from the input
            union_interval = own.flatten(1).amax(1)
            found = torch.maximum(found, union_interval.view(-1, *[1] * made.ndim))
    return found


def _stuffed(
    planes: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    more: Sequence[int],
) -> tuple[Tensor, list[int]]:
    """What a transposed convolution slides over: its input with nothing between its places.

    With it the padding, which is negative: the input is continued first, for as far as needed.
    """
    reach = [(width - 1) * gap for width, gap in zip(kernel, dilation, strict=True)]
    wider = [(r + m) // s + 1 for r, m, s in zip(reach, more, stride, strict=True)]
    planes = extended(planes, wider, wider)
    lead = planes.ndim - len(kernel)
    size = [(n - 1) * s + 1 for n, s in zip(planes.shape[lead:], stride, strict=True)]
    found = planes.new_full((*planes.shape[:lead], *size), EMPTY)
    every: Any = (..., *(slice(None, None, step) for step in stride))
    found[every] = planes
    before = [r - w * s - p for r, w, s, p in zip(reach, wider, stride, padding, strict=True)]
    return found, before


def _tapped(
    planes: Tensor,
    zeros: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
) -> Tensor:
    """The hull of ``(P, N, G, C, *spatial)`` where weights ``(G, O, C, *kernel)`` are not zero."""
    shape = (*planes.shape[:3], zeros.shape[1], *size)
    found = planes.new_full(shape, EMPTY)
    for tap in product(*map(range, zeros.shape[3:])):
        steps = zip(tap, stride, dilation, size, strict=True)
        cut: Any = (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in steps))
        here: Any = (..., *tap)
        part, off = planes[cut], zeros[here]  # off (G, O, C)
        patterns, which = off.transpose(0, 1).unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            union_interval = part.masked_fill(pattern[(..., *[None] * len(size))], EMPTY).amax(
                3, keepdim=True
            )
            outputs = which == number
            found[:, :, :, outputs] = torch.maximum(found[:, :, :, outputs], union_interval)
    return found


def pooled(operation: TracedOperation) -> Tensor:
    """Windows of places, channel by channel; of the largest and of the mean alike."""
    planes = operation.shade(operation["self"])
    count = int(operation.name[operation.name.index("pool") + 4])
    kernel = _each(operation["kernel_size"], count)
    stride = _each(operation["stride"] or kernel, count)
    padding = _each(operation["padding"], count)
    dilation = _each(operation.argument.get("dilation", 1), count)
    return slid(planes, kernel, stride, padding, dilation, operation.made[0].shape[-count:])


def adaptively_pooled(operation: TracedOperation) -> Tensor:
    """As many windows as asked for."""
    planes = operation.shade(operation["self"])
    count = int(operation.name[operation.name.index("pool") + 4])
    shape = tuple(operation.made[0].shape)
    if set(shape[-count:]) == {1}:
        return operation.union_interval(planes, range(planes.ndim - count, planes.ndim))
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[count - 1]
    flat = planes.reshape(-1, 1, *planes.shape[-count:])
    return pool(flat, shape[-count:]).view(len(planes), *shape)


def resampled(operation: TracedOperation) -> Tensor:
    """Interpolation: along each dimension, what torch gives each input place a weight for."""
    name = "input" if "input" in operation.argument else "self"
    tensor = operation[name]
    planes, size = operation.shade(tensor), operation.made[0].shape[2:]
    for place, (old, new) in enumerate(zip(tensor.shape[2:], size, strict=True)):
        which = _sources(operation, name, place, old, new)
        axis = planes.ndim - len(size) + place
        picked = planes.index_select(axis, which.flatten().to(planes.device))
        planes = picked.unflatten(axis, tuple(which.shape)).amax(axis + 1)
    return planes


def _sources(operation: TracedOperation, name: str, place: int, old: int, new: int) -> Tensor:
    """The places ``(new, most)`` that have a weight, some of them more than once.

    In the other dimensions it is two wide: torch 2.15 resamples a picture one wide wrongly where
    it is antialiased (all rows become the first).
    """
    tensor = operation[name]
    count = tensor.ndim - 2
    one_hot = torch.eye(old, dtype=tensor.dtype, device=tensor.device)
    shape, size = [1, old, *[1] * count], [2] * count
    shape[place + 2], size[place] = old, new
    given = dict(operation.argument)
    given[name] = one_hot.view(shape).expand(1, old, *[*size[:place], old, *size[place + 1 :]])
    given["output_size"] = size
    scales = ["scales"] if count == 1 else ["scales_d", "scales_h", "scales_w"][-count:]
    for other, scale in enumerate(scales):
        if other != place:
            given[scale] = None
    weights = operation.function(**given)[0].movedim(place + 1, 1)
    weighted = weights.reshape(old, new, -1)[..., 0].T != 0
    most = max(int(weighted.sum(1).max()), 1)
    return (
        weighted.to(torch.uint8)
        .topk(most, dim=1)
        .indices.where(
            weighted.sum(1, keepdim=True) > torch.arange(most, device=tensor.device),
            weighted.to(torch.uint8).argmax(1, keepdim=True),
        )
    )


def padded(operation: TracedOperation) -> Tensor:
    """A constant around it."""
    pads = operation["pad"]
    before, after = list(pads[-2::-2]), list(pads[::-2])
    return extended(operation.shade(operation["self"]), before, after)


# Moves

_WHERE = {"index", "indices", "mask"}
_BASE = 2.0**21  # coordinates and this are exact in single precision


def joined(operation: TracedOperation) -> Tensor:
    """Several tensors one behind the other."""
    parts = [each for each in operation["tensors"] if each.shape != (0,)]
    axis = operation["dim"] % parts[0].ndim + 1
    return torch.cat([operation.shade(each) for each in parts], axis)


def moved(operation: TracedOperation) -> Any:
    """The same moves done with the shadow; where torch writes zeros, there is nothing."""
    get = operation.argument
    where = [each for name in _WHERE & set(get) for each in tensors([get[name]])]
    if any(operation.footprints.of(each) is not None for each in where):
        return _looked_up(operation, where)
    if get.get("accumulate"):
        return _accumulated(operation)
    if get.get("reduce"):
        return NotImplemented
    made = []
    for plane in range(operation.footprints.planes):
        given = {key: _of_plane(operation, key, value, plane) for key, value in get.items()}
        made.append(operation.pure(**given))
    stacked = torch.stack([torch.as_tensor(each) for each in made])
    return torch.where(stacked == 0, EMPTY, stacked - _BASE)


def _accumulated(operation: TracedOperation) -> Tensor:
    """Values added at indices, several of them maybe in one place."""
    tensor, indices = operation["self"], operation["indices"]
    numbers = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    where = torch.ops.aten.index.Tensor(numbers, indices)
    values = spread(operation.shade(operation["values"]), tuple(where.shape)).flatten(1)
    where = where.flatten().expand(len(values), -1)
    found = operation.shade(tensor).flatten(1).scatter_reduce(1, where, values, "amax")
    return found.view(len(found), *tensor.shape)


def gathered(operation: TracedOperation) -> Any:
    """Numbers of one tensor added to those of another, where an index says."""
    index, axis = operation["index"], operation["dim"] % max(operation["self"].ndim, 1) + 1
    if operation.footprints.of(index) is not None:
        return operation.routed()
    own, source = (
        operation.shade(operation[name])
        for name in ("self", "source" if operation.name == "index_add" else "src")
    )
    if operation.name == "index_add":
        along = [-1 if each == axis else 1 for each in range(source.ndim)]
        return own.scatter_reduce(axis, index.view(along).expand_as(source), source, "amax")
    source = source[(slice(None), *map(slice, index.shape))]
    return own.scatter_reduce(axis, index.expand(len(own), *index.shape), source, "amax")


def _of_plane(operation: TracedOperation, name: str, value: Any, plane: int) -> Any:
    if name == "value" and not isinstance(value, Tensor):
        return 0
    if name in _WHERE:
        return value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [_of_plane(operation, name, each, plane) for each in value]
    if not isinstance(value, Tensor):
        return value
    shade = operation.shade(value)[plane]
    return torch.where(shade == EMPTY, 0, shade + _BASE)


def _looked_up(operation: TracedOperation, where: list[Tensor]) -> Any:
    """Where to look is computed from the input."""
    data = [each for each in operation.given if not any(each is one for one in where)]
    constant = all(operation.footprints.of(each) is None for each in data)
    shape = operation.made[0].shape
    if constant and len(where) == 1 and not operation.written:  # what a table says, as one number
        planes = operation.shade(where[0])
        if planes.shape[1:] == shape[: where[0].ndim]:
            return planes[(..., *[None] * (len(shape) - where[0].ndim))].expand(-1, *shape)
    return operation.routed()
