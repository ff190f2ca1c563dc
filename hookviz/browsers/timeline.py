"""A trace's events in a row: a tick for each, as high as its module is deep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ..analysis.event_shown import SIDES, side
from ..analysis.events import Event

WIDEST = 18
"""Pixels that a tick and its gap take at most."""

STYLE = (
    """.hookviz .timeline {position: relative; border-bottom: 1px solid var(--hv-line)}
.hookviz .timeline svg {display: block; width: 100%; height: 56px}
.hookviz .timeline i {position: absolute; top: -2px; bottom: -2px; width: 2px; margin-left: -1px;
  background: var(--hv-ink)}
.hookviz .timeline .faint {opacity: 0.16}
.hookviz .legend i {display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin: 0 5px 0 0}
.hookviz .legend span {margin-right: 16px}
"""
    + "".join(
        f".hookviz .{name} {{--hv-side: {colour}; fill: {colour}}}\n"
        for name, (_, colour) in SIDES.items()
    )
    + ".hookviz .legend i {background: var(--hv-side)}"
)


def timeline_html(css: str, events: Sequence[Event], found: Collection[int]) -> str:
    """All events, faint where a filter leaves them out; `now_html` says which one is shown.

    Parameters
    ----------
    css : str
        A class of this timeline's own.
    events : sequence of Event
    found : collection of int
        Places of those that the filters leave.
    """
    deepest = 1 + max(event.depth for event in events)
    wide = 0.85 if len(events) < 300 else 1  # a gap only where it would be seen
    paths: dict[tuple[str, bool], list[str]] = {}
    for place, event in enumerate(events):
        high = event.depth + 1
        tick = f"M{place} {deepest}v-{high}h{wide}v{high}z"
        paths.setdefault((side(event), place in found), []).append(tick)
    drawn = "".join(
        f'<path class="{name}{"" if there else " faint"}" d="{"".join(ticks)}"/>'
        for (name, there), ticks in paths.items()
    )
    count = Counter(map(side, events))
    used = [(name, words, count[name]) for name, (words, _) in SIDES.items() if count[name]]
    alt = f"{len(events)} hooks in their order: {', '.join(f'{n} {words}' for _, words, n in used)}"
    legend = "".join(f'<span><i class="{name}"></i>{words}</span>' for name, words, _ in used)
    return (
        f'<div class="hookviz"><div class="timeline {css}" style="max-width: '
        f'{WIDEST * len(events)}px"><svg role="img" aria-label="{alt}" '
        f'viewBox="0 0 {len(events)} {deepest}" preserveAspectRatio="none">{drawn}</svg>'
        f'<i aria-hidden="true"></i></div><div class="legend">{legend}'
        "<span>a tick is as high as its module is deep</span></div></div>"
    )


def now_html(css: str, place: int, count: int) -> str:
    """A style sheet: where in the timeline the shown event stands."""
    return f"<style>.hookviz .{css} > i {{left: {100 * (place + 0.5) / count:.3f}%}}</style>"
