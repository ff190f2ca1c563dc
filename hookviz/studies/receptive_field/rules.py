"""Rules: which elements of its inputs go into each element of an operation's result.

There are few, by the kind of operation: elementwise, along dimensions, products of matrices,
windows that slide over maps, and elements that move. Torch decomposes most other operations into
these. What then has no rule depends on the whole input, and the result names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ...hooking.tensors import tensors
from ...run.operations import (
    BATCH_NORMS,
    ELEMENTWISE_KINDS,
    FACTORS,
    Kind,
    uses_running_statistics,
)
from ...run.recorder import Operation

EMPTY = -torch.inf
"""In place of coordinates: no pixel goes into an element."""

_MASKED = -1e30  # added to a score, it leaves nothing of it; transformers add the least number


class TracedOperation:
    """An operation and the footprints of its inputs.

    Attributes
    ----------
    tracker : hookviz.studies.receptive_field.dependency.DependencyTracker
        The footprints ``(P, *shape)`` of tensors.
    operation : hookviz.run.recorder.Operation
    made : list of torch.Tensor
        The tensors whose footprints are wanted: the results, or the inputs that are overwritten.
    doubt : (str, str) or None
        The status of the results' footprints, and why, where they are not known.
    """

    def __init__(self, tracker: Any, operation: Operation, made: list[Tensor]) -> None:
        self.tracker = tracker
        self.operation, self.made = operation, made
        self.doubt: tuple[str, str] | None = None
        self.shape = tuple(made[0].shape) if made else ()

    @property
    def name(self) -> str:
        """Torch's name without the marks of variants."""
        return self.operation.name

    def __getitem__(self, name: str) -> Any:
        return self.operation.argument[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or the default if the operation has none of this name."""
        return self.operation.argument.get(name, default)

    @property
    def first(self) -> Tensor:
        """The first tensor that it reads."""
        return self.operation.reads[0]

    @property
    def functional(self) -> Any:
        """Its variant that overwrites no input; None if there is none."""
        function = self.operation.function
        if not self.operation.written:
            return function
        name = function.overloadpacket.__name__
        packet = getattr(torch.ops.aten, name.rstrip("_"), None) if name.endswith("_") else None
        return getattr(packet, function._overloadname, None)

    def footprint(self, tensor: Tensor) -> Tensor:
        """Return the footprint ``(P, *shape)`` of a tensor, empty for a constant."""
        found = self.tracker.of(tensor)
        return self.filled(EMPTY, tuple(tensor.shape)) if found is None else found

    def filled(self, value: float, shape: tuple[int, ...]) -> Tensor:
        """Return a footprint with one value."""
        planes = torch.full((), value, device=self.first.device)
        return planes.expand(self.tracker.planes, *shape)

    def depends(self, value: Any) -> bool:
        """Return whether pixels go into any of an argument's tensors."""
        return any(self.tracker.of(tensor) is not None for tensor in tensors([value]))

    def constant(self, tensor: Tensor) -> Tensor:
        """Return the mask of a tensor's elements into which no pixel and no random number goes."""
        if self.tracker.is_drawn(tensor):
            return torch.zeros_like(tensor, dtype=torch.bool)
        return self.footprint(tensor)[0] == EMPTY

    def zeros(self, factor: Any) -> Tensor | None:
        """Return the mask of a factor's elements that are zero for all inputs and weights."""
        if not isinstance(factor, Tensor):
            factor = torch.tensor(factor, device=self.first.device)
        if self.tracker.is_weight(factor):
            return None
        found = self.constant(factor) & (factor == 0)
        return found if found.any() else None

    def unknown(self, status: str, why: str) -> list[Tensor | None]:
        """Return footprints without bounds, and note why."""
        self.doubt = status, why
        return [self.filled(torch.inf, tuple(tensor.shape)) for tensor in self.made]

    def union(self, planes: Tensor, dimensions: Sequence[int]) -> Tensor:
        """Unite footprints along some dimensions, which are kept.

        Where the union is the whole input, and more than any single one of them, it has no end: so
        a mean over all positions is told from a field that happens to be as large as the input.
        """
        dimensions, count = list(dimensions), len(self.tracker.extent)
        planes = compact(planes)
        united = planes.amax(dimensions, keepdim=True)
        for axis, size in enumerate(self.tracker.extent):
            low, high, *unpadded = range(axis, len(planes), count)
            whole = (united[low] == 0) & (united[high] == size)
            whole &= ~united[unpadded].isnan().any(0)
            if whole.any():
                one = (planes[axis::count] == united[axis::count]).all(0)
                more = ~one.any([each - 1 for each in dimensions], keepdim=True)
                united[unpadded] = united[unpadded].masked_fill(whole & more, torch.inf)
        return united


Footprints = Tensor | list[Tensor | None]
"""One footprint for all results; or one for each, None where no pixel goes into it."""


def result_footprints(traced: TracedOperation) -> list[Tensor | None]:
    """Return the footprints of an operation's results, each of its result's shape."""
    function, name = traced.operation.function, traced.name
    rule = RULES.get(name) or _BY_KIND.get(traced.operation.kind)
    for attempt in filter(None, (rule, decomposed)):
        try:
            found = attempt(traced)
            if found is not NotImplemented:
                each = found if isinstance(found, list) else [found] * len(traced.made)
                pairs = zip(each, traced.made, strict=True)
                return [p if p is None else p.expand(-1, *made.shape) for p, made in pairs]
        except (RuntimeError, LookupError, TypeError, ValueError):  # a variant with other arguments
            traced.doubt = None
    if torch.Tag.dynamic_output_shape in function.tags:
        return traced.unknown("data-dependent", f"the shape of {name}'s result depends on values")
    return traced.unknown("unknown", f"{function} is an operation without a rule")


def decomposed(traced: TracedOperation, simpler: Callable[..., Any] | None = None) -> Any:
    """Return the footprints by simpler operations: those into which torch decomposes this one."""
    function = traced.functional
    simpler = simpler or decomposition_table.get(function) or getattr(function, "decompose", None)
    if simpler is None:
        return NotImplemented
    result = traced.operation.run_simpler(simpler, traced.tracker)
    parts = [] if result is NotImplemented else tensors(result)
    if [part.shape for part in parts] != [each.shape for each in traced.made]:
        return NotImplemented
    traced.doubt = traced.tracker.doubt_of(*parts)
    return [traced.tracker.of(part) for part in parts]


def routed(traced: TracedOperation) -> list[Tensor | None]:
    """Read at computed positions: every element of the input may be chosen."""
    return traced.unknown(
        "data-dependent", f"{traced.name} reads at positions that the network computes"
    )


def spread(planes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Expand a footprint ``(P, *smaller)`` to a larger shape, as torch broadcasts tensors."""
    missing = len(shape) - (planes.ndim - 1)
    return planes[(slice(None), *[None] * missing)].expand(-1, *shape)


def compact(planes: Tensor, *, keep: int = 0) -> Tensor:
    """Return a footprint with only one of the equal parts along expanded dimensions.

    The last ``keep`` dimensions stay as they are.

    >>> compact(torch.zeros(8, 1, 1, 5, 5).expand(8, 2, 64, 5, 5)).shape
    torch.Size([8, 1, 1, 5, 5])
    """
    for axis in range(1, planes.ndim - keep):
        if planes.stride(axis) == 0:
            planes = planes.narrow(axis, 0, min(1, planes.shape[axis]))
    return planes


# Elementwise


def united(traced: TracedOperation, inputs: Any) -> Tensor:
    """Return the union of some inputs' footprints, broadcast to the shape of the result."""
    footprints = map(traced.tracker.of, tensors(inputs))
    parts = [compact(spread(each, traced.shape)) for each in footprints if each is not None]
    nothing = traced.filled(EMPTY, (1,) * len(traced.shape))
    return spread(reduce(torch.maximum, parts, nothing), traced.shape)


def elementwise(traced: TracedOperation) -> Footprints:
    """Depend on the elements at the same position."""
    found = united(traced, traced.operation.values_read)
    return [found if each.shape == found.shape[1:] else None for each in traced.made]


def made_anew(traced: TracedOperation) -> Any:
    """Depend on no value, but for the few that are filled or drawn element by element."""
    drawn = traced.name in ("fill", "bernoulli", "normal", "poisson")
    return elementwise(traced) if drawn or not traced.operation.values_read else NotImplemented


def product(traced: TracedOperation) -> Tensor:
    """Nothing is left of what is multiplied by zero."""
    found = united(traced, traced.operation.reads)
    for factor in (traced["self"], traced["other"]):
        zeros = traced.zeros(factor)
        found = found if zeros is None else found.masked_fill(zeros, EMPTY)
    return found


def added(traced: TracedOperation) -> Tensor:
    """Nothing is left of a score to which −Inf is added."""
    found = united(traced, traced.operation.reads)
    for part in (traced["self"], traced["other"]):
        if isinstance(part, Tensor) and part.is_floating_point():
            found = _without_masked(traced, found, part)
    return found


def _without_masked(traced: TracedOperation, planes: Tensor, scores: Tensor) -> Tensor:
    masked = traced.constant(scores) & (scores < _MASKED)
    return planes.masked_fill(masked, EMPTY) if masked.any() else planes


def chosen(traced: TracedOperation) -> Tensor:
    """Depend on both candidates and on the condition, unless the condition is constant."""
    if traced.name == "where":
        condition, *candidates = traced["condition"], traced["self"], traced["other"]
    else:
        condition, *candidates = traced["mask"], traced["value"], traced["self"]
    one, other = (united(traced, candidate) for candidate in candidates)
    either = torch.maximum(united(traced, condition), torch.maximum(one, other))
    by_constant = torch.where(condition.bool(), one, other)
    return torch.where(traced.constant(condition), by_constant, either)


# Along dimensions


def reduced(traced: TracedOperation, *, keep: bool = False) -> Any:
    """Depend on all elements along some dimensions."""
    if traced.get("other") is not None:  # the maximum of two tensors
        return elementwise(traced)
    planes, dimensions = traced.footprint(traced.first), traced.get("dim")
    count = planes.ndim - 1
    if isinstance(dimensions, int):
        dimensions = [dimensions]
    axes = sorted({axis % count + 1 for axis in dimensions or range(count)}) if count else []
    if axes:
        planes = traced.union(planes, axes)
    if not (keep or traced.get("keepdim")):
        planes = planes[tuple(0 if axis in axes else slice(None) for axis in range(count + 1))]
    return [planes.expand(-1, *made.shape) for made in traced.made]


def mixed(traced: TracedOperation) -> Any:
    """Depend on all elements along some dimensions, which the result has, too."""
    return reduced(traced, keep=True)


def softmax(traced: TracedOperation) -> Tensor:
    """Depend on all elements along a dimension; those that −Inf masks stay zero."""
    return _without_masked(traced, mixed(traced)[0], traced["self"])


def cumulative(traced: TracedOperation) -> Tensor:
    """Depend on all elements before it along a dimension."""
    planes = traced.footprint(traced["self"])
    return planes.cummax(traced["dim"] % max(planes.ndim - 1, 1) + 1).values


def batch_norm(traced: TracedOperation) -> Any:
    """Depend on the same element; torch decomposes it where the batch's statistics are used."""
    if not uses_running_statistics(traced.name, traced.operation.argument):
        return NotImplemented
    return [united(traced, traced.first), *[None] * (len(traced.made) - 1)]


# Matrices


def multiplied(traced: TracedOperation) -> Tensor:
    """Multiply matrices or vectors, maybe with something added."""
    first, second = (traced[name] for name in FACTORS[traced.name])
    rows = first[None] if first.ndim == 1 else first
    columns = second[:, None] if second.ndim == 1 else second
    parts = []
    if traced.depends(first):
        parts.append(_summed(traced, rows.mT, columns.mT).mT)
    if traced.depends(second):
        parts.append(_summed(traced, columns, rows))
    shape = (*rows.shape[:-1], columns.shape[-1])
    parts = [part.expand(-1, *shape).reshape(-1, *traced.shape) for part in parts]
    if "add" in traced.name:
        parts.append(united(traced, traced["self"]))
    return reduce(torch.maximum, parts)


def _summed(traced: TracedOperation, tensor: Tensor, factor: Tensor) -> Tensor:
    """Unite the rows of a tensor ``(..., K, J)`` that a factor ``(..., I, K)`` sums."""
    zeros, planes = traced.zeros(factor), traced.footprint(tensor)
    if zeros is None:
        return traced.union(planes, [planes.ndim - 2])
    return _without_zeros(planes, zeros.expand(factor.shape))


def _without_zeros(planes: Tensor, zeros: Tensor) -> Tensor:
    """Unite ``(P, ..., K, J)`` to ``(P, ..., I, J)``, without the ``zeros`` ``(..., I, K)``.

    Most rows of a mask are equal, or each is one longer than the one before.
    """
    patterns, which = zeros.flatten(0, -2).unique(dim=0, return_inverse=True)
    which = which.view(*zeros.shape[:-1], 1)
    found = planes.new_full((), EMPTY)
    for number, pattern in enumerate(patterns):
        part = planes.masked_fill(pattern[:, None], EMPTY).amax(-2, keepdim=True)
        found = torch.where(which == number, part, found)
    return found


def attention(traced: TracedOperation) -> Any:
    """Follow the products and the softmax of a fused attention."""
    if not traced.name.startswith("scaled_dot_product"):
        return NotImplemented  # the axes may be in another order
    tensors = [traced[name] for name in ("query", "key", "value")]
    mask, causal = traced.get("attn_mask", traced.get("attn_bias")), traced["is_causal"]
    # Several heads of queries may share one of keys. Torch 2.4 does not know that argument.
    shared = tensors[0].shape[-3] != tensors[1].shape[-3]
    options = {"enable_gqa": True} if shared else {}

    def plain(*args: Any, **kwargs: Any) -> list[Tensor]:
        function = torch.ops.aten._scaled_dot_product_attention_math.default
        result, _ = function.decompose(*tensors, mask, 0.0, causal, **options)
        return [result, *traced.made[1:]]  # the others are only for the backward

    return decomposed(traced, plain)


def recurrent(traced: TracedOperation) -> Any:
    """Depend on the initial state and all previous steps; in both directions, on all steps."""
    argument, source = traced.operation.argument, traced["input"]
    weights = [value for name, value in argument.items() if name.startswith(("weight", "params"))]
    if argument.get("batch_sizes") or traced.depends(weights):  # packed sequences
        return NotImplemented
    # mkldnn runs a layer in one direction, with the steps in front whatever batch_first says.
    one_direction = "reverse" in argument
    axis = 2 if traced["batch_first"] and not one_direction else 1
    steps = traced.union(traced.footprint(source), [3]).transpose(1, axis)
    last = traced.union(steps, [1])
    if one_direction and traced["reverse"]:
        steps = steps.flip(1).cummax(1).values.flip(1)
    else:
        steps = last if traced["bidirectional"] and not one_direction else steps.cummax(1).values
    for state in tensors([argument.get(name) for name in ("hx", "cx", "hx_", "cx_")]):
        given = traced.footprint(state).reshape(len(last), -1, *state.shape[-2:])
        given = given.amax([1, 3])[:, None, :, None]
        steps, last = torch.maximum(steps, given), torch.maximum(last, given)
    states = [spread(last[:, 0], tuple(each.shape)) for each in traced.made[1:3]]
    # The other results are only for the backward.
    return [steps.transpose(1, axis), *states, *[None] * len(traced.made[3:])]


# Windows: which positions of a map go into each position of the result, axis by axis

_ABSENT = -(2**40)  # in place of a position: none


def window_taps(
    size: int, kernel: int, stride: int, padding: int, dilation: int, transposed: bool = False
) -> Tensor:
    """Return the positions ``(size, kernel)`` in each window; in the padding they are outside.

    >>> window_taps(2, 3, 2, 1, 1).tolist()
    [[-1, 0, 1], [1, 2, 3]]
    """
    outputs, offsets = torch.arange(size)[:, None], torch.arange(kernel) * dilation
    if not transposed:
        return outputs * stride - padding + offsets
    reached = outputs + padding - offsets
    return (reached // stride).masked_fill(reached % stride != 0, _ABSENT)


def adaptive_taps(size: int, old: int) -> Tensor:
    """Return the positions in each window of an adaptive pooling.

    >>> adaptive_taps(2, 3).tolist()
    [[0, 1], [1, 2]]
    """
    outputs = torch.arange(size)[:, None]
    begin, end = outputs * old // size, -(-(outputs + 1) * old // size)
    taps = begin + torch.arange(int((end - begin).max()))
    return taps.masked_fill(taps >= end, _ABSENT)


def at_taps(planes: Tensor, axis: int, taps: Tensor) -> list[Tensor]:
    """Return, for each place in the windows, the footprints along an axis at that place.

    Nothing is in the padding; but the planes of maps without borders continue there in even steps.
    """
    absent, size = taps == _ABSENT, planes.shape[axis]
    low, high = min(0, int(taps[~absent].min())), max(size - 1, int(taps.max()))
    if low < 0 or high >= size or absent.any():
        positions = torch.arange(low, high + 2)
        inside = positions.clamp(0, size - 1)
        exact, unpadded = planes.index_select(axis, inside.to(planes.device)).chunk(2)
        beyond = (positions - inside).to(planes.device).view(-1, *[1] * (planes.ndim - axis - 1))
        step = _step(planes.chunk(2)[1], axis)
        unpadded = torch.where(beyond == 0, unpadded, unpadded + step * beyond)
        planes = torch.cat([exact.masked_fill(beyond != 0, EMPTY), unpadded])
        planes.select(axis, -1).fill_(EMPTY)
    columns = (taps - low).masked_fill(absent, high + 1 - low).to(planes.device)
    return [planes.index_select(axis, column) for column in columns.T]


def _step(planes: Tensor, axis: int) -> Tensor:
    """Return the difference of neighbours along an axis, NaN where it varies or is not known."""
    first, last = planes.narrow(axis, 0, 1), planes.narrow(axis, -1, 1)
    size = planes.shape[axis]
    step = planes.narrow(axis, min(1, size - 1), 1) - first
    even = (planes.diff(dim=axis) == step).all(axis, keepdim=True) & (size > 1)
    step = step.masked_fill(~even, torch.nan)
    return step.masked_fill((first == last) & ~first.isfinite(), 0)  # no pixel, or all of them


def slid(planes: Tensor, taps: Sequence[Tensor]) -> Tensor:
    """Unite the footprints at the taps along each of the last axes."""
    for axis, positions in enumerate(taps, planes.ndim - len(taps)):
        planes = reduce(torch.maximum, at_taps(planes, axis, positions))
    return planes


def _each(value: Any, count: int) -> list[int]:
    value = [value] if isinstance(value, int) else list(value)
    return value * count if len(value) == 1 else value


def convolution(traced: TracedOperation) -> Tensor:
    """Unite the windows of each group of channels; all weights count, unless a mask zeroes them."""
    planes, weight = traced.footprint(traced["input"]), traced["weight"]
    channels = list(traced.shape)[1]
    kernel, groups, transposed = weight.shape[2:], traced["groups"], traced["transposed"]
    options = (_each(traced[name], len(kernel)) for name in ("stride", "padding", "dilation"))
    sizes = zip(traced.shape[2:], kernel, *options, strict=True)
    taps = [window_taps(*each, transposed) for each in sizes]  # type: ignore[call-arg]
    zeros = traced.zeros(weight)
    if zeros is None:
        if compact(planes).shape[2] == 1:  # equal in all channels, and so in all groups
            groups, planes = 1, planes[:, :, :1]
        planes = slid(planes.unflatten(2, (groups, -1)).amax(3), taps)
        planes = planes[:, :, :, None].expand(-1, -1, -1, channels // groups, *planes.shape[3:])
    else:
        planes = _masked_convolution(planes, zeros, taps, groups, transposed)
    planes = planes.reshape(-1, *traced.shape)
    for parameter in filter(traced.depends, (weight, traced["bias"])):  # computed from the input
        every = traced.footprint(parameter).flatten(1).amax(1)
        planes = torch.maximum(planes, every.view(-1, *[1] * len(traced.shape)))
    return planes


def _masked_convolution(
    planes: Tensor, zeros: Tensor, taps: Sequence[Tensor], groups: int, transposed: bool
) -> Tensor:
    """Unite only the taps whose weights are not zeroed, as the product of two matrices."""
    count = len(taps)
    for index, positions in enumerate(taps):  # to (P, N, C, *kernel, *spatial)
        planes = torch.stack(at_taps(planes, 3 + 2 * index, positions), 3 + index)
    planes = planes.unflatten(2, (groups, -1)).flatten(-count).flatten(3, -2)
    if transposed:
        zeros = zeros.unflatten(0, (groups, -1)).transpose(1, 2)
    else:
        zeros = zeros.unflatten(0, (groups, -1))
    return _without_zeros(planes, zeros.flatten(2))


def pooled(traced: TracedOperation) -> Any:
    """Unite the windows of each map, the largest element's like the mean's."""
    name, planes = traced.name, traced.footprint(traced["self"])
    if name.startswith(("fractional", "quantized")):
        return NotImplemented
    count = int(name[name.index("pool") + 4])
    size = traced.shape[-count:]
    if "adaptive" not in name:
        kernel = _each(traced["kernel_size"], count)
        stride, padding = traced["stride"] or kernel, traced["padding"]
        options = (_each(each, count) for each in (stride, padding, traced.get("dilation", 1)))
        sizes = zip(size, kernel, *options, strict=True)
        taps = [window_taps(*each) for each in sizes]
    elif set(size) == {1}:
        return traced.union(planes, range(planes.ndim - count, planes.ndim))
    else:
        taps = [adaptive_taps(n, old) for n, old in zip(size, planes.shape[-count:], strict=True)]
    return slid(compact(planes, keep=count), taps).expand(-1, *traced.shape)


def resampled(traced: TracedOperation) -> Tensor:
    """Unite the positions that have a weight in the interpolation."""
    tensor = traced["input" if "input" in traced.operation.argument else "self"]
    taps = [_resampling_taps(traced, tensor, axis) for axis in range(tensor.ndim - 2)]
    return slid(compact(traced.footprint(tensor), keep=len(taps)), taps).expand(-1, *traced.shape)


def _resampling_taps(traced: TracedOperation, tensor: Tensor, axis: int) -> Tensor:
    """Return the positions ``(new, most)`` along an axis: resample each position alone.

    The other axes are two wide: torch 2.15 resamples a picture one wide wrongly where it is
    antialiased (all rows become the first).
    """
    count, old, new = tensor.ndim - 2, tensor.shape[axis + 2], traced.shape[axis + 2]
    alone = torch.eye(old, dtype=tensor.dtype, device=tensor.device)[None]
    alone = alone.unflatten(2, [old if d == axis else 1 for d in range(count)])
    alone = alone.expand(1, old, *[old if d == axis else 2 for d in range(count)])
    arguments = dict(traced.operation.argument)
    arguments["input" if "input" in arguments else "self"] = alone
    arguments["output_size"] = [new if d == axis else 2 for d in range(count)]
    for other, scale in enumerate(["scales_d", "scales_h", "scales_w"][-count:]):
        if other != axis:
            arguments[scale] = None
    weights = traced.operation.function(**arguments)[0].movedim(axis + 1, 1)
    weighs = weights.reshape(old, new, -1)[..., 0].T != 0
    taps = torch.where(weighs, torch.arange(old, device=weighs.device), _ABSENT)
    return taps.sort(descending=True).values[:, : max(int(weighs.sum(1).max()), 1)].cpu()


def padded(traced: TracedOperation) -> Tensor:
    """Pad with a constant, or crop."""
    planes, before = traced.footprint(traced["self"]), traced["pad"][-2::-2]
    sizes = traced.shape[len(traced.shape) - len(before) :]
    taps = [window_taps(size, 1, 1, n, 1) for size, n in zip(sizes, before, strict=True)]
    return slid(compact(planes, keep=len(taps)), taps).expand(-1, *traced.shape)


# Elements that move

_INDICES = {"index", "indices", "mask"}
_BASE = 2.0**21  # the sum of a coordinate and this is exact in single precision


def concatenated(traced: TracedOperation) -> Tensor:
    """Join several tensors."""
    parts = [part for part in traced["tensors"] if part.shape != (0,)]
    axis = traced["dim"] % parts[0].ndim + 1
    return torch.cat([traced.footprint(part) for part in parts], axis)


def moved(traced: TracedOperation) -> Any:
    """Move the footprint as the elements; where torch writes zeros, it is empty."""
    arguments = traced.operation.argument
    indices = [arguments[name] for name in _INDICES & set(arguments)]
    if traced.depends(indices):
        return routed(traced)
    if any(map(traced.tracker.is_drawn, tensors(indices))):
        return traced.unknown("data-dependent", f"{traced.name} reads at random positions")
    if arguments.get("accumulate") or arguments.get("reduce") or traced.functional is None:
        return NotImplemented

    def of_plane(name: str, value: Any, plane: int) -> Any:
        if name in _INDICES:
            return value
        if isinstance(value, (list, tuple)):
            return [of_plane(name, each, plane) for each in value]
        if not isinstance(value, Tensor):
            return 0 if name == "value" else value
        footprint = traced.footprint(value)[plane]
        return torch.where(footprint == EMPTY, 0, footprint + _BASE)

    planes = []
    for plane in range(traced.tracker.planes):
        moving = {name: of_plane(name, value, plane) for name, value in arguments.items()}
        planes.append(traced.functional(**moving))
    found = torch.stack(planes)
    return torch.where(found == 0, EMPTY, found - _BASE)


Function = Callable[[TracedOperation], Any]
_BY_KIND: dict[Kind, Function] = {
    **dict.fromkeys(ELEMENTWISE_KINDS, elementwise),
    **dict.fromkeys((Kind.FACTORY, Kind.RANDOM), made_anew),
    Kind.POOLING: pooled,
    Kind.ATTENTION: attention,
    Kind.RESAMPLING: resampled,
    Kind.LOOKUP: routed,
}
_BY_RULE: list[tuple[Function, str]] = [
    (product, "mul"),
    (added, "add"),
    (chosen, "where masked_fill"),
    (
        reduced,
        "sum mean amax amin max min prod var std var_mean std_mean any all argmax argmin logsumexp "
        "linalg_vector_norm norm median nanmedian mode kthvalue count_nonzero nansum aminmax",
    ),
    (mixed, "sort topk fft_r2c fft_c2r fft_c2c"),
    (softmax, "softmax log_softmax safe_softmax"),
    (cumulative, "cumsum cumprod logcumsumexp"),
    (batch_norm, " ".join(BATCH_NORMS)),
    (multiplied, " ".join(FACTORS)),
    (recurrent, "rnn_layer rnn lstm_mps"),
    (convolution, "convolution convolution_overrideable"),
    (padded, "constant_pad_nd"),
    (concatenated, "cat"),
    (
        moved,
        "index unsafe_index index_select gather slice_scatter select_scatter diagonal_scatter "
        "as_strided_scatter index_put unsafe_index_put index_copy index_fill scatter roll "
        "flip repeat take reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
        "replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle im2col "
        "tril triu diag_embed masked_select masked_scatter embedding unfold_copy stack",
    ),
    (decomposed, "grid_sampler_2d isin bucketize searchsorted"),
]
RULES: dict[str, Function] = {name: rule for rule, names in _BY_RULE for name in names.split()}
"""The operations that are followed by name; all others go by their kind, or are decomposed."""
