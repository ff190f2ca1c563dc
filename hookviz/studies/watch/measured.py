"""The summary of one tensor of a step: a few numbers, a histogram, each channel's mean;
of a layer's weights: their norm, their gradient's, how far a step moves them; and the step's hooks.

They are taken in the hook, when nothing has overwritten the tensor yet, and stay on its device.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.capture import capture
from ...hooking.checkpoint import FORWARD, Reruns, current_backward
from ...hooking.handles import Hook, HookManager
from ...hooking.select import is_convolution, unwrapped
from ...hooking.tensors import PatchGrid, as_maps, at_least_float32, channel_dimension, tensors_in
from ...hooking.transforms import TRANSFORMS, TransformError, is_wrapped, refuse_transforms
from ...run.errors import first_sentence
from ...run.inputs import prepare_input
from ...run.session import Session

STATISTICS = ("mean", "std", "min", "max", "zeros", "nans", "infs", "count")
"""Statistics of a layer's activations, or of the gradients that reach it. NaN and Inf enter the
last three alone; ``zeros`` is a fraction."""

LEAST, MOST = -40, 24
OCTAVES = MOST - LEAST
BINS = 2 * OCTAVES + 4
"""Bins of the histogram: one for each power of two from 2⁻⁴⁰ to 2²⁴, of either sign. So the bins
are the same in all steps and grow with the values. In order: −Inf, negative ones, zero, positive
ones, Inf, NaN. Values nearer to zero, or beyond, are in the first or last bin of their sign."""

_HEAD = 8  # how many NaN, −Inf, Inf and zeros; total, spread, least and largest of the others
_CHUNK = 1 << 15  # numbers that stay in a core's cache from one look to the next
_COUNTED = 1 << 12  # values that a histogram looks at, about
_TOGETHER = 256  # tensors whose exponents are counted together
_EXPONENTS = 512  # as a float32 has them: of negative numbers, then of positive ones


@dataclass(eq=False)
class Part:
    """The sums of a tensor."""

    count: int  #: of values
    channels: int
    row: Any = None  #: the numbers, an array where they are known; None until `fill_rows`
    head: tuple[float, ...] = ()
    by_channel: Any = None
    some: Any = None  #: the values that the histogram counts


def measured(tensor: Tensor, channel: int | None) -> tuple[int, int, Tensor | np.ndarray]:
    """Sum up a tensor, on its device and without waiting for it; see `Part`.

    Parameters
    ----------
    tensor : torch.Tensor
        Not empty. Complex numbers are taken by their absolute value, half precision in single.
    channel : int, optional
        Where the channels are; None if there are none.
    """
    part = look(tensor, channel)
    fill_rows([part])
    return part.count, part.channels, part.row


def look(tensor: Tensor, channel: int | None) -> Part:
    """Begin to sum up a tensor, which may change from then on; `fill_rows` ends it."""
    values = tensor.detach()
    if values.dtype is not torch.float32:
        values = at_least_float32(values)
        values = values.abs() if values.is_complex() else values
    if not values.is_contiguous():
        # In the order in which they lie, channels_last too: then nothing is copied.
        order = sorted(range(values.ndim), key=values.stride().__getitem__, reverse=True)
        channel = None if channel is None else order.index(channel)
        values = values.permute(order)
    others = [axis for axis in range(values.ndim) if axis != channel]
    by_channel = values.sum(others) if others else values.clone()
    channels = 1 if channel is None else values.shape[channel]
    part = Part(values.numel(), channels)
    if values.is_cpu:
        array, sums = values.numpy().reshape(-1), by_channel.numpy().reshape(-1)
        part.head = _finite_head(array, sums)
        if part.head:
            part.by_channel, part.some = sums, array[:: _step(len(array))].copy()
            return part
    flat = values.reshape(-1)
    parts = torch.stack(_head(flat)), _exponents(flat), by_channel.reshape(-1)
    part.row = torch.cat([each.float() for each in parts])
    return part


@np.errstate(all="ignore")
def _finite_head(values: np.ndarray, by_channel: np.ndarray) -> tuple[float, ...]:
    """Return the first numbers of a row, as `_head`; nothing if one overflows.

    In parts that stay in a core's cache. For small tensors it is several times faster than torch,
    each of whose calls costs more.
    """
    count = len(values)
    total = float(np.add.reduce(by_channel))
    if not math.isfinite(total):
        return ()
    away = np.empty(min(_CHUNK, count), values.dtype)
    nonzeros, spread, low, high = 0, 0.0, math.inf, -math.inf
    centre = values.dtype.type(total / count)
    for start in range(0, count, _CHUNK):
        part = values[start : start + _CHUNK]
        from_mean = np.subtract(part, centre, out=away[: len(part)])
        spread = math.hypot(spread, math.sqrt(from_mean.dot(from_mean)))
        nonzeros += int(np.count_nonzero(part != 0))
        low = min(low, np.minimum.reduce(part))
        high = max(high, np.maximum.reduce(part))
    return (0, 0, 0, count - nonzeros, total, spread, low, high) if math.isfinite(spread) else ()


@np.errstate(all="ignore")
def fill_rows(parts: Iterable[Part]) -> None:
    """End what `look` has begun: count exponents as `_exponents`, of all parts in one go."""
    waiting = [part for part in parts if part.row is None]
    if not waiting:
        return
    counts = np.array([len(part.some) for part in waiting])
    some = np.concatenate([part.some for part in waiting], dtype=np.float32, casting="same_kind")
    # Sign and exponent are the highest nine bits: positive numbers first.
    places = (some.view(np.uint32) >> 23) + np.repeat(_EXPONENTS * np.arange(len(counts)), counts)
    found = np.bincount(places, minlength=_EXPONENTS * len(counts)).reshape(len(counts), 2, -1)
    # Zero, of either sign, has the exponent of what is too small for a float32.
    tiny = found[:, :, 0].sum(1) - counts + [np.count_nonzero(part.some) for part in waiting]
    found[:, :, 0] = np.stack([tiny, np.zeros_like(tiny)], 1)
    rows = np.empty((len(counts), _HEAD + _EXPONENTS), np.float32)
    rows[:, :_HEAD] = [part.head for part in waiting]
    rows[:, _HEAD:] = found[:, ::-1].reshape(len(counts), -1)
    share = np.array([part.count for part in waiting]) / counts
    rows[:, _HEAD:] *= share.astype(np.float32)[:, None]
    for part, row in zip(waiting, rows, strict=True):
        part.row = np.concatenate([row, part.by_channel], dtype=np.float32)
        part.some = None


def _step(count: int) -> int:
    """Return which of the values a histogram looks at: each one, or each so many."""
    return math.ceil(count / _COUNTED) | 1  # odd, not to meet the same columns in all rows


def _head(values: Tensor) -> list[Tensor]:
    """Sum any values on any device without reading the result, which would wait for the device."""
    finite, nans = values.isfinite(), values.isnan().sum()
    minus, plus = values.isneginf().sum(), values.isposinf().sum()
    zeros = values.numel() - values.count_nonzero()
    low = values.where(finite, math.inf).amin()
    high = values.where(finite, -math.inf).amax()
    values = values.where(finite, 0)
    total = values.sum()
    mean = total / (values.numel() - nans - minus - plus).clamp(min=1)
    # Squares of what explodes would overflow.
    scale = torch.maximum(low.abs(), high.abs()).clamp(min=torch.finfo(values.dtype).tiny)
    away = ((values - mean) / scale).where(finite, 0)
    spread = torch.linalg.vector_norm(away) * scale
    found = [nans, minus, plus, zeros, total, spread, low, high]
    return [each.float() for each in found]


def _exponents(values: Tensor) -> Tensor:
    """Count the values of each sign and exponent, without zeros, ``(512,)``.

    Of very many values some that are spread evenly stand for all.
    """
    some = values[:: _step(len(values))].float()
    places = (some.view(torch.int32) >> 23).add_(_EXPONENTS // 2)
    if values.device.type == "cuda" and not torch.are_deterministic_algorithms_enabled():
        counts = torch.histc(places.float(), _EXPONENTS, 0, _EXPONENTS)  # does not wait
    else:
        counts = torch.bincount(places, minlength=_EXPONENTS)
    # Zero, of either sign, has the exponent of what is too small for a float32.
    first = counts[:: _EXPONENTS // 2]
    tiny = first.sum() - (len(some) - some.count_nonzero())
    first.zero_()
    counts[_EXPONENTS // 2] = tiny
    return counts * (len(values) / len(some))


def _bin_of() -> np.ndarray:
    """Return the bin of each of a float32's exponents that is finite, ``(2, 255)``."""
    size = np.clip(np.arange(_EXPONENTS // 2 - 1) - 127 - LEAST, 0, OCTAVES - 1)
    return np.stack([OCTAVES - size, size + OCTAVES + 2])


_BIN_OF = _bin_of()


def edges() -> np.ndarray:
    """Return the edges of the histogram's finite bins without zero's own, ``(2, OCTAVES + 1)``.

    Of the negative ones and of the positive ones.
    """
    upper = np.exp2(np.arange(LEAST, MOST + 1))
    return np.stack([-1 * upper[::-1], upper])


@dataclass(frozen=True, eq=False)
class Summary:
    """All parts of a step together."""

    statistics: np.ndarray  #: in the order of `STATISTICS`, float32
    bins: np.ndarray  #: how many values are in each bin, see `BINS`
    channels: np.ndarray  #: each channel's mean, NaN and Inf with it


Parts = Sequence[tuple[int, int, np.ndarray]]


def summary(parts: Parts, scale: float = 1.0) -> Summary:
    """Put parts together, as if they had been one tensor, and divide the values by ``scale``.

    Examples
    --------
    >>> count, channels, row = measured(torch.tensor([[0.0, 1.0], [2.0, float("nan")]]), 1)
    >>> found = summary([(count, channels, np.asarray(row))])
    >>> dict(zip(STATISTICS, found.statistics.tolist()))  # doctest: +ELLIPSIS
    {'mean': 1.0, 'std': 0.816..., 'min': 0.0, 'max': 2.0, 'zeros': 0.25, 'nans': 1.0, ...}
    >>> found.channels.tolist(), found.bins.nonzero()[0].tolist()
    ([1.0, nan], [65, 106, 107, 131])
    """
    return summaries([parts], [scale])[0]


def summaries(groups: Sequence[Parts], scales: Sequence[float] | np.ndarray) -> list[Summary]:
    """Put the parts of each group together, of all groups at once; none is empty."""
    if not groups:
        return []
    parts = [part for each in groups for part in each]
    begins = np.cumsum([0, *map(len, groups[:-1])])
    group = np.repeat(np.arange(len(groups)), [len(each) for each in groups])
    rows = np.stack([row[: _HEAD + _EXPONENTS] for _, _, row in parts]).astype(np.float64)
    counts = np.array([count for count, _, _ in parts], np.float64)
    heads = rows[:, :_HEAD].T
    nans, minus, plus, _, totals, spreads, lows, highs = heads
    kept = counts - nans - minus - plus
    among = kept > 0
    added = np.add.reduceat(np.stack([counts, kept, totals, *heads[:4]]), begins, axis=1)
    whole, known, total, *special = added
    with np.errstate(all="ignore"):
        mean = total / known
        own = totals / np.maximum(kept, 1)
        squares = np.where(among, spreads**2 + kept * (own - mean[group]) ** 2, 0.0)
        found = np.empty((len(groups), len(STATISTICS)))
        found[:, 0], found[:, 1] = mean, np.sqrt(np.add.reduceat(squares, begins) / known)
        found[:, 2] = np.minimum.reduceat(np.where(among, lows, math.inf), begins)
        found[:, 3] = np.maximum.reduceat(np.where(among, highs, -math.inf), begins)
        found[known == 0, :4] = math.nan
        found[:, :4] /= np.asarray(scales)[:, None]
        found[:, 4] = special[3] / whole
        found[:, 5:] = np.stack([special[0], special[1] + special[2], whole], 1)
        bins = _histograms(np.add.reduceat(rows[:, _HEAD:], begins), special, scales)
        sums = [_channels([row[_HEAD + _EXPONENTS :] for _, _, row in each]) for each in groups]
        sizes = np.array([len(each) for each in sums])
        factors = np.repeat(np.stack([1 / np.asarray(scales), sizes / whole]), sizes, 1)
        channels = (np.concatenate(sums) * factors[0] * factors[1]).astype(np.float32)
    ends, numbers = np.cumsum(sizes).tolist(), found.astype(np.float32)
    return [
        Summary(numbers[place], bins[place], channels[end - size : end])
        for place, (end, size) in enumerate(zip(ends, sizes.tolist(), strict=True))
    ]


def _channels(sums: Sequence[np.ndarray]) -> np.ndarray:
    """Return each channel's sum over the parts."""
    return sums[0] if len(sums) == 1 else np.add.reduce(np.stack(sums), 0, np.float64)


def _histograms(
    exponents: np.ndarray, special: Sequence[np.ndarray], scales: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Sum counts of exponents, and of NaN, −Inf, Inf and zero, into counts of bins, a row each."""
    count, half = len(exponents), _EXPONENTS // 2 - 1
    finite = exponents.reshape(count, 2, -1)[:, :, :-1]  # Inf and NaN have the last exponent
    shifts = np.round(np.log2(scales)).astype(int)
    shifted = (np.arange(half) - shifts[:, None]).clip(0, half - 1)
    where = _BIN_OF[:, shifted].swapaxes(0, 1) + BINS * np.arange(count)[:, None, None]
    bins = np.bincount(where.ravel(), finite.ravel(), BINS * count).reshape(count, BINS)
    nans, minus, plus, zeros = special
    bins[:, [0, OCTAVES + 1, BINS - 2, BINS - 1]] = np.stack([minus, zeros, plus, nans], 1)
    return bins.astype(np.float32)


def to_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """In 16 bits, with the range of all 32: the upper half of each float32, rounded, uint16."""
    return torch.from_numpy(numbers).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def from_bfloat16(halves: np.ndarray) -> np.ndarray:
    """Expand the halves that `to_bfloat16` kept to float32.

    >>> from_bfloat16(to_bfloat16(np.array([1.0, 0.0, np.nan, 257.0], np.float32))).tolist()
    [1.0, 0.0, nan, 256.0]
    """
    return (halves.astype(np.uint32) << 16).view(np.float32)


def off_device(rows: Iterable[Tensor | np.ndarray]) -> list[np.ndarray]:
    """Rows of float32 as arrays: one transfer for each device that they are on."""
    found: list[Any] = list(rows)
    places: dict[torch.device, list[int]] = {}
    for place, row in enumerate(found):
        if isinstance(row, Tensor):
            places.setdefault(row.device, []).append(place)
    for here in places.values():
        every = [found[place].detach().float().reshape(-1) for place in here]
        moved, end = torch.cat(every).cpu().numpy(), 0
        for place, each in zip(here, every, strict=True):
            begin, end = end, end + len(each)
            found[place] = moved[begin:end]
    return found


# The weights

NORMS = ("weight_norm", "weight_gradient_norm", "update_ratio")
"""Norms of all parameters that a layer itself has, as one vector: when the step begins, the
norm of what ``.grad`` is when backward has reached it, and the norm of the update, divided by the
first. The update is what has become of the weights when the next step begins, whoever did it."""


class Weights:
    """The parameters of layers during one recorded step."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers = {
            name: own
            for name, module in layers.items()
            if (own := [p for p in module.parameters(recurse=False) if _is_plain(p)])
        }
        self._gradients: dict[int, Tensor] = {}
        self._standing: dict[int, tuple[int, int]] = {}  # .grad of before: address and version
        self._came = {True: 0, False: 0}  # to gradients that were there before, and not
        self._before: list[list[Tensor]] = []
        self._norms: list[Tensor] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The layers that have any."""
        return tuple(self._layers)

    def begin(self) -> None:
        """Keep the weights as they are now, which takes as much memory as they do."""
        every = [p for own in self._layers.values() for p in own]
        with torch.no_grad():
            self._before = [[p.detach().clone() for p in own] for own in self._layers.values()]
            self._norms = _norms(self._before)
            given = {id(p): p.grad for p in every if p.grad is not None}
            grads = {
                key: each
                for key, each in given.items()
                if each.layout is torch.strided and not each.is_inference()
            }
            largest = _each_norm([*grads.values()], math.inf)
        self._standing = {
            key: (each.data_ptr(), each._version)
            for (key, each), most in zip(grads.items(), largest, strict=True)
            if most
        }

    def hooks(self) -> list[Hook]:
        """Hooks that see each parameter's gradient when backward has added its own to it."""
        every = [p for own in self._layers.values() for p in own if p.requires_grad]
        return [(p, "accumulated", partial(self._arrived, p)) for p in every]

    def _arrived(self, parameter: Tensor, *_: object) -> None:
        if parameter.grad is None:  # an optimizer within backward has taken it already
            return
        gradient = parameter.grad.detach()
        if gradient.layout is torch.strided:
            # zero_grad() would have made a new tensor, or written the zeros as one more version.
            place, version = self._standing.pop(id(parameter), (0, 0))
            added = place == gradient.data_ptr()
            self._came[added and gradient._version == version + 1] += 1
        else:  # of an embedding
            gradient = gradient.coalesce().values()
        self._gradients[id(parameter)] = torch.linalg.vector_norm(at_least_float32(gradient))

    @property
    def carried(self) -> bool:
        """True if backward added most gradients to those that were there before."""
        return self._came[True] > self._came[False]

    def norms(self) -> list[Tensor]:
        """Norms of all layers, then their gradients' norms; NaN where no gradient came."""
        came = [
            [self._gradients[id(p)] for p in own if id(p) in self._gradients]
            for own in self._layers.values()
        ]
        norms = iter(_as_one([each for each in came if each]))
        nothing = torch.tensor(torch.nan)
        return [*self._norms, *(next(norms) if each else nothing for each in came)]

    def updates(self) -> np.ndarray:
        """Return the update of each layer, divided by its norm."""
        if not self._before:
            return np.zeros(0, np.float32)
        away: list[Tensor] = []
        with torch.no_grad():
            for before, own in zip(self._before, self._layers.values(), strict=True):
                moves = [p.detach().to(b.device) - b for p, b in zip(own, before, strict=True)]
                away += _as_one([_each_norm(moves)])
        moved = np.concatenate(off_device([*away, *self._norms])).reshape(2, -1)
        with np.errstate(all="ignore"):
            return moved[0] / moved[1]


def _norms(several: Iterable[list[Tensor]]) -> list[Tensor]:
    """Return the norm of each list of tensors, as one vector, in single precision at least."""
    lists = list(several)
    norms = iter(_each_norm([each for own in lists for each in own]))
    return _as_one([[next(norms) for _ in own] for own in lists])


def _as_one(norms: list[list[Tensor]]) -> list[Tensor]:
    """Return the norm of each list of norms."""
    several = iter(_each_norm([torch.stack(own) for own in norms if len(own) > 1]))
    return [next(several) if len(own) > 1 else own[0] for own in norms]


def _each_norm(tensors: list[Tensor], order: float = 2.0) -> list[Tensor]:
    """Return the norm of each tensor, ``()``; of all in one go where they are alike."""
    if any(each.dtype != torch.float32 or each.device != tensors[0].device for each in tensors):
        return [torch.linalg.vector_norm(at_least_float32(each), order) for each in tensors]
    foreach_norm = torch._foreach_norm  # pyright: ignore[reportPrivateImportUsage]
    return list(foreach_norm(tensors, order)) if tensors else []


def _is_plain(parameter: Tensor) -> bool:
    """Return True if a tensor is all here: neither a shard nor a weight yet to be made."""
    kinds = nn.Parameter, Tensor
    return type(parameter) in kinds and not parameter.is_meta and parameter.numel() > 0


class Row(NamedTuple):
    """One tensor that a layer returns in one run of the model."""

    layer: str  #: the module's name, ``""`` for the model itself
    call: int = 0  #: which run of the layer within one of the model, from 0
    path: str = ""  #: where in what it returned, as in ``"[0]"``


@dataclass(eq=False)
class RowSums:
    """The sums of a row in a step."""

    activations: list[Part] = field(default_factory=list)
    gradients: list[Part] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One call of a layer: what checkpointing may run again in backward."""

    rows: list[tuple[Row, int | None]]  # with the dimension of the channels
    parts: list[Part]
    watched: bool  # whether a gradient can come to what it returned


class StepRecorder(HookManager):
    """A block around one step.

    Runs of the model within the block, as of gradient accumulation, are put together.

    Parameters
    ----------
    model : torch.nn.Module
        As it was given, maybe in a wrapper.
    layers : mapping of str to torch.nn.Module
    channels : dict
        Where outputs of layers have their channels, by name, shape and grid: it is filled here.
    weights : bool
        If True, look at their weights, too.
    """

    follows = TRANSFORMS  # a refusal would stop the training

    def __init__(
        self,
        model: nn.Module,
        layers: Mapping[str, nn.Module],
        channels: dict[Any, int],
        *,
        weights: bool = True,
    ) -> None:
        self.weights = Weights(layers if weights else {})
        self.left_out: dict[str, str] = {}
        self._channels = channels
        self._waiting: list[Part] = []  # for `fill_rows`
        self._seen: dict[Row, RowSums] = {}
        self._calls: Counter[tuple[int, str]] = Counter()
        self._ran: dict[str, list[RecordedRun]] = {}
        self._reruns: Reruns[RecordedRun] = Reruns()
        self._grid = PatchGrid()
        hooks: list[Hook] = [(unwrapped(model)[0], "forward_pre", self._begins)]
        hooks += self._grid.hooks(model)
        hooks += [(m, "forward", partial(self._after, name)) for name, m in layers.items()]
        super().__init__([*hooks, *self.weights.hooks()])

    def _begin(self) -> None:
        self.weights.begin()
        super()._begin()

    # The hooks

    def _begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if current_backward() == FORWARD:
            here = threading.get_ident()  # DataParallel has a thread for each part of the batch
            for key in [key for key in self._calls if key[0] == here]:
                del self._calls[key]

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        try:
            refuse_transforms()
            if current_backward() == FORWARD:
                self._take(name, module, output)
            else:
                self._take_again(name, output)
        except TransformError as error:
            self.left_out[name] = first_sentence(error).rstrip(".")
        except Exception as error:  # a training does not end for its watcher's sake
            self.left_out[name] = f"{type(error).__name__}: {first_sentence(error)}"

    def _take(self, name: str, module: nn.Module, output: Any) -> None:
        here = (threading.get_ident(), name)
        call = self._calls[here]
        self._calls[here] += 1
        found = _plain(output)
        ran = RecordedRun([], [], _asks(found))
        for path, tensor in found:
            channel = self._channel(name, module, tensor)
            row = Row(name, call, path)
            part = self._look(tensor, channel)
            self._seen.setdefault(row, RowSums()).activations.append(part)
            ran.rows.append((row, channel))
            ran.parts.append(part)
            self._watch(tensor, row, channel)
        self._ran.setdefault(name, []).append(ran)

    def _take_again(self, name: str, output: Any) -> None:
        """Checkpointing runs a layer again: where the first run had no graph, this one has it."""
        found = _plain(output)
        waiting = [ran for ran in self._ran.get(name, ()) if not ran.watched]

        def same(ran: RecordedRun) -> bool:
            pairs = zip(found, ran.rows, ran.parts, strict=True)
            self._fill_rows()
            return all(_equal(measured(t, c)[2], part.row) for (_, t), (_, c), part in pairs)

        ran = self._reruns.first(waiting, same)
        if ran is not None and _asks(found):
            self._ran[name].remove(ran)
            for (_, tensor), (row, channel) in zip(found, ran.rows, strict=False):
                self._watch(tensor, row, channel)

    def _channel(self, name: str, module: nn.Module, tensor: Tensor) -> int | None:
        if tensor.ndim < 2:
            return None
        grid = self._grid.of(tensor.shape)
        key = name, tensor.shape, grid
        if key not in self._channels:
            self._channels[key] = channel_dimension(tensor, module, grid) % tensor.ndim
        return self._channels[key]

    def _look(self, tensor: Tensor, channel: int | None) -> Part:
        part = look(tensor, channel)
        if part.row is None:
            self._waiting.append(part)
            if len(self._waiting) == _TOGETHER:
                self._fill_rows()
        return part

    def _fill_rows(self) -> None:
        waiting, self._waiting = self._waiting, []
        fill_rows(waiting)

    def _watch(self, tensor: Tensor, row: Row, channel: int | None) -> None:
        if tensor.requires_grad:
            self.add(tensor, "tensor", partial(self._arrived, row, channel))

    def _arrived(self, row: Row, channel: int | None, gradient: Tensor | None) -> None:
        if gradient is not None and _has_numbers(gradient):
            try:
                self._seen[row].gradients.append(self._look(gradient, channel))
            except Exception as error:
                self.left_out[row.layer] = f"{type(error).__name__}: {first_sentence(error)}"

    # When the block is over

    def taken(
        self, scale: float = 1.0
    ) -> tuple[dict[Row, tuple[Summary, Summary | None]], dict[str, list[float]]]:
        """Activations and gradients of each row, and the weights' norms, in one transfer.

        Gradients are divided by ``scale``.
        """
        self._fill_rows()
        sides = [
            parts for seen in self._seen.values() for parts in (seen.activations, seen.gradients)
        ]
        rows = [part.row for parts in sides for part in parts]
        moved = iter(off_device([*rows, *self.weights.norms()]))
        groups = [[(p.count, p.channels, next(moved)) for p in parts] for parts in sides]
        # Of activations, and of gradients.
        scales = np.tile([1.0, scale], len(self._seen))
        known = [place for place, parts in enumerate(groups) if parts]
        summed = dict(zip(known, summaries([groups[k] for k in known], scales[known]), strict=True))
        found = {
            row: (summed[2 * place], summed.get(2 * place + 1))
            for place, row in enumerate(self._seen)
        }
        norms = np.array([each.item() for each in moved]).reshape(2, -1)
        norms[1] /= scale
        return found, dict(zip(self.weights.names, norms.T.tolist(), strict=True))


def _equal(one: Tensor | np.ndarray, other: Tensor | np.ndarray) -> bool:
    """Return True if two rows hold the same numbers."""
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def _plain(output: Any) -> list[tuple[str, Tensor]]:
    return [(path, tensor) for path, tensor in tensors_in(output) if _has_numbers(tensor)]


def _has_numbers(tensor: Tensor) -> bool:
    """Return True if there are numbers in it, and all of them here."""
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized):
        return False
    strided = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested
    whole = type(tensor) is Tensor or not hasattr(tensor, "to_local")
    return strided and whole and not is_wrapped(tensor) and tensor.numel() > 0


def _asks(found: list[tuple[str, Tensor]]) -> bool:
    return any(tensor.requires_grad for _, tensor in found)


# The probe

CHANNELS, SIDE = 16, 32
"""The first so many maps of a layer are kept, averaged down to so many rows and columns at
most: in all steps the same ones."""

Maps = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Layer -> levels ``(C, H, W)``, see `hookviz.draw.colours.to_levels`, and each map's ends."""


class Probe:
    """A model and a picture, or whatever `hookviz.explore` takes; of a batch the first is shown.

    ``layers`` are names. If convolutions are among them, maps are of these alone.
    """

    def __init__(self, model: nn.Module, given: Any, layers: Sequence[str]) -> None:
        self._session = Session(model, prepare_input(given, model))
        core = unwrapped(model)[0]
        convolved = [name for name in layers if is_convolution(core.get_submodule(name))]
        self._layers = convolved or list(layers)

    def maps(self) -> Maps:
        """Run the model as it is now; it stays as it is, to the bit."""
        from ...draw.colours import averaged, colour_ranges, to_levels, to_numpy

        inputs, cached = self._session.inputs, torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # the step would find its weights there
        try:
            with (
                self._session.active(grad=False),
                capture(self._session.given, self._layers) as cache,
            ):
                self._session.call(*inputs.args, **inputs.kwargs)
        finally:
            torch.set_autocast_cache_enabled(cached)
        found: Maps = {}
        for name, record in cache.items():
            output = record.last.outputs[0] if record.calls and record.last.outputs else None
            if output is None or output.value.ndim < 3:
                continue
            try:
                maps = as_maps(output.value, record.module, record.last.grid)[0, :CHANNELS]
            except ValueError:
                continue  # no maps
            if maps.ndim == 4:
                maps = maps[:, maps.shape[1] // 2]  # a volume's slice
            values = to_numpy(maps if maps.ndim == 3 else maps[:, None])
            values = averaged(values, math.ceil(max(values.shape[1:]) / SIDE))
            finite = np.where(np.isfinite(values), values, np.nan).reshape(len(values), -1)
            low, high = np.fmin.reduce(finite, 1), np.fmax.reduce(finite, 1)
            ends = colour_ranges(values, low, high, "channel", diverging=bool((low < 0).any()))
            found[name] = to_levels(values, *(end[:, None, None] for end in ends)), *ends
        return found
