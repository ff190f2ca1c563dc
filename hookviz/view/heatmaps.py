"""Heatmaps of a view: over the input, alone, and of all layers in a strip."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..attribution.cam import (
    ATTENTION_HEATMAPS,
    HEATMAPS,
    check_method,
    heatmap,
    method_name,
    needs_gradient,
)
from ..attribution.gradients import ATTRIBUTIONS, attribute, picture_map
from ..attribution.heads import AttentionRecord
from ..draw.colours import SEQUENTIAL, to_numpy
from ..draw.overlay import blend, heat_colours
from ..hooking.records import FeatureCache
from ..run.output import Output, sides_of
from ..run.session import Run
from ..run.target import Target
from ..studies.graph.stages import RETURNED
from .attending import attention_of
from .frame import ImagePanel, Panel
from .maps import (
    call_of,
    depth_share,
    layer_name,
    layer_of,
    less,
    magnitudes_note,
    map_size,
    query_of,
    run_session,
)
from .predictions import has_classes, target_name, target_name_of
from .settings import NORM, PRODUCT
from .source import input_sample, is_of_parts, shown_picture
from .view import View, cached


def of_output(view: View) -> View:
    """Return the view of the layer's output: gradients and heatmaps are those of the output."""
    after = view.settings.shown_after
    return view if after == RETURNED else view.with_settings(shown_after=RETURNED)


def heatmap_of(view: View) -> np.ndarray | None:
    """Return the view's heatmap, ``(h, w)``; None where no gradient arrived."""
    view = of_output(view)
    method = view.settings.heatmap
    if view.difference:
        return less(*(heatmap_of(side) for side in view.sides))
    if method in ATTENTION_HEATMAPS:
        return _of_attention(view)
    if method in OWN_HEATMAPS:
        return OWN_HEATMAPS[method](view)
    if method in ATTRIBUTIONS:
        return _cut(view, _attribution(view)) if view.run.scored else None
    if needs_gradient(method) and call_of(view).gradient is None:
        return None
    return _cut(view, _of_all_samples(view))


def _method(view: View) -> Hashable:
    """Return the heatmap's name and function: a user may replace the function of a name."""
    name = view.settings.heatmap
    return name, HEATMAPS.get(name)


@cached(lambda view: (view.settings.layer, view.settings.call), query_of, _method)
def _of_all_samples(view: View) -> Tensor:
    """Return the heatmap of all samples, so that a sample step only cuts."""
    return heatmap(call_of(view), view.settings.heatmap)


def _of_attention(view: View) -> np.ndarray | None:
    """Return a map on the patches, the same at all layers."""
    attention, method = attention_of(view), view.settings.heatmap
    if not attention or (method != "rollout" and not attention.gradients):
        return None
    key = weakref.ref(view.cache), ATTENTION_HEATMAPS[method]
    make = lambda: heatmap(attention, method)  # noqa: E731
    whole = view.input_memo.get_or_compute(f"attention {method}", key, make)
    return to_numpy(whole[min(input_sample(view), len(whole) - 1)])


@cached(lambda view: view.settings.heatmap)
def _attribution(view: View) -> Tensor:
    """Return maps at the input's size; the model runs again, once for each target."""
    session, method = view.session, view.settings.heatmap
    with session.active():  # with its edits
        values = attribute(
            session.given,
            session.inputs,
            view.target,
            method=method,
            class_names=session.class_names,
        )
    return picture_map(values, method)


def _product(view: View) -> np.ndarray | None:
    layer, channel = layer_of(view), view.settings.channel
    return None if layer.gradients is None else layer.maps[channel] * layer.gradients[channel]


@cached(layer_of)
def _norms(view: View) -> np.ndarray:
    return norms(layer_of(view).maps)


OWN_HEATMAPS: dict[str, Callable[[View], np.ndarray | None]] = {
    PRODUCT: _product,
    NORM: _norms,
}
"""The explorer's own heatmaps, which need more of the view than a layer's tensors."""


def _cut(view: View, whole: Tensor) -> np.ndarray:
    """Cut one sample, and one slice of a volume, from heatmaps ``(N, *spatial)``."""
    one = whole[min(view.settings.sample, len(whole) - 1)]
    if one.ndim == 3:  # another layer may have more or fewer slices
        one = one[round(depth_share(view) * (len(one) - 1))]
    return to_numpy(one if one.ndim == 2 else one[None])


# As pictures


def is_alone(view: View) -> bool:
    """Return whether the heatmap is drawn alone.

    It is by choice, without a picture, or if it is of a part of one.
    """
    whole_picture = view.settings.heatmap in ATTRIBUTIONS
    in_part = is_of_parts(view) and not whole_picture
    return not view.settings.over_input or shown_picture(view) is None or in_part


def _name(view: View) -> str:
    method = view.settings.heatmap
    magnitudes = magnitudes_note(view) if method == PRODUCT else ""
    return f"{method_name(method)} of {target_name_of(view)}{magnitudes}{view.which}"


def heatmap_panels(view: View) -> list[Panel]:
    """Return the heatmap's panel if it is alone, at its own size."""
    view = of_output(view)
    values = heatmap_of(view)
    if values is None or not is_alone(view):
        return []
    cmap, low, high = heat_colours(values) or (SEQUENTIAL, 0.0, 1.0)
    name, size = _name(view), map_size(values)
    return [
        Panel(
            name=name,
            detail=size,
            alt=f"Heatmap {name}, {size}, layer {layer_name(view)}",
            note=heatmap_note(view),
            role="heatmap",
            values=values,
            cmap=cmap,
            low=low,
            high=high,
        )
    ]


def overlay_of(view: View) -> ImagePanel | None:
    """Return the heatmap over the input."""
    view = of_output(view)
    values, picture, at = heatmap_of(view), shown_picture(view), view.settings
    if values is None or picture is None or is_alone(view):
        return None
    own = at.channel if at.heatmap == PRODUCT else None
    key = (layer_of(view), _method(view), own, at.alpha)
    blended = lambda: blend(picture, values, at.alpha)  # noqa: E731
    name = _name(view)
    return ImagePanel(
        name=name,
        alt=f"Heatmap over the input, {name}, layer {layer_name(view)}",
        note=heatmap_note(view),
        pixels=view.memo.get_or_compute("overlay", key, blended),
        colours=heat_colours(values),
    )


def heatmap_note(view: View) -> str:
    """Return what must be said of the heatmap's values; empty if nothing."""
    values = heatmap_of(view)
    return "" if values is None else emptiness(values)


def heatmaps(cache: FeatureCache, method: str) -> dict[str, Tensor]:
    """Compute the heatmap of every layer that has one, in the order in which they ran."""
    check_method(method, HEATMAPS)
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
    """Return a warning for a heatmap that is constant or not finite; else empty."""
    nans = int((~np.isfinite(values)).sum())
    if nans:
        return f"{nans} of {values.size} values are NaN or infinite"
    if not values.any():
        return "zero everywhere"
    return "the same everywhere" if values.size > 1 and (values == values.flat[0]).all() else ""


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
    target = view.target
    if isinstance(target, list):
        target = target[min(input_sample(view), len(target) - 1)]
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
    sample, classes = input_sample(view), has_classes(view)
    one, two = (target_name(each, sample, names, [], classes) for each in targets)
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
            f"target={view.target!r} is not a difference of two: give a tuple of two "
            "classes, or one number in the output less another."
        )
    if view.difference:
        view = view.sides[0]
    record, layer = view.cache[view.settings.layer], view.settings.layer
    if isinstance(record, AttentionRecord):
        raise ValueError(f"Layer {layer!r} is attention, which has no map of this kind.")
    at = view.settings
    method = at.heatmap if at.heatmap in HEATMAPS else "gradcam"

    def make() -> list[Run]:
        return [run_session(view.session, each, layers=record.module) for each in targets]

    runs = view.memo.get_or_compute("sides", (layer, repr(targets)), make)
    heats: list[np.ndarray] = []
    for run, target in zip(runs, targets, strict=True):
        one = view.with_run(run).with_settings(target=target, heatmap=method)
        values = heatmap_of(one)
        if values is None:
            raise ValueError(f"No gradient of {names[len(heats)]} arrives at layer {layer!r}.")
        heats.append(values)
    return Sides(names, (heats[0], heats[1]), method)
