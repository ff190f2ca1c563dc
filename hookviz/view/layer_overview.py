"""Overview of the network: one cell per layer, and a summary of its health."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..hooking.records import Call, CapturedTensor, FeatureCache, statistics
from ..hooking.select import is_convolution
from ..hooking.tensors import as_maps, channel_dimension
from ..studies.diagnosis.magnitudes import LIMIT, trends
from ..studies.diagnosis.values import next_to_zero, silence
from ..studies.diagnosis.weights import is_zero


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
        Whether it is a convolution or a linear layer: a ReLU's channels may well be zero.
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
        """How many channels are silent, and not trained away."""
        return (self.silent or 0) - self.away

    def dead(self, samples: int) -> bool:
        """Return whether its channels are dead, by the judgement of `diagnose`."""
        count = self.silent or 0
        whole = count == self.channels
        return silence(count, self.channels, self.away, samples, whole) == "dead"


class HealthSummary(NamedTuple):
    """A summary of the network's health: words, and ``"good"``, ``"odd"`` or ``"bad"``."""

    text: str
    kind: str
    layer: str | None = None  # the layer to look at, if any


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
    weight = getattr(module, "weight", None)
    weighted = isinstance(module, torch.nn.Linear) or (
        module is not None and is_convolution(module)
    )
    away = 0
    if weighted and silent and isinstance(weight, torch.Tensor) and len(weight) == shape[1]:
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
    still = (values.movedim(across, 0) == 0).flatten(1).all(1)
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
    """Return the block of each layer: the first part of its name that not all of them share.

    Examples
    --------
    >>> blocks_of(["conv1", "layer1.0.conv1", "layer1.0.conv2"])
    ['conv1', 'layer1', 'layer1']
    >>> blocks_of(["features.0", "features.1.conv", "features.1.norm"])
    ['0', '1', '1']
    """
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(each) > shared + 1 for each in parts) and len({e[shared] for e in parts}) == 1:
        shared += 1
    return [each[shared] or "(model)" for each in parts]


def magnitudes(cells: Iterable[Cell]) -> tuple[str, list[float]]:
    """Return the magnitudes behind the ribbon's colours: the gradient's, or else the activation's.

    NaN for layers without any.
    """
    cells = list(cells)
    if any(cell.gradient is not None and cell.gradient > 0 for cell in cells):
        return "gradient", [math.nan if c.gradient is None else c.gradient for c in cells]
    return "activation", [cell.activation for cell in cells]


def verdict(cells: Sequence[Cell], samples: int = 1, kind: str = "input") -> HealthSummary:
    """Summarize the health of the network as far as these cells show it, judged as by `diagnose`.

    Parameters
    ----------
    cells : sequence of Cell
    samples : int
        The number of inputs in the run.
    kind : str
        What an input is called.

    Examples
    --------
    >>> verdict([Cell("a", "a", 8, 1.0, 0.02, 0.0, 0, 0), Cell("b", "b", 4, 1.0, 1.0, 0.5, 0, 0)])
    HealthSummary(text='No NaN or Inf in 2 layers, on 1 input. Gradient sizes differ by at most \
100 times.', kind='good', layer=None)
    >>> verdict([Cell("a", "a", 8, 1.0, None, 0.0, 3, 0)])
    HealthSummary(text='NaN in 1 of 1 layers, first in a', kind='bad', layer='a')
    >>> verdict([Cell("a", "a", 8, 1.0, None, 0.5, 0, 0, channels=64, silent=32)]).text
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
    found = (
        ("All weights are zero in {}", [c for c in layers if c.zero_weights]),
        (f"Zero everywhere, on {on}: {{}}", [c for c in cells if c.zeros == 1]),
        (f"The gradient is zero, on {on}, in {{}}", [c for c in cells if c.gradient == 0]),
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
        said.append(f"Weights next to zero: {away} channel{'s' * (away != 1)}.")
    for what, sizes in (
        ("activation", [cell.activation for cell in layers]),
        ("gradient", [c.gradient for c in reversed(layers) if c.gradient is not None]),
    ):
        for trend, _ in trends([size for size in sizes if math.isfinite(size)]):
            where = layers[0] if (what == "gradient") else layers[-1]
            said.insert(0, f"The {what} is {trend}: more than {LIMIT:,.0f} times along the layers.")
            return HealthSummary(" ".join(said), "odd", where.name)
    if gradients := [cell.gradient for cell in cells if cell.gradient]:
        factor = 10 ** max(1, math.ceil(math.log10(max(gradients) / min(gradients)) - 1e-9))
        said.append(f"Gradient sizes differ by at most {factor:,} times.")
    return HealthSummary(" ".join(said), "good", odd_layer)


def _named(cell: Cell) -> str:
    return cell.name or "(model)"


def _percent(cell: Cell) -> str:
    return f"{100 * cell.quiet / cell.channels:.0f} %"


def _most_silent(cells: Sequence[Cell]) -> list[Cell]:
    """Return the layers with silent channels that are not trained away, the most silent last."""
    return sorted((cell for cell in cells if cell.quiet), key=lambda c: c.quiet / c.channels)
