"""Run a model many times with one layer changed, without repeating the operations before it.

A dispatch mode records one whole run: the operations up to the boundary, where the first changed
layer returns, and the memory that is still in use there, which is all that later operations can
read. In a replay the model's own code runs as always, but operations before the boundary are
skipped: they return uninitialized memory. At the boundary the recorded values are copied into it.

Each recording is tested before its use: a replay without changes, in which all skipped values are
NaN, must return the recorded output to the bit. If it does not, or if operations are random or
differ from the recording, the whole model runs.
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
from ..hooking.storage import StorageMap, share_memory
from ..hooking.tensors import tensors, tensors_in
from .recorder import Listener, Operation, OperationRecorder

T = TypeVar("T")


class Replay:
    """Runs of a model in which nothing changes before one of these layers has returned.

    Attributes
    ----------
    replayed, whole : int
        The numbers of runs that were replays, and of runs of the whole model.

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
        self._recordings: dict[Hashable, _Recording | None] = {}  # of the latest key only
        self.replayed = self.whole = 0

    def run(self, changed: Callable[[], T], plain: Callable[[], Any], key: Hashable = None) -> T:
        """Run ``changed``, which runs the model once, without a graph.

        ``plain`` runs it on the same input without changes; it is called twice for each new
        ``key``. The key identifies everything else that a run depends on, such as the batch size.
        """
        if key not in self._recordings:
            self._recordings = {key: self._tested(plain)}
        recording = self._recordings[key]
        if recording is not None:
            try:
                result = self._within(_Replayer(recording), changed)
            except _DivergedError:
                self._recordings[key] = None
            else:
                self.replayed += 1
                return result
        self.whole += 1
        return changed()

    def _tested(self, plain: Callable[[], Any]) -> _Recording | None:
        """Record a run; None unless its replay returns the same."""
        recording = _Recording()
        try:
            recorded = self._within(_Recorder(recording), plain)
            replayed = self._within(_Replayer(recording, poison=True), plain)
        except (_DivergedError, Exception):  # a whole run will raise the model's own error
            return None
        return recording if _same(recorded, replayed) else None

    def _within(self, phase: _Phase, run: Callable[[], T]) -> T:
        # The boundary's hook must run before the changes: edits run in the order of their entry.
        hooks = [(layer, "edit", lambda *arguments: phase.boundary()) for layer in self._layers]
        with HookManager(hooks), phase.block():
            result = run()
        if not phase.passed:
            raise _DivergedError
        return result


class _Phase(Protocol):
    """The interface of recording and replaying, which both end at the boundary."""

    passed: bool

    def block(self) -> AbstractContextManager: ...
    def boundary(self) -> None: ...


class _DivergedError(BaseException):
    """The replay diverged from the recording. No ``except Exception`` in a model catches this."""


@dataclass(frozen=True)
class _Made:
    """An output tensor of a step, with its own memory."""

    index: int
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)

    def read(self, storage: torch.UntypedStorage) -> Tensor:
        """Return a copy of the present values."""
        empty = torch.empty(0, dtype=self.dtype, device=self.device)
        return empty.set_(storage, 0, self.size, self.stride).clone()


@dataclass(frozen=True)
class _Given:
    """An output tensor of a step that is one of its inputs."""

    number: int


@dataclass(frozen=True)
class _Step:
    """One operation before the boundary."""

    operation: Any
    shapes: list[torch.Size]  # of its input tensors
    outputs: Any
    skipped: bool


@dataclass
class _Recording:
    steps: list[_Step] = field(default_factory=list)
    live: dict[int, Tensor] = field(default_factory=dict)  # index -> values at the boundary


class _Recorder(Listener):
    """A listener that records the operations before the boundary."""

    def __init__(self, recording: _Recording) -> None:
        self.recording, self.passed = recording, False
        self._made: StorageMap[_Made] = StorageMap()
        self._count = 0

    def block(self) -> AbstractContextManager:
        return OperationRecorder(self)

    def boundary(self) -> None:
        """Store the values that later operations can read, and stop recording."""
        if not self.passed:
            self.passed = True
            for storage, made in self._made.storages():
                self.recording.live[made.index] = made.read(storage)

    def before(self, operation: Operation) -> None:
        if self.passed:
            return
        inputs = operation.inputs
        random = torch.Tag.nondeterministic_seeded in operation.function.tags
        if random or not all(map(_plain, inputs)):
            raise _DivergedError
        # Other tensors, such as a buffer, must be written in every run.
        if operation.mutates and not all(tensor in self._made for tensor in inputs):
            raise _DivergedError
        operation.notes[self] = [_layout(tensor) for tensor in inputs]

    def after(self, operation: Operation) -> None:
        if self not in operation.notes:
            return
        inputs, before = operation.inputs, operation.notes[self]
        new = [
            tensor for tensor in operation.outputs if not any(tensor is other for other in inputs)
        ]
        views = [any(share_memory(tensor, other) for other in inputs) for tensor in new]
        if any(views) and not all(views):
            raise _DivergedError
        # Views must be taken of a replay's new base, and in-place reshaping must be repeated.
        skipped = not any(views) and [_layout(tensor) for tensor in inputs] == before
        note = partial(self._note, inputs)
        outputs = tree_map_only(Tensor, note, operation.output) if skipped else None
        shapes = [shape for shape, _ in before]
        self.recording.steps.append(_Step(operation.function, shapes, outputs, skipped))

    def _note(self, inputs: list[Tensor], tensor: Tensor) -> _Made | _Given:
        for number, other in enumerate(inputs):
            if tensor is other:
                return _Given(number)
        if not _plain(tensor) or tensor.storage_offset():
            raise _DivergedError
        self._count += 1
        made = _Made(self._count, tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
        self._made[tensor] = made
        return made


class _Replayer(TorchDispatchMode):
    """A mode that skips operations before the boundary; if it is the top mode, it is left there."""

    def __init__(self, recording: _Recording, *, poison: bool = False) -> None:
        super().__init__()
        self.recording, self.passed, self._left = recording, False, False
        self._poison, self._steps = poison, iter(recording.steps)
        self._waiting: dict[int, Tensor] = {}  # to be filled at the boundary

    def block(self) -> AbstractContextManager:
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._left:
            self._left = True
            super().__exit__(*error)

    def boundary(self) -> None:
        """Copy in the recorded values; from here on everything runs."""
        if self.passed:
            return
        self.passed = True
        if next(self._steps, None) is not None:
            raise _DivergedError
        for index, tensor in self._waiting.items():
            tensor.copy_(self.recording.live[index])
        self._waiting.clear()
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.passed:
            return operation(*args, **kwargs)
        inputs, step = tensors((args, kwargs)), next(self._steps, None)
        same = step is not None and step.operation is operation
        if step is None or not same or [tensor.shape for tensor in inputs] != step.shapes:
            raise _DivergedError
        if not step.skipped:
            return operation(*args, **kwargs)
        return self._output(inputs, step.outputs)

    def _output(self, inputs: list[Tensor], noted: Any) -> Any:
        if isinstance(noted, (tuple, list)):
            return type(noted)(self._output(inputs, item) for item in noted)
        if isinstance(noted, _Given):
            return inputs[noted.number]
        if not isinstance(noted, _Made):
            return noted  # a number or None
        tensor = noted.empty()
        if self._poison:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 1)
        if noted.index in self.recording.live:
            self._waiting[noted.index] = tensor
        return tensor


def _layout(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    return tensor.shape, tensor.stride()


def _plain(tensor: Tensor) -> bool:
    """Return whether a tensor is strided and of no subclass."""
    kinds = (Tensor, nn.Parameter, nn.Buffer) if hasattr(nn, "Buffer") else (Tensor, nn.Parameter)
    strided = tensor.layout is torch.strided and not tensor.is_quantized
    return strided and type(tensor) in kinds


def _same(output: Any, other: Any) -> bool:
    """Return whether two outputs have equal values; NaN equals nothing."""
    pairs = list(tensors_in(output)), list(tensors_in(other))
    if [path for path, _ in pairs[0]] != [path for path, _ in pairs[1]]:
        return False
    return all(torch.equal(one, two) for (_, one), (_, two) in zip(*pairs, strict=True))
