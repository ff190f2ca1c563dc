"""The record of a graph while the model runs: nodes, edges, and the sources of each layer."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.storage import StorageMap, share_memory
from ...hooking.tensors import map_tensors, tensors
from ...run.follow import SourceListener, fills_its_memory
from ...run.recorder import ModuleCall, Operation, OperationRecorder

Place = tuple[str, int]
"""A layer's name and which of its calls; ``("input", 0)`` is the model's first input."""

INPUT, OUTPUT = "input", "output"


@dataclass(eq=False)
class Node:
    """One layer's call, an operation that joins several, an input or an output.

    Attributes
    ----------
    name : str
        As no other node is called.
    layer, call : str, int
        The layer's name and which of its calls; ``"input"`` and its number for what the model is
        given, ``""`` for an operation between layers and for what the model returns.
    operation : str
        The layer's class, torch's name of the operation, ``"input"`` or ``"output"``.
    shape : tuple of int, or None
        Of the (first) tensor that it returned.
    value : torch.Tensor or None
        A copy of this tensor, where values are kept.
    module : str
        The module whose code ran it.
    failed : bool
        True if the forward ended here, in an error.
    """

    name: str
    layer: str
    call: int
    operation: str
    shape: tuple[int, ...] | None = None
    value: Tensor | None = field(default=None, repr=False)
    module: str = ""
    failed: bool = False


class GraphListener(SourceListener):
    """Records the nodes, edges and sources of one forward.

    Parameters
    ----------
    layers : collection of torch.nn.Module
        Each call of one of these becomes a node.
    keep : bool
        If True, keep a copy of each node's value.

    Attributes
    ----------
    nodes : list of Node
    edges : dict of (int, int) to None
    sources : dict of Place to list of Place
    trails : dict of Place to list of str
        The operations on a layer's output, up to the first layer that takes it as its input.
    """

    def __init__(self, layers: Collection[nn.Module], keep: bool = False) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.edges: dict[tuple[int, int], None] = {}
        self.sources: dict[Place, list[Place]] = {}
        self.trails: dict[Place, list[str]] = {}
        self._layers, self._keep = layers, keep
        self._open: list[ModuleCall] = []
        self._taken: dict[ModuleCall, list[int]] = {}  # nodes that reach a call's input
        self._ended: set[Place] = set()  # calls whose output a layer has taken
        self._order: dict[Place, int] = {}
        self._node_of = StorageMap[int]()
        self._raised = ""  # the operation that did
        self._names: set[str] = set()

    # Reports of the recorder

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Store the sources of a layer's input."""
        self._open.append(call)
        if len(self._open) == 1 and not self.nodes:
            self._take_inputs(given)
        if call.module in self._layers:
            self._note_sources((call.layer, call.call), given)
            self._taken[call] = self._nodes_of(given)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Add a node for a layer's call, which is the only source of what it returned."""
        if call in self._open:
            del self._open[self._open.index(call) :]
        if call.module in self._layers:
            place = call.layer, call.call
            kind = type(call.module).__name__
            self._add(place, kind, self._taken.pop(call), returned, call.layer)
            for each in returned:
                self.mark(each, place)
            self.trails[place] = []
        if not self._open:
            for each in returned:
                self._add(("", 0), OUTPUT, self._nodes_of([each]), [each])

    def after(self, operation: Operation) -> None:
        """Follow an operation, and add a node if it joins several nodes."""
        super().after(operation)
        if operation.is_view:
            return
        made = operation.outputs
        taken = self._nodes_of(_read(operation))
        places: Any = self.of(*made)
        for place in places:
            if place in self.trails and place not in self._ended:
                self.trails[place].append(operation.name)
        if len(taken) > 1:
            module = operation.call.layer if operation.call is not None else ""
            node = self._add(("", 0), operation.name, taken, made, module)
        elif taken:
            node = taken[0]
        else:
            return
        for each in operation.written or made:
            self._node_of[each] = node

    def failed(self, operation: Operation) -> None:
        """Store the name of an operation that has raised."""
        self._raised = operation.name

    def fail(self) -> None:
        """Add a node for the innermost call that did not return."""
        layers = [call for call in self._taken if call in self._open]
        inside = self._open[-1] if self._open else None
        if layers:
            call = layers[-1]
            place, kind = (call.layer, call.call), type(call.module).__name__
            self._add(place, kind, self._taken[call], [], call.layer)
        else:
            name = self._raised or "error"
            taken = self._last()
            self._add(("", 0), name, taken, [], inside.layer if inside else "")
        self.nodes[-1].failed = True

    # Nodes

    def _take_inputs(self, given: list[Tensor]) -> None:
        for number, each in enumerate(given):
            if not self.of(each):  # the same one may be given twice
                place = INPUT, number
                self.mark(each, place)
                self.trails[place] = []
                self._order[place] = number - len(given)
                self._add(place, INPUT, [], [each])

    def _note_sources(self, place: Place, given: list[Tensor]) -> None:
        found: Any = self.of(*given)
        self.sources[place] = sorted(found, key=lambda each: self._order[each])
        self._ended |= found

    def _nodes_of(self, given: list[Tensor]) -> list[int]:
        found = (self._node_of.get(each) for each in given)
        return list(dict.fromkeys(each for each in found if each is not None))

    def _last(self) -> list[int]:
        """Return the latest node from which no edge starts yet."""
        starts = {start for start, _ in self.edges}
        ends = [n for n in range(len(self.nodes)) if n not in starts]
        return ends[-1:]

    def _add(
        self,
        place: Place,
        operation: str,
        taken: list[int],
        returned: list[Tensor],
        module: str = "",
    ) -> int:
        layer, call = place
        number = len(self.nodes)
        first = returned[0] if returned else None
        name = layer or ".".join(filter(None, (module, operation)))
        node = Node(self._named(name, call), layer, call, operation, module=module)
        if first is not None:
            node.shape = tuple(first.shape)
            node.value = first.detach().clone() if self._keep else None
        self.nodes.append(node)
        self.edges.update({(each, number): None for each in taken})
        self._order.setdefault(place, number)
        for each in returned:
            if operation != OUTPUT:
                self._node_of[each] = number
        return number

    def _named(self, name: str, call: int) -> str:
        """Return a unique name for a node: with the call's number, or the next one that is free."""
        named = f"{name}#{call}" if call else name
        while named in self._names:
            call += 1
            named = f"{name}#{call}"
        self._names.add(named)
        return named


def _read(operation: Operation) -> list[Tensor]:
    """Return the tensors of which a part is in the result or stays beside it."""
    partly = [each for each in operation.written if not fills_its_memory(each)]
    return [*operation.values_read, *partly]


def own_memory(layers: Container[nn.Module], recorder: OperationRecorder) -> Iterator[Hook]:
    """Yield hooks that copy the output of a layer that returns its input, as Dropout in eval mode.

    Sources belong to memory, so such an output would not be distinct from the input. A layer that
    works in place keeps returning the same memory.
    """
    versions: dict[nn.Module, list[tuple[Tensor, int]]] = {}

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        versions[module] = [(each, _version(each)) for each in tensors((args, kwargs))]

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        given = versions.pop(module, [])
        same = [each for each, version in given if _version(each) == version]

        def own(tensor: Tensor) -> Tensor:
            return tensor.clone() if any(share_memory(tensor, each) for each in same) else tensor

        if any(share_memory(t, each) for t in tensors(output) for each in same):
            with recorder.silent():
                return map_tensors(output, own)
        return None

    for module in recorder.names:
        if module in layers and not isinstance(module, torch.jit.ScriptModule):
            yield module, "forward_pre", before
            yield module, "forward", after


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
