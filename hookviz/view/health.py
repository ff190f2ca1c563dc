"""All layers of a run, one cell each, and a summary of the network's health."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from ..hooking.maps import as_maps
from ..hooking.records import Call, CapturedTensor, FeatureCache, Statistics
from ..hooking.select import is_convolution
from ..hooking.weights import stored_tensor
from ..run.output import Output
from ..studies.diagnosis.checks.magnitudes import LIMIT, trends
from ..studies.diagnosis.checks.silent import silence
from ..studies.diagnosis.modules import LINEAR, is_zero, next_to_zero, zeroed
from ..tables import counted
from .maps import layers_of
from .view import View, cached


@cached()
def overview_of(view: View) -> list[Cell]:
    """Return one cell for each layer."""
    return layer_overview(view.cache, layers_of(view))


@cached()
def verdict_of(view: View) -> HealthSummary:
    """Return the summary of the network's health."""
    main, kind = view.session.inputs.main, "input"
    if main is not None and main.ndim == 4 and main.shape[1] in (1, 3):
        kind = "picture"
    cells = overview_of(view)
    blocked = any(cell.gradient == 0 for cell in cells)
    zero = zeroed(view.session.given) if blocked else ()
    one_value = isinstance(view.target, Output)
    return verdict(cells, view.session.inputs.samples, kind, zero, one_value)


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

    def dead(self, samples: int) -> bool:
        """Return whether its channels are dead, by the judgement of `diagnose`."""
        count, all_of_them = self.silent or 0, self.silent == self.channels
        return silence(count, self.channels, self.away, samples, all_of_them) == "dead"


class HealthSummary(NamedTuple):
    """A summary of the network's health.

    Attributes
    ----------
    text : str
        Three to six words.
    kind : str
        ``"good"``, ``"odd"`` or ``"bad"``.
    layer : str or None
        The layer to look at, if any.
    details : str
        The same in a sentence, and what was examined.
    """

    text: str
    kind: str
    layer: str | None = None
    details: str = ""


def is_untrained(model: nn.Module) -> bool:
    """Return whether a network has PyTorch's initial weights, as far as this can be known.

    Either it has BatchNorm layers that track statistics, and none of them has seen a batch. Or it
    has none of these, and the weights of all convolutions and linear layers are spread evenly
    between ``-1/√n`` and ``1/√n`` for ``n`` inputs of a weight's row.

    Examples
    --------
    >>> layer = torch.nn.Conv2d(3, 16, 3)
    >>> is_untrained(torch.nn.Sequential(layer))
    True
    >>> layer.weight.data *= 1.5
    >>> is_untrained(torch.nn.Sequential(layer))
    False
    """
    modules = list(model.modules())
    if batches := _stored(modules, "num_batches_tracked"):
        means = _stored(modules, "running_mean")
        return not any(map(bool, batches)) and not any(mean.any() for mean in means)
    weights = _stored([module for module in modules if isinstance(module, LINEAR)], "weight")
    large = [each for each in weights if each.numel() >= MIN_WEIGHTS and each.is_floating_point()]
    return bool(large) and all(map(_is_evenly_spread, large))


def _stored(modules: Iterable[nn.Module], name: str) -> list[torch.Tensor]:
    tensors = (stored_tensor(module, name) for module in modules)
    return [each for each in tensors if each is not None and not each.is_meta]


MIN_WEIGHTS = 256
"""Fewer weights say too little about their distribution."""


def _is_evenly_spread(weight: torch.Tensor) -> bool:
    weight, bound = weight.detach().float(), 1 / math.sqrt(weight[0].numel())
    # An even spread has a deviation of bound / √3. That of n draws differs by 0.45 / √n, and in one
    # of hundreds of layers by several times as much.
    deviation = float(weight.square().mean().sqrt()) * math.sqrt(3) / bound
    tolerance = max(0.1, 2.5 / math.sqrt(weight.numel()))
    return float(weight.abs().max()) <= bound * 1.0001 and abs(deviation - 1) < tolerance


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
    values, slopes = output.statistics, output.gradient_statistics
    weighted = isinstance(module, nn.Linear) or (module is not None and is_convolution(module))
    weight = stored_tensor(module, "weight") if weighted and module is not None else None
    silent, away = _silent(call, shape[1], values.zeros), 0
    if silent is not None and silent.any() and weight is not None and len(weight) == shape[1]:
        away = int((next_to_zero(weight) & silent.to(weight.device)).sum())
    return Cell(
        name=name,
        block=block,
        side=max(shape[2:]),
        activation=_rms(output, values),
        gradient=None if slopes is None else _rms(output, slopes),
        zeros=values.zeros,
        nans=values.nans,
        infs=values.infs,
        gradient_nans=0 if slopes is None else slopes.nans,
        gradient_infs=0 if slopes is None else slopes.infs,
        channels=shape[1],
        silent=None if silent is None else int(silent.sum()),
        weighted=weighted,
        away=away,
        zero_weights=weighted and module is not None and is_zero(module),
    )


def _rms(tensor: CapturedTensor, known: Statistics) -> float:
    finite = tensor.shape.numel() - known.nans - known.infs
    return known.norm / math.sqrt(finite) if finite else math.nan


def _silent(call: Call, channels: int, zeros: float) -> torch.Tensor | None:
    """Return the mask of channels that are zero everywhere; None if the values are not stored."""
    output = call.outputs[0]
    if zeros == 1 or zeros * channels < 1 - 1e-6:  # all channels are silent, or none can be
        return torch.full((channels,), zeros == 1)
    if not output.kept or not output.dtype.is_floating_point:
        return None
    maps = as_maps(output.value.to_dense(), call.module, call.grid)
    return ~maps.movedim(1, 0).flatten(1).any(1)


def blocks_of(names: Sequence[str]) -> list[str]:
    """Return the block of each layer: the first part of its name that not all layers share.

    While a block holds more than half of the layers, and more than four, names are cut one part
    later.

    Examples
    --------
    >>> blocks_of(["conv1", "layer1.0.conv1", "layer1.0.conv2"])
    ['conv1', 'layer1', 'layer1']
    >>> blocks_of(["features.0", "features.1.conv", "features.1.norm"])
    ['0', '1', '1']
    >>> many = [f"blocks.{block}.{name}" for block in range(5) for name in ("qkv", "mlp")]
    >>> blocks_of(["stem", *many, "head"])[:4]
    ['stem', 'blocks.0', 'blocks.0', 'blocks.1']
    """
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(each) > shared + 1 for each in parts) and len({e[shared] for e in parts}) == 1:
        shared += 1

    def blocks_at(depth: int) -> list[str]:
        return [".".join(each[shared:depth]) or "(model)" for each in parts]

    blocks = blocks_at(shared + 1)
    for depth in range(shared + 2, max(map(len, parts), default=0)):
        if max(Counter(blocks).values()) <= max(4, len(names) / 2):
            break
        blocks = blocks_at(depth)
    return blocks


def verdict(
    cells: Sequence[Cell],
    samples: int = 1,
    kind: str = "input",
    zeroed: Sequence[str] = (),
    one_value: bool = False,
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
    one_value : bool
        True if the target is a single value of the output, such as the score of a box: many layers
        may not contribute to it.

    Examples
    --------
    >>> verdict([Cell("a", "a", 8, 1.0, 0.0, 0.0, 0, 0)], zeroed=["head"])
    HealthSummary(text='Zero weights stop the gradient', kind='odd', layer='a', details='All \
weights of head are zero, so the gradient is zero in 1 of 1 layers, on 1 input.')
    >>> verdict([Cell("a", "a", 8, 1.0, 0.02, 0.0, 0, 0), Cell("b", "b", 4, 1.0, 1.0, 0.5, 0, 0)])
    HealthSummary(text='No problems found', kind='good', layer=None, details='No NaN or Inf in 2 \
layers, on 1 input.')
    >>> verdict([Cell("a", "a", 8, 1.0, None, 0.0, 3, 0)])
    HealthSummary(text='NaN in 1 layer', kind='bad', layer='a', details='NaN in 1 of 1 layers, \
first in a.')
    """
    wrong = (  # activations first: NaN in them makes all gradients before it NaN
        ("NaN", [cell for cell in cells if cell.nans]),
        ("Inf", [cell for cell in cells if cell.infs]),
        ("NaN gradient", [cell for cell in cells if cell.gradient_nans][::-1]),
        ("Inf gradient", [cell for cell in cells if cell.gradient_infs][::-1]),
    )
    for what, bad in wrong:
        if bad:
            first = f"{what} in {len(bad)} of {len(cells)} layers, first in {_named(bad[0])}."
            where = counted(len(bad), "layer")
            return HealthSummary(f"{what} in {where}", "bad", bad[0].name, first)
    layers = [cell for cell in cells if cell.weighted]
    on = f"{samples} {kind}" + "s" * (samples != 1)
    blocked = [cell for cell in cells if cell.gradient == 0]
    # A gradient that arrives at the first layer has not been stopped on its way.
    if beside := blocked if one_value and cells[0].gradient else []:
        blocked = []
    if blocked and zeroed and not any(cell.zero_weights for cell in layers):
        text = (
            f"All weights of {' and '.join(zeroed)} are zero, so the gradient is zero in "
            f"{len(blocked)} of {len(cells)} layers, on {on}."
        )
        return HealthSummary("Zero weights stop the gradient", "odd", blocked[-1].name, text)
    dead = [cell for cell in layers if cell.dead(samples)]
    found = (
        ("Zero weights", "All weights are zero", [c for c in layers if c.zero_weights]),
        (
            "Zero output",
            f"The output is zero everywhere, on {on},",
            [c for c in cells if c.zeros == 1],
        ),
        ("Zero gradient", f"The gradient is zero, on {on},", blocked),
        ("Dead channels", f"Most channels are dead, on {on},", dead),
    )
    for what, words, odd in found:
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            sentence = f"{words} in {_named(odd[0])}{more}."
            where = counted(len(odd), "layer")
            return HealthSummary(f"{what} in {where}", "odd", odd[0].name, sentence)
    clean = f"No NaN or Inf in {len(cells)} layer{'s' * (len(cells) != 1)}, on {on}."
    if beside:
        apart = counted(len(beside), "layer")
        clean += f" The target does not depend on {apart}: the gradient is zero there."
    for what, sizes in (
        ("activation", [cell.activation for cell in layers]),
        ("gradient", [c.gradient for c in reversed(layers) if c.gradient is not None]),
    ):
        for trend, _ in trends([size for size in sizes if math.isfinite(size)]):
            at = layers[0] if what == "gradient" else layers[-1]
            words = f"It changes more than {LIMIT:,.0f} times along the layers. {clean}"
            return HealthSummary(f"The {what} is {trend}", "odd", at.name, words)
    return HealthSummary("No problems found", "good", None, clean)


def _named(cell: Cell) -> str:
    return cell.name or "(model)"
