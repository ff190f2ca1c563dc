"""What an edit has made of a view: the edited run, the original one, or the one less the other."""

from __future__ import annotations

import copy

import numpy as np

from .layer import LayerView
from .memo import Memo
from .view import View, map_size


def seen(view: View) -> View:
    """The view of the run that is to be seen, by the setting ``version``.

    Without edits there is one run, and it is the view itself.
    """
    if view.original is None:
        return view
    if view.at.version == "difference":
        return ViewDifference(view, view.original)
    shown = copy.copy(view if view.at.version == "edited" else view.original.placed(view.at))
    shown.which = f", {view.versions[view.at.version == 'edited']}"
    return shown


class ViewDifference(View):
    """The maps, gradients and heatmaps of an edited run less those of the original one."""

    def __init__(self, edited: View, original: View) -> None:
        super().__init__(edited.at, edited.session, edited.run, edited.input_memo, original)
        self._edited, self.versions = edited, edited.versions
        self.which = f", {self.versions[1]} − {self.versions[0]}"
        self.memo = edited.memo.once("difference", None, Memo)  # another, since all is less

    @property
    def sides(self) -> tuple[View, View]:
        """The edited view and the original one, at the same settings."""
        assert self.original is not None
        return self._edited.placed(self.at), self.original.placed(self.at)

    @property
    def layer(self) -> LayerView:
        at = self.at
        return self.memo.once("layer", (at.layer, at.call, at.sample, at.depth), self._less)

    def _less(self) -> LayerView:
        one, other = (side.layer for side in self.sides)
        if one.maps.shape != other.maps.shape:
            raise ValueError(
                f"Layer {self.layer_name!r} has maps of {map_size(one.maps)} in the "
                f"{self.versions[1]} run and of {map_size(other.maps)} in the {self.versions[0]} "
                "one: there is no difference to show."
            )
        maps = one.maps - other.maps
        gradients = weights = None
        if one.gradients is not None and other.gradients is not None:
            gradients = one.gradients - other.gradients
        if one.weights is not None and other.weights is not None:
            weights = one.weights - other.weights
        return LayerView(maps, gradients, weights, one.samples, one.depths)

    @property
    def drops(self) -> np.ndarray | None:
        return self.sides[0].drops

    def describe(self) -> str:
        return f"{self.versions[1]} less {self.versions[0]}: {super().describe()}"


def less(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """A heatmap less another; None where either is missing."""
    return None if one is None or other is None else one - other
