"""One operation of a run, with the footprints of the tensors that it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._decomp import decomposition_table

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
