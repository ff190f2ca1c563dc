"""A target that is a difference: the heatmaps of both sides, and one less the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..attribution.cam import cached_methods
from ..attribution.heads import AttentionRecord
from ..run.output import Output, sides_of
from ..run.session import Run
from ..run.target import Target
from .exploration import ViewDifference
from .frame import target_name
from .heatmaps import ShownHeatmap
from .view import View, run_session


@dataclass(frozen=True, eq=False)
class Sides:
    """Two heatmaps of one layer, for the two sides of a target.

    Attributes
    ----------
    names : tuple of str
    heats : tuple of numpy.ndarray
        ``(h, w)`` each: the first side's, and the second's.
    method : str
        The explorer's, or Grad-CAM where that one is of no single layer and target.
    """

    names: tuple[str, str]
    heats: tuple[np.ndarray, np.ndarray]
    method: str

    @property
    def difference(self) -> np.ndarray:
        """The first heatmap less the second, position by position."""
        return self.heats[0] - self.heats[1]


def two_targets(view: View) -> tuple[Target, Target] | None:
    """Return the two sides of the target; None if it is not a difference of two."""
    target = view.settings.target
    if isinstance(target, list):
        target = target[min(view.input_sample, len(target) - 1)]
    if isinstance(target, Output):
        return sides_of(target)
    if isinstance(target, tuple) and len(target) == 2:
        return target
    return None


def side_names(view: View) -> tuple[str, str] | None:
    """Return the names of the two sides; None if the target is not a difference of two."""
    if (targets := two_targets(view)) is None:
        return None
    names = view.session.class_names
    one, two = (target_name(each, view.input_sample, names, []) for each in targets)
    return one, two


def shown_sides(view: View) -> Sides:
    """Return the heatmaps of both sides; the model runs twice for each layer.

    Raises
    ------
    ValueError
        The target is not a difference of two, or the layer has no heatmap of one.
    """
    targets, names = two_targets(view), side_names(view)
    if targets is None or names is None:
        raise ValueError(
            f"target={view.settings.target!r} is not a difference of two: give a tuple of two "
            "classes, or one number in the output less another."
        )
    if isinstance(view, ViewDifference):
        view = view.sides[0]
    record, layer = view.cache[view.settings.layer], view.settings.layer
    if isinstance(record, AttentionRecord):
        raise ValueError(f"Layer {layer!r} is attention, of which this is not shown.")
    at = view.settings
    method = at.heatmap if at.heatmap in cached_methods() else "gradcam"

    def make() -> list[Run]:
        return [run_session(view.session, each, record.module) for each in targets]

    runs = view.memo.get_or_compute("sides", (layer, repr(targets)), make)
    heats: list[np.ndarray] = []
    for run, target in zip(runs, targets, strict=True):
        one = view.with_run(run).with_settings(target=target, heatmap=method)
        values = ShownHeatmap(one).values
        if values is None:
            raise ValueError(f"No gradient of {names[len(heats)]} arrives at layer {layer!r}.")
        heats.append(values)
    return Sides(names, (heats[0], heats[1]), method)
