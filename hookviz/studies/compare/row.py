"""One run of one layer in both models: how far apart are its inputs, its outputs, its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ...hooking.records import FeatureCache, LayerRecord
from ...hooking.tables import number, plain
from .difference import TensorDifference, rounding
from .pairing import Pairs

ROUNDINGS, GROWTH = 16, 8
"""What is explained: so many times the type's rounding, and of what was there before."""

HEADER = (
    *("layer", "type", "shape", "largest", "mean", "relative", "dB", "cosine", "differ"),
    *("inputs", "gradient"),
)


SPARE = ("type", "shape", "mean", "cosine", "dB", "differ")
"""Columns that a terminal can do without, the first ones first."""


@dataclass(frozen=True, eq=False)
class LayerDifference:
    """How far a layer's run in b is from that in a.

    Attributes
    ----------
    layer, layer_b : str
        The names in a and in b; "" is the model itself.
    call : int
        Which of the layer's runs, from 0.
    type : str
        The class of a's layer.
    shape : tuple of int
        Of what a's returned first.
    output : Difference
        Of what it returned; of several tensors the one that differs most.
    inputs, gradient : Difference or None
        The same of what it was given, and of the gradient that reached what it returned; None
        where either had none.
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
    def explained(self) -> float:
        """The relative difference that rounding explains: ``16 ε + 8 d``.

        ε is the rounding of the coarsest type among what it was given, what it returned and its
        weights, d the relative difference of its inputs, which it may make larger.
        """
        epsilon = max(each.epsilon for each in (self.output, self.inputs) if each is not None)
        return ROUNDINGS * epsilon + GROWTH * (self.inputs.distance if self.inputs else 0.0)

    @property
    def inputs_differ(self) -> bool:
        """Whether what it was given differs already, by more than rounding."""
        given = self.inputs
        return given is not None and given.distance > ROUNDINGS * given.epsilon

    def differs(self, tolerance: float | None = None) -> bool:
        """Whether it differs by more than the tolerance, or than is explained."""
        allowed = self.explained if tolerance is None else tolerance
        return not self.output.distance <= allowed

    def record(self) -> dict[str, Any]:
        """One flat dict of strict JSON, see `Comparison.records`."""
        found = {name: getattr(self, name) for name in ("layer", "layer_b", "call", "type")}
        known = self.output
        found |= {"shape": self.shape, **{name: getattr(known, name) for name in _TOLD}}
        sides = {"inputs": self.inputs, "gradient": self.gradient}
        for name, side in sides.items():
            found[f"{name}_relative"] = None if side is None else side.distance
        return plain(found | {"why": known.why})

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        call = f" (call {self.call})" if self.call else ""
        as_partner = "" if self.layer_b == self.layer else f" → {self.layer_b or '(model)'}"
        out = self.output
        numbers = [number(getattr(out, name)) for name in ("largest", "mean", "relative")]
        numbers += [f"{out.decibel:.3g}".replace("inf", "∞"), f"{out.cosine:.6g}"]
        numbers.append(f"{100 * out.share:.3g} %")
        if out.why:
            numbers = [out.why, *[""] * 5]
        elif out.equal:
            numbers = ["equal", *[""] * 5]
        elif out.odd:
            numbers[0] = f"{out.odd} not finite in one"
        others = [_in_short(each) for each in (self.inputs, self.gradient)]
        name = f"{self.layer or '(model)'}{as_partner}{call}"
        return name, self.type, "×".join(map(str, self.shape)), *numbers, *others


_TOLD = ("largest", "mean", "relative", "decibel", "cosine", "share", "odd")


def _in_short(known: TensorDifference | None) -> str:
    if known is None:
        return "–"
    return known.why or ("equal" if known.equal else number(known.distance))


def rows_of(
    first: FeatureCache, second: FeatureCache, pairs: Pairs, names: Iterable[str]
) -> list[LayerDifference]:
    """What was found of some of a's layers, of which all was kept."""
    rows = []
    for name in names:
        (_, begin), partner = pairs.begin(name), pairs.partners[name]
        if name in first and partner in second and begin in second:
            three = first[name], second[partner], second[begin]
            count = min(len(record.calls) for record in three)
            rows += [_row(*three, call) for call in range(count)]
    return rows


def _row(ours: LayerRecord, theirs: LayerRecord, begin: LayerRecord, call: int) -> LayerDifference:
    one, two, given = (record.calls[call] for record in (ours, theirs, begin))
    output = worst(each.of_value for each in two.outputs)  # type: ignore[attr-defined]
    if len(one.outputs) != len(two.outputs) or output is None:
        counts = f"{len(one.outputs)} and {len(two.outputs)}"
        output = TensorDifference(why=f"numbers of tensors differ: {counts}")
    weights = max(_rounding_of_weights(each.module) for each in (ours, theirs, begin))
    return LayerDifference(
        ours.name,
        theirs.name,
        call,
        type(ours.module).__name__,
        tuple(one.outputs[0].shape) if one.outputs else (),
        replace(output, epsilon=max(output.epsilon, weights)),
        worst(each.of_value for each in given.inputs),  # type: ignore[attr-defined]
        worst(each.of_gradient for each in two.outputs),  # type: ignore[attr-defined]
    )


def _rounding_of_weights(module: nn.Module) -> float:
    """Of all weights within; torch.ao's quantized layers, which hide them, have eight bits."""
    hidden = any(".quantized." in type(each).__module__ for each in module.modules())
    return max((rounding(each) for each in module.parameters()), default=0.0) + hidden * 2.0**-8


def worst(found: Iterable[TensorDifference | None]) -> TensorDifference | None:
    """The one that is furthest apart; None if there is none."""
    there = [each for each in found if each is not None]
    return max(there, key=lambda each: each.distance, default=None)
