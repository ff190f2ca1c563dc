"""The widget that steps through the events of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from typing import Any
from uuid import uuid4

import ipywidgets as widgets
import traitlets

from ..draw import html
from ..draw.colours import map_png, scale_png
from ..draw.style import ROOT_CLASS
from ..studies.trace.events import RECEIVED, SIDES, Event, event_picture, readings, side
from .lifecycle import LiveWidget, close_earlier, made

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


SPEEDS = (1, 2.5, 5, 10, 25)
"""Events a second."""

_STYLE = f"""<style>{STYLE}
.hookviz-player .hookviz-line {{margin: 4px 0; gap: 4px 8px}}
.hookviz-player .hookviz-line > .widget-text {{flex: 1 1 150px; max-width: 240px; width: auto}}
.hookviz-player .hookviz-count {{margin-left: auto !important}}
.hookviz-player .widget-play {{flex: none; width: auto; min-width: 148px}}
.hookviz-player .widget-slider {{width: 100%; margin: 0}}
.hookviz-player .hookviz-seen {{display: grid; gap: 6px 16px; align-items: start; margin-top: 4px;
  grid-template-columns: minmax(0, 300px) minmax(0, 260px) minmax(0, 1fr)}}
.hookviz-player .hookviz-seen > * {{width: auto; margin: 0; min-width: 0}}
.hookviz-player .hookviz-seen .widget-html-content {{width: 100%; min-width: 0}}
.hookviz-player .readings > div {{display: grid; grid-template-columns: 84px minmax(0, 1fr)}}
.hookviz-player .widget-select {{height: 360px}}
.hookviz-player .widget-select select {{height: 100%; font: 12px/1.5 monospace;
  background-image: none !important}}
.hookviz-player .frame.nothing {{aspect-ratio: 1; display: grid; place-content: center;
  text-align: center; padding: 12px; color: var(--hv-dim); background: var(--hv-soft)}}
.hookviz-player .chip {{border: 1px solid var(--hv-side); border-radius: 12px; padding: 0 9px;
  line-height: 20px; margin-right: 4px; white-space: nowrap; color: inherit !important}}
.hookviz-player code.line {{display: block; font: 12px/1.5 monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; padding: 3px 6px; color: inherit; background: var(--hv-soft)}}
@container hookviz (max-width: 640px) {{
  .hookviz-seen {{grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) !important}}
  .hookviz-seen > .widget-select {{grid-column: 1 / -1; height: 150px !important}}
}}
</style>"""

# The buttons of a Play widget are icons without names; done as in render/style.py.
_NAMES = """<img alt="" style="display: none" onload="
var root = this.closest('.hookviz-player') || document;
var names = {'fa-play': 'play or pause', 'fa-pause': 'play or pause', 'fa-stop': 'stop',
  'fa-step-forward': 'next', 'fa-retweet': 'repeat'};
function name() {
  root.querySelectorAll('.widget-play button').forEach(function (button) {
    var icon = button.querySelector('i');
    for (var kind in names) if (icon && icon.classList.contains(kind)) {
      button.setAttribute('aria-label', names[kind]); button.title = names[kind];
    }
  });
}
name(); setTimeout(name, 300); setTimeout(name, 2000);"
src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==">"""


class Player(LiveWidget):
    """A slider and a play button over events; `hookviz.results.Trace.player` makes it.

    The timeline has a tick for each event. Menus and words leave some events: slider and play go
    through these. A module that is chosen in the tree leads to its next event.

    Parameters
    ----------
    events : sequence of Event
        At least one.
    tree : sequence of (str, str)
        Name and type of every module, as ``named_modules()`` has them.
    title : str

    Attributes
    ----------
    event : int
        Which event is shown, by its place in ``events``; may be set. One that the menus leave out
        sets them back.
    closed : bool

    Raises
    ------
    ValueError
        No events.
    traitlets.TraitError
        ``event`` set to one that is not there.
    """

    event = traitlets.Int(0)
    why_closed = "This player is closed: take the trace's player() again."

    def __init__(
        self, events: Sequence[Event], tree: Sequence[tuple[str, str]], title: str
    ) -> None:
        if not len(events):
            raise ValueError("There is no event to show: take a longer part of the trace.")
        self._events, self._module_tree = events, tree
        self._places = {name: place for place, (name, _) in enumerate(tree)}
        self._found = list(range(len(events)))
        self._css, self._quiet = f"hookviz-{uuid4().hex[:8]}", True
        close_earlier()
        super().__init__()
        self._slider = widgets.IntSlider(min=0, max=0, description="event", readout=False)
        self._play = widgets.Play(min=0, max=0)
        speeds = [(f"{each} a second", round(1000 / each)) for each in SPEEDS]
        self._speed = widgets.Dropdown(options=speeds, value=400, description="speed")
        self._backward = widgets.Button(description="first of backward")
        kinds = [(f"{kind} hooks", kind) for kind in RECEIVED]
        self._kind = widgets.Dropdown(
            options=[("all kinds of hook", ""), *kinds], description="kind of hook"
        )
        self._typed = widgets.Text(placeholder="find a module …", description="find modules")
        self._tree = widgets.Select(options=[("", 0)], description="modules")
        names = ("count", "line", "now", "head", "picture", "readings", "code")
        self._said = {name: widgets.HTML() for name in names}
        self.children = self._laid_out(title)
        for name in (ROOT_CLASS, "hookviz-player"):
            self.add_class(name)
        self._listen()
        self._quiet = False
        self._filter()
        made(self)

    def _laid_out(self, title: str) -> list[widgets.Widget]:
        said = self._said
        said["count"].add_class("hookviz-count")
        self._speed.layout.width, self._kind.layout.width = "170px", "180px"
        self._backward.layout.width = "auto"
        for control in (self._kind, self._typed, self._tree):
            control.add_class("hookviz-hidden-label")
        self._speed.style.description_width = self._slider.style.description_width = "initial"
        tools = [self._play, self._speed, self._backward, self._kind, self._typed, said["count"]]
        line = widgets.Box(tools)
        line.add_class("hookviz-line")
        seen = widgets.Box([self._tree, said["picture"], said["readings"]])
        seen.add_class("hookviz-seen")
        head = widgets.HTML(f"{html.title('Hooks', [title])}{_STYLE}{_NAMES}")
        over = [said["line"], said["now"], self._slider]
        return [head, line, *over, said["head"], said["code"], seen]

    def _listen(self) -> None:
        traitlets.link((self._speed, "value"), (self._play, "interval"))
        for name in ("value", "max"):
            traitlets.link((self._slider, name), (self._play, name))
        self._slider.observe(self._slid, "value")
        self._tree.observe(self._chosen, "value")
        self._kind.observe(self._filter, "value")
        self._typed.observe(self._filter, "value")
        self._backward.on_click(lambda _: setattr(self, "event", self._first_backward))

    @traitlets.validate("event")
    def _in_range(self, proposal: dict) -> int:
        place = proposal["value"]
        if self.closed:
            raise traitlets.TraitError(self.why_closed)
        if not 0 <= place < len(self._events):
            raise traitlets.TraitError(
                f"event={place} is not in this trace: give 0 to {len(self._events) - 1}."
            )
        return place

    @property
    def _first_backward(self) -> int | None:
        return next((place for place in self._found if self._events[place].backward), None)

    def _slid(self, change: dict) -> None:
        if not self._quiet:
            self.event = self._found[change["new"]]

    def _chosen(self, change: dict) -> None:
        """To the chosen module's next event, from its last to its first again."""
        if self._quiet:
            return
        name = self._module_tree[change["new"]][0]
        own = [place for place in self._found if self._events[place].layer == name]
        self.event = next((place for place in own if place > self.event), own[0])

    def _filter(self, change: Any = None) -> None:
        """Leave the events of the chosen kind whose module has all typed words."""
        if self._quiet:
            return
        kind, words = self._kind.value, self._typed.value.casefold().split()
        modules = {
            name
            for name, type_ in self._module_tree
            if all(word in f"{name or '(model)'} {type_}".casefold() for word in words)
        }
        self._found = [
            place
            for place, event in enumerate(self._events)
            if event.layer in modules and kind in ("", event.kind)
        ]
        self._show_found(named=bool(words))
        nearest = min(self._found, key=lambda place: abs(place - self.event), default=self.event)
        if nearest == self.event:
            self._draw()
        else:
            self.event = nearest

    def _show_found(self, *, named: bool) -> None:
        """Bring tree, timeline and controls to the events that are left."""
        found, total = self._found, len(self._events)
        for control in (self._slider, self._play, self._tree):
            control.disabled = not found
        self._backward.disabled = self._first_backward is None
        counted = f"{total} events" if len(found) == total else f"{len(found)} of {total} events"
        self._said["count"].value = html.plain(counted)
        self._said["line"].value = timeline_html(self._css, self._events, set(found))
        modules = sorted({self._places[self._events[place].layer] for place in found})
        before, self._quiet = self._quiet, True
        self._tree.options = [(self._line(place, named), place) for place in modules]
        self._slider.max = max(len(found) - 1, 0)
        self._quiet = before

    def _line(self, place: int, named: bool) -> str:
        """A module in the tree: its name's last part below its parent's; or all of it, alone."""
        name, kind = self._module_tree[place]
        if named:
            return f"{name or '(model)'} {kind}"
        indent = "\N{NO-BREAK SPACE}" * 2 * (name.count(".") + bool(name))
        return f"{indent}{name.rpartition('.')[2] or '(model)'} {kind}"

    @traitlets.observe("event")
    def _draw(self, change: Any = None) -> None:
        """Bring everything to the event."""
        event = self._events[self.event]
        self._quiet = True
        try:
            if change is not None and self.event not in self._found:
                self._kind.value = self._typed.value = ""
                self._found = list(range(len(self._events)))
                self._show_found(named=False)
            if self._found:
                self._slider.value = self._found.index(self.event)
                self._tree.value = self._places[event.layer]
        finally:
            self._quiet = False
        said = self._said
        said["now"].value = now_html(self._css, self.event, len(self._events))
        said["head"].value = head_html(event)
        said["picture"].value = picture_html(event)
        said["readings"].value = html.readings(readings(event))
        code = escape(event.code)
        said["code"].value = f'<div class="hookviz"><code class="line">{code}</code></div>'

    def _page(self, max_bytes: float) -> str | None:
        whole = getattr(self._events, "to_html", None)  # a bare sequence of events has none
        return None if whole is None else whole(max_bytes=max_bytes)

    def close(self) -> None:
        """Release every widget that belongs to this one; may be called twice."""
        super().close()
        self._events = ()


def head_html(event: Event) -> str:
    """Which hook of which module, and whether it runs in the forward or in the backward."""
    arrow = "↑" if event.backward else "↓"
    return (
        f'<div class="hookviz"><div class="heading {side(event)}"><span class="chip">{arrow} '
        f"{event.kind}</span> <b>{escape(event.name)}</b> <span>{escape(event.type)}</span>"
        "</div></div>"
    )


def picture_html(event: Event) -> str:
    """The part of the tensor that was kept, as a picture with its colours below; or why not."""
    seen = event_picture(event)
    if seen is None:
        why = "no values came with it" if event.fired else "it did not fire"
        return f'<div class="hookviz"><div class="frame nothing">{why}</div></div>'
    return html.picture(
        map_png(seen.values, seen.cmap, seen.low, seen.high),
        seen.alt,
        seen.caption,
        below=html.scale(scale_png(seen.cmap), seen.low, seen.high),
    )
