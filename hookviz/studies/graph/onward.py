"""The way of a single number forward, through the operations that carry numbers on one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

import torch
from torch import Tensor, nn

from ...run.follow import Follower
from ...run.operations import BATCH_NORMS, ELEMENTWISE_KINDS, uses_running_statistics
from ...run.recorder import ModuleCall, Operation
from .listener import Place
from .terms import MemoryLayout

Steps = list[tuple[str, Tensor]]
"""Operations, and their results in the shape of a layer's output."""


class OnwardListener(Follower[tuple[MemoryLayout, list[Steps]]]):
    """Records the operations on some layers' outputs, up to the next layer that takes them.

    A mark is the layout of the tensor in whose memory the numbers are, and the steps of the outputs
    that have led to it. A view of another layout has its numbers at other positions.

    Parameters
    ----------
    layers, followed
        The layers at which a way ends, and those at which it begins.
    keep : callable
        Returns a tensor with the same values, which no operation overwrites.

    Attributes
    ----------
    steps : dict of Place to list of (str, torch.Tensor)
        For each call of a followed layer, in the order in which they ran.
    """

    def __init__(
        self,
        layers: Collection[nn.Module],
        followed: Container[nn.Module],
        keep: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.steps: dict[Place, Steps] = {}
        self._layers, self._followed, self._keep = layers, followed, keep
        self.modules = layers

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """End the way of all numbers that a layer takes."""
        if call.module in self._layers:
            for each in given:
                self.marks.pop(each)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Begin to follow a layer's output."""
        if call.module in self._followed:
            steps: Steps = []
            self.steps[call.layer, call.call] = steps
            plain = returned and not returned[0].is_nested
            if plain and returned[0].layout is torch.strided:
                self.marks[returned[0]] = MemoryLayout.of(returned[0]), [steps]

    def mark_of_result(
        self,
        operation: Operation,
        made: Tensor,
        reads: list[tuple[Tensor, tuple[MemoryLayout, list[Steps]]]],
    ) -> tuple[MemoryLayout, list[Steps]] | None:
        """Note the result of an operation that carries followed numbers on."""
        if made is not operation.outputs[0] or not _is_numberwise(operation, made):
            return None
        ways = {
            id(steps): steps
            for read, (layout, several) in reads
            if read.shape == made.shape and layout == MemoryLayout.of(read)
            for steps in several
        }
        if not ways:
            return None
        values = self._keep(made.detach())
        for steps in ways.values():
            steps.append((operation.name, values))
        return MemoryLayout.of(made), [*ways.values()]

    def mark_of_mixture(
        self,
        operation: Operation,
        old: tuple[MemoryLayout, list[Steps]] | None,
        new: tuple[MemoryLayout, list[Steps]] | None,
    ) -> tuple[MemoryLayout, list[Steps]] | None:
        """Return the mark of the written numbers: the others are no longer followed."""
        return new


def _is_numberwise(operation: Operation, made: Tensor) -> bool:
    """Return whether each number of the result is made of one number of each input."""
    if not made.is_floating_point() or made.layout is not torch.strided:
        return False
    # A softmax and a layer norm make each number of many; so does a batch norm of a batch's own
    # statistics.
    if operation.name in BATCH_NORMS:
        return uses_running_statistics(operation.name, operation.argument)
    return operation.kind in ELEMENTWISE_KINDS
