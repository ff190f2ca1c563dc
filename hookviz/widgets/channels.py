"""Pages in a frame: a browser of the inputs that excite a layer's channels, a trace's player."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from ..draw import mosaic
from ..hooking.select import close_names
from ..run.progress import Progress
from ..studies.survey.layer import Key, channel_words, key_words
from ..studies.survey.survey import NO_PICTURES, SHOWN, Start, Survey, write_page
from ..studies.trace.events import Event
from ..studies.trace.trace import write_page as write_trace
from .lifecycle import FramedPage

STILL = 3
"""The number of channels in the still picture."""


def browse(
    survey: Survey, layer: Key | None, channel: int | None, order: str, whole: bool
) -> ChannelBrowser:
    """Make the widget of `Survey.show`; see there for the arguments."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = list(survey)
    if not keys:
        raise ValueError("This survey has no layers to show.")
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
    return ChannelBrowser(survey, Start(layer, channel, order), whole)


class ChannelBrowser(FramedPage):
    """The widget that `Survey.show` returns: layers, orders and words are controls of the page.

    Attributes
    ----------
    closed : bool
    """

    closed_message = "This browser is closed: make a new one with survey.show()."

    def __init__(self, survey: Survey, start: Start, whole: bool) -> None:
        self._shown: tuple[Survey, Start, bool] | None = survey, start, whole
        super().__init__()

    def _rows(self) -> dict[int, str]:
        """Return the channels of the still picture, each with its description."""
        assert self._shown is not None
        survey, (key, channel, order), _ = self._shown
        layer = survey[key]
        channels = layer.order(order)
        place = channels.index(channel)
        return {
            number: " · ".join((f"channel {number}", *channel_words(layer, number)))
            for number in channels[place : place + STILL]
        }

    def _alt(self) -> str:
        assert self._shown is not None
        key = key_words(self._shown[1].layer)
        return f"Pictures that excite channels of {key}: {'; '.join(self._rows().values())}"

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return some rows as a small picture, for places without a kernel."""
        assert self._shown is not None
        survey, start, _ = self._shown
        rows = [(words, survey.patches(start.layer, n, SHOWN)) for n, words in self._rows().items()]
        file, alt = io.BytesIO(), self._alt()
        mosaic.sheet(rows, 64).quantize(96).save(file, "PNG", optimize=True)
        png = base64.b64encode(file.getvalue()).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    def _page(self, max_bytes: float) -> str:
        assert self._shown is not None
        survey, start, whole = self._shown

        def written(layers: list[Key] | None) -> str:
            with Progress() as bar:
                return write_page(survey, layers, whole, max_bytes, None, bar.update, start)

        try:
            return written(None)
        except ValueError:  # too many channels for a notebook
            return written([start.layer])

    def close(self) -> None:
        """Release the survey and every widget that belongs to this one; may be called twice."""
        super().close()
        self._shown = None


class Player(FramedPage):
    """A timeline, a play button and a module tree over events; `Trace.show` makes it.

    The timeline has a tick for each event. Menus and words select events, and keys and play step
    through these. Choosing a module in the tree goes to its next event. All this happens in the
    browser.

    Parameters
    ----------
    events : sequence of Event
        At least one.
    tree : sequence of (str, str)
        Name and type of every module, as ``named_modules()`` has them.
    title : str

    Attributes
    ----------
    closed : bool

    Raises
    ------
    ValueError
        ``events`` is empty.
    """

    closed_message = "This player is closed: call the trace's show() again."

    def __init__(
        self, events: Sequence[Event], tree: Sequence[tuple[str, str]], title: str
    ) -> None:
        if not len(events):
            raise ValueError("The part of the trace is empty: choose a longer one.")
        self._events, self._tree, self._title = events, tree, title
        super().__init__()

    def _alt(self) -> str:
        return self._title

    def _page(self, max_bytes: float) -> str:
        return write_trace(self._events, self._title, self._tree, max_bytes, None)

    def close(self) -> None:
        """Release every widget that belongs to this one; may be called twice."""
        super().close()
        self._events = ()
