"""Pages in a frame: a browser of the inputs that excite a layer's channels, a trace's player."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import traitlets

from ..draw import mosaic
from ..hooking.select import close_names
from ..run.progress import Progress
from ..studies.survey.layer import ORDERS, Key, channel_words, key_words
from ..studies.survey.survey import NO_PICTURES, SHOWN, Start, Survey, channel_of, write_page
from ..studies.trace.events import Event
from ..studies.trace.trace import still_of
from ..studies.trace.trace import write_page as write_trace
from .lifecycle import FramedPage

STILL = 3
"""The number of channels in the still picture."""


def browse(survey: Survey, layer: Key | None = None, **settings: Any) -> ChannelBrowser:
    """Make the widget of `Survey.show`; see there for the arguments."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = list(survey)
    if not keys:
        raise ValueError("This survey has no layers to show.")
    for name in settings:
        if name not in ("channel", "order", "whole"):
            raise TypeError(f"Unknown setting {name!r}: give channel, order or whole.")
    if layer is not None and layer not in survey:
        names = [key_words(key) for key in keys]
        raise ValueError(f"This survey has no layer {layer!r}; {close_names(str(layer), names)}.")
    return ChannelBrowser(survey, keys[-1] if layer is None else layer, **settings)


class ChannelBrowser(FramedPage):
    """The widget that `Survey.show` returns: layers, orders and words are controls of the page.

    Attributes
    ----------
    layer : str or (str, int)
        The layer, or one of its calls, at which the page begins, as for the next two.
    channel : int
        Brought into range when the layer changes.
    order : {"number", "largest value", "purity", "zeros"}
        The order of the channels; purity is the fraction of the top inputs of one class.
    whole : bool
        Whole pictures, with a box around the position's receptive field; else the box alone.
    closed : bool
    """

    layer = traitlets.Any()
    channel = traitlets.Int(0)
    order = traitlets.Unicode("number")
    whole = traitlets.Bool(False)

    closed_message = "This browser is closed: make a new one with survey.show()."

    def __init__(self, survey: Survey, layer: Key, **settings: Any) -> None:
        self._survey: Survey | None = survey
        self._packed: Any = cache(partial(channel_of, survey))  # each move writes the page again
        self._quiet = True
        super().__init__()
        try:
            self.set_trait("layer", layer)
            for name in sorted(settings, key=("order", "channel", "whole").index):
                setattr(self, name, settings[name])
            if "channel" not in settings:
                self.channel = self.channels[0]
            self._quiet = False
            self._draw()
        except BaseException:
            self.close()
            raise

    @property
    def survey(self) -> Survey:
        """The survey that it shows."""
        if self._survey is None:
            raise RuntimeError(self.closed_message)
        return self._survey

    @property
    def channels(self) -> list[int]:
        """The layer's channels in their order."""
        return self.survey[self.layer].order(self.order)

    @traitlets.validate("order")
    def _known(self, proposal: dict) -> Any:
        if (order := proposal["value"]) not in ORDERS:
            near = close_names(str(order), ORDERS)
            raise traitlets.TraitError(f"order={order!r} is unknown; {near}.")
        return order

    @traitlets.validate("layer", "channel")
    def _checked(self, proposal: dict) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if self.closed:
            raise traitlets.TraitError(self.closed_message)
        if name == "layer":
            try:
                self.survey[value]
            except KeyError as error:
                raise traitlets.TraitError(str(error.args[0])) from None
        elif not 0 <= value < len(self.survey[self.layer]):
            last = len(self.survey[self.layer]) - 1
            raise traitlets.TraitError(
                f"channel={value} is not in layer {key_words(self.layer)!r}: give 0 to {last}."
            )
        return value

    @traitlets.observe("layer", "channel", "order", "whole")
    def _changed(self, change: dict) -> None:
        if self._quiet:
            return
        self._quiet = True
        try:
            if change["name"] in ("layer", "order"):
                number, last = self.order == "number", len(self.channels) - 1
                self.channel = min(self.channel, last) if number else self.channels[0]
        finally:
            self._quiet = False
        self._draw()

    def _shown(self) -> dict[int, str]:
        """Return the channels of the still picture, each with its description."""
        place, layer = self.channels.index(self.channel), self.survey[self.layer]
        return {
            channel: " · ".join((f"channel {channel}", *channel_words(layer, channel)))
            for channel in self.channels[place : place + STILL]
        }

    def _alt(self) -> str:
        words = "; ".join(self._shown().values())
        return f"Pictures that excite channels of {key_words(self.layer)}: {words}"

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return some rows as a small picture, for places without a kernel."""
        shown = self._shown()
        rows = [(words, self.survey.patches(self.layer, n, SHOWN)) for n, words in shown.items()]
        held, alt = io.BytesIO(), self._alt()
        mosaic.sheet(rows, 64).quantize(96).save(held, "PNG", optimize=True)
        png = base64.b64encode(held.getvalue()).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    def _page(self, max_bytes: float) -> str:
        start = Start(self.layer, self.channel, self.order)

        def written(layers: list[Key] | None) -> str:
            with Progress() as bar:
                how = self.whole, max_bytes, None, bar.update, start, self._packed
                return write_page(self.survey, layers, *how)

        try:
            return written(None)
        except ValueError:  # too many channels for a notebook
            return written([self.layer])

    def close(self) -> None:
        """Release the survey and every widget that belongs to this one; may be called twice."""
        super().close()
        self._survey = self._packed = None


class Player(FramedPage):
    """A timeline, a play button and a module tree over events; `Trace.show` makes it.

    The timeline has a tick for each event. Menus and words select events, and keys and play step
    through these. Choosing a module in the tree goes to its next event. All this happens in the
    browser; ``event`` is where it begins.

    Parameters
    ----------
    events : sequence of Event
        At least one.
    tree : sequence of (str, str)
        Name and type of every module, as ``named_modules()`` has them.
    title : str

    Attributes
    ----------
    event : int
        The first shown event, by its index in ``events``; may be set.
    closed : bool

    Raises
    ------
    ValueError
        ``events`` is empty.
    traitlets.TraitError
        ``event`` out of range.
    """

    event = traitlets.Int(0)
    closed_message = "This player is closed: call the trace's show() again."

    def __init__(
        self, events: Sequence[Event], tree: Sequence[tuple[str, str]], title: str
    ) -> None:
        if not len(events):
            raise ValueError("The part of the trace is empty: choose a longer one.")
        self._events, self._tree, self._title = events, tree, title
        self._still = still_of(events)  # each move writes the page again
        super().__init__()
        self._draw()

    def _alt(self) -> str:
        return self._title

    @traitlets.validate("event")
    def _in_range(self, proposal: dict) -> int:
        place = proposal["value"]
        if self.closed:
            raise traitlets.TraitError(self.closed_message)
        if not 0 <= place < len(self._events):
            raise traitlets.TraitError(
                f"event={place} is not in this trace: give 0 to {len(self._events) - 1}."
            )
        return place

    @traitlets.observe("event")
    def _moved(self, change: dict) -> None:
        self._draw()

    def _page(self, max_bytes: float) -> str:
        given = self._events, self._title, self._tree, max_bytes, None
        return write_trace(*given, self.event, self._still)

    def close(self) -> None:
        """Release every widget that belongs to this one; may be called twice."""
        super().close()
        self._events, self._still = (), ""
