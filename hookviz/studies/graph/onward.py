"""The way of a single number forward, through the operations that carry numbers on one by one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...hooking.storage import StorageMap
from ...run.operations import BATCH_NORMS, is_elementwise, uses_running_statistics
from ...run.recorder import Listener, ModuleCall, Operation
from .listener import Place
from .terms import MemoryLayout


class _Onward(NamedTuple):
    """An operation and its result; for each followed tensor that it read the shift of numbers."""

    name: str
    reads: list[tuple[int, MemoryLayout, int, int]]  # the memory's number, and axis and shift
    memory: int
    layout: MemoryLayout
    values: Tensor


class OnwardListener(Listener):
    """Records the operations on some layers' outputs, up to the next layer that takes them.

    Parameters
    ----------
    layers, followed
        The layers at which a way ends, and those at which it begins.
    keep : callable
        Returns a tensor with the same values, which no operation overwrites.
    """

    def __init__(
        self,
        layers: Container[nn.Module],
        followed: Container[nn.Module],
        keep: Callable[[Tensor], Tensor],
    ) -> None:
        self._layers, self._followed, self._keep = layers, followed, keep
        self._steps: list[_Onward] = []
        self._starts: dict[Place, tuple[int, MemoryLayout, int]] = {}
        self._memories: StorageMap[int] = StorageMap()
        self._count = 0

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """End the way of all numbers that a layer takes."""
        if call.module in self._layers:
            for each in given:
                self._memories.pop(each)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Begin to follow a layer's output."""
        if call.module in self._followed and returned and returned[0].layout is torch.strided:
            start = self._memory(returned[0]), MemoryLayout.of(returned[0]), len(self._steps)
            self._starts[call.layer, call.call] = start

    def after(self, operation: Operation) -> None:
        """Note how an operation carries followed numbers on."""
        if operation.is_view or not operation.outputs:
            return
        made, reads = operation.outputs[0], []
        for read in operation.values_read:
            memory = self._memories.get(read)
            shift = None if memory is None else _shift(operation, read, made)
            if memory is not None and shift is not None:
                reads.append((memory, MemoryLayout.of(read), *shift))
        if reads:
            layout, values = MemoryLayout.of(made), self._keep(made.detach())
            self._steps.append(_Onward(operation.name, reads, self._memory(made), layout, values))
        elif operation.mutates:
            for each in operation.written:
                self._memories.pop(each)

    def _memory(self, tensor: Tensor) -> int:
        memory = self._memories.get(tensor)
        if memory is None:
            self._count += 1
            self._memories[tensor] = memory = self._count
        return memory

    def way(self, place: Place, index: Sequence[int]) -> Iterator[tuple[str, float]]:
        """Yield the operations that a number of a layer's output goes through, and its values."""
        memory, layout, first = self._starts[place]
        at = {memory: layout.offset(index)}
        for step in self._steps[first:]:
            for memory, layout, axis, shift in step.reads:
                moved = layout.index(at[memory]) if memory in at else None
                if moved is not None:
                    there = list(moved)
                    there[axis] += shift
                    yield step.name, float(step.values[tuple(there)])
                    at[step.memory] = step.layout.offset(there)
                    break


def _shift(operation: Operation, read: Tensor, made: Tensor) -> tuple[int, int] | None:
    """Return the shift of each number along an axis; None if it does not go on by itself."""
    if not made.is_floating_point() or made.layout is not torch.strided or made.ndim == 0:
        return None
    if operation.name == "cat":
        axis, shift = operation.argument["dim"] % made.ndim, 0
        for each in operation.argument["tensors"]:
            if each is read:
                return axis, shift
            shift += each.shape[axis] if each.ndim == made.ndim else 0
        return None
    # A softmax and a layer norm make each number of many; so does a batch norm of a batch's own
    # statistics.
    if operation.name in BATCH_NORMS:
        alone = uses_running_statistics(operation.name, operation.argument)
    else:
        alone = is_elementwise(operation.function)
    return (0, 0) if alone and read.shape == made.shape else None
