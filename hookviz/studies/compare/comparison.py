"""What a comparison found: a sequence of layers, as text, as HTML, as a figure and for pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor, nn

from ...hooking.records import FeatureCache, LayerRecord
from ...hooking.select import Layers
from ...hooking.tables import html_table, number, text_table
from ...run.target import probabilities
from .difference import TensorDifference, rounding
from .pairing import Pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDINGS, GROWTH = 16, 8
"""What is explained: so many times the type's rounding, and of what was there before."""

HEADER = (
    *("layer", "type", "shape", "largest", "mean", "relative", "dB", "cosine", "differ"),
    *("inputs", "gradient"),
)


@dataclass(frozen=True, eq=False)
class LayerDifference:
    """How far a layer's run in b is from that in a.

    Attributes
    ----------
    layer, partner : str
        The names in a and in b; "" is the model itself.
    call : int
        Which of the layer's runs, from 0.
    kind : str
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
    partner: str
    call: int
    kind: str
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
        """One flat dict of plain values."""
        found = {name: getattr(self, name) for name in ("layer", "partner", "call", "kind")}
        known = self.output
        return {
            **found,
            "shape": self.shape,
            **{name: getattr(known, name) for name in _TOLD},
            "inputs_relative": None if self.inputs is None else self.inputs.distance,
            "gradient_relative": None if self.gradient is None else self.gradient.distance,
            "why": known.why,
        }

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        call = f" (run {self.call})" if self.call else ""
        as_partner = "" if self.partner == self.layer else f" → {self.partner or '(model)'}"
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
        return name, self.kind, "×".join(map(str, self.shape)), *numbers, *others


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


class Comparison(Sequence[LayerDifference]):
    """Each layer's difference between two runs, in the order in which the layers returned.

    Made by `hookviz.compare`. A block comes after the layers within it.

    Attributes
    ----------
    alone : list of (str, str, str)
        What was not compared: ``"a"`` or ``"b"``, the layer's name, and why.
    logits : tuple of (torch.Tensor or None)
        The class scores ``(N, K)`` of both; None if it is no classifier.
    """

    def __init__(
        self,
        a: str,
        b: str,
        rows: Sequence[LayerDifference],
        alone: Sequence[tuple[str, str, str]],
        logits: tuple[Tensor | None, Tensor | None],
        class_names: Sequence[str] = (),
        explore: Callable[[Any], Any] | None = None,
    ) -> None:
        self._names, self._rows = (a, b), list(rows)
        self.alone, self.logits = list(alone), logits
        self._class_names, self._explore = list(class_names), explore

    @overload
    def __getitem__(self, index: int) -> LayerDifference: ...
    @overload
    def __getitem__(self, index: slice) -> list[LayerDifference]: ...
    def __getitem__(self, index: int | slice) -> LayerDifference | list[LayerDifference]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def first(
        self, tolerance: float | None = None, *, gradient: bool = False
    ) -> LayerDifference | None:
        """The layer in which the difference arises; None if there is none.

        Without a tolerance it is the first whose relative difference, ``‖a − b‖ / ‖a‖``, is more
        than `LayerDifference.explained`: 16 roundings of the coarser type and 8 times the
        difference of its inputs. So what a layer only passes on is not its own. Is it a block, of
        whose layers each passes its inputs on, then it arises in the block's own code: an addition,
        an interpolation between its layers. Whether the ``inputs_differ`` already, the layer says.

        Parameters
        ----------
        tolerance : float, optional
            The relative difference that is allowed, instead.
        gradient : bool
            Ask for gradients, from the output backward: what is different runs on what this layer
            returned.
        """
        if not gradient:
            return next((row for row in self if row.differs(tolerance)), None)
        before = 0.0
        for row in reversed(self._rows):
            if row.gradient is None:
                continue
            distance = row.gradient.distance
            allowed = ROUNDINGS * row.gradient.epsilon + GROWTH * before
            if not distance <= (allowed if tolerance is None else tolerance):
                return row
            before = max(before, distance)
        return None

    @property
    def predictions(self) -> list[tuple[str, float, float]]:
        """The classes that either puts among its first three, and their probability in both.

        Of a batch's first sample, a's favourite first; empty if they are no classifiers, or of
        other classes.
        """
        a, b = self.logits
        if a is None or b is None or a.shape != b.shape:
            return []
        p, q = (probabilities(each)[0].cpu() for each in (a, b))
        best = dict.fromkeys([*p.topk(min(3, len(p))).indices.tolist()])
        best |= dict.fromkeys(q.topk(min(3, len(q))).indices.tolist())
        return [(self._class(i), float(p[i]), float(q[i])) for i in best]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each row, as ``pandas.DataFrame`` takes them."""
        return [row.record() for row in self]

    def explore(self, layers: Layers = None) -> Any:
        """Both runs beside each other, and what b has more than a, under one set of controls.

        Parameters
        ----------
        layers : optional
            As in `hookviz.capture`, of those that both models have under one name, with maps of one
            size; None is every convolution.

        Returns
        -------
        SideBySide
            A widget whose settings are those of `hookviz.Explorer`. Both models run again for it.

        Raises
        ------
        ValueError
            There is no such layer.
        """
        if self._explore is None:
            raise ValueError("These are numbers alone: ask hookviz.compare() for them again.")
        return self._explore(layers)

    def figure(self) -> Figure:
        """The relative differences along the layers, activations and gradients, as a figure."""
        from .chart import error_chart

        return error_chart(self)

    @property
    def verdict(self) -> str:
        """The whole of it in some lines."""
        a, b = self._names
        told = [f"{a} (a) and {b} (b): {len(self)} runs of layers compared", self._arises()]
        sure = [f"{name} {100 * p:.1f} % and {100 * q:.1f} %" for name, p, q in self.predictions]
        told += [f"predictions: {', '.join(sure)}"] if sure else []
        if self.alone:
            some = [f"{name} of {of} ({why})" for of, name, why in self.alone[:3]]
            some += [f"and {len(self.alone) - 3} more"] if len(self.alone) > 3 else []
            told.append(f"not compared: {', '.join(some)}")
        return "; ".join(told)

    def _arises(self) -> str:
        if row := self.first():
            said = row.output.why or f"relative difference {row.output.distance:.2g}"
            return f"the difference arises in {row.layer or 'the model itself'} ({said})"
        if all(row.output.equal for row in self):
            row = self.first(gradient=True)
            return f"equal, but the gradient of {row.layer} differs" if row else "equal to the bit"
        largest = max(row.output.distance for row in self)
        return f"no more apart than rounding explains (relative difference up to {largest:.2g})"

    def _class(self, number: int) -> str:
        known = self._class_names
        return known[number] if number < len(known) else f"class {number}"

    def __repr__(self) -> str:
        return text_table(self.verdict, HEADER, [row.cells() for row in self])

    def _repr_html_(self) -> str:
        return html_table(self.verdict, HEADER, [row.cells() for row in self])
