"""The inputs of each output number: rules for kinds of operations, not for layers.

A rule gets a `TracedOperation` and returns the dependencies of its outputs; see `dependency.py`.
There are few kinds: operations that work element by element, reduce, mix along some dimensions,
multiply matrices, slide windows over maps, or move elements. torch decomposes all others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.nn import functional as F

from ...hooking.tensors import tensors
from ...run.operations import (
    BATCH_NORMS,
    ELEMENTWISE_KINDS,
    FACTORS,
    OVERWRITING,
    Kind,
    is_shape_only,
    kind_of,
    uses_running_statistics,
)
from ...run.recorder import Operation

EMPTY = -torch.inf
"""In place of coordinates: nothing of the input is in a number."""


class Lookup(Protocol):
    """The dependencies that are known of tensors, ``(P, *shape)`` each."""

    planes: int
    extent: tuple[int, ...]

    def of(self, tensor: Tensor) -> Tensor | None: ...
    def is_weight(self, tensor: Tensor) -> bool: ...


class TracedOperation:
    """One operation that is about to run, or has run, and what its rule needs of it.

    Attributes
    ----------
    name : str
        torch's, without underscores: ``"add"``, ``"softmax"``.
    argument : dict
        What it was given, by torch's names.
    given, written : list of torch.Tensor
        Which tensors it reads, and which it writes into.
    made : list of torch.Tensor
        What it returned, or will write into: the shapes are right in any case.
    doubt : (str, str) or None
        What is doubtful about what it makes: a field's status, and why.
    """

    def __init__(self, footprints: Lookup, operation: Operation) -> None:
        self.footprints, self.function = footprints, operation.function
        self.name, self.argument = operation.name, operation.argument
        self.given, self.written = operation.reads, operation.written
        self.made: list[Tensor] = []
        self.doubt: tuple[str, str] | None = None  # its status, and why

    def __getitem__(self, name: str) -> Any:
        return self.argument[name]

    @property
    def pure(self) -> Any:
        """The same operation as one that writes into nothing that it is given; maybe None."""
        name = self.function.overloadpacket.__name__
        if not self.written:
            return self.function
        packet = getattr(torch.ops.aten, name.rstrip("_"), None) if name.endswith("_") else None
        return getattr(packet, self.function._overloadname, None)

    def simpler(self) -> Callable[..., Any] | None:
        """Return the same in simpler operations; NotImplemented or None if there are none."""
        pure = self.pure
        if pure is None or pure in decomposition_table:
            return decomposition_table.get(pure)
        return pure.decompose

    def shade(self, tensor: Tensor) -> Tensor:
        """Return the footprint ``(P, *shape)`` of a tensor, empty for a constant."""
        found = self.footprints.of(tensor)
        return self.nothing(tuple(tensor.shape)) if found is None else found

    def nothing(self, shape: tuple[int, ...]) -> Tensor:
        """Return the footprint of constants."""
        empty = torch.full((), EMPTY, device=self.given[0].device)
        return empty.expand(self.footprints.planes, *shape)

    def constant(self, tensor: Any) -> Tensor:
        """Return the mask of a tensor's numbers that do not depend on the input."""
        found = self.footprints.of(tensor)
        if found is None:
            return torch.ones((), dtype=torch.bool, device=tensor.device).expand(tensor.shape)
        return found[0] == EMPTY

    def zeros(self, factor: Any) -> Tensor | None:
        """Return the mask of a factor's zeros for any input and weights; None without any."""
        if not isinstance(factor, Tensor):
            every = torch.ones((), dtype=torch.bool, device=self.given[0].device)
            return every if factor == 0 else None
        if self.footprints.is_weight(factor):
            return None
        found = self.constant(factor) & (factor == 0)
        return found if found.any() else None

    def all_inputs(self) -> list[Tensor | None]:
        """Return all inputs for each output: the footprint of an operation without a rule."""
        parts = [self.footprints.of(each) for each in self.given]
        intervals = [each.flatten(1).amax(1) for each in parts if each is not None and each.numel()]
        union_interval = reduce(torch.maximum, intervals)
        union_interval[len(union_interval) // 2 :] = torch.nan
        return [spread(union_interval, tuple(each.shape)) for each in self.made]

    def routed(self) -> list[Tensor | None]:
        """Return the footprint of a lookup by numbers: all of the input, and an uncertainty."""
        self.doubt = "data-dependent", f"{self.name} looks where computed numbers say"
        return self.all_inputs()

    def union_interval(self, planes: Tensor, dimensions: Sequence[int]) -> Tensor:
        """Unite footprints along some dimensions, which are kept.

        Where it is the whole input, and more than any one of them saw, there is no end to it: so
        a mean over all places is told from a field that happens to be as large as the input.
        """
        dimensions = list(dimensions)
        after, extent = planes.amax(dimensions, keepdim=True), self.footprints.extent
        for axis, size in enumerate(extent):
            low, high, *unpadded = range(axis, len(planes), len(extent))
            whole = (after[low] == 0) & (after[high] == size) & ~after[unpadded].isnan().any(0)
            if whole.any():
                one = (planes[axis :: len(extent)] == after[axis :: len(extent)]).all(0)
                more = ~one.any([each - 1 for each in dimensions], keepdim=True)
                after[unpadded] = after[unpadded].masked_fill(whole & more, torch.inf)
        return after


def spread(planes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Expand a footprint ``(P, *smaller)`` to a larger shape, as torch broadcasts tensors."""
    missing = len(shape) - (planes.ndim - 1)
    return planes[(slice(None), *[None] * missing)].expand(-1, *shape)


def compact(planes: Tensor, *, keep: int = 0) -> Tensor:
    """Return a footprint with one of each that an expanded dimension repeats.

    The last ``keep`` dimensions stay as they are.

    >>> compact(torch.zeros(8, 1, 1, 5, 5).expand(8, 2, 64, 5, 5)).shape
    torch.Size([8, 1, 1, 5, 5])
    """
    for axis in range(1, planes.ndim - keep):
        if planes.shape[axis] > 1 and planes.stride(axis) == 0:
            planes = planes.narrow(axis, 0, 1)
    return planes


def extended(planes: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Pad a footprint at both ends of its last dimensions; crop it where padding is negative.

    Nothing is in padding. But what is said of maps that go on past their borders goes on in even
    steps, if its steps are even.
    """
    half = len(planes) // 2
    exact, unpadded = planes[:half], planes[half:]
    pads = [each for pair in zip(reversed(before), reversed(after), strict=True) for each in pair]
    exact = F.pad(exact, pads, value=EMPTY)
    for index, (first, last) in enumerate(zip(before, after, strict=True)):
        axis = planes.ndim - len(before) + index
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


class Windows(NamedTuple):
    """Windows over the last dimensions; ``before`` is the padding, ``size`` their number."""

    kernel: Sequence[int]
    stride: Sequence[int]
    before: Sequence[int]
    dilation: Sequence[int]
    size: Sequence[int]


def sliding_max(planes: Tensor, windows: Windows) -> Tensor:
    """Unite the footprints in each window."""
    planes, count = _ready(planes, windows), len(windows.kernel)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    flat = planes.reshape(-1, 1, *planes.shape[-count:])
    found = pool(flat, tuple(windows.kernel), tuple(windows.stride), 0, tuple(windows.dilation))
    return found.view(*planes.shape[:-count], *windows.size)


def _ready(planes: Tensor, windows: Windows) -> Tensor:
    """Pad so that there are as many windows as asked for."""
    there = planes.shape[-len(windows.kernel) :]
    after = [
        (count - 1) * step + gap * (width - 1) + 1 - length - first
        for width, step, first, gap, count, length in zip(*windows, there, strict=True)
    ]
    if not any(windows.before) and not any(after):
        return planes
    return extended(planes, windows.before, after)


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
    alike = zeros is None and compact(planes).shape[2] == 1  # all channels, so all groups
    if alike:
        groups, planes = 1, planes[:, :, :1]
    grouped = planes.unflatten(2, (groups, -1))
    if zeros is None and not alike:
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
    windows = Windows(kernel, stride, before, dilation, made.shape[2:])
    if zeros is None:
        found = sliding_max(grouped[:, :, :, 0], windows)
        found = found[:, :, :, None].expand(-1, -1, -1, made.shape[1] // groups, *windows.size)
    else:
        found = _tapped(_ready(grouped, windows), zeros.unflatten(0, (groups, -1)), windows)
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
    """Insert gaps between the positions of a transposed convolution's input.

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


def _tapped(planes: Tensor, zeros: Tensor, windows: Windows) -> Tensor:
    """Unite ``(P, N, G, C, *spatial)`` where weights ``(G, O, C, *kernel)`` are not zero."""
    _, stride, _, dilation, size = windows
    shape = (*planes.shape[:3], zeros.shape[1], *size)
    found = planes.new_full(shape, EMPTY)
    for tap in itertools.product(*map(range, zeros.shape[3:])):
        steps = zip(tap, stride, dilation, size, strict=True)
        cut: Any = (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in steps))
        here: Any = (..., *tap)
        part, off = planes[cut], zeros[here]  # off (G, O, C)
        patterns, which = off.transpose(0, 1).unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            masked = part.masked_fill(pattern[(..., *[None] * len(size))], EMPTY)
            outputs = which == number
            united = torch.maximum(found[:, :, :, outputs], masked.amax(3, keepdim=True))
            found[:, :, :, outputs] = united
    return found


def pooled(operation: TracedOperation) -> Tensor:
    """Windows of places, channel by channel; of the largest and of the mean alike."""
    planes = operation.shade(operation["self"])
    count = int(operation.name[operation.name.index("pool") + 4])
    kernel = _each(operation["kernel_size"], count)
    stride = _each(operation["stride"] or kernel, count)
    padding = _each(operation["padding"], count)
    dilation = _each(operation.argument.get("dilation", 1), count)
    shape = operation.made[0].shape
    windows = Windows(kernel, stride, padding, dilation, shape[-count:])
    found = sliding_max(compact(planes, keep=count), windows)
    return found.expand(-1, *shape)


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
    for index, (old, new) in enumerate(zip(tensor.shape[2:], size, strict=True)):
        which = _sources(operation, name, index, old, new)
        axis = planes.ndim - len(size) + index
        picked = planes.index_select(axis, which.flatten().to(planes.device))
        planes = picked.unflatten(axis, tuple(which.shape)).amax(axis + 1)
    return planes


def _sources(operation: TracedOperation, name: str, place: int, old: int, new: int) -> Tensor:
    """Return the positions ``(new, most)`` that have a weight, some of them more than once.

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
    """Pad with a constant."""
    pads = operation["pad"]
    before, after = list(pads[-2::-2]), list(pads[::-2])
    planes = compact(operation.shade(operation["self"]), keep=len(before))
    return extended(planes, before, after).expand(-1, *operation.made[0].shape)


# Moves

_WHERE = {"index", "indices", "mask"}
_BASE = 2.0**21  # coordinates and this are exact in single precision


def joined(operation: TracedOperation) -> Tensor:
    """Several tensors one behind the other."""
    parts = [each for each in operation["tensors"] if each.shape != (0,)]
    axis = operation["dim"] % parts[0].ndim + 1
    return torch.cat([operation.shade(each) for each in parts], axis)


def moved(operation: TracedOperation) -> Any:
    """Repeat moves of numbers with the footprint; where torch writes zeros, it is empty."""
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
    """Handle a lookup at indices that are computed from the input."""
    data = [each for each in operation.given if not any(each is one for one in where)]
    constant = all(operation.footprints.of(each) is None for each in data)
    shape = operation.made[0].shape
    if constant and len(where) == 1 and not operation.written:  # what a table says, as one number
        planes = operation.shade(where[0])
        if planes.shape[1:] == shape[: where[0].ndim]:
            return planes[(..., *[None] * (len(shape) - where[0].ndim))].expand(-1, *shape)
    return operation.routed()


_MASKED = -1e30  # added to a score, nothing is left of it; transformers take the least number


def _united(operation: TracedOperation, read: list[Tensor]) -> Tensor:
    shape = tuple(operation.made[0].shape)
    known = [each for each in map(operation.footprints.of, read) if each is not None]
    if not known:
        return operation.nothing(shape)
    parts = [compact(spread(each, shape)) for each in known]
    return reduce(torch.maximum, parts).expand(-1, *shape)


# Number by number


def pointwise(operation: TracedOperation) -> Tensor:
    """Work elementwise."""
    return _united(operation, operation.given)


def overwritten(operation: TracedOperation) -> Tensor:
    """Use the new values only."""
    old = operation.argument.get("self")
    return _united(operation, [each for each in operation.given if each is not old])


def unread(operation: TracedOperation) -> list[None]:
    """Depend on no input value, only on the input's shape."""
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
    one, two = (_united(operation, tensors([each])) for each in (yes, no))
    either = torch.maximum(_united(operation, [where]), torch.maximum(one, two))
    return torch.where(operation.constant(where), torch.where(where.bool(), one, two), either)


def normalized_by_batch(operation: TracedOperation) -> list[Tensor | None]:
    """As BatchNorm does: by what it learned, number by number, or by the batch's statistics."""
    planes = operation.shade(operation["input"])
    if not uses_running_statistics(operation.name, operation.argument):
        planes = operation.union_interval(planes, [1, *range(3, planes.ndim)]).expand_as(planes)
    return [planes, *[None] * (len(operation.made) - 1)]


# Along dimensions


def _dimensions(operation: TracedOperation, tensor: Tensor) -> list[int]:
    """Return a footprint's dimensions that an operation's ``dim`` names; all if it names none."""
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


def multiplied(operation: TracedOperation) -> Tensor:
    """Multiply two matrices, or many, maybe with something added."""
    first, second = (operation[name] for name in FACTORS[operation.name])
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
        parts.append(_united(operation, [operation["self"]]))
    return reduce(torch.maximum, parts)


def _picked(operation: TracedOperation, tensor: Tensor, factor: Tensor) -> Tensor:
    """Unite ``(P, ..., I or 1, J)`` of a tensor ``(..., K, J)``, by factors ``(..., I, K)``.

    Zeros pick none. Most rows are alike, or each is one longer than the last.
    """
    zeros = operation.zeros(factor)
    planes = operation.shade(tensor)
    if zeros is None:
        return operation.union_interval(planes, [planes.ndim - 2])
    return _unmasked(planes, zeros.expand(factor.shape))


def _unmasked(planes: Tensor, zeros: Tensor) -> Tensor:
    """Unite ``(P, ..., K, J)`` to ``(P, ..., I, J)``, without ``zeros`` ``(..., I, K)``."""
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
    """Return the rule for an operation, None if there is none."""
    rule = RULES.get(operation.name)
    if rule is None:
        return _rule_by_kind(operation.name, operation.function)
    return rule


def _rule_by_kind(name: str, function: Any) -> Callable[[TracedOperation], Any] | None:
    kind = kind_of(function)
    if is_shape_only(function):
        return unread
    if kind in ELEMENTWISE_KINDS and name != "log_sigmoid_forward":  # its second output is empty
        return pointwise
    if kind is Kind.POOLING and not name.startswith(("fractional", "quantized")):
        return adaptively_pooled if "adaptive" in name else pooled
    if kind is Kind.ATTENTION and name.startswith("scaled_dot_product"):
        return attention
    return resampled if kind is Kind.RESAMPLING else None


_KINDS: list[tuple[Callable[[TracedOperation], Any], str]] = [
    (pointwise, "bernoulli"),
    (overwritten, " ".join(OVERWRITING - {"bernoulli"})),
    (product, "mul"),
    (added, "add"),
    (chosen, "where masked_fill"),
    (normalized_by_batch, " ".join(BATCH_NORMS)),
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
    (multiplied, " ".join(FACTORS)),
    (convolution, "convolution convolution_overrideable"),
    (padded, "constant_pad_nd"),
    (joined, "cat"),
    (
        moved,
        "index unsafe_index index_select gather slice_scatter select_scatter diagonal_scatter "
        "as_strided_scatter index_put unsafe_index_put index_copy index_fill scatter roll "
        "flip repeat take reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
        "replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle im2col "
        "tril triu diag_embed masked_select masked_scatter embedding unfold_copy stack",
    ),
    (gathered, "scatter_add scatter_reduce index_add"),
    (
        TracedOperation.routed,
        "roi_align roi_pool ps_roi_align ps_roi_pool deform_conv2d nms grid_sampler_3d "
        "max_unpool2d max_unpool3d",
    ),
]
RULES = {name: rule for rule, names in _KINDS for name in names.split()}
"""The rules that depend on the operation's name; `rule_of` finds others by the kind."""
