"""The edited run, the original one, or their difference."""

from __future__ import annotations

import copy

import numpy as np

from .layer import LayerView
from .memo import Memo
from .view import View, map_size


def displayed_view(view: View) -> View:
    """Return the edited, original or difference view chosen by ``version``.

    Without edits it is the view itself.
    """
    if view.original is None:
        return view
    if view.settings.version == "difference":
        return ViewDifference(view, view.original)
    shown = copy.copy(
        view if view.settings.version == "edited" else view.original.with_settings(view.settings)
    )
    shown.which = f", {view.versions[view.settings.version == 'edited']}"
    return shown


class ViewDifference(View):
    """The maps, gradients and heatmaps of an edited run minus those of the original one."""

    def __init__(self, edited: View, original: View) -> None:
        super().__init__(edited.settings, edited.session, edited.run, edited.input_memo, original)
        self._edited, self.versions = edited, edited.versions
        self.which = f", {self.versions[1]} − {self.versions[0]}"
        self.memo = edited.memo.get_or_compute(
            "difference", None, Memo
        )  # a cache of its own for the differences

    @property
    def sides(self) -> tuple[View, View]:
        """The edited view and the original one, at the same settings."""
        assert self.original is not None
        return self._edited.with_settings(self.settings), self.original.with_settings(self.settings)

    @property
    def layer(self) -> LayerView:
        at = self.settings
        return self.memo.get_or_compute(
            "layer", (at.layer, at.call, at.sample, at.depth, self.query), self._less
        )

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
    def ablation_scores(self) -> np.ndarray | None:
        return self.sides[0].ablation_scores

    def describe(self) -> str:
        return f"{self.versions[1]} less {self.versions[0]}: {super().describe()}"


def less(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """Subtract a heatmap from another; None if either is missing."""
    return None if one is None or other is None else one - other
