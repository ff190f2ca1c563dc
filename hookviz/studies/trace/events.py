"""What one hook received, as a small record, and the line of code that sets such a hook."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from ...draw.colours import DIVERGING, SEQUENTIAL, colour_ranges, strip_height
from ...draw.html import Readings
from ...hooking.records import Statistics
from ...hooking.tables import html_table, number, paragraph, plain, text_table

SIGNATURES = {
    "forward_pre": "hook(module, args)",
    "forward": "hook(module, args, output)",
    "full_backward_pre": "hook(module, grad_output)",
    "full_backward": "hook(module, grad_input, grad_output)",
    "tensor": "hook(grad)",
}
"""Kind of hook -> how torch calls it."""

BACKWARD = ("full_backward_pre", "full_backward", "tensor")

_NUMERIC = re.compile("b?float|complex")
SIDE, ROW = 64, 512  # the most rows and columns of a picture, and the most values of a strip


@dataclass(frozen=True, eq=False)
class Event:
    """One hook that fired, or one that could not."""

    index: int  #: the place in the whole trace
    #: ``forward_pre``, ``forward``, ``full_backward_pre``, ``full_backward``, or ``tensor`` for a
    #: hook on a tensor that the module returned.
    kind: str
    layer: str  #: the module's name, ``""`` for the model itself
    type: str  #: the module's class
    call: int  #: which run of the module it belongs to, from 0
    depth: int  #: how many modules were running around this one in the forward; 0 for the model
    #: Seconds since the forward began, less what recording took; None if the hook did not fire.
    time: float | None
    #: For a tensor hook, where in the output the tensor stood: ``""``, ``"[0]"``, ``"['out']"``.
    path: str = ""
    #: Of all tensors that the hook received: the arguments (forward_pre), the output (forward),
    #: ``grad_output`` (full_backward_pre), ``grad_input`` (full_backward) or the gradient.
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()  #: of the same tensors
    #: Of the first floating-point one of these tensors, over all its values, as they were then.
    statistics: Statistics | None = field(default=None, repr=False)
    #: A part of that tensor to draw, float32, see `sample_of`.
    sample: np.ndarray | None = field(default=None, repr=False)
    note: str = ""  #: why the hook could not be set or did not fire, or what is odd about it
    code: str = field(default="", repr=False)  #: one line of Python that sets such a hook

    @property
    def fired(self) -> bool:
        """Whether the hook was called."""
        return self.time is not None

    @property
    def backward(self) -> bool:
        """Whether it is a hook that runs in the backward."""
        return self.kind in BACKWARD

    @property
    def name(self) -> str:
        """The module's name, for people."""
        return self.layer or "(model)"

    def record(self) -> dict[str, Any]:
        """All but the picture, as one dict of strict JSON, see `Trace.records`."""
        numbers = asdict(self.statistics) if self.statistics else dict.fromkeys(_NUMBERS)
        known = {name: getattr(self, name) for name in _PLAIN}
        known["dtype"] = self.dtypes[main_place(self.dtypes)] if self.dtypes else None
        return plain(
            known | {"shape": self.shape, "shapes": self.shapes, "dtypes": self.dtypes} | numbers
        )

    @property
    def shape_words(self) -> str:
        """All shapes in one word each."""
        return " ".join("×".join(map(str, shape)) or "scalar" for shape in self.shapes)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the tensor that ``statistics`` and ``sample`` are of; None without any."""
        return self.shapes[main_place(self.dtypes)] if self.shapes else None


_PLAIN = ("index", "time", "kind", "layer", "type", "call", "depth", "path", "note", "code")
_NUMBERS = tuple(Statistics.__dataclass_fields__)


def main_place(dtypes: Sequence[str]) -> int:
    """Which of the tensors is looked at: the first of real or complex numbers, else the first.

    >>> main_place(["int64", "bfloat16", "float32"])
    1
    """
    return next((place for place, name in enumerate(dtypes) if _NUMERIC.match(name)), 0)


def sample_of(tensor: Tensor) -> np.ndarray | None:
    """A part of a tensor, small enough to be kept for every event.

    Of ``(N, C, H, W)`` it is the first sample's first channel, of ``(N, K)`` the first row, in
    general the last two dimensions at index 0 of all before them. Of what is larger than 64 rows
    or columns (a single row: than 512) every second, third, … one is taken; values are left as
    they are.

    Returns
    -------
    numpy.ndarray or None
        float32 ``(H, W)``, at most 64×64, or ``(1, L)`` with L at most 512. None for a tensor
        without values.

    Examples
    --------
    >>> import torch
    >>> sample_of(torch.arange(2.0 * 3 * 100 * 40).reshape(2, 3, 100, 40)).shape
    (50, 40)
    >>> sample_of(torch.zeros(1, 1000)).shape
    (1, 500)
    """
    values = tensor.detach()
    values = values.dequantize() if values.is_quantized else values.to_dense()
    if not values.numel():
        return None
    values = values.abs() if values.is_complex() else values
    if values.ndim < 2:
        values = values.reshape(1, -1)
    while values.ndim > 2:
        values = values[0]
    if tensor.ndim == 2:
        values = values[:1]
    down, along = (
        math.ceil(size / most)
        for size, most in zip(values.shape, (SIDE, SIDE if len(values) > 1 else ROW), strict=True)
    )
    # A copy: a slice of a numpy array would keep the whole tensor in memory.
    return values[::down, ::along].float().cpu().numpy().copy()


def code_for(kind: str, name: str, path: str = "") -> str:
    """One line of Python that sets a hook on the module of this name.

    >>> code_for("forward", "layer1.0.conv1")
    'handle = model.get_submodule("layer1.0.conv1").register_forward_hook(hook)  # hook(module,
     args, output)'
    """
    module = f"model.get_submodule({json.dumps(name, ensure_ascii=False)})" if name else "model"
    if kind == "tensor":
        where = f"{SIGNATURES[kind]}; output is what {module} returned"
        return f"handle = output{path}.register_hook(hook)  # {where}"
    return f"handle = {module}.register_{kind}_hook(hook)  # {SIGNATURES[kind]}"


HEADER = ("#", "ms", "hook", "layer", "type", "shape", "min", "max", "note")
_SHOWN, _HEAD = 120, 80  # rows of a table, and how many of these are its first


def event_text(title: str, events: Sequence[Event]) -> str:
    """Title and table, the modules' names indented by their depth; notes stand below it."""
    rows = [row[:-1] for row in _rows(events, "  ")]
    notes: dict[str, list[str]] = {}
    for event in events:
        notes.setdefault(event.note, []).append(str(event.index))
    told = [f"{', '.join(which)}: {note}" for note, which in notes.items() if note]
    table = text_table(title, HEADER[:-1], rows, ("type", "ms", "max", "min"))
    return "\n".join([table, *(paragraph(each, "   ", "") for each in told)])


def event_html(title: str, events: Sequence[Event]) -> str:
    """The same for a notebook's page."""
    table = html_table(title, HEADER, _rows(events, "\N{EM SPACE}"))
    return f'<div style="max-height: 420px; overflow: auto">{table}</div>'


def _rows(events: Sequence[Event], indent: str) -> list[tuple[str, ...]]:
    def rows(part: Sequence[Event]) -> list[tuple[str, ...]]:
        return [_row(event, indent) for event in part]

    if len(events) <= _SHOWN:
        return rows(events)
    return [*rows(events[:_HEAD]), ("…",) * len(HEADER), *rows(events[_HEAD - _SHOWN :])]


def _row(event: Event, indent: str) -> tuple[str, ...]:
    numbers = event.statistics
    return (
        str(event.index),
        "" if event.time is None else f"{1000 * event.time:.2f}",
        event.kind,
        indent * event.depth + event.name + (f" (call {event.call})" if event.call else ""),
        event.type,
        event.shape_words,
        number(numbers.min) if numbers else "",
        number(numbers.max) if numbers else "",
        event.note,
    )


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
    """Which part of the tensor is drawn, see `hookviz.studies.trace.events.sample_of`."""
    shape = event.shape
    if event.sample is None or shape is None:
        return ""
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
    each = [f"{s} {d}" for s, d in zip(event.shape_words.split(), event.dtypes, strict=True)]
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
