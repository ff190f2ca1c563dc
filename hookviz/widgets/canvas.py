"""The explorer drawn by the browser, which gets each layer's numbers once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import anywidget
import numpy as np
import traitlets
from IPython import get_ipython

from ..attribution.cam import cached_methods
from ..draw.document import STATIC, script, style
from ..export.packing import half, raw
from ..hooking.edit import LayerEdit
from ..hooking.interrupts import stoppable
from ..run.origins import picture_tensors
from ..run.session import alone
from ..view.answer import map_values
from ..view.frame import class_name
from ..view.heatmaps import shown_sides
from ..view.layer import SCORE_DROP, channel_order
from ..view.map import map_payload
from ..view.payload import (
    field_payload,
    heatmap_note,
    heatmap_payload,
    layer_payload,
    model_payload,
    picture_payload,
    settings_payload,
)
from ..view.reason import cut_run, reason_payload, weights_payload, without_payload
from ..view.view import View, for_layer

PART = 0.25  # seconds of work between two answers, so that others are answered and it can stop

AGAIN = {
    "field": "Click another place",
    "prepare": "Press w twice",
    "why": "Press w twice",
    "map": "Press m twice",
    "weights": 'Press "weights" twice',
    "without": 'Press "switch these off"',
}
"""For each question that an interrupt may end: how it is asked once more."""

EXACT_BYTES = 8_000_000
"""Larger maps are sent in half precision; the browser asks for single exact values."""


class Canvas(anywidget.AnyWidget):
    """Shows a `View` in the browser.

    Parameters
    ----------
    view : callable
        Returns the explorer's present view.
    on_user : callable
        Called with a setting's name and its new value when the kernel must do it.
    on_move : callable
        Called with the settings when the browser has moved by itself.
    on_edit : callable
        Called when the user edits the network, see `Explorer`.
    code : callable, optional
        Returns the present view as code, see `Explorer.code`.
    pictures : callable, optional
        Returns the thumbnails of the inputs, see `gallery.Gallery`.

    Attributes
    ----------
    alive : bool
        Set by the browser once it can draw.
    moved : dict
        The browser's count of its changes, and the names of those settings that it changed last.
    seen : int
        The count of the browser's changes that are handled: what it changed after that stays.
    stops : int
        How often an interrupt has ended an answer. Questions that waited behind it end, too.
    """

    closed = False
    _esm = script("widget")
    _css = style()

    alive = traitlets.Bool(False).tag(sync=True)
    token = traitlets.Unicode().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    pictures: Any = traitlets.List().tag(sync=True)
    moved = traitlets.Dict().tag(sync=True)
    seen = traitlets.Int(0).tag(sync=True)
    stops = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        view: Callable[[], View],
        on_user: Callable[[str, Any], None],
        on_move: Callable[[dict[str, Any]], None],
        on_edit: Callable[[str, Any], None],
        code: Callable[[], str] | None = None,
        pictures: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self._explored, self._on_user, self._on_move = view, on_user, on_move
        self._on_edit, self._code, self._pictures = on_edit, code, pictures
        self._latest: tuple[Any, ...] = ()
        self._count = 0
        self._recent: deque[dict[str, Any]] = deque(maxlen=16)  # questions about what is shown
        self._coming: list[dict[str, Any]] = []  # those that are answered of the new run, unasked
        self._edits: dict[int, LayerEdit] = {}  # all that the browser may name, by a number
        super().__init__(token=uuid4().hex, **self._traits_now())
        self.observe(self._moved, "settings")
        self.on_msg(self._asked)

    def show(self, note: str) -> None:
        """Update the browser to the explorer's present view, with a note."""
        with self._unobserved(), self.hold_trait_notifications(), self.hold_sync():
            for name, value in self._traits_now().items():
                setattr(self, name, value)
            self.note, self.pictures = note, self._pictures()
        self._tell()

    def _traits_now(self) -> dict[str, Any]:
        """Return the settings and, after a change of run, sample or palette, the facts."""
        view = self._explored()
        found = {"settings": _settings(view)}
        # If the first three change, the numbers of the run change.
        which = (view.run, view.which, len(view.drops))
        now = (*which, view.settings.target, view.input_sample, view.settings.cmap)
        if now != self._latest:
            if not self._latest or self._latest[:4] != now[:4]:
                self._count += 1
                self._coming = self._asked_again(view)
            self._latest = now
            facts = model_payload(view) | {
                "run": self._count,
                "blind": not picture_tensors(view.session.inputs),
            }
            for said, each in zip(facts["edits"], view.session.edits, strict=True):
                said["key"] = self._key_of(each)
            facts["coming"] = [each["key"] for each in self._coming]
            found["facts"] = facts
        return found

    def _asked_again(self, view: View) -> list[dict[str, Any]]:
        """Return the questions that the browser will ask of this run, with their new keys."""
        found: dict[str, dict[str, Any]] = {}
        shown = _settings(view) | {"of": list(view.picture_at or ())}
        shown["method"] = shown["heatmap"] if shown["heatmap"] in cached_methods() else None
        for question in reversed(self._recent):
            if all(question[name] == shown[name] for name in question.keys() & shown.keys()):
                _, _, said = question["key"].partition(" ")
                found.setdefault(question["ask"], question | {"key": f"{self._count} {said}"})
        return [*found.values()]

    def _tell(self) -> None:
        """Send what the browser would ask for next."""
        while self._coming:
            try:
                self._reply(self._coming.pop(0))
            except BaseException:
                for each in self._coming:
                    self.send({"ask": each["ask"], "key": each["key"], "lost": True})
                self._coming = []
                raise

    def _key_of(self, edit: LayerEdit) -> int:
        """Return the number by which the browser names an edit; it never means another one."""
        known = [key for key, each in self._edits.items() if each is edit]
        if known:
            return known[0]
        key = len(self._edits)
        self._edits[key] = edit
        return key

    def close(self) -> None:
        """Release all references to the explorer."""
        self.closed, self._edits, self._coming = True, {}, []
        self.unobserve_all()
        self._latest, self._explored, self._code, self._pictures = (), _closed, None, list
        super().close()

    @alone
    def _moved(self, change: dict[str, Any]) -> None:
        """Follow the browser, unless a request that was sent later has told of it before."""
        settings, count = change["new"], self.moved.get("count", self.seen)
        if count > self.seen:  # what Python has set meanwhile stays
            settings = {name: settings[name] for name in self.moved["names"] if name in settings}
        elif count < self.seen:
            settings = {}
        self._handle(count, lambda: self._on_move(settings))

    def _handle(self, count: int, do: Callable[[], None]) -> None:
        """Do what the browser asks, and tell it so, whatever comes of it."""
        try:
            do()
        finally:
            if not self.closed:
                with self._unobserved(), self.hold_sync():  # in one message
                    for name, value in self._traits_now().items():  # facts of another sample, too
                        setattr(self, name, value)
                    self.seen = max(self.seen, count)
                self._tell()

    @contextmanager
    def _unobserved(self) -> Iterator[None]:
        """Set the settings without following them."""
        self.unobserve(self._moved, "settings")
        try:
            yield
        finally:
            self.observe(self._moved, "settings")

    @alone
    def _asked(self, _: Any, question: dict[str, Any], buffers: Any) -> None:
        if "set" in question:
            self._handle(question.get("moved", 0), lambda: self._set(question, buffers))
            return
        if question["ask"] in ("layer", "picture", "heatmap"):
            self._recent.append(question)
        self._reply(question)

    def _reply(self, question: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"ask": question["ask"], "key": question["key"]}
        again = AGAIN.get(question["ask"])
        stopped = {"none": f"Stopped. {again} to ask again.", "stopped": True}
        if question["ask"] == "field":
            stopped = {"status": "unknown", "why": "stopped by an interrupt"}
        arrays: list[Any] = []
        try:
            if again and question.get("stops", self.stops) < self.stops:
                said = stopped
            else:
                with stoppable(_in_main_thread):
                    said, arrays = self._answer(question)
        except Exception as error:  # a notebook hides what a callback raises
            said = {"none": str(error)}
        except BaseException as error:  # interrupted: it may be asked again
            if not (again and isinstance(error, KeyboardInterrupt)):
                self.send(answer | {"lost": True})
                raise
            self.stops += 1
            said = stopped
        codings = [coding for coding, _ in arrays]
        self.send(answer | said | {"arrays": codings}, [data for _, data in arrays])

    def _set(self, question: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Change the target, the input or the edits; first follow the browser to where it is."""
        what = question["set"]
        if settings := question.get("settings"):
            self._on_move(settings)
        if what == "target":
            self._on_user("target", question.get("written", question.get("number")))
        elif what == "factor":  # of the channel that was on the screen
            at = {name: question[name] for name in ("layer", "channel")}
            if settings is None:
                self._on_move(at)
            self._on_edit("factor", (*at.values(), float(question["factor"])))
        elif what == "off":
            self._on_edit("off", (question["layer"], question["channels"]))
        elif what == "picture":
            part = tuple(question[name] for name in ("name", "part", "parts"))
            again = question.get("again", False)
            self._on_edit("picture", (*part, bytes(buffers[0]), again))
        elif what in ("paint", "erase"):
            pixels = np.frombuffer(buffers[0], np.uint8).reshape(question["shape"])
            self._on_edit(what, pixels.astype(bool))
        elif what == "again":
            self._on_edit("again", question["key"])
        elif what == "beside":
            self._on_edit("beside", (question["key"], question["sample"]))
        elif what == "drop":
            self._on_edit("drop", self._edits.get(question["key"]))
        else:
            self._on_edit(what, None)

    def _answer(self, question: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Return an answer's words and arrays."""
        if question["ask"] == "code" and self._code is not None:
            self._on_move(question["settings"])  # the browser may be ahead
            return {"code": self._code()}, []
        if question["ask"] == "here":
            return {}, []
        ask, now = question["ask"], self._explored()
        if ask == "prepare":
            cut_run(now)
            return {}, []
        # A walk leads to layers that were not captured, too: of these there is no view.
        if ask == "without":
            return without_payload(now, question), []
        if ask in ("why", "weights"):
            payload = reason_payload if ask == "why" else weights_payload
            said, arrays = payload(now, question)
            return said, [_coded(name, array) for name, array in arrays.items()]
        names = ("layer", "call", "sample", "depth", "place", "shown_after")
        wanted = {n: question[n] for n in names if n in question}
        if wanted.get("place"):
            wanted["place"] = tuple(wanted["place"])
        same = all(getattr(now.settings, name) == value for name, value in wanted.items())
        view = now.fitted() if same else for_layer(now, **wanted)
        if ask == "ablation":
            return self._ablated((now.edited or now).with_settings(**wanted).fitted())
        if ask == "flip":
            return _flipped((now.edited or now).with_settings(**wanted).fitted(), question), []
        if ask == "picture":
            said, pixels = picture_payload(view, question.get("of")) or (
                {},
                np.zeros((0, 0, 3), np.uint8),
            )
            return {"header": said}, [raw("pixels", pixels)]
        if ask == "scores":  # of an order, where the browser's values are not exact
            at = {name: question[name] for name in ("order", "reference_channel")}
            scores = view.with_settings(**at).order_scores
            return ({"none": ""}, []) if scores is None else ({}, [raw("scores", scores)])
        if ask == "layer":
            header, arrays = layer_payload(view)
            return {"header": header}, [_coded(name, array) for name, array in arrays.items()]
        if ask == "sides":
            sides = shown_sides(view.with_settings(heatmap=question["method"]))
            first, second = sides.heats
            return {"method": sides.method}, [raw("first", first), raw("second", second)]
        if ask == "answer":
            found = map_values(
                view.answer.maps[question["which"]], view.input_sample, question["channel"]
            )
            return {}, [_coded(name, array) for name, array in found.items()]
        if ask == "field":
            return field_payload(view), []
        if ask == "map":
            said, arrays = map_payload(now.with_settings(**wanted))
            program = {"program": (STATIC / "dagre.js").read_text(encoding="utf-8")}
            return said | program, [_coded(name, array) for name, array in arrays.items()]
        if ask == "value":
            place = question["channel"], question["row"], question["column"]
            tensors = {"maps": view.layer.maps, "gradients": view.layer.gradients}
            # As text: JSON has neither NaN nor infinity.
            return {n: str(float(v[place])) for n, v in tensors.items() if v is not None}, []
        if ask == "heatmap":
            view = view.with_settings(heatmap=question["method"])
            values = heatmap_payload(view)
            if values is None:
                return {"none": ""}, []
            return {"beyond": heatmap_note(view)}, [_coded("heat", values)]
        return {}, self._all_heatmaps(view.with_settings(heatmap=question["method"]))

    def _ablated(self, view: View) -> tuple[dict[str, Any], list[Any]]:
        """Work out a part of the drops of the score; return them when all are there."""
        share = view.ablate(PART)
        if share < 1 or view.ablation_scores is None:
            return {"share": share}, []
        order = channel_order(view.layer, SCORE_DROP, view.ablation_scores).astype(np.uint32)
        return {"share": share}, [raw("drops", view.ablation_scores), raw("order", order)]

    def _all_heatmaps(self, view: View) -> list[Any]:
        found = []
        for name in view.layers:
            values = heatmap_payload(for_layer(view, layer=name))
            if values is not None:
                found.append(_coded(name, values))
        return found


def _in_main_thread(function: Callable[[], None]) -> None:
    """Run a function in the kernel's main thread, once that is idle, where this is another."""
    loop = getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)
    if loop is not None and threading.current_thread() is not threading.main_thread():
        loop.add_callback(function)


def _flipped(view: View, question: dict[str, Any]) -> dict[str, Any]:
    """Switch some more channels off, in the browser's order; tell how far that is."""
    flip = view.flip(question["channels"])
    share = flip.work(PART)
    name = partial(class_name, class_names=view.session.class_names)
    return {
        "share": share,
        "curve": flip.curve,
        "answer": name(flip.answer),
        "flipped": None if flip.flipped is None else name(flip.flipped),
        "channels": flip.channels,
    }


def _settings(view: View) -> dict[str, Any]:
    """Return the settings as the browser would send them."""
    found = settings_payload(view)
    return found | {"place": found["place"] and list(found["place"])}


def _closed() -> View:
    raise RuntimeError("This explorer is closed.")


def _coded(name: str, array: np.ndarray) -> Any:
    return half(name, array) if array.nbytes > EXACT_BYTES else raw(name, array)
