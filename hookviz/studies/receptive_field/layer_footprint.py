"""A model run under its shadow: what the places of its layers saw, and by which rule they see."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.tensors import PatchGrid, as_maps, map_tensors, tensors_in
from ...run.inputs import dimensions, first_convolution
from ...run.recorder import OperationRecorder
from ...run.session import Session
from .dependency import DependencyTracker, EscapeDetector, Uncertainty

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
    """What one run of a layer saw.

    Attributes
    ----------
    planes : torch.Tensor or None
        The hull ``(P, *places)`` over all channels, as in `DependencyTracker`; None if the layer
        has no places, and then ``doubt`` says why.
    input_size : tuple of int
    doubt : Doubt or None
    rules : list of Rule or None
        For each dimension of the input, once `settled`.
    """

    planes: Tensor | None
    input_size: tuple[int, ...]
    doubt: Uncertainty | None
    rules: list[Rule | None]

    def whole(self, axis: int) -> bool:
        """Whether every place sees all of the input in a dimension."""
        low, high = self.exact(axis)
        return bool((low == 0).all() and (high == self.input_size[axis]).all())

    def exact(self, axis: int) -> tuple[Tensor, Tensor]:
        """From where to where each place sees, within the input."""
        return self._ends(axis)

    def unpadded(self, axis: int) -> tuple[Tensor, Tensor]:
        """The same for an input and maps without borders; infinite, or NaN if not known."""
        return self._ends(axis + 2 * len(self.input_size))

    def _ends(self, plane: int) -> tuple[Tensor, Tensor]:
        assert self.planes is not None
        return -self.planes[plane], self.planes[plane + len(self.input_size)]

    @property
    def empty(self) -> bool:
        """Whether nothing of the input reaches the layer."""
        low, high = self.exact(0)
        return not bool((low < high).any())


def seen_by(session: Session, layers: Mapping[nn.Module, str]) -> dict[Key, LayerFootprint]:
    """What each run of some layers saw, with the rules that hold."""
    found = _run(session, layers)
    usable = {key: each for key, each in found.items() if _usable(each)}
    for each in usable.values():
        each.rules = [_fitted(each, axis) for axis in range(len(each.input_size))]
    unsettled = {key: each for key, each in usable.items() if _unsettled(each)}
    if unsettled:
        _settle(session, layers, unsettled)
    return found


def _usable(seen: LayerFootprint) -> bool:
    return seen.planes is not None and seen.doubt is None and not seen.empty


class StopForward(BaseException):
    """All that was asked for has run."""


def _run(
    session: Session, layers: Mapping[nn.Module, str], wanted: set[Key] | None = None
) -> dict[Key, LayerFootprint]:
    """One forward. With ``wanted`` it ends when those have run, and what then fails is no error."""
    given = map_tensors((session.inputs.args, session.inputs.kwargs), torch.clone)
    source = _source(given)
    if source is None:
        raise ValueError(
            "The model is given no floating-point tensor, so there are no pixels to be seen: a "
            "receptive field is that of a picture, signal or volume."
        )
    shadows = DependencyTracker(session.model, source, spatial(session))
    recorder, grid = OperationRecorder(shadows), PatchGrid()
    found: dict[Key, LayerFootprint] = {}
    runs = dict.fromkeys(layers.values(), 0)

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = layers[module]
        key, runs[name] = (name, runs[name]), runs[name] + 1
        with recorder.silent():
            found[key] = _seen(module, output, shadows, grid)
        if wanted is not None and wanted <= found.keys():
            raise StopForward

    hooks = [*grid.hooks(session.model), *((module, "forward", after) for module in layers)]
    try:
        with session.active(grad=False), HookManager(hooks), EscapeDetector(shadows), recorder:
            session.call(*given[0], **given[1])
    except StopForward:
        pass
    except Exception:
        if wanted is None:
            raise
    return found


def _source(given: Any) -> Tensor | None:
    """The first floating-point tensor, whose pixels are meant."""
    every = (tensor for _, tensor in tensors_in([*given[0], *given[1].values()]))
    return next((tensor for tensor in every if tensor.is_floating_point()), None)


def spatial(session: Session) -> int:
    """How many of the last dimensions of the input are spatial: by the first convolution."""
    main, first = session.inputs.main, first_convolution(session.model)
    count = 2 if main is None else main.ndim
    if first is not None and count - dimensions(first) in (1, 2):
        return dimensions(first)
    return min(max(count - 2, 1), 3)


def _seen(
    module: nn.Module, output: Any, shadows: DependencyTracker, grid: PatchGrid
) -> LayerFootprint:
    """What a layer has seen when it has just returned."""
    tensor = next((tensor for _, tensor in tensors_in(output)), None)
    if tensor is None:
        why = f"returned {type(output).__name__} and no tensor"
        return LayerFootprint(None, shadows.extent, Uncertainty("unknown", why), [])
    doubt, planes = shadows.doubt_of(tensor), shadows.of(tensor)
    if planes is None:
        planes = torch.full((), -torch.inf).expand(shadows.planes, *tensor.shape)
    try:
        patches = grid.of(tuple(tensor.shape))
        maps = [as_maps(plane, module, patches).amax((0, 1)) for plane in planes]
    except (ValueError, IndexError):
        why = f"returned a tensor of shape {tuple(tensor.shape)}, which is no map"
        return LayerFootprint(None, shadows.extent, Uncertainty("unknown", why), [])
    return LayerFootprint(torch.stack(maps).cpu(), shadows.extent, doubt, [])


# Rules


def _fitted(seen: LayerFootprint, axis: int) -> Rule | None:
    """The rule by which the places see in a dimension, if there is one."""
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
    """Where each place begins to see, by a rule."""
    low, _ = seen.exact(axis)
    shape = [1] * low.ndim
    shape[axis] = low.shape[axis]
    return rule.start + rule.stride * torch.arange(low.shape[axis]).view(shape)


def _holds(seen: LayerFootprint, axis: int, rule: Rule, even: bool) -> bool:
    """Whether no place sees more than a rule says, and those far from the border see it all.

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


def _unsettled(seen: LayerFootprint) -> bool:
    assert seen.planes is not None
    if seen.planes.ndim - 1 != len(seen.input_size):
        return False
    for axis, rule in enumerate(seen.rules):
        low, high = seen.unpadded(axis)
        no_end = bool((low == -torch.inf).all() and (high == torch.inf).all())
        if rule is None and low.shape[axis] < 3 and not no_end:
            return True
    return False


def _settle(
    session: Session, layers: Mapping[nn.Module, str], unsettled: dict[Key, LayerFootprint]
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
    names = {name for name, _ in unsettled}
    chosen = {module: name for module, name in layers.items() if name in names}
    for key, found in _run(larger, chosen, set(unsettled)).items():
        if key in unsettled and _usable(found):
            seen = unsettled[key]
            for axis, rule in enumerate(seen.rules):
                fitted = _fitted(found, axis)
                if rule is None and fitted is not None and _holds(seen, axis, fitted, even=True):
                    seen.rules[axis] = fitted
