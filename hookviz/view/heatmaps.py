"""Heatmaps of a view: over the input, alone, and of all layers in a strip."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..attribution.cam import (
    ATTENTION_HEATMAPS,
    HEATMAPS,
    cached_methods,
    check_method,
    heatmap,
    needs_gradient,
    runs_model,
)
from ..attribution.gradients import ATTRIBUTIONS, attribute, picture_map
from ..attribution.heads import AttentionRecord
from ..draw.colours import SEQUENTIAL, to_numpy
from ..draw.html import Readings
from ..draw.overlay import blend, draw_strip, heat_colours, strip_columns
from ..hooking.records import FeatureCache
from ..run.output import Output, sides_of
from ..run.session import Run
from ..run.stages import RETURNED
from ..run.target import Target
from ..studies.receptive_field.field import one_of, place_in, stretch
from ..tables import number
from .exploration import ViewDifference, less
from .frame import HeatmapStrip, ImagePanel, Panel, target_name
from .settings import EFFECTIVE, NORM, PRODUCT
from .view import View, field_of, map_size, place_of, run_session

LEAST_BEYOND = 0.01
"""The least fraction of a heatmap beyond what the target sees that is told."""


class ShownHeatmap:
    """The heatmap of a view; `values`, ``(h, w)``, is None where no gradient arrived."""

    def __init__(self, view: View) -> None:
        view = view.with_settings(shown_after=RETURNED)  # gradients are those of the output
        self.view, self.settings, self.memo = view, view.settings, view.memo
        self.values = self._values()

    @property
    def alone(self) -> bool:
        """True if it is drawn alone: by choice, without a picture, or if it is of a part of one."""
        method, view = self.settings.heatmap, self.view
        in_part = view.of_parts and method not in (*ATTRIBUTIONS, EFFECTIVE)
        return not self.settings.over_input or view.picture is None or in_part

    def _values(self) -> np.ndarray | None:
        if isinstance(self.view, ViewDifference):
            return less(*(ShownHeatmap(side).values for side in self.view.sides))
        method = self.settings.heatmap
        if method in ATTRIBUTIONS:
            return self._attribution(method)
        if method == PRODUCT:
            layer, here = self.view.layer, self.settings.channel
            return None if layer.gradients is None else layer.maps[here] * layer.gradients[here]
        if method == EFFECTIVE:
            return self._effective()
        if method == NORM:
            layer = self.view.layer
            return self.memo.get_or_compute("norm", layer, lambda: norms(layer.maps))
        if method in ATTENTION_HEATMAPS:
            return self._of_attention(method)
        if runs_model(method):
            return self._of_a_run(method)
        if needs_gradient(method) and self.view.call.gradient is None:
            return None
        return self._cut(self._whole(method))

    def _whole(self, method: str) -> Tensor:
        """Return the heatmap of all samples, so that a sample step only cuts."""
        at = self.settings
        key = (at.layer, at.call, self.view.query, method, HEATMAPS[method])
        return self.memo.get_or_compute(
            "whole heatmap", key, lambda: heatmap(self.view.call, method)
        )

    def _of_attention(self, method: str) -> np.ndarray | None:
        """Return a map on the patches, the same at all layers."""
        maps = self.view.attention
        if maps is None or not maps:
            return None
        if method != "rollout" and not maps.gradients:
            return None
        key = weakref.ref(self.view.cache), ATTENTION_HEATMAPS[method]
        whole = self.view.input_memo.get_or_compute(
            f"attention {method}", key, lambda: heatmap(maps, method)
        )
        return to_numpy(whole[min(self.view.input_sample, len(whole) - 1)])

    def _attribution(self, method: str) -> np.ndarray | None:
        """Return a map at the input's size; the model runs again, once for each target."""
        session, target = self.view.session, self.settings.target
        if not self.view.run.scored:
            return None

        def make() -> Tensor:
            names = session.class_names
            with session.active():  # with its edits
                given = attribute(
                    session.given, session.inputs, target, method=method, class_names=names
                )
            return picture_map(given, method)

        return self._cut(self.memo.get_or_compute(f"attribution {method}", None, make))

    def _of_a_run(self, method: str) -> np.ndarray | None:
        """Return a map at the layer's size; the model runs again, with its edits."""
        session, at = self.view.session, self.settings
        if not self.view.run.scored:
            return None

        def make() -> Tensor:
            function, names = HEATMAPS[method], session.class_names
            with session.active():
                return function(
                    session.given, session.inputs, at.layer, at.target, class_names=names
                )

        return self._cut(self.memo.get_or_compute(method, (at.layer, HEATMAPS[method]), make))

    def _effective(self) -> np.ndarray | None:
        """Return a map at the input's size; the model runs again, once for each position."""
        field, at = field_of(self.view), self.settings
        if isinstance(field, str) or not self.view.layer.maps.size:
            return None
        place = place_in(field, at.depth, *place_of(self.view))
        session, sample = self.view.session, self.view.input_sample

        def make() -> Tensor:
            with session.active():  # with its edits
                return field.effective([one_of(session.inputs, sample)], position=place)

        key = (at.layer, at.call, place, sample)
        return self._cut(self.memo.get_or_compute("effective field", key, make)[None])

    def _cut(self, whole: Tensor) -> np.ndarray:
        """Cut one sample, and one slice of a volume, from heatmaps ``(N, *spatial)``."""
        one = whole[min(self.settings.sample, len(whole) - 1)]
        if one.ndim == 3:  # another layer may have more or fewer slices
            one = one[round(self.view.depth_share * (len(one) - 1))]
        return to_numpy(one if one.ndim == 2 else one[None])

    def _name(self) -> str:
        if self.settings.heatmap == EFFECTIVE:
            row, column = place_of(self.view)
            return f"{EFFECTIVE} of row {row}, column {column}{self.view.which}"
        magnitudes = self.view.magnitudes if self.settings.heatmap == PRODUCT else ""
        return f"{self.settings.heatmap} of {self.view.target_name}{magnitudes}{self.view.which}"

    def panels(self) -> list[Panel]:
        """Return the heatmap's panel if it is alone, at its own size."""
        values = self.values
        if values is None or not self.alone:
            return []
        cmap, low, high = heat_colours(values) or (SEQUENTIAL, 0.0, 1.0)
        name, size, note = self._name(), map_size(values), self.note()
        alt = f"Heatmap {name}, {size}, layer {self.view.layer_name}"
        return [
            Panel(
                name=name,
                detail=size,
                alt=alt,
                note=note,
                role="heatmap",
                values=values,
                cmap=cmap,
                low=low,
                high=high,
            )
        ]

    def overlay(self) -> ImagePanel | None:
        """Return the heatmap over the input."""
        values, picture, alpha = self.values, self.view.picture, self.settings.alpha
        if values is None or picture is None or self.alone:
            return None
        own = {PRODUCT: self.settings.channel, EFFECTIVE: self.settings.place}.get(
            self.settings.heatmap
        )
        method = HEATMAPS.get(self.settings.heatmap, self.settings.heatmap)
        key = (self.view.layer, method, own, alpha)
        pixels = self.memo.get_or_compute("overlay", key, lambda: blend(picture, values, alpha))
        name = self._name()
        alt = f"Heatmap over the input, {name}, layer {self.view.layer_name}"
        note, colours = self.note(), heat_colours(values)
        return ImagePanel(name=name, alt=alt, note=note, pixels=pixels, colours=colours)

    def note(self) -> str:
        """Return what must be said of these values; empty if nothing."""
        return "" if self.values is None else emptiness(self.values) or self.beyond()

    def beyond(self) -> str:
        """Return how much of the heatmap lies where the target sees nothing of the layer.

        Only of a target that is a number somewhere in the output, which may see a part alone: that
        is between the first and the last row and column that a gradient reached, on this picture.
        """
        values, slopes = self.values, self.view.layer.gradients
        if values is None or slopes is None or not isinstance(self.settings.target, Output):
            return ""
        seen = (slopes != 0).any(0)
        if values.shape != seen.shape or not seen.any():
            return ""
        (top, bottom), (left, right) = (np.flatnonzero(seen.any(axis))[[0, -1]] for axis in (1, 0))
        size = np.abs(values)
        outside = 1 - size[top : bottom + 1, left : right + 1].sum() / max(size.sum(), 1e-30)
        if not outside > LEAST_BEYOND:
            return ""
        return (
            f"{100 * outside:.0f} % lies beyond what the target sees here: "
            f"{stretch('rows', top, bottom)}, {stretch('columns', left, right)}"
        )

    def strip(self) -> HeatmapStrip | None:
        """Return all layers' heatmaps over the input, from first to last."""
        if not self.settings.all_layers:
            return None
        at, view = self.settings, self.view
        method = at.heatmap if at.heatmap in cached_methods() else "gradcam"
        which = (method, HEATMAPS[method])

        def make() -> tuple[list[str], np.ndarray | None]:
            cuts = self._all_layers(view, method)
            parts = view.layers_of_parts
            own = [name in parts or not view.shares_picture(name) for name in cuts]
            apart = [place for place, alone in enumerate(own) if alone]
            return list(cuts), draw_strip(view.picture, list(cuts.values()), at.alpha, apart)

        key = (*which, at.sample, view.input_sample, view.depth_share, at.alpha)
        names, pixels = self.memo.get_or_compute("strip", key, make)
        if pixels is None:
            return None
        caption = f"{method} of {view.target_name} in {len(names)} layers, each on its own scale"
        if method != at.heatmap:
            caption += f"; {at.heatmap} is not defined for each layer"
        place = names.index(at.layer) if at.layer in names else None
        alt = f"{caption}: {', '.join(names)}"
        return HeatmapStrip(caption, alt, pixels, names, strip_columns(len(names)), place)

    def _all_layers(self, view: View, method: str) -> dict[str, np.ndarray]:
        """Return each layer's heatmap ``(h, w)``."""
        if isinstance(view, ViewDifference):
            edited, original = (self._all_layers(side, method) for side in view.sides)
            both = edited.keys() & original.keys()
            return {name: edited[name] - original[name] for name in edited if name in both}
        make = lambda: heatmaps(view.cache, method)  # noqa: E731
        every = view.memo.get_or_compute("heatmaps", (method, HEATMAPS[method]), make)
        return {name: self._cut(whole) for name, whole in every.items()}

    def readings(self) -> Readings:
        """Return the exact range; an empty heatmap has a note at the picture instead."""
        if self.values is None or emptiness(self.values):
            return []
        low, high = float(self.values.min()), float(self.values.max())
        return [(self.settings.heatmap, [("min", number(low)), ("max", number(high))])]


def heatmaps(cache: FeatureCache, method: str) -> dict[str, Tensor]:
    """Compute the heatmap of every layer that has one, in the order in which they ran."""
    check_method(method)
    if runs_model(method):
        raise ValueError(
            f"{method!r} runs the model once for each layer: choose one that does not."
        )
    found = {}
    for name, record in cache.items():
        outputs = record.calls[-1].outputs
        known = bool(outputs) and outputs[0].kept
        if not known or (needs_gradient(method) and not outputs[0].has_gradient):
            continue
        try:
            found[name] = heatmap(record, method)
        except ValueError:  # cannot be arranged as maps
            continue
    return found


def norms(maps: np.ndarray) -> np.ndarray:
    """Return each position's Euclidean norm over the channels of ``(C, H, W)``.

    >>> norms(np.array([[[3.0]], [[4.0]]])).tolist()
    [[5.0]]
    """
    return np.sqrt(np.einsum("chw,chw->hw", maps, maps))


def emptiness(values: np.ndarray) -> str:
    """Return a warning for a heatmap that is zero or not finite; else empty."""
    nans = int((~np.isfinite(values)).sum())
    if nans:
        return f"{nans} of {values.size} values are NaN or infinite"
    return "" if values.any() else "zero everywhere"


# A target that is a difference: the heatmaps of both sides, and one less the other


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
        raise ValueError(f"Layer {layer!r} is attention, which has no map of this kind.")
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
