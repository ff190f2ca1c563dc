"""The widget that steps through the events of a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
import numpy as np
import traitlets

from ..analysis.events import Event
from ..render import html
from ..render.colours import DIVERGING, SEQUENTIAL, colour_ranges, map_png, scale_png
from ..view.frame import Readings
from ..view.layer import channel_statistics
from .lifecycle import LiveWidget, close_earlier, made
from .pictures import column, wrapping

LINES = 24  # of the module tree, around the one that is lit
PAUSE = 400  # milliseconds from one event to the next while playing

RECEIVED = {
    "forward_pre": "arguments",
    "forward": "output",
    "full_backward_pre": "grad_output",
    "full_backward": "grad_input",
    "tensor": "gradient",
}
"""Kind of hook -> what is shown of that which it received."""

_TENSORS = 6  # whose shapes are shown

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
    """The part of the tensor that was kept, as a picture; zero in the middle where it is signed."""
    values = event.sample
    if values is None:
        return ""
    seen = channel_statistics(values[None])
    diverging = event.backward or bool(seen.min < 0)
    ends = colour_ranges(values[None], seen.min, seen.max, "channel", diverging=diverging)
    low, high = (float(end) for (end,) in ends)
    cmap = DIVERGING if diverging else SEQUENTIAL
    caption = f"{RECEIVED[event.kind]}{part(event)}"
    return html.picture(
        map_png(_less_slim(values), cmap, low, high),
        f"{caption}, which the {event.kind} hook of {event.name} ({event.type}) received",
        caption,
        below=html.scale(scale_png(cmap), low, high),
    )


def part(event: Event) -> str:
    """Which part of the tensor is drawn, see `hookviz.analysis.events.sample_of`."""
    if event.sample is None:
        return ""
    shape = event.main_shape
    drawn, whole = event.sample.shape, (1, 1, *shape)[-2:]
    place = {0: "", 1: "", 2: ", row 0", 3: ", sample 0", 4: ", sample 0, channel 0"}
    where = place.get(len(shape), f", at index {', '.join('0' * (len(shape) - 2))}")
    size = "×".join(map(str, drawn)) if drawn[0] > 1 else str(drawn[1])
    if drawn[0] * drawn[1] == whole[-1] * (whole[0] if len(shape) > 2 else 1):
        return f"{where}, {size}"
    return f"{where}, {size} of {'×'.join(map(str, whole if len(shape) > 2 else whole[1:]))} values"


def _less_slim(values: np.ndarray) -> np.ndarray:
    """Rows or columns repeated where a picture would be more than six times as long as wide."""
    height, width = values.shape
    if height == 1:  # `map_png` makes a strip of it
        return values
    values = np.repeat(values, math.ceil(width / (6 * height)), axis=0)
    return np.repeat(values, math.ceil(height / (2 * width)), axis=1)


def readings(event: Event) -> Readings:
    """The event in words and exact numbers."""
    when = "not fired" if event.time is None else f"{1000 * event.time:.2f} ms"
    call = [("call", str(event.call))] if event.call else []
    module = [("", f"{event.name} ({event.type})"), *call, ("depth", str(event.depth)), ("", when)]
    rows: Readings = [(f"{event.index} {event.kind}", module)]
    if event.shapes:
        each = [f"{s} {d}" for s, d in zip(event.shape.split(), event.dtypes, strict=True)]
        more = [("", f"{len(each) - _TENSORS} more")] if len(each) > _TENSORS else []
        rows.append((RECEIVED[event.kind], [*(("", e) for e in each[:_TENSORS]), *more]))
    if (numbers := event.statistics) is not None:
        pairs = [(n, html.number(getattr(numbers, n))) for n in ("min", "max", "mean", "norm")]
        zeros = ("zeros", f"{100 * numbers.zeros:.1f} %")
        wrong = [("NaN", str(numbers.nans)), ("Inf", str(numbers.infs))]
        rows.append(("values", [*pairs, zeros, *wrong]))
    if event.note:
        rows.append(("note", [("", event.note)]))
    return rows
