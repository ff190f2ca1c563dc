"""The result of a comparison: a sequence of layers, as text, HTML, a figure and for pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from ...draw.document import TablePage
from ...hooking.select import Layers
from ...hooking.tables import html_table, text_table
from ...run.target import probabilities
from .difference import GROWTH, HEADER, ROUNDINGS, SPARE, LayerDifference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Comparison(TablePage, Sequence[LayerDifference]):
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
        """Return the layer in which the difference arises; None if there is none.

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
        """One flat dict for each row, as ``pandas.DataFrame`` takes them.

        Returns
        -------
        list of dict
            With the keys layer, layer_b, call, type, shape; largest, mean, relative, decibel,
            cosine, share, odd, as in `TensorDifference`; inputs_relative, gradient_relative (None
            where either had none), and why they cannot be compared. Strict JSON: NaN is
            None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return [row.record() for row in self]

    def show(self, layers: Layers = None) -> Any:
        """Both runs beside each other, and what b has more than a, under one set of controls.

        Parameters
        ----------
        layers : optional
            As in `hookviz.capture`, of those that both models have under one name, with maps of one
            size; None is every convolution.

        Returns
        -------
        SideBySide
            A widget whose settings are those of `hookviz.widgets.Explorer`. Both models run again
            for it.

        Raises
        ------
        ValueError
            There is no such layer.
        """
        if self._explore is None:
            raise ValueError("These are numbers alone: ask hookviz.compare() for them again.")
        return self._explore(layers)

    def figure(self) -> Figure:
        """Draw the relative differences along the layers, activations and gradients."""
        from .chart import error_chart

        return error_chart(self)

    def _heading(self) -> str:
        return self.verdict

    def _png(self) -> bytes:
        from ...draw.figures import small_png  # matplotlib

        return small_png(self.figure())

    @property
    def verdict(self) -> str:
        """The whole of it in one line."""
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
        return text_table(self.verdict, HEADER, [row.cells() for row in self], SPARE)

    def _repr_html_(self) -> str:
        return html_table(self.verdict, HEADER, [row.cells() for row in self])
