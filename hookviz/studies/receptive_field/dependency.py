"""The input region that each element of a tensor depends on, followed through one forward.

Beside each tensor lies its footprint: for every element, from where to where in the input the
pixels lie that it was computed from. The model runs unchanged while a listener sees each operation;
what an operation returns has the union of its inputs' footprints, and `rules.py` says which
elements go into which. Weights count as if none of them were zero, gates and maxima as if they let
everything through: a footprint is what the structure allows, whatever the values are.

A footprint has the layout of the tensor's memory, so that views need no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.maps import PatchGrid, as_maps
from ...hooking.select import dimensions, first_convolution
from ...hooking.storage import StorageMap, share_memory
from ...hooking.tensors import map_tensors, tensors
from ...run.follow import detect_escapes
from ...run.operations import Kind
from ...run.recorder import Listener, Operation, OperationRecorder
from ...run.session import Session
from .rules import EMPTY, TracedOperation, result_footprints


class Uncertainty(NamedTuple):
    """The reason why a footprint is not known."""

    status: str  # "data-dependent" or "unknown"
    why: str


@dataclass(eq=False)
class _Footprint:
    """The footprint of a memory.

    Its planes, which are never overwritten, are ``(P, *shape)`` where a contiguous tensor fills
    the memory, else ``(P, elements)``. A convolution's are equal for all channels: they are an
    expanded tensor, which takes no room.
    """

    width: int  # bytes per element
    planes: Tensor
    doubt: Uncertainty | None

    def flat(self, width: int) -> Tensor:
        """Return the planes ``(P, elements)`` for elements of this many bytes."""
        if self.planes.ndim != 2:
            self.planes = self.planes.reshape(len(self.planes), -1)
        if width > self.width:  # complex numbers that were written as pairs
            return self.planes.unflatten(1, (-1, width // self.width)).amax(2)
        repeats = self.width // width
        return self.planes if repeats == 1 else self.planes.repeat_interleave(repeats, 1)


class DependencyTracker(Listener):
    """The footprints of all tensors that live while it listens.

    For an input with D spatial dimensions a footprint has ``4 * D`` planes: where the pixels begin
    (negated) and end (half-open) in each dimension; and the same for an input and maps that
    continue beyond their borders, infinite if there is no end, NaN if it is not known. An element
    that no pixel goes into has −inf everywhere: the union of footprints is their maximum.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters count as nonzero.
    source : torch.Tensor
        The input, ``(..., *spatial)``.
    dimensions : int
        D, the number of its spatial dimensions.
    """

    def __init__(self, model: nn.Module, source: Tensor, dimensions: int) -> None:
        self.planes = 4 * dimensions
        self.extent = tuple(source.shape[source.ndim - dimensions :])
        self._doubt: Uncertainty | None = None  # about all that is still to come
        self._footprints: StorageMap[_Footprint] = StorageMap()
        self._weights: StorageMap[bool] = StorageMap()
        self._drawn: StorageMap[bool] = StorageMap()
        for parameter in model.parameters():
            self._weights[parameter] = True
        axes = (torch.arange(size, device=source.device) for size in self.extent)
        pixels = torch.stack(torch.meshgrid(*axes, indexing="ij")).float()
        planes = torch.cat([-pixels, pixels + 1] * 2)
        planes = planes[(slice(None), *[None] * (source.ndim - dimensions))]
        self._write(source, planes.expand(-1, *source.shape), None)

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's footprint ``(P, *shape)``; None if no pixel goes into it."""
        footprint, width = self._footprints.get(tensor), tensor.element_size()
        if footprint is None:
            return None
        planes = footprint.planes
        same = width == footprint.width and planes.shape[1:] == tensor.shape
        if same and tensor.is_contiguous():
            return planes
        planes = footprint.flat(width)
        stride = planes.stride(0), *(each * planes.stride(1) for each in tensor.stride())
        offset = planes.storage_offset() + tensor.storage_offset() * planes.stride(1)
        return planes.as_strided((self.planes, *tensor.shape), stride, offset)

    def doubt_of(self, *tensors: Tensor) -> Uncertainty | None:
        """Return the uncertainty of tensors' footprints."""
        footprints = filter(None, map(self._footprints.get, tensors))
        doubts = (self._doubt, *(footprint.doubt for footprint in footprints))
        return next(filter(None, doubts), None)

    def escape(self, name: str, tensor: Tensor) -> None:
        """Note that a tensor's values leave torch: they may come back without a footprint."""
        if self.of(tensor) is not None:
            self._all_doubtful("unknown", f"numbers leave torch by .{name}()")

    def is_weight(self, tensor: Tensor) -> bool:
        """Return True for a parameter, whose zeros may be learned."""
        return tensor in self._weights

    def is_drawn(self, tensor: Tensor) -> bool:
        """Return True if other random numbers would give this tensor other values."""
        return tensor in self._drawn

    def _all_doubtful(self, status: str, why: str) -> None:
        self._doubt = self._doubt or Uncertainty(status, why)

    def before(self, operation: Operation) -> None:
        """Run the operation, and note what its results depend on."""
        of_pixels = any(tensor in self._footprints for tensor in operation.reads)
        random = not of_pixels and any(map(self.is_drawn, operation.reads))
        if random or operation.kind is Kind.RANDOM:
            operation.run()
            for tensor in (*operation.written, *operation.outputs):
                self._drawn[tensor] = True
        if not of_pixels:
            for tensor in operation.written:  # a mask on a weight's memory: its zeros count
                self._weights.pop(tensor)
            return
        if torch.Tag.data_dependent_output in operation.function.tags:
            why = f"the code asks for a number that was computed ({operation.name})"
            self._all_doubtful("data-dependent", why)
        doubt, written = self.doubt_of(*operation.reads), operation.written
        # A rule may look at values, which an in-place operation overwrites.
        parts = [self._footprints_of(operation, written)] if written else []
        operation.run()
        inputs = (*operation.reads, *written)
        new = [
            each for each in operation.outputs if not any(share_memory(each, one) for one in inputs)
        ]
        if new:  # not views
            parts.append(self._footprints_of(operation, new))
        for traced, footprints in parts:
            of_rule = traced.doubt and Uncertainty(*traced.doubt)
            for tensor, planes in zip(traced.made, footprints, strict=True):
                if planes is not None:
                    self._write(tensor, planes, doubt or of_rule)

    def _footprints_of(
        self, operation: Operation, made: list[Tensor]
    ) -> tuple[TracedOperation, list[Tensor | None]]:
        traced = TracedOperation(self, operation, made)
        return traced, result_footprints(traced)

    def _write(self, tensor: Tensor, planes: Tensor, doubt: Uncertainty | None) -> None:
        try:
            size, width = tensor.untyped_storage().nbytes(), tensor.element_size()
        except (RuntimeError, NotImplementedError):
            self._all_doubtful("unknown", f"a {tensor.layout} tensor has no memory to follow")
            return
        count = size // width
        if not tensor.is_contiguous() or tensor.numel() != count:
            old, part = self._footprints.get(tensor), planes
            if old is None:
                planes = part.new_full((self.planes, count), EMPTY)
            else:
                planes, doubt = old.flat(width).clone(), doubt or old.doubt
            shape, stride = (self.planes, *tensor.shape), (count, *tensor.stride())
            planes.as_strided(shape, stride, tensor.storage_offset()).copy_(part)
        self._footprints[tensor] = _Footprint(width, planes, doubt)


class Rule(NamedTuple):
    """In one dimension, position ``p`` sees ``size`` pixels from ``start + stride * p`` on."""

    size: int
    stride: Any
    start: Any  # None, as the stride, if there is no such rule


class LayerFootprint:
    """The footprint of one call of a layer.

    Parameters
    ----------
    planes : torch.Tensor or None
        The union ``(P, *positions)`` over all channels, as in `DependencyTracker`; None if the
        layer has no positions, for the reason in ``doubt``.
    input_size : tuple of int
    doubt : Uncertainty or None
    source : int
        The index of the input tensor with the pixels.
    """

    def __init__(
        self,
        planes: Tensor | None,
        input_size: tuple[int, ...],
        doubt: Uncertainty | None,
        source: int,
    ) -> None:
        self.planes, self.input_size, self.doubt, self.source = planes, input_size, doubt, source
        self.axes = range(len(input_size))
        self.larger: LayerFootprint | None = None  # on a larger input, if that is needed

    def ends(self, axis: int, *, unpadded: bool = False) -> tuple[Tensor, Tensor]:
        """Return where the pixels of each position begin and end, within the input or unpadded."""
        assert self.planes is not None
        count = len(self.input_size)
        plane = axis + 2 * count * unpadded
        return -self.planes[plane], self.planes[plane + count]

    @property
    def empty(self) -> bool:
        """True if it is known that no pixel reaches the layer."""
        if self.planes is None or self.doubt:
            return False
        low, high = self.ends(0)
        return not bool((low < high).any())

    def whole(self, axis: int) -> bool:
        """Return True if every position sees all of the input in a dimension."""
        low, high = self.ends(axis)
        return bool((low == 0).all() and (high == self.input_size[axis]).all())

    @property
    def without_step(self) -> bool:
        """True if it has so few positions that the distance between their fields is not known."""
        if self.planes is None or self.doubt or self.empty:
            return False
        return any(
            size < 3
            and not torch.stack(self.ends(axis, unpadded=True)).isinf().all()
            and self._fitted(axis) is None
            for axis, size in zip(self.axes, self.planes.shape[1:], strict=False)
        )

    def rule(self, axis: int) -> Rule:
        """Return the rule of a dimension; without stride and start if none fits the positions."""
        rule = self._fitted(axis)
        if rule is None and self.larger is not None:
            rule = self.larger._fitted(axis)
            rule = rule if rule and self._allows(rule, axis, even=True) else None
        if self.whole(axis) and not (rule and rule.stride):
            return Rule(self.input_size[axis], 0, 0)
        low, high = self.ends(axis)
        return rule or Rule(int((high - low).max()), None, None)

    def _fitted(self, axis: int) -> Rule | None:
        low, high = self.ends(axis, unpadded=True)
        if low.ndim != len(self.input_size) or low.shape[axis] < 2:
            return None
        line = tuple(slice(None) if d == axis else n // 2 for d, n in enumerate(low.shape))
        begin, end = low[line], high[line]
        middle = (len(begin) - 1) // 2
        stride, size = begin[middle + 1] - begin[middle], end[middle] - begin[middle]
        if not (stride.isfinite() and size.isfinite()):
            return None
        rule = Rule(int(size), int(stride), int(begin[middle] - stride * middle))
        first, last = self._spans(rule, axis)
        even = bool((low == first).all() and (high == last).all())
        return rule if self._allows(rule, axis, even=even) else None

    def _spans(self, rule: Rule, axis: int) -> tuple[Tensor, Tensor]:
        """Return where the pixels of each position begin and end by a rule."""
        low, _ = self.ends(axis)
        positions = torch.arange(low.shape[axis]).view([-1 if d == axis else 1 for d in self.axes])
        first = (rule.start + rule.stride * positions).expand_as(low)
        return first, first + rule.size

    def _allows(self, rule: Rule, axis: int, *, even: bool) -> bool:
        """Return True if no position sees more, and those far from the border see all of a rule.

        The latter is known of ``even`` maps, of which only the border cuts something off.
        """
        (low, high), (first, last) = self.ends(axis), self._spans(rule, axis)
        if not ((low >= first) & (high <= last) | (low >= high)).all():
            return False
        inside = (first >= 0) & (last <= self.input_size[axis])
        full = (low == first) & (high == last)
        return even or (int(inside.sum()) >= 2 and bool(full[inside].all()))


Key = tuple[str, int]
"""A layer's name, and the index of its call."""


def seen_by(session: Session, layers: Mapping[nn.Module, str]) -> dict[Key, LayerFootprint]:
    """Return the footprint of each call of some layers, in the first input that reaches it."""
    inputs = enumerate(tensors(session.inputs.args, session.inputs.kwargs))
    pictures = [index for index, tensor in inputs if tensor.is_floating_point()]
    if not pictures:
        raise ValueError(
            "The model has no floating-point input, so there are no pixels: a receptive field is "
            "that of a picture, signal or volume."
        )
    found: dict[Key, LayerFootprint] = {}
    for index in pictures:
        for key, seen in session.observed(partial(_run, session, layers, index)).items():
            if key not in found or found[key].empty:
                found[key] = seen
        if not any(seen.empty for seen in found.values()):
            break
    if any(seen.without_step for seen in found.values()) and len(pictures) == 1:
        for key, seen in _run(session, layers, pictures[0], larger=True).items():
            if key in found and seen.planes is not None and not seen.doubt:
                found[key].larger = seen
    return found


_MOST_PIXELS, _MOST_TILES = 700_000, 8


def _run(
    session: Session, layers: Mapping[nn.Module, str], index: int, *, larger: bool = False
) -> dict[Key, LayerFootprint]:
    """Run the model once, and follow the pixels of one of its input tensors."""
    source = tensors(session.inputs.args, session.inputs.kwargs)[index]
    count = spatial(session, source)
    most = (_MOST_PIXELS / max(source.numel(), 1)) ** (1 / count)
    tiles = [min(_MOST_TILES, int(most)) if larger else 1] * count

    def given(tensor: Tensor) -> Tensor:
        return tensor.repeat(*[1] * (tensor.ndim - count), *tiles) if larger else tensor.clone()

    args, kwargs = map_tensors((session.inputs.args, session.inputs.kwargs), given)
    source = tensors(args, kwargs)[index]
    tracker = DependencyTracker(session.model, source, count)
    recorder, grid = OperationRecorder(tracker), PatchGrid()
    found: dict[Key, LayerFootprint] = {}

    def after(module: nn.Module, args: object, kwargs: object, output: object) -> None:
        name = layers[module]
        call = sum(layer == name for layer, _ in found)
        with recorder.silent():
            planes, doubt = _positions(module, output, tracker, grid)
        found[name, call] = LayerFootprint(planes, tracker.extent, doubt, index)

    hooks = [*grid.hooks(session.model), *((module, "forward", after) for module in layers)]
    escapes = detect_escapes(tracker.escape)
    try:
        with session.active(grad=False), HookManager(hooks), escapes, recorder:
            session.call(*args, **kwargs)
    except Exception:
        if not larger:  # a later layer may refuse it
            raise
    return found


def spatial(session: Session, tensor: Tensor | None) -> int:
    """Count the spatial dimensions of an input, which come last: by the first convolution."""
    first, count = first_convolution(session.model), 2 if tensor is None else tensor.ndim
    if first is not None and count - dimensions(first) in (1, 2):
        return dimensions(first)
    return min(max(count - 2, 1), 3)


def _positions(
    module: nn.Module, output: object, tracker: DependencyTracker, grid: PatchGrid
) -> tuple[Tensor | None, Uncertainty | None]:
    """Return the planes ``(P, *positions)`` of a layer that has just returned."""
    tensor = next(iter(tensors(output)), None)
    if tensor is None:
        why = f"returned {type(output).__name__} and no tensor"
        return None, Uncertainty("unknown", why)
    planes = tracker.of(tensor)
    if planes is None:
        planes = torch.full((), EMPTY).expand(tracker.planes, *tensor.shape)
    try:
        patches = grid.of(tuple(tensor.shape))
        maps = [as_maps(plane, module, patches).amax((0, 1)) for plane in planes]
    except (ValueError, IndexError):
        why = f"returned a tensor of shape {tuple(tensor.shape)}, which is not a map"
        return None, Uncertainty("unknown", why)
    return torch.stack(maps).cpu(), tracker.doubt_of(tensor)
