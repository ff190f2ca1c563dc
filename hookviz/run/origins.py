"""The input picture that each row of a layer's output was computed from.

A layer's rows need not be the input's samples in their order: a model may take several pictures,
join them, mirror them, cut them into windows, or select among them. Two steps say which it was:

1. One forward is followed. Each tensor gets the set of input tensors that it depends on, and as
   long as operations keep samples apart, it is known that its memory holds them in order.
2. Where that does not settle it, the model runs again with some of the samples replaced by noise.
   The samples are numbered, and the ones replaced in a run are those with a certain bit of their
   number set, or not set. So ``2 log2(samples)`` pairs of runs name the sample of a row: the one
   for which, at each bit, exactly one of the two replacements changed the row.

A replacement that changes a row proves that the row depends on a replaced sample. That a row
depends on no other one is concluded from two different noises that leave it as it was, to the bit.
While samples are replaced, batch statistics stay as they were: through a BatchNorm in training mode
every row depends on every sample, but that is not the question here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..hooking.tensors import channel_dimension, map_tensors, tensors
from .follow import EscapeDetector, Follower, follow
from .inputs import ModelInput
from .operations import BATCH_NORMS, ELEMENTWISE_KINDS, FACTORS, Kind, uses_running_statistics
from .recorder import Listener, ModuleCall, Operation, OperationRecorder
from .session import Session


class PictureSource(NamedTuple):
    """A sample of one of the input tensors."""

    input: int  # its place among the input tensors, positional arguments first
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
        For each row of the layer's output the sample that it was computed from, or why none can be
        named: `NO_PICTURE`, `SEVERAL` or `UNKNOWN`. An unbatched output is one row.

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
        found = self.rows[row]
        return None if isinstance(found, str) else found

    def reason(self, row: int) -> str:
        """Return why no sample can be named; empty if one is."""
        found = self.rows[row]
        return found if isinstance(found, str) else ""


def picture_tensors(inputs: ModelInput) -> dict[int, Tensor]:
    """Return the input tensors that can be shown as pictures, by their place among all.

    These are the main one and those with as many dimensions. Each has a batch dimension: an element
    of a list, as detection models take, gets one.
    """
    main, found = inputs.main, {}
    if main is None or main.ndim not in (3, 4, 5):
        return {}
    listed = any(isinstance(each, list) for each in inputs.args)
    for place, tensor in enumerate(tensors([inputs.args, inputs.kwargs])):
        batch = tensor[None] if listed and tensor.ndim == 3 else tensor
        strided = batch.layout is torch.strided and batch.numel() > 0
        if strided and batch.is_floating_point() and batch.ndim == main.ndim:
            found[place] = batch
    return found


def call_origins(session: Session, layers: Iterable[str]) -> dict[tuple[str, int], CallOrigin]:
    """Return the input pictures of each call of some layers, by layer and call.

    A model with one input tensor of one sample does not run. Others run once without gradients, and
    if that does not settle it, ``4 log2(samples)`` times more.

    Examples
    --------
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
        PictureSource(place, n) for place, batch in pictures.items() for n in range(len(batch))
    ]
    return settled | _measured(session, {layer for layer, _ in doubtful}, sources, doubtful)


def single_picture(inputs: ModelInput) -> PictureSource | None:
    """Return the only picture of the input, if the model is given nothing else."""
    pictures = picture_tensors(inputs)
    if len(pictures) == len(tensors([inputs.args, inputs.kwargs])) == 1:
        ((place, batch),) = pictures.items()
        return PictureSource(place, 0) if len(batch) == 1 else None
    return None


# Step 1: follow one forward


class _Mark(NamedTuple):
    """The inputs that a memory depends on, and the sample at each of its bytes, if that is known.

    The sample is ``offset // block % batch``: ``block`` bytes of one sample are followed by as many
    of the next one.
    """

    inputs: frozenset[int]
    batch: int = 0  # 0 if the samples are not known
    block: int = 0

    def axis(self, tensor: Tensor) -> int | None:
        """Return the dimension of a tensor along which the sample changes, None if unclear."""
        if not self.batch or tensor.layout is not torch.strided:
            return None
        width, period = tensor.element_size(), self.block * self.batch
        steps = [stride * width for stride in tensor.stride()]
        for axis, (size, step) in enumerate(zip(tensor.shape, steps, strict=True)):
            if size < 2 or not step or (self.block % step and step % self.block):
                continue
            # The other dimensions must stay within a sample, or go round by whole periods.
            unit = min(step, self.block)
            reach = tensor.storage_offset() * width % unit + width
            for other, (length, stride) in enumerate(zip(tensor.shape, steps, strict=True)):
                reach += (length - 1) * stride if other != axis and stride % period else 0
            if reach <= unit:
                return axis
        return None

    def phase(self, tensor: Tensor, axis: int) -> int:
        """Return where in a period a tensor begins, in steps along its axis."""
        width = tensor.element_size()
        unit = min(tensor.stride(axis) * width, self.block)
        begin = int(tensor.storage_offset()) * width % (self.block * self.batch)
        return begin // unit

    def sample(self, tensor: Tensor, row: int) -> int:
        """Return the sample of a row of a tensor whose `axis` is 0."""
        offset = int(tensor.storage_offset()) + row * tensor.stride(0)
        return offset * tensor.element_size() // self.block % self.batch


class _InputListener(Follower[_Mark]):
    """Follows the input pictures to the outputs of layers.

    Attributes
    ----------
    settled : dict
        The origins that the operations on the way leave no doubt about.
    doubtful : dict of (str, int) to int
        The number of rows of the other calls.
    """

    def __init__(
        self, session: Session, layers: Container[str], pictures: dict[int, Tensor]
    ) -> None:
        super().__init__()
        self.settled: dict[tuple[str, int], CallOrigin] = {}
        self.doubtful: dict[tuple[str, int], int] = {}
        self._model, self._layers, self._pictures = session.model, layers, pictures
        self._escaped = False

    def begin(self, recorder: OperationRecorder) -> None:
        """Notice values that leave torch, which cannot be followed."""

        def escape(name: str, tensor: Tensor) -> None:
            self._escaped |= tensor in self.marks

        recorder.exit_stack.enter_context(EscapeDetector(escape))

    def enter(self, call: ModuleCall, given: list[Tensor], again: bool) -> None:
        """Mark the model's input."""
        if call.module is not self._model or call.call:
            return
        for place, tensor in enumerate(given):
            if place in self._pictures:
                batch = len(self._pictures[place])
                mark = _Mark(frozenset([place]), batch, tensor.stride(0) * tensor.element_size())
                ordered = batch == 1 or mark.axis(tensor) == 0
                self.marks[tensor] = mark if ordered else _Mark(mark.inputs)

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Note the rows of a layer's output."""
        if call.layer not in self._layers or not returned or again:
            return
        rows, mark, key = _rows_of(returned[0], call.module), None, (call.layer, call.call)
        if not self._escaped:
            mark = self.marks.get(returned[0])
        if mark is not None and len(mark.inputs) == 1 and (mark.batch == 1 or mark.axis(rows) == 0):
            (place,) = mark.inputs
            samples = (mark.sample(rows, n) if mark.batch > 1 else 0 for n in range(len(rows)))
            named = tuple(PictureSource(place, sample) for sample in samples)
            self.settled[key] = CallOrigin(*key, named)
        else:
            self.doubtful[key] = len(rows)

    def after(self, operation: Operation) -> None:
        """Hand marks on, and notice a number that becomes one of Python's."""
        if operation.kind is Kind.QUERY:
            self._escaped |= any(each in self.marks for each in operation.reads)
        super().after(operation)

    def mark_of_result(
        self, operation: Operation, made: Tensor, reads: list[tuple[Tensor, _Mark]]
    ) -> _Mark:
        """Unite the inputs, and find where the samples are."""
        inputs = frozenset[int]().union(*(mark.inputs for _, mark in reads))
        if {mark.batch for _, mark in reads} == {1}:
            return _Mark(inputs, 1, 1)
        marks = {_result_mark(operation, made, tensor, mark) for tensor, mark in reads}
        mark = marks.pop() if len(marks) == 1 else None
        return _Mark(inputs) if mark is None else mark._replace(inputs=inputs)

    def mark_of_mixture(self, old: _Mark | None, new: _Mark | None) -> _Mark | None:
        """Unite the inputs; the samples stay known if they are the same."""
        if old is None or new is None:
            return old or new
        inputs = old.inputs | new.inputs
        return new._replace(inputs=inputs) if old[1:] == new[1:] else _Mark(inputs)


def _result_mark(operation: Operation, made: Tensor, tensor: Tensor, mark: _Mark) -> _Mark | None:
    axis = mark.axis(tensor)
    kept = None if axis is None else axis_kept(operation, made, tensor, axis)
    if axis is None or kept is None:
        return None
    before = tensor.stride(axis) * tensor.element_size()
    block, rest = divmod(mark.block * made.stride(kept) * made.element_size(), before)
    found = _Mark(frozenset(), mark.batch, block)
    if rest or not block or found.axis(made) != kept:
        return None
    # A part of a tensor may begin with another sample than its result.
    return found if found.phase(made, kept) == mark.phase(tensor, axis) else None


def _rows_of(tensor: Tensor, module: nn.Module) -> Tensor:
    unbatched = tensor.ndim < 2 or channel_dimension(tensor, module) == 0
    return tensor[None] if unbatched else tensor


_BY_SAMPLE = frozenset((Kind.CONVOLUTION, Kind.POOLING, Kind.RESAMPLING, Kind.NORMALIZATION))
_ALONG_DIMENSIONS = frozenset(
    (Kind.SOFTMAX, Kind.REDUCTION, Kind.SCAN, Kind.SORTING, Kind.CONCATENATION, Kind.TRANSFORM)
)
_MOVES = {"index_select": "dim", "gather": "dim", "flip": "dims", "roll": "dims", "glu": "dim"}
_SHUFFLES = frozenset(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"))


def axis_kept(operation: Operation, made: Tensor, tensor: Tensor, axis: int) -> int | None:
    """Return which dimension of the result a dimension of a tensor becomes, if it is kept apart.

    The values of the result at an index along it must use only those at the same index of the
    tensor. None if they use others, and where that is not known. Statistics of a batch norm do not
    count.
    """
    kind, name, argument = operation.kind, operation.name, operation.argument
    # A tensor may be an operation's weight as well.
    first = tensor is operation.inputs[0] and sum(tensor is t for t in operation.inputs) == 1
    found = axis
    if kind in ELEMENTWISE_KINDS or name in BATCH_NORMS:
        apart = tensor.ndim == made.ndim
    elif "normalized_shape" in argument:
        apart = first and axis < tensor.ndim - len(argument["normalized_shape"])
    elif kind in _BY_SAMPLE:
        # Other convolutions than these take maps without a batch, or with channels last.
        apart = axis == 0 and (kind is not Kind.CONVOLUTION or name.endswith("convolution"))
        apart = apart and first and name not in ("renorm", "weight_norm_interface")
    elif kind is Kind.ATTENTION:
        apart = axis < max(tensor.ndim - 2, 1) and tensor.ndim == operation.inputs[0].ndim
    elif kind is Kind.PRODUCT:
        apart = tensor.ndim == made.ndim and _is_apart_in_product(operation, tensor, axis)
    elif kind is Kind.PADDING:
        padded = len(argument["pad"]) // 2 if "pad" in argument else int(name[-2])
        apart = axis < tensor.ndim - padded
    elif name == "index":
        given = [each is not None for each in argument["indices"]]
        apart = first and given == sorted(given) and axis < given.index(True)
    elif (kind in _ALONG_DIMENSIONS and not name.startswith("unique")) or name in _MOVES:
        along = argument.get(_MOVES.get(name, "dim"))
        along = [along] if isinstance(along, int) else along or []
        places = {each % max(made.ndim if name == "stack" else tensor.ndim, 1) for each in along}
        apart = bool(places) and (first or kind is Kind.CONCATENATION)
        if name == "stack":
            found = axis + (min(places) <= axis)
        else:
            apart = apart and axis not in places
            dropped = kind is Kind.REDUCTION and not argument.get("keepdim")
            found = axis - dropped * sum(each < axis for each in places)
    else:
        apart = axis == 0 and (name.startswith("grid_sampler") or name in _SHUFFLES)
    fits = found < made.ndim and tensor.shape[axis] == made.shape[found]
    return found if apart and fits else None


def _is_apart_in_product(operation: Operation, tensor: Tensor, axis: int) -> bool:
    first, second = FACTORS.get(operation.name, ("", ""))
    summed = {"self": None, first: tensor.ndim - 1, second: tensor.ndim - 2}
    # A tensor may be multiplied with itself.
    roles = [each for each in summed if operation.argument.get(each) is tensor]
    return tensor.ndim > 1 and bool(roles) and all(summed[each] != axis for each in roles)


# Step 2: replace samples


def _measured(
    session: Session,
    layers: Container[str],
    sources: Sequence[PictureSource],
    doubtful: dict[tuple[str, int], int],
) -> dict[tuple[str, int], CallOrigin]:
    """Name the rows' samples by what changes when samples are replaced."""
    bits = max(1, (len(sources) - 1).bit_length())
    unknown = {key: CallOrigin(*key, (UNKNOWN,) * rows) for key, rows in doubtful.items()}
    statistics: _Statistics = {}
    try:
        before = _digests(session, layers, {}, statistics, first=True)
        changed = [
            [
                _changed(session, layers, before, _chosen(sources, bit, side), statistics)
                for side in (False, True)
            ]
            for bit in range(bits)
        ]
    except Exception:  # the model refuses noise, or does something else with it
        return unknown
    found = unknown.copy()
    for key, rows in doubtful.items():
        if all(key in each and len(each[key]) == rows for pair in changed for each in pair):
            found[key] = CallOrigin(
                *key,
                tuple(
                    _decoded(
                        [(bool(no[key][row]), bool(yes[key][row])) for no, yes in changed], sources
                    )
                    for row in range(rows)
                ),
            )
    return found


def _chosen(sources: Sequence[PictureSource], bit: int, side: bool) -> dict[int, list[int]]:
    """Return the samples, by input, whose number has a bit set, or not set."""
    chosen: dict[int, list[int]] = {}
    for number, (place, sample) in enumerate(sources):
        if bool(number >> bit & 1) == side:
            chosen.setdefault(place, []).append(sample)
    return chosen


def _decoded(
    changes: list[tuple[bool, bool]], sources: Sequence[PictureSource]
) -> PictureSource | str:
    """Return the source of a row from its changes at each bit, not set and set."""
    if not any(no or yes for no, yes in changes):
        return NO_PICTURE
    if any(no and yes for no, yes in changes):
        return SEVERAL
    number = sum(yes << bit for bit, (_, yes) in enumerate(changes))
    alone = all(no or yes for no, yes in changes) and number < len(sources)
    return sources[number] if alone else UNKNOWN


_Digests = dict[tuple[str, int], Tensor]
_Statistics = dict[int, tuple[Tensor, ...]]  # by the number of the batch norm in a run


def _changed(
    session: Session,
    layers: Container[str],
    before: _Digests,
    chosen: dict[int, list[int]],
    statistics: _Statistics,
) -> _Digests:
    """Return which rows change with some samples, by two different noises."""
    if not chosen:
        return {key: torch.zeros_like(rows, dtype=torch.bool) for key, rows in before.items()}
    changed: _Digests = {}
    for width in (1.0, 3.0):
        after = _digests(session, layers, chosen, statistics, width=width)
        for key in before.keys() & after.keys():
            if before[key].shape == after[key].shape:
                differ = before[key] != after[key]
                changed[key] = changed.get(key, torch.zeros_like(differ)) | differ
    return changed


def _digests(
    session: Session,
    layers: Container[str],
    chosen: dict[int, list[int]],
    statistics: _Statistics,
    *,
    width: float = 1.0,
    first: bool = False,
) -> _Digests:
    """Run the model with some samples replaced by noise; return a number for each row of a call."""
    given = session.inputs.args, session.inputs.kwargs
    listed = any(isinstance(each, list) for each in session.inputs.args)
    generator, places = torch.Generator().manual_seed(0), count()

    def replaced(tensor: Tensor) -> Tensor:
        samples = chosen.get(next(places), [])
        tensor = tensor.detach().clone()
        batch = tensor[None] if listed and tensor.ndim == 3 else tensor
        for sample in samples:
            low, high = batch[sample].min(), batch[sample].max()
            span = (high - low) * width if high > low else high.new_tensor(width)
            noise = torch.rand(batch[sample].shape, generator=generator).to(batch)
            batch[sample] = (low + high) / 2 + (noise - 0.5) * span
        return tensor

    listener = _RowDigests(layers, statistics, first)
    with session.active(grad=False):
        args, kwargs = map_tensors(given, replaced)
        with OperationRecorder(listener, model=session.model, backward=False):
            session.call(*args, **kwargs)
    return listener.digests


class _RowDigests(Listener):
    """Sums up each row of layers' outputs in a number, and keeps batch statistics as they were.

    Attributes
    ----------
    digests : dict of (str, int) to torch.Tensor
        ``(rows,)`` in float64, for each call.
    """

    def __init__(self, layers: Container[str], statistics: _Statistics, first: bool) -> None:
        self.digests: _Digests = {}
        self._layers, self._statistics, self._first = layers, statistics, first
        self._norms = count()

    def leave(self, call: ModuleCall, returned: list[Tensor], again: bool) -> None:
        """Sum up a layer's output."""
        if call.layer in self._layers and returned and not again:
            rows = _rows_of(returned[0].detach(), call.module).flatten(1)
            rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
            # Different weights: a sum alone stays the same where values change places.
            weights = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(1))
            weighted = rows.double().nan_to_num(1.23e4) @ weights.to(rows.device, torch.float64)
            self.digests[call.layer, call.call] = weighted

    def before(self, operation: Operation) -> None:
        """Normalize by the statistics of the first run."""
        if operation.name not in BATCH_NORMS or operation.phase != "forward":
            return
        argument, place = operation.argument, next(self._norms)
        if uses_running_statistics(operation.name, argument):
            return
        if self._first:
            self._statistics[place] = tuple(each.clone() for each in tensors(operation.run())[1:])
        if place in self._statistics:
            # In the first run too: the operation itself rounds in another way.
            mean, spread, *others = self._statistics[place]
            shape = [1, -1, *[1] * (argument["input"].ndim - 2)]
            made = (argument["input"] - mean.view(shape)) * spread.view(shape)
            if argument["weight"] is not None:
                made = made * argument["weight"].view(shape)
            if argument["bias"] is not None:
                made = made + argument["bias"].view(shape)
            operation.replace((made.to(argument["input"].dtype), mean, spread, *others))
