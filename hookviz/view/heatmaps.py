"""Heatmaps in the explorer: over the input, alone, and of all layers in a strip."""

from __future__ import annotations

import importlib.util

import numpy as np
from torch import Tensor

from ..attribution.cam import HEATMAPS, check_method, heatmap, needs_gradient
from ..attribution.gradients import ATTRIBUTIONS, attribute, picture_map
from ..render import html as panels
from ..render.arrays import to_numpy
from ..render.colours import SEQUENTIAL
from ..render.overlay import blend, draw_strip, heat_colours, strip_box
from .frame import Panel, Readings, Sheet
from .subject import Subject
from .view import Scene, map_size

PRODUCT = "activation × gradient"
"""The heatmap of the chosen channel alone."""


def heatmap_names() -> tuple[str, ...]:
    """What the explorer can show: with captum, attributions to the input too."""
    captum = ATTRIBUTIONS if importlib.util.find_spec("captum") else ()
    return (*HEATMAPS, PRODUCT, *captum)


class Heat:
    """The heatmap of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.at, self.memo = scene, scene.at, scene.memo
        self.values = self._values()  # (h, w), or None where no gradient arrived

    def _values(self) -> np.ndarray | None:
        method, view = self.at.heatmap, self.scene.view
        if method in ATTRIBUTIONS:
            return self._attribution(method)
        if method == PRODUCT:
            here = self.at.channel
            return None if view.gradients is None else view.maps[here] * view.gradients[here]
        if view.gradients is None and needs_gradient(method):
            return None

        key = (view, method, HEATMAPS[method])
        return self.memo.once("heat", key, lambda: self._cut(self._whole(method)))

    def _whole(self, method: str) -> Tensor:
        """The heatmap of all samples, one number a place: so that a sample step only cuts."""
        key = (self.scene.cache, self.at.layer, self.at.call, method, HEATMAPS[method])
        return self.memo.once("whole heat", key, lambda: heatmap(self.scene.call, method))

    def _attribution(self, method: str) -> np.ndarray | None:
        """A map at the input's size; the model runs again for it, once for each target."""
        subject, target = self.scene.subject, self.at.target
        if not subject.run.scored:
            return None

        def make() -> Tensor:
            names, inputs = subject.class_names, subject.inputs
            given = attribute(subject.model, inputs, method, target, class_names=names)
            return picture_map(given, method)

        return self._cut(self.memo.once(f"attribution {method}", (self.scene.cache,), make))

    def _cut(self, heat: Tensor) -> np.ndarray:
        """One sample, and of a volume one slice, of heatmaps ``(N, *spatial)``: ``(h, w)``."""
        one = heat[min(self.at.sample, len(heat) - 1)]
        if one.ndim == 3:
            # Another layer may have more or fewer slices: the same share of the depth.
            share = self.at.depth / max(self.scene.view.depths - 1, 1)
            one = one[round(share * (len(one) - 1))]
        return to_numpy(one if one.ndim == 2 else one[None])

    @property
    def alone(self) -> bool:
        """Whether it is drawn by itself: as wished, or for want of a picture."""
        return not self.at.overlay or self.scene.picture is None

    def _words(self) -> str:
        return f"{self.at.heatmap} of {self.scene.target_name}"

    def panels(self) -> list[Panel]:
        """The heatmap alone, at its own size."""
        if self.values is None or not self.alone:
            return []
        name, low, high = heat_colours(self.values) or (SEQUENTIAL, 0.0, 1.0)
        caption = f"{self._words()}, {map_size(self.values)}{emptiness(self.values)}"
        alt = f"Heatmap {caption}, layer {self.scene.layer_name}"
        return [Panel(caption, alt, self.values, name, low, high)]

    def sheet(self) -> Sheet | None:
        """The heatmap over the input."""
        heat, picture = self.values, self.scene.picture
        if heat is None or picture is None or self.alone:
            return None
        channel = self.at.channel if self.at.heatmap == PRODUCT else None
        method = HEATMAPS.get(self.at.heatmap, self.at.heatmap)
        key = (self.scene.view, method, channel, self.at.alpha)
        pixels = self.memo.once("blend", key, lambda: blend(picture, heat, self.at.alpha))
        caption = f"{self._words()}{emptiness(heat)}"
        alt = f"Heatmap over the input, {caption}, layer {self.scene.layer_name}"
        return Sheet(caption, alt, pixels)

    def strip(self) -> Sheet | None:
        """All layers' heatmaps over the input, from first to last, the current one outlined."""
        if not self.at.strip:
            return None
        at, picture = self.at, self.scene.picture
        method = at.heatmap if at.heatmap in HEATMAPS else "gradcam"

        def every() -> dict[str, Tensor]:
            return heatmaps(self.scene.subject, method)

        def make() -> tuple[list[str], np.ndarray | None]:
            found = self.memo.once("heats", (self.scene.cache, method, HEATMAPS[method]), every)
            cuts = {n: self._cut(h) for n, h in found.items()}
            return list(cuts), draw_strip(picture, list(cuts.values()), at.alpha)

        share = at.depth / max(self.scene.view.depths - 1, 1)
        key = (self.scene.cache, method, HEATMAPS[method], at.sample, share, at.alpha)
        names, pixels = self.memo.once("strip", key, make)
        if pixels is None:
            return None
        target = self.scene.target_name
        caption = f"{method} of {target}, {len(names)} layers in order, each on its own scale"
        box = strip_box(names.index(at.layer), len(names)) if at.layer in names else None
        return Sheet(caption, f"{caption}: {', '.join(names)}", pixels, box)

    def readings(self) -> Readings:
        """The exact range, or that there is nothing in it."""
        if self.values is None:
            return []
        text = emptiness(self.values).removeprefix(": ")
        if not text:
            low, high = float(self.values.min()), float(self.values.max())
            text = f"from {panels.number(low)} to {panels.number(high)}"
        return [(self.at.heatmap, [("", text)])]


def heatmaps(subject: Subject, method: str) -> dict[str, Tensor]:
    """The heatmap of every layer that has one, in the order in which they ran.

    Raises
    ------
    ValueError
        No such method.
    """
    check_method(method)
    found = {}
    for name, record in subject.run.cache.items():
        outputs = record.calls[-1].outputs
        known = bool(outputs) and outputs[0].kept
        if not known or (needs_gradient(method) and not outputs[0].has_gradient):
            continue
        try:
            found[name] = heatmap(record, method)
        except ValueError:  # cannot be arranged as maps
            continue
    return found


def emptiness(heat: np.ndarray) -> str:
    """What must be said of a heatmap without content, so that none is seen in it."""
    nans = int((~np.isfinite(heat)).sum())
    if nans:
        return f": {nans} of {heat.size} values are NaN or infinite"
    return "" if heat.any() else ": zero everywhere"
