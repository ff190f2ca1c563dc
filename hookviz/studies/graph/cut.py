"""One forward that is cut at every layer: each number is traced back by autograd between the cuts.

A hook replaces the output of each layer by a copy of a new leaf. What lies between two layers is
then a small graph of its own: the gradient of one number of a layer's input, with respect to the
leaves, tells on which channels and positions of which earlier layers it depends, and by which
weight, through any normalization, activation, sum, concatenation, slice or pooling.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from ...hooking.handles import Hook, HookManager
from ...hooking.interrupts import Block
from ...hooking.select import module_names, type_name
from ...hooking.storage import StorageMap, share_memory
from ...hooking.tensors import map_tensors, tensors
from ...hooking.transforms import TransformError
from ...run.errors import first_line
from ...run.operations import CLAMPS, RECTIFIERS, STEPS
from ...run.recorder import ModuleCall, Operation, OperationRecorder
from ...run.session import Session
from ...tables import megabytes
from .graph import chosen_layers, graph_from, observing
from .kernels import computed_tensor
from .listener import INPUT, GraphListener, Place
from .onward import OnwardListener
from .terms import MemoryLayout, Terms, convolution_terms, linear_terms, tap_position

BUDGET = 2_000_000_000
"""The most bytes that the copies of a cut run may take."""

MOST_PARTS = 100
"""The number of parts of a number that are listed; the others are summed."""


@dataclass(frozen=True, eq=False)
class Part:
    """A number of an earlier layer, and what it contributes to a number made of it.

    Attributes
    ----------
    layer, call, sample, channel, position
        Which number; the layer is ``"input"`` for the model's input, with its number as the call.
        The sample is a row of the layer's batch.
    value, weight : float
        The number, and the derivative with respect to it.
    path : list of str
        The operations in between, in the order in which they ran.
    """

    layer: str
    call: int
    sample: int
    channel: int
    position: tuple[int, ...]
    value: float
    weight: float
    path: list[str] = field(repr=False)

    @property
    def part(self) -> float:
        """The contribution: value times weight."""
        return self.value * self.weight


@dataclass(frozen=True, eq=False)
class Origins:
    """A number as a sum: ``value = Σ part + rest + remainder``.

    Attributes
    ----------
    parts : list of Part
        The largest, in order of size.
    others, rest : int, float
        The number of smaller parts, and their sum.
    remainder : float
    kind : str
        What the remainder is. ``"constant"``: biases and shifts, since the path is piecewise
        linear. ``"linearisation"``: the path is not, and the parts are the first-order terms at
        this input. ``"unexplained"``: autograd does not follow some of the path.
    bent_by : list of str
        The operations for which it is no constant.
    """

    value: float
    parts: list[Part]
    others: int = 0
    rest: float = 0.0
    remainder: float = 0.0
    kind: str = "constant"
    bent_by: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Value:
    """A layer's number and its terms."""

    run: CutRun = field(repr=False)
    place: Place
    sample: int
    channel: int
    position: tuple[int, ...]
    value: float  # before the layer's own edits
    terms: Terms
    edited: float | None  # after the layer's own edits
    index: tuple[int, ...]  # in the layer's output
    inside: tuple[int, ...]  # in the output of its convolution


@dataclass(eq=False)
class _Call:
    """The input and the output of a layer's call, and its weights."""

    place: Place
    module: nn.Module
    given: Tensor | None = None  # the input of the convolution, or of the linear layer
    given_version: int = 0
    arguments: dict[str, Any] | None = None  # of the convolution
    factor: Tensor | None = None  # the weight of the linear layer's product, (inputs, outputs)
    addend: Tensor | None = None  # the bias of that product
    made: MemoryLayout | None = None  # the output of the convolution
    layout: MemoryLayout | None = None  # the output of the layer, in the same memory
    returned: Tensor | None = None  # before the layer's own edits
    edited: Tensor | None = None  # after them
    weights: list[tuple[Tensor, int]] = field(default_factory=list)  # with their versions
    lost: bool = False  # True if autograd does not follow some of the input
    refused: str = ""  # why there are no terms, as the end of a sentence

    @property
    def linear(self) -> bool:
        return self.arguments is None


_LOST: Place = ("", -1)
"""The source of values that a layer made and that autograd does not follow."""


class _CallListener(GraphListener):
    """Keeps what each layer is given and returns.

    Parameters
    ----------
    layers : dict of torch.nn.Module to str
    kept : collection of torch.nn.Module
        The layers whose calls are kept.
    edited : collection of str
        The layers that have edits.
    cut : bool
        True if each layer's output is replaced by a copy of a new leaf.
    own_inputs : bool
        True if each layer is given its own copy of its input, which nothing can overwrite later.
    """

    def __init__(
        self,
        layers: dict[nn.Module, str],
        kept: Collection[nn.Module],
        edited: Collection[str],
        *,
        cut: bool,
        own_inputs: bool,
    ) -> None:
        super().__init__(layers)
        self._chosen = layers
        self.calls: dict[str, list[_Call]] = {}
        self.leaves: dict[Place, list[Tensor]] = {}
        self.output: Any = None
        self.output_sources: frozenset[Any] = frozenset()
        self.output_lost = False
        self.bytes = 0
        self._kept, self._edited, self._cut, self._own_inputs = kept, edited, cut, own_inputs
        self._raw: dict[nn.Module, tuple[list[Tensor], list[Tensor]]] = {}
        self._fresh: list[Tensor] = []
        self._leaf_of = StorageMap[Tensor]()
        self._running: dict[ModuleCall, tuple[_Call, list[Any]]] = {}

    def hooks(self, recorder: OperationRecorder, model: nn.Module) -> Iterator[Hook]:
        """Yield the hooks that cut the run; the recorder's own must come after them."""

        def cut(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point() or tensor.layout is not torch.strided:
                return tensor
            self.bytes += tensor.numel() * tensor.element_size()
            if self.bytes > BUDGET:
                return tensor
            leaf = tensor.detach().requires_grad_()
            self._fresh.append(leaf)
            return _Onward.apply(leaf)

        def begin(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if self.leaves:
                return None  # a model that calls itself
            for number, each in enumerate(tensors((args, kwargs))):
                self.leaves[INPUT, number] = []
                if each.is_floating_point() and each.layout is torch.strided:
                    self.leaves[INPUT, number] = [each.detach().requires_grad_()]
            own = iter(list(self.leaves.values()))
            with recorder.silent(), torch.enable_grad():
                return map_tensors(
                    (args, kwargs), lambda t: next((x.clone() for x in next(own)), t)
                )

        def raw(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._note_raw(module, output)

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            self._fresh = []
            with recorder.silent(), torch.enable_grad():
                return map_tensors(output, cut)

        def end(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.output = output

        if self._cut:
            yield model, "forward_pre", begin
        for module in recorder.names:
            if module in self._layers and not isinstance(module, torch.jit.ScriptModule):
                yield module, "raw", raw
                if self._cut:
                    yield module, "forward", after
        yield model, "forward", end

    def copies(self, recorder: OperationRecorder) -> Iterator[Hook]:
        """Yield the hooks that give each layer its own copy of its input, if that is wanted.

        They come after the recorder's own, so that the layer still takes the memory that it did.
        """

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            with recorder.silent():
                args, kwargs = map_tensors((args, kwargs), torch.clone)
            kept = self._running[self._open[-1]][0]
            if kept.given is not None:
                kept.given = tensors((args, kwargs))[0]
                kept.given_version = kept.given._version
            return args, kwargs

        for module in self._kept if self._own_inputs else ():
            yield module, "forward_pre", before

    def _note_raw(self, module: nn.Module, output: Any) -> None:
        """Note a layer's output before its edits."""
        if module in self._kept:
            raw = [each.detach() for each in tensors(output)]
            # The model may overwrite an output that is not cut off; a user's edit any.
            own = not self._cut or self._chosen[module] in self._edited
            self._raw[module] = raw, [each.clone() for each in raw] if own else raw

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Note the input of a linear layer."""
        super().enter(call, given, again)
        if call.module in self._kept:
            kept = _Call((call.layer, call.call), call.module)
            if given and isinstance(call.module, nn.Linear):
                kept.given = self._reference(given[0])
                kept.given_version = _version(kept.given)
            kept.lost = any(map(self.is_lost, given))
            self._running[call] = kept, []

    def before(self, operation: Operation) -> None:
        """Give a leaf its own memory before an operation in place overwrites it."""
        for each in operation.written if operation.mutates and self._cut else ():
            leaf = self._leaf_of.pop(each)
            if leaf is not None:
                leaf.data = leaf.data.clone()

    def after(self, operation: Operation) -> None:
        """Note the convolution of a layer."""
        super().after(operation)
        if operation.call in self._running and operation.name == "convolution":
            given = self._reference(operation.argument["input"])
            arguments = operation.argument | {"input": given}
            made = operation.output
            self._running[operation.call][1].append((arguments, made, made._version))
        elif operation.call in self._running and operation.name in ("mm", "addmm"):
            # Reading module.weight later may run a parametrization again, with another result.
            kept, argument = self._running[operation.call][0], operation.argument
            kept.factor = argument["mat2"].detach()
            kept.addend = argument["self"].detach() if operation.name == "addmm" else None

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Note the output of a layer, or of the model."""
        super().leave(call, returned, again)
        if call.module in self._layers and self._cut:
            self.leaves[call.layer, call.call], self._fresh = self._fresh, []
            for leaf in self.leaves[call.layer, call.call]:
                self._leaf_of[leaf] = leaf
        if call in self._running:
            kept, ran = self._running.pop(call)
            self.calls.setdefault(call.layer, []).append(kept)
            _complete(kept, ran, *self._raw.pop(call.module, ([], [])))
            leaves = self.leaves.get(kept.place, [])
            if call.layer in self._edited and returned:
                kept.edited = returned[0].detach().clone()
            elif len(leaves) == 1:
                kept.returned = leaves[0]
        if not self._open:
            self.output_sources = self.of(*returned)
            self.output_lost = any(map(self.is_lost, returned))

    def mark_of_result(self, operation: Operation, made: Tensor, reads: Any) -> Any:
        """Unite the sources; note where values leave autograd's graph."""
        sources = super().mark_of_result(operation, made, reads)
        lost = any(each.is_floating_point() and not each.requires_grad for each, _ in reads)
        return sources | {_LOST} if lost and self._cut else sources

    def of(self, *given: Tensor) -> frozenset[Any]:
        """Return the layers that the values of some tensors depend on."""
        return super().of(*given) - {_LOST}

    def is_lost(self, tensor: Tensor) -> bool:
        """Return True if autograd does not follow some of the tensor's values."""
        sources = self.marks.get(tensor) or frozenset()
        detached = tensor.is_floating_point() and not tensor.requires_grad
        return _LOST in sources or bool(sources and detached)

    def _reference(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:
            return tensor.detach().to_dense()
        return tensor if self._cut else tensor.detach().clone()


def _complete(kept: _Call, ran: list[Any], returned: list[Tensor], values: list[Tensor]) -> None:
    """Note what a layer has returned, and whether it is linear in its input."""
    if len(returned) != 1:
        kept.refused = NOT_LINEAR
        return
    kept.returned = values[0]
    made = next((each for each in ran if share_memory(each[1], returned[0])), None)
    if returned[0].is_complex():
        kept.refused = "computes with complex numbers: contributions need real ones."
    elif "quantized" in type(kept.module).__module__:
        kept.refused = (
            "is quantized: it rounds in between, so no sum of products is its value; "
            "take the float model apart instead."
        )
    elif made is not None and made[1]._version != made[2]:
        kept.refused = "overwrites what its convolution made: it is not linear in its input."
    elif made is not None:
        kept.arguments, kept.made = made[0], MemoryLayout.of(made[1])
        kept.layout = MemoryLayout.of(returned[0])
        kept.given = made[0]["input"]
        kept.given_version = _version(kept.given)
    elif not isinstance(kept.module, nn.Linear):
        kept.refused = _MORE if ran else NOT_LINEAR
    weights: list[Tensor] = [*kept.module.parameters()]
    if kept.arguments is not None:
        weights += tensors([kept.arguments["weight"], kept.arguments["bias"]])
    kept.weights = [(each, _version(each)) for each in weights]


class CutRun:
    """A forward whose layers' inputs and outputs are kept, to take their numbers apart.

    Parameters
    ----------
    session : Session
        Its model runs once, with its edits.
    only : torch.nn.Module, optional
        Keep this layer alone: its numbers are taken apart, but not traced back.

    Attributes
    ----------
    graph : Graph
    problem : str
        Why numbers cannot be traced back, as a sentence.

    Examples
    --------
    >>> import hookviz
    >>> from hookviz.run.inputs import prepare_input
    >>> model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    >>> run = CutRun(Session(model, prepare_input(x, model)))
    >>> value = run.value("layer3.1.conv2", channel=17, position=(5, 8))
    >>> value.terms.kernel.shape[1:]
    torch.Size([3, 3])
    >>> origins = run.origins(value, channel=3, tap=(1, 1))
    >>> [(part.layer, part.channel, part.position, part.path) for part in origins.parts]
    [('layer3.1.conv1', 3, (5, 8), ['batch_norm', 'relu'])]
    """

    def __init__(self, session: Session, only: nn.Module | None = None) -> None:
        self._session = session
        self._layers = chosen_layers(session.model, None)
        self.problem = ""
        self._origins: dict[Any, Origins] = {}
        self._same: dict[Place, Tensor] | None = None
        if only is not None:
            self._layers.setdefault(only, module_names(session.model)[only][0])
            self._run([only], cut=False)
            return
        try:
            self._run(self._layers, cut=True)
            if any(call.given_version != _version(call.given) for call in self._all_calls()):
                self._run(self._layers, cut=True, own_inputs=True)
        except TransformError:
            raise
        except Exception as error:
            self._run([], cut=False)  # raises if the model itself does
            self.problem = f"Autograd cannot follow this model: {first_line(error)}"
        if self._listener.bytes > BUDGET:
            self._run([], cut=False)
            self.problem = (
                "Numbers cannot be traced back: the outputs of all layers take more than "
                f"{megabytes(BUDGET)}. Give fewer or smaller inputs."
            )

    def _run(self, kept: Collection[nn.Module], *, cut: bool, own_inputs: bool = False) -> None:
        edited = {each.layer for each in self._session.edits}
        runs: list[tuple[_CallListener, OnwardListener]] = []

        def observe() -> Block:
            listener = _CallListener(self._layers, kept, edited, cut=cut, own_inputs=own_inputs)
            runs.append((listener, OnwardListener(self._layers, kept)))
            hooks = partial(listener.hooks, model=self._session.model)
            own = partial(observing, self._session, self._layers, *runs[-1])
            return own(hooks=hooks, later=listener.copies)

        self._session.forward(observe, grad=cut)
        self._listener, self._onward = runs[-1]
        self._kept = kept
        self.graph = graph_from(self._session, self._layers, self._listener)

    def _all_calls(self) -> list[_Call]:
        return [call for calls in self._listener.calls.values() for call in calls]

    @property
    def output(self) -> Any:
        """The model's output, with its graph."""
        return self._listener.output

    def value(
        self,
        layer: str,
        channel: int,
        position: Sequence[int] | None = None,
        sample: int = 0,
        call: int = -1,
    ) -> Value:
        """Take a layer's value apart; that of an edited layer is the one before its own edits.

        Raises
        ------
        ValueError
            As `hookviz.contributions`.
        """
        module = self._module(layer)
        if module not in self._kept:
            return CutRun(self._session, module).value(layer, channel, position, sample, call)
        kept = self._call(layer, call)
        named = f"Layer {layer!r} ({type_name(module)})"
        if kept.refused:
            raise ValueError(f"{named} {kept.refused}")
        if any(_version(each) != version for each, version in kept.weights):
            raise ValueError(f"{named} has new weights since the run: run the model again.")
        assert kept.returned is not None and kept.given is not None
        try:
            index = _index(kept.returned, kept.linear, sample, channel, position)
        except ValueError as error:
            raise ValueError(f"{named} {error}") from None
        inside = index
        if kept.arguments is not None and kept.made is not None and kept.layout is not None:
            found = kept.made.index(kept.layout.offset(index))
            if found is None:
                raise ValueError(f"{named} {_MORE}")
            inside = found
            terms = convolution_terms(kept.arguments, inside[0], inside[1], inside[2:])
        else:
            weight, bias = (computed_tensor(self._session, module, n) for n in ("weight", "bias"))
            if kept.factor is not None and kept.factor.shape[1] == kept.returned.shape[-1]:
                weight, bias = kept.factor.mT, bias if kept.addend is None else kept.addend
            assert weight is not None
            terms = linear_terms(kept.given[index[:-1]], weight, bias, channel)
        value = float(kept.returned.detach()[index])
        if not _adds_up(value, terms, kept.returned):
            does = "does more than multiply and add: it is not linear in its input."
            raise ValueError(f"{named} {does}")
        edited = None if kept.edited is None else float(kept.edited[index])
        place = tuple(position or ())
        return Value(self, kept.place, sample, channel, place, value, terms, edited, index, inside)

    def after(self, value: Value) -> list[tuple[str, float]]:
        """List the operations that a value goes through until a layer takes it, with its values."""
        return [*value.run._onward.way(value.place, value.index)]

    def sizes(self, layer: str, call: int = -1) -> list[int]:
        """Return the sizes of a layer's map; none if it has no positions."""
        module = self._module(layer)
        if module not in self._kept:
            return CutRun(self._session, module).sizes(layer, call)
        returned = self._call(layer, call).returned
        shape = () if returned is None else returned.shape
        return list(shape[1:-1] if isinstance(module, nn.Linear) else shape[2:])

    def tap(self, value: Value, tap: Sequence[int]) -> list[int | None]:
        """Return where in the layer's input a tap of the kernel stands; may be in the padding."""
        arguments = _call_of(value).arguments
        if arguments is None:
            return list(value.inside[1:-1])
        return [
            tap_position(arguments, axis, place, number)
            for axis, (place, number) in enumerate(zip(value.inside[2:], tap, strict=True))
        ]

    def input_of(self, value: Value) -> Tensor:
        """Return the input of a value's layer, channels first: ``(C, *spatial)``."""
        kept = _call_of(value)
        assert kept.given is not None
        given = kept.given.detach()
        if kept.arguments is None:
            return given if given.ndim == 1 else given[value.sample].movedim(-1, 0)
        return given[value.inside[0]]

    def origins(self, value: Value, channel: int, tap: Sequence[int]) -> Origins | None:
        """Trace an input of a layer back to numbers of earlier layers; None in the padding.

        Parameters
        ----------
        value : Value
            Of `value`.
        channel : int
            An input channel of the layer.
        tap : sequence of int
            A place of the kernel.

        Raises
        ------
        ValueError
            It cannot be traced back.
        """
        if self.problem:
            raise ValueError(self.problem)
        index = self._index_of_input(value, channel, tap)
        if index is None:
            return None
        kept = _call_of(value)
        key = kept.place, index
        if key not in self._origins:
            sources = self.graph.sources(*kept.place)
            assert kept.given is not None
            self._origins[key] = self._split(kept.given, index, sources, kept.lost)
        return self._origins[key]

    def _index_of_input(
        self, value: Value, channel: int, tap: Sequence[int]
    ) -> tuple[int, ...] | None:
        """Return where an input of a value's layer stands; None in the padding."""
        kept, at = _call_of(value), self.tap(value, tap)
        index = (*value.inside[:-1], channel)
        if kept.arguments is not None:
            places = [n for n in at if n is not None]
            if len(places) < len(at):
                return None
            index = value.inside[0], channel, *places
        shape = _shape(kept.given)
        inside = all(0 <= n < size for n, size in zip(index, shape, strict=True))
        return index if inside else None

    def origins_of_output(self, number: Tensor) -> Origins:
        """Trace a number that was computed from the model's `output` back.

        The parts are in order of their weights: the one that raises the number most comes first.
        """
        if self.problem:
            raise ValueError(self.problem)
        seen = self._listener
        return self._split(number, (), seen.output_sources, seen.output_lost, by_weight=True)

    def _split(
        self,
        tensor: Tensor,
        index: tuple[int, ...],
        sources: Collection[Place],
        lost: bool,
        by_weight: bool = False,
    ) -> Origins:
        """Return a number as the sum of the parts of its sources."""
        leaves = [(place, leaf) for place in sources for leaf in self._listener.leaves[place]]
        value = float(tensor.detach()[index])
        if not (tensor.requires_grad and leaves):
            kind = "unexplained" if sources else "constant"
            return Origins(value, [], remainder=value, kind=kind)
        slopes = _slopes(tensor, index, [leaf for _, leaf in leaves])
        reached = [
            (place, leaf, slope)
            for (place, leaf), slope in zip(leaves, slopes, strict=True)
            if slope is not None
        ]
        if not reached:
            return Origins(value, [], remainder=value, kind="unexplained")
        path = _Path(tensor.grad_fn)
        nodes = path.between([leaf for _, leaf, _ in reached])
        curved = _curved(path.between([leaf for _, leaf, slope in reached if slope.any()]))
        unknown = _unknown(nodes)
        # At an upper bound such as that of ReLU6 the slope is 0, as it is where all was cut off by
        # ReLUs. The numbers behind are listed with weight 0.
        slopes = ranks = [slope for _, _, slope in reached]
        for hook, kinds in ((_pass_above, _UPPER_BOUNDS), (_pass_through, _BOUNDS)):
            bounds = [node for node in nodes if _operation_of(node) in kinds]
            if bounds and (hook is _pass_above or not any(rank.any() for rank in ranks)):
                with HookManager([(node, "tensor", partial(hook, node)) for node in bounds]):
                    passed = _slopes(tensor, index, [leaf for _, leaf, _ in reached])
                ranks = [each for each in passed if each is not None]
            changed = any((a != b).any() for a, b in zip(ranks, slopes, strict=True))
            if hook is _pass_above and changed:
                curved += dict.fromkeys(map(_operation_of, bounds))
        names = [path.names(leaf) for _, leaf, _ in reached]
        # Most slopes are zero: in a convnet a number is made of a few.
        where = [rank.flatten().nonzero().flatten() for rank in ranks]
        sizes = [len(at) for at in where]
        columns = [leaf.detach() for _, leaf, _ in reached], slopes, ranks
        values, weights, ranked = (
            torch.cat([each.flatten()[at].double() for each, at in zip(column, where, strict=True)])
            for column in columns
        )
        order = weights if by_weight else (values * ranked).abs()
        known = len(order) if by_weight else int((order != 0).sum())
        chosen = order.nan_to_num(torch.inf).topk(min(known, MOST_PARTS)).indices
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        parts = []
        for number in chosen.tolist():
            which = bisect_right(starts, number) - 1
            while not sizes[which]:
                which -= 1
            place, leaf, _ = reached[which]
            flat = where[which][number - starts[which]]
            at = tuple(int(n) for n in torch.unravel_index(flat, leaf.shape))
            numbers = float(values[number]), float(weights[number])
            sample, channel, position = self._address(place, leaf, at)
            part = Part(*place, sample, channel, position, *numbers, names[which])
            parts.append(part)
        others = known - len(parts)
        total = float((values * weights).sum())
        rest = total - sum(part.part for part in parts) if others else 0.0
        kind, by = "constant", unknown
        if lost or unknown or len(reached) < len(leaves):
            kind = "unexplained"
        elif curved:
            kind, by = "linearisation", curved
        return Origins(value, parts, others, rest, value - total, kind, by)

    def _address(
        self, place: Place, leaf: Tensor, index: tuple[int, ...]
    ) -> tuple[int, int, tuple[int, ...]]:
        """Return sample, channel and position of a number in a layer's output."""
        module = None if place[0] == INPUT else self._module(place[0])
        if isinstance(module, nn.Linear):
            *before, channel = index
            return (before[0] if before else 0), channel, tuple(before[1:])
        unbatched = leaf.ndim == len(getattr(module, "kernel_size", ())) + 1
        if unbatched:
            return 0, index[0] if index else 0, index[1:]
        return index[0], index[1], index[2:]

    def is_constant(self, value: Value, channel: int, tap: Sequence[int]) -> bool:
        """Return True if an input of a value's layer does not depend on the model's input.

        It carries biases alone: the channels that it was made of were trained away, their kernels
        being zero, or get nothing but zeros on this input. It stays the same, to the bit, when the
        model's input changes a little, and no bound has cut it off.
        """
        if self._same is None:
            self._same = self._compare()
        kept, index = _call_of(value), self._index_of_input(value, channel, tap)
        same = self._same.get(kept.place)
        if index is None or same is None or same.shape != _shape(kept.given) or not same[index]:
            return False
        found = self.origins(value, channel, tap)
        return found is not None and found.kind == "constant"

    def _compare(self) -> dict[Place, Tensor]:
        """Run the model on an input that differs a little; return which inputs stay the same."""
        session, given = copy(self._session), self._session.inputs
        draw = torch.Generator().manual_seed(0)

        def changed(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point() or tensor.layout is not torch.strided:
                return tensor
            noise = torch.rand(tensor.shape, generator=draw).to(tensor) - 0.5
            return tensor + 1e-3 * noise * tensor.abs().max()

        args, kwargs = map_tensors((given.args, given.kwargs), changed)
        session.inputs = replace(given, args=args, kwargs=kwargs)
        calls: Counter[str] = Counter()
        same: dict[Place, Tensor] = {}

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            name = self._layers[module]
            place = name, calls[name]
            calls[name] += 1
            kept = self._listener.calls.get(name, [])[place[1] : place[1] + 1]
            known = kept[0].given if kept else None
            taken = tensors((args, kwargs))
            if known is not None and taken and taken[0].shape == known.shape:
                same[place] = taken[0].detach() == known.detach()

        def observe() -> HookManager:
            calls.clear()
            same.clear()
            modules = [m for m in self._layers if not isinstance(m, torch.jit.ScriptModule)]
            return HookManager([(module, "forward_pre", before) for module in modules])

        with suppress(Exception):  # the model refuses this input: then nothing counts as constant
            session.forward(observe, grad=False)
        return same

    def edits_of(self, layer: str) -> list[Any]:
        """List the session's edits of a layer."""
        return [edit for edit in self._session.edits if edit.layer == layer]

    def without(self, value: Value, channels: Sequence[int]) -> tuple[float, Any]:
        """Run the model with channels of a layer's input set to zero in the value's call.

        Returns
        -------
        float, Any
            The value then, before the layer's own edits, and the model's output.
        """
        layer, call = value.place
        module = self._module(layer)
        off = _InputOff(module, call, channels)
        run = CutRun(self._session.edited((*self._session.edits, off)), module)  # type: ignore[arg-type]
        at = value.channel, value.position, value.sample, call
        return run.value(layer, *at).value, run.output

    def _module(self, layer: str) -> nn.Module:
        module = next((m for m, name in self._layers.items() if name == layer), None)
        if module is None:
            raise ValueError(f"Layer {layer!r} {NOT_LINEAR}")
        return module

    def _call(self, layer: str, call: int) -> _Call:
        named = f"Layer {layer!r} ({type_name(self._module(layer))})"
        calls = self._listener.calls.get(layer, [])
        if not calls:
            raise ValueError(f"{named} did not run, so it has no value to take apart.")
        if not -len(calls) <= call < len(calls):
            times = f"{len(calls)} time{'s' * (len(calls) != 1)}"
            raise ValueError(f"{named} ran {times}: call={call} is out of range.")
        return calls[call]


@dataclass(frozen=True, eq=False)
class _InputOff:
    """An edit that sets channels of a layer's input to zero in one call, see `LayerEdit`."""

    module: nn.Module
    call: int
    channels: Sequence[int]
    layer: str = ""
    of_input: bool = False

    def block(self, model: nn.Module) -> HookManager:
        """Return the ``with`` block that makes this edit."""
        calls = count()

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if next(calls) != self.call or not args:
                return None
            given = args[0]
            axis = given.ndim - 1 - len(getattr(module, "kernel_size", ()))
            off = torch.tensor([*self.channels], device=given.device)
            return (given.index_fill(axis, off, 0), *args[1:]), kwargs

        return HookManager([(self.module, "forward_pre", before)])


def _call_of(value: Value) -> _Call:
    return value.run._call(*value.place)


def _slopes(
    tensor: Tensor, index: tuple[int, ...], leaves: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    """Return the gradients of one number with respect to leaves."""
    with torch.inference_mode(False), torch.enable_grad():
        try:
            return torch.autograd.grad(tensor[index], leaves, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            reason = first_line(error)
            if "inplace operation" in reason:
                reason = "the weights have changed since the run: run the model again."
            raise ValueError(f"This number cannot be traced back: {reason}") from error


def _pass_through(node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let an activation's node in autograd's graph hand its gradient on unchanged."""
    return (*outputs, *inputs[1:])


def _pass_above(node: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let it hand its gradient on unchanged where the values reach an upper bound."""
    high = getattr(node, "_saved_max_val", None) or getattr(node, "_saved_max", None)
    if node.name().startswith("Hardsigmoid"):
        high = 3.0
    # In place, only the result is saved.
    values = getattr(node, "_saved_self", getattr(node, "_saved_result", None))
    if values is None or not isinstance(high, (int, float)):
        return inputs
    return (torch.where(values >= high, outputs[0], inputs[0]), *inputs[1:])


class _Onward(torch.autograd.Function):
    """The same memory as a leaf, in which the model may work on: a copy would double the memory."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor) -> Tensor:
        """Return a tensor that autograd does not take for a view."""
        at = leaf.storage_offset(), leaf.size(), leaf.stride()
        return leaf.new_empty(0).set_(leaf.untyped_storage(), *at)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # pyright: ignore
        """Hand the gradient on."""
        return slope


_CUT = "_OnwardBackward"


class _Path:
    """The operations between a tensor and the leaves that it was made of, in autograd's graph."""

    def __init__(self, root: Any) -> None:
        self._onward: dict[Any, list[Any]] = {root: []}  # the nearest to the root first
        self._ends: dict[int, Any] = {}
        waiting = [root]
        for node in waiting:  # grows
            self._ends[id(getattr(node, "variable", None))] = node
            for behind, _ in node.next_functions:
                if behind is None:
                    continue
                if behind not in self._onward:
                    self._onward[behind] = []
                    waiting.append(behind)
                self._onward[behind].append(node)

    def names(self, leaf: Tensor) -> list[str]:
        """List the operations on a shortest path from a leaf, in order, without views."""
        names, node = [], self._ends[id(leaf)]
        while self._onward[node]:
            node = self._onward[node][0]
            names.append(_operation_of(node))
        return [name for name in names[1:] if name not in _VIEWS]  # the first is the cut's copy

    def between(self, leaves: Sequence[Tensor]) -> list[Any]:
        """List the nodes on all paths from some leaves."""
        found = dict.fromkeys(self._ends[id(leaf)] for leaf in leaves)
        waiting = [*found]
        for node in waiting:  # grows
            for each in self._onward[node]:
                if each not in found:
                    found[each] = None
                    waiting.append(each)
        return [*found]


def _curved(nodes: Collection[Any]) -> list[str]:
    """List the operations that are not piecewise linear."""
    known, found = set(nodes), dict[str, None]()
    for node in nodes:
        name = _operation_of(node)
        several = sum(behind in known for behind, _ in node.next_functions) > 1
        own_statistics = "batch_norm" in name and getattr(node, "_saved_training", False)
        scaled = name in _PRODUCTS and not several and not own_statistics
        if not scaled and name not in _PIECEWISE_LINEAR and node.name() != _CUT:
            found[name] = None
    return [*found]


def _unknown(nodes: Collection[Any]) -> list[str]:
    """List the operations whose derivative says nothing of their values: a user's, ``round``."""
    names = {node: _operation_of(node) for node in nodes}
    own = (
        node
        for node in nodes
        if names[node] in _WITHOUT_SLOPE
        or (isinstance(node, BackwardCFunction) and type(node).__name__ != _CUT)
    )
    return [*dict.fromkeys(names[node] for node in own)]


def _operation_of(node: Any) -> str:
    """Return the name of the operation that made a node of autograd's graph.

    Examples
    --------
    >>> x = torch.ones(1, 2, 4, 4, requires_grad=True)
    >>> _operation_of(torch.nn.functional.max_pool2d(x, 2).grad_fn)
    'max_pool2d_with_indices'
    """
    name = re.sub(r"Backward\d*$", "", node.name())
    name = re.sub(r"(?<=\d)D", "d", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().removeprefix("native_")


_VIEWS = frozenset(
    """view reshape_alias unsafe_view as_strided alias expand permute transpose t select slice split
    split_with_sizes chunk unbind unsqueeze squeeze diagonal unfold clone to_copy copy_slices
    copy_backwards contiguous view_as_real torch::autograd::accumulate_grad
    torch::autograd::copy_slices torch::autograd::copy_backwards""".split()  # noqa: SIM905
)

_PIECEWISE_LINEAR = _VIEWS | frozenset(
    """add sub rsub neg sum mean cat stack index index_select gather masked_select masked_fill
    masked_scatter scatter scatter_add where flip roll repeat pixel_shuffle pixel_unshuffle
    channel_shuffle constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d cumsum tril triu trace im2col col2im
    relu threshold leaky_relu hardtanh clamp clamp_min clamp_max hardshrink softshrink rrelu
    hardsigmoid abs maximum minimum max min amax amin sort topk kthvalue median max_pool2d
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
    mkldnn_adaptive_avg_pool2d dropout fused_dropout upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d""".split()  # noqa: SIM905
)

_PRODUCTS = frozenset(
    """mul div mm bmm addmm baddbmm addmv mv dot matmul linear convolution mkldnn_linear prelu
    prelu_kernel lerp addcmul batch_norm cudnn_batch_norm miopen_batch_norm""".split()  # noqa: SIM905
)
"""Linear in one of their inputs, as long as the others depend on no layer."""

_UPPER_BOUNDS = CLAMPS | {"hardsigmoid"}

_BOUNDS = RECTIFIERS | _UPPER_BOUNDS | {"hardshrink", "softshrink", "hardswish"}

_WITHOUT_SLOPE = STEPS | {"fake_quantize_per_tensor_affine_cachemask", "fmod", "remainder"}


NOT_LINEAR = (
    "is neither a convolution nor a linear layer: contributions need a layer that is linear in its "
    "input."
)
_MORE = "does more than a convolution: it is not linear in its input."


def _shape(tensor: Tensor | None) -> torch.Size:
    return torch.Size() if tensor is None else tensor.shape


def _version(tensor: Tensor | None) -> int:
    return -1 if tensor is None or tensor.is_inference() else tensor._version


def _index(
    returned: Tensor,
    channels_last: bool,
    sample: int,
    channel: int,
    position: Sequence[int] | None,
) -> tuple[int, ...]:
    """Return a value's index in a layer's output."""
    at = tuple(position or ())
    inner = (*at, channel) if channels_last else (channel, *at)
    batched = returned.ndim == len(inner) + 1
    index = (sample, *inner) if batched else inner
    if len(index) != returned.ndim or (not batched and sample):
        shape = "×".join(map(str, returned.shape))
        raise ValueError(f"returned {shape}: position={position} is none of its map.")
    places = ["position"] * len(at)
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
        return True  # NaN and Inf are reported as they are
    eps = torch.finfo(returned.dtype).eps
    if returned.is_cuda and returned.dtype == torch.float32:
        eps = 2.0**-10  # TF32
    size = abs(terms.bias) + float(products.abs().sum())
    return abs(value - total) <= (products.numel() + 4) * eps * size
