"""One forward and one backward under observation: all that the checks look at."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...attribution.attention import head_records
from ...attribution.attention_listener import Attended, AttentionListener
from ...attribution.heads import may_attend
from ...hooking.checkpoint import FORWARD, current_backward
from ...hooking.select import type_name
from ...hooking.storage import StorageMap
from ...hooking.tensors import at_least_float32
from ...hooking.transforms import TransformError, is_wrapped
from ...run.operations import CLAMPS, LAYER_KINDS, RECTIFIERS, STEPS, Kind
from ...run.recorder import Listener, ModuleCall, Operation, OperationRecorder, labelled
from ...run.session import Session
from ...run.target import Target
from .domains import cause_of
from .loss_scale import LossScale
from .operations import (
    HALF,
    LOOKS,
    OperationContext,
    OperationRecord,
    Place,
    Range,
    culprit,
    is_batchnorm,
    look_at_precision,
    origin_of,
    range_of,
    ranges_of_channels,
    record_of,
)

SOME = 16
"""So many numbers of an input are not all the same by chance."""

_CUTTING = ("detach", "local_scalar_dense", "lift_fresh")


@dataclass(eq=False)
class LayerCall:
    """One call of one module, as its hooks saw it.

    Attributes
    ----------
    layer, type : str
    call : int
    module : torch.nn.Module
    given, shapes : tuple of tuple of int
        The shapes of the tensors that it took and gave out.
    made_by : tuple of OperationRecord
        What made the tensors that it took.
    size, gradient : float or None
        Root mean square of its first output, if it has weights, and Euclidean norm of the gradient
        that reached it, if there are no modules in it; None where there is none.
    tracked : bool
        True if autograd follows what it gave out.
    overwritten : OperationRecord or None
        What wrote over what it gave out.
    no_grad : tuple of str and int
        File and line of the ``torch.no_grad()`` under which its weights were read.
    leaf : bool
        True if there are no modules in it.
    """

    layer: str
    type: str
    call: int
    module: nn.Module
    given: tuple[tuple[int, ...], ...]
    made_by: tuple[OperationRecord, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    size: float | None = None
    gradient: float | None = None
    tracked: bool = False
    finished: bool = False
    overwritten: OperationRecord | None = None
    no_grad: tuple[str, int] = ("", 0)

    @property
    def leaf(self) -> bool:
        return next(self.module.children(), None) is None

    @property
    def place(self) -> Place:
        return self.layer, self.call


@dataclass(eq=False)
class Cut:
    """A place where autograd's graph ends, or where every slope is 0.

    Attributes
    ----------
    record : OperationRecord
        A detach, numbers that are taken out, or a result without a slope, such as a comparison's.
    after : int
        So many calls of layers had begun.
    flat : bool
        True if the graph goes on, and each gradient in it is 0, as behind ``round``.
    apart : bool
        True for a product with zeros of another line, as a recurrence's first state.
    behind : frozenset of str
        The layers in the graph up to there; empty if it is not known.
    """

    record: OperationRecord
    after: int
    flat: bool = False
    apart: bool = False
    behind: frozenset[str] = frozenset()
    node: Any = field(default=None, repr=False)  # autograd's, until the run is over

    def find_layers(self) -> None:
        """Find the layers behind it, and let go of the graph."""
        if self.node is not None:
            labels = (label for _, label in labelled(self.node))
            self.behind = frozenset(each.call.layer for each in labels if each.call is not None)
            self.node = None


@dataclass(eq=False)
class Observation:
    """The record of a model in one forward and one backward."""

    model: nn.Module
    names: dict[nn.Module, str]
    calls: list[LayerCall] = field(default_factory=list)
    operations: list[OperationRecord] = field(default_factory=list)
    sources: list[OperationRecord] = field(default_factory=list)  # weights and inputs
    counted: int = 0  # operations beside those
    samples: int = 1  # of the batch
    blank: Range | None = None  # of the input, if all of it is one number
    gradient_norms: dict[str, float] = field(
        default_factory=dict
    )  # parameters -> their gradients' norms
    used: set[str] = field(default_factory=set)  # parameters that an operation read
    optimized: list[set[str]] = field(default_factory=list)  # parameters of each optimizer
    drew: bool = False  # whether a lone random number was drawn, as to leave out a layer
    decided: set[str] = field(default_factory=set)  # layers whose forward reads its numbers
    chosen: bool = False  # whether the model returned whole numbers, as a detector its labels
    backward: bool = False  # whether there was one
    cuts: list[Cut] = field(default_factory=list)
    foreign: dict[str, OperationRecord] = field(default_factory=dict)  # weights of no module
    graded: bool = False  # whether a gradient came to the output, be it 0
    unmoved: bool = False  # whether it returned the same for samples that differ
    sloped: bool = False  # whether a gradient other than 0 came to the output
    alike: bool = False  # whether one and the same gradient came to the output of all samples
    zeroed: OperationRecord | None = None  # what made the score of a product with 0
    score: float | None = None
    judged: bool = True  # whether the score is a loss, or what else a user gives
    write: tuple[OperationRecord, str, str] | None = None  # an in-place error's, who needed it
    raised: OperationRecord | None = None  # the operation that failed
    error: Exception | None = None  # the model's own
    heads: list[dict[str, Any]] = field(default_factory=list)  # see `head_records`
    suspect: bool = False  # whether a gradient was not finite, or too large for its norm
    scale: LossScale | None = None  # without which the gradients are finite

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """The modules by their names."""
        return {name: module for module, name in self.names.items()}

    @cached_property
    def writers(self) -> dict[str, OperationRecord]:
        """By layer, the last of its forward's operations that made channels."""
        looked = (each for each in self.operations if "channels" in each.facts)
        return {each.layer: each for each in looked}


class RunObserver(Listener):
    """Writes down a forward and a backward: operations, calls of layers, gradients.

    Parameters
    ----------
    model : torch.nn.Module
        In its wrappers, or without.
    begin : callable, optional
        Called when the hooks are on, before the model runs.
    thorough : bool
        True if each operation of the backward is looked at, too, and not only what reaches layers.

    Attributes
    ----------
    recorder : OperationRecorder
        The block within which it listens.
    found : Observation
    """

    labels_backward = True

    def __init__(
        self,
        model: nn.Module,
        begin: Callable[[], object] = lambda: None,
        thorough: bool = True,
    ) -> None:
        self._thorough = thorough
        self._attention: list[AttentionListener] = []
        if not thorough and may_attend(model):
            self._attention.append(AttentionListener(model, reduce=_heads))
        self.recorder = OperationRecorder(self, *self._attention, model=model)
        self.found = Observation(model, self.recorder.names)
        self._start = begin
        self._calls: dict[ModuleCall, LayerCall] = {}
        self._returned: StorageMap[LayerCall] = StorageMap()
        self._writers: StorageMap[OperationRecord] = StorageMap()
        self._unread: StorageMap[list[str]] = StorageMap()  # parameters, by their names
        self._held: StorageMap[str] = StorageMap()  # tensors that modules keep beside those
        self._normed = False  # whether a BatchNorm has run
        self._differ = False  # whether the first two samples do
        self._drawn = ""  # the state of Python's and NumPy's random numbers
        self._kept = 0  # the address of a result that autograd is about to keep

    def begin(self, recorder: OperationRecorder) -> None:
        self._start()
        self._drawn = _drawn()
        for name, parameter in self._parameters():
            if parameter.requires_grad:
                recorder.add(parameter, "tensor", partial(self._arrived_at_weights, name))
            self._unread[parameter] = [*(self._unread.get(parameter) or ()), name]
        self._note_sources()
        for owner, name, tensor in plain_tensors(self.found.names):
            if tensor not in self._unread and tensor not in self._writers:
                owned = f"{name!r} of {owner!r}" if owner else repr(name)
                self._held[tensor] = f"{owned}, shape {tuple(tensor.shape)}"
        # What autocast has cached before would stand in for the weights.
        recorder.exit_stack.callback(
            torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled()
        )
        torch.set_autocast_cache_enabled(False)

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        root = next(iter(self.found.names))
        return list(root.named_parameters())

    def _note_sources(self) -> None:
        """Weights and buffers: numbers that no operation made."""
        root = next(iter(self.found.names))
        for kind, tensors in (("weights", self._parameters()), ("buffer", root.named_buffers())):
            for name, tensor in tensors:
                extent = range_of(tensor)
                if extent is not None:
                    self._source(kind, name, tensor, extent)

    def _source(self, kind: str, name: str, tensor: Tensor, extent: Range) -> None:
        layer = name.rpartition(".")[0]
        meant = kind == "buffer" and not extent.nan  # a mask that is kept as a buffer
        source = OperationRecord(
            -1, kind, layer, made=(extent,), constant=meant, facts={"name": name}
        )
        self._writers[tensor] = source
        self.found.sources.append(source)

    def end(self) -> None:
        """Take over what the heads looked at, and whether random numbers were drawn."""
        self.found.drew |= self._drawn != _drawn()
        for attended in [each for listener in self._attention for each in listener.found]:
            self.found.heads += [each | {"layer": attended.name} for each in attended.reduced or ()]

    # Calls of layers

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        if not self.found.calls:
            self._note_inputs(given)
        if again:
            return
        makers = (self._writers.get(tensor) for tensor in given)
        made_by = tuple(dict.fromkeys(each for each in makers if each is not None))
        shapes = tuple(tuple(tensor.shape) for tensor in given)
        kind = type_name(call.module)
        look = LayerCall(call.layer, kind, call.call, call.module, shapes, made_by)
        self._calls[call] = look
        self.found.calls.append(look)

    def _note_inputs(self, given: list[Tensor]) -> None:
        self.found.samples = batch_size(given)
        batches = (each for each in given if each.ndim and len(each) == self.found.samples)
        self._differ = any(not _alike(each, 2) for each in batches if _is_plain(each))
        ranges = [range_of(tensor) for tensor in given]
        for tensor, extent in zip(given, ranges, strict=True):
            if extent is not None:
                self._source("input", "input", tensor, extent)
        flat = all(e is not None and e.finite and e.low == e.high for e in ranges)
        if flat and any(tensor.numel() >= SOME for tensor in given):
            self.found.blank = ranges[0]

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        for tensor in returned:
            self.reaches(tensor)
        look = self._calls[call]
        look.finished = True
        if call.module is next(iter(self.found.names)):
            self.found.chosen |= any(tensor.dtype is torch.int64 for tensor in returned)
        if not again:
            look.shapes = tuple(tuple(tensor.shape) for tensor in returned)
            look.tracked = any(tensor.requires_grad for tensor in returned)
            for tensor in returned:  # from now on what overwrites it is noted
                if tensor.layout is torch.strided and tensor not in self._returned:
                    self._returned[tensor] = look
        floating = [t for t in returned if t.is_floating_point() and t.numel()]
        if not floating:
            return
        first = floating[0]
        if look is self.found.calls[0]:
            for each in floating:
                if each.requires_grad and each.shape[:1] == (self.found.samples,):
                    self.recorder.add(each, "tensor", self._arrived_at_output)
        if look is self.found.calls[0] and first.shape[:1] == (self.found.samples,):
            self.found.unmoved = self._differ and _is_plain(first) and _alike(first, len(first))
        if next(look.module.parameters(recurse=False), None) is not None:
            look.size = _norm(first) / first.numel() ** 0.5
        if first.requires_grad:
            # Before any weights stands the input, which may be the truth: nothing learns from it.
            learns = bool(self.found.used) or not self._unread
            self.recorder.add(first, "tensor", partial(self._arrived, look, learns))

    def _arrived_at_output(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            with self.recorder.silent():
                rows = gradient.detach().reshape(len(gradient), -1)
                self.found.sloped |= bool((rows != 0).any())
                alike = bool((rows == rows[:1]).all())
                self.found.alike = alike and (self.found.alike or not self.found.graded)
                self.found.graded = True

    # Gradients

    def _arrived(self, look: LayerCall, learns: bool, gradient: Tensor | None) -> None:
        if gradient is not None:
            with self.recorder.silent():
                if look.leaf:
                    look.gradient = self._norm(gradient) if learns else _norm(gradient)
                if learns:
                    self.reaches(gradient)

    def _arrived_at_weights(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None:
            self.found.backward = True
            with self.recorder.silent():
                self.found.gradient_norms[name] = self.found.gradient_norms.get(
                    name, 0.0
                ) + self._norm(gradient)
                self.reaches(gradient)

    def _norm(self, gradient: Tensor) -> float:
        norm = _norm(gradient)
        self.found.suspect |= not math.isfinite(norm)
        return norm

    def reaches(self, tensor: Tensor) -> None:
        """Mark the origin of NaN and Inf as having propagated to this tensor."""
        writer = self._writers.get(tensor)
        if writer is None or writer.finite:
            return
        extent = range_of(tensor)  # maybe a part of the memory that is finite
        origin = writer.origin or writer
        if extent is not None and not extent.finite and (extent.nan or not origin.constant):
            origin.propagated = True
            origin.facts.setdefault("as", "nan" if extent.nan else "inf")

    # Operations

    def before(self, operation: Operation) -> None:
        if operation.phase == "backward" and not self._thorough:
            operation.notes[self] = None
            return
        record = record_of(operation, len(self.found.operations))
        given = operation.inputs
        for tensor in given:
            self.found.used.update(self._unread.get(tensor) or ())
        writers = [self._writers.get(each) for each in given]
        self._note_foreign(operation, record)
        if operation.mutates and writers and record.phase == "forward":
            record.facts["overwrote"] = writers[0]
        rectifies = operation.name in RECTIFIERS  # NaN and Inf stay what they are
        # The values will be gone. What a sum overwrites is known by its ranges.
        known = operation.name == "add" and all(w is not None and w.made for w in writers)
        if operation.mutates and not (record.unwritten or rectifies or known):
            given = [each.clone() if each.is_floating_point() else each for each in given]
        operation.notes[self] = record, given, writers

    def failed(self, operation: Operation) -> None:
        record, given, _ = operation.notes[self] or (record_of(operation, 0), operation.inputs, [])
        record.given = tuple(filter(None, map(range_of, given)))
        self.found.raised = record

    def after(self, operation: Operation) -> None:
        returned = operation.outputs
        if operation.notes[self] is None:
            self._note_lightly(operation, returned)
            return
        record, given, writers = operation.notes[self]
        if record.phase == "forward" and record.file:
            self._note_cut(record, operation)
        self._kept = address_of_result(operation)
        if record.phase == "forward" and operation.call is None and by_zero(operation):
            self.found.zeroed = record
        if operation.name in _DECIDING and operation.call is not None:
            self.found.decided.add(operation.call.layer)
        if operation.is_view or not returned:
            return
        if operation.kind is Kind.RANDOM and returned[0].numel() == 1:
            self.found.drew = True
        if not record.unwritten:
            record.made = self._ranges(record, returned, writers)
        if not record.finite:
            before = [range_of(each) for each in given]
            if operation.mutates and operation.name == "add" and writers[0] is not None:
                before[0] = writers[0].made[0] if writers[0].made else before[0]
            record.given = tuple(filter(None, before))
            record.origin = origin_of(record, before, writers)
            if record.origin is record:
                maker = next((each.name for each in writers if each is not None), "")
                record.cause = cause_of(operation, given, record.made, maker)
        elif not record.again:
            self._note_closed(record, given)
            self._add_facts(OperationContext(record, operation, given, writers, not self._normed))
            self._normed |= is_batchnorm(record)
        self.found.operations.append(record)
        for tensor in returned:
            self._writers[tensor] = record

    def _note_lightly(self, operation: Operation, returned: list[Tensor]) -> None:
        """Count an operation of a backward, which the layers' gradients tell enough of."""
        if not operation.is_view and returned:
            self.found.counted += 1
            if returned[0].dtype in HALF and not operation.mutates:
                record = record_of(operation, len(self.found.operations))
                record.made = tuple(filter(None, map(range_of, returned)))
                if record.finite and not record.again:
                    look_at_precision(
                        OperationContext(record, operation, operation.inputs, [], False)
                    )
                self.found.operations.append(record)
                self.found.counted -= 1

    def _ranges(
        self,
        record: OperationRecord,
        returned: list[Tensor],
        writers: list[OperationRecord | None],
    ) -> tuple[Range, ...]:
        """Return the ranges of an operation's output; for maps, of each channel, in one pass."""
        first, *others = returned
        by_channel = ranges_of_channels(record, first, writers[0] if writers else None)
        if by_channel is None:
            return tuple(filter(None, map(range_of, returned)))
        record.facts["ranges"] = by_channel
        low, high = torch.stack([by_channel[0].amin(), by_channel[1].amax()]).tolist()
        whole = Range(low, high, tuple(first.shape), first.dtype)
        return whole, *filter(None, map(range_of, others))

    def _add_facts(self, seen: OperationContext) -> None:
        if seen.record.overwrites and seen.record.phase == "forward":
            look = self._returned.pop(seen.output)  # it is another layer's from now on
            if look is not None:
                look.overwritten = seen.record
        for look_at in LOOKS:
            look_at(seen)

    # Where the graph ends

    def _note_cut(self, record: OperationRecord, operation: Operation) -> None:
        given = operation.inputs[0] if operation.inputs else None
        if given is None or current_backward() != FORWARD:
            return
        if not torch.is_grad_enabled():
            self._note_no_grad(operation)
            return
        begun = len(self.found.calls)
        writers = [self._writers.get(each) for each in operation.inputs]
        if by_zero(operation) or _by_zeros(operation, writers):
            graded = next(each for each in operation.inputs if each.requires_grad)
            zeros = [each for each in writers if each is not None and each.name in _ZEROS]
            apart = bool(zeros) and all(each.line != record.line for each in zeros)
            self.found.cuts.append(Cut(record, begun, True, apart, node=graded.grad_fn))
            return
        if operation.name == "lift_fresh":  # torch.tensor, of what tolist() returned, maybe
            if operation.call is not None and given.is_floating_point() and given.ndim:
                self.found.cuts.append(Cut(record, begun))
            return
        flat = operation.name in STEPS
        if not given.requires_grad or not (flat or cuts(operation)) or is_kept(given, self._kept):
            return
        self.found.cuts.append(Cut(record, begun, flat, node=given.grad_fn))

    def _note_closed(self, record: OperationRecord, given: list[Tensor]) -> None:
        """Note a clamp that is given nothing but numbers beyond its ends; 0 is told as dead."""
        if record.name not in CLAMPS or record.phase != "forward" or not given or not record.made:
            return
        made, learns = record.made[0], torch.is_grad_enabled() and given[0].requires_grad
        if not learns or not made.low == made.high != 0 or math.prod(made.shape) < SOME:
            return
        extent = range_of(given[0])
        if extent is not None and (extent.low > made.high or extent.high < made.low):
            begun = len(self.found.calls)
            self.found.cuts.append(Cut(record, begun, True, node=given[0].grad_fn))

    def _note_no_grad(self, operation: Operation) -> None:
        look = self._calls.get(operation.call) if operation.call is not None else None
        graded = [each for each in operation.inputs if each.requires_grad]
        if look is None or look.no_grad[0] or not graded:
            return
        look.no_grad = operation.no_grad_line
        behind = next((each.grad_fn for each in graded if each.grad_fn is not None), None)
        if behind is not None:
            record = OperationRecord(0, "no_grad", look.layer, look.call, "forward", *look.no_grad)
            self.found.cuts.append(Cut(record, len(self.found.calls), node=behind))

    def _note_foreign(self, operation: Operation, record: OperationRecord) -> None:
        """Weights that are read in the model and are in none of its modules."""
        if operation.call is None or record.phase == "backward":
            return
        for each in operation.inputs:
            held = self._held.get(each)
            if held is not None and operation.kind in LAYER_KINDS and each.ndim > 1:
                record.facts["plain"] = held
                self.found.foreign.setdefault(held, record)
                continue
            own = type(each) is nn.Parameter or held is not None
            if own and each.requires_grad and each.is_leaf and not self._unread.get(each):
                self.found.foreign.setdefault(str(id(each)), record)


def batch_size(given: Sequence[Tensor]) -> int:
    """Return the number of samples, taken from the first floating-point input."""
    several = [each for each in given if each.ndim]
    floating = (each for each in several if each.is_floating_point())
    first = next(floating, several[0] if several else None)
    return 1 if first is None else len(first)


def _is_plain(tensor: Tensor) -> bool:
    """Return True if all numbers of a tensor are here, in memory of its own kind."""
    here = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested
    return here and not is_wrapped(tensor)


def _alike(batch: Tensor, count: int) -> bool:
    """Return True if the first so many samples of a batch are the same."""
    first = batch.detach()[:count]
    return bool((first[:2] == first[:1]).all()) and bool((first == first[:1]).all())


_DECIDING = {"local_scalar_dense", "nonzero"}
"""Operations that take a number, or where it stands, out of a tensor: what runs depends on it."""


def _drawn() -> str:
    """Return a word for the state of Python's and NumPy's random numbers."""
    _, keys, place, *_ = np.random.get_state()
    return f"{hash(random.getstate())} {hash(np.asarray(keys).tobytes())} {place}"


def plain_tensors(names: Iterable[nn.Module]) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the tensors that modules keep as plain attributes, or in a list or dict of theirs.

    With the module's own name, where a mapping from modules to names is given, and the
    attribute's.
    """
    known = names if isinstance(names, dict) else {}
    for module in names:
        for name, several in plain_values(module):
            for each in several:
                if isinstance(each, Tensor) and each.is_floating_point():
                    yield known.get(module, ""), name, each


def plain_values(module: nn.Module) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the names of a module's plain attributes, and what each is or holds, as a list."""
    for name, value in vars(module).items():
        if type(value) in _SINGLE or name in _TORCHS:  # that is nearly all: quickly on
            continue
        several = list(value.values()) if type(value) is dict else value
        yield name, several if isinstance(several, (list, tuple)) else (value,)


_SINGLE = {bool, int, float, str, type(None), OrderedDict}
_TORCHS = {"_parameters", "_buffers", "_modules", "_flat_weights"}


def by_zero(operation: Operation) -> bool:
    """Return True if a tensor with a gradient is multiplied by the number 0."""
    other = operation.args[1] if len(operation.args) > 1 else None
    return _learned_product(operation) and isinstance(other, (int, float)) and other == 0


def _by_zeros(operation: Operation, writers: Sequence[OperationRecord | None]) -> bool:
    """Return True if a tensor with a gradient is multiplied by zeros that the code makes."""
    pairs = zip(operation.inputs, writers, strict=True)
    zeros = (w is not None and w.name in _ZEROS for each, w in pairs if not each.requires_grad)
    return _learned_product(operation) and any(zeros)


def _learned_product(operation: Operation) -> bool:
    return operation.name == "mul" and any(each.requires_grad for each in operation.inputs)


_ZEROS = {"zeros", "zeros_like", "new_zeros"}


def address_of_result(operation: Operation) -> int:
    """Return where the result lies that autograd may keep; 0 for none."""
    returned = operation.outputs
    return returned[0].data_ptr() if returned and operation.name != "detach" else 0


def is_kept(tensor: Tensor, address: int) -> bool:
    """Return True if autograd detaches it, as it does where a gradient needs the result."""
    return tensor.data_ptr() == address and hasattr(tensor.grad_fn, "_saved_result")


def _heads(attended: Attended, weights: Tensor) -> list[dict[str, Any]]:
    return head_records(attended.name, weights.detach())


def cuts(operation: Operation) -> bool:
    """Return True if the graph ends here: the result is boolean, integer or detached."""
    if operation.name in _CUTTING:
        return True
    kinds = [t.dtype for t in operation.outputs]
    return bool(kinds) and not any(d.is_floating_point or d.is_complex for d in kinds)


def _norm(tensor: Tensor) -> float:
    """Euclidean norm, ``sqrt(sum(x**2))``, summed in single precision at least."""
    tensor = tensor.detach()
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    norm = float(torch.linalg.vector_norm(at_least_float32(tensor)))
    if math.isinf(norm):  # its squares may be, where it is not
        norm = float(
            torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float64))
        )
    return norm


def examine(
    session: Session,
    target: Target = None,
    *,
    score_of: Callable[..., Tensor | None],
    begin: Callable[[], object] = lambda: None,
    record: bool = True,
    explained: Callable[[Observation], bool] = lambda seen: False,
) -> Observation:
    """Run the model as it stands, forward and backward, and write down what happens.

    ``score_of`` is called with the output, the target and the names of the classes, and ``record``
    says whether what it computes is written down, too; ``begin`` is called before the model.

    The operations of the backward are looked at one by one only if a gradient is not finite, and
    ``explained`` does not say that the layers tell why: then it runs once more.
    """
    found = _examined(session, target, score_of, begin, record, thorough=False)
    if not found.suspect or found.error is not None or explained(found):
        return found
    again = _examined(session, target, score_of, begin, record, thorough=True)
    again.heads = found.heads
    return again


def _examined(
    session: Session,
    target: Target,
    score_of: Callable[..., Tensor | None],
    begin: Callable[[], object],
    record: bool,
    *,
    thorough: bool,
) -> Observation:
    observers: list[RunObserver] = []

    def observe() -> OperationRecorder:
        observers.append(RunObserver(session.given, begin, thorough))
        return observers[-1].recorder

    scores: list[Tensor | None] = []
    refused: list[Exception] = []  # such as a class that the model does not have

    def score(*given: Any) -> Tensor | None:
        with nullcontext() if record else observers[-1].recorder.silent():
            try:
                scores.append(score_of(*given))
            except Exception as error:
                if target is not None and not callable(target):
                    refused.append(error)
                raise
            return scores[-1]

    try:
        session.forward_backward(
            target, observe, source="parameters", keep_mode=True, score_of=score
        )
    except TransformError:
        raise
    except Exception as error:
        if not observers:
            raise
        if refused:  # the argument is wrong, not the model
            raise refused[0] from None
        own = error.__cause__
        blamed = next((each for each in observers if each.recorder.error is error), observers[-1])
        found = blamed.found
        found.error = own if isinstance(own, Exception) else error
        _settle_cuts(found)
        found.write = culprit(found.operations, found.error, scores[-1] if scores else None)
        return found
    found = observers[-1].found
    _settle_cuts(found)
    if scores and (last := scores[-1]) is not None:
        found.score = float(last.detach())
        observers[-1].reaches(last)  # it may be NaN with a gradient of 0
    return found


def _settle_cuts(found: Observation) -> None:
    """Look up the layers behind each cut, which takes a walk, only where a gradient is missing."""
    missing = found.used - found.gradient_norms.keys()
    if missing or not all(found.gradient_norms.values()):
        for each in found.cuts:
            each.find_layers()
    else:
        found.cuts.clear()
