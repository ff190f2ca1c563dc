"""The way of a single number forward, through the operations that carry numbers on one by one."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...hooking.storage import StorageMap
from ...run.operations import BATCH_NORMS, is_elementwise, uses_running_statistics
from ...run.recorder import Listener, ModuleCall, Operation
from .listener import Place
from .terms import MemoryLayout


@dataclass(eq=False)
class _Passage:
    """A tensor that an operation read, and the one that it made of it."""

    operation: int
    name: str
    read: int  # numbers of memories
    read_layout: MemoryLayout
    made: int
    made_layout: MemoryLayout
    values: Tensor
    axis: int = 0  # along which the numbers are shifted, as by a concatenation
    shift: int = 0


class OnwardListener(Listener):
    """Records the operations on some layers' outputs, up to the next layer that takes them."""

    def __init__(self, layers: Container[nn.Module], followed: Container[nn.Module]) -> None:
        self._layers, self._followed = layers, followed
        self._steps: list[_Passage] = []
        self._latest: dict[int, _Passage] = {}  # by the memory that it wrote
        self._starts: dict[Place, tuple[int, MemoryLayout, int]] = {}
        self._numbers: StorageMap[int] = StorageMap()
        self._memories = self._operations = 0

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """End the way of all numbers that a layer takes."""
        if call.module in self._layers:
            for each in given:
                self._numbers.pop(each)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Begin to follow a layer's output."""
        if call.module in self._followed and returned and returned[0].layout is torch.strided:
            start = self._number(returned[0]), MemoryLayout.of(returned[0]), len(self._steps)
            self._starts[call.layer, call.call] = start

    def before(self, operation: Operation) -> None:
        """Copy values that an operation is about to overwrite."""
        for each in operation.written if operation.mutates else ():
            step = self._latest.pop(self._numbers.get(each) or 0, None)
            if step is not None:
                step.values = step.values.detach().clone()

    def after(self, operation: Operation) -> None:
        """Note how an operation carries followed numbers on."""
        if operation.is_view or not operation.outputs:
            return
        made = operation.outputs[0]
        known = [(each, self._numbers.get(each)) for each in operation.values_read]
        steps = [
            (each, number, way)
            for each, number in known
            if number is not None and (way := _way(operation, each, made)) is not None
        ]
        if not steps:
            for each in operation.written if operation.mutates else ():
                self._numbers.pop(each)
            return
        self._operations += 1
        target = self._number(made)
        for each, number, way in steps:
            layouts = number, MemoryLayout.of(each), target, MemoryLayout.of(made)
            step = _Passage(self._operations, operation.name, *layouts, made, *way)
            self._steps.append(step)
            self._latest[target] = step

    def _number(self, tensor: Tensor) -> int:
        number = self._numbers.get(tensor)
        if number is None:
            self._memories += 1
            self._numbers[tensor] = number = self._memories
        return number

    def way(self, place: Place, index: Sequence[int]) -> Iterator[tuple[str, float]]:
        """Yield the operations that a number of a layer's output goes through, and its values."""
        memory, layout, first = self._starts[place]
        at, done = {memory: layout.offset(index)}, 0
        for step in self._steps[first:]:
            if step.read in at and step.operation != done:
                moved = step.read_layout.index(at[step.read])
                if moved is not None:
                    there = list(moved)
                    there[step.axis] += step.shift
                    yield step.name, float(step.values.detach()[tuple(there)])
                    at[step.made] = step.made_layout.offset(there)
                    done = step.operation


def _way(operation: Operation, read: Tensor, made: Tensor) -> tuple[int, int] | None:
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
