"""Hooks of every kind on every module, and a small record of each call, in the order they fired.

First the modules are found whose tensors are overwritten in place: full backward hooks forbid that.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...draw.colours import DIVERGING, SEQUENTIAL, colour_ranges
from ...hooking.checkpoint import FORWARD, ModuleCallStack, Reruns, current_backward
from ...hooking.handles import HookManager
from ...hooking.records import Statistics, statistics
from ...hooking.select import PACKED, type_name
from ...hooking.tensors import as_real, tensors, tensors_in, version_of
from ...run.errors import first_sentence
from ...tables import call_name, html_table, number, paragraph, plain, text_table

SIGNATURES = {
    "forward_pre": "hook(module, args)",
    "forward": "hook(module, args, output)",
    "full_backward_pre": "hook(module, grad_output)",
    "full_backward": "hook(module, grad_input, grad_output)",
    "tensor": "hook(grad)",
}
"""Kind of hook -> how torch calls it."""

BACKWARD = ("full_backward_pre", "full_backward", "tensor")

_NUMERIC = ("float", "bfloat", "complex")
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
    note: str = ""  #: why the hook was not set or did not fire, or a remark
    code: str = field(default="", repr=False)  #: one line of Python that sets such a hook

    @property
    def fired(self) -> bool:
        """True if the hook was called."""
        return self.time is not None

    @property
    def backward(self) -> bool:
        """True if it is a hook that runs in the backward."""
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
        """Shape of the tensor of ``statistics`` and ``sample``; None without any."""
        return self.shapes[main_place(self.dtypes)] if self.shapes else None


_PLAIN = ("index", "time", "kind", "layer", "type", "call", "depth", "path", "note", "code")
_NUMBERS = tuple(Statistics.__dataclass_fields__)


def main_place(dtypes: Sequence[str]) -> int:
    """Choose the tensor to describe: the first of real or complex numbers, else the first.

    >>> main_place(["int64", "bfloat16", "float32"])
    1
    """
    return next((index for index, name in enumerate(dtypes) if name.startswith(_NUMERIC)), 0)


def sample_of(tensor: Tensor) -> np.ndarray | None:
    """Copy a part of a tensor that is small enough to be kept for every event.

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
    values = as_real(tensor)
    if not values.numel():
        return None
    values = values[(0,) * (values.ndim - 2)] if values.ndim > 1 else values.reshape(1, -1)
    if tensor.ndim == 2:
        values = values[:1]
    down = math.ceil(len(values) / SIDE)
    along = math.ceil(values.shape[1] / (SIDE if len(values) > 1 else ROW))
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
    """Return the same for a notebook's page."""
    table = html_table(title, HEADER, _rows(events, "\N{EM SPACE}"))
    return f'<div style="max-height: 420px; overflow: auto">{table}</div>'


def _rows(events: Sequence[Event], indent: str) -> list[tuple[str, ...]]:
    rows = [_row(event, indent) for event in events]
    if len(rows) > _SHOWN:
        rows[_HEAD : _HEAD - _SHOWN] = [("…",) * len(HEADER)]
    return rows


def _row(event: Event, indent: str) -> tuple[str, ...]:
    numbers = event.statistics
    return (
        str(event.index),
        "" if event.time is None else f"{1000 * event.time:.2f}",
        event.kind,
        indent * event.depth + call_name(event.layer, event.call),
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

SIDES = {"forward": "#2f7de1", "backward": "#d97000", "did not fire": "#8a8f98"}
"""When a hook is called, and the colour of that."""

_TENSORS = 6  # whose shapes are shown


def side(event: Event) -> str:
    """Return the one of `SIDES` that an event belongs to."""
    return "did not fire" if not event.fired else "backward" if event.backward else "forward"


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
    """Draw an event's values; zero is in the middle of signed ones. None without a sample."""
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
    """Say which part of the tensor is drawn, see `hookviz.studies.trace.events.sample_of`."""
    shape = event.shape
    if event.sample is None or shape is None:
        return ""
    first = ["sample 0", "channel 0", "slice 0"][: max(len(shape) - 2, 0)]
    where = ["row 0"] if len(shape) == 2 else first
    whole = shape[-2:] if len(shape) > 2 else (1, *shape[-1:])
    thinned = event.sample.size < math.prod(whole)
    sizes = [event.sample.shape, whole] if thinned else [event.sample.shape]
    words = ["×".join(str(n) for n in size if n > 1) or "1" for size in sizes]
    return ", ".join(["", *where, " of ".join(words) + " values" * thinned])


def _less_slim(values: np.ndarray) -> np.ndarray:
    """Rows or columns repeated where a picture would be more than six times as long as wide."""
    height, width = values.shape
    values = np.repeat(values, math.ceil(width / (6 * height)), axis=0)
    return np.repeat(values, math.ceil(height / (2 * width)), axis=1)


def when(event: Event) -> str:
    """Return the time between the beginning of the forward and the hook's call."""
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


FULL = ("full_backward_pre", "full_backward")
KINDS = ("forward_pre", "forward", *FULL)

Names = Mapping[nn.Module, Sequence[str]]
Refused = dict[tuple[nn.Module, str], str]
"""Module and kind of hook -> why it cannot be set."""

_RERUN = "run again in the backward, by activation checkpointing"
_NO_INPUT_GRADIENT = "grad_input has no tensor: no positional argument requires a gradient"
_NOT_REACHED = (
    "did not fire: the score does not depend on this tensor, or only on a view of it that was "
    "overwritten in place"
)
_NONE_CAME = "no gradient reached the module: for autograd, the score does not depend on its {}"


class EventRecorder(HookManager):
    """A block within which all hooks are on; `events` gives what they wrote down."""

    def __init__(self, model: nn.Module, names: Names, refused: Refused) -> None:
        super().__init__()
        self._refused = dict(refused)
        self._names = {module: known[0] for module, known in names.items()}
        # The name under which the model, maybe in a wrapper, finds each module.
        found = dict(model.named_modules(remove_duplicate=False))
        self._code_names = {
            module: next((name for name in known if found.get(name) is module), known[0])
            for module, known in names.items()
        }
        # Tensor hooks that have not fired: module, call and path.
        self._waiting: dict[tuple[nn.Module, int, str], None] = {}
        self._arrived: set[tuple[nn.Module, int, str]] = set()
        self._fired: list[tuple[nn.Module, Event]] = []
        self._why_silent: dict[nn.Module, str] = {}
        self._calls: dict[nn.Module, list[Event]] = {}  # forward_pre events of the forward
        self._reruns: Reruns[Event] = Reruns()
        self._depths: dict[tuple[nn.Module, int], int] = {}
        self._running: ModuleCallStack[int] = ModuleCallStack()
        self._under_way: dict[int, tuple[Any, int]] = {}  # grad_output, and place in `_fired`
        self._same_call: dict[int, int] = {}  # full_backward -> its full_backward_pre

    def _begin(self) -> None:
        super()._begin()
        for module in self._names:
            for kind in KINDS:
                if (module, kind) in self._refused:
                    continue
                try:
                    self.add(module, kind, getattr(self, f"_{kind}"))
                except RuntimeError as error:  # a ScriptModule, or one with a hook of the old kind
                    self._refused[module, kind] = first_sentence(error)
        self._began, self._spent = time.perf_counter(), 0.0

    @property
    def missing_gradients(self) -> bool:
        """True if a tensor hook has not fired."""
        return bool(self._waiting)

    # The hooks

    def _forward_pre(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        again, calls = current_backward() != FORWARD, self._calls.setdefault(module, [])
        event = self._event(module, "forward_pre", (args, kwargs), note=_RERUN if again else "")
        if again:
            first = self._reruns.first(calls, partial(_alike, event))
            call = first.call if first else 0
        else:
            call = len(calls)
            calls.append(replace(event, call=call))
        depth = self._running.begin(module, call)
        if not again:
            self._depths[module, call] = depth
        self._write(module, event, call)

    def _forward(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        again, call = current_backward() != FORWARD, self._running.end(module) or 0
        event = self._event(module, "forward", output, note=_RERUN if again else "")
        self._write(module, event, call)
        if not again:
            self._why_silent[module] = _why_silent(output)
        for path, tensor in tensors_in(output):
            if tensor.requires_grad:
                self._watch(module, call, path, tensor)

    def _watch(self, module: nn.Module, call: int, path: str, tensor: Tensor) -> None:
        key = module, call, path
        if key not in self._arrived:  # else a checkpointed block runs again
            self._waiting[key] = None

        def arrived(gradient: Tensor | None) -> None:
            self._waiting.pop(key, None)
            self._arrived.add(key)
            self._write(module, self._event(module, "tensor", gradient, path), call)

        self.add(tensor, "tensor", arrived)

    # A full backward hook is not told which call it belongs to: -1, until `events` finds out.

    def _full_backward_pre(self, module: nn.Module, grad_output: Any) -> None:
        self._under_way[id(grad_output)] = grad_output, len(self._fired)
        self._write(module, self._event(module, "full_backward_pre", grad_output), -1)

    def _full_backward(self, module: nn.Module, grad_input: Any, grad_output: Any) -> None:
        # The other hook got the very same tuple.
        if begun := self._under_way.pop(id(grad_output), None):
            self._same_call[len(self._fired)] = begun[1]
        note = "" if tensors(grad_input) else _NO_INPUT_GRADIENT
        self._write(module, self._event(module, "full_backward", grad_input, note=note), -1)

    def _event(
        self, module: nn.Module, kind: str, given: Any, path: str = "", note: str = ""
    ) -> Event:
        """Record a hook's call; `_write` adds the call of the module."""
        now = time.perf_counter()
        received = tensors(given)
        dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in received)
        numbers, sample = _described(received[main_place(dtypes)] if received else None)
        event = replace(
            self._unfired(module, kind, -1, note, path),
            time=now - self._began - self._spent,
            shapes=tuple(tuple(tensor.shape) for tensor in received),
            dtypes=dtypes,
            statistics=numbers,
            sample=sample,
        )
        self._spent += time.perf_counter() - now
        return event

    def _write(self, module: nn.Module, event: Event, call: int) -> None:
        self._fired.append((module, replace(event, call=call)))

    # What was written down

    @property
    def not_called(self) -> list[str]:
        """Modules with a forward of their own that never ran."""
        return [
            name
            for module, name in self._names.items()
            if module not in self._calls and not isinstance(module, torch.jit.ScriptModule)
            # A ModuleList, say, has none.
            if type(module).forward is not nn.Module.forward
            if name.rpartition(".")[2] not in PACKED
        ]

    def events(self, scored: bool) -> list[Event]:
        """Return the events, then refused hooks and, if scored, hooks that did not fire."""
        found = self._with_calls()
        for module in self._names:
            for kind in KINDS:
                if why := self._refused.get((module, kind)):
                    found.append(self._unfired(module, kind, 0, f"was not set: {why}"))
        if scored:
            found += self._silent()
        return [replace(event, index=index) for index, event in enumerate(found)]

    def _with_calls(self) -> list[Event]:
        """Return the calls and depths of backward events.

        The backward goes through a module's calls in some order. The tensor hooks know it, and
        the full_backward_pre hooks fire in the same one.
        """
        order: dict[nn.Module, dict[int, None]] = {}
        for module, event in self._fired:
            if event.kind == "tensor":
                order.setdefault(module, {})[event.call] = None
        left = {module: list(calls) for module, calls in order.items()}
        found: list[Event] = []
        for index, (module, event) in enumerate(self._fired):
            call = event.call
            if event.kind == "full_backward_pre":
                call = left[module].pop(0) if left.get(module) else 0
            elif event.kind == "full_backward":
                call = found[self._same_call[index]].call if index in self._same_call else 0
            depth = self._depths.get((module, call), 0)
            found.append(replace(event, call=call, depth=depth))
        return found

    def _silent(self) -> list[Event]:
        """Backward hooks that were set, in a module that ran, and did not fire."""
        fired = {(module, event.kind) for module, event in self._fired}
        found = []
        for module in self._names:
            for kind in FULL:
                set_in_vain = (module, kind) not in fired and (module, kind) not in self._refused
                if module in self._calls and set_in_vain:
                    side = "input" if (module, "full_backward_pre") in fired else "output"
                    why = self._why_silent.get(module) or _NONE_CAME.format(side)
                    found.append(self._unfired(module, kind, 0, f"did not fire: {why}"))
        for module, call, path in self._waiting:
            found.append(self._unfired(module, "tensor", call, _NOT_REACHED, path))
        return found

    def _unfired(self, module: nn.Module, kind: str, call: int, note: str, path: str = "") -> Event:
        return Event(
            index=-1,
            kind=kind,
            layer=self._names[module],
            type=type_name(module),
            call=call,
            depth=self._depths.get((module, call), 0),
            time=None,
            path=path,
            note=note,
            code=code_for(kind, self._code_names[module], path),
        )


def _described(tensor: Tensor | None) -> tuple[Statistics | None, np.ndarray | None]:
    if tensor is None:
        return None, None
    try:
        return statistics(tensor), sample_of(tensor)
    except (RuntimeError, NotImplementedError, TypeError):  # a meta or nested tensor, and the like
        return None, None


def _why_silent(output: Any) -> str:
    """Return why a full backward hook is not called for this output; empty if it is."""
    if not isinstance(output, (Tensor, tuple)):
        kind = type(output).__name__
        return f"PyTorch calls it only if the output is a tensor or a tuple, not a {kind}"
    if not any(tensor.requires_grad for tensor in tensors(output)):
        return "the output does not require a gradient"
    return ""


def _alike(event: Event, other: Event) -> bool:
    """Return True if the records of two hooks describe the same arguments."""
    one, two = ((each.shapes, each.dtypes, each.statistics) for each in (event, other))
    return repr(one) == repr(two)  # as text, NaN is equal to itself


# In place


class InplaceTracker(HookManager):
    """A block that finds the modules whose input or output is overwritten in place.

    A tensor's version goes up each time it, or a tensor that shares its memory, is overwritten.
    """

    def __init__(self, names: Names) -> None:
        # A ScriptModule takes no hooks.
        eager = [module for module in names if not isinstance(module, torch.jit.ScriptModule)]
        kinds = (("forward_pre", self._before), ("forward", self._after))
        super().__init__([(module, kind, hook) for module in eager for kind, hook in kinds])
        self._running: ModuleCallStack[list[tuple[Tensor, int]]] = ModuleCallStack()
        self._returned: list[tuple[nn.Module, Tensor, int]] = []
        self._overwrites_input: set[nn.Module] = set()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        versions = [(tensor, version_of(tensor)) for tensor in _graded((args, kwargs))]
        self._running.begin(module, versions)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        versions = self._running.end(module) or []
        if any(version_of(tensor) > before for tensor, before in versions):
            self._overwrites_input.add(module)
        self._returned += [(module, tensor, version_of(tensor)) for tensor in _graded(output)]

    def found(self) -> dict[nn.Module, str]:
        """Return the modules, each with the tensor that is overwritten: "input" or "output"."""
        returned = {
            module for module, tensor, before in self._returned if version_of(tensor) > before
        }
        return dict.fromkeys(self._overwrites_input, "input") | dict.fromkeys(returned, "output")


def _graded(value: Any) -> list[Tensor]:
    """Return the tensors under which a full backward hook forbids overwriting in place."""
    if not torch.is_grad_enabled():
        return []
    return [tensor for tensor in tensors(value) if tensor.requires_grad]
