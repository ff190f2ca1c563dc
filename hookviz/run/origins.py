"""The input picture that each row of a layer's output was computed from.

A layer's rows need not be the input's samples in their order: a model may take several pictures,
join them, mirror them, cut them into windows, or select among them. Two steps find the sample:

1. One forward is followed. Each tensor gets the set of input tensors that it depends on. As long as
   operations compute each row from the same row of their inputs, the sample of a row follows from
   its place in memory.
2. For the other rows, the model runs again with some of the samples replaced by noise. The samples
   are numbered. Two runs belong to each bit: one replaces the samples whose number has the bit set,
   the other one the rest. So ``2 log2(samples)`` replacements identify a row's sample: for each
   bit, exactly one of the two changes the row.

A replacement that changes a row proves that the row depends on a replaced sample. If two different
noises leave it unchanged, to the bit, it does not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import count
from operator import and_
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..hooking.capture import Capture
from ..hooking.maps import channel_dimension
from ..hooking.records import Call, TensorStore
from ..hooking.select import dimensions, first_convolution
from ..hooking.tensors import map_tensors, tensors
from .follow import Follower, detect_escapes, follow
from .inputs import ModelInput
from .operations import BATCH_NORMS, ELEMENTWISE_KINDS, FACTORS, Kind
from .recorder import ModuleCall, Operation, OperationRecorder
from .session import Session

CallKey = tuple[str, int]
"""A layer's name and the number of its call."""


class PictureSource(NamedTuple):
    """A sample of one of the input tensors."""

    input: int  # its index among the input tensors, positional arguments first
    sample: int


NO_PICTURE = "no input picture has an influence on it"
SEVERAL = "it was computed from several input pictures"
UNKNOWN = "it is not known from which input picture it was computed"

RowSources = tuple[PictureSource | str, ...]
"""The sample that each row of a layer's output was computed from, or the reason why none can be
named: `NO_PICTURE`, `SEVERAL` or `UNKNOWN`. An unbatched output is one row."""


def picture_tensors(inputs: ModelInput) -> dict[int, Tensor]:
    """Return the input tensors that can be shown as pictures, by their index among all.

    These are the main one and others with as many dimensions; all get a batch dimension.
    """
    main, pictures = inputs.main, {}
    if main is None or main.ndim not in (3, 4, 5):
        return {}
    for index, tensor in enumerate(tensors(inputs.args, inputs.kwargs)):
        batch = inputs.batched(tensor)
        strided = batch.layout is torch.strided and batch.numel() > 0
        if strided and batch.is_floating_point() and batch.ndim == main.ndim:
            pictures[index] = batch
    return pictures


def call_origins(session: Session, layers: Iterable[str]) -> dict[CallKey, RowSources]:
    """Return the input pictures of each call of some layers, by layer and call.

    The model runs once without gradients, and for rows that remain unclear ``4 log2(samples)``
    times more. `single_picture` needs no run for an input of one picture.

    Examples
    --------
    >>> from torch import nn
    >>> class Mirrored(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = nn.Conv2d(3, 4, 3)
    ...
    ...     def forward(self, x):
    ...         return self.conv(torch.cat([x, x.flip(3)])).mean((2, 3))
    >>> model = Mirrored()
    >>> session = Session.of(model, torch.rand(2, 3, 8, 8))
    >>> [source.sample for source in call_origins(session, ["conv"])["conv", 0]]
    [0, 1, 0, 1]
    """
    pictures, names = picture_tensors(session.inputs), frozenset(layers)
    followed = follow(session, lambda: InputListener(session, names, pictures))
    settled, doubtful = followed.settled, followed.doubtful
    if not doubtful:
        return settled
    sources = [
        PictureSource(index, n) for index, batch in pictures.items() for n in range(len(batch))
    ]
    try:
        return settled | _measured(session, sources, doubtful)
    except Exception:  # the model does not accept noise
        return settled | {key: (UNKNOWN,) * rows for key, rows in doubtful.items()}


def single_picture(session: Session) -> PictureSource | None:
    """Return the only picture of the input, if the model gets no other tensor."""
    inputs = session.inputs
    pictures = picture_tensors(inputs)
    if len(pictures) == len(tensors(inputs.args, inputs.kwargs)) == 1:
        ((index, batch),) = pictures.items()
        first = first_convolution(session.model)
        unbatched = first is not None and batch.ndim == dimensions(first) + 1
        return PictureSource(index, 0) if unbatched or len(batch) == 1 else None
    return None


def rows_of(tensor: Tensor, module: nn.Module | None) -> Tensor:
    """Return a layer's output with its samples first; without a batch it is one row."""
    unbatched = tensor.ndim < 2 or channel_dimension(tensor, module) == 0
    return tensor[None] if unbatched else tensor


# Samples replaced by noise


def _measured(
    session: Session, sources: Sequence[PictureSource], doubtful: dict[CallKey, int]
) -> dict[CallKey, RowSources]:
    """Find the rows' samples by replacing samples and comparing the rows."""
    layers: list[str | nn.Module] = [*{layer for layer, _ in doubtful}]
    before = _row_sums(session, layers, (), 0)
    runs: list[list[dict[CallKey, Tensor]]] = []
    for bit in range(max(1, (len(sources) - 1).bit_length())):
        for value in (0, 1):
            side = [source for n, source in enumerate(sources) if n >> bit & 1 == value]
            seeds = (1, 2) if side else ()
            runs.append([_row_sums(session, layers, side, seed) for seed in seeds])
    found: dict[CallKey, RowSources] = {}
    for key, rows in doubtful.items():
        sums = [[run.get(key) for run in side] for side in runs]
        every = [before.get(key), *(one for side in sums for one in side)]
        if any(one is None or len(one) != rows for one in every):
            found[key] = (UNKNOWN,) * rows
            continue
        changes = [
            [any(one is not None and one[row] != before[key][row] for one in side) for side in sums]
            for row in range(rows)
        ]
        found[key] = tuple(_decoded(change, sources) for change in changes)
    return found


def _row_sums(
    session: Session, layers: list[str | nn.Module], chosen: Sequence[PictureSource], seed: int
) -> dict[CallKey, Tensor]:
    """Run the model with noise instead of the chosen samples; return a number for each row."""
    inputs, numbers = session.inputs, count()
    generator = torch.Generator().manual_seed(seed)

    def replaced(tensor: Tensor) -> Tensor:
        number, tensor = next(numbers), tensor.detach().clone()
        batch = inputs.batched(tensor)
        for sample in (source.sample for source in chosen if source.input == number):
            low, high = batch[sample].min(), batch[sample].max()
            span = high - low if high > low else torch.ones_like(high)
            noise = torch.rand(batch[sample].shape, generator=generator).to(batch)
            batch[sample] = low + (noise * seed - (seed - 1) / 2) * span
        return tensor

    with session.active(grad=False):
        args, kwargs = map_tensors((inputs.args, inputs.kwargs), replaced)
        with Capture(session.model, layers, TensorStore(device="cpu")) as cache:
            session.call(*args, **kwargs)
    return {
        (name, index): _row_sum(call)
        for name, record in cache.items()
        for index, call in enumerate(record.calls)
        if call.outputs
    }


def _row_sum(call: Call) -> Tensor:
    """Return a number for each row of a call's output."""
    rows = rows_of(call.activation, call.module).flatten(1)
    rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
    # Random weights, because a plain sum does not change if values are only permuted.
    weights = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(0))
    return rows.double().nan_to_num(1.23e4) @ weights.double()


def _decoded(changes: list[bool], sources: Sequence[PictureSource]) -> PictureSource | str:
    """Return a row's source; ``changes`` has two items per bit, for the bit cleared and set."""
    cleared, having = changes[::2], changes[1::2]
    if not any(changes):
        return NO_PICTURE
    if any(map(and_, cleared, having)):
        return SEVERAL
    number = sum(value << bit for bit, value in enumerate(having))
    named = sum(changes) == len(having) and number < len(sources)
    return sources[number] if named else UNKNOWN


# Samples followed through the operations


class SampleLayout(NamedTuple):
    """The samples in a memory: the byte at ``offset`` is of sample ``offset // block % batch``.

    So ``block`` bytes of one sample are followed by as many of the next one, and after the last
    sample comes the first again. That describes a batch, windows cut from each sample in turn, and
    sequences whose second dimension is the batch, as attention layers have them inside.

    Examples
    --------
    >>> x = torch.zeros(5, 2, 4)  # five tokens, two samples
    >>> layout = SampleLayout(2, 4 * x.element_size())
    >>> layout.axis(x), layout.axis(x.transpose(0, 1)), layout.axis(x.flatten(0, 1))
    (1, 0, 0)
    >>> [layout.sample(x.flatten(0, 1), row) for row in range(4)]
    [0, 1, 0, 1]
    """

    batch: int
    block: int

    def axis(self, tensor: Tensor) -> int | None:
        """Return the dimension of a tensor along which the sample changes, None if unclear."""
        if tensor.layout is not torch.strided:
            return None
        width, period = tensor.element_size(), self.block * self.batch
        steps = [stride * width for stride in tensor.stride()]
        for axis, (size, step) in enumerate(zip(tensor.shape, steps, strict=True)):
            if size < 2 or not step or (self.block % step and step % self.block):
                continue
            # The other dimensions must stay within a sample, or step by whole periods.
            unit = min(step, self.block)
            reach = tensor.storage_offset() * width % unit + width
            for other, (length, stride) in enumerate(zip(tensor.shape, steps, strict=True)):
                reach += (length - 1) * stride if other != axis and stride % period else 0
            if reach <= unit:
                return axis
        return None

    def sample(self, tensor: Tensor, row: int) -> int:
        """Return the sample of a row of a tensor whose `axis` is 0."""
        offset = int(tensor.storage_offset()) + row * tensor.stride(0)
        return offset * tensor.element_size() // self.block % self.batch

    def of_result(self, operation: Operation, made: Tensor, tensor: Tensor) -> SampleLayout | None:
        """Return the layout of a result from that of a tensor that was read; None if unknown."""
        axis = self.axis(tensor)
        new_axis = None if axis is None else axis_kept(operation, made, tensor, axis)
        if axis is None or new_axis is None:
            return None
        before = tensor.stride(axis) * tensor.element_size()
        block, rest = divmod(self.block * made.stride(new_axis) * made.element_size(), before)
        layout = SampleLayout(self.batch, block)
        if rest or not block or layout.axis(made) != new_axis:
            return None
        # A part of a tensor may begin with another sample than its result.
        return layout if layout._phase(made, new_axis) == self._phase(tensor, axis) else None

    def _phase(self, tensor: Tensor, axis: int) -> int:
        """Return the position in the period at which a tensor begins, in steps along its axis."""
        width = tensor.element_size()
        begin = int(tensor.storage_offset()) * width % (self.block * self.batch)
        return begin // min(tensor.stride(axis) * width, self.block)


_ONE_SAMPLE = SampleLayout(1, 1)


class _Mark(NamedTuple):
    inputs: frozenset[int]  # the indices of the input tensors that the values depend on
    layout: SampleLayout | None  # None if unknown


class InputListener(Follower[_Mark]):
    """Follows the input pictures to the outputs of layers.

    Attributes
    ----------
    settled : dict
        The origins that follow from the operations.
    doubtful : dict of (str, int) to int
        The number of rows of each other call.
    """

    def __init__(
        self, session: Session, layers: Container[str], pictures: dict[int, Tensor]
    ) -> None:
        super().__init__()
        self.settled: dict[CallKey, RowSources] = {}
        self.doubtful: dict[CallKey, int] = {}
        self._model, self._layers, self._pictures = session.model, layers, pictures
        self._escaped = False

    def begin(self, recorder: OperationRecorder) -> None:
        """Detect values that leave torch, which cannot be followed."""

        def escape(name: str, tensor: Tensor) -> None:
            self._escaped |= tensor in self.marks

        recorder.exit_stack.enter_context(detect_escapes(escape))

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Mark the model's input."""
        if call.module is not self._model or call.call:
            return
        for index, tensor in enumerate(given):
            if index in self._pictures:
                batch, layout = len(self._pictures[index]), None
                row_bytes = tensor.stride(0) * tensor.element_size()
                if batch == 1:
                    layout = _ONE_SAMPLE
                elif (by_row := SampleLayout(batch, row_bytes)).axis(tensor) == 0:
                    layout = by_row
                self.marks[tensor] = _Mark(frozenset([index]), layout)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Store the sources of the rows of a layer's output."""
        if call.layer not in self._layers or not returned or again:
            return
        rows, key = rows_of(returned[0], call.module), (call.layer, call.call)
        inputs, layout = self.marks.get(returned[0]) or _Mark(frozenset(), None)
        clear = layout is not None and (layout == _ONE_SAMPLE or layout.axis(rows) == 0)
        if layout is None or not clear or len(inputs) != 1 or self._escaped:
            self.doubtful[key] = len(rows)
            return
        (index,) = inputs
        samples = (layout.sample(rows, row) for row in range(len(rows)))
        self.settled[key] = tuple(PictureSource(index, sample) for sample in samples)

    def after(self, operation: Operation) -> None:
        """Pass marks on, and detect a tensor's value that becomes a Python number."""
        if operation.kind is Kind.QUERY:
            self._escaped |= any(tensor in self.marks for tensor in operation.reads)
        super().after(operation)

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, _Mark]]
    ) -> _Mark:
        """Unite the inputs, and find the layout of the samples."""
        inputs = frozenset[int]().union(*(mark.inputs for _, mark in reads))
        if all(mark.layout == _ONE_SAMPLE for _, mark in reads):
            return _Mark(inputs, _ONE_SAMPLE)
        layouts = {
            mark.layout and mark.layout.of_result(operation, made, tensor) for tensor, mark in reads
        }
        return _Mark(inputs, layouts.pop() if len(layouts) == 1 else None)

    def mark_of_mixture(
        self, operation: Operation, old: _Mark | None, new: _Mark | None
    ) -> _Mark | None:
        """Unite the inputs; the layout stays known if both are the same."""
        if old is None or new is None:
            return old or new
        return _Mark(old.inputs | new.inputs, new.layout if new.layout == old.layout else None)


_BY_SAMPLE = frozenset((Kind.CONVOLUTION, Kind.POOLING, Kind.RESAMPLING, Kind.NORMALIZATION))
_ALONG_DIMENSIONS = frozenset((Kind.SOFTMAX, Kind.REDUCTION, Kind.SCAN, Kind.CONCATENATION))


def axis_kept(operation: Operation, made: Tensor, tensor: Tensor, axis: int) -> int | None:
    """Return the dimension of the result that corresponds to a dimension of an input tensor.

    Values of the result at an index along it must use only the tensor's values at the same index,
    apart from a batch norm's statistics. None if they use others, or if that is unknown.
    """
    kind, name, argument, new_axis = operation.kind, operation.name, operation.argument, axis
    # The same tensor may also be passed as a weight.
    first = tensor is operation.inputs[0] and sum(tensor is t for t in operation.inputs) == 1
    apart = False
    if kind in ELEMENTWISE_KINDS or name in BATCH_NORMS:
        apart = tensor.ndim == made.ndim
    elif "normalized_shape" in argument:
        apart = first and axis < tensor.ndim - len(argument["normalized_shape"])
    elif kind in _BY_SAMPLE:
        # Other convolutions take maps without a batch, or with channels last.
        apart = first and axis == 0 and (kind is not Kind.CONVOLUTION or name == "convolution")
        apart = apart and name not in ("renorm", "weight_norm_interface")
    elif kind is Kind.ATTENTION:
        apart = axis < tensor.ndim - 2 and tensor.ndim == operation.inputs[0].ndim
    elif kind is Kind.PRODUCT and name in FACTORS:
        left, right = (argument[factor] is tensor for factor in FACTORS[name])
        summed = {tensor.ndim - 1} if left else set()
        apart = tensor.ndim == made.ndim > 1
        apart = apart and axis not in summed | ({tensor.ndim - 2} if right else set())
    elif kind is Kind.PADDING:
        apart = axis < tensor.ndim - len(argument.get("pad") or argument["padding"]) // 2
    elif kind in _ALONG_DIMENSIONS or name in ("flip", "roll"):
        along = argument.get("dim", argument.get("dims"))
        along = [along] if isinstance(along, int) else along or []
        count = made.ndim if name == "stack" else tensor.ndim
        dimensions = {index % max(count, 1) for index in along}
        apart = bool(dimensions) and (first or kind is Kind.CONCATENATION)
        if name == "stack":
            new_axis += min(dimensions, default=0) <= axis
        else:
            apart = apart and axis not in dimensions
            dropped = kind is Kind.REDUCTION and not argument.get("keepdim")
            new_axis -= dropped * sum(index < axis for index in dimensions)
    fits = new_axis < made.ndim and tensor.shape[axis] == made.shape[new_axis]
    return new_axis if apart and fits else None
