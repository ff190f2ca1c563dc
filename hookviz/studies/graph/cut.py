"""A forward that is cut at every layer, to split values into terms and trace them back.

A hook replaces the output of each layer by a copy of a new leaf. What lies between two layers is
then a small graph of its own: the gradient of one number of a layer's input, with respect to the
leaves, tells on which channels and positions of which earlier layers it depends, with which
weight, through any normalization, activation, sum, concatenation, slice or pooling.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import isfinite
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ...hooking.arguments import is_index, plain_index
from ...hooking.handles import Hook, HookManager
from ...hooking.interrupts import Block
from ...hooking.select import all_modules, first_names, type_name
from ...hooking.storage import StorageMap, share_memory
from ...hooking.tensors import map_tensors, tensors, version_of
from ...hooking.transforms import TransformError
from ...run.errors import first_line
from ...run.recorder import ModuleCall, Operation, OperationRecorder
from ...run.session import Session
from ...tables import megabytes
from .graph import graph_from, layers_with_weights
from .kernels import computed_tensor
from .listener import INPUT, GraphListener, Place
from .onward import OnwardListener
from .origins import Origins, Path, SameMemory, split
from .terms import MemoryLayout, Terms, convolution_terms, linear_terms, tap_position

BUDGET = 2_000_000_000
"""The most bytes that the copies of a cut run may take."""

NOT_LINEAR = (
    "is neither a convolution nor a linear layer: contributions need a layer that is linear in its "
    "input."
)
_MORE = "does more than a convolution: it is not linear in its input."


@dataclass(eq=False)
class CutCall:
    """The input and the output of a layer's call."""

    place: Place
    module: nn.Module
    given: Tensor | None = None  # the input of the convolution, or of the linear layer
    arguments: dict[str, Any] | None = None  # of the convolution
    factor: Tensor | None = None  # the weight of the linear layer's product, (inputs, outputs)
    addend: Tensor | None = None  # the bias of that product
    made: MemoryLayout | None = None  # the output of the convolution
    layout: MemoryLayout | None = None  # the output of the layer, in the same memory
    returned: Tensor | None = None  # before the layer's own edits
    edited: Tensor | None = None  # after them
    lost: bool = False  # True if autograd does not follow some of the input
    refused: str = NOT_LINEAR  # why there are no terms, as the end of a sentence


@dataclass(eq=False)
class Value:
    """A layer's number and its terms."""

    run: CutRun = field(repr=False)
    call: CutCall = field(repr=False)
    sample: int
    channel: int
    position: tuple[int, ...]
    value: float  # before the layer's own edits
    terms: Terms
    edited: float | None  # after the layer's own edits
    index: tuple[int, ...]  # in the layer's output
    inside: tuple[int, ...]  # in the output of its convolution


class _CutListener(GraphListener):
    """Keeps the input and the output of layers.

    Parameters
    ----------
    layers : dict of torch.nn.Module to str
    kept : collection of torch.nn.Module
        The layers whose calls are kept.
    edited : collection of str
        The layers that have edits.
    cut : bool
        True if each layer's output is replaced by a copy of a new leaf.
    """

    def __init__(
        self,
        layers: dict[nn.Module, str],
        kept: Collection[nn.Module],
        edited: Collection[str],
        *,
        cut: bool,
    ) -> None:
        super().__init__(layers)
        self.calls: dict[str, list[CutCall]] = {}
        self.leaves: dict[Place, list[Tensor]] = {}
        self.output: Any = None
        self.output_sources: list[Place] = []
        self.output_lost = False
        self.bytes = 0
        self._kept, self._edited, self._cut = kept, edited, cut
        # With the modules in a layer: their operations, as a parametrization's, are not its own.
        self.modules = {inner for layer in layers for inner in layer.modules()}
        self._fresh: list[Tensor] = []  # the leaves of the layer that has just run
        self._shared = StorageMap[list[Tensor]]()
        self._running: dict[ModuleCall, CutCall] = {}
        self._made: tuple[Tensor, int] | None = None  # by the latest convolution, and its version
        self._lost = StorageMap[bool]()

    def hooks(self, recorder: OperationRecorder, model: nn.Module) -> Iterator[Hook]:
        """Yield the hooks that cut the run; the recorder's own must come after them."""

        def cut(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point() or tensor.layout is not torch.strided:
                return tensor
            self.bytes += tensor.numel() * tensor.element_size()
            if self.bytes > BUDGET:
                return tensor
            self._fresh.append(tensor.detach().requires_grad_())
            return SameMemory.apply(self._fresh[-1])

        def begin(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if self.leaves:
                return None  # a model that calls itself
            numbers = count()

            def own(tensor: Tensor) -> Tensor:
                self._fresh = self.leaves[INPUT, next(numbers)] = []
                return cut(tensor)

            with recorder.silent(), torch.enable_grad():
                return map_tensors((args, kwargs), own)

        def raw(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            kept, returned = self._running.get(self._open[-1]), tensors(output)
            if kept is not None and len(returned) == 1:
                kept.refused = self._complete(kept, returned[0].detach())

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

    def keep(self, tensor: Tensor) -> Tensor:
        """Return the tensor, which gets its own memory before an operation overwrites it."""
        shared = self._shared.get(tensor)
        if shared is None:
            self._shared[tensor] = shared = []
        shared.append(tensor)
        return tensor

    def before(self, operation: Operation) -> None:
        """Copy what an operation is about to overwrite."""
        for each in operation.written if operation.mutates else ():
            for tensor in self._shared.pop(each) or ():
                tensor.data = tensor.data.clone()

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Keep the input of a linear layer."""
        super().enter(call, given, again)
        if call.module in self._kept:
            self._running[call] = kept = CutCall((call.layer, call.call), call.module)
            kept.lost = any(map(self.is_lost, given))
            if given and isinstance(call.module, nn.Linear) and not given[0].is_nested:
                kept.given = self._own(given[0])

    def after(self, operation: Operation) -> None:
        """Keep the input of a layer's convolution, or the factors of its product."""
        super().after(operation)
        if operation.name == "convolution" and operation.call in self._running:
            kept, made = self._running[operation.call], operation.output
            kept.given = self._own(operation.argument["input"])
            kept.arguments = operation.argument | {"input": kept.given}
            self._made = made, version_of(made)
        elif operation.name in ("mm", "addmm") and operation.call in self._running:
            # A parametrization may compute another weight when the module is asked again.
            kept, argument = self._running[operation.call], operation.argument
            kept.factor = argument["mat2"].detach()
            kept.addend = argument["self"].detach() if operation.name == "addmm" else None

    def _own(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:
            return tensor.detach().to_dense()
        return self.keep(SameMemory.apply(tensor) if self._cut else tensor.detach())

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Keep the output of a layer, or of the model."""
        super().leave(call, returned, again)
        if call.module in self._layers and self._cut:
            self.leaves[call.layer, call.call] = [self.keep(leaf) for leaf in self._fresh]
        if call in self._running:
            kept = self._running.pop(call)
            self.calls.setdefault(call.layer, []).append(kept)
            if call.layer in self._edited and returned:
                kept.edited = returned[0].detach().clone()
            elif kept.returned is not None:
                kept.returned = self._fresh[0] if self._fresh else self.keep(kept.returned)
            self._made, self._fresh = None, []
        if not self._open:
            numbers = sorted(self.sources_of(self._nodes_of(returned)))
            self.output_sources = [(self.nodes[n].layer, self.nodes[n].call) for n in numbers]
            self.output_lost = any(map(self.is_lost, returned))

    def _complete(self, kept: CutCall, returned: Tensor) -> str:
        """Note a layer's output; return why it is not linear in its input, or an empty string."""
        kept.returned = returned
        if returned.is_nested:
            return "returned a nested tensor: contributions need a plain one, such as one sample."
        if returned.is_complex():
            return "computes with complex numbers: contributions need real ones."
        if "quantized" in type(kept.module).__module__:
            return (
                "is quantized: it rounds in between, so no sum of products is its value; "
                "take the float model apart instead."
            )
        made, version = self._made or (None, 0)
        if made is None:
            return "" if isinstance(kept.module, nn.Linear) else NOT_LINEAR
        if not share_memory(made, returned):
            return _MORE
        if version_of(made) != version:
            return "overwrites what its convolution made: it is not linear in its input."
        kept.made, kept.layout = MemoryLayout.of(made), MemoryLayout.of(returned)
        return ""

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, int]]
    ) -> int:
        """Note where values leave autograd's graph."""
        if self._cut and any(self.is_lost(tensor) for tensor, _ in reads):
            self._lost[made] = True
        return super().mark_of_result(operation, made, reads)

    def is_lost(self, tensor: Tensor) -> bool:
        """Return True if autograd does not follow some of the tensor's values."""
        detached = tensor.is_floating_point() and not tensor.requires_grad
        return tensor in self._lost or (detached and tensor in self.marks)


class CutRun:
    """A forward whose layers' inputs and outputs are kept, to take their numbers apart.

    Parameters
    ----------
    session : Session
        Its model runs once, with its edits.
    only : torch.nn.Module, optional
        Keep only this layer: its numbers are taken apart, but not traced back.
    hooks : sequence of Hook
        Hooks that change the run.

    Attributes
    ----------
    graph : Graph
    problem : str
        Why numbers cannot be traced back, as a sentence.

    Examples
    --------
    >>> import hookviz
    >>> model, x = hookviz.demo_model(), hookviz.demo_images()[6]
    >>> run = CutRun(Session.of(model, x))
    >>> value = run.value("layer3.1.conv2", channel=17, position=(5, 8))
    >>> value.terms.kernel.shape[1:]
    torch.Size([3, 3])
    >>> origins = run.origins(value, channel=3, tap=(1, 1))
    >>> [(part.layer, part.channel, part.position, part.path) for part in origins.parts]
    [('layer3.1.conv1', 3, (5, 8), ['batch_norm', 'relu'])]
    """

    def __init__(
        self, session: Session, only: nn.Module | None = None, hooks: Sequence[Hook] = ()
    ) -> None:
        self._session, self._hooks = session, hooks
        self._names = first_names(session.model)
        self._layers = layers_with_weights(self._names)
        self._modules = all_modules(session.model)
        self._look_at_mode()
        self.problem = ""
        self._origins: dict[Any, Origins] = {}
        self._paths: dict[Tensor, Path] = {}  # to the inputs of layers
        if only is not None:
            self._layers.setdefault(only, self._names[only])
            self._run([only], cut=False)
            return
        try:
            self._run(self._layers, cut=True)
        except TransformError:
            raise
        except Exception as error:
            self.problem = f"Autograd cannot follow this model: {first_line(error)}"
        else:
            if self._listener.bytes > BUDGET:
                self.problem = (
                    "Numbers cannot be traced back: the outputs of all layers take more than "
                    f"{megabytes(BUDGET)}. Give fewer or smaller inputs."
                )
        if self.problem:
            self._run([], cut=False)  # raises if the model itself does

    def _run(self, kept: Collection[nn.Module], *, cut: bool) -> None:
        model, edited = self._session.model, {edit.layer for edit in self._session.edits}
        runs: list[tuple[_CutListener, OnwardListener]] = []

        def observe() -> Block:
            listener = _CutListener(self._layers, kept, edited, cut=cut)
            runs.append((listener, OnwardListener(self._layers, kept, listener.keep)))
            recorder = OperationRecorder(*runs[-1], names=self._names, backward=False)
            hooks = *self._hooks, *listener.hooks(recorder, model)
            return Block([HookManager(hooks), recorder])

        self._session.forward(observe, grad=cut)
        self._kept, (self._listener, self._onward) = kept, runs[-1]
        self._versions = {each: version_of(each) for each in model.parameters()}
        self.graph = graph_from(self._session, self._layers, self._listener)

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
        self._look_at_mode()
        channel, sample = plain_index(channel), plain_index(sample)
        if isinstance(position, Iterable):  # of tensors, as from `torch.unravel_index`
            position = tuple(map(plain_index, position))
        kept, named = self._call(layer, call), f"Layer {layer!r} ({type_name(module)})"
        if kept.refused:
            raise ValueError(f"{named} {kept.refused}")
        if any(self._versions[each] != version_of(each) for each in module.parameters()):
            raise ValueError(f"{named} has new weights since the run: run the model again.")
        assert kept.returned is not None and kept.given is not None
        try:
            index = _index(kept.returned, kept.arguments, sample, channel, position)
        except ValueError as error:
            raise ValueError(f"{named} {error}") from None
        if kept.arguments is not None and kept.made is not None and kept.layout is not None:
            inside = kept.made.index(kept.layout.offset(index))
            if inside is None:
                raise ValueError(f"{named} {_MORE}")
            terms = convolution_terms(kept.arguments, inside[0], inside[1], inside[2:])
        else:
            weight, bias = (computed_tensor(self._session, module, n) for n in ("weight", "bias"))
            if kept.factor is not None and kept.factor.shape[1] == kept.returned.shape[-1]:
                weight, bias = kept.factor.mT, bias if kept.addend is None else kept.addend
            assert weight is not None
            inside, terms = index, linear_terms(kept.given[index[:-1]], weight, bias, channel)
        value = float(kept.returned.detach()[index])
        if not _adds_up(value, terms, kept.returned):
            does = "does more than multiply and add: it is not linear in its input."
            raise ValueError(f"{named} {does}")
        edited = None if kept.edited is None else float(kept.edited[index])
        place = tuple(position or ())
        return Value(self, kept, sample, channel, place, value, terms, edited, index, inside)

    def after(self, value: Value) -> list[tuple[str, float]]:
        """List the operations that a value goes through until a layer takes it, with its values."""
        steps = value.run._onward.steps[value.call.place]
        return [(name, float(values[value.index])) for name, values in steps]

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
        arguments, place = value.call.arguments, value.inside
        if arguments is None:
            return list(place[1:-1])
        return [tap_position(arguments, n, place[n + 2], number) for n, number in enumerate(tap)]

    def input_of(self, value: Value) -> Tensor:
        """Return the input of a value's layer, channels first: ``(C, *spatial)``."""
        assert value.call.given is not None
        given = value.call.given.detach()
        if value.call.arguments is None:
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
            A position in the kernel.

        Raises
        ------
        ValueError
            It cannot be traced back.
        """
        index, given = self._index_of_input(value, channel, tap), value.call.given
        if index is None or given is None:
            return None
        key = value.call, index
        if key not in self._origins:
            sources = self.graph.sources(*value.call.place)
            if given not in self._paths:
                self._paths[given] = Path(given)
            path, lost = self._paths[given], value.call.lost
            self._origins[key] = self._split(given, index, path, sources, lost=lost)
        return self._origins[key]

    def _index_of_input(
        self, value: Value, channel: int, tap: Sequence[int]
    ) -> tuple[int, ...] | None:
        """Return the index of an input of a value's layer; None in the padding."""
        index: tuple[int | None, ...] = (*value.inside[:-1], channel)
        if value.call.arguments is not None:
            index = value.inside[0], channel, *self.tap(value, tap)
        assert value.call.given is not None
        inside = [
            place
            for place, size in zip(index, value.call.given.shape, strict=True)
            if place is not None and 0 <= place < size
        ]
        return tuple(inside) if len(inside) == len(index) else None

    def origins_of_output(self, number: Tensor) -> Origins:
        """Trace a number that was computed from the model's `output` back.

        The parts are in order of their weights: the one that raises the number most comes first.
        """
        self._look_at_mode()
        seen = self._listener
        lost = seen.output_lost
        path = Path(number)
        return self._split(number, (), path, seen.output_sources, lost=lost, by_weight=True)

    def _look_at_mode(self) -> None:
        """Note the mode, once for each question: `_split` answers it in several parts."""
        self._is_training = any(module.training for module in self._modules)

    def _split(
        self,
        tensor: Tensor,
        index: tuple[int, ...],
        path: Path,
        sources: Sequence[Place],
        **how: bool,
    ) -> Origins:
        if self.problem:
            raise ValueError(self.problem)
        leaves = {place: self._listener.leaves[place] for place in sources}
        # Checkpointing runs layers again in this backward: in the mode and with the edits of the
        # forward, and without changing the model.
        session = self._session
        if not (session.edits or self._is_training):
            return split(tensor, index, path, leaves, self._address, **how)
        # Without checkpointing no layer runs here, and each edit would warn of that.
        quiet = warnings.catch_warnings(action="ignore", category=RuntimeWarning)
        with Block([quiet, session.active()]):
            return split(tensor, index, path, leaves, self._address, **how)

    def _address(
        self, place: Place, leaf: Tensor, index: tuple[int, ...]
    ) -> tuple[int, int, tuple[int, ...]]:
        """Return sample, channel and position of a number in a layer's output."""
        module = None if place[0] == INPUT else self._module(place[0])
        if isinstance(module, nn.Linear):
            *before, channel = index
            return (before[0] if before else 0), channel, tuple(before[1:])
        if leaf.ndim == len(getattr(module, "kernel_size", ())) + 1:  # without a batch
            return 0, index[0] if index else 0, index[1:]
        return index[0], index[1], index[2:]

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
        layer, call = value.call.place
        module, calls = self._module(layer), count()

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if next(calls) != call or not args:
                return None
            axis = args[0].ndim - 1 - len(getattr(module, "kernel_size", ()))
            off = torch.tensor([*channels], device=args[0].device)
            return (args[0].index_fill(axis, off, 0), *args[1:]), kwargs

        run = CutRun(self._session, module, [(module, "forward_pre", before)])
        at = value.channel, value.position, value.sample, call
        return run.value(layer, *at).value, run.output

    def _module(self, layer: str) -> nn.Module:
        module = next((m for m, name in self._layers.items() if name == layer), None)
        if module is None:
            raise ValueError(f"Layer {layer!r} {NOT_LINEAR}")
        return module

    def _call(self, layer: str, call: int) -> CutCall:
        named = f"Layer {layer!r} ({type_name(self._module(layer))})"
        calls = self._listener.calls.get(layer, [])
        if not calls:
            raise ValueError(f"{named} did not run, so it has no value to take apart.")
        if not is_index(call, len(calls), from_end=True):
            times = f"{len(calls)} time{'s' * (len(calls) != 1)}"
            raise ValueError(f"{named} ran {times}: call={call!r} is out of range.")
        return calls[call]


def _index(
    returned: Tensor,
    arguments: dict[str, Any] | None,
    sample: int,
    channel: int,
    position: Sequence[int] | None,
) -> tuple[int, ...]:
    """Return a value's index in a layer's output."""
    try:
        at = () if position is None else tuple(position)
    except TypeError:
        raise ValueError(f"has no position {position!r}: give a tuple of whole numbers.") from None
    channels_last = arguments is None
    sizes = returned.shape[1:-1] if channels_last else returned.shape[2:]
    if sizes and not at:
        words = {1: "(index,)", 2: "(row, column)", 3: "(depth, row, column)"}
        how = words.get(len(sizes), "with an index for each")
        raise ValueError(f"has {' × '.join(map(str, sizes))} positions: pass position={how}.")
    inner = (*at, channel) if channels_last else (channel, *at)
    batched = returned.ndim == len(inner) + 1
    if arguments is not None:  # a convolution's dimensions are known, a linear layer takes any
        rest = returned.ndim - arguments["weight"].ndim
        batched = rest == 0 if rest in (-1, 0) else batched
    index = (sample, *inner) if batched else inner
    if len(index) != returned.ndim or (not batched and sample):
        shape = "×".join(map(str, returned.shape))
        raise ValueError(f"returned {shape}: position={position} is none of its map.")
    places = ["position"] * len(at)
    inside = [*places, "channel"] if channels_last else ["channel", *places]
    names = ["sample"] * batched + inside
    for name, each, size in zip(names, index, returned.shape, strict=True):
        if not isinstance(each, Integral) or isinstance(each, bool):
            raise ValueError(f"has no {name} {each!r}: give a whole number.")
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
