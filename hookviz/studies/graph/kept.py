"""One forward, kept: any layer's value is taken apart, and traced back, without another run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.handles import HookManager
from ...hooking.select import type_name
from ...hooking.storage import StorageMap, share_memory
from ...hooking.weights import stored_tensor
from ...run.recorder import Listener, ModuleCall, Operation
from ...run.session import Session
from .graph import Graph, chosen_layers, observing
from .listener import INPUT, GraphListener, Place
from .terms import (
    MemoryLayout,
    Move,
    Terms,
    along_axis,
    by_output,
    convolution_terms,
    linear_terms,
    move_of,
    rule_of,
)

BUDGET = 1_000_000_000
"""The most bytes of copies. Layers that ran beyond it are run again when they are asked for."""


NEGLIGIBLE = 1e-6
"""A term below this fraction of the largest value that the layer returned is as good as zero."""


@dataclass(frozen=True, eq=False)
class Origin:
    """The number of an earlier layer that an input of a layer was made of, number by number.

    Attributes
    ----------
    layer, call : str, int
        Which layer's; ``("input", 0)`` is the model's input.
    channel : int
    position : tuple of int
    path : list of str
        The operations in between, in their order.
    value : float
        What arrives on this way: where several meet in a sum, the summand.
    exact : bool
        False if a pooling lies between; then ``position`` is that of its largest magnitude.
    windows : tuple of tuple of slice
        Of the first pooling on the way back, by axis and place.
    sample : int
        The row in the layer's batch, which is another one where it runs on parts of a picture.
    """

    layer: str
    call: int
    channel: int
    position: tuple[int, ...]
    path: list[str]
    value: float
    exact: bool
    windows: tuple[tuple[slice, ...], ...] = field(default=(), repr=False)
    sample: int = 0


@dataclass(eq=False)
class Value:
    """A layer's number and its terms."""

    place: Place
    sample: int
    channel: int
    position: tuple[int, ...]
    value: float
    terms: Terms
    after: list[tuple[str, float]]
    index: tuple[int, ...] = field(repr=False)  # of the convolution's own output
    edited: float | None = None  # what the layer's own edits made of it


@dataclass(eq=False)
class _Call:
    """A layer's call: what it was given and returned, with what it takes to take it apart."""

    place: Place
    module: nn.Module
    given: Tensor | None = None  # a linear layer's input, or the convolution's
    given_at: tuple[int | None, MemoryLayout] | None = None
    began: int = 0  # the number of events before its convolution
    arguments: dict[str, Any] | None = None
    made: MemoryLayout | None = None  # the convolution's output
    memory: int = -1
    layout: MemoryLayout | None = None
    returned: Tensor | None = None
    ended: int = 0
    weight: Tensor | None = None  # a linear layer's, as it was used
    bias: Tensor | None = None
    weights: list[int] = field(default_factory=list)  # their versions
    refused: str = ""  # why there are no terms, as the end of a sentence
    beyond: bool = False  # the budget


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers that a layer's call computed with, see `Recipe`."""

    place: Place
    linear: bool
    weight: Tensor
    bias: Tensor | None
    given: Tensor
    groups: int
    transposed: bool
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    shape: list[int]
    shift: list[int]
    most: float
    values: Tensor  # what it returned, ``(C_out, *shape)``


@dataclass(frozen=True, eq=False)
class _Passage:
    """A tensor that an operation read, and the one that it made."""

    operation: int
    name: str
    read: int
    read_layout: MemoryLayout
    read_values: Tensor | None
    made: int
    made_layout: MemoryLayout
    values: Tensor | None
    move: Move
    rule: list[Any] | None = None  # how its numbers are made of those it read, see `rule_of`


@dataclass(frozen=True)
class _Taken:
    memory: int


@dataclass(frozen=True)
class _Overwritten:
    memory: int
    layout: MemoryLayout


class KeptRun:
    """A forward of a session whose layers' inputs and outputs were kept.

    Parameters
    ----------
    session : Session
        Its model runs once, with its edits.
    only : collection of torch.nn.Module, optional
        Keep these layers alone; None is all convolutions and linear layers, within `BUDGET`.
    layers : dict of torch.nn.Module to str, optional
        The graph's layers; None is those of `hookviz.graph`.

    Attributes
    ----------
    graph : Graph

    Examples
    --------
    >>> import hookviz
    >>> from hookviz.run.inputs import prepare_input
    >>> model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    >>> kept = KeptRun(Session(model, prepare_input(x, model)))
    >>> value = kept.value("layer3.1.conv2", channel=17, position=(5, 8))
    >>> value.terms.kernel.shape[1:]
    torch.Size([3, 3])
    """

    def __init__(
        self,
        session: Session,
        *,
        only: Collection[nn.Module] | None = None,
        layers: dict[nn.Module, str] | None = None,
    ) -> None:
        layers = chosen_layers(session.model, None) if layers is None else layers
        runs: list[tuple[GraphListener, _Keeper]] = []

        def observe() -> Any:
            runs.append((GraphListener(layers), _Keeper(layers, only)))
            return observing(session, layers, *runs[-1])

        session.forward(observe, grad=False)
        seen, self._kept = runs[-1]
        self._written: dict[int, list[int]] = {}  # the events by the memory that they wrote
        for number, event in enumerate(self._kept.events):
            if not isinstance(event, _Taken):
                self._written.setdefault(_memory(event), []).append(number)
        self._constant: dict[tuple[Any, ...], bool] = {}
        self._sizes: dict[Place, float] = {}  # the largest value of a layer's output
        self._session, self._layers, self._only = session, layers, only
        self._unedited: dict[str, KeptRun] = {}  # by edited layer: without its own edits
        ran = {node.layer for node in seen.nodes}
        unused = [name for name in layers.values() if name not in ran]
        self.graph = Graph(session.name, seen, unused)

    def value(
        self,
        layer: str,
        channel: int,
        position: Sequence[int] = (),
        sample: int = 0,
        call: int = -1,
        *,
        onward: bool = True,
    ) -> Value:
        """Take a layer's value apart; follow it ``onward`` to the layers that take it.

        An edited layer's value is the one before its own edits, with the inputs that it has now.

        Raises
        ------
        ValueError
            As `hookviz.contributions`.
        """
        kept = self._call(layer, call)
        named = f"Layer {layer!r} ({type_name(kept.module)})"
        run = self._before_edits(layer)
        if kept.beyond or (run is not self and kept.returned is None):
            alone = KeptRun(self._session, only=[kept.module], layers=self._layers)
            return alone.value(layer, channel, position, sample, call, onward=onward)
        if run is not self:
            found = run.value(layer, channel, position, sample, call, onward=False)
            assert kept.returned is not None and kept.layout is not None
            linear = isinstance(kept.module, nn.Linear)
            index = _index(kept.returned, linear, sample, channel, tuple(position))
            after = self._after(kept, kept.layout.offset(index)) if onward else []
            edited = float(kept.returned[index])
            return replace(found, place=kept.place, after=after, edited=edited)
        if kept.refused:
            raise ValueError(f"{named} {_EDITED if self.edits_of(layer) else kept.refused}")
        if kept.weights != _versions(kept):
            raise ValueError(f"{named} has new weights since the run: run the model again.")
        assert kept.returned is not None and kept.layout is not None and kept.given is not None
        linear = kept.arguments is None
        try:
            index = _index(kept.returned, linear, sample, channel, tuple(position))
        except ValueError as error:
            raise ValueError(f"{named} {error}") from None
        own = index
        if kept.arguments is not None:
            assert kept.made is not None
            inside = kept.made.index(kept.layout.offset(index))
            if inside is None:
                raise ValueError(f"{named} {_MORE}")
            own = inside
            terms = convolution_terms(kept.arguments, own[0], own[1], own[2:])
        else:
            assert kept.weight is not None
            terms = linear_terms(kept.given[index[:-1]], kept.weight, kept.bias, channel)
        value = float(kept.returned[index])
        if not _adds_up(value, terms, kept.returned):
            said = "does more than multiply and add: it is not linear in its input."
            raise ValueError(f"{named} {_EDITED if self.edits_of(layer) else said}")
        after = self._after(kept, kept.layout.offset(index)) if onward else []
        return Value(kept.place, sample, channel, tuple(position), value, terms, after, own)

    def edits_of(self, layer: str) -> list[Any]:
        """List the session's edits of a layer."""
        return [each for each in self._session.edits if each.layer == layer]

    def _before_edits(self, layer: str) -> KeptRun:
        """Return this run; for an edited layer the one without its own edits, given the same.

        A layer that runs several times may be given what its own edits made: this run, then.
        """
        own, calls = self.edits_of(layer), self._kept.calls.get(layer, [])
        if not own or len(calls) != 1:
            return self
        if layer not in self._unedited:
            session = self._session.edited([e for e in self._session.edits if e not in own])
            again = KeptRun(session, only=[calls[0].module], layers=self._layers)
            self._unedited[layer] = again
        return self._unedited[layer]

    def inputs_of(self, layer: str, sample: int = 0, call: int = -1) -> Tensor:
        """Return what a layer was given, channels first: ``(C, *spatial)``."""
        kept = self._before_edits(layer)._call(layer, call)
        if kept.given is None:
            raise ValueError(f"The inputs of layer {layer!r} were not kept.")
        if kept.arguments is None:
            return kept.given if kept.given.ndim == 1 else kept.given[sample].movedim(-1, 0)
        return kept.given[sample]

    def sizes(self, layer: str, call: int = -1) -> list[int]:
        """Return the sizes of a layer's map, or of the model's input; none if it was not kept."""
        for event in self._kept.events:
            if isinstance(event, _Call) and event.place == (layer, call) and event.layout:
                shape = event.layout.shape
                last = isinstance(event.module, nn.Linear)
                return list(shape[1:-1] if last else shape[2:])
        returned = self._call(layer, call).returned
        if returned is None:
            return []
        last = self._call(layer, call).arguments is None
        return list(returned.shape[1:-1] if last else returned.shape[2:])

    def parts(self, layer: str, sample: int = 0, call: int = -1) -> Parts:
        """Return what a layer's call computed with.

        Raises
        ------
        ValueError
            As `value`; or its map is arranged in another way than what its convolution made.
        """
        kept = self._call(layer, call)
        if self.edits_of(layer):
            raise ValueError(f"Layer {layer!r} ({type_name(kept.module)}) {_EDITED}")
        sizes = self.sizes(*kept.place)
        middle = [size // 2 for size in sizes]
        self.value(layer, 0, middle, sample, call, onward=False)  # refuses what is not linear
        assert kept.returned is not None and kept.layout is not None
        most = float(kept.returned.abs().nan_to_num(0, 0, 0).max())
        arguments = kept.arguments
        if arguments is None:
            assert kept.weight is not None
            given = self.inputs_of(layer, sample, call)
            values = (
                kept.returned[sample].movedim(-1, 0) if kept.returned.ndim > 1 else kept.returned
            )
            empty: list[int] = []
            return Parts(
                kept.place,
                True,
                kept.weight.detach(),
                None if kept.bias is None else kept.bias.detach(),
                given,
                1,
                False,
                empty,
                empty,
                empty,
                sizes,
                empty,
                most,
                values,
            )
        assert kept.made is not None
        first, *others = [
            kept.made.index(kept.layout.offset((sample, *inner)))
            for inner in [(0, *middle), (1, *middle), *_neighbours(middle, sizes)]
            if inner[0] < kept.returned.shape[1]
        ]
        wanted = [(sample, *inner) for inner in [(1, *middle), *_neighbours(middle, sizes)]]
        wanted = [each for each in wanted if each[1] < kept.returned.shape[1]]
        if first is None or first[:2] != (sample, 0):
            raise ValueError(f"Layer {layer!r} {_MORE}")
        shift = [n - at for n, at in zip(first[2:], middle, strict=True)]
        moved = [
            (*each[:2], *(n + s for n, s in zip(each[2:], shift, strict=True))) for each in wanted
        ]
        if others != moved:
            raise ValueError(f"Layer {layer!r} {_MORE}")
        count = len(first) - 2
        along = {
            name: [along_axis(arguments[name], axis) for axis in range(count)]
            for name in ("stride", "padding", "dilation")
        }
        groups, transposed = arguments["groups"], bool(arguments["transposed"])
        weight = by_output(arguments["weight"].detach(), groups, transposed)
        bias = arguments["bias"]
        return Parts(
            kept.place,
            False,
            weight,
            None if bias is None else bias.detach(),
            self.inputs_of(layer, sample, call),
            groups,
            transposed,
            along["stride"],
            along["padding"],
            along["dilation"],
            sizes,
            shift,
            most,
            kept.returned[sample],
        )

    def given_shape(self, layer: str, sample: int = 0, call: int = -1) -> tuple[int, ...]:
        """Return channels and sizes of what a layer was given."""
        return tuple(self.inputs_of(layer, sample, call).shape)

    def origins_of_input(
        self, layer: str, channel: int, position: Sequence[int], sample: int = 0, call: int = -1
    ) -> list[Origin]:
        """Trace a number of a layer's input back, as `origins` does."""
        kept = self._call(layer, call)
        if kept.arguments is None:
            batched = kept.given is not None and kept.given.ndim > 1
            return self._origins(kept, (*([sample] if batched else []), *position, channel))
        return self._origins(kept, (sample, channel, *position))

    def steps(self, layer: str, call: int = -1) -> list[list[Any]]:
        """Return the operations that follow a layer's output, with their rules, see `rule_of`.

        They end at the first without a rule. Each is ``[name, *rule]``.
        """
        kept = self._call(layer, call)
        if kept.layout is None:
            return []
        middle = [size // 2 for size in kept.layout.shape]
        axis = -1 if isinstance(kept.module, nn.Linear) else min(1, len(middle) - 1)
        ends = []
        for channel in (0, kept.layout.shape[axis] - 1):  # halves may go ways of their own
            middle[axis] = channel
            ends.append([each for each, _ in self._onward(kept, kept.layout.offset(middle))])
        found: list[list[Any]] = []
        for one, other in zip(*ends, strict=False):
            if one is not other or one.rule is None:
                break
            found.append([one.name, *one.rule])
        return found

    def tap(self, value: Value, tap: Sequence[int]) -> tuple[int, ...]:
        """Return where in the layer's input a tap of the kernel stands; may be in the padding."""
        arguments = self._before_edits(value.place[0])._call(*value.place).arguments
        if arguments is None:
            return ()
        found = []
        for axis, (n, k) in enumerate(zip(value.index[2:], tap, strict=True)):
            stride, padding, dilation = (
                along_axis(arguments[name], axis) for name in ("stride", "padding", "dilation")
            )
            if arguments["transposed"]:
                found.append((n + padding - k * dilation) // stride)
            else:
                found.append(n * stride - padding + k * dilation)
        return tuple(found)

    def origins(self, value: Value, channel: int, tap: Sequence[int] = ()) -> list[Origin]:
        """Trace an input of a layer back to the layers whose numbers it was made of.

        Parameters
        ----------
        value : Value
            Of `value`.
        channel : int
            Which of the layer's input channels.
        tap : sequence of int
            Which place of the kernel.

        Returns
        -------
        list of Origin
            One for each branch of a sum; empty in the padding, and where what lies between does
            not go number by number or pool.
        """
        run = self._before_edits(value.place[0])
        kept = run._call(*value.place)
        if kept.arguments is None:
            return run._origins(kept, (*value.index[:-1], channel))
        return run._origins(kept, (value.index[0], channel, *self.tap(value, tap)))

    def _origins(self, kept: _Call, index: tuple[int, ...]) -> list[Origin]:
        """Trace a number of a call's input back."""
        if kept.given_at is None or kept.given is None or kept.given_at[0] is None:
            return []
        memory, layout = kept.given_at
        assert memory is not None
        if not all(0 <= n < size for n, size in zip(index, layout.shape, strict=True)):
            return []
        start = float(kept.given[index])
        return list(self._back(memory, layout.offset(index), kept.began, start))

    def is_constant(self, value: Value, channel: int, tap: Sequence[int] = ()) -> bool:
        """Return True if nothing but biases came together in an input of a layer, on this input.

        It is so where the channels that it was made of were trained away, their kernels being
        zero, or were given nothing but zeros: what they add to the value is a part of its bias.
        """
        found = self.origins(value, channel, tap)
        return bool(found) and all(self._is_constant(each, value.sample) for each in found)

    def _is_constant(self, origin: Origin, sample: int) -> bool:
        if origin.layer == INPUT:
            return False
        key = origin.layer, origin.call, origin.channel, origin.position, sample
        if key not in self._constant:
            self._constant[key] = self._has_no_terms(origin, sample)
        return self._constant[key]

    def _has_no_terms(self, origin: Origin, sample: int) -> bool:
        place = origin.layer, origin.call
        try:
            where = origin.channel, origin.position, sample, origin.call
            value = self.value(origin.layer, *where, onward=False)
        except ValueError:
            return False  # not a layer with kernels
        if value.edited is not None:
            return False
        if place not in self._sizes:
            returned = self._call(*place).returned
            self._sizes[place] = 0.0 if returned is None else float(returned.abs().max())
        products = value.terms.kernel * value.terms.patch
        sizes = products.flatten(1).sum(1).abs() if products.ndim > 1 else products.abs()
        sizes = sizes.nan_to_num(0, torch.inf)
        count = int((sizes > NEGLIGIBLE * self._sizes[place]).sum())
        felt = sizes.argsort(descending=True, stable=True)[:count].tolist()
        return all(self.is_constant(value, each, largest_tap(products[each])) for each in felt)

    def output_origins(self, index: Sequence[int], output: int = 0) -> list[Origin]:
        """Trace a number of the model's output back, as `origins` does."""
        if output >= len(self._kept.outputs):
            return []
        memory, layout, values = self._kept.outputs[output]
        if memory is None or values is None or len(index) != len(layout.shape):
            return []
        offset, end = layout.offset(index), len(self._kept.events)
        return list(self._back(memory, offset, end, float(values[tuple(index)])))

    def without(
        self,
        layer: str,
        channel: int,
        position: Sequence[int],
        sample: int,
        call: int,
        channels: Sequence[int],
    ) -> tuple[float, Any]:
        """Run the model with channels of one layer's input set to zero in one call.

        Returns
        -------
        float, Any
            The layer's value then, before its own edits, and the model's output.
        """
        run, without = self._before_edits(layer), None
        if run is not self:
            without, _ = run.without(layer, channel, position, sample, call, channels)
        kept = self._call(layer, call)
        linear, number = isinstance(kept.module, nn.Linear), kept.place[1]
        found: list[float] = []
        outputs: list[Any] = []
        calls = [0]

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] - 1 != number or not args:
                return None
            given = args[0]
            axis = -1 if linear else given.ndim - 1 - len(position)
            off = torch.tensor(list(channels), device=given.device)
            return (given.index_fill(axis, off, 0), *args[1:]), kwargs

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if calls[0] - 1 == number:
                found.append(float(output[_index(output, linear, sample, channel, (*position,))]))

        def last(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            outputs.append(output)

        def observe() -> HookManager:
            calls[0] = 0
            model = self._session.model
            return HookManager(
                [
                    (kept.module, "forward_pre", before),
                    (kept.module, "forward", after),
                    (model, "forward", last),
                ]
            )

        self._session.forward(observe, grad=False)
        return found[-1] if without is None else without, outputs[-1]

    def _call(self, layer: str, call: int) -> _Call:
        calls = self._kept.calls.get(layer, [])
        if not calls:
            module = next((m for m, name in self._layers.items() if name == layer), None)
            if module is None or (self._only is not None and module not in self._only):
                raise ValueError(f"Layer {layer!r} {NOT_LINEAR}")
            named = f"Layer {layer!r} ({type_name(module)})"
            raise ValueError(f"{named} did not run, so it has no value to take apart.")
        if not -len(calls) <= call < len(calls):
            named = f"Layer {layer!r} ({type_name(calls[0].module)})"
            times = f"{len(calls)} time{'s' * (len(calls) != 1)}"
            raise ValueError(f"{named} ran {times}: call={call} is out of range.")
        return calls[call]

    def _after(self, kept: _Call, offset: int) -> list[tuple[str, float]]:
        """Follow a layer's number until a layer takes it."""
        return [(event.name, value) for event, value in self._onward(kept, offset)]

    def _onward(self, kept: _Call, offset: int) -> Iterator[tuple[_Passage, float]]:
        at, done = {kept.memory: offset}, -1
        for event in self._kept.events[kept.ended :]:
            if isinstance(event, _Taken):
                at.pop(event.memory, None)
            elif isinstance(event, _Passage) and event.operation != done and event.read in at:
                index = event.read_layout.index(at[event.read])
                moved = None if index is None else event.move.forth(index)
                if moved is not None and event.values is not None:
                    yield event, float(event.values[moved])
                    at[event.made] = event.made_layout.offset(moved)
                    done = event.operation

    def _back(self, memory: int, offset: int, end: int, value: float) -> Iterator[Origin]:
        """Follow a number of a memory back, from the events before ``end``, branch by branch."""
        events = self._kept.events
        none: tuple[Any, ...] = ()
        left = [(memory, offset, end, value, none, True, none)]
        while left:
            memory, offset, end, value, path, exact, windows = left.pop()
            numbers = self._written.get(memory, [])
            for number in reversed(numbers[: bisect_left(numbers, end)]):
                event: Any = events[number]
                layout = event.made_layout if isinstance(event, _Passage) else event.layout
                index = layout.index(offset) if layout is not None else None
                if index is None:
                    continue
                if isinstance(event, _Call):
                    inside = list(index[1:] if len(index) > 1 else index) or [0]
                    channel = inside.pop(-1 if isinstance(event.module, nn.Linear) else 0)
                    way = list(path[::-1])
                    row = index[0] if len(index) > 1 else 0
                    place = *event.place, channel, tuple(inside)
                    yield Origin(*place, way, value, exact, windows, row)
                elif isinstance(event, _Passage):
                    first = number
                    while first and _operation(events[first - 1]) == event.operation:
                        first -= 1
                    found = []
                    for each in events[first : number + 1]:
                        assert isinstance(each, _Passage)
                        back = each.move.back(index, each.read_values)
                        if back is None:
                            continue
                        read = each.read_values
                        arrived = value if read is None else float(read[back])
                        where = each.read_layout.offset(back)
                        longer, still = (*path, each.name), exact and each.move.exact
                        over = windows or getattr(each.move, "windows", ())
                        found.append((each.read, where, first, arrived, longer, still, over))
                    left += reversed(found)
                break


class _Keeper(Listener):
    """Keeps what layers are given and return, and how numbers move between them.

    Attributes
    ----------
    calls : dict of str to list of _Call
    events : list
        What happened to memory, in its order.
    outputs : list of (int or None, MemoryLayout, torch.Tensor or None)
        Where the model's outputs stand.
    """

    def __init__(
        self, layers: dict[nn.Module, str], only: Collection[nn.Module] | None = None
    ) -> None:
        self.calls: dict[str, list[_Call]] = {}
        self.events: list[_Call | _Passage | _Taken | _Overwritten] = []
        self.outputs: list[tuple[int | None, MemoryLayout, Tensor | None]] = []
        self._layers, self._only = layers, only
        self._open: list[ModuleCall] = []
        self._running: dict[ModuleCall, _Call] = {}
        self._ran: dict[ModuleCall, list[tuple[Operation, _Call, Tensor, int]]] = {}
        self._memory: StorageMap[int] = StorageMap()
        self._count, self._operations, self._bytes = 0, 0, 0

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note what a layer takes."""
        if not self._open and not self.events:
            for number, each in enumerate(given):
                taken = _Call((INPUT, number), nn.Identity(), layout=MemoryLayout.of(each))
                taken.memory = self._number(each)
                self.events.append(taken)
        self._open.append(call)
        if call.module not in self._layers:
            return
        for each in given:
            memory = self._memory.get(each)
            if memory is not None:
                self.events.append(_Taken(memory))
        if self._only is None or call.module in self._only:
            kept = _Call((call.layer, call.call), call.module, began=len(self.events))
            if given and isinstance(call.module, nn.Linear):
                kept.given, kept.beyond = self._copy(given[0])
                kept.given_at = self._memory.get(given[0]), MemoryLayout.of(given[0])
            self._running[call], self._ran[call] = kept, []

    def after(self, operation: Operation) -> None:
        """Keep the convolution of a layer; note which numbers moved."""
        call = operation.call
        running = self._ran.get(call) if call is not None else None
        if running is not None and operation.name == "convolution":
            given = operation.argument["input"]
            inside = _Call(("", 0), nn.Identity(), began=len(self.events))
            inside.given, inside.beyond = self._copy(given)
            inside.given_at = self._memory.get(given), MemoryLayout.of(given)
            inside.arguments = operation.argument | {"input": inside.given}
            inside.made = MemoryLayout.of(operation.output)
            running.append((operation, inside, operation.output, operation.output._version))
            return
        if running is not None and call is not None and isinstance(call.module, nn.Linear):
            self._keep_weights(operation, self._running[call])
        if not operation.is_view:
            self._follow(operation)

    def _keep_weights(self, operation: Operation, kept: _Call) -> None:
        """Keep the weight and the bias that a linear layer computes, as parametrized ones do."""
        module: Any = kept.module
        size = (module.out_features, module.in_features)
        if operation.name == "t" and operation.inputs[0].shape == size:
            kept.weight = operation.inputs[0]
        added = {"addmm": 0, "addmv": 0, "add": -1}.get(operation.name)
        if added is not None and operation.inputs[added].shape == (module.out_features,):
            kept.bias = operation.inputs[added]

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Keep what a layer returned."""
        if call in self._open:
            del self._open[self._open.index(call) :]
        if call.module in self._layers and returned:
            kept = self._running.pop(call, None)
            if kept is None:
                kept = _Call((call.layer, call.call), call.module)
            else:
                self.calls.setdefault(call.layer, []).append(kept)
                self._finish(kept, self._ran.pop(call), returned)
            kept.memory, kept.layout = self._number(returned[0]), MemoryLayout.of(returned[0])
            self.events.append(kept)
            kept.ended = len(self.events)
        if not self._open:
            for each in returned:
                self.outputs.append(
                    (self._memory.get(each), MemoryLayout.of(each), self._copy(each)[0])
                )

    def _finish(self, kept: _Call, ran: list[Any], returned: list[Tensor]) -> None:
        if len(returned) != 1:
            kept.refused = NOT_LINEAR
            return
        if returned[0].is_complex():
            kept.refused = "computes with complex numbers: contributions need real ones."
            return
        if "quantized" in type(kept.module).__module__:
            kept.refused = (
                "is quantized: it rounds in between, so no sum of products is its value; "
                "take the float model apart instead."
            )
            return
        made = next((each for each in ran if share_memory(each[2], returned[0])), None)
        if made is not None:
            if made[2]._version != made[3]:
                kept.refused = (
                    "overwrites what its convolution made: it is not linear in its input."
                )
                return
            inside = made[1]
            kept.given, kept.given_at, kept.began = inside.given, inside.given_at, inside.began
            kept.arguments, kept.made, kept.beyond = inside.arguments, inside.made, inside.beyond
        elif not isinstance(kept.module, nn.Linear):
            kept.refused = _MORE if ran else NOT_LINEAR
            kept.returned = self._copy(returned[0])[0]  # an edit's, perhaps
            return
        if kept.arguments is None:
            for name in ("weight", "bias"):
                stored = stored_tensor(kept.module, name)
                if stored is not None or name in kept.module._parameters:
                    setattr(kept, name, stored)
        kept.weights = _versions(kept)
        kept.returned, beyond = self._copy(returned[0])
        kept.beyond = kept.beyond or beyond

    def _follow(self, operation: Operation) -> None:
        self._memory.prune()
        outputs = operation.outputs
        if not outputs:
            return
        made = outputs[0]
        read = operation.values_read
        known = [each for each in read if each in self._memory]
        moves = [(each, move_of(operation, each, made)) for each in known]
        moves = [(each, move) for each, move in moves if move is not None]
        if not moves:
            for each in operation.written:
                memory = self._memory.get(each)
                if memory is not None:
                    self.events.append(_Overwritten(memory, MemoryLayout.of(each)))
            return
        self._operations += 1
        values = self._copy(made)[0]
        sources = [self._number(each) for each, _ in moves]
        target = self._number(made)
        for (each, move), source in zip(moves, sources, strict=True):
            assert move is not None
            # An in-place operation has overwritten what it read.
            several = len(moves) > 1 or (len(read) > 1 and operation.name in ("add", "sub"))
            separate = (several or not move.exact) and not share_memory(each, made)
            before = self._copy(each)[0] if separate else None
            self.events.append(
                _Passage(
                    self._operations,
                    operation.name,
                    source,
                    MemoryLayout.of(each),
                    before,
                    target,
                    MemoryLayout.of(made),
                    values,
                    move,
                    rule_of(operation, move)
                    if len(moves) == 1 or operation.name == "cat"
                    else None,
                )
            )

    def _number(self, tensor: Tensor) -> int:
        known = self._memory.get(tensor)
        if known is None:
            self._count += 1
            self._memory[tensor] = known = self._count
        return known

    def _copy(self, tensor: Tensor) -> tuple[Tensor | None, bool]:
        size = tensor.numel() * tensor.element_size()
        if self._only is None and self._bytes + size > BUDGET:
            return None, True
        self._bytes += size
        return tensor.detach().clone(), False


NOT_LINEAR = (
    "is neither a convolution nor a linear layer: contributions need a layer that is linear in its "
    "input."
)
_EDITED = (
    "is edited, so its output is no longer a sum of its products: take the edit out, or choose the "
    "original run."
)
_MORE = "does more than a convolution: it is not linear in its input."


def _neighbours(middle: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the next position along each axis that has one, in channel 0."""
    return [
        (0, *(n + (each == axis) for each, n in enumerate(middle)))
        for axis, size in enumerate(sizes)
        if middle[axis] + 1 < size
    ]


def largest_tap(products: Tensor) -> list[int]:
    """Return where in a kernel the largest product stands."""
    left, found = int(products.abs().nan_to_num(torch.inf).argmax()), []
    for size in reversed(products.shape):
        left, place = divmod(left, size)
        found.append(place)
    return found[::-1]


def _versions(kept: _Call) -> list[int]:
    given = [kept.weight, kept.bias]
    if kept.arguments is not None:
        given = [kept.arguments["weight"], kept.arguments["bias"]]
    return [each._version for each in given if each is not None and not each.is_inference()]


def _memory(event: _Call | _Passage | _Overwritten) -> int:
    return event.made if isinstance(event, _Passage) else event.memory


def _operation(event: Any) -> int:
    return event.operation if isinstance(event, _Passage) else -1


def _index(
    returned: Tensor, channels_last: bool, sample: int, channel: int, position: tuple[int, ...]
) -> tuple[int, ...]:
    """Return a value's index in a layer's output."""
    batched = returned.ndim == len(position) + 2
    inner = (*position, channel) if channels_last else (channel, *position)
    index = (sample, *inner) if batched else inner
    if len(index) != returned.ndim or (not batched and sample):
        shape = "×".join(map(str, returned.shape))
        raise ValueError(f"returned {shape}: position={position} is none of its map.")
    places = ["position"] * len(position)
    inside = [*places, "channel"] if channels_last else ["channel", *places]
    names = ["sample"] * batched + inside
    for name, each, size in zip(names, index, returned.shape, strict=True):
        if not 0 <= each < size:
            raise ValueError(f"has no {name} {each}: there are {size}, counted from 0.")
    return index


def _adds_up(value: float, terms: Terms, returned: Tensor) -> bool:
    """Return True if the terms' sum is the value, up to rounding in the layer's dtype."""
    products = terms.kernel * terms.patch
    total = terms.bias + float(products.sum())
    if not (isfinite(value) and isfinite(total)):
        return True  # NaN and Inf are told as they are
    eps = torch.finfo(returned.dtype).eps
    if returned.is_cuda and returned.dtype == torch.float32:
        eps = 2.0**-10  # TF32
    size = abs(terms.bias) + float(products.abs().sum())
    return abs(value - total) <= (products.numel() + 4) * eps * size
