"""What is shown of an event, in a notebook and on a page: its numbers in words, its picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..hooking.tables import number
from ..render.colours import DIVERGING, SEQUENTIAL, colour_ranges, strip_height
from ..render.html import Readings
from .events import Event

RECEIVED = {
    "forward_pre": "arguments",
    "forward": "output",
    "full_backward_pre": "grad_output",
    "full_backward": "grad_input",
    "tensor": "gradient",
}
"""Kind of hook -> what is shown of that which it received."""

SIDES = {
    "forward": ("forward", "#2f7de1"),
    "backward": ("backward", "#d97000"),
    "unfired": ("did not fire", "#8a8f98"),
}
"""When a hook is called: its words and colour."""

_TENSORS = 6  # whose shapes are shown


def side(event: Event) -> str:
    """Which of `SIDES` an event belongs to."""
    return "unfired" if not event.fired else "backward" if event.backward else "forward"


@dataclass(frozen=True, eq=False)
class EventPicture:
    """The part of a tensor that was kept, ready to draw."""

    values: np.ndarray  #: float32 ``(H, W)``, no slimmer than a page can show
    cmap: str
    low: float  #: what value gets the first colour
    high: float  #: and what value the last
    caption: str
    alt: str


def event_picture(event: Event) -> EventPicture | None:
    """The picture of an event; zero in the middle where it is signed. None without a sample."""
    values = event.sample
    if values is None:
        return None
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (np.nan, np.nan)
    diverging = event.backward or bool(low < 0)
    ends = colour_ranges(
        values[None], np.array([low]), np.array([high]), "channel", diverging=diverging
    )
    first, last = (float(end) for (end,) in ends)
    caption = f"{RECEIVED[event.kind]}{part(event)}"
    return EventPicture(
        _less_slim(values),
        DIVERGING if diverging else SEQUENTIAL,
        first,
        last,
        caption,
        f"{caption}, which the {event.kind} hook of {event.name} ({event.type}) received",
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
    if height == 1:
        return np.repeat(values, strip_height(width), axis=0)
    values = np.repeat(values, math.ceil(width / (6 * height)), axis=0)
    return np.repeat(values, math.ceil(height / (2 * width)), axis=1)


def when(event: Event) -> str:
    """How long after the beginning of the forward the hook fired."""
    return "not fired" if event.time is None else f"{1000 * event.time:.2f} ms"


def shapes(event: Event) -> list[str]:
    """Shape and dtype of each tensor that the hook received, of the first ones."""
    each = [f"{s} {d}" for s, d in zip(event.shape.split(), event.dtypes, strict=True)]
    more = [f"{len(each) - _TENSORS} more"] if len(each) > _TENSORS else []
    return [*each[:_TENSORS], *more]


def numbers(event: Event) -> list[tuple[str, str]]:
    """Name and value of the event's statistics; none without a tensor of numbers."""
    if (known := event.statistics) is None:
        return []
    pairs = [(name, number(getattr(known, name))) for name in ("min", "max", "mean", "norm")]
    zeros = ("zeros", f"{100 * known.zeros:.1f} %")
    return [*pairs, zeros, ("NaN", str(known.nans)), ("Inf", str(known.infs))]


def readings(event: Event) -> Readings:
    """Where the event stands, its exact numbers, and what is odd about it."""
    call = [("call", str(event.call))] if event.call else []
    rows: Readings = [
        (f"event {event.index}", [*call, ("depth", str(event.depth)), ("", when(event))])
    ]
    if event.shapes:
        rows.append((RECEIVED[event.kind], [("", each) for each in shapes(event)]))
    rows += [(name, [("", value)]) for name, value in numbers(event)]
    if event.note:
        rows.append(("note", [("", event.note)]))
    return rows
