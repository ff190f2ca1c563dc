"""Pages in a frame: a browser of the inputs that excite a layer's channels, a trace's player."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import ipywidgets as widgets

from ..draw import mosaic
from ..draw.document import IN_NOTEBOOK, in_frame
from ..draw.html import ROOT_CLASS
from ..hooking.select import close_names
from ..run.progress import Progress
from ..studies.survey.layer import Key, channel_words, key_words
from ..studies.survey.survey import NO_PICTURES, SHOWN, Start, Survey, shown_layers, write_page
from ..studies.trace.events import Event
from ..studies.trace.trace import write_page as write_trace
from .lifecycle import LiveWidget

STILL = 3
"""The number of channels in the still picture."""


class Page(LiveWidget):
    """The widget that ``show()`` of a survey and of a trace returns; its controls are the page's.

    Parameters
    ----------
    write : callable
        Most bytes -> the page.
    alt : str
        A description of one line.
    still : callable, optional
        Returns a PNG for places without a kernel.

    Attributes
    ----------
    closed : bool
    """

    closed_message = "This page is closed: call show() again."

    def __init__(
        self, write: Callable[[float], str], alt: str, still: Callable[[], bytes] | None = None
    ) -> None:
        super().__init__()
        self._write: Callable[[float], str] | None = write
        self._words, self._still = alt, still
        try:
            frame = in_frame(write(IN_NOTEBOOK), alt)
        except BaseException:
            self.close()
            raise
        self.children = (widgets.HTML(frame),)
        self.add_class(ROOT_CLASS)

    def _alt(self) -> str:
        return self._words

    def _page(self, max_bytes: float) -> str | None:
        return None if self._write is None else self._write(max_bytes)

    def _png(self) -> bytes | None:
        return self._still and self._still()

    def close(self) -> None:
        """Release the page and its widgets; may be called twice."""
        super().close()
        self._write = self._still = None


def browse(survey: Survey, layer: Key | None, channel: int | None, order: str, whole: bool) -> Page:
    """Make the widget of `Survey.show`; see there for the arguments."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = shown_layers(survey)
    if layer is None:
        layer = keys[-1]
    elif layer not in survey:
        names = [key_words(key) for key in keys]
        raise ValueError(f"This survey has no layer {layer!r}; {close_names(str(layer), names)}.")
    channels = survey[layer].order(order)
    if channel is None:
        channel = channels[0]
    elif channel not in channels:
        last = len(channels) - 1
        raise ValueError(
            f"channel={channel} is not in layer {key_words(layer)!r}: give 0 to {last}."
        )
    start, key = Start(layer, channel, order), layer
    place = channels.index(channel)
    rows = {
        " · ".join((f"channel {n}", *channel_words(survey[key], n))): n
        for n in channels[place : place + STILL]
    }

    def write(max_bytes: float) -> str:
        with Progress() as bar:
            try:
                return write_page(survey, None, whole, max_bytes, None, bar.update, start)
            except ValueError:  # too many channels for a notebook
                return write_page(survey, [key], whole, max_bytes, None, bar.update, start)

    def still() -> bytes:
        pieces = [(words, survey.patches(key, n, SHOWN)) for words, n in rows.items()]
        file = io.BytesIO()
        mosaic.sheet(pieces, 64).quantize(96).save(file, "PNG", optimize=True)
        return file.getvalue()

    alt = f"Pictures that excite channels of {key_words(key)}: {'; '.join(rows)}"
    return Page(write, alt, still)


def play(events: Sequence[Event], tree: Sequence[tuple[str, str]], title: str) -> Page:
    """Make the widget of `Trace.show`: a timeline, a play button and a module tree over events."""
    return Page(lambda max_bytes: write_trace(events, title, tree, max_bytes, None), title)
