"""Transitions between views: new settings, a new run, edits, the difference to the original run.

Nothing is drawn here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..attribution.cam import heatmap
from ..hooking.interrupts import allow_interrupts
from ..hooking.records import FeatureCache, LayerRecord
from ..hooking.select import Layers
from ..run.replay import Replay
from ..run.session import Run, Session
from ..run.target import Target, logits_of
from .layer import CONTRIBUTION, SCORE_DROP, SIMILARITY, LayerView, showable, why_not_shown
from .settings import Settings
from .view import Memo, View, map_size, run_session


def displayed_view(view: View) -> View:
    """Return the edited, original or difference view chosen by ``shown_run``.

    Without edits it is the view itself.
    """
    if view.original is None:
        return view
    if view.settings.shown_run == "difference":
        return ViewDifference(view, view.original)
    shown = copy.copy(
        view if view.settings.shown_run == "edited" else view.original.with_settings(view.settings)
    )
    shown.edited = view
    name = view.run_names[view.settings.shown_run == "edited"]
    shown.which = f", {name} run" if name in ("original", "edited") else f", {name}"
    return shown


class ViewDifference(View):
    """The maps, gradients and heatmaps of an edited run minus those of the original one."""

    def __init__(self, edited: View, original: View) -> None:
        super().__init__(edited.settings, edited.session, edited.run, edited.input_memo, original)
        self._edited, self.run_names = edited, edited.run_names
        self.drops, self.old_drops = edited.drops, edited.old_drops
        self.which = f", {self.run_names[1]} − {self.run_names[0]}"
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
            "layer",
            (at.layer, at.call, at.sample, at.depth, self.query, at.shown_after),
            self._less,
        )

    def _less(self) -> LayerView:
        one, other = (side.layer for side in self.sides)
        if one.maps.shape != other.maps.shape:
            raise ValueError(
                f"Layer {self.layer_name!r} has maps of {map_size(one.maps)} in the "
                f"{self.run_names[1]} run and of {map_size(other.maps)} in the {self.run_names[0]} "
                "one, so they have no difference to show."
            )
        maps = one.maps - other.maps
        gradients = weights = None
        if one.gradients is not None and other.gradients is not None:
            gradients = one.gradients - other.gradients
        if one.weights is not None and other.weights is not None:
            weights = one.weights - other.weights
        return LayerView(maps, gradients, weights, one.samples, one.depths)

    def scores_here(self) -> np.ndarray | None:
        if self.settings.order == CONTRIBUTION:  # not difference × difference
            return less(*(side.scores_here() for side in self.sides))
        return super().scores_here()

    def ablate(self, seconds: float | None = None) -> float:
        return self.sides[0].ablate(seconds)

    def describe(self) -> str:
        return f"{self.run_names[1]} less {self.run_names[0]}: {super().describe()}"


def less(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """Subtract a heatmap from another; None if either is missing."""
    return None if one is None or other is None else one - other


Ask = Callable[[Session, Target], Run]
"""Runs a session for a target."""


def asker(layers: Layers = None, max_bytes: int | None = None) -> Ask:
    """Return a function that runs a session, keeping these layers within this budget."""
    return partial(run_session, layers=layers, max_bytes=max_bytes)


def ran(
    ask: Ask,
    session: Session,
    at: Settings,
    *,
    input_memo: Memo | None = None,
    original: View | None = None,
) -> View:
    """Return a view of a new run; with edits also of a run without them, unless `original`."""
    if original is None:
        plain = session.edited(())
        original = View(at, plain, allow_interrupts(ask, plain, at.target), input_memo)
    view = original.with_settings(at)
    if session.edits:
        run = allow_interrupts(ask, session, at.target)
        view = View(at, session, run, original.input_memo, original)
    return view if at.layer in view.cache else opened(view)


def ran_beside(ask: Ask, first: Session, session: Session, at: Settings) -> View:
    """Return a view of a session's run, with that of another session as its original run."""
    one, two = (allow_interrupts(ask, each, at.target) for each in (first, session))
    shared = common_layers(one.cache, two.cache)
    one, two = (replace(each, cache=each.cache.only(shared)) for each in (one, two))
    original = View(at, first, one)
    view = View(at, session, two, Memo(), original)
    view.run_names = original.run_names = "a", "b"
    return view if at.layer in view.cache else opened(view)


def reordered(view: View) -> View:
    """Return the view at the first channel of its order; the score drop runs the model."""
    if view.settings.order == "index":
        return view
    if view.settings.order == SCORE_DROP:
        allow_interrupts(view.ablate)
    if view.settings.order == SIMILARITY:
        view = view.with_settings(reference_channel=view.settings.channel)
    return view.with_settings(channel=int(displayed_view(view).channels[0]))


def soon_edited(session: Session, original: View) -> View | None:
    """Return the original view with an edited run's predictions, found quickly; None if not.

    What the model computes before the first edit is skipped. A recording takes longer than a run,
    so this serves from the second edit of the same layers on.
    """
    if any(each.of_input or each.of_heads for each in session.edits):
        return None  # no operations precede it, or it changes operations
    layers = frozenset(each.layer for each in session.edits)
    again = original.memo.get("edited", layers)
    original.memo.get_or_compute("edited", layers, lambda: True)
    if not again:
        return None

    def make() -> Replay:
        return Replay(session.given.get_submodule(name) for name in layers)

    replay = original.memo.get_or_compute("replay", layers, make)
    logits = logits_of(allow_interrupts(session.replayed, replay))
    if logits is None:
        return None
    soon = original.with_run(replace(original.run, logits=logits))
    soon.original = original
    return soon


def common_layers(a: FeatureCache, b: FeatureCache) -> list[str]:
    """Return the layers that two caches share, of one name and with maps of one size."""

    def shapes(record: LayerRecord) -> list[tuple[int, ...]]:
        return [tuple(each.shape) for call in record.calls for each in call.outputs]

    kept = [name for name, record in b.items() if name in a and shapes(record) == shapes(a[name])]
    if not kept:
        raise ValueError(
            "The models share no layer with the same name and map size: see the comparison's "
            "table, and explore each by itself."
        )
    return kept


def first_layer(cache: FeatureCache) -> str:
    """Return the first layer that can be shown; ``ValueError`` if there is none."""
    if not cache:
        raise ValueError(
            f"None of the layers ran: {', '.join(cache.not_called[:5])}; name others with layers=."
        )
    if shown := showable(cache):
        return shown[0]
    first, record = next(iter(cache.items()))
    raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")


def opened(view: View) -> View:
    """Return the view at an informative layer and channel.

    The rule: where there are NaN or Inf, the layer and channel in which they begin. Otherwise the
    last layer whose maps are larger than 1×1 and whose Grad-CAM for the target is
    neither zero nor the same everywhere; in it, the channel that adds most to that heatmap. Where
    there is none such, the first that a gradient reaches. Without a gradient, or where all are
    zero, it is the last layer whose maps are larger than 1×1; where there is none, the first.
    """
    first = first_layer(view.cache)
    if view.verdict.kind == "bad":
        return _opened_at(view, view.verdict.layer or first, _first_odd, BROKEN)
    large = [cell for cell in view.layer_overview if cell.side > 1]
    graded = [cell for cell in large if cell.gradient]
    name = next((cell.name for cell in reversed(graded) if _is_a_place(view, cell.name)), None)
    reason = "" if name is None else PLACE
    if name is None:
        blind = not view.run.scored or not any(cell.gradient for cell in view.layer_overview)
        reached = (cell.name for cell in view.layer_overview if cell.gradient is not None)
        name = large[-1].name if large and blind else next(reached, first)
    return _opened_at(view, name, _strongest, reason)


PLACE = "Opened at the last layer with a spatial heatmap. Press a for all layers."
BROKEN = "Opened at the layer in which NaN or Inf first appears."


def _opened_at(view: View, layer: str, channel: Callable[[View], int], reason: str) -> View:
    found = view.with_settings(layer=layer)
    found = found.with_settings(channel=channel(found))
    found.opened = {layer: reason} if reason else {}
    return found


def _is_a_place(view: View, name: str) -> bool:
    """Return whether a layer's Grad-CAM differs between positions."""
    output = view.cache[name].last.outputs[0]
    if not output.kept or not output.has_gradient or output.dtype.is_complex:
        return False
    heat = heatmap(view.cache[name].last, "gradcam")[0]
    return bool(heat.isfinite().all() and heat.max() > heat.min())


def _first_odd(view: View) -> int:
    """Return the first channel with NaN or Inf: in its map, else in its gradient."""
    found = [view.layer.statistics, view.layer.gradient_statistics]
    odd = [np.flatnonzero(each.nans + each.infs) for each in found if each is not None]
    return next((int(channels[0]) for channels in odd if len(channels)), 0)


def _strongest(view: View) -> int:
    """Return the channel with the largest part in Grad-CAM: its weight times its mean."""
    weights = view.layer.weights
    if weights is None:
        return 0
    shares = np.nan_to_num(weights * view.layer.statistics.mean, nan=-np.inf)
    return int(shares.argmax())
