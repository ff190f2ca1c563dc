"""The record of a graph: its nodes, and the sources of each number in memory, a set beside it.

Nearly all tensors are made of the same sources throughout, and one set does for all their numbers.
Where sources meet side by side, as channels do in a concatenation, each number has a set of its
own, so that what a chunk or a shuffle takes from it is exact. How sets spread through operations,
the rules of the receptive field say, which know no layers.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.tensors import StorageMap, map_tensors, share_memory, sharing_memory, tensors
from ...run.operations import OVERWRITING
from ...run.recorder import Listener, ModuleCall, Operation, OperationRecorder
from ..receptive_field import rules
from ..receptive_field.rules import EMPTY, TracedOperation

Key = Any
Sources = frozenset[Key]

_BY_NUMBER = {rules.pointwise, rules.product, rules.added}
_MOVES = {rules.moved, rules.joined, rules.padded}
_WITHIN: set[object] = {rules.pooled, rules.adaptively_pooled, rules.resampled}
_WITHIN |= {rules.normalized_by_place}
_INDICES = ("index", "indices", "mask")
NOTHING = 0  # the number of the empty set


@dataclass(eq=False)
class _Shadow:
    """The numbers of the sets of a memory: one for all of it, or one for each number in it."""

    width: int  # bytes a number
    sets: int | Tensor  # int32, one for each block, never written into
    block: int = 1  # so many numbers, one behind the other, have the same set, as channels do
    distinct: list[int] | None = None  # of all sets, once they were looked up


class Provenance:
    """The sources of tensors' numbers, as operations are told to `follow`.

    Examples
    --------
    >>> seen, x = Provenance(), torch.zeros(2)
    >>> seen.mark(x, "x")
    >>> sorted(seen.of(x[:1])), sorted(seen.of(torch.zeros(2)))
    (['x'], [])
    """

    def __init__(self) -> None:
        self._sets: list[Sources] = [frozenset()]
        self._numbers: dict[Sources, int] = {frozenset(): NOTHING}
        self._shadows: StorageMap[_Shadow] = StorageMap()
        self._rules: dict[object, object] = {}  # by torch's operation

    def mark(self, tensor: Tensor, source: Key) -> None:
        """Declare that a tensor's numbers are this source's, whatever they were made of."""
        self._write(tensor, self._number(frozenset([source])))

    def of(self, *values: Tensor) -> Sources:
        """Unite the sources of all numbers of tensors."""
        return self._united(number for each in values for number in self._present(each))

    def follow(self, operation: Operation, apart: bool = True) -> None:
        """Write down what the operation's results were made of, once it has run.

        Not ``apart``, where nothing depends on it, all numbers get all sources.
        """
        self._shadows.prune(lazily=True)
        targets = operation.written
        if not targets:
            views = {id(each) for each in sharing_memory(operation.outputs, operation.reads)}
            targets = [each for each in operation.outputs if id(each) not in views]
        if not targets:
            return  # views
        if operation.function not in self._rules:
            traced = TracedOperation(_NoPlanes(), operation)
            self._rules[operation.function] = rules.rule_of(traced)
        rule = self._rules[operation.function]
        read = operation.values_read
        found = [self._read(each) for each in read]
        numbers = {each for each in found if isinstance(each, int)}
        several = [each for each in found if isinstance(each, Tensor)]
        side_by_side = bool(several) or (rule in _MOVES and len(numbers) > 1)
        if not apart or not side_by_side:
            numbers.update(number for each in several for number in _numbers_in(each))
            numbers.discard(NOTHING)
            single = len(numbers) == 1
            together = numbers.pop() if single else self._number(self._united(numbers))
            for each in targets:
                self._write(each, together)
            return
        spread = self._spread(operation, rule, read, found, targets)
        for each, sets in zip(targets, spread, strict=True):
            self._write(each, sets)

    # One set for each number

    def _spread(
        self,
        operation: Operation,
        rule: object,
        read: list[Tensor],
        found: list[int | Tensor],  # their sets
        made: list[Tensor],
    ) -> list[int | Tensor]:
        by_batch = rule is rules.normalized_by_batch and not operation.argument.get("training")
        if rule in _BY_NUMBER or rule is rules.overwritten or by_batch:
            return [self._combined(found), *[NOTHING] * (len(made) - 1)]
        if rule is rules.joined and (joined := self._joined(operation)) is not None:
            return [joined]
        if rule in _WITHIN and found and _alike(found[0], operation):
            return [found[0], *[NOTHING] * (len(made) - 1)]
        if rule is rules.reduced and found and (left := _reduced(found[0], operation)) is not None:
            return [left] * len(made)
        indexed = [operation.argument.get(name) for name in _INDICES]
        computed = self.of(*tensors(indexed))
        if rule in _MOVES and not computed and not _adds(operation):
            return [self._moved(operation)]
        return self._by_planes(operation, rule, read, made)

    def _combined(self, parts: list[int | Tensor]) -> int | Tensor:
        """Unite the sets number by number, as torch broadcasts."""
        known = [each for each in parts if not (isinstance(each, int) and each == NOTHING)]
        return reduce(self._pairwise, known)

    def _pairwise(self, one: int | Tensor, other: int | Tensor) -> int | Tensor:
        if isinstance(one, int) and isinstance(other, int):
            return self._number(self._sets[one] | self._sets[other])
        rows, columns = (self._distinct(each) for each in (one, other))
        table = [[self._number(self._sets[r] | self._sets[c]) for c in columns] for r in rows]
        device = one.device if isinstance(one, Tensor) else other.device  # type: ignore[union-attr]
        looked = torch.tensor(table, dtype=torch.int32, device=device)
        row, column = (self._places(each, looked.device) for each in (one, other))
        return looked[row, column]

    def _distinct(self, sets: int | Tensor) -> list[int]:
        return [sets] if isinstance(sets, int) else _numbers_in(sets)

    def _places(self, sets: int | Tensor, device: torch.device) -> Tensor:
        """Return the index of each number's set among the distinct ones."""
        if isinstance(sets, int):
            return torch.zeros((), dtype=torch.long, device=device)
        order = torch.zeros(len(self._sets), dtype=torch.long, device=device)
        distinct = self._distinct(sets)
        order[distinct] = torch.arange(len(distinct), device=device)
        return order[sets.long()]

    def _joined(self, operation: Operation) -> Tensor | None:
        """Side by side; None where sets differ behind the dimension that is joined, too."""
        parts = [each for each in operation.argument["tensors"] if each.shape != (0,)]
        axis = operation.argument["dim"] % parts[0].ndim
        found = [self._read(each) for each in parts]
        behind = [each.shape[axis + 1 :] for each in found if isinstance(each, Tensor)]
        if any(prod(each) > 1 for each in behind):
            return None
        shapes = [(*each.shape[: axis + 1], *[1] * (each.ndim - axis - 1)) for each in parts]
        device = parts[0].device
        if not behind:
            single, sizes = torch.tensor([found, [shape[axis] for shape in shapes]], device=device)
            along = single.to(torch.int32).repeat_interleave(sizes)
            return along.view(-1, *[1] * (parts[0].ndim - axis - 1)).expand(
                *parts[0].shape[:axis], -1, *[-1] * (parts[0].ndim - axis - 1)
            )
        numbers = [torch.as_tensor(each, dtype=torch.int32, device=device) for each in found]
        pairs = zip(numbers, shapes, strict=True)
        return torch.cat([each.expand(shape) for each, shape in pairs], axis)

    def _moved(self, operation: Operation) -> Tensor:
        """Repeat a move of numbers with their sets."""

        def sets(name: str, value: object) -> object:
            if isinstance(value, Tensor):
                return value if name in _INDICES else self._filled(value).float()
            if isinstance(value, (list, tuple)):
                return [sets(name, each) for each in value]
            return 0 if name == "value" else value

        pure = TracedOperation(_NoPlanes(), operation).pure or operation.function
        given = {name: sets(name, value) for name, value in operation.argument.items()}
        return pure(**given).int()

    def _filled(self, tensor: Tensor) -> Tensor:
        sets = self._read(tensor)
        if isinstance(sets, Tensor):
            return sets.expand(tensor.shape)
        return torch.full((), sets, dtype=torch.int32, device=tensor.device).expand(tensor.shape)

    def _by_planes(
        self, operation: Operation, rule: object, read: list[Tensor], made: list[Tensor]
    ) -> list[int | Tensor]:
        """As the receptive field's rules have it, with a plane for each source."""
        all_sources = self._number(self.of(*read))
        sources = list(self._sets[all_sources])
        traced = TracedOperation(_Planes(self, sources), operation)
        traced.made = made
        found = rule(traced) if callable(rule) else NotImplemented
        if found is NotImplemented:
            return [all_sources] * len(made)
        several = found if isinstance(found, list) else [found] * len(made)
        return [NOTHING if each is None else self._from_planes(each, sources) for each in several]

    def planes(self, tensor: Tensor, sources: list[Key]) -> Tensor | None:
        """Return planes: 1 at the numbers of a source, else EMPTY; the first for any source."""
        sets = self._filled(tensor)
        if _numbers_in(sets) in ([], [NOTHING]):
            return None
        has = torch.tensor(
            [[bool(each), *(key in each for key in sources)] for each in self._sets],
            device=tensor.device,
        )
        planes = torch.where(has[sets.long()], 1.0, EMPTY).movedim(-1, 0)
        return torch.cat([planes, torch.full_like(planes, EMPTY)])

    def _from_planes(self, planes: Tensor, sources: list[Key]) -> int | Tensor:
        shape = planes.shape[1:]
        if not sources:
            return NOTHING
        has = (planes[1 : len(sources) + 1] > EMPTY).reshape(len(sources), -1).T
        rows, which = has.unique(dim=0, return_inverse=True)
        numbers = [
            self._number(frozenset(key for key, there in zip(sources, row, strict=True) if there))
            for row in rows.tolist()
        ]
        if len(numbers) == 1:
            return numbers[0]
        return torch.tensor(numbers, dtype=torch.int32, device=planes.device)[which].view(shape)

    # Memory

    def _read(self, tensor: Tensor) -> int | Tensor:
        """Return the number of the set of all of a tensor, or of each number in it.

        Along dimensions of one the set is the same for all numbers.
        """
        shadow = self._shadows.get(tensor)
        if shadow is None:
            return NOTHING
        if isinstance(shadow.sets, int):
            return shadow.sets
        if shadow.width != tensor.element_size():  # read as numbers of another width
            return self._number(self._united(_numbers_in(shadow.sets)))
        whole = _whole_blocks(tensor, shadow.block)
        if whole is None:
            flat = shadow.sets.repeat_interleave(shadow.block)
            return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return shadow.sets.as_strided(*whole)

    def _present(self, tensor: Tensor) -> list[int]:
        shadow = self._shadows.get(tensor)
        if shadow is None or isinstance(shadow.sets, int) or not _fills(tensor):
            return self._distinct(self._read(tensor))
        if shadow.distinct is None:
            shadow.distinct = _numbers_in(shadow.sets)
        return shadow.distinct

    def _write(self, tensor: Tensor, sets: int | Tensor) -> None:
        if not tensor.numel():
            return
        width, filled = tensor.element_size(), _fills(tensor)
        if isinstance(sets, int) and filled:
            self._shadows[tensor] = _Shadow(width, sets)
            return
        if isinstance(sets, Tensor) and filled and tensor.is_contiguous():
            lead = max((n + 1 for n, size in enumerate(sets.shape) if size > 1), default=0)
            lead += tensor.ndim - sets.ndim
            ones = [1] * (tensor.ndim - lead)
            # A copy: a part of other memory would be read from that memory's begin.
            flat = sets.expand((*tensor.shape[:lead], *ones)).reshape(-1).clone()
            self._shadows[tensor] = _Shadow(width, flat, prod(tensor.shape[lead:]))
            return
        shadow = self._shadows.get(tensor) or _Shadow(width, NOTHING)
        old = shadow.sets
        if isinstance(old, int) and isinstance(sets, int) and old == sets:
            return
        if isinstance(old, Tensor) and shadow.width != width:
            united = self._united([*_numbers_in(old), *self._distinct(sets)])
            self._shadows[tensor] = _Shadow(width, self._number(united))
            return
        if isinstance(old, int):
            count = tensor.untyped_storage().nbytes() // width
            flat = torch.full((count,), old, dtype=torch.int32, device=tensor.device)
        else:
            flat = old.repeat_interleave(shadow.block)
        view = flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        view.copy_(torch.as_tensor(sets))
        self._shadows[tensor] = _Shadow(width, flat)

    # Sets by their numbers

    def _number(self, sources: Sources) -> int:
        if sources not in self._numbers:
            self._numbers[sources] = len(self._sets)
            self._sets.append(sources)
        return self._numbers[sources]

    def _united(self, numbers: Iterable[int]) -> Sources:
        different = set(numbers)
        if len(different) == 1:
            return self._sets[different.pop()]
        return frozenset().union(*(self._sets[each] for each in different))


class _Planes:
    """The lookup of sources for the receptive field's rules."""

    extent: tuple[int, ...] = ()

    def __init__(self, seen: Provenance, sources: list[Key]) -> None:
        self._seen, self._sources = seen, sources
        self.planes = 2 * (len(sources) + 1)

    def of(self, tensor: Tensor) -> Tensor | None:
        return self._seen.planes(tensor, self._sources)

    def is_weight(self, tensor: Tensor) -> bool:
        return True  # a zero may be learned away


class _NoPlanes:
    planes = 0
    extent: tuple[int, ...] = ()

    def of(self, tensor: Tensor) -> Tensor | None:
        return None

    def is_weight(self, tensor: Tensor) -> bool:
        return True


def _adds(operation: Operation) -> bool:
    return bool(operation.argument.get("accumulate") or operation.argument.get("reduce"))


def _alike(sets: int | Tensor, operation: Operation) -> bool:
    """Return True if the sets are the same along all dimensions that an operation mixes."""
    if isinstance(sets, int):
        return True
    mixed = len(operation.argument.get("normalized_shape") or sets.shape[2:])
    return prod(sets.shape[sets.ndim - mixed :]) == 1


def _reduced(sets: int | Tensor, operation: Operation) -> int | Tensor | None:
    """Return the sets that are left where those along all reduced dimensions are the same."""
    named = operation.argument.get("dim")
    if isinstance(sets, int) or named is None or named == []:
        return sets if isinstance(sets, int) else None
    dims = {each % sets.ndim for each in ([named] if isinstance(named, int) else named)}
    if any(sets.shape[each] > 1 for each in dims):
        return None
    return sets if operation.argument.get("keepdim") else sets.squeeze(tuple(dims))


def _whole_blocks(
    tensor: Tensor, block: int
) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Shape, strides and offset of a tensor's blocks in memory; None if it cuts them."""
    lead, inner = tensor.ndim, 1
    while inner < block and lead:
        lead -= 1
        size = tensor.shape[lead]
        if size > 1 and tensor.stride(lead) != inner:
            return None
        inner *= size
    strides, offset = tensor.stride()[:lead], int(tensor.storage_offset())
    if inner != block or any(each % block for each in (*strides, offset)):
        return None
    ones = (1,) * (tensor.ndim - lead)
    return (
        (*tensor.shape[:lead], *ones),
        (*(each // block for each in strides), *ones),
        offset // block,
    )


def _fills(tensor: Tensor) -> bool:
    """Return True if a tensor takes up all of its memory."""
    try:
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
    except (RuntimeError, NotImplementedError):  # a sparse one has none of its own
        return True
    if tensor.numel() != count or tensor.is_contiguous():
        return tensor.numel() == count
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    reach = 1 + sum((size - 1) * stride for size, stride in pairs)
    return reach == count


def _numbers_in(sets: Tensor) -> list[int]:
    """Return the numbers that occur."""
    return torch.bincount(sets.flatten()).nonzero().flatten().tolist()


# The record of a graph while the model runs


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


class GraphListener(Listener):
    """Notes what reaches what, during one forward.

    Parameters
    ----------
    layers : collection of torch.nn.Module
        Each call of one of these is a node.
    keep : bool
        If True, keep a copy of each node's value.

    Attributes
    ----------
    nodes : list of Node
    edges : dict of (int, int) to None
    sources : dict of Place to list of Place
    trails : dict of Place to list of str
        The operations that a layer's output goes through, until the first layer that takes it.
    """

    def __init__(self, layers: Collection[nn.Module], keep: bool = False) -> None:
        self.nodes: list[Node] = []
        self.edges: dict[tuple[int, int], None] = {}
        self.sources: dict[Place, list[Place]] = {}
        self.trails: dict[Place, list[str]] = {}
        self._layers, self._keep = layers, keep
        self._innermost = {m for m in layers if not any(c in layers for c in [*m.modules()][1:])}
        self._open: list[ModuleCall] = []
        self._taken: dict[ModuleCall, list[int]] = {}  # nodes that reach a call's input
        self._ended: set[Place] = set()  # calls whose output a layer has taken
        self._order: dict[Place, int] = {}
        self._seen, self._node_of = Provenance(), StorageMap[int]()
        self._raised = ""  # the operation that did
        self._names: set[str] = set()

    # What the recorder tells

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note what reaches a layer."""
        self._open.append(call)
        if len(self._open) == 1 and not self.nodes:
            self._take_inputs(given)
        if call.module in self._layers:
            self._note_sources((call.layer, call.call), given)
            self._taken[call] = self._nodes_of(given)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Make a node of a layer's call; all that it returned is its own."""
        if call in self._open:
            del self._open[self._open.index(call) :]
        if call.module in self._layers:
            place = call.layer, call.call
            kind = type(call.module).__name__
            self._add(place, kind, self._taken.pop(call), returned, call.layer)
            for each in returned:
                self._seen.mark(each, place)
            self.trails[place] = []
        if not self._open:
            for each in returned:
                self._add(("", 0), OUTPUT, self._nodes_of([each]), [each])

    def after(self, operation: Operation) -> None:
        """Follow an operation, and make a node of it where several meet in it."""
        # All that an innermost layer returns is its own, whatever it was made of.
        within = any(call.module in self._innermost for call in self._taken)
        self._seen.follow(operation, apart=not within)
        if operation.is_view:
            return
        made = operation.outputs
        taken = self._nodes_of(_read(operation))
        for place in self._seen.of(*made) if made else ():
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
        """Keep the name of an operation that has raised."""
        self._raised = operation.name

    def fail(self) -> None:
        """Add the place where the forward ended: the innermost call that did not return."""
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
            if not self._seen.of(each):  # the same one may be given twice
                place = INPUT, number
                self._seen.mark(each, place)
                self.trails[place] = []
                self._order[place] = number - len(given)
                self._add(place, INPUT, [], [each])

    def _note_sources(self, place: Place, given: list[Tensor]) -> None:
        found: Any = self._seen.of(*given)
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
    """Return the tensors whose numbers are in the result, without those overwritten as a whole."""
    if operation.name not in OVERWRITING or not operation.mutates:
        return operation.reads
    whole = operation.argument["self"]
    count = whole.untyped_storage().nbytes() // whole.element_size()
    return [each for each in operation.reads if each is not whole or whole.numel() < count]


def own_memory(layers: Container[nn.Module], recorder: OperationRecorder) -> Iterator[Hook]:
    """Hooks by which a layer that returns what it was given, as Dropout does, returns a copy.

    So its output is told from its input, as an edit of it would tell them. A layer that works in
    place returns the memory itself.
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
