"""One pass over a data set: forward hooks reduce each batch to statistics, nothing else is kept."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...hooking.arguments import whole_number
from ...hooking.handles import Hook, HookManager
from ...hooking.interrupts import defer_interrupts
from ...hooking.maps import PatchGrid, as_maps
from ...hooking.select import Layers, first_names, select_layers, type_name, unwrapped
from ...hooking.tensors import at_least_float32, map_tensors, tensors
from ...hooking.transforms import TransformError
from ...run.inputs import ModelInput, Transform, as_the_model_takes, moved, where_inputs_go
from ...run.origins import (
    CallKey,
    InputListener,
    PictureSource,
    RowSources,
    call_origins,
    picture_tensors,
)
from ...run.progress import Progress
from ...run.recorder import OperationRecorder
from ...run.session import Session
from ...run.target import class_names_of
from ..receptive_field.dependency import seen_by
from ..receptive_field.field import field_of_footprint
from .fingerprint import Fingerprint, data_marks, model_marks
from .layer import NO_SOURCE, RULE
from .reading import Batch, Reader, as_data_set
from .running import BatchStatistics, LayerStatistics, SurveyedRun, reduce_maps
from .survey import Survey


def survey(
    model: nn.Module,
    inputs: Any,
    layers: Layers = None,
    *,
    k: int = 9,
    batch_size: int = 32,
    num_workers: int = 0,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    on_error: str = "raise",
    shard: tuple[int, int] | None = None,
) -> Survey:
    """Find the top inputs of each channel in a whole data set, in one forward pass.

    For each channel of each layer, the result has the k inputs with the largest value and where in
    the map it is; mean, standard deviation, fraction of zeros and quantiles of its values; and,
    with labels, the classes of its top inputs. The model runs in eval mode, without gradients. It
    is afterwards as it was before, to the bit.

    Parameters
    ----------
    model : torch.nn.Module
        On the device on which it is to run.
    inputs
        A data set of torch with a length and items; a list; or a folder of pictures, whose
        subfolders are the classes if all pictures are in one. An item is a picture (path, PIL,
        array), a tensor without a batch dimension, or a dict of these by the names of the model's
        arguments; or a tuple of one of them and the number of its class. Instead of a
        ``DataLoader``, give its ``dataset``.
    layers : optional
        Which layers, as in `hookviz.capture`: None is every convolution.
    k : int
        How many inputs are kept for a channel, with one position each.
    batch_size, num_workers : int
        How many inputs run at once, and how many processes read them (0: this one).
    weights, class_names : optional
        As in `hookviz.explore`. A data set with ``classes`` names them itself.
    transform : callable, optional
        Item -> tensor, the same at every call. Paths and arrays are read for it as PIL images, in
        their own mode. By default pictures go through the model's own transform, see
        `hookviz.attribution.prepare_input`.
    on_error : {"raise", "skip"}
        What happens if an input cannot be read; skipped ones are listed in ``survey.unread``.
    shard : (int, int), optional
        ``(i, n)`` covers the i-th of n parts of the data set, counted from 0: for n processes, or
        machines. Add all parts with ``+``.

    Returns
    -------
    Survey
        After an interrupt, that of the inputs so far, with a warning.

    Raises
    ------
    ValueError
        An argument is out of range, or an input cannot be read or differs from the others in shape.
    TypeError
        The data set has no length or no items, or the model is not a module.
    RuntimeError
        What the model raises, with the layer in which it arose.

    Warns
    -----
    RuntimeWarning
        A layer whose output is not maps of the inputs was left out, or the survey was interrupted.

    Notes
    -----
    The sum of all parts is the survey of the whole data set. Each part is a block of whole batches,
    so that all runs see the same batches; counts are whole numbers and equal values are ordered by
    index: they agree to the bit. Means and standard deviations are sums of float64, and agree to 12
    digits. Only another ``batch_size``, or another kind of processor, may round otherwise within
    the network.

    NaN and infinities enter neither mean, standard deviation, zeros nor quantiles. NaN are counted;
    an infinity can be a channel's largest value.

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
    # The session has no input of its own: the batches come from the data set.
    session = Session(model, ModelInput(()), weights=weights)
    chosen = select_layers(model, layers)
    names = class_names if class_names is not None else getattr(data, "classes", None)
    reader = Reader(data, session.model, weights, transform)
    layer_names = tuple(names[0] for names in chosen.values())
    first = reader.read(range(1)).inputs
    marks = model_marks(session.model) | data_marks(data, reader.rule, first)
    fields, sources = _fields_and_sources(model, chosen, first)
    found = Survey(
        Fingerprint(**marks, layers=layer_names, k=k),
        layers={},
        covered=torch.zeros(len(data), dtype=torch.bool),
        unread={},
        left_out={},
        class_names=class_names_of(session.model, weights, names),
        fields=fields,
        sources=sources,
        reader=reader,
    )
    hooks = SurveyHooks(session, chosen, found)
    spans = _spans(len(data), batch_size, shard)
    read = reader.batches(spans, num_workers)
    total = sum(map(len, spans))
    with Progress(terminal=shard is None or shard[0] == 0) as bar:
        interrupted = _pass(hooks, read, on_error, total, bar)
    if interrupted:
        warnings.warn(
            f"The survey was interrupted: it covers {int(found.covered.sum()):,} of {total:,} "
            "inputs.",
            RuntimeWarning,
            stacklevel=2,
        )
    return hooks.result()


def _check(
    k: int, batch_size: int, num_workers: int, on_error: str, shard: tuple[int, int] | None
) -> None:
    whole_number("k", k)
    whole_number("batch_size", batch_size)
    whole_number("num_workers", num_workers, 0)
    if on_error not in ("raise", "skip"):
        raise ValueError(f'on_error={on_error!r} is neither "raise" nor "skip".')
    if shard is not None and not _is_part(shard):
        raise ValueError(
            f"shard={shard!r} is not a part: give (i, n) with 0 <= i < n, such as (0, 2) and "
            "(1, 2) for two halves."
        )


def _is_part(shard: Any) -> bool:
    whole = isinstance(shard, Sequence) and all(isinstance(each, Integral) for each in shard)
    return whole and len(shard) == 2 and 0 <= shard[0] < shard[1]


def _spans(length: int, batch_size: int, shard: tuple[int, int] | None) -> list[range]:
    """Return the indices of each batch of a part.

    Batches begin at the same indices in every division, since a network may round otherwise in
    another batch.
    """
    spans = [range(at, min(length, at + batch_size)) for at in range(0, length, batch_size)]
    part, parts = shard or (0, 1)
    return spans[len(spans) * part // parts : len(spans) * (part + 1) // parts]


def _fields_and_sources(
    model: nn.Module, chosen: Mapping[nn.Module, list[str]], first: ModelInput
) -> tuple[dict[str, dict[str, Any]], dict[str, list[int]]]:
    """Return the receptive fields and the input tensors of the layers, as a `Survey` has them."""
    fields, sources = dict[str, dict[str, Any]](), dict[str, list[int]]()
    given = tensors(first.args, first.kwargs)
    if not given:  # it cannot be read
        return fields, sources
    inputs = as_the_model_takes(first, unwrapped(model)[0])
    names = {module: aliases[0] for module, aliases in chosen.items()}
    try:
        seen = seen_by(Session.of(model, inputs), names)
    except (ValueError, TransformError):  # such as words: the survey itself can do without
        return fields, sources
    for (name, call), footprint in seen.items():
        if len(given) > 1:
            source = NO_SOURCE if footprint.empty else footprint.source
            sources.setdefault(name, []).append(source)
        if call == 0 and footprint.planes is not None:
            found = field_of_footprint((name, call), footprint, model)
            fits = found.input_size == given[found.input].shape[2:]
            if found.status == "exact" and None not in found.start and fits:
                fields[name] = {key: list(getattr(found, key)) for key in RULE}
    return fields, sources


def _in_another_order(origins: Mapping[CallKey, RowSources], count: int) -> list[str]:
    """Return the layers whose rows are the ``count`` inputs of a batch in another order."""
    return [
        layer
        for (layer, _), rows in origins.items()
        if len(rows) == count
        and any(isinstance(row, PictureSource) and row.sample != n for n, row in enumerate(rows))
    ]


def _pass(
    hooks: SurveyHooks, batches: Iterator[Batch], on_error: str, total: int, bar: Progress
) -> bool:
    """Take in the batches; return whether that was interrupted."""
    done, start = 0, time.monotonic()
    try:
        with hooks.session.active(grad=False), hooks:
            for batch in batches:
                if batch.unread and on_error == "raise":
                    index, why = next(iter(batch.unread.items()))
                    raise ValueError(
                        f"Input {index} of the data set cannot be read ({why}): fix it, or leave "
                        'such inputs out with on_error="skip", in a terminal with --skip.'
                    )
                hooks.take(batch)
                done += len(batch.span)
                left = timedelta(seconds=round((time.monotonic() - start) * (total / done - 1)))
                bar.update(done / total, f"{done:,} of {total:,} inputs, {left} left")
    except KeyboardInterrupt:
        return True
    return False


_SMALL, _TOGETHER = 1 << 17, 1 << 22
"""Maps with fewer numbers than ``_SMALL``, and statistics, wait until there are ``_TOGETHER``
numbers: each call of torch costs more than it computes on few of them."""


class _Waiting(NamedTuple):
    """The small maps of a layer in a batch, or their statistics."""

    found: Tensor | BatchStatistics
    indices: Tensor
    labels: Tensor

    def fits(self, other: Tensor | BatchStatistics) -> bool:
        """Return whether both can be joined."""
        if isinstance(self.found, Tensor) and isinstance(other, Tensor):
            return self.found.shape[1:] == other.shape[1:]
        return type(self.found) is type(other) and self.found.shape == other.shape


class SurveyHooks(HookManager):
    """The hooks of a survey, which add the inputs of each batch to it."""

    def __init__(
        self, session: Session, chosen: Mapping[nn.Module, list[str]], found: Survey
    ) -> None:
        self.session, self._found = session, found
        self._where = device, _ = where_inputs_go(session.model)
        # Other devices lack float64, and some operations on int64.
        self._device = device if device.type in ("cpu", "cuda") else torch.device("cpu")
        self._indices = torch.zeros(0, dtype=torch.int64)
        self._batch: dict[SurveyedRun, BatchStatistics | Tensor] = {}
        self._waiting: dict[SurveyedRun, list[_Waiting]] = {}
        self._waiting_numbers = 0  # in all of these
        self._calls: Counter[nn.Module] = Counter()
        self._grid = PatchGrid()
        self._ordered = False  # whether the order of the layers' rows has been checked
        self._paused = False
        self._silent: Callable[[], AbstractContextManager[Any]] = nullcontext
        hooks: list[Hook] = [*self._grid.hooks(session.given)]
        for order, (module, names) in enumerate(chosen.items()):
            hooks.append((module, "forward", partial(self._after, order, names[0])))
        super().__init__(hooks)

    def result(self) -> Survey:
        """Return the survey of the inputs so far."""
        self._reduce_waiting(*self._waiting)
        layers = {}
        for run, layer in sorted(self._found.layers.items()):
            tensors = {name: tensor.cpu() for name, tensor in layer.tensors().items()}
            layers[run] = LayerStatistics.of_tensors(layer.shape, tensors)
        return replace(self._found, layers=layers)

    def leave_out(self, name: str, why: str) -> None:
        """Record no more of a layer, and warn."""
        self._found.left_out[name] = why
        warnings.warn(f"{name!r} is left out: {why}.", RuntimeWarning, stacklevel=3)

    def take(self, batch: Batch) -> None:
        """Run the model on a batch, and merge what the hooks found."""
        self._indices = torch.tensor(batch.indices, dtype=torch.int64, device=self._device)
        self._batch = {}
        if batch.indices:
            inputs, fields = moved(batch.inputs, *self._where), self._found.fields
            given = tensors(inputs.args, inputs.kwargs)
            for name, rule in [*fields.items()]:
                source = self._found.sources.get(name, [0])[0]
                if tuple(rule["input_size"]) != given[source].shape[2:]:
                    del fields[name]
            first = not self._ordered and len(batch.indices) > 1
            run = self._run_first if first else self._run
            self.session.observed(lambda: run(inputs))
        self._merge(batch)

    def _run_first(self, inputs: ModelInput) -> None:
        """Run the model, and leave out the layers whose rows are the inputs in another order."""
        pictures = picture_tensors(inputs)
        origins = InputListener(self.session, self._found.fingerprint.layers, pictures)
        recorder = OperationRecorder(origins, names=first_names(self.session.model), backward=False)
        self._silent = recorder.silent
        try:
            with recorder:
                self._run(inputs)
        except TransformError:  # if it is behind the layers, the survey can do without
            self._silent = nullcontext
            self._run(inputs)
        else:
            self._check_order(origins, inputs)
        self._silent, self._ordered = nullcontext, True

    def _check_order(self, origins: InputListener, inputs: ModelInput) -> None:
        """Leave out the layers whose rows are the inputs in another order."""
        wrong = _in_another_order(origins.settled, len(self._indices))
        if origins.doubtful:
            args, kwargs = map_tensors((inputs.args, inputs.kwargs), lambda tensor: tensor[:2])
            two = Session(self.session.given, replace(inputs, args=args, kwargs=kwargs))
            self._paused = True
            wrong += _in_another_order(call_origins(two, [name for name, _ in origins.doubtful]), 2)
            self._paused = False
        for name in dict.fromkeys(wrong):
            self.leave_out(name, "its rows are the inputs in another order")
        self._batch = {run: maps for run, maps in self._batch.items() if run.name not in wrong}

    def _run(self, inputs: ModelInput) -> None:
        self._batch, self._calls = {}, Counter()
        self.session.call(*inputs.args, **inputs.kwargs)

    @defer_interrupts  # a batch is taken in whole or not at all
    def _merge(self, batch: Batch) -> None:
        labels = torch.tensor(batch.labels, dtype=torch.int32, device=self._device)
        for run, found in self._batch.items():
            waiting = self._waiting.get(run, [])
            if waiting and not waiting[-1].fits(found):
                self._reduce_waiting(run)
            self._waiting.setdefault(run, []).append(_Waiting(found, self._indices, labels))
            self._waiting_numbers += found.numel()
        if self._waiting_numbers > _TOGETHER:
            self._reduce_waiting(*self._waiting)
        self._found.covered[batch.span.start : batch.span.stop] = True
        self._found.unread.update(batch.unread)

    def _reduce_waiting(self, *runs: SurveyedRun) -> None:
        """Merge what waits of these layers."""
        layers, mark = self._found.layers, self._found.fingerprint
        for run in runs:
            parts, *others = zip(*self._waiting.pop(run), strict=True)
            self._waiting_numbers -= sum(part.numel() for part in parts)
            indices, labels = map(torch.cat, others)
            if isinstance(parts[0], Tensor):
                found = reduce_maps(torch.cat(parts), indices, mark.length)
            else:
                found = BatchStatistics.joined(parts)
            new = LayerStatistics.of(found, indices, labels, mark.k)
            layers[run] = layers[run] + new if run in layers else new

    def _after(
        self, order: int, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        call = self._calls[module]
        self._calls[module] += 1
        if self._paused or name in self._found.left_out:
            return
        with self._silent():
            try:
                maps = self._maps(module, output)
            except ValueError as error:
                self.leave_out(name, str(error).rstrip("."))
                return
            run = SurveyedRun(order, name, type_name(module), call)
            if maps.numel() < _SMALL:
                self._batch[run] = maps.clone()
            else:
                self._batch[run] = reduce_maps(maps, self._indices, self._found.fingerprint.length)

    def _maps(self, module: nn.Module, output: Any) -> Tensor:
        first = next((one for one in tensors(output) if one.is_floating_point()), None)
        if first is None:
            raise ValueError("it returns no floating-point numbers.")
        maps = as_maps(first.detach(), module, self._grid.of(first.shape))
        if len(maps) != len(self._indices) or not maps.numel():
            raise ValueError(
                f"it returns shape {tuple(first.shape)} for {len(self._indices)} inputs: one "
                "row is needed for each."
            )
        return at_least_float32(maps).to(self._device)
