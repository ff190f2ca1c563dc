"""The explorer drawn by the browser, which gets each layer's numbers once."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anywidget
import numpy as np
import traitlets
from IPython import get_ipython

from ..draw.document import script, style
from ..export.packing import Packed, half, raw
from ..files import with_texts, without_half_characters
from ..hooking.edit import LayerEdit
from ..hooking.interrupts import stoppable
from ..run.inputs import ModelInput
from ..run.origins import picture_tensors
from ..run.session import alone
from ..view import messages as m
from ..view.payload import facts_payload, overview_payload, settings_payload
from ..view.replies import reply
from ..view.source import input_sample
from ..view.view import View
from .requests import Explored

HOW_TO_ASK_AGAIN: dict[type[m.Question], str] = {
    m.FieldQuestion: "Click another place",
    m.PrepareQuestion: "Press w twice",
    m.WhyQuestion: "Press w twice",
    m.MapQuestion: "Press m twice",
    m.WeightsQuestion: 'Press "weights" twice',
    m.FeatureQuestion: 'Press "what excites it?"',
    m.WithoutQuestion: 'Press "switch these off"',
}
"""The questions that an interrupt may end, and how each is asked again."""

EXACT_BYTES = 8_000_000
"""Larger maps are sent in half precision; the browser asks for single exact values."""

Answered = tuple[dict[str, Any], list[bytes]]
"""The message that answers a question, and its arrays."""


class Canvas(anywidget.AnyWidget):
    """Shows an explorer's view in the browser.

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
    overview = traitlets.Dict().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    pictures: Any = traitlets.List().tag(sync=True)
    moved = traitlets.Dict().tag(sync=True)
    seen = traitlets.Int(0).tag(sync=True)
    stops = traitlets.Int(0).tag(sync=True)

    def __init__(self, explorer: Explored) -> None:
        self._explorer: Explored | None = explorer
        self._latest: tuple[Any, ...] = ()  # what the facts were computed from
        self._described: tuple[Any, ...] = ()  # what the overview was computed from
        self._run = 0
        self._coming: Sequence[m.Question] = ()  # those that came with a request
        self._edits: dict[int, LayerEdit] = {}  # all that the browser may name, by a number
        self._keys = itertools.count()
        self._inputs: ModelInput | None = None
        self._replaced: dict[str, str] = {}  # what the browser calls a name, and the name
        self._handling: int | None = None  # the count of the browser's change that is handled
        super().__init__(token=uuid4().hex, **self._traits_now(), **self._overview_now())
        self.observe(self._moved, "settings")
        self.on_msg(self._received)

    # To the browser

    def show(self, note: str) -> None:
        """Update the browser to the explorer's present view, with a note."""
        traits = self._traits_now()
        if "facts" in traits and self._handling is not None:
            traits["seen"] = self._handling  # the browser draws at once, not after another message
        pictures = m.as_json(self._explored.thumbnails())
        self._set_at_once(traits | self._sent({"note": note, "pictures": pictures}))
        if self._handling is None:
            self._set_traits(self._overview_now())

    def show_first(self) -> None:
        """Answer the questions that came with a request whose run has the shown layer already.

        Whatever the answers need beyond that raises an error; then nothing is sent.
        """
        if not self._coming or self._handling is None:
            return
        self._answer_coming(self._run + 1, self._answered)
        self._coming = ()
        self._set_at_once(self._traits_now() | {"seen": self._handling})

    @property
    def _explored(self) -> Explored:
        if self._explorer is None:
            raise RuntimeError("This explorer is closed.")
        return self._explorer

    def _set_traits(self, traits: dict[str, Any]) -> None:
        for name, value in traits.items():
            setattr(self, name, value)

    def _set_at_once(self, traits: dict[str, Any]) -> None:
        """Set traits in one message, without following the settings."""
        # They are sent when they notify, so that this must come first.
        with self.hold_sync(), self._unobserved(), self.hold_trait_notifications():
            self._set_traits(traits)

    def _traits_now(self) -> dict[str, Any]:
        """Return the settings and, after a change of run, sample or palette, the facts."""
        view = self._explored.displayed()
        traits = {"settings": m.as_json(settings_payload(view))}
        # If one of these changes, the numbers of the run change. An edit changes the edited run
        # only, also while the original run is shown.
        edited = view.edited or view
        run = (view.run, edited.run, view.which, len(view.drops), view.settings.target)
        now = (*run, input_sample(view), view.settings.cmap)
        if now != self._latest:
            if self._latest[: len(run)] != run:
                self._run += 1
                if self._coming:
                    self._answer_coming(self._run, self._replied)
            traits["facts"] = self._facts(view)
            self._latest = now  # not before: it may raise
        return self._sent(traits)

    def _overview_now(self) -> dict[str, Any]:
        """Return the overview after a change of the facts.

        It examines every tensor of the run, which may take as long as all that the first pictures
        need. So the browser, which shares the machine, draws those before it asks for more.
        """
        if self._described == self._latest:
            return {}
        # A notebook's kernel sends from another thread, which would have to wait for this one.
        with suppress(Exception):  # any object may stand in for stdout
            sys.stdout.flush()
        overview = overview_payload(self._explored.displayed())
        self._described = self._latest  # not before: it may be interrupted
        return self._sent({"overview": overview})

    def _sent(self, value: Any) -> Any:
        """Replace lone surrogates in all texts, which no message of a kernel can hold."""
        return with_texts(value, self._sent_text)

    def _sent_text(self, text: str) -> str:
        sent = without_half_characters(text)
        if sent != text:
            self._replaced[sent] = text
        return sent

    def _meant(self, value: Any) -> Any:
        """Return what the browser sends, with the names of layers as they are here."""
        if not self._replaced:
            return value
        return with_texts(value, lambda text: self._replaced.get(text, text))

    def _facts(self, view: View) -> dict[str, Any]:
        session = (view.edited or view).session
        inputs = session.inputs
        if inputs is not self._inputs:  # edits of the input belong to the picture and go with it
            self._edits = {key: each for key, each in self._edits.items() if not each.of_input}
            self._inputs = inputs
        facts = facts_payload(view) | {
            "run": self._run,
            "blind": not picture_tensors(inputs),
        }
        for edit, each in zip(facts["edits"], session.edits, strict=True):
            edit["key"] = self._key_of(each)
        return facts

    def _key_of(self, edit: LayerEdit) -> int:
        """Return the number by which the browser names an edit; it never means another one."""
        known = (key for key, each in self._edits.items() if each is edit)
        key = next(known, None)
        if key is None:
            key = next(self._keys)
        self._edits[key] = edit
        return key

    def edit_named(self, key: int) -> LayerEdit | None:
        """Return the edit that the browser names by a number."""
        return self._edits.get(key)

    # From the browser

    @alone
    def _moved(self, change: dict[str, Any]) -> None:
        """Follow the browser, unless a request that was sent later has told of it before."""
        settings, count = self._meant(change["new"]), self.moved.get("count", self.seen)
        if count > self.seen:  # what Python has set meanwhile stays
            settings = {name: settings[name] for name in self.moved["names"] if name in settings}
        elif count < self.seen:
            settings = {}
        self._handle(count, lambda: self._explored.follow(settings))

    def _handle(self, count: int, do: Callable[[], None]) -> None:
        """Do what the browser asks, and tell it so, whatever comes of it."""
        self._handling = seen = max(self.seen, count)
        try:
            do()
        finally:
            self._handling = None
            if not self.closed:
                self._set_at_once(self._traits_now() | {"seen": seen})

    @contextmanager
    def _unobserved(self) -> Iterator[None]:
        """Set the settings without following them."""
        self.unobserve(self._moved, "settings")
        try:
            yield
        finally:
            self.observe(self._moved, "settings")

    @alone
    def _received(self, _: Any, message: dict[str, Any], data: Sequence[Any]) -> None:
        message = self._meant(message)
        if "set" in message:
            request = m.read_request(message)
            self._coming = request.questions
            try:
                self._handle(request.moved, lambda: self._explored.handle(request, data))
            finally:
                self._coming = ()
            return
        self.send(*self._replied(m.read_question(message)))
        self._set_traits(self._overview_now())

    def _answer_coming(self, run: int, replied: Callable[[m.Question], Answered]) -> None:
        """Answer the questions that came with the request for a run, in one message."""
        answered: list[Answered] = []
        # An interrupt ends the answers and not the request: the browser asks for those it lacks.
        with suppress(KeyboardInterrupt):
            for question in self._coming:
                answered.append(replied(replace(question, key=f"{run} {question.key}")))
        if answered:
            messages, arrays = zip(*answered, strict=True)
            self.send({"answers": list(messages)}, list(itertools.chain.from_iterable(arrays)))

    def _replied(self, question: m.Question) -> Answered:
        """Return the message that answers a question, and its arrays."""
        again = HOW_TO_ASK_AGAIN.get(type(question))
        arrays: dict[str, np.ndarray] = {}
        try:
            if again and question.stops is not None and question.stops < self.stops:
                answer = _stopped(question, again)
            else:
                with stoppable(_in_main_thread):
                    answer, arrays = self._answer(question)
        except Exception as error:  # a notebook hides what a callback raises
            answer = m.Reply(none=str(error))
        except BaseException as error:  # interrupted: it may be asked again
            if again is None or not isinstance(error, KeyboardInterrupt):
                self.send(*self._packed(m.Reply(lost=True), question, {}))
                raise
            self.stops += 1
            answer = _stopped(question, again)
        return self._packed(answer, question, arrays)

    def _answered(self, question: m.Question) -> Answered:
        """Return the message that answers a question, and its arrays; raise what goes wrong."""
        answer, arrays = self._answer(question)
        return self._packed(answer, question, arrays)

    def _answer(self, question: m.Question) -> tuple[m.Reply, dict[str, np.ndarray]]:
        if isinstance(question, m.CodeQuestion):
            self._explored.follow(question.settings)  # the browser may be ahead
            return m.CodeAnswer(code=self._explored.code()), {}
        if isinstance(question, m.FileQuestion):
            self._explored.follow(question.settings)
            return m.Reply(), {
                "file": np.frombuffer(self._explored.file(question.ending), np.uint8)
            }
        return reply(self._explored.displayed(), question)

    def _packed(
        self, answer: m.Reply, question: m.Question, arrays: dict[str, np.ndarray]
    ) -> Answered:
        packed = [_encoded(*array) for array in arrays.items()]
        codings = [coding for coding, _ in packed]
        word = m.word_of(type(question))
        addressed = replace(answer, ask=word, key=question.key, arrays=codings)
        return self._sent(m.as_json(addressed)), [data for _, data in packed]

    def close(self) -> None:
        """Release all references to the explorer."""
        self.closed, self._explorer, self._edits, self._inputs = True, None, {}, None
        self.unobserve_all()
        self._latest = self._described = ()
        super().close()


def _stopped(question: m.Question, again: str) -> m.Reply:
    """Return the answer to a question that an interrupt has ended."""
    if isinstance(question, m.FieldQuestion):
        return m.FieldAnswer(status="unknown", why="stopped by an interrupt")
    return m.Reply(none=f"Stopped. {again} to ask again.", stopped=True)


def _in_main_thread(function: Callable[[], None]) -> None:
    """Run a function in the kernel's main thread, once that is idle, where this is another."""
    loop = getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)
    if loop is not None and threading.current_thread() is not threading.main_thread():
        loop.add_callback(function)


def _encoded(name: str, values: np.ndarray) -> Packed:
    large = values.nbytes > EXACT_BYTES and values.dtype.kind == "f"
    return (half if large else raw)(name, values)
