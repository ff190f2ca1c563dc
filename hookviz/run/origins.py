"""The input picture that each row of a layer's output was computed from.

A layer's rows need not be the input's samples in their order: a model may take several pictures,
join them, mirror them, cut them into windows, or select among them. Two steps find the sample:

1. One forward is followed. Each tensor gets the set of input tensors that it depends on. As long as
   operations keep samples apart, the layout of the samples in its memory is known.
2. For the other rows, the model runs again with some of the samples replaced by noise. The samples
   are numbered. Two runs belong to each bit: one replaces the samples whose number has the bit set,
   the other one the rest. So ``2 log2(samples)`` replacements identify a row's sample: for each
   bit, exactly one of the two changes the row.

A replacement that changes a row proves that the row depends on a replaced sample. If two different
noises leave it unchanged, to the bit, it does not. While samples are replaced, batch statistics
stay fixed: through a BatchNorm in training mode every row depends on every sample, but that is not
the question here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..hooking.select import dimensions, first_convolution
from ..hooking.tensors import tensors
from .follow import EscapeDetector, Follower, follow
from .inputs import ModelInput
from .operations import Kind
from .recorder import ModuleCall, Operation, OperationRecorder
from .replacement import CallKey, SampleReplacement, rows_of
from .sample_layout import SampleLayout
from .session import Session


class PictureSource(NamedTuple):
    """A sample of one of the input tensors."""

    input: int  # its index among the input tensors, positional arguments first
    sample: int


NO_PICTURE = "no input picture has an influence on it"
SEVERAL = "it was computed from several input pictures"
UNKNOWN = "it is not known from which input picture it was computed"


@dataclass(frozen=True)
class CallOrigin:
    """The input pictures of one call of a layer.

    Attributes
    ----------
    layer : str
    call : int
    rows : tuple of PictureSource or str
        The sample that each row of the layer's output was computed from, or the reason why none can
        be named: `NO_PICTURE`, `SEVERAL` or `UNKNOWN`. An unbatched output is one row.

    Examples
    --------
    >>> origin = CallOrigin("conv", 0, (PictureSource(0, 1), SEVERAL))
    >>> origin.picture(0), origin.picture(1), origin.reason(1)
    (PictureSource(input=0, sample=1), None, 'it was computed from several input pictures')
    """

    layer: str
    call: int
    rows: tuple[PictureSource | str, ...]

    def picture(self, row: int) -> PictureSource | None:
        """Return the sample that a row was computed from; None if none can be named."""
        source = self.rows[row]
        return None if isinstance(source, str) else source

    def reason(self, row: int) -> str:
        """Return why no sample can be named; empty if one is."""
        source = self.rows[row]
        return source if isinstance(source, str) else ""


def picture_tensors(inputs: ModelInput) -> dict[int, Tensor]:
    """Return the input tensors that can be shown as pictures, by their index among all.

    These are the main one and others with as many dimensions; all get a batch dimension.
    """
    main, pictures = inputs.main, {}
    if main is None or main.ndim not in (3, 4, 5):
        return {}
    for index, tensor in enumerate(tensors([inputs.args, inputs.kwargs])):
        batch = inputs.batched(tensor)
        strided = batch.layout is torch.strided and batch.numel() > 0
        if strided and batch.is_floating_point() and batch.ndim == main.ndim:
            pictures[index] = batch
    return pictures


def call_origins(session: Session, layers: Iterable[str]) -> dict[CallKey, CallOrigin]:
    """Return the input pictures of each call of some layers, by layer and call.

    The model runs once without gradients, and for rows that remain unclear ``4 log2(samples)``
    times more. `single_picture` needs no run for an input of one picture.

    Examples
    --------
    >>> from torch import nn
    >>> from hookviz.run.inputs import prepare_input
    >>> class Mirrored(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = nn.Conv2d(3, 4, 3)
    ...
    ...     def forward(self, x):
    ...         return self.conv(torch.cat([x, x.flip(3)])).mean((2, 3))
    >>> model = Mirrored()
    >>> session = Session(model, prepare_input(torch.rand(2, 3, 8, 8), model))
    >>> [each.sample for each in call_origins(session, ["conv"])["conv", 0].rows]
    [0, 1, 0, 1]
    """
    pictures, names = picture_tensors(session.inputs), frozenset(layers)
    followed = follow(session, lambda: _InputListener(session, names, pictures))
    settled, doubtful = followed.settled, followed.doubtful
    if not doubtful:
        return settled
    sources = [
        PictureSource(index, n) for index, batch in pictures.items() for n in range(len(batch))
    ]
    try:
        return settled | _measured(session, sources, doubtful)
    except Exception:  # the model does not accept noise
        return settled | {key: CallOrigin(*key, (UNKNOWN,) * n) for key, n in doubtful.items()}


def single_picture(session: Session) -> PictureSource | None:
    """Return the only picture of the input, if the model gets no other tensor."""
    inputs = session.inputs
    pictures = picture_tensors(inputs)
    if len(pictures) == len(tensors([inputs.args, inputs.kwargs])) == 1:
        ((index, batch),) = pictures.items()
        first = first_convolution(session.model)
        unbatched = first is not None and batch.ndim == dimensions(first) + 1
        return PictureSource(index, 0) if unbatched or len(batch) == 1 else None
    return None


def _measured(
    session: Session, sources: Sequence[PictureSource], doubtful: dict[CallKey, int]
) -> dict[CallKey, CallOrigin]:
    """Find the rows' samples by replacing samples and comparing the rows."""
    model = SampleReplacement(session, {layer for layer, _ in doubtful})
    changed = []
    for bit in range(max(1, (len(sources) - 1).bit_length())):
        sides: tuple[list[PictureSource], list[PictureSource]] = [], []
        for number, source in enumerate(sources):
            sides[number >> bit & 1].append(source)
        changed.append([model.changed(side) for side in sides])

    def rows(key: CallKey, count: int) -> Iterator[PictureSource | str]:
        changes = [side.get(key, []) for pair in changed for side in pair]
        for row in range(count):
            complete = all(len(change) == count for change in changes)
            yield _decoded([change[row] for change in changes], sources) if complete else UNKNOWN

    return {key: CallOrigin(*key, tuple(rows(key, count))) for key, count in doubtful.items()}


def _decoded(changes: list[bool], sources: Sequence[PictureSource]) -> PictureSource | str:
    """Return a row's source; ``changes`` has two items per bit, for the bit cleared and set."""
    pairs = [*zip(changes[::2], changes[1::2], strict=True)]
    if not any(changes):
        return NO_PICTURE
    if any(without and having for without, having in pairs):
        return SEVERAL
    number = sum(having << bit for bit, (_, having) in enumerate(pairs))
    named = sum(changes) == len(pairs) and number < len(sources)
    return sources[number] if named else UNKNOWN


class _Mark(NamedTuple):
    inputs: frozenset[int]  # the indices of the input tensors that the values depend on
    layout: SampleLayout | None  # None if unknown


_ONE_SAMPLE = SampleLayout(1, 1)


class _InputListener(Follower[_Mark]):
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
        self.settled: dict[CallKey, CallOrigin] = {}
        self.doubtful: dict[CallKey, int] = {}
        self._model, self._layers, self._pictures = session.model, layers, pictures
        self._escaped = False

    def begin(self, recorder: OperationRecorder) -> None:
        """Detect values that leave torch, which cannot be followed."""

        def escape(name: str, tensor: Tensor) -> None:
            self._escaped |= tensor in self.marks

        recorder.exit_stack.enter_context(EscapeDetector(escape))

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Mark the model's input."""
        if call.module is not self._model or call.call:
            return
        for index, tensor in enumerate(given):
            if index in self._pictures:
                batch, layout = len(self._pictures[index]), None
                if batch == 1:
                    layout = _ONE_SAMPLE
                elif (by_rows := SampleLayout(batch, _row_bytes(tensor))).axis(tensor) == 0:
                    layout = by_rows
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
        named = (PictureSource(index, layout.sample(rows, n)) for n in range(len(rows)))
        self.settled[key] = CallOrigin(*key, tuple(named))

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

    def mark_of_mixture(self, old: _Mark | None, new: _Mark | None) -> _Mark | None:
        """Unite the inputs; the layout stays known if both are the same."""
        if old is None or new is None:
            return old or new
        return _Mark(old.inputs | new.inputs, new.layout if new.layout == old.layout else None)


def _row_bytes(tensor: Tensor) -> int:
    return tensor.stride(0) * tensor.element_size()
