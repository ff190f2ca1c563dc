"""Every kind of hook on every module, for one forward and one backward, in the order they fire.

Its page is one HTML file: its events are walked through without a kernel or a network.
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, overload

from matplotlib.figure import Figure
from torch import nn

from ...draw import html
from ...draw.colours import DARK, DIVERGING, SEQUENTIAL, palette_text, to_levels
from ...draw.document import check_size, document, fitting
from ...draw.figures import small_png
from ...files import page_to
from ...hooking.interrupts import Block
from ...hooking.select import module_names, type_name
from ...run.errors import first_sentence, innermost_call
from ...run.inputs import Transform
from ...run.session import PassResult, Session
from ...run.target import Target
from ...tables import counted, for_terminal, megabytes, number
from ..showing import widget
from .events import (
    BACKWARD,
    FULL,
    RECEIVED,
    SIDES,
    Event,
    EventRecorder,
    InplaceTracker,
    Names,
    Refused,
    event_html,
    event_picture,
    event_text,
    numbers,
    shapes,
    side,
    when,
)

PALETTES = {"sequential": SEQUENTIAL, "diverging": DIVERGING, "dark": DARK}


def write_page(
    trace: Sequence[Event],
    about: str,
    tree: Sequence[tuple[str, str]],
    max_bytes: float,
    title: str | None,
) -> str:
    """Write the page of `Trace.to_html`.

    ``about`` is the trace's own title, ``tree`` the name and type of every module.
    """
    check_size(max_bytes)
    if not len(trace):
        raise ValueError("This part of the trace is empty: take a longer part of the trace.")
    model, _, words = about.partition(": ")
    named = title or f"Hooks of {model}"
    picture = html.data_url(small_png(trace_figure(trace)))
    places = {name: index for index, (name, _) in enumerate(tree)}
    events = [_said(event, places[event.layer]) for event in trace]
    facts: dict[str, Any] = {
        "title": named,
        "words": words,
        "tree": tree,
        "kinds": [[kind, RECEIVED[kind], kind in BACKWARD] for kind in RECEIVED],
        "palettes": {name: palette_text(cmap) for name, cmap in PALETTES.items()},
        "note": "",
    }

    def pages() -> Iterator[str]:
        pictures = _pictures(trace, events)
        blocks = {"facts": facts, "events": events, "pictures": pictures}
        for _ in range(2):
            yield document(named, "trace", blocks, f"{named}: {words}", picture)
            facts["note"] = f"To fit {megabytes(int(max_bytes))}, the pictures are left out."
            blocks["pictures"] = []
            for event in events:
                if "picture" in event:
                    event["picture"] = None

    takes = (
        f": this trace of {len(trace):,} events takes {{takes}} without any picture; give more, "
        "or take a part: trace[:100]"
    )
    return fitting(pages(), max_bytes, takes)


def _said(event: Event, module: int) -> dict[str, Any]:
    """Return an event in the form that `web/trace.tsx` reads, without empty fields."""
    said: dict[str, Any] = {
        "index": event.index,
        "kind": event.kind,
        "module": module,
        "call": event.call,
        "depth": event.depth,
        "when": when(event),
        "fired": event.fired,
        "shapes": shapes(event),
        "numbers": numbers(event),
        "note": event.note,
        "code": event.code,
    }
    return {name: value for name, value in said.items() if value not in ("", [])}


def _pictures(trace: Sequence[Event], events: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Return the different pictures of a trace, and store in each event the index of its picture.

    A picture is its height, its width and its levels. Many events share one: the output of a module
    is the input of the next.
    """
    found: dict[tuple[int, int, bytes], int] = {}
    for seen, event in zip(map(event_picture, trace), events, strict=True):
        if seen is not None:
            levels = to_levels(seen.values, seen.low, seen.high)
            event["picture"] = {
                "diverging": seen.cmap == DIVERGING,
                "low": number(seen.low),
                "high": number(seen.high),
                "caption": seen.caption,
                "alt": seen.alt,
                "at": found.setdefault((*levels.shape, levels.tobytes()), len(found)),
            }
    return [[h, w, base64.b64encode(levels).decode()] for h, w, levels in found]


def trace_figure(trace: Sequence[Event]) -> Figure:
    """All events in their order, each taller for a deeper module."""
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    axes = figure.subplots()
    for name, colour in SIDES.items():
        chosen = [event for event in trace if side(event) == name]
        if chosen:
            at, high = zip(*((event.index, event.depth + 1) for event in chosen), strict=True)
            wide = min(max(500 / len(trace), 0.5), 8)
            axes.vlines(at, 0, high, color=colour, linewidth=wide, label=name)
    axes.set(xlabel="hooks in the order in which they fired", ylabel="depth of the module")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=3, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def trace(
    model: nn.Module,
    inputs: Any,
    target: Target = None,
    *,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
) -> Trace:
    """Record which hook fires when, and what it receives, in one forward and one backward.

    Every module gets a forward_pre, a forward, a full_backward_pre and a full_backward hook, and
    every tensor that it returns a tensor hook. Each records what it received and changes nothing.
    As in `hookviz.explore`, the model runs in eval mode, on a copy of the input that requires a
    gradient, and is afterwards unchanged, to the bit.

    Parameters
    ----------
    model : torch.nn.Module
    inputs
        The model's input, as for `hookviz.explore`.
    target : optional
        The number to differentiate, as in `hookviz.explore`: None is each sample's top class.
    weights, transform, class_names : optional
        As in `hookviz.explore`.

    Returns
    -------
    Trace
        A sequence of `hookviz.studies.trace.events.Event`. At the end of a notebook cell it is
        a player.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        As `hookviz.explore`: each in one sentence that says what to do.

    Notes
    -----
    PyTorch does not allow a module's input or output to be overwritten in place, as
    ``nn.ReLU(inplace=True)`` does, while the module has a full backward hook. If a module has
    ``inplace=True``, or the run fails, another forward finds such modules, and they go without
    these hooks. Every hook that was not set or did not fire is an event at the end of the trace,
    whose note says why.

    Parameters' own hooks are not set.

    Examples
    --------
    >>> import torch, hookviz
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    >>> for event in hookviz.trace(model, torch.ones(1, 1, 3, 3)):
    ...     print(event.kind, event.name)
    forward_pre (model)
    forward_pre 0
    forward 0
    forward_pre 1
    forward 1
    forward (model)
    full_backward_pre (model)
    tensor (model)
    full_backward_pre 1
    tensor 1
    full_backward 1
    full_backward_pre 0
    tensor 0
    full_backward 0
    full_backward (model)
    """
    session = Session.of(
        model, inputs, weights=weights, transform=transform, class_names=class_names
    )
    names = module_names(model)
    passed = _recorded(session, names, target)
    recorder, scored = passed.observer, passed.scored
    tree = [(known[0], type_name(module)) for module, known in names.items()]
    return Trace(recorder.events(scored), tree, recorder.not_called, scored)


class Trace(Sequence[Event]):
    """The events of one forward and one backward, in the order in which the hooks fired.

    Made by `hookviz.trace`. A slice of it is a trace, too. At the end are the hooks that were not
    set or did not fire: their ``time`` is None and their ``note`` says why.

    Attributes
    ----------
    not_called : list of str
        Modules that did not run.
    scored : bool
        True if there was a score to go backward from.
    """

    def __init__(
        self,
        events: Sequence[Event],
        tree: Sequence[tuple[str, str]],
        not_called: Sequence[str] = (),
        scored: bool = True,
    ) -> None:
        self._events, self._tree = tuple(events), tuple(tree)
        self.not_called, self.scored = list(not_called), scored
        self._player: Any = None

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Trace: ...
    def __getitem__(self, index: int | slice) -> Event | Trace:
        if isinstance(index, slice):
            return Trace(self._events[index], self._tree, self.not_called, self.scored)
        try:
            return self._events[index]
        except IndexError:
            raise IndexError(
                f"Event {index} is out of range: this trace has {len(self)}."
            ) from None

    def records(self) -> list[dict[str, Any]]:
        """Every event as a dict of plain values: ``pandas.DataFrame(trace.records())``.

        Returns
        -------
        list of dict
            With the keys index, time, kind, layer, type, call, depth, path, note, code; shape,
            dtype, min, max, mean, zeros, nans, infs, norm of the first floating-point tensor that
            the hook received, None without any; shapes and dtypes of all tensors. Strict JSON: NaN
            is None, an infinity is ``"inf"`` or ``"-inf"``.
        """
        return [event.record() for event in self]

    def show(self) -> Any:
        """Return the widget that a notebook shows for this trace.

        Raises
        ------
        ValueError
            A trace without events.
        """
        if self._player is None or self._player.closed:
            self._player = widget("play", self._events, self._tree, self.title)
        return self._player

    def to_html(
        self,
        path: str | os.PathLike | None = None,
        *,
        max_bytes: float = 10e6,
        title: str | None = None,
    ) -> str | None:
        """Write the player as one file, which needs no kernel and no network.

        Its timeline has a tick for each event; the module tree, each event's code, shapes, numbers
        and picture are as in the player.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write; left out, the page is returned.
        max_bytes : float
            The limit for the page. If the pictures do not fit, they are left out; the page says
            so.
        title : str, optional
            Of the page.

        Returns
        -------
        str or None
            The page, where no path is given.

        Raises
        ------
        ValueError
            A trace without events, or too few bytes for it without any picture.

        Examples
        --------
        >>> import torch, hookviz
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten())
        >>> trace = hookviz.trace(model, torch.ones(1, 1, 5, 5))
        >>> page = trace.to_html()
        >>> len(page) < 1.5e5, "<script src=" in page
        (True, False)
        """
        return page_to(path, write_page(self, self.title, self._tree, max_bytes, title))

    def close(self) -> None:
        """Release the player's widgets; the events stay."""
        if self._player is not None:
            self._player.close()
            self._player = None

    @property
    def title(self) -> str:
        """The model, the numbers of hooks that fired and did not, and modules that did not run."""
        fired = [event for event in self if event.fired]
        back = sum(event.backward for event in fired)
        facts = [
            f"{self._tree[0][1]}: {len(fired)} hooks fired, {len(fired) - back} in the forward "
            f"and {back} in the backward"
        ]
        if unfired := len(self) - len(fired):
            facts.append(f"{counted(unfired, 'hook')} did not fire: the notes say why")
        if self.not_called:
            facts.append(f"{counted(len(self.not_called), 'module')} did not run")
        if not self.scored:
            facts.append("no class scores, so no backward: give target=hookviz.output[…]")
        return "; ".join(facts)

    @for_terminal
    def __repr__(self) -> str:
        return event_text(f"Trace of {self.title}", self)

    def _repr_html_(self) -> str:
        return event_html(f"Trace of {self.title}", self)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_player": None}  # a widget can be neither copied nor pickled

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return the player, and the table for places without a kernel, such as GitHub."""
        data: dict[str, Any] = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if len(self):
            data["application/vnd.jupyter.widget-view+json"] = self.show().view()
        return data


def _recorded(session: Session, names: Names, target: Target) -> PassResult[EventRecorder]:
    """Run the model and record every hook that fires.

    Modules whose tensors are overwritten in place get no full backward hooks; another forward
    finds them, if a module says ``inplace=True`` or the run fails. If the run still fails, these
    hooks are left out at the layer in which the error arose, then at all modules.
    """
    in_place = any(getattr(module, "inplace", False) is True for module in names)
    refused = _overwritten(session, names) if in_place else {}

    def once() -> PassResult[EventRecorder]:
        with Block([warnings.catch_warnings()]):
            # Torch's own, about hooks that it will not call or calls early: an event says it.
            for start in ("For backward hooks to be called", "Full backward hook is firing"):
                warnings.filterwarnings("ignore", message=start)
            observe = partial(EventRecorder, session.given, names, refused)
            return session.forward_backward(target, observe)

    for blamed in ("one", "all") if in_place else ("in place", "one", "all"):
        try:
            return once()
        except Exception as error:
            if blamed == "in place":
                refused |= _overwritten(session, names)
                continue
            cause = error.__cause__ or error  # without what `located_error` says
            call = innermost_call(cause, names)
            one = call[0] if call else next(iter(names))
            for module in [one] if blamed == "one" else names:
                for kind in FULL:
                    refused.setdefault((module, kind), first_sentence(cause))
    return once()


def _overwritten(session: Session, names: Names) -> Refused:
    """Run a forward, which shows the modules that cannot take a full backward hook."""
    tracker = session.forward(lambda: InplaceTracker(names))
    return {
        (module, kind): f"the module's {tensor} is overwritten in place, as by "
        "nn.ReLU(inplace=True) or x += y, and PyTorch forbids that under a full backward hook; a "
        "tensor hook works"
        for module, tensor in tracker.found().items()
        for kind in FULL
    }
