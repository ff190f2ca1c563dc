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
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map_only

from ..hooking.handles import HookManager
from ..hooking.tensors import memory_of, tensors_in

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
        self._tapes: dict[Hashable, _Tape | None] = {}  # of the latest key alone
        self.replayed = self.whole = 0

    def run(self, changed: Callable[[], T], plain: Callable[[], Any], key: Hashable = None) -> T:
        """Do ``changed``, which runs the model once, without a graph.

        ``plain`` runs it on the same input with nothing changed; it is called twice whenever the
        ``key`` is another, which says what else a run depends on, such as the size of a batch.
        """
        if key not in self._tapes:
            self._tapes = {key: self._proved(plain)}
        tape = self._tapes[key]
        if tape is not None:
            try:
                found = self._within(_Player(tape), changed)
            except _DivergedError:
                self._tapes[key] = None
            else:
                self.replayed += 1
                return found
        self.whole += 1
        return changed()

    def _proved(self, plain: Callable[[], Any]) -> _Tape | None:
        """A recording that gives what the model gives."""
        tape = _Tape()
        try:
            wanted = self._within(_Recorder(tape), plain)
            found = self._within(_Player(tape, poison=True), plain)
        except (_DivergedError, Exception):  # what raises here, raises in a whole run, too
            return None
        return tape if _same(wanted, found) else None

    def _within(self, mode: _Recorder | _Player, run: Callable[[], T]) -> T:
        # Before the changes, which may already be on: a later edit runs after the earlier ones.
        hooks = [(layer, "edit", lambda *given: mode.cut()) for layer in self._layers]
        with HookManager(hooks), mode:
            found = run()
        if not mode.reached:
            raise _DivergedError
        return found


class _DivergedError(BaseException):
    """The run is another than the recorded one. No ``except Exception`` of a model's catches it."""


@dataclass(frozen=True)
class _Made:
    """In a step's outputs: a tensor with memory of its own."""

    place: int
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
class _Tape:
    steps: list[_Step] = field(default_factory=list)
    kept: dict[int, Tensor] = field(default_factory=dict)  # place -> its values at the cut


class _Mode(TorchDispatchMode):
    """A mode that is left at the cut, where nothing has come on top of it."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__()
        self.tape, self.reached, self._left = tape, False, False

    def __exit__(self, *error: Any) -> None:
        if not self._left:
            self._left = True
            super().__exit__(*error)

    def cut(self) -> None:
        """The first changed layer has returned: from here on everything runs."""
        if self.reached:
            return
        self.reached = True
        self._at_cut()
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.reached:
            return operation(*args, **kwargs)
        return self._before_cut(operation, args, kwargs)

    def _at_cut(self) -> None:
        raise NotImplementedError

    def _before_cut(self, operation: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError


class _Recorder(_Mode):
    """Runs everything, and writes down what comes before the cut."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__(tape)
        self._made: dict[int, tuple[_Made, StorageWeakRef]] = {}  # by address, which they keep

    def _at_cut(self) -> None:
        """Keep what can still be read."""
        for made, reference in self._made.values():
            if not reference.expired():
                storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
                self.tape.kept[made.place] = made.read(storage)
        self._made.clear()

    def _before_cut(self, operation: Any, args: Any, kwargs: Any) -> Any:
        given = _tensors((*args, *kwargs.values()))
        before = [_layout(each) for each in given]
        if torch.Tag.nondeterministic_seeded in operation.tags or not all(map(_plain, given)):
            raise _DivergedError
        # What is not made here, such as a buffer, must be written each time.
        if operation._schema.is_mutable and not all(memory_of(t) in self._made for t in given):
            raise _DivergedError
        found = operation(*args, **kwargs)
        memory = [memory_of(each) for each in given]
        new = [each for each in _tensors([found]) if not any(each is one for one in given)]
        views = [memory_of(each) in memory for each in new]
        if any(views) and not all(views):
            raise _DivergedError
        # A view is one of a new base in a replay, and what only changes a shape must do so again.
        skipped = not any(views) and [_layout(each) for each in given] == before
        outputs = tree_map_only(Tensor, partial(self._note, given), found) if skipped else None
        self.tape.steps.append(_Step(operation, [each[0] for each in before], outputs, skipped))
        return found

    def _note(self, given: list[Tensor], tensor: Tensor) -> _Made | _Given:
        for number, each in enumerate(given):
            if tensor is each:
                return _Given(number)
        if not _plain(tensor) or tensor.storage_offset():
            raise _DivergedError
        place = len(self._made)
        made = _Made(place, tensor.size(), tensor.stride(), tensor.dtype, tensor.device)
        self._made[memory_of(tensor)] = made, StorageWeakRef(tensor.untyped_storage())
        return made


class _Player(_Mode):
    """Skips what comes before the cut."""

    def __init__(self, tape: _Tape, *, poison: bool = False) -> None:
        super().__init__(tape)
        self._poison, self._steps = poison, iter(tape.steps)
        self._waiting: dict[int, Tensor] = {}  # for the values that they have at the cut

    def _at_cut(self) -> None:
        if next(self._steps, None) is not None:
            raise _DivergedError
        for place, tensor in self._waiting.items():
            tensor.copy_(self.tape.kept[place])
        self._waiting.clear()

    def _before_cut(self, operation: Any, args: Any, kwargs: Any) -> Any:
        given, step = _tensors((*args, *kwargs.values())), next(self._steps, None)
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
        if noted.place in self.tape.kept:
            self._waiting[noted.place] = tensor
        return tensor


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """An operation is given tensors and lists of tensors, and nothing deeper."""
    found: list[Tensor] = []
    for each in values:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += [one for one in each if isinstance(one, Tensor)]
    return found


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
