"""A model run again and again with one layer changed: what came before the layer is not repeated.

Every operation of a forward passes torch's dispatcher, and so a mode of it. One whole run is
recorded: which operations came before the first changed layer had returned, and the memory that
was still in use at that moment, which is all that anything later can read. In a replay the model's
own code runs as always, but its operations before that moment are skipped: they return memory that
nobody has written. At the moment itself what was in use is copied back in.

Whether that is right for a model is tried before it is used: a replay with nothing changed, all
skipped values NaN, must give the recorded output to the bit. Where it does not, or the operations
are others than in the recording, or random, the whole model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map_only

from ..hooking.handles import HookManager
from ..hooking.tensors import StorageMap, share_memory, tensors_in
from .recorder import Listener, Operation, OperationRecorder, tensors

T = TypeVar("T")


class Replay:
    """Runs of a model in which nothing changes before one of these layers has returned.

    Attributes
    ----------
    replayed, whole : int
        How many of the runs were replays, and how many of the whole model.

    Examples
    --------
    >>> import hookviz
    >>> model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)), torch.ones(1, 1, 9, 9)
    >>> replay = Replay([model[1]])
    >>> def silenced(channel):
    ...     with hookviz.edit(model, "1", 0, channels=channel):
    ...         return model(x)
    >>> with torch.no_grad():
    ...     without = [replay.run(lambda: silenced(c), lambda: model(x)) for c in (0, 1)]
    >>> replay.replayed, replay.whole
    (2, 0)
    >>> bool((without[1] == silenced(1)).all())
    True
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._layers = list(layers)
        self._recordings: dict[Hashable, _Recording | None] = {}  # of the latest key alone
        self.replayed = self.whole = 0

    def run(self, changed: Callable[[], T], plain: Callable[[], Any], key: Hashable = None) -> T:
        """Do ``changed``, which runs the model once, without a graph.

        ``plain`` runs it on the same input with nothing changed; it is called twice whenever the
        ``key`` is another, which says what else a run depends on, such as the size of a batch.
        """
        if key not in self._recordings:
            self._recordings = {key: self._proved(plain)}
        recording = self._recordings[key]
        if recording is not None:
            try:
                found = self._within(_Replayer(recording), changed)
            except _DivergedError:
                self._recordings[key] = None
            else:
                self.replayed += 1
                return found
        self.whole += 1
        return changed()

    def _proved(self, plain: Callable[[], Any]) -> _Recording | None:
        """Record a run, if its replay returns the same."""
        recording = _Recording()
        try:
            wanted = self._within(_Taping(recording), plain)
            found = self._within(_Replayer(recording, poison=True), plain)
        except (_DivergedError, Exception):  # what raises here, raises in a whole run, too
            return None
        return recording if _same(wanted, found) else None

    def _within(self, way: _Way, run: Callable[[], T]) -> T:
        # Before the changes, which may already be on: a later edit runs after the earlier ones.
        hooks = [(layer, "edit", lambda *given: way.cut()) for layer in self._layers]
        with HookManager(hooks), way.block():
            found = run()
        if not way.reached:
            raise _DivergedError
        return found


class _Way(Protocol):
    """Recording, or replaying: both end at the cut, when the first changed layer has returned."""

    reached: bool

    def block(self) -> AbstractContextManager: ...
    def cut(self) -> None: ...


class _DivergedError(BaseException):
    """The run diverged from the recorded one. No ``except Exception`` of a model's catches it."""


@dataclass(frozen=True)
class _Made:
    """In a step's outputs: a tensor with memory of its own."""

    index: int
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def unwritten(self) -> Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)

    def read(self, storage: torch.UntypedStorage) -> Tensor:
        """A copy of what it holds now."""
        empty = torch.empty(0, dtype=self.dtype, device=self.device)
        return empty.set_(storage, 0, self.size, self.stride).clone()


@dataclass(frozen=True)
class _Given:
    """In a step's outputs: the tensor that it was given there."""

    number: int


@dataclass(frozen=True)
class _Step:
    """One operation before the cut."""

    operation: Any
    shapes: list[torch.Size]  # of the tensors that it was given
    outputs: Any
    skipped: bool


@dataclass
class _Recording:
    steps: list[_Step] = field(default_factory=list)
    kept: dict[int, Tensor] = field(default_factory=dict)  # index -> its values at the cut


class _Taping(Listener):
    """Writes down the operations before the cut."""

    def __init__(self, recording: _Recording) -> None:
        self.recording, self.reached = recording, False
        self._made: StorageMap[_Made] = StorageMap()
        self._count = 0

    def block(self) -> AbstractContextManager:
        return OperationRecorder(self)

    def cut(self) -> None:
        """Keep what can still be read; from here on nothing is written down."""
        if not self.reached:
            self.reached = True
            for storage, made in self._made.storages():
                self.recording.kept[made.index] = made.read(storage)

    def before(self, operation: Operation) -> None:
        if self.reached:
            return
        given = operation.inputs
        random = torch.Tag.nondeterministic_seeded in operation.function.tags
        if random or not all(map(_plain, given)):
            raise _DivergedError
        # What is not made here, such as a buffer, must be written each time.
        if operation.mutates and not all(each in self._made for each in given):
            raise _DivergedError
        operation.notes[self] = [_layout(each) for each in given]

    def after(self, operation: Operation) -> None:
        if self not in operation.notes:
            return
        given, before = operation.inputs, operation.notes[self]
        new = [each for each in operation.outputs if not any(each is one for one in given)]
        views = [any(share_memory(each, one) for one in given) for each in new]
        if any(views) and not all(views):
            raise _DivergedError
        # A view is one of a new base in a replay, and what only changes a shape must do so again.
        skipped = not any(views) and [_layout(each) for each in given] == before
        note = partial(self._note, given)
        outputs = tree_map_only(Tensor, note, operation.output) if skipped else None
        shapes = [shape for shape, _ in before]
        self.recording.steps.append(_Step(operation.function, shapes, outputs, skipped))

    def _note(self, given: list[Tensor], tensor: Tensor) -> _Made | _Given:
        for number, each in enumerate(given):
            if tensor is each:
                return _Given(number)
        if not _plain(tensor) or tensor.storage_offset():
            raise _DivergedError
        self._count += 1
        made = _Made(self._count, tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
        self._made[tensor] = made
        return made


class _Replayer(TorchDispatchMode):
    """Skips the operations before the cut; it is left there, if no mode is on top of it."""

    def __init__(self, recording: _Recording, *, poison: bool = False) -> None:
        super().__init__()
        self.recording, self.reached, self._left = recording, False, False
        self._poison, self._steps = poison, iter(recording.steps)
        self._waiting: dict[int, Tensor] = {}  # for the values that they have at the cut

    def block(self) -> AbstractContextManager:
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._left:
            self._left = True
            super().__exit__(*error)

    def cut(self) -> None:
        """Fill in what can still be read; from here on everything runs."""
        if self.reached:
            return
        self.reached = True
        if next(self._steps, None) is not None:
            raise _DivergedError
        for index, tensor in self._waiting.items():
            tensor.copy_(self.recording.kept[index])
        self._waiting.clear()
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.reached:
            return operation(*args, **kwargs)
        given, step = tensors((args, kwargs)), next(self._steps, None)
        same = step is not None and step.operation is operation
        if step is None or not same or [each.shape for each in given] != step.shapes:
            raise _DivergedError
        if not step.skipped:
            return operation(*args, **kwargs)
        return self._output(given, step.outputs)

    def _output(self, given: list[Tensor], noted: Any) -> Any:
        if isinstance(noted, (tuple, list)):
            return type(noted)(self._output(given, each) for each in noted)
        if isinstance(noted, _Given):
            return given[noted.number]
        if not isinstance(noted, _Made):
            return noted  # a number, or the lack of a tensor
        tensor = noted.unwritten()
        if self._poison:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 1)
        if noted.index in self.recording.kept:
            self._waiting[noted.index] = tensor
        return tensor


def _layout(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    return tensor.shape, tensor.stride()


def _plain(tensor: Tensor) -> bool:
    """Whether it is strided numbers, and nothing else."""
    kinds = (Tensor, nn.Parameter, nn.Buffer) if hasattr(nn, "Buffer") else (Tensor, nn.Parameter)
    strided = tensor.layout is torch.strided and not tensor.is_quantized
    return strided and type(tensor) in kinds


def _same(output: Any, other: Any) -> bool:
    """Whether two outputs hold the same values, and no NaN."""
    pairs = list(tensors_in(output)), list(tensors_in(other))
    if [path for path, _ in pairs[0]] != [path for path, _ in pairs[1]]:
        return False
    return all(torch.equal(one, two) for (_, one), (_, two) in zip(*pairs, strict=True))
