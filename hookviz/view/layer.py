"""One layer, call, sample and depth as arrays and in words; and all layers, one cell each.

The overview of all layers ends in a summary of the network's health.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..draw.colours import to_numpy
from ..hooking.maps import as_maps, channel_dimension
from ..hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, statistics
from ..hooking.select import is_convolution
from ..hooking.tensors import at_least_float32
from ..hooking.weights import stored_tensor
from ..run.statistics import Extremes, Moments
from ..studies.diagnosis.magnitudes import LIMIT, trends
from ..studies.diagnosis.values import is_zero, next_to_zero, silence


@dataclass(frozen=True, eq=False)
class ChannelStatistics:
    """Statistics of each channel's map, ``(C,)``; min, max, mean, norm over the finite values."""

    min: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    zeros: np.ndarray  # fraction, 0 to 1
    norm: np.ndarray  # sqrt(sum(x**2))
    nans: np.ndarray
    infs: np.ndarray
    positions: int  # of each map

    @property
    def silent(self) -> np.ndarray:
        """True for each channel that is zero everywhere."""
        return (self.min == 0) & (self.max == 0)

    @property
    def constant(self) -> np.ndarray:
        """True for each channel with the same value everywhere."""
        return self.min == self.max if self.positions > 1 else self.silent

    @property
    def still(self) -> str:
        """The number of such channels, in words: ``"3 silent, 1 constant"``; or empty."""
        silent = int(self.silent.sum())
        counts = {"silent": silent, "constant": int(self.constant.sum()) - silent}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


@dataclass(frozen=True, eq=False)
class LayerView:
    """One layer, call, sample and depth, ready to draw."""

    maps: np.ndarray  # float32 (C, H, W); a 1d layer's have H = 1
    gradients: np.ndarray | None  # the same shape
    weights: np.ndarray | None  # Grad-CAM's (C,): each channel's mean gradient
    samples: int  # the number to choose from
    depths: int

    # On demand: heatmaps of other classes need all layers' gradients but no statistics.
    @cached_property
    def statistics(self) -> ChannelStatistics:
        """Statistics of the maps."""
        return channel_statistics(self.maps)

    @cached_property
    def gradient_statistics(self) -> ChannelStatistics | None:
        """Statistics of the gradients."""
        return None if self.gradients is None else channel_statistics(self.gradients)

    @property
    def signed(self) -> bool:
        """True if any value is negative: then zero is in the middle of the colours."""
        return bool((self.statistics.min < 0).any())


def layer_view(
    activation: Tensor,
    gradient: Tensor | None,
    module: nn.Module | None = None,
    sample: int = 0,
    depth: int = 0,
    grid: tuple[int, ...] | None = None,
) -> LayerView:
    """Cut one sample, and one slice of a volume, out of a layer's tensors, see `as_maps`.

    ``sample`` and ``depth`` are clipped to the last one.
    """
    stacked = as_maps(activation, module, grid)
    if not stacked.numel():
        raise ValueError(f"The layer returned an empty tensor, shape {tuple(activation.shape)}.")
    sample = min(sample, len(stacked) - 1)
    depths = stacked.shape[2] if stacked.ndim == 5 else 1
    depth = min(depth, depths - 1)

    def cut(tensor: Tensor) -> np.ndarray:
        maps = as_maps(tensor, module, grid)[sample]
        if maps.ndim == 4:
            maps = maps[:, depth]
        return to_numpy(maps[:, None] if maps.ndim == 2 else maps)

    maps = cut(activation)
    gradients = weights = None
    if gradient is not None:
        gradients = cut(gradient)
        whole = at_least_float32(as_maps(gradient, module, grid)[sample])
        weights = to_numpy(whole.flatten(1).mean(1))
    return LayerView(maps, gradients, weights, len(stacked), depths)


def channel_statistics(maps: np.ndarray) -> ChannelStatistics:
    """Compute statistics of every map of ``(C, H, W)``; NaN where a map has no finite value."""
    values = torch.from_numpy(maps.reshape(len(maps), -1))
    moments, extremes = Moments.of(values), Extremes.of(values)
    unknown = moments.count == 0
    norm = moments.norm
    if not norm.isfinite().all():  # squares overflow long before their root does
        most = torch.maximum(-extremes.low, extremes.high).clamp(min=1)
        norm = most * Moments.of(values / most[:, None]).norm
    known = (extremes.low, extremes.high, moments.mean, norm)
    low, high, mean, length = (each.masked_fill(unknown, torch.nan).numpy() for each in known)
    zeros = (moments.zeros / values.shape[1]).numpy()
    nans, infs = moments.nans.numpy(), moments.infs.numpy()
    return ChannelStatistics(low, high, mean, zeros, length, nans, infs, values.shape[1])


SCORE_DROP, SIMILARITY = "score drop", "similarity"
VALUE, CONTRAST, CONTRIBUTION = HERE = ("value", "contrast", "contribution")
GRADIENT, WEIGHT = OF_GRADIENT = ("gradient", "gradcam weight")
FIXED = ("index", "mean", "max", "zeros", *OF_GRADIENT)
ORDERS = (*FIXED, SCORE_DROP, *HERE, SIMILARITY)
"""Channel orders: by index, or the largest mean, maximum, fraction of zeros, gradient norm or
Grad-CAM weight first; or the largest drop of the target's score without the channel, for which
the model runs. At the chosen position: the largest value, the value most standard deviations above
the channel's mean, or the largest activation × gradient. Or the maps most like one channel's."""


def channel_order(view: LayerView, order: str, scores: np.ndarray | None = None) -> np.ndarray:
    """Return channel numbers in the order in which they are stepped through, ``(C,)``.

    ``scores``, ``(C,)``, are those of an order that is not `FIXED`.
    """
    gradients = view.gradient_statistics
    if order not in FIXED:
        if scores is None:
            return np.arange(len(view.maps))
        return np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    if order == "index" or (order in OF_GRADIENT and gradients is None):
        return np.arange(len(view.maps))
    if (
        gradients is not None
        and view.weights is not None
        and order in ("gradient", "gradcam weight")
    ):
        key = gradients.norm if order == GRADIENT else view.weights
    else:
        key = getattr(view.statistics, order)
    # NaN, a channel without any finite value, goes last; equals stay in order.
    return np.argsort(-np.nan_to_num(key, nan=-np.inf), kind="stable")


def scores_here(view: LayerView, order: str, row: int, column: int) -> np.ndarray | None:
    """Return each channel's score at a position for one of the orders `HERE`, ``(C,)`` doubles.

    The value; its distance from the channel's mean in standard deviations of the channel, over the
    finite values, 0 where all are the same; or activation × gradient, None without gradients.

    Examples
    --------
    >>> maps = np.array([[[0.0, 4.0, 8.0]], [[5.0, 5.0, 5.0]]])
    >>> view = LayerView(maps, -maps, None, 1, 1)
    >>> [scores_here(view, order, 0, 1).tolist() for order in HERE]
    [[4.0, 5.0], [0.0, 0.0], [-16.0, -25.0]]
    """
    values = view.maps[:, row, column].astype(np.float64)
    if order == VALUE:
        return values
    if order == CONTRIBUTION:
        return None if view.gradients is None else values * view.gradients[:, row, column]
    flat = view.maps.reshape(len(view.maps), -1).astype(np.float64)
    finite = np.isfinite(flat)
    count, known = np.maximum(finite.sum(1), 1), np.where(finite, flat, 0)
    means = known.sum(1) / count
    away = np.where(finite, flat - means[:, None], 0)
    deviations = np.sqrt((away**2).sum(1) / count)
    least, most = view.statistics.min, view.statistics.max
    deviations[least == most], means[least == most] = 1, least[least == most]
    deviations[np.isnan(least)] = np.nan  # no finite value
    return (values - means) / deviations


def similarities(maps: np.ndarray, like: int) -> np.ndarray:
    """Return the cosine of each map ``(C, H, W)`` with one of them, ``(C,)`` doubles.

    NaN where a map is zero or not finite; infinite for the map itself, so that it is first.

    Examples
    --------
    >>> similarities(np.array([[[1.0, 0.0]], [[3.0, 4.0]], [[0.0, 0.0]]]), 0).tolist()
    [inf, 0.6, nan]
    """
    flat = maps.reshape(len(maps), -1).astype(np.float64)
    most = np.abs(flat).max(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        flat = flat / most  # squares overflow long before their root does
        found = flat @ flat[like] / np.sqrt((flat**2).sum(1) * (flat[like] ** 2).sum())
    found[like] = np.inf
    return found


def showable(cache: FeatureCache) -> list[str]:
    """Return the layers whose (first) output can be arranged as maps and is not empty."""
    return [name for name in cache if not why_not_shown(cache[name])]


def why_not_shown(record: LayerRecord) -> str:
    """Return the reason why a layer cannot be shown; empty if it can."""
    call = record.last
    if not call.outputs:
        return "it returned no tensor"
    shape = call.outputs[0].shape
    if not math.prod(shape):
        return f"it returned an empty tensor, shape {tuple(shape)}"
    try:  # the shape is known without values
        as_maps(torch.empty(shape, device="meta"), call.module, call.grid)
    except ValueError as error:
        return str(error)
    return ""


# A layer in words


class LayerWords(NamedTuple):
    """The description of a layer.

    Attributes
    ----------
    kind : str
        Its type, such as ``Conv2d``.
    text : str
        Kernel, stride, channels, groups and parameters; only what it has.
    size : str
        The output's size for one sample, ``96×14×14``.
    """

    kind: str
    text: str
    size: str

    @property
    def line(self) -> str:
        """All of it, in one line."""
        return " · ".join(filter(None, (f"{self.kind} {self.text}".strip(), self.size)))


def layer_words(record: LayerRecord) -> LayerWords:
    """Describe a layer that has run.

    Examples
    --------
    >>> import torch
    >>> from hookviz import capture
    >>> conv = torch.nn.Conv2d(48, 96, 3, stride=2, padding=1, groups=4)
    >>> with capture(conv) as cache:
    ...     _ = conv(torch.zeros(1, 48, 28, 28))
    >>> layer_words(cache[""]).line
    'Conv2d 3×3, stride 2, 48 → 96 channels, groups 4, 10,464 parameters · 96×14×14'
    """
    module: Any = record.module
    text = [_sizes(getattr(module, "kernel_size", None), always=True)]
    for name in ("stride", "dilation"):
        if said := _sizes(getattr(module, name, None)):
            text.append(f"{name} {said}")
    ends = [
        (getattr(module, f"in_{what}", None), getattr(module, f"out_{what}", None), what)
        for what in ("channels", "features")
    ]
    text += [f"{a} → {b} {w}" for a, b, w in ends if isinstance(a, int) and isinstance(b, int)]
    groups = getattr(module, "groups", 1)
    text += [f"groups {groups}"] if isinstance(groups, int) and groups > 1 else []
    count = sum(parameter.numel() for parameter in module.parameters())
    text += [f"{count:,} parameters"] if count else []
    outputs = record.last.outputs
    size = outputs[0].shape if outputs else ()
    kernel = getattr(module, "kernel_size", None)
    unbatched = isinstance(kernel, tuple) and len(size) == len(kernel) + 1
    shown = size if unbatched else size[1:]
    return LayerWords(
        type(module).__name__, ", ".join(filter(None, text)), "×".join(map(str, shown))
    )


def _sizes(given: Any, always: bool = False) -> str:
    """Format a kernel's size as ``3×3``; a stride as ``2``, or empty if it is 1."""
    numbers = given if isinstance(given, tuple) else (given,)
    if not numbers or not all(isinstance(each, int) for each in numbers):
        return ""
    if always:
        return "×".join(map(str, numbers))
    if set(numbers) == {1}:
        return ""
    return str(numbers[0]) if len(set(numbers)) == 1 else "×".join(map(str, numbers))


@dataclass(frozen=True)
class Cell:
    """One layer that can be shown, by its last call and all samples.

    Attributes
    ----------
    name, block : str
        The layer's name; and the first part of it that not all layers share.
    side : int
        The longest spatial side of its maps.
    activation : float
        Root mean square of the finite values; NaN without any.
    gradient : float or None
        The same of the gradient; None where none arrived.
    zeros : float
        Fraction of the activations that are exactly zero, 0 to 1.
    nans, infs : int
        How many of the activations are.
    gradient_nans, gradient_infs : int
        How many of the gradients are.
    channels : int
    silent : int or None
        How many channels are zero everywhere; None where the values were not kept.
    weighted : bool
        True if it is a convolution or a linear layer: a ReLU's channels may well be zero.
    away : int
        How many of the silent channels have weights next to zero: trained away.
    zero_weights : bool
        True if all its weights are zero.
    """

    name: str
    block: str
    side: int
    activation: float
    gradient: float | None
    zeros: float
    nans: int
    infs: int
    gradient_nans: int = 0
    gradient_infs: int = 0
    channels: int = 0
    silent: int | None = 0
    weighted: bool = True
    away: int = 0
    zero_weights: bool = False

    @property
    def wrong(self) -> bool:
        """True if any value or gradient is NaN or infinite."""
        return bool(self.nans or self.infs or self.gradient_nans or self.gradient_infs)

    @property
    def quiet(self) -> int:
        """Number of channels that are silent and not trained away."""
        return (self.silent or 0) - self.away

    def dead(self, samples: int) -> bool:
        """Return whether its channels are dead, by the judgement of `diagnose`."""
        count = self.silent or 0
        whole = count == self.channels
        return silence(count, self.channels, self.away, samples, whole) == "dead"


class HealthSummary(NamedTuple):
    """A summary of the network's health.

    Attributes
    ----------
    text : str
        A few words.
    kind : str
        ``"good"``, ``"odd"`` or ``"bad"``.
    layer : str or None
        The layer to look at, if any.
    details : str
        What was examined, and facts that are not problems.
    """

    text: str
    kind: str
    layer: str | None = None
    details: str = ""


def layer_overview(cache: FeatureCache, names: Sequence[str]) -> list[Cell]:
    """Return a cell for each of these layers, in order.

    Examples
    --------
    >>> from hookviz import capture
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU())
    >>> with capture(model, ["0", "1"]) as cache:
    ...     _ = model(torch.zeros(1, 1, 8, 8))
    >>> [(cell.name, cell.side, cell.gradient) for cell in layer_overview(cache, ["0", "1"])]
    [('0', 6, None), ('1', 6, None)]
    """
    blocks = blocks_of(names)
    return [_cell(cache[name].last, name, block) for name, block in zip(names, blocks, strict=True)]


def _cell(call: Call, name: str, block: str) -> Cell:
    output, module = call.outputs[0], call.module
    shape = as_maps(torch.empty(output.shape, device="meta"), module, call.grid).shape
    own, gradients = _pass(output, False), _pass(output, True)
    assert own is not None  # only a gradient may be missing
    silent, still = _silent(call, shape[1], own.zeros)
    weight = None if module is None else stored_tensor(module, "weight")
    weighted = isinstance(module, torch.nn.Linear) or (
        module is not None and is_convolution(module)
    )
    away = 0
    if weighted and silent and weight is not None and len(weight) == shape[1]:
        small = next_to_zero(weight)
        away = int((small if still is None else small & still.to(small.device)).sum())
    return Cell(
        name,
        block,
        max(shape[2:]),
        own.rms,
        None if gradients is None else gradients.rms,
        own.zeros,
        own.nans,
        own.infs,
        0 if gradients is None else gradients.nans,
        0 if gradients is None else gradients.infs,
        shape[1],
        silent,
        weighted,
        away,
        weighted and module is not None and is_zero(module),
    )


def _silent(call: Call, channels: int, zeros: float) -> tuple[int | None, torch.Tensor | None]:
    """Count the channels that are zero everywhere, quickly if there are too few zeros for one.

    Also returns which they are; None for all.
    """
    if zeros in (0, 1) or zeros * channels < 1 - 1e-6:
        return (channels if zeros == 1 else 0), None
    if (values := values_of(call.outputs[0], False)) is None:
        return None, None
    across = channel_dimension(values, call.module, call.grid)
    still = ~values.movedim(across, 0).flatten(1).any(1)
    return int(still.sum()), still


class _Passed(NamedTuple):
    rms: float
    zeros: float
    nans: int
    infs: int


def _pass(tensor: CapturedTensor, gradient: bool) -> _Passed | None:
    """Summarize one tensor or its gradient in as few passes as possible."""
    if gradient and not tensor.has_gradient:
        return None
    if (values := values_of(tensor, gradient)) is not None:
        wide = torch.float64 if values.dtype == torch.float64 else torch.float32
        norm = float(torch.linalg.vector_norm(values, dtype=wide))
        if math.isfinite(norm):
            zeros = 0.0 if gradient else 1 - int(torch.count_nonzero(values)) / values.numel()
            return _Passed(norm / math.sqrt(values.numel()), zeros, 0, 0)
        found = statistics(values)
    else:
        known = tensor.gradient_statistics if gradient else tensor.statistics
        assert known is not None  # a gradient has come
        found = known
    finite = tensor.shape.numel() - found.nans - found.infs
    rms = found.norm / math.sqrt(finite) if finite else math.nan
    return _Passed(rms, found.zeros, found.nans, found.infs)


def values_of(tensor: CapturedTensor, gradient: bool) -> torch.Tensor | None:
    """Return values that a single pass can summarize; None if all statistics are needed."""
    values = (tensor.gradient if gradient else tensor.value) if tensor.kept else None
    if values is None or values.layout != torch.strided or not values.is_floating_point():
        return None
    return values if values.numel() else None


def blocks_of(names: Sequence[str]) -> list[str]:
    """Return the block of each layer: the parts of its name that its neighbours share.

    It is the first part that not all layers share; where more than half of the layers, and more
    than four, would be in one block, that is divided by the next part of the names.

    Examples
    --------
    >>> blocks_of(["conv1", "layer1.0.conv1", "layer1.0.conv2"])
    ['conv1', 'layer1', 'layer1']
    >>> blocks_of(["features.0", "features.1.conv", "features.1.norm"])
    ['0', '1', '1']
    >>> many = [f"blocks.{block}.{name}" for block in range(5) for name in ("qkv", "mlp")]
    >>> blocks_of(["stem", *many, "head"])[:4]
    ['stem', 'blocks.0', 'blocks.0', 'blocks.1']
    >>> vit = [name for block in "012345" for name in (f"block.{block}.heads", f"block.{block}")]
    >>> blocks_of(["stem", *vit])[:4]  # a block that is a layer itself
    ['stem', 'block.0', 'block.0', 'block.1']
    """
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(each) > shared + 1 for each in parts) and len({e[shared] for e in parts}) == 1:
        shared += 1
    depth = [shared + 1] * len(parts)
    containers = {tuple(each[:deep]) for each in parts for deep in range(len(each))}
    while True:
        keys = [tuple(each[:deep]) for each, deep in zip(parts, depth, strict=True)]
        large = {key for key, count in Counter(keys).items() if count > max(4, len(names) / 2)}
        deeper = [
            key in large and len(p) > len(key) + (tuple(p) not in containers)
            for key, p in zip(keys, parts, strict=True)
        ]
        if not any(deeper):
            break
        depth = [deep + more for deep, more in zip(depth, deeper, strict=True)]
    return [".".join(key[shared:]) or "(model)" for key in keys]


def magnitudes(cells: Iterable[Cell]) -> tuple[str, list[float]]:
    """Return the magnitudes behind the ribbon's colours: the gradient's, or else the activation's.

    NaN for layers without any.
    """
    cells = list(cells)
    if any(cell.gradient is not None and cell.gradient > 0 for cell in cells):
        return "gradient", [math.nan if c.gradient is None else c.gradient for c in cells]
    return "activation", [cell.activation for cell in cells]


def verdict(
    cells: Sequence[Cell], samples: int = 1, kind: str = "input", zeroed: Sequence[str] = ()
) -> HealthSummary:
    """Summarize the health of the network as far as these cells show it, judged as by `diagnose`.

    Parameters
    ----------
    cells : sequence of Cell
    samples : int
        The number of inputs in the run.
    kind : str
        What an input is called.
    zeroed : sequence of str
        Linear layers among all of the model, not only these, whose weights are all zero.

    Examples
    --------
    >>> verdict([Cell("a", "a", 8, 1.0, 0.0, 0.0, 0, 0)], zeroed=["head"]).text
    'All weights of head are zero, so the gradient is zero in 1 of 1 layers, on 1 input.'
    >>> verdict([Cell("a", "a", 8, 1.0, 0.02, 0.0, 0, 0), Cell("b", "b", 4, 1.0, 1.0, 0.5, 0, 0)])
    HealthSummary(text='No problems found', kind='good', layer=None, details='No NaN or Inf in 2 \
layers, on 1 input. Gradient sizes differ by a factor of at most 100.')
    >>> verdict([Cell("a", "a", 8, 1.0, None, 0.0, 3, 0)])
    HealthSummary(text='NaN in 1 of 1 layers, first in a', kind='bad', layer='a', details='')
    >>> verdict([Cell("a", "a", 8, 1.0, None, 0.5, 0, 0, channels=64, silent=32)]).details
    'No NaN or Inf in 1 layer, on 1 input. Silent on this input: 50 % of the channels in a.'
    """
    wrong = (  # activations first: NaN in them makes all gradients before it NaN
        ("NaN", [cell for cell in cells if cell.nans]),
        ("Inf", [cell for cell in cells if cell.infs]),
        ("NaN in the gradient,", [cell for cell in cells if cell.gradient_nans][::-1]),
        ("Inf in the gradient,", [cell for cell in cells if cell.gradient_infs][::-1]),
    )
    for what, bad in wrong:
        if bad:
            first = f"in {len(bad)} of {len(cells)} layers, first in {_named(bad[0])}"
            return HealthSummary(f"{what} {first}", "bad", bad[0].name)
    layers = [cell for cell in cells if cell.weighted]
    on = f"{samples} {kind}" + "s" * (samples != 1)
    blocked = [cell for cell in cells if cell.gradient == 0]
    if blocked and zeroed and not any(cell.zero_weights for cell in layers):
        text = (
            f"All weights of {' and '.join(zeroed)} are zero, so the gradient is zero in "
            f"{len(blocked)} of {len(cells)} layers, on {on}."
        )
        return HealthSummary(text, "odd", blocked[-1].name)
    found = (
        ("All weights are zero in {}", [c for c in layers if c.zero_weights]),
        (f"Zero everywhere, on {on}: {{}}", [c for c in cells if c.zeros == 1]),
        (f"The gradient is zero, on {on}, in {{}}", blocked),
        (f"Most channels are dead, on {on}, in {{}}", [c for c in layers if c.dead(samples)]),
    )
    for words, odd in found:
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            said_of = words.format(_named(odd[0]))
            return HealthSummary(said_of + more, "odd", odd[0].name)
    clean = f"No NaN or Inf in {len(cells)} layer{'s' * (len(cells) != 1)}, on {on}."
    this = f"this {kind}" if samples == 1 else f"all {on}"
    silent = _most_silent(layers)
    said, odd_layer = [clean], silent[-1].name if silent else None
    if silent:
        most = f"{_percent(silent[-1])} of the channels in {_named(silent[-1])}"
        if len(silent) > 1:
            most = f"up to {_percent(silent[-1])} of the channels, in {len(silent)} layers"
        said.append(f"Silent on {this}: {most}.")
    if away := sum(cell.away for cell in layers):
        odd_layer = odd_layer or max(layers, key=lambda cell: cell.away).name
        word = "channel has" if away == 1 else "channels have"
        said.append(f"{away} {word} near-zero weights.")
    for what, sizes in (
        ("activation", [cell.activation for cell in layers]),
        ("gradient", [c.gradient for c in reversed(layers) if c.gradient is not None]),
    ):
        for trend, _ in trends([size for size in sizes if math.isfinite(size)]):
            where = layers[0] if (what == "gradient") else layers[-1]
            text = f"The {what} is {trend}: more than {LIMIT:,.0f} times along the layers."
            return HealthSummary(text, "odd", where.name, " ".join(said))
    if gradients := [cell.gradient for cell in cells if cell.gradient]:
        factor = 10 ** max(1, math.ceil(math.log10(max(gradients) / min(gradients)) - 1e-9))
        said.append(f"Gradient sizes differ by a factor of at most {factor:,}.")
    return HealthSummary("No problems found", "good", odd_layer, " ".join(said))


def _named(cell: Cell) -> str:
    return cell.name or "(model)"


def _percent(cell: Cell) -> str:
    return f"{100 * cell.quiet / cell.channels:.0f} %"


def _most_silent(cells: Sequence[Cell]) -> list[Cell]:
    """Return the layers with silent channels that are not trained away, the most silent last."""
    return sorted((cell for cell in cells if cell.quiet), key=lambda c: c.quiet / c.channels)
