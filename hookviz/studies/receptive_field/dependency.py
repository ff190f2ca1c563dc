"""The input region that each number of a run depends on: memory beside the tensors' own;
and by it what the positions of a layer see, and by which rule.

Beside each number stands from where to where in the input lies what it was made of. The model runs
as always, under a mode that sees each operation: what an operation makes depends on all that went
into it, so its footprint is the union of theirs. `rules.py` says, by kinds of operations, what goes
into what. Weights count as if none of them were zero, gates and maxima as if they let all through:
so the footprint is what the structure lets be seen, whatever the numbers are.

The footprint has the layout of the memory and goes by it, so that views need no rule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.maps import PatchGrid, as_maps
from ...hooking.select import dimensions, first_convolution
from ...hooking.storage import StorageMap, share_memory
from ...hooking.tensors import map_tensors, tensors
from ...run.follow import EscapeDetector
from ...run.recorder import Listener, Operation, OperationRecorder
from ...run.session import Session
from .rules import TracedOperation, rule_of


@dataclass(frozen=True)
class Uncertainty:
    """Why a footprint is not all that there is to say."""

    status: str  # "data-dependent" or "unknown", which is worse
    why: str


@dataclass(eq=False)
class _Footprint:
    """The footprint of a memory: planes, which are never written into.

    They are ``(P, numbers in it)``, or ``(P, *shape)`` where a contiguous tensor is all of the
    memory: that of a convolution is the same for all channels, and expanded takes no room.
    """

    width: int  # bytes a number
    planes: Tensor
    doubt: Uncertainty | None

    def flat(self) -> Tensor:
        """Return planes with a number for each of the memory's, in their order."""
        if self.planes.ndim != 2:
            self.planes = self.planes.reshape(len(self.planes), -1).contiguous()
        return self.planes


class DependencyTracker(Listener):
    """While it listens each tensor has a footprint as long as it lives.

    It has ``4 * D`` planes for an input with D spatial dimensions: −from and to (half-open)
    in each of them; and both once more as if the input and all maps went on past their borders,
    +inf where that has no end, NaN where it is not known. Nothing is −inf: so the union of several
    is their maximum.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters count as nonzero.
    source : torch.Tensor
        What the model will be given, ``(..., *spatial)``.
    dimensions : int
        D, how many of its last dimensions are spatial.
    """

    def __init__(self, model: nn.Module, source: Tensor, dimensions: int) -> None:
        self.planes = 4 * dimensions
        self.extent = tuple(source.shape[source.ndim - dimensions :])
        self._doubt: Uncertainty | None = None  # about all that is still to come
        self._footprints: StorageMap[_Footprint] = StorageMap()
        self._weights: StorageMap[bool] = StorageMap()
        for parameter in model.parameters():
            self._weights[parameter] = True
        places = torch.meshgrid(*(torch.arange(n) for n in self.extent), indexing="ij")
        first = torch.stack(places).float().to(source.device)
        of_place = torch.cat([-first, first + 1, -first, first + 1])
        spread = of_place[(slice(None), *[None] * (source.ndim - dimensions))]
        self._write(source, spread.expand(-1, *source.shape), None)

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's footprint ``(P, *shape)``; None if nothing of the input is in it."""
        shade = self._footprints.get(tensor)
        if shade is None:
            return None
        size, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        width, planes = tensor.element_size(), shade.planes
        if width == shade.width and planes.shape[1:] == size and tensor.is_contiguous():
            return planes
        planes = shade.flat()
        if width == shade.width:
            size, stride = (self.planes, *size), (planes.stride(0), *stride)  # type: ignore[assignment]
            return planes.as_strided(size, stride, planes.storage_offset() + offset)
        # The memory is read as numbers of another width, such as a complex number's parts.
        bytes_at = width * torch.arange(tensor.untyped_storage().nbytes() // width)
        bytes_at = bytes_at.to(planes.device).as_strided(size, stride, offset)
        parts = range(0, width, min(width, shade.width))
        return torch.stack([planes[:, (bytes_at + each) // shade.width] for each in parts]).amax(0)

    def doubt_of(self, *tensors: Tensor) -> Uncertainty | None:
        """Return the uncertainty of tensors' footprints."""
        known = filter(None, map(self._footprints.get, tensors))
        doubts = [self._doubt, *(each.doubt for each in known)]
        return _worst(doubts)

    def doubtful(self, status: str, why: str) -> None:
        """Note that all that follows may depend on the input in ways that no footprint shows."""
        self._doubt = _worst([self._doubt, Uncertainty(status, why)])

    def escape(self, name: str, tensor: Tensor) -> None:
        """Note that a tensor's values leave torch, and may come back without a footprint."""
        if self.of(tensor) is not None:
            self.doubtful("unknown", f"numbers leave torch by .{name}()")

    def is_weight(self, tensor: Tensor) -> bool:
        """Return True if it is a parameter, whose zeros may be learned away."""
        return tensor in self._weights

    def before(self, operation: Operation) -> None:
        """Look at numbers that the operation is about to overwrite."""
        self._footprints.prune()
        if not any(each in self._footprints for each in operation.reads):
            for each in operation.written:  # a mask on a weight's own memory makes its zeros count
                self._weights.pop(each)
            return
        if torch.Tag.data_dependent_output in operation.function.tags:
            why = f"the code asks for a number that was computed ({operation.name})"
            self.doubtful("data-dependent", why)
        traced, doubt = TracedOperation(self, operation), self.doubt_of(*operation.reads)
        planes = self._planes_of(operation, traced, traced.written) if traced.written else None
        operation.notes[self] = traced, doubt, planes

    def after(self, operation: Operation) -> None:
        """Write down what the output depends on."""
        if self not in operation.notes:
            return
        traced, doubt, planes = operation.notes[self]
        if planes is None:
            made = operation.outputs
            if all(any(share_memory(each, one) for one in traced.given) for each in made):
                return  # views
            planes = self._planes_of(operation, traced, made)
        doubt = _worst([doubt, Uncertainty(*traced.doubt) if traced.doubt else None])
        for tensor, each in zip(traced.made, planes, strict=True):
            if each is not None:
                self._write(tensor, each, doubt)

    def _planes_of(
        self, running: Operation, operation: TracedOperation, made: list[Tensor]
    ) -> list[Tensor | None]:
        """Return the footprints of the outputs that an operation makes, or is about to make."""
        operation.made = made
        rule = rule_of(operation)
        found = rule(operation) if rule is not None else self._decomposed(running, operation)
        if found is NotImplemented:
            status, why = "unknown", f"{operation.function} is an operation without a rule"
            if torch.Tag.dynamic_output_shape in operation.function.tags:
                status, why = "data-dependent", f"{operation.name} finds what depends on numbers"
            operation.doubt = status, why
            found = operation.all_inputs()
        return found if isinstance(found, list) else [found] * len(made)

    def _decomposed(self, running: Operation, operation: TracedOperation) -> Any:
        """Return the footprints by the simpler operations into which torch decomposes this one."""
        simpler = operation.simpler()
        if simpler is None:
            return NotImplemented
        try:
            found = running.run_simpler(simpler, self)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            found = NotImplemented
        if found is NotImplemented:
            return found
        parts = tensors(found)
        if [each.shape for each in parts] != [each.shape for each in operation.made]:
            return NotImplemented
        doubt = self.doubt_of(*parts)
        operation.doubt = None if doubt is None else (doubt.status, doubt.why)
        return [self.of(each) for each in parts]

    def _write(self, tensor: Tensor, planes: Tensor, doubt: Uncertainty | None) -> None:
        try:
            size, width = tensor.untyped_storage().nbytes(), tensor.element_size()
        except (RuntimeError, NotImplementedError):
            self.doubtful("unknown", f"a {tensor.layout} tensor has no memory to be followed")
            return
        count = size // width
        if tensor.is_contiguous() and tensor.numel() == count:
            found = planes.expand(-1, *tensor.shape)
        else:
            old = self._footprints.get(tensor)
            if old is not None and old.width != width:
                doubt = Uncertainty("unknown", "memory is written as numbers of two widths")
            if old is not None and old.width == width:
                found, doubt = old.flat().clone(), _worst([doubt, old.doubt])
            else:
                found = planes.new_full((self.planes, count), -torch.inf)
            shape, stride = (self.planes, *tensor.shape), (count, *tensor.stride())
            found.as_strided(shape, stride, tensor.storage_offset()).copy_(planes)
        self._footprints[tensor] = _Footprint(width, found, doubt)


def _worst(doubts: list[Uncertainty | None]) -> Uncertainty | None:
    there = [each for each in doubts if each is not None]
    return next((each for each in there if each.status == "unknown"), there[0] if there else None)


# A layer's footprint

Key = tuple[str, int]
"""A layer's name, and which of its runs."""


@dataclass(frozen=True)
class Rule:
    """In one dimension, place ``p`` sees ``size`` pixels from ``start + stride * p`` on."""

    size: int
    stride: int
    start: int


@dataclass(eq=False)
class LayerFootprint:
    """The footprint of one run of a layer.

    Attributes
    ----------
    planes : torch.Tensor or None
        The union ``(P, *places)`` over all channels, as in `DependencyTracker`; None if the layer
        has no places, and then ``doubt`` says why.
    input_size : tuple of int
    doubt : Uncertainty or None
    rules : list of Rule or None
        For each dimension of the input, once they are known.
    """

    planes: Tensor | None
    input_size: tuple[int, ...]
    doubt: Uncertainty | None
    rules: list[Rule | None]

    def whole(self, axis: int) -> bool:
        """Return True if every place sees all of the input in a dimension."""
        low, high = self.exact(axis)
        return bool((low == 0).all() and (high == self.input_size[axis]).all())

    def exact(self, axis: int) -> tuple[Tensor, Tensor]:
        """From where to where each place sees, within the input."""
        return self._ends(axis)

    def unpadded(self, axis: int) -> tuple[Tensor, Tensor]:
        """Return the same for an input and maps without borders; infinite, or NaN if not known."""
        return self._ends(axis + 2 * len(self.input_size))

    def _ends(self, plane: int) -> tuple[Tensor, Tensor]:
        assert self.planes is not None
        return -self.planes[plane], self.planes[plane + len(self.input_size)]

    @property
    def empty(self) -> bool:
        """True if nothing of the input reaches the layer."""
        low, high = self.exact(0)
        return not bool((low < high).any())


def seen_by(session: Session, layers: Mapping[nn.Module, str]) -> dict[Key, LayerFootprint]:
    """Return the footprint of each run of some layers, with the rules that hold."""
    found = _run(session, layers)
    usable = {key: each for key, each in found.items() if _usable(each)}
    for each in usable.values():
        each.rules = [_fitted(each, axis) for axis in range(len(each.input_size))]
    undetermined = {key: each for key, each in usable.items() if _undetermined(each)}
    if undetermined:
        _determine_on_larger(session, layers, undetermined)
    return found


def _usable(seen: LayerFootprint) -> bool:
    return seen.planes is not None and seen.doubt is None and not seen.empty


class StopForward(BaseException):
    """All that was asked for has run."""


def _run(
    session: Session, layers: Mapping[nn.Module, str], wanted: set[Key] | None = None
) -> dict[Key, LayerFootprint]:
    """One forward. With ``wanted`` it ends when those have run, and later failures are ignored."""
    return session.observed(lambda: _run_once(session, layers, wanted))


def _run_once(
    session: Session, layers: Mapping[nn.Module, str], wanted: set[Key] | None
) -> dict[Key, LayerFootprint]:
    given = map_tensors((session.inputs.args, session.inputs.kwargs), torch.clone)
    source = _source(given)
    if source is None:
        raise ValueError(
            "The model is given no floating-point tensor, so no pixels can be seen: a "
            "receptive field is that of a picture, signal or volume."
        )
    footprints = DependencyTracker(session.model, source, spatial(session))
    recorder, grid = OperationRecorder(footprints), PatchGrid()
    found: dict[Key, LayerFootprint] = {}
    runs = dict.fromkeys(layers.values(), 0)

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = layers[module]
        key, runs[name] = (name, runs[name]), runs[name] + 1
        with recorder.silent():
            found[key] = _seen(module, output, footprints, grid)
        if wanted is not None and wanted <= found.keys():
            raise StopForward

    hooks = [*grid.hooks(session.model), *((module, "forward", after) for module in layers)]
    try:
        with (
            session.active(grad=False),
            HookManager(hooks),
            EscapeDetector(footprints.escape),
            recorder,
        ):
            session.call(*given[0], **given[1])
    except StopForward:
        pass
    except Exception:
        if wanted is None:
            raise
    return found


def _source(given: Any) -> Tensor | None:
    """Return the first floating-point tensor, the one with the pixels."""
    every = tensors(given)
    return next((tensor for tensor in every if tensor.is_floating_point()), None)


def spatial(session: Session) -> int:
    """Count the spatial dimensions of the input, which come last: by the first convolution."""
    main, first = session.inputs.main, first_convolution(session.model)
    count = 2 if main is None else main.ndim
    if first is not None and count - dimensions(first) in (1, 2):
        return dimensions(first)
    return min(max(count - 2, 1), 3)


def _seen(
    module: nn.Module, output: Any, footprints: DependencyTracker, grid: PatchGrid
) -> LayerFootprint:
    """Return the footprint of a layer that has just returned."""
    tensor = next(iter(tensors(output)), None)
    if tensor is None:
        why = f"returned {type(output).__name__} and no tensor"
        return LayerFootprint(None, footprints.extent, Uncertainty("unknown", why), [])
    doubt, planes = footprints.doubt_of(tensor), footprints.of(tensor)
    if planes is None:
        planes = torch.full((), -torch.inf).expand(footprints.planes, *tensor.shape)
    try:
        patches = grid.of(tuple(tensor.shape))
        maps = [as_maps(plane, module, patches).amax((0, 1)) for plane in planes]
    except (ValueError, IndexError):
        why = f"returned a tensor of shape {tuple(tensor.shape)}, which is not a map"
        return LayerFootprint(None, footprints.extent, Uncertainty("unknown", why), [])
    return LayerFootprint(torch.stack(maps).cpu(), footprints.extent, doubt, [])


# Rules


def _fitted(seen: LayerFootprint, axis: int) -> Rule | None:
    """Return the rule for the positions along a dimension, if one fits."""
    low, high = seen.unpadded(axis)
    if low.ndim != len(seen.input_size) or low.shape[axis] < 2:
        return None
    line = tuple(slice(None) if d == axis else n // 2 for d, n in enumerate(low.shape))
    begin, end = low[line], high[line]
    middle = (len(begin) - 1) // 2
    stride, size = begin[middle + 1] - begin[middle], end[middle] - begin[middle]
    if not (stride.isfinite() and size.isfinite()):
        return None
    start = begin[middle] - stride * middle
    rule = Rule(int(size), int(stride), int(start))
    first = _first(seen, axis, rule)
    even = bool((low == first).all() and (high == first + rule.size).all())
    return rule if _holds(seen, axis, rule, even) else None


def _first(seen: LayerFootprint, axis: int, rule: Rule) -> Tensor:
    """Return the first pixel of each position's field, by a rule."""
    low, _ = seen.exact(axis)
    shape = [1] * low.ndim
    shape[axis] = low.shape[axis]
    return rule.start + rule.stride * torch.arange(low.shape[axis]).view(shape)


def _holds(seen: LayerFootprint, axis: int, rule: Rule, even: bool) -> bool:
    """Return True if no place sees more than a rule says, and those far from the border see it all.

    Where the maps are ``even`` the latter is known: it may be that no place is so far from it.
    """
    low, high = seen.exact(axis)
    first = _first(seen, axis, rule)
    last = first + rule.size
    if not ((low >= first) & (high <= last) | (low >= high)).all():
        return False
    inside = (first >= 0) & (last <= seen.input_size[axis])
    sees_all = (low == first) & (high == last) | ~inside
    return even or (bool(sees_all.all()) and int(inside.sum()) >= 2)


# Maps of one place show no stride: a larger input does


_MOST_PIXELS = 700_000
_LARGER = 8


def _undetermined(seen: LayerFootprint) -> bool:
    assert seen.planes is not None
    if seen.planes.ndim - 1 != len(seen.input_size):
        return False
    for axis, rule in enumerate(seen.rules):
        low, high = seen.unpadded(axis)
        no_end = bool((low == -torch.inf).all() and (high == torch.inf).all())
        if rule is None and low.shape[axis] < 3 and not no_end:
            return True
    return False


def _determine_on_larger(
    session: Session, layers: Mapping[nn.Module, str], undetermined: dict[Key, LayerFootprint]
) -> None:
    """Look for rules on a larger input, and take those that hold on the given one, too."""
    inputs, count = session.inputs, spatial(session)
    if len(inputs.args) != 1 or inputs.kwargs or not isinstance(inputs.args[0], Tensor):
        return
    picture = inputs.args[0]
    factor = min(_LARGER, math.floor((_MOST_PIXELS / max(picture.numel(), 1)) ** (1 / count)))
    if factor < 2:
        return
    larger = copy.copy(session)
    tiled = picture.repeat(*[1] * (picture.ndim - count), *[factor] * count)
    larger.inputs = replace(inputs, args=(tiled,))
    names = {name for name, _ in undetermined}
    chosen = {module: name for module, name in layers.items() if name in names}
    for key, found in _run(larger, chosen, set(undetermined)).items():
        if key in undetermined and _usable(found):
            seen = undetermined[key]
            for axis, rule in enumerate(seen.rules):
                fitted = _fitted(found, axis)
                if rule is None and fitted is not None and _holds(seen, axis, fitted, even=True):
                    seen.rules[axis] = fitted
