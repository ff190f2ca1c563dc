"""The distance of two tensors in numbers, without copies of them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.arguments import check_number
from ...hooking.records import CapturedTensor, FeatureCache
from ...tables import call_name, for_terminal, number, plain
from .pairing import Pairs

# OpenBLAS uses several threads for the product of more than 10,000 numbers. On a busy machine these
# wait for each other, and the comparison took ten times as long.
_AT_ONCE = 1 << 13
"""Numbers that are compared at once: they stay in the processor's cache."""


@dataclass(frozen=True)
class TensorDifference:
    """The difference of tensors a and b, over all positions where both are finite.

    Attributes
    ----------
    largest, mean : float
        Maximum and mean of ``|a − b|``.
    relative : float
        ``‖a − b‖ / ‖a‖``: 0 if they are equal, Inf if a is all zeros and b is not.
    cosine : float
        ``a·b / (‖a‖ ‖b‖)``, NaN if either is all zeros.
    fraction : float
        Fraction of the values, 0 to 1, that differ at all. NaN is equal to NaN.
    nonfinite_mismatch : int
        Number of positions at which only one is finite, or at which NaN or Inf differ.
    epsilon : float
        The rounding of the coarser of both types, relative to a: the distance from 1 to the next
        number, and the smallest number of all over a's root mean square.
    why : str
        The reason if they cannot be compared, such as different shapes; otherwise empty.
    """

    largest: float = math.nan
    mean: float = math.nan
    relative: float = math.nan
    cosine: float = math.nan
    fraction: float = math.nan
    nonfinite_mismatch: int = 0
    epsilon: float = 0.0
    why: str = ""

    @property
    def decibel(self) -> float:
        """The signal-to-noise ratio, ``20 log10(‖a‖ / ‖a − b‖)``: Inf if they are equal.

        −Inf where one of them alone is finite.
        """
        if self.nonfinite_mismatch:
            return -math.inf
        if not self.relative > 0:
            return math.nan if math.isnan(self.relative) else math.inf
        return -20 * math.log10(self.relative)

    @property
    def distance(self) -> float:
        """``relative``; Inf if they cannot be compared, or where one of them alone is finite."""
        return math.inf if self.why or self.nonfinite_mismatch else self.relative

    @property
    def equal(self) -> bool:
        """True if there is no difference at all."""
        return not self.why and self.fraction == 0


def difference(a: Tensor, b: Tensor) -> TensorDifference:
    """Measure the distance of b from a, in double precision where the device supports it.

    >>> import torch
    >>> found = difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))
    >>> found.largest, found.mean, found.relative, found.fraction
    (0.5, 0.25, 0.1, 0.5)
    >>> difference(torch.zeros(2), torch.zeros(3)).why
    'shapes differ: 2 and 3'
    """
    coarser = max(a, b, key=rounding)
    epsilon = rounding(coarser)
    if a.shape != b.shape:
        shapes = f"{shape_text(a.shape)} and {shape_text(b.shape)}"
        return TensorDifference(epsilon=epsilon, why=f"shapes differ: {shapes}")
    any_complex = a.is_complex() or b.is_complex()
    one, two = _numbers(a, any_complex), _numbers(b, any_complex)
    starts = range(0, len(one), _AT_ONCE)
    sums = [_sums(one[start : start + _AT_ONCE], two[start : start + _AT_ONCE]) for start in starts]
    if not sums:
        return TensorDifference(0.0, 0.0, 0.0, math.nan, 0.0, 0, epsilon)
    largest = max(each[0] for each in sums)
    total, apart, ours, theirs, both, differing, mismatched = map(
        math.fsum, list(zip(*sums, strict=True))[1:]
    )
    if ours:
        epsilon += _smallest(coarser) * math.sqrt(len(one) / ours)
    return TensorDifference(
        largest,
        total / len(one),
        math.sqrt(apart / ours) if ours else (math.inf if apart else 0.0),
        both / math.sqrt(ours * theirs) if ours * theirs else math.nan,
        differing / len(one),
        int(mismatched),
        epsilon,
    )


def _sums(a: np.ndarray, b: np.ndarray) -> list[float]:
    """Measure a part: largest |a − b|; sums of it, (a − b)², a², b², ab; two counts of ≠."""
    differing, mismatched = a != b, 0
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
        squares = a @ a, b @ b, a @ b
        if not np.isfinite(squares).all():
            finite = np.isfinite(a) & np.isfinite(b)
            differing &= ~(np.isnan(a) & np.isnan(b))
            mismatched = int(np.count_nonzero(differing & ~finite))
            a, b = np.where(finite, a, 0), np.where(finite, b, 0)
            squares = a @ a, b @ b, a @ b
        apart = a - b
        square = apart @ apart
        size = np.abs(apart, out=apart)
        found = (size.max(), size.sum(), square, *squares, np.count_nonzero(differing), mismatched)
    return [*map(float, found)]


def _numbers(tensor: Tensor, as_complex: bool) -> np.ndarray:
    """Return all values in one dimension; a complex one becomes two real ones."""
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    if as_complex:
        tensor = torch.view_as_real((tensor + 0j).resolve_conj())
    if tensor.is_floating_point() and tensor.dtype not in _NUMPYS:
        tensor = tensor.float()
    return tensor.cpu().flatten().numpy()


_NUMPYS = (torch.float16, torch.float32, torch.float64)


def rounding(tensor: Tensor) -> float:
    """Return the distance from 1 to the next number of its type; 0 for whole numbers."""
    if tensor.is_quantized:
        return 2.0**-8
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return torch.finfo(tensor.dtype).eps if inexact else 0.0


def _smallest(tensor: Tensor) -> float:
    """Numbers next to zero are so far from it, however small they are."""
    if tensor.is_quantized or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    known = torch.finfo(tensor.dtype)
    return known.tiny * known.eps


# Of a layer, in one line

ROUNDINGS, GROWTH = 16, 8
"""Tolerances: multiples of the type's rounding error, and of an earlier difference."""

HEADER = (
    *("layer", "type", "shape", "max difference", "mean difference", "relative difference"),
    *("SNR (dB)", "cosine", "values that differ", "inputs", "gradient"),
)

SPARE = ("type", "shape", "mean difference", "cosine", "SNR (dB)", "values that differ")
"""Columns that a terminal can do without, the first ones first."""


@dataclass(frozen=True, eq=False, repr=False)
class LayerDifference:
    """The difference of a call of a layer between a and b; printed as one line.

    Attributes
    ----------
    layer, layer_b : str
        The names in a and in b; "" is the model itself.
    call : int
        Which call of the layer, from 0.
    type : str
        The class of a's layer.
    shape : tuple of int
        Shape of a's output; of the first tensor of several.
    output : TensorDifference
        The difference of the outputs; of several tensors, the largest.
    inputs, gradient : TensorDifference or None
        The difference of the inputs, and of the gradients that reached the outputs; None where
        either model had none.
    """

    layer: str
    layer_b: str
    call: int
    type: str
    shape: tuple[int, ...]
    output: TensorDifference
    inputs: TensorDifference | None = None
    gradient: TensorDifference | None = None

    @property
    def tolerance(self) -> float:
        """The relative difference that rounding explains: ``16 ε + 8 d``.

        ε is the rounding of the coarsest type among inputs, outputs and weights, d the relative
        difference of the inputs, which the layer may increase.
        """
        epsilon = max(each.epsilon for each in (self.output, self.inputs) if each is not None)
        return ROUNDINGS * epsilon + GROWTH * (self.inputs.distance if self.inputs else 0.0)

    @property
    def inputs_differ(self) -> bool:
        """True if the inputs differ already, by more than rounding."""
        inputs = self.inputs
        return inputs is not None and inputs.distance > ROUNDINGS * inputs.epsilon

    def differs(self, tolerance: float | None = None) -> bool:
        """Return True if it differs by more than the tolerance, or than rounding explains."""
        if tolerance is not None:
            check_number("tolerance", tolerance)
        allowed = self.tolerance if tolerance is None else tolerance
        return not self.output.distance <= allowed

    def record(self) -> dict[str, Any]:
        """One flat dict of strict JSON, see `Comparison.records`."""
        own = ("layer", "layer_b", "call", "type", "shape")
        found = {name: getattr(self, name) for name in own}
        found |= {name: getattr(self.output, name) for name in _RECORDED}
        for name, side in (("inputs", self.inputs), ("gradient", self.gradient)):
            found[f"{name}_relative"] = side and side.distance
        return plain(found | {"why": self.output.why})

    @property
    def name(self) -> str:
        """The layer's name, with b's if that is different, and the call if there are several."""
        partner = "" if self.layer_b == self.layer else f" → {self.layer_b or '(model)'}"
        return call_name(self.layer, self.call, partner)

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        return self.name, self.type, shape_text(self.shape), *self._numbers()

    def _numbers(self) -> list[str]:
        out = self.output
        numbers = [number(out.largest), number(out.mean), number(out.relative)]
        numbers += [f"{out.decibel:.3g}".replace("inf", "∞"), f"{out.cosine:.6g}"]
        numbers.append(f"{100 * out.fraction:.3g} %")
        if out.why:
            numbers = [out.why, *[""] * 5]
        elif out.equal:
            numbers = ["equal", *[""] * 5]
        elif out.nonfinite_mismatch:
            numbers[0] = f"{out.nonfinite_mismatch} not finite in one"
        return [*numbers, _in_short(self.inputs), _in_short(self.gradient)]

    @for_terminal
    def __repr__(self) -> str:
        largest, _, relative, decibel, _, fraction, inputs, _ = self._numbers()
        words = largest
        if self.output.nonfinite_mismatch:
            words += f", relative difference of the others {relative}"
        elif relative:
            words = f"relative difference {relative}, max {largest}, SNR {decibel} dB, "
            words += f"{fraction} of the values"
        return f"{self.name} ({self.type}, {shape_text(self.shape)}): {words}; inputs {inputs}"


def folded(rows: Sequence[LayerDifference]) -> tuple[str, ...]:
    """Return one row of the table for layers in a row that are equal."""
    gradient = max_difference(row.gradient for row in rows if row.gradient is not None)
    words = _in_short(gradient)
    if gradient is not None and not gradient.equal:
        words = f"≤ {words}"
    return f"{len(rows)} equal", "", "", "equal", *[""] * 5, _in_short(rows[0].inputs), words


def shape_text(shape: Sequence[int]) -> str:
    """Format a shape.

    >>> shape_text((1, 8, 8)), shape_text(())
    ('1×8×8', 'one number')
    """
    return "×".join(map(str, shape)) or "one number"


_RECORDED = ("largest", "mean", "relative", "decibel", "cosine", "fraction", "nonfinite_mismatch")


def _in_short(known: TensorDifference | None) -> str:
    if known is None:
        return "–"
    return known.why or ("equal" if known.equal else number(known.distance))


def layer_differences(a: FeatureCache, b: FeatureCache, pairs: Pairs) -> list[LayerDifference]:
    """Return a row for each call of each of a's layers that has a partner."""

    @cache  # a tensor that one layer returns and others take is measured once
    def distance(one: CapturedTensor, two: CapturedTensor) -> TensorDifference:
        return difference(one.value, two.value)

    def distances(
        ours: Sequence[CapturedTensor], theirs: Sequence[CapturedTensor]
    ) -> TensorDifference | None:
        return max_difference(map(distance, ours, theirs))

    rows = []
    for name, partner in pairs.partners.items():
        begins = pairs.begin(name)
        records = a[name], b[partner], a[begins[0]], b[begins[1]]
        weights = max(_rounding_of_weights(record.module) for record in records)
        for call, (one, two, begin, other) in enumerate(
            zip(*(record.calls for record in records), strict=False)
        ):
            output = distances(one.outputs, two.outputs)
            if len(one.outputs) != len(two.outputs) or output is None:
                counts = f"{len(one.outputs)} and {len(two.outputs)}"
                output = TensorDifference(why=f"numbers of tensors differ: {counts}")
            gradients = [
                difference(ours.gradient, theirs.gradient)
                for ours, theirs in zip(one.outputs, two.outputs, strict=False)
                if ours.gradient is not None and theirs.gradient is not None
            ]
            row = LayerDifference(
                name,
                partner,
                call,
                type(records[0].module).__name__,
                tuple(one.outputs[0].shape) if one.outputs else (),
                replace(output, epsilon=max(output.epsilon, weights)),
                distances(begin.inputs, other.inputs),
                max_difference(gradients),
            )
            rows.append(row)
    return rows


def _rounding_of_weights(module: nn.Module) -> float:
    """Return the coarsest rounding of all weights; eight bits for torch.ao's hidden ones."""
    hidden = any(".quantized." in type(each).__module__ for each in module.modules())
    return max((rounding(each) for each in module.parameters()), default=0.0) + hidden * 2.0**-8


def max_difference(found: Iterable[TensorDifference]) -> TensorDifference | None:
    """Return the largest difference; None if there is none."""
    return max(found, key=lambda each: each.distance, default=None)


def worst_sample(a: Tensor | None, b: Tensor | None, changed: Container[int] = ()) -> int | None:
    """Return the sample of a batch in which b is furthest from a, by ``‖a − b‖ / ‖a‖``.

    Of those whose answer has ``changed``, if there are any. None if all are equal, if there is
    nothing to compare, or if the shapes differ.

    >>> import torch
    >>> worst_sample(torch.ones(3, 2), torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.9]]))
    1
    >>> worst_sample(torch.ones(3, 2), torch.ones(3, 2)) is None
    True
    """
    if a is None or b is None or a.shape != b.shape or not a.ndim or not a.numel():
        return None
    apart = [difference(one, two).distance for one, two in zip(a, b, strict=True)]
    far = max(range(len(apart)), key=lambda sample: (sample in changed, apart[sample]))
    return far if apart[far] > 0 else None
