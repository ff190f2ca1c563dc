"""A survey's one pass over the data set: forward hooks sum up each batch, nothing else is kept."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import floordiv, mod
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...attribution.attending import Attended, AttentionListener
from ...attribution.attention import prefix_of
from ...attribution.heads import heads_name
from ...hooking.handles import Hook, HookManager
from ...hooking.interrupts import defer_interrupts
from ...hooking.select import Layers, module_names, select_layers, type_name, unwrapped
from ...hooking.tensors import PatchGrid, as_maps, at_least_float32, tensors
from ...run.inputs import ModelInput, Transform, as_the_model_takes, moved, where_inputs_go
from ...run.progress import Progress
from ...run.recorder import OperationRecorder
from ...run.session import Session
from ...run.target import class_names_of
from ..receptive_field.field import receptive_fields
from .channels import RULE, BatchStatistics, Column, RunningStatistics, rows_of
from .file import Fingerprint, IndexRanges, differences, mark_of
from .reading import Batch, Reader, as_data_set
from .survey import Survey, read


def survey(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    *,
    heads: bool = False,
    k: int = 9,
    batch_size: int = 32,
    num_workers: int = 0,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    path: str | PathLike | None = None,
    save_every: float = 60.0,
    on_error: str = "raise",
    shard: tuple[int, int] | None = None,
) -> Survey:
    """Find the top inputs of each channel in a whole data set: one forward pass, no backward.

    Of each channel of each layer: the k inputs with the largest value, and where; mean, standard
    deviation, share of zeros, a sketch of the quantiles, whether it was ever above zero; with
    labels, the classes of its top inputs. The model runs in eval mode, and is as before afterwards,
    to the bit.

    Parameters
    ----------
    model : torch.nn.Module
        On the device on which it is to run.
    inputs
        A data set of torch, with a length and items; a list; or a folder of pictures, whose
        folders, if all are in some, are the classes. An item is a picture (path, PIL, array), a
        tensor without a batch dimension, or a dict of these by the names of the model's arguments;
        or a tuple of one and the number of its class.
    layers : optional
        Which layers, as in `hookviz.capture`: None is every convolution.
    heads : bool
        True to survey attention, too, of those of ``layers`` that attend, or of all if ``layers``
        is left out: of the module ``"blocks.3.attn"`` two layers, of which a channel is a head.
        ``"blocks.3.attn.heads.peak"`` is the largest weight that any query gives to each patch,
        and ``"blocks.3.attn.heads.entropy"`` how widely each patch looks: 0 for one key, 1 for
        all alike.
    k : int
        How many inputs are kept for a channel; one place of each.
    batch_size, num_workers : int
        How many inputs run at once, and how many processes read them (0: this one).
    weights, class_names : optional
        As in `hookviz.explore`. A data set with ``classes`` names them itself.
    transform : callable, optional
        Item -> tensor. Pictures go through the model's own if it is left out, see
        `hookviz.attribution.prepare_input`. It should be deterministic.
    path : path, optional
        A file for the result, written every ``save_every`` seconds, too. If it is there already,
        the survey goes on where that one was. A shard's own stands beside it: that of the first
        of two, of ``survey.npz``, is ``survey.0-of-2.npz``.
    on_error : {"raise", "skip"}
        What happens with an input that cannot be read; skipped ones are in ``survey.unread``.
    shard : (int, int), optional
        Which of how many parts of the data set, from 0. All of them, added with ``+``, are the
        whole, and so is ``hookviz.load("survey.*-of-*.npz")``. Each process of torch.distributed
        does its own part if it is left out.

    Returns
    -------
    Survey
        After an interrupt that of the inputs so far, with a warning.

    Raises
    ------
    ValueError
        An argument that cannot be; an input that cannot be read, or does not fit the others; a
        file at ``path`` that is broken, or of another model, data set or transform.
    TypeError
        A data set without length or items; no module.
    RuntimeError
        What the model raises, with the layer in which it arose.

    Warns
    -----
    RuntimeWarning
        Layers whose output is not maps of the inputs are left out.

    Notes
    -----
    However the data set is cut, by shards, processes or interrupts, the result is the same: all
    run the same batches, counts are whole numbers and equal values are ordered by index, to the
    bit; means and standard deviations are float64 sums, and agree to 12 digits. With another
    ``batch_size`` the network itself may round otherwise.

    NaN are counted, and left out of everything else. −Inf is not ranked. Values are compared and
    summed up as float32, or float64 where the layer's are.

    Examples
    --------
    >>> import hookviz
    >>> pictures = hookviz.demo_images()
    >>> survey = hookviz.survey(hookviz.demo_model(), pictures, "layer3.*.conv2", k=3)
    >>> for index, value, position, box in survey["layer3.1.conv2"].top(15):
    ...     print(index, pictures[index].info["label"], position)
    8 ring (5, 6)
    24 heart (3, 8)
    18 ring (3, 11)
    """
    _check(k, batch_size, num_workers, on_error, shard)
    data = as_data_set(inputs)
    # A session without an input of its own: the data set has them.
    session = Session(model, ModelInput(()), weights=weights)
    chosen = select_layers(model, layers)
    attending = None if layers is None else set(chosen)
    names = class_names if class_names is not None else getattr(data, "classes", None)
    reader = Reader(data, session.model, weights, transform)
    layer_names = [n[0] for n in chosen.values()] + ["(heads)"] * heads
    mark = mark_of(session.model, data, reader.rule, layer_names, k)
    rank, parts = shard or _own_shard()
    file = None if path is None else _file_of(Path(path), rank, parts)
    begun = _begun(file, mark) or Survey(mark, RunningStatistics(k), IndexRanges())
    work = _Work(session, chosen, begun, file, _Heads(session.model, attending) if heads else None)
    work.class_names = class_names_of(session.model, weights, names)
    if work.fields is None:
        work.fields = _fields(model, list(chosen), reader)
    every = IndexRanges().batches(len(data), batch_size)
    mine = every[len(every) * rank // parts : len(every) * (rank + 1) // parts]
    todo = begun.done.batches(len(data), batch_size)
    todo = [span for span in todo if mine and mine[0].start <= span.start < mine[-1].stop]
    pace = _Pace(sum(map(len, todo)))
    with Progress(terminal=rank == 0) as bar:

        def told(done: int) -> None:
            bar.update(done / pace.total, pace.words(done))

        read = reader.batches(todo, num_workers)
        interrupted = _pass(work, read, save_every, on_error, told)
    found = work.result()
    if interrupted:
        after = "; call it again with the same path=, and it goes on" * (path is not None)
        warnings.warn(
            f"The survey was interrupted after {len(found.done):,} of {len(data):,} inputs, and is "
            f"of these{after}.",
            RuntimeWarning,
            stacklevel=2,
        )
    work.keep()
    return replace(found, reader=reader)


def _own_shard() -> tuple[int, int]:
    """Return this process's shard under torch.distributed; everything in a single process."""
    several = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if several else (0, 1)


def _file_of(path: Path, rank: int, parts: int) -> Path:
    """Return the file of a shard."""
    if not path.parent.is_dir():
        raise ValueError(f"Missing folder {str(path.parent)!r} for path={str(path)!r}: make it.")
    return path if parts == 1 else path.with_name(f"{path.stem}.{rank}-of-{parts}{path.suffix}")


def _begun(file: Path | None, mark: Fingerprint) -> Survey | None:
    """Return the survey in the file, if the file exists."""
    if file is None or not file.exists():
        return None
    begun = read(file)
    if why := differences(begun.mark, mark):
        raise ValueError(
            f"{str(file)!r} is not of this survey: {why}. It was left as it is: move it away, or "
            "give another path=."
        )
    return begun


def _check(
    k: int, batch_size: int, num_workers: int, on_error: str, shard: tuple[int, int] | None
) -> None:
    for name, value, least in (("k", k, 1), ("batch_size", batch_size, 1)):
        if value < least:
            raise ValueError(f"{name}={value} is too small: give {least} or more.")
    if num_workers < 0:
        raise ValueError(f"num_workers={num_workers} is negative: give 0 or more.")
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error={on_error!r} is neither "raise" nor "skip".')
    if shard is not None and not 0 <= shard[0] < shard[1]:
        raise ValueError(f"shard={shard} is none: give (0, 2) and (1, 2) for two halves.")


def _fields(model: nn.Module, layers: list[nn.Module], reader: Reader) -> dict[str, dict[str, Any]]:
    """Return the fields of the positions of each layer's map, in the form of `RULE`."""
    first = reader.read(range(1))
    if first.unread:
        return {}
    inputs = as_the_model_takes(first.inputs, unwrapped(model)[0])
    found = receptive_fields(model, inputs, layers, call=0)
    return {
        name: {each: list(getattr(field, each)) for each in RULE}
        for name, field in found.items()
        if field.status == "exact" and None not in (*field.stride, *field.start)
    }


def _pass(
    work: _Work,
    batches: Iterator[Batch],
    save_every: float,
    on_error: str,
    told: Callable[[int], object],
) -> bool:
    """Take in the batches, and write now and then; return whether it was interrupted."""
    written, done = time.monotonic(), 0
    try:
        with work.session.active(grad=False), work:
            for batch in batches:
                if batch.unread and on_error == "raise":
                    index, why = next(iter(batch.unread.items()))
                    raise ValueError(
                        f"Input {index} of the data set cannot be read ({why}): mend it, or go "
                        'without such inputs by on_error="skip".'
                    )
                work.take(batch)
                done += len(batch.span)
                told(done)
                if time.monotonic() - written >= save_every:
                    work.keep()
                    written = time.monotonic()
    except KeyboardInterrupt:
        return True
    except Exception:
        work.keep()
        raise
    return False


_SMALL, _AT_ONCE = 1 << 17, 1 << 22
"""Maps of so few numbers are kept until there are so many: to sum up each alone costs more than to
compute it."""


@dataclass(frozen=True, eq=False)
class _Small:
    """A batch, all of whose maps are small, and where copies of them lie."""

    batch: Batch
    indices: Tensor
    memory: Mapping[Column, Tensor]
    start: int  #: in each of them

    @property
    def stop(self) -> int:
        return self.start + len(self.indices)

    def goes_with(self, after: _Small) -> bool:
        """Return True if the other one is behind this one, and its maps lie in the same memory."""
        same = self.memory.keys() == after.memory.keys() and all(
            each is after.memory[column] for column, each in self.memory.items()
        )
        return same and self.batch.span.stop <= after.batch.span.start


class _Work(HookManager):
    """The hooks of a survey, and what they have found."""

    def __init__(
        self,
        session: Session,
        chosen: Mapping[nn.Module, list[str]],
        begun: Survey,
        file: Path | None,
        heads: _Heads | None = None,
    ) -> None:
        self._heads = heads
        self.session, self._begun, self._file = session, begun, file
        self._where = device, _ = where_inputs_go(session.model)
        # Others have no float64.
        self._device = device if device.type in ("cpu", "cuda") else torch.device("cpu")
        self._channels = begun.channels.to(self._device)
        self._done, self._unread = begun.done, dict(begun.unread)
        self._left_out, self.class_names = dict(begun.left_out), begun.class_names
        self.fields = begun.fields
        self._indices = torch.zeros(0, dtype=torch.int64)
        self._found: dict[Column, BatchStatistics | Tensor] = {}
        self._waiting: list[_Small] = []
        self._memory: dict[Column, Tensor] = {}  # of the maps that wait: new one each time is slow
        self._room = self._wanted = 0  # for how many inputs it has room, and is to have
        self._calls: Counter[nn.Module] = Counter()
        self._careful = False
        self._grid = PatchGrid()
        hooks: list[Hook] = [*self._grid.hooks(session.given)]
        for order, (module, names) in enumerate(chosen.items()):
            hooks.append((module, "forward", partial(self._after, order, names[0])))
        super().__init__(hooks)

    def result(self) -> Survey:
        """Return the survey so far."""
        self._take_in_waiting()
        return replace(
            self._begun,
            channels=self._channels.to("cpu"),
            done=self._done,
            unread=dict(sorted(self._unread.items())),
            left_out=dict(self._left_out),
            class_names=self.class_names,
            fields=self.fields,
        )

    def keep(self) -> None:
        """Write what has been found so far, where there is a file for it."""
        if self._file is not None:
            self.result().save(self._file)

    def take(self, batch: Batch) -> None:
        """Run the model on a batch, and take in what the hooks found."""
        self._indices = torch.tensor(batch.indices, dtype=torch.int64, device=self._device)
        self._found = {}
        if batch.indices:
            self._make_room()
            self._check_fields(batch)
            self._run(batch)
        maps = {c: each for c, each in self._found.items() if isinstance(each, Tensor)}
        memory = {column: self._memory[column] for column in maps}
        small = _Small(batch, self._indices, memory, self._filled)
        if maps and len(maps) == len(self._found):
            self._wait(small)
            return
        self._take_in_waiting()
        found = {c: e for c, e in self._found.items() if isinstance(e, BatchStatistics)}
        # NaN cost another look at each map, and a stop for a GPU: so not unless there are.
        if any(bool(rows.top.isnan().any()) for rows in found.values()):
            self._careful = True
            self._run(batch)
            found = {c: e for c, e in self._found.items() if isinstance(e, BatchStatistics)}
        self._take_in([small], found | self._summed_up(maps, self._indices))

    def _wait(self, small: _Small) -> None:
        """Let a batch of small maps wait for others, to be summed up with them at once."""
        if self._waiting and not self._waiting[-1].goes_with(small):
            self._take_in_waiting()
        self._waiting.append(small)
        self._wanted = _AT_ONCE // sum(each[0].numel() for each in small.memory.values())

    @property
    def _filled(self) -> int:
        """Number of inputs whose maps wait."""
        return self._waiting[-1].stop if self._waiting else 0

    def _make_room(self) -> None:
        """Take in what waits if the next batch does not fit behind it."""
        if self._filled + len(self._indices) > self._room:
            self._take_in_waiting()
            self._room = max(self._wanted, len(self._indices))

    def _copied(self, column: Column, maps: Tensor) -> Tensor:
        """Copy small maps behind those that wait."""
        room, size = self._memory.get(column), (self._room, *maps.shape[1:])
        if room is None or room.shape != size or room.dtype != maps.dtype:
            room = self._memory[column] = maps.new_empty(size)
        return room[self._filled :][: len(maps)].copy_(maps)

    @defer_interrupts
    def _take_in_waiting(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        here = slice(waiting[0].start, waiting[-1].stop)
        maps = {column: each[here] for column, each in waiting[0].memory.items()}
        indices = torch.cat([each.indices for each in waiting])
        self._take_in(waiting, self._summed_up(maps, indices))

    def _summed_up(
        self, maps: Mapping[Column, Tensor], indices: Tensor
    ) -> dict[Column, BatchStatistics]:
        length = self._begun.mark.length
        found = {c: rows_of(each, indices, length, self._careful) for c, each in maps.items()}
        if not self._careful and any(bool(rows.top.isnan().any()) for rows in found.values()):
            self._careful = True
            return self._summed_up(maps, indices)
        return found

    def _check_fields(self, batch: Batch) -> None:
        """Drop the fields of the first input where inputs of another size come."""
        sizes = {tuple(each["input_size"]) for each in (self.fields or {}).values()}
        main = batch.inputs.main
        if main is not None and sizes - {tuple(main.shape[2:])}:
            self.fields = {}

    @defer_interrupts  # half a batch would be no batch
    def _take_in(self, taken: Sequence[_Small], found: Mapping[Column, BatchStatistics]) -> None:
        indices = torch.cat([each.indices for each in taken])
        known = [label for each in taken for label in each.batch.labels]
        labels = torch.tensor(known, dtype=torch.int32, device=self._device)
        spans = [each.batch.span for each in taken]
        before = not self._done.runs or self._done.runs[-1][1] <= spans[0].start
        self._channels.add(indices, labels, found, in_order=before)
        self._done = self._done | IndexRanges([(span.start, span.stop) for span in spans])
        for each in taken:
            self._unread |= each.batch.unread

    def _run(self, batch: Batch) -> None:
        self._found, self._calls = {}, Counter()
        inputs = moved(batch.inputs, *self._where)
        if self._heads is None:
            self.session.call(*inputs.args, **inputs.kwargs)
            return
        with self._heads.listening(len(batch.indices)) as found:
            self.session.call(*inputs.args, **inputs.kwargs)
        for column, maps in found.maps.items():
            self._sum_up(column, maps.to(self._device))
        for name, why in found.left_out.items():
            self._leave_out(name, why)
        if self.fields is not None and inputs.main is not None:
            sizes = {tuple(each["input_size"]) for each in self.fields.values()}
            if sizes <= {tuple(inputs.main.shape[2:])}:
                self.fields = found.fields(inputs.main.shape[2:]) | self.fields

    def _sum_up(self, column: Column, maps: Tensor) -> None:
        if maps.numel() <= _SMALL:
            self._found[column] = self._copied(column, maps)
            return
        length = self._begun.mark.length
        self._found[column] = rows_of(maps, self._indices, length, self._careful)

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._left_out:
            self._left_out[name] = why.rstrip(".")
            warnings.warn(f"{name!r} is left out: {why}", RuntimeWarning, stacklevel=3)

    def _after(
        self, order: int, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        call = self._calls[module]
        self._calls[module] += 1
        try:
            maps = self._maps(module, output)
        except ValueError as error:
            self._leave_out(name, str(error))
            return
        kind = type_name(module)
        self._sum_up(Column(order, name, kind, call, maps.shape[1], maps.ndim - 2), maps)

    def _maps(self, module: nn.Module, output: Any) -> Tensor:
        first = next((each for each in tensors(output) if each.is_floating_point()), None)
        if first is None:
            raise ValueError("it returns no floating-point numbers.")
        maps = as_maps(first.detach(), module, self._grid.of(first.shape))
        if len(maps) != len(self._indices) or not maps.numel():
            raise ValueError(
                f"it returns shape {tuple(first.shape)} for {len(self._indices)} inputs: one "
                "row is needed for each."
            )
        return at_least_float32(maps).to(self._device)


class _Heads:
    """Maps of a batch, by head: its peaks and its entropy, ``(N, heads, *patches)``.

    Attributes
    ----------
    maps : dict of Column to torch.Tensor
        Two of each module that attends, see `survey`.
    left_out : dict of str to str
    """

    def __init__(self, model: nn.Module, chosen: set[nn.Module] | None) -> None:
        self._model, self._chosen = model, chosen
        self._order = {module: order for order, module in enumerate(module_names(model))}
        self.maps: dict[Column, Tensor] = {}
        self.left_out: dict[str, str] = {}
        self._grid: tuple[int, ...] | None = None

    @contextmanager
    def listening(self, count: int) -> Iterator[_Heads]:
        """Listen within a block, in which the model runs on ``count`` inputs."""
        self.maps, self.left_out, calls = {}, {}, Counter[str]()
        listener: AttentionListener

        def take(attended: Attended, weights: Tensor) -> None:
            name, call = heads_name(attended.name), calls[attended.name]
            calls[attended.name] += 1
            if len(weights) != count:
                self.left_out[name] = (
                    f"it attends {len(weights)} times in {count} inputs, as windows do, which does "
                    "not say what is whose."
                )
                return
            for what, values in (("entropy", _entropy(weights)), ("peak", weights.amax(-2))):
                maps = _laid_out(values, listener.grid)
                known = self._order.get(attended.module, 0) if attended.module else 0
                order = len(self._order) + known  # behind all layers
                column = Column(
                    order, f"{name}.{what}", "Attention", call, maps.shape[1], maps.ndim - 2
                )
                self.maps[column] = at_least_float32(maps)

        listener = AttentionListener(self._model, self._chosen, reduce=take)
        with OperationRecorder(listener, model=self._model, backward=False):
            yield self
        self._grid = listener.grid

    def fields(self, size: Sequence[int]) -> dict[str, dict[str, Any]]:
        """Return what a place of such a map is of, the patch, in the form of `RULE`."""
        grid = self._grid
        if grid is None or len(grid) != len(size) or any(map(mod, size, grid)):
            return {}
        patch = list(map(floordiv, size, grid))
        rule: dict[str, Any] = dict(
            zip(RULE, (patch, patch, [0] * len(patch), list(size)), strict=True)
        )
        return {column.name: rule for column in self.maps if column.dimensions == len(grid)}


def _entropy(weights: Tensor) -> Tensor:
    """Return the entropy of each query's weights, ``(N, heads, queries)``, 1 for all keys alike."""
    return torch.special.entr(weights).sum(-1) / math.log(max(weights.shape[-1], 2))


def _laid_out(values: Tensor, grid: tuple[int, ...] | None) -> Tensor:
    """Lay out the tokens that are patches, ``(N, heads, rows, columns)``; else all in a row."""
    before = prefix_of(values.shape[-1], grid)
    if before is None or grid is None:
        return values
    return values[..., before:].unflatten(-1, grid)


class _Pace:
    """Describe speed and remaining time."""

    def __init__(self, total: int) -> None:
        self.total, self._start = total, time.monotonic()

    def words(self, done: int) -> str:
        rate = done / max(time.monotonic() - self._start, 1e-9)
        left = timedelta(seconds=round((self.total - done) / max(rate, 1e-9)))
        return f"{done:,} of {self.total:,} inputs, {rate:.3g} a second, {left} left"
