"""The record of a graph while the model runs: nodes, edges, and the sources of each layer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.select import is_convolution
from ...hooking.storage import share_memory
from ...hooking.tensors import map_tensors, tensors, version_of
from ...run.errors import innermost_call
from ...run.follow import Follower
from ...run.recorder import ModuleCall, Operation, OperationRecorder

Place = tuple[str, int]
"""A layer's name and which of its calls; ``("input", 0)`` is the model's first input."""

INPUT, OUTPUT = "input", "output"


@dataclass(eq=False, slots=True)
class Node:
    """One layer's call, an operation that joins several, an input or an output.

    Attributes
    ----------
    name : str
        A unique name.
    layer, call : str, int
        The layer's name and which of its calls; ``"input"`` and its number for an input of the
        model, ``""`` for an operation between layers and for an output of the model.
    operation : str
        The layer's class, torch's name of the operation, ``"input"`` or ``"output"``.
    shape : tuple of int, or None
        Of the first tensor that it returned; None if there is none, or if it is nested.
    module : str
        The module whose code ran it.
    failed : bool
        True if the forward ended here, in an error.
    sources : list of (str, int), or None
        For a layer, the layers and inputs that reach it through no other layer, by call.
    after : list of str, or None
        For a layer or an input, the operations on its output until a layer takes it.
    """

    name: str
    layer: str
    call: int
    operation: str
    shape: tuple[int, ...] | None = None
    module: str = ""
    failed: bool = False
    sources: list[Place] | None = None
    after: list[str] | None = None


class GraphListener(Follower[int]):
    """Records the nodes and edges of one forward.

    A tensor's mark is the number of the node that it comes from: a layer's call, an input, or an
    operation that joined several nodes. So the sources of a tensor are those of its node.

    Parameters
    ----------
    layers : collection of torch.nn.Module
        Each call of one of these becomes a node.

    Attributes
    ----------
    nodes : list of Node
    edges : dict of (int, int) to None
        An ordered set.
    """

    def __init__(self, layers: Collection[nn.Module]) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.edges: dict[tuple[int, int], None] = {}
        self._layers = self.modules = layers
        self._module_names: Mapping[nn.Module, str] = {}
        self._open: list[ModuleCall] = []
        self._taken: dict[ModuleCall, list[int]] = {}  # the nodes of a layer's input
        self._sources: list[frozenset[int]] = []  # of each node: numbers of layers and inputs
        self._on_the_way: set[int] = set()  # layers and inputs whose output no layer has taken
        self._raised = ""  # the operation that has raised
        self._names: set[str] = set()

    def begin(self, recorder: OperationRecorder) -> None:
        """Note the names of all modules."""
        self._module_names = recorder.names

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note the nodes of a layer's input."""
        self._open.append(call)
        if not self.nodes:
            for number, each in enumerate(given):
                if self.marks.get(each) is None:  # one tensor may be given twice
                    self.add((INPUT, number), INPUT, [], [each])
        if call.module in self._layers:
            self._taken[call] = taken = self._nodes_of(given)
            self._on_the_way -= self.sources_of(taken)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Add a node for a layer's call, which is the only source of its output."""
        if call in self._open:
            del self._open[self._open.index(call) :]
        if call.module in self._layers:
            self._add_layer(call, returned)
        if not self._open:
            for each in returned:
                self.add(("", 0), OUTPUT, self._nodes_of([each]), [each])

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, int]]
    ) -> int:
        """Return the only node that was read, or add a node that joins several."""
        if len(reads) == 1:
            return reads[0][1]
        return self._join(operation, [node for _, node in reads])

    def mark_of_mixture(self, operation: Operation, old: int | None, new: int | None) -> int | None:
        """Join the node of the remaining part and that of the overwritten part."""
        if old is None or new is None:
            return old if new is None else new
        return self._join(operation, [old, new])

    def _join(self, operation: Operation, taken: list[int]) -> int:
        numbers = [*dict.fromkeys(taken)]
        if len(numbers) == 1:
            return numbers[0]
        # An operation with several results is one node.
        joined = operation.notes.get(self)
        if joined is None:
            module = operation.module_among(self._module_names)
            name = "" if module is None else self._module_names[module]
            joined = self.add(("", 0), operation.name, [], operation.outputs[:1], name)
            operation.notes[self] = joined
        self.edges |= dict.fromkeys((each, joined) for each in numbers if each != joined)
        self._sources[joined] |= self.sources_of(numbers)
        return joined

    def after(self, operation: Operation) -> None:
        """Follow an operation, and note it on the way of the layers whose output it takes."""
        node = self.mark_results(operation)  # all results are of one node
        if node is not None and self._on_the_way:
            for source in self._sources[node] & self._on_the_way:
                self.nodes[source].after.append(operation.name)  # type: ignore[union-attr]

    def failed(self, operation: Operation) -> None:
        """Store the name of an operation that has raised."""
        self._raised = operation.name

    def fail(self, error: BaseException) -> None:
        """Add a node for the layer, or the operation, that has raised."""
        layers = [call for call in self._taken if call in self._open]
        if layers:
            self._add_layer(layers[-1], [])
        else:
            starts = {start for start, _ in self.edges}
            loose = [number for number in range(len(self.nodes)) if number not in starts]
            running = innermost_call(error, self._module_names)
            name = self._module_names[running[0]] if running else ""
            self.add(("", 0), self._raised or "error", loose[-1:], [], name)
        self.nodes[-1].failed = True

    def sources_of(self, numbers: Collection[int]) -> frozenset[int]:
        """Return the layers and inputs that some nodes come from, as numbers of nodes."""
        if len(numbers) == 1:
            return self._sources[next(iter(numbers))]
        return frozenset[int]().union(*(self._sources[number] for number in numbers))

    def _nodes_of(self, given: list[Tensor]) -> list[int]:
        marks = (self.marks.get(each) for each in given)
        return list(dict.fromkeys(mark for mark in marks if mark is not None))

    def _add_layer(self, call: ModuleCall, returned: list[Tensor]) -> None:
        kind, taken = type(call.module).__name__, self._taken.pop(call)
        self.add((call.layer, call.call), kind, taken, returned, call.layer)
        sources = (self.nodes[number] for number in sorted(self.sources_of(taken)))
        self.nodes[-1].sources = [(node.layer, node.call) for node in sources]

    def add(
        self,
        place: Place,
        operation: str,
        taken: list[int],
        returned: list[Tensor],
        module: str = "",
    ) -> int:
        """Add a node that takes the output of others, and return its number."""
        layer, call = place
        number = len(self.nodes)
        name = self._named(layer or ".".join(filter(None, (module, operation))), call)
        node = Node(name, layer, call, operation, module=module)
        if returned and not returned[0].is_nested:  # samples of a nested tensor differ in size
            node.shape = tuple(returned[0].shape)
        if layer:
            node.after = []
            self._on_the_way.add(number)
        self.nodes.append(node)
        self.edges |= dict.fromkeys((each, number) for each in taken)
        self._sources.append(frozenset([number]) if layer else self.sources_of(taken))
        if operation != OUTPUT:
            for each in returned:
                self.marks[each] = number
        return number

    def _named(self, name: str, call: int) -> str:
        """Return a unique name for a node: with the call's number, or the next one that is free."""
        named = f"{name}#{call}" if call else name
        while named in self._names:
            call += 1
            named = f"{name}#{call}"
        self._names.add(named)
        return named


def own_memory(layers: Collection[nn.Module], recorder: OperationRecorder) -> Iterator[Hook]:
    """Yield hooks that copy the output of a layer that returns its input, as Dropout in eval mode.

    Nodes belong to memory, so such an output would not be distinct from the input. A layer that
    works in place keeps returning the same memory. Convolutions and linear layers do neither.
    """
    versions: dict[nn.Module, list[tuple[Tensor, int]]] = {}

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        versions[module] = [(each, version_of(each)) for each in tensors(args, kwargs)]

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        same = [each for each, version in versions.pop(module, []) if version_of(each) == version]

        def own(tensor: Tensor) -> Tensor:
            return tensor.clone() if any(share_memory(tensor, each) for each in same) else tensor

        with recorder.silent():
            return map_tensors(output, own)

    for module in filter(layers.__contains__, recorder.names):
        computes = is_convolution(module) or isinstance(module, nn.Linear | torch.jit.ScriptModule)
        if not computes:
            yield module, "forward_pre", before
            yield module, "forward", after
