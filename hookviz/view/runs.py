"""From one view to another: new settings, a new run, edits, the difference to another run.

Nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from ..hooking.interrupts import allow_interrupts
from ..hooking.records import FeatureCache, LayerRecord
from ..hooking.select import Layers
from ..run.session import FirstLayer, Run, Session
from ..run.target import Target
from .layer import SCORE_DROP, SIMILARITY
from .maps import run_session
from .opening import initial_view
from .orders import ablate, channels_of
from .settings import Settings
from .view import Memo, View, kept_target


def displayed_view(view: View) -> View:
    """Return the edited, original or difference view chosen by ``shown_run``.

    Without edits it is the view itself.
    """
    if view.original is None:
        return view
    before, after = view.run_names
    if view.settings.shown_run == "difference":
        memo = view.memo.get_or_compute("difference", None, Memo)  # for differences alone
        which = f", {after} − {before}"
        return replace(view, edited=view, difference=True, which=which, memo=memo)
    is_edited = view.settings.shown_run == "edited"
    shown = view if is_edited else view.original.with_settings(view.settings)
    name = after if is_edited else before
    which = f", {name} run" if name in ("original", "edited") else f", {name}"
    return replace(shown, edited=view, which=which)


class RunSession(Protocol):
    """Runs a session for a target."""

    def __call__(
        self, session: Session, target: Target, first: FirstLayer | None = None, /
    ) -> Run: ...


def runner(layers: Layers = None, max_bytes: int | None = None) -> RunSession:
    """Return a function that runs a session, keeping these layers within this budget."""
    return partial(run_session, layers=layers, max_bytes=max_bytes)


def run_view(
    run: RunSession,
    session: Session,
    at: Settings,
    *,
    input_memo: Memo | None = None,
    original: View | None = None,
    show_first: Callable[[View], object] | None = None,
) -> View:
    """Return a view of a new run; with edits also of a run without them, unless `original`.

    ``show_first`` gets the view as soon as the shown layer's gradients have arrived.
    """
    memo = original.input_memo if original else input_memo or Memo()

    def view_of(
        session: Session,
        target: Target,
        show: Callable[[View], object] | None,
        original: View | None = None,
    ) -> View:
        of = lambda done: View(session, done, at, original, input_memo=memo)  # noqa: E731
        first = show and FirstLayer(at.layer, lambda done: show(of(done)))
        return of(allow_interrupts(run, session, target, first))

    if original is None:
        show = None if session.edits else show_first
        original = view_of(session.edited(()), at.target, show)
    view = original.with_settings(at)
    if session.edits:
        view = view_of(session, kept_target(original, at.target), show_first, original)
    return view if at.layer in view.cache else initial_view(view)


def run_pair(
    run: RunSession, first: Session, second: Session, at: Settings, names: tuple[str, str]
) -> View:
    """Return a view of the second session's run, with that of the first as its original run."""
    one, two = (allow_interrupts(run, session, at.target) for session in (first, second))
    shared = common_layers(one.cache, two.cache)
    one, two = (replace(each, cache=each.cache.only(shared)) for each in (one, two))
    original = View(first, one, at, run_names=names)
    view = View(second, two, at, original, names)
    return view if at.layer in view.cache else initial_view(view)


def with_order(view: View) -> View:
    """Return the view at the first channel of its order; the score drop runs the model."""
    if view.settings.order == "index":
        return view
    if view.settings.order == SCORE_DROP:
        allow_interrupts(ablate, view)
    if view.settings.order == SIMILARITY:
        view = view.with_settings(reference_channel=view.settings.channel)
    return view.with_settings(channel=int(channels_of(displayed_view(view))[0]))


def common_layers(a: FeatureCache, b: FeatureCache) -> list[str]:
    """Return the layers that two caches share, of one name and with maps of one size."""

    def shapes(record: LayerRecord) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for call in record.calls for tensor in call.outputs]

    names = [name for name, record in b.items() if name in a and shapes(record) == shapes(a[name])]
    if not names:
        raise ValueError(
            "The models share no layer with the same name and map size: see the comparison's "
            "table, and explore each by itself."
        )
    return names
