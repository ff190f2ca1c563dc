"""The faces that show an explorer's view, and what they ask it to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..export.figure import still_png
from ..hooking.edit import LayerEdit
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..run.progress import shown_by
from ..run.session import alone
from ..view.build import build_frame
from ..view.frame import Frame
from ..view.heatmaps import heatmap_of
from ..view.layer import SCORE_DROP
from ..view.maps import counts_of
from ..view.messages import Thumbnail
from ..view.runs import displayed_view
from ..view.view import View
from ..view.written import at_browsed
from .below import TopInputs
from .gallery import Gallery
from .lifecycle import close_tree
from .plain import PlainFace
from .setting_traits import SettingsWidget


class FacedWidget(SettingsWidget):
    """A widget that shows its view by the plain face, or by the canvas where that can run."""

    _still: tuple[Frame, bytes] | None = None  # the last frame and its picture
    _face: PlainFace | None = None
    gallery: Gallery = Gallery()
    _note = ""  # the reason why a control failed, or progress
    _frame: Frame | None = None  # None until someone reads it: the canvas draws without
    _channels: dict[str, int]  # by layer: the channel that was shown last
    _above: tuple[Any, ...] = ()  # widgets above the face
    _tops: TopInputs

    @property
    def frame(self) -> Frame:
        """Everything on the screen, in numbers and words."""
        if self._frame is None:  # the canvas draws without it
            self._frame = replace(build_frame(self._now), note=self._note)
        return self._frame

    def frame_of(self, run: str) -> Frame:
        """Return the frame of the same view with another ``shown_run``."""
        return build_frame(self._now.with_settings(shown_run=run))

    def _go_to(self, view: View) -> None:
        """Update settings, controls and pictures to this view."""
        frame = None
        if self.children and self._face is not None:
            frame = allow_interrupts(build_frame, view)
        elif self.children:  # the browser draws; what a user's own code may break is tried here
            shown = displayed_view(view)
            if view is self._now or view.settings.heatmap != self._now.settings.heatmap:
                allow_interrupts(heatmap_of, shown)
            allow_interrupts(counts_of, shown)
        self._set_view(view, frame)
        self._show()

    def _set_view(self, view: View, frame: Frame | None) -> None:
        self._frame, self._note, self._still = frame, "", None
        self._take_settings(view)
        self._channels[view.settings.layer] = view.settings.channel

    def _show(self) -> None:
        if not self.children:  # an observer has closed it
            return
        if self._face is None:
            self._canvas.show(self._note)
        else:
            self._face.show(self.frame)
        self._tops.show()

    def say(self, note: str) -> None:
        """Show a note until the next use of a control; an empty note removes it."""
        if note or self._note:
            self._note = note
            self._frame = self._frame and replace(self._frame, note=note)
            self._show()  # controls go back to the shown settings

    def _say_share(self, share: float | None) -> None:
        """Show the progress of a control's work; a callback has no output for a bar."""
        self.say("" if share is None else f"{100 * share:.0f} % done; interrupt the kernel to stop")

    def _try(self, act: Callable[[], object]) -> None:
        """Do what a control asks for; show errors, since a notebook hides those of callbacks."""
        before, note = self._now, ""
        try:
            with shown_by(self._say_share):
                act()
        except Exception as error:
            note = str(error)
        if note or self._now is before:  # a change has its own note, or none
            self.say(note)

    def _on_control(self, name: str, value: Any) -> None:
        self._try(lambda: setattr(self, name, value))

    @alone
    def _take_place(self, change: dict[str, Any]) -> None:
        """Replace the plain face by the canvas, now that the browser can draw it."""
        if self.closed or self._canvas is None or self._face is None:
            return
        self._canvas.show(self._note)  # settings may have changed since it was made
        self.set_trait("children", (*self._above, self._canvas, self._tops))
        close_tree(self._face)
        self._face = None

    def thumbnails(self) -> list[Thumbnail]:
        """Return small pictures of the inputs."""
        return self.gallery.thumbnails(self._given.image, self.inputs)

    @alone
    @defer_interrupts
    def follow(self, settings: Mapping[str, Any]) -> None:
        """Take over the settings of the browser, which has moved by itself."""
        view, had_note = self._now, bool(self._note)
        for name in ("order", "shown_run"):  # the browser cannot do these by itself
            wanted = settings.get(name, getattr(view.settings, name))
            if wanted == getattr(view.settings, name):
                continue
            layer = settings.get("layer", view.settings.layer)
            known = wanted != SCORE_DROP or layer in view.drops
            if name == "order" and known:
                continue
            self._on_control(name, wanted)
            view = self._now
            settings = {**settings, "channel": view.settings.channel}  # the first of an order
        self._set_view(at_browsed(view, settings), None)
        if had_note and self._canvas is not None:
            self._canvas.note = ""
        self._tops.show()

    def edit_named(self, key: int) -> LayerEdit | None:
        """Return the edit that the browser names by a number."""
        return None if self._canvas is None else self._canvas.edit_named(key)

    def _alt(self) -> str:
        return self.frame.description

    def _png(self) -> bytes:
        return self._still_png(self.frame)

    def _still_png(self, frame: Frame) -> bytes:
        """Return a frame's still picture, composed once."""
        if self._still is None or self._still[0] is not frame:
            self._still = frame, still_png(frame)
        return self._still[1]
