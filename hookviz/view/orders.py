"""The order of a view's channels, and what the score loses without each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..attribution.flip import Flip
from ..attribution.heads import AttentionRecord, head_scores
from ..attribution.perturbation import Ablation, ablation_scores
from ..draw.colours import to_numpy
from ..studies.graph.stages import RETURNED
from .attending import edit_in
from .layer import (
    CONTRIBUTION,
    FIXED,
    SCORE_DROP,
    SIMILARITY,
    channel_order,
    contributions_in,
    scores_at,
    similarities,
)
from .maps import layer_of, less, place_of, whole_record_of
from .source import input_sample
from .view import View, cached


def order_of(view: View) -> str:
    """Return the order that the channels are in: by number, where it needs what is not known."""
    # Ablating another layer's channels would take hundreds of runs, for a step of a slider.
    order = view.settings.order
    return "index" if order not in FIXED and order_scores(view) is None else order


def order_scores(view: View) -> np.ndarray | None:
    """Return the scores that the channels are sorted by, ``(C,)``; None if unknown, or fixed."""
    at = view.settings
    if at.order in FIXED:
        return None
    if at.order == SCORE_DROP:
        return score_drops(view)
    if at.order == SIMILARITY:
        return _similarities(view)
    return None if at.place is None else scores_here(view)


def _reference(view: View) -> int:
    return min(view.settings.reference_channel, len(layer_of(view).maps) - 1)


@cached(layer_of, _reference)
def _similarities(view: View) -> np.ndarray:
    return similarities(layer_of(view).maps, _reference(view))


def scores_here(view: View) -> np.ndarray | None:
    """Return the scores of the order at the chosen position, see `layer.scores_at`."""
    if view.settings.order == CONTRIBUTION:
        # Gradients are those of the output, also where the maps are shown after something else.
        view = view.with_settings(shown_after=RETURNED)
        if view.difference:  # not difference × difference
            return less(*(scores_here(side) for side in view.sides))
    return scores_at(layer_of(view), view.settings.order, *place_of(view))


def _scores_key(view: View) -> bytes | None:
    scores = order_scores(view)
    return None if scores is None else scores.tobytes()


@cached(layer_of, order_of, _scores_key)
def channels_of(view: View) -> np.ndarray:
    """Return channel numbers, in the order of the slider and the mosaic."""
    return channel_order(layer_of(view), order_of(view), order_scores(view))


def rank_of(view: View) -> int:
    """Return the index of the channel in `channels_of`."""
    return int(np.flatnonzero(channels_of(view) == view.settings.channel)[0])


# The score without a channel


def ablate(view: View, seconds: float | None = None) -> float:
    """Compute `score_drops`: the model runs once for every channel.

    Parameters
    ----------
    seconds : float, optional
        About the longest that it takes; the next call goes on. None is until all is done.

    Returns
    -------
    float
        The fraction done, 0 to 1.
    """
    if view.difference:
        return ablate(view.sides[0], seconds)
    at, whole = view.settings, whole_record_of(view)
    if at.layer in view.drops:
        return 1.0
    if isinstance(whole, AttentionRecord):
        drops = head_scores(view.session, whole, view.target)
    elif seconds is None:
        drops = ablation_scores(view.session, at.layer, view.target)
    else:
        ablation = _ablation(view)
        if (share := ablation.work(seconds)) < 1:
            return share
        drops = ablation.scores()
    view.drops[at.layer] = to_numpy(drops)
    return 1.0


@cached(lambda view: view.settings.layer)
def _ablation(view: View) -> Ablation:
    return Ablation(view.session, view.settings.layer, view.target)


def score_drops(view: View) -> np.ndarray | None:
    """Return the drop of the target's score without each channel, ``(C,)``; None until `ablate`."""
    drops = view.drops.get(view.settings.layer)
    if drops is None or drops.shape[1] != len(layer_of(view).maps):
        return None
    return drops[min(input_sample(view), len(drops) - 1)]


def flip_order(view: View) -> list[int]:
    """Return channels in their order; if that is by number, those first that contribute most."""
    contributions = contributions_in(layer_of(view))
    if order_of(view) != "index" or contributions is None:
        return channels_of(view).tolist()
    return np.argsort(-contributions, kind="stable").tolist()


def flip_of(view: View, channels: Sequence[int]) -> Flip:
    """Return the work of switching channels off, in this order, until the prediction changes."""
    layer, sample = view.settings.layer, input_sample(view)

    def make() -> Flip:
        off = lambda chosen: edit_in(view, layer, 0, chosen)  # noqa: E731
        return Flip(view.session, off, channels, sample)

    return view.memo.get_or_compute("flip", (layer, sample, tuple(channels)), make)
