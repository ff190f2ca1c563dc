"""The widget that steps through the events of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
import traitlets

from ..analysis.event_shown import event_picture, readings
from ..analysis.events import Event
from ..render import html
from ..render.colours import map_png, scale_png
from .lifecycle import LiveWidget, close_earlier, made
from .pictures import column, wrapping

LINES = 24  # of the module tree, around the one that is lit
PAUSE = 400  # milliseconds from one event to the next while playing

_STYLE = """<style>
.hookviz .tree {font: 12px/1.5 monospace; white-space: pre; overflow-x: auto; padding: 2px}
.hookviz .tree .lit {outline: 2px solid #ff8c00; background: rgba(255, 140, 0, 0.25)}
.hookviz .tree .dim {opacity: 0.75}
.hookviz code.line {display: block; font: 12px/1.5 monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; padding: 3px 6px; color: inherit;
  background: rgba(128, 128, 128, 0.18)}
</style>"""

# The buttons of a Play widget are icons without names; done as in render/html.py.
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
    """A slider and a play button over events; `hookviz.Trace.player` makes it.

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
        Which event is shown, by its place in ``events``; may be set.
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
        close_earlier()
        super().__init__()
        self._play = widgets.Play(min=0, max=len(events) - 1, interval=PAUSE)
        self._slider = widgets.IntSlider(min=0, max=len(events) - 1, description="event")
        self._slider.style.description_width = "64px"
        self._slider.layout.width, self._slider.layout.max_width = "660px", "100%"
        self._tree = column("260px", "360px")
        self._picture = column("150px", "230px")
        self._readings = column("260px", "700px")
        self._code = widgets.HTML()
        for control in (self._slider, self._play):
            traitlets.link((self, "event"), (control, "value"))
        head = widgets.HTML(f"{html.title('Hooks', [title])}{_STYLE}{_NAMES}")
        seen = wrapping([self._picture, self._readings])
        seen.layout.flex = "1 1 460px"
        controls = wrapping([self._slider, self._play])
        self.children = (head, controls, self._code, wrapping([self._tree, seen]))
        self.add_class("hookviz-player")
        self._draw()
        made(self)

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

    @traitlets.observe("event")
    def _draw(self, change: Any = None) -> None:
        event = self._events[self.event]
        self._tree.value = tree_html(self._module_tree, self._places.get(event.module, 0), event)
        self._picture.value = picture_html(event)
        self._picture.layout.display = "none" if event.sample is None else None
        self._readings.value = html.readings(readings(event))
        code = escape(event.code)
        self._code.value = f'<div class="hookviz"><code class="line">{code}</code></div>'

    def close(self) -> None:
        """Release every widget that belongs to this one; may be called twice."""
        super().close()
        self._events = ()


def tree_html(tree: Sequence[tuple[str, str]], lit: int, event: Event) -> str:
    """The modules around the lit one, indented, each with its type."""
    first = max(0, min(lit - LINES // 2, len(tree) - LINES))
    last = min(first + LINES, len(tree))
    lines = [f'<span class="dim">{_more(first, "above")}</span>']
    arrow = "↑ " if event.backward else "↓ "
    for place in range(first, last):
        name, kind = tree[place]
        indent = "  " * (name.count(".") + bool(name))
        words = escape(f"{name.rpartition('.')[2] or '(model)'} {kind}")
        if place == lit:
            words = f'<span class="lit" aria-current="true">{arrow}{words} </span>'
        else:
            words = f"  {words}"
        lines.append(indent + words)
    lines.append(f'<span class="dim">{_more(len(tree) - last, "below")}</span>')
    return f'<div class="hookviz"><div class="tree">{chr(10).join(lines)}</div></div>'


def _more(count: int, where: str) -> str:
    return f"  … {count} more {where}" if count else " "


def picture_html(event: Event) -> str:
    """The part of the tensor that was kept, as a picture with its colours below."""
    seen = event_picture(event)
    if seen is None:
        return ""
    return html.picture(
        map_png(seen.values, seen.cmap, seen.low, seen.high),
        seen.alt,
        seen.caption,
        below=html.scale(scale_png(seen.cmap), seen.low, seen.high),
    )
