"""The result of a comparison: a sequence of layers, as text, HTML, a figure and for pandas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from torch import Tensor

from ...hooking.select import Layers
from ...hooking.tensors import tensors
from ...run.target import logits_of, probabilities
from ...tables import Tabular, counted, for_terminal, html_table, paragraph, some, text_table
from .difference import (
    GROWTH,
    HEADER,
    ROUNDINGS,
    SPARE,
    LayerDifference,
    folded,
    worst_sample,
)

if TYPE_CHECKING:
    from ...draw.figures import ShownFigure


class Comparison(Tabular, Sequence[LayerDifference]):
    """The difference of each layer between two runs, in the order in which the layers returned.

    Made by `hookviz.compare`. A block comes after the layers within it. It is displayed with the
    first difference on top, and with layers in a row that are equal folded into one line.

    Attributes
    ----------
    unmatched : list of (str, str, str)
        Layers that were not compared: ``"a"`` or ``"b"``, the layer's name, and the reason.
    logits : tuple of (torch.Tensor or None)
        The class scores ``(N, K)`` of both; None if it is not a classifier.
    worst_sample : int or None
        The sample of the batch with the largest ``‖a − b‖ / ‖a‖`` of its class scores, or else of
        the first tensor that the models return; among those in ``changed``, if there are any. None
        if all are equal, or if their shapes differ.
    """

    def __init__(
        self,
        names: tuple[str, str],
        rows: Sequence[LayerDifference],
        unmatched: Sequence[tuple[str, str, str]],
        outputs: tuple[Any, Any],
        class_names: Sequence[str],
        explore: Callable[[Layers, Comparison], Any],
    ) -> None:
        self._names, self._rows, self.unmatched = names, list(rows), list(unmatched)
        self._class_names, self._explore = list(class_names), explore
        a, b = map(logits_of, outputs)
        self.logits = a if a is None else a.detach(), b if b is None else b.detach()
        a, b = (
            next(iter(tensors(output)), None) if scores is None else scores
            for output, scores in zip(outputs, self.logits, strict=True)
        )
        self.worst_sample = worst_sample(a, b, self.changed)
        self._samples = len(a) if a is not None and a.ndim else 1

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
        """Return the layer in which the difference arises; None if there is none.

        Without a tolerance it is the first layer whose relative difference, ``‖a − b‖ / ‖a‖``,
        exceeds `LayerDifference.tolerance`: 16 roundings of the coarser type and 8 times the
        difference of its inputs. So a layer that only passes a difference on is not returned. If
        it is a block none of whose layers increases the difference, then the difference arises in
        the block's own code, such as an addition between its layers.

        Parameters
        ----------
        tolerance : float, optional
            The relative difference that is allowed instead.
        gradient : bool
            Compare gradients, from the output backward: the difference arises in a layer that takes
            this layer's output. Besides rounding and growth, the square root of the forward's
            relative difference d is allowed: a ReLU whose input is next to zero passes the
            gradient in one model and stops it in the other, at a fraction d of the positions.

        Examples
        --------
        >>> import copy, hookviz, torch
        >>> from torch import nn
        >>> a = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Tanh())
        >>> b = copy.deepcopy(a)
        >>> b[1].bias.data += 100
        >>> comparison = hookviz.compare(a, b, torch.ones(1, 1, 2, 2))
        >>> comparison.first()  # doctest: +ELLIPSIS
        1 (Linear, 1×2): relative difference ..., max 100, SNR ... dB, ...; inputs equal
        """
        if not gradient:
            return next((row for row in self if row.differs(tolerance)), None)
        before = forward = 0.0
        for row in reversed(self._rows):
            if row.gradient is None:
                continue
            distance = row.gradient.distance
            apart = row.output.relative
            forward = max(forward, apart) if math.isfinite(apart) else forward
            allowed = ROUNDINGS * row.gradient.epsilon + GROWTH * before + math.sqrt(forward)
            if not distance <= (allowed if tolerance is None else tolerance):
                return row
            before = max(before, distance)
        return None

    @property
    def changed(self) -> list[int]:
        """The samples of the batch for which a and b have different top classes, or one has NaN.

        Empty if the models are not classifiers, or have different classes.

        Examples
        --------
        >>> import torch, hookviz
        >>> from torch import nn
        >>> a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        >>> _ = nn.init.eye_(a.weight)
        >>> b.weight.data = torch.tensor([[1.0, 0.0], [-3.0, 1.0]])
        >>> found = hookviz.compare(a, b, torch.tensor([[0.0, 1.0], [1.0, 0.5], [-1.0, -2.0]]))
        >>> found.changed, found.worst_sample
        ([2], 2)
        """
        if (both := self._scores) is None:
            return []
        a, b = (each.argmax(1).masked_fill(each.isnan().any(1), -1).cpu() for each in both)
        return (a != b).nonzero().flatten().tolist()

    @property
    def predictions(self) -> list[tuple[str, float, float]]:
        """The top three classes of either model, with their probabilities in both.

        They are those of ``worst_sample``, or else of the first sample, a's top class first; empty
        if the models are not classifiers, or have different classes.
        """
        if (both := self._scores) is None:
            return []
        p, q = (probabilities(each)[self.worst_sample or 0].cpu() for each in both)
        best = [i for each in (p, q) for i in each.topk(min(3, len(p))).indices.tolist()]
        names = dict(enumerate(self._class_names))
        return [(names.get(i, f"class {i}"), float(p[i]), float(q[i])) for i in dict.fromkeys(best)]

    @property
    def _scores(self) -> tuple[Tensor, Tensor] | None:
        a, b = self.logits
        return None if a is None or b is None or a.shape != b.shape else (a, b)

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each row, as ``pandas.DataFrame`` takes them.

        Returns
        -------
        list of dict
            With the keys layer, layer_b, call, type, shape; largest, mean, relative, decibel,
            cosine, fraction, nonfinite_mismatch, as in `TensorDifference`; inputs_relative,
            gradient_relative (None where either had none), and why they cannot be compared; and,
            the same in all rows, changed_answers, the number of samples whose top class changed
            (None without classes), and worst_sample. Strict JSON: NaN is None, an infinity is
            ``"inf"`` or ``"-inf"``.
        """
        changed = None if self._scores is None else len(self.changed)
        answers = {"changed_answers": changed, "worst_sample": self.worst_sample}
        return [row.record() | answers for row in self]

    def show(self, layers: Layers = None) -> Any:
        """Show both runs and b − a with shared controls.

        It opens at the layer in which the difference arises, or else at the next one that can be
        shown. The rows of the table are above it: a click on one goes to its layer.

        Parameters
        ----------
        layers : optional
            As in `hookviz.capture`, among layers with the same name and map size in both models;
            None for every convolution. A layer that is chosen in the table is added.

        Returns
        -------
        SideBySide
            A widget whose settings are those of `hookviz.widgets.Explorer`. Both models run again
            for it, and once more when a layer joins them.

        Raises
        ------
        ValueError
            Unknown layer.
        """
        both = self._explore(layers, self)
        first = self.first()
        for row in [] if first is None else self._rows[self._rows.index(first) :]:
            with suppress(ValueError):  # this layer has no maps in both models
                both.go_to(row.layer, row.call)
                break
        return both

    def figure(self) -> ShownFigure:
        """Draw the relative differences along the layers, activations and gradients."""
        return error_chart(self)

    def _png(self) -> bytes:
        return self.figure()._repr_png_()

    @property
    def verdict(self) -> str:
        """The result in one line."""
        a, b = self._names
        runs = counted(len(self), "run")
        parts = [f"{a} (a) and {b} (b): {runs} of layers compared", self._arises()]
        parts += self._answers()
        if found := self.predictions:
            chances = [f"{name} {100 * p:.1f} % and {100 * q:.1f} %" for name, p, q in found]
            worst = self.worst_sample
            which = " for input 0" if worst is None else f" for the worst, input {worst}"
            which = which if self._samples > 1 else ""
            parts.append(f"predictions{which}: {', '.join(chances)}")
        if self.unmatched:
            layers = (f"{name} of {of} ({why})" for of, name, why in self.unmatched)
            parts.append(f"not compared: {some(layers)}")
        return "; ".join(parts)

    def _answers(self) -> list[str]:
        """Describe how many predictions changed, or which input's outputs differ most."""
        several, changed = self._samples > 1, self.changed
        if self._scores is None:
            apart = f"the outputs are furthest apart for input {self.worst_sample}"
            return [apart] if several and self.worst_sample is not None else []
        if not several:
            return ["the prediction changed"] if changed else []
        which = f" (inputs {some(changed, 5)})" if changed else ""
        return [f"{len(changed)} of {self._samples} predictions changed{which}"]

    def _arises(self) -> str:
        if row := self.first():
            amount = row.output.why or f"relative difference {row.output.relative:.2g}"
            if row.output.nonfinite_mismatch:
                amount = "NaN or Inf in one alone"
            return f"the difference arises in {row.layer or 'the model itself'} ({amount})"
        if all(row.output.equal for row in self):
            row = self.first(gradient=True)
            return f"equal, but the gradient of {row.layer} differs" if row else "equal to the bit"
        row = next(iter(self))
        if row.inputs is not None and row.inputs_differ:
            return (
                f"the inputs of {row.layer or 'the model itself'} differ already (relative "
                f"difference {row.inputs.distance:.2g}), and no layer makes a difference more than "
                f"{GROWTH} times larger"
            )
        largest = max(row.output.distance for row in self)
        return f"rounding explains all differences (relative difference up to {largest:.2g})"

    def row_groups(self) -> list[list[LayerDifference]]:
        """Return the layers of each row of the table: equal ones that follow each other are one."""
        first = self.first()
        groups = []

        def is_equal(row: LayerDifference) -> bool:
            # A difference changes the gradients of all layers before it.
            same_gradient = first is not None or row.gradient is None or row.gradient.equal
            return row.output.equal and same_gradient

        for equal, group in groupby(self, is_equal):
            rows = list(group)
            groups += [rows] if equal else [[row] for row in rows]
        return groups

    def table(self) -> list[tuple[str, ...]]:
        """Return rows of text, see `row_groups`; the first difference is marked."""
        first, table = self.first(), []
        for rows in self.row_groups():
            name, *cells = folded(rows) if len(rows) > 1 else rows[0].cells()
            table.append((f"first: {name}" if rows[0] is first else name, *cells))
        return table

    @for_terminal
    def __repr__(self) -> str:
        rows = self.table()
        if len(rows) > 1:
            return text_table(self.verdict, HEADER, rows, SPARE)
        return paragraph(self.verdict)

    def _repr_html_(self) -> str:
        whole = html_table("", HEADER, [row.cells() for row in self])
        every = f"<details><summary>all {len(self)} rows</summary>{whole}</details>"
        return f"<div>{html_table(self.verdict, HEADER, self.table())}{every}</div>"


def error_chart(rows: Sequence[LayerDifference]) -> ShownFigure:
    """Relative differences of activations and gradients along the layers, on a logarithmic scale.

    What is equal stands at the bottom; what cannot be compared, or is infinite, at the top.
    """
    from ...draw.figures import ShownFigure, layer_label, name_ticks  # matplotlib

    columns = {
        "activations": [row.output.distance for row in rows],
        "gradients": [row.gradient.distance if row.gradient else math.nan for row in rows],
    }
    finite = [each for found in columns.values() for each in found if 0 < each < math.inf]
    low, high = min(finite, default=1e-7) / 10, max(finite, default=0.1) * 10
    figure = ShownFigure(figsize=(max(6.0, min(14.0, 0.09 * len(rows) + 3)), 4.2), layout="tight")
    axes = figure.add_subplot()
    for (name, found), mark in zip(columns.items(), ("o", "."), strict=True):
        axes.plot(np.clip(found, low, high), mark + "-", ms=3, lw=0.8, label=name)
    tolerances = np.minimum([row.tolerance for row in rows], high)
    axes.plot(tolerances, ":", color="gray", label="explained by rounding")
    first = next((index for index, row in enumerate(rows) if row.differs()), None)
    if first is not None:
        axes.axvline(first, color="#d97706", lw=1)
        axes.set_title(f"first difference: {layer_label(rows[first].layer, 60)}", fontsize="medium")
    # Zero and infinite differences cannot be drawn on a logarithmic scale.
    for height, words in ((low, "equal"), (high, "not comparable")):
        if any((np.clip(found, low, high) == height).any() for found in columns.values()):
            axes.axhline(height, color="gray", lw=0.5)
            axes.text(1.005, height, words, transform=axes.get_yaxis_transform(), va="center")
    axes.set_yscale("log")
    axes.set_ylim(low / 2, high * 2)
    name_ticks(axes.xaxis, [row.layer for row in rows])
    axes.tick_params("x", rotation=90)
    axes.set_ylabel("‖a − b‖ / ‖a‖")
    axes.legend(fontsize="small")
    return figure
