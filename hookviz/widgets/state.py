"""A widget whose settings are traits: checked when they are set, then drawn, on one path."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import traitlets

from ..draw.colours import NORMALIZATIONS
from ..export.code.inputs import Given
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..hooking.select import close_names
from ..run.progress import shown_by
from ..run.session import Run, Session
from ..run.target import Target
from ..view.build import build_frame
from ..view.check import check
from ..view.difference import seen
from ..view.frame import Frame
from ..view.layer import ABLATION, ORDERS
from ..view.memo import Memo
from ..view.settings import SETTINGS, VERSIONS, Settings, first_layer
from ..view.view import View
from .lifecycle import LiveWidget, close_tree


def offered(*calls: Callable[..., Any]) -> Any:
    """A `Canvas`, or None: without anywidget core widgets are enough for everything.

    ``HOOKVIZ_CANVAS=off`` in the environment does without it, too.
    """
    if os.environ.get("HOOKVIZ_CANVAS") == "off":
        return None
    try:
        from .canvas import Canvas
    except Exception:  # not installed, or broken in a way of its own
        return None
    return Canvas(*calls)


class SettingTraits(traitlets.HasTraits):
    """`Settings` as traits."""

    layer = traitlets.Unicode()
    channel = traitlets.Int(0)
    call = traitlets.Int(0)
    sample = traitlets.Int(0)
    depth = traitlets.Int(0)
    target = traitlets.Any(None, allow_none=True)
    cmap = traitlets.Unicode("auto")
    normalize = traitlets.Enum(NORMALIZATIONS, "channel")
    order = traitlets.Enum(ORDERS, "index")
    heatmap = traitlets.Unicode("gradcam")
    alpha = traitlets.Float(0.8, min=0.0, max=1.0)
    overlay = traitlets.Bool(True)
    strip = traitlets.Bool(False)
    place = traitlets.Any(None, allow_none=True)
    version = traitlets.Enum(VERSIONS, "edited")


class ViewWidget(LiveWidget, SettingTraits):
    """Shows a `View` in its children, each of which has a method ``show(frame)``.

    Its settings, `Settings`, are traits. A subclass has ``why_closed`` and ``_given``.

    Parameters
    ----------
    view : View
        Where to begin.
    run : callable
        Session and target -> its run.
    """

    _given: Given
    _quiet = True  # settings change without being checked or drawn

    def __init__(self, view: View, run: Callable[[Session, Target], Run]) -> None:
        super().__init__()
        self._view: View | None = view  # what is shown; None once it is closed
        self._run: Callable[[Session, Target], Run] | None = run
        self._frame: Frame | None = None
        self._go_to(view)
        self._quiet = False

    @property
    def frame(self) -> Frame:
        """All that is on the screen, in numbers and words."""
        if self._frame is None:  # the canvas has moved on without it
            self._frame = build_frame(self._now)
        return self._frame

    @property
    def _now(self) -> View:
        if self._view is None:
            raise RuntimeError(self.why_closed)
        return self._view

    @traitlets.validate(*SETTINGS)
    def _checked(self, proposal: dict) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if self._quiet:
            return value
        try:
            return check(name, value, self._now)
        except ValueError as error:
            raise error if name == "target" else traitlets.TraitError(str(error)) from None

    @traitlets.observe(*SETTINGS)
    @defer_interrupts
    def _changed(self, change: dict) -> None:
        if self._quiet:
            return
        name = change["name"]
        try:
            view = self._now.moved(**{name: change["new"]})
            if name == "target":
                view = self._ran(view.session, view.at, view.input_memo)
            if (name, change["new"], view.at.order) == ("version", "original", ABLATION):
                view = view.moved(order="index")  # ablation is known of the edited run
            if name == "order" and change["new"] != "index" and self.children:
                if change["new"] == ABLATION:
                    allow_interrupts(view.ablate)
                view = view.moved(channel=int(seen(view).channels[0]))
            self._go_to(view.fitted())
        except BaseException:  # the model raises, say, or a heatmap: back to what is still shown
            with self._quietly():
                setattr(self, name, change["old"])
            raise

    def notify_change(self, change: Any) -> None:
        """A setting that somebody who is linked cannot have is taken back."""
        before = getattr(self, "_view", None)
        try:
            super().notify_change(change)
        except BaseException:
            if before is not None and self._view not in (None, before) and not self._quiet:
                self._go_to(before)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self.__dict__ and not hasattr(type(self), name):
            near = close_names(name, (*SETTINGS, "image"))
            raise AttributeError(f"There is no setting {name!r}; {near}.")
        super().__setattr__(name, value)

    def _ran(
        self,
        session: Session,
        at: Settings,
        input_memo: Memo | None = None,
        original: View | None = None,
    ) -> View:
        """A view of a new run; if there are edits, of one with and one without, or `original`."""
        ask = self._run
        assert ask is not None  # not closed
        if original is None:
            plain = session.edited(())
            original = View(at, plain, allow_interrupts(ask, plain, at.target), input_memo)
        view = original.placed(at)
        if session.edits:
            run = allow_interrupts(ask, session, at.target)
            view = View(at, session, run, original.input_memo, original)
        return view if at.layer in view.cache else view.moved(layer=first_layer(view.cache))

    def _go_to(self, view: View) -> None:
        """The one path: bring settings, controls and pictures to this view."""
        frame = allow_interrupts(build_frame, view) if self.children else None
        self._settle(view, frame)
        self._show()

    def _settle(self, view: View, frame: Frame | None) -> None:
        self._view, self._frame = view, frame
        with self._quietly():
            for name in SETTINGS:
                setattr(self, name, getattr(view.at, name))

    @defer_interrupts
    def _follow(self, settings: dict[str, Any]) -> None:
        """Bring the settings to what the canvas shows; the frame is made when it is asked for."""
        view = self._now
        for name in ("order", "version"):  # what the browser cannot do by itself
            wanted = settings.get(name, getattr(view.at, name))
            if wanted != getattr(view.at, name) and (name == "version" or wanted == ABLATION):
                self._user_set(name, wanted)
                view = self._now
                settings = settings | {"channel": view.at.channel}  # the first of an order
        for name in SETTINGS:  # the layer says what is in range
            if name in settings and settings[name] != getattr(view.at, name):
                view = view.moved(**{name: check(name, settings[name], view)})
        self._settle(view.fitted(), None)
        for part in self.children:
            if part is not self._canvas:
                part.show(None)

    def _offer_canvas(self) -> None:
        """Let the browser draw, where its front end says that it can: then core widgets go."""
        calls = (self._user_set, self._follow, self._user_edit)
        self._canvas = offered(lambda: seen(self._now), *calls)
        if self._canvas is not None:
            self._canvas.observe(self._take_place, "alive")

    def _take_place(self, change: dict[str, Any]) -> None:
        if self.closed or self._canvas is None or self._canvas in self.children:
            return
        self._canvas.show(self.frame)  # settings may have been set since it was made
        drawn, *others = self.children
        self.set_trait("children", (self._canvas, *others))
        close_tree(drawn)

    def _show(self) -> None:
        for part in self.children:  # none once somebody who observes a setting has closed it
            part.show(self.frame)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _user_set(self, name: str, value: Any) -> None:
        """What a control does. An error is shown: a notebook hides what a callback raises."""
        note = ""
        try:
            with shown_by(self._say_share):
                setattr(self, name, value)
        except Exception as error:
            note = str(error)
        self.say(note)

    def _user_edit(self, what: str, value: Any) -> None:
        raise NotImplementedError  # only what can be edited has controls for it

    def say(self, note: str) -> None:
        """Say what a control could not do, until it can do something."""
        if note or (self._frame is not None and self._frame.note):
            self._frame = replace(self.frame, note=note)
            self._show()  # the control goes back to what is shown

    def _say_share(self, share: float | None) -> None:
        """Say how much is done of what a control asked for; a callback has no output for a bar."""
        self.say("" if share is None else f"{100 * share:.0f} % done; interrupt the kernel to stop")

    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        if self._canvas is not None and self._canvas not in self.children:
            close_tree(self._canvas)
        super().close()
        self._view = self._frame = self._run = self._canvas = None
