"""Leaf through what the channels of a layer answer to."""

from __future__ import annotations

import base64
import io
from typing import Any

import ipywidgets as widgets
import traitlets

from ..draw import html, pieces
from ..draw.style import ROOT_CLASS
from ..hooking.select import close_names
from ..studies.survey.layer_survey import ORDERS, Key, channel_words, key_words
from ..studies.survey.patches import NO_PICTURES, SHOWN
from ..studies.survey.survey import Survey
from .lifecycle import LiveWidget, close_earlier, made
from .menus import ordinal

FOLLOWING = 4
"""How many channels are shown below the chosen one, smaller."""


def browse(survey: Survey, layer: Key | None = None, **settings: Any) -> ChannelBrowser:
    """Make the widget of `Survey.show`, which says what it takes."""
    if survey.dataset is None:
        raise ValueError(NO_PICTURES)
    keys = list(survey)
    if not keys:
        raise ValueError("This survey has no layers: there is nothing to leaf through.")
    for name in settings:
        if name not in ("channel", "order", "whole"):
            raise TypeError(f"There is no setting {name!r}: give channel, order or whole.")
    if layer is not None and layer not in survey:
        names = [key_words(key) for key in keys]
        raise ValueError(f"This survey has no layer {layer!r}; {close_names(str(layer), names)}.")
    return ChannelBrowser(survey, keys[-1] if layer is None else layer, **settings)


class ChannelBrowser(LiveWidget):
    """The widget that `browse` returns.

    Attributes
    ----------
    layer : str or (str, int)
        One of the survey's, or one of its runs.
    channel : int
        Brought into range when the layer changes.
    order : {"number", "largest value", "purity", "zeros"}
        The order in which the slider goes through the channels; purity is how many of the top
        inputs are of one class.
    whole : bool
        Whole pictures, with a box around what the place sees; else what it sees alone.
    closed : bool
    """

    layer = traitlets.Any()
    channel = traitlets.Int(0)
    order = traitlets.Enum(ORDERS, "number")
    whole = traitlets.Bool(False)

    why_closed = "This browser is closed: make a new one with survey.show()."

    def __init__(self, survey: Survey, layer: Key, **settings: Any) -> None:
        close_earlier()
        self._survey: Survey | None = survey
        self._quiet, self._orders = True, dict[Any, list[int]]()
        super().__init__()
        self.set_trait("layer", layer)
        named = [(key_words(key), key) for key in survey]
        self._menus = {
            "layer": widgets.Dropdown(options=named, value=layer, description="layer"),
            "order": widgets.Dropdown(options=list(ORDERS), description="order"),
            "whole": widgets.ToggleButton(description="whole pictures"),
        }
        self._slider = widgets.IntSlider(min=0, max=0, readout=False)
        self._slider.add_class("hookviz-by-channel")
        for control in (*self._menus.values(), self._slider):
            control.layout.width = "auto"
            control.style.description_width = "initial"
        self._place, self._rows = widgets.HTML(), widgets.HTML()
        title = widgets.HTML(html.title(f"Survey of {survey.mark.model}", _facts(survey)))
        line, of = widgets.Box([self._slider, self._place]), widgets.Box([*self._menus.values()])
        line.add_class("hookviz-line")
        of.add_class("hookviz-line")
        self.children = (title, of, line, self._rows)
        self.add_class(ROOT_CLASS)
        self._quiet = False
        try:
            for name in sorted(settings, key=("order", "channel", "whole").index):
                setattr(self, name, settings[name])
            self._draw()
        except BaseException:
            self.close()
            raise
        for name, menu in self._menus.items():
            menu.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self._slider.observe(lambda change: self._moved("place", change["new"]), "value")
        made(self)

    @property
    def survey(self) -> Survey:
        """What it leafs through."""
        if self._survey is None:
            raise RuntimeError(self.why_closed)
        return self._survey

    @property
    def channels(self) -> list[int]:
        """The layer's channels in their order."""
        now = self.layer, self.order
        if now not in self._orders:
            self._orders[now] = self.survey[self.layer].order(self.order)
        return self._orders[now]

    @traitlets.validate("layer", "channel")
    def _checked(self, proposal: dict) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if self.closed:
            raise traitlets.TraitError(self.why_closed)
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
                last = len(self.channels) - 1
                number = self.order == "number"
                self.channel = min(self.channel, last) if number else self.channels[0]
            self._draw()
        finally:
            self._quiet = False

    def _moved(self, name: str, value: Any) -> None:
        if self._quiet:
            return
        if name == "place":
            name, value = "channel", self.channels[value]
        setattr(self, name, value)

    def _draw(self) -> None:
        """Bring controls and rows to the settings."""
        before, self._quiet = self._quiet, True
        try:
            place = self.channels.index(self.channel)
            for name, menu in self._menus.items():
                menu.value = getattr(self, name)
            self._slider.description = "channel" if self.order == "number" else "rank"
            self._slider.max = len(self.channels) - 1
            self._slider.value = place
        finally:
            self._quiet = before
        said = f"{self.channel} of {len(self.channels)}"
        if self.order != "number":
            said = f"channel {self.channel}, {ordinal(place + 1)} of {len(self.channels)}"
        self._place.value = html.plain(said, "place")
        first, *others = self._shown(place)
        made = [pieces.facts(first[0], first[1]), pieces.row(first[2], whole=self.whole, side=128)]
        for name, words, row in others:
            made += [pieces.facts(name, words), pieces.row(row, whole=self.whole, side=76)]
        self._rows.value = pieces.STYLE + "".join(made)

    def _shown(self, place: int) -> list[tuple[str, list[str], list[pieces.Piece]]]:
        """The chosen channel and those that follow: name, facts, pictures."""
        layer = self.survey[self.layer]
        return [
            (
                f"channel {each}",
                channel_words(layer, each),
                self.survey.patches(self.layer, each, SHOWN),
            )
            for each in self.channels[place : place + 1 + FOLLOWING]
        ]

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Some rows as a small picture, for places without a kernel: notebooks stay small."""
        shown, held = self._shown(self.channels.index(self.channel))[:3], io.BytesIO()
        rows = [(" · ".join((name, *words)), row) for name, words, row in shown]
        pieces.sheet(rows, 64).quantize(96).save(held, "PNG", optimize=True)
        alt = f"What channels of {key_words(self.layer)} answer to: {'; '.join(w for w, _ in rows)}"
        png = base64.b64encode(held.getvalue()).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    def _page(self, max_bytes: float) -> str | None:
        return self.survey.to_html(layers=[self.layer], whole=self.whole, max_bytes=max_bytes)

    def close(self) -> None:
        """Release the survey and every widget that belongs to this one; may be called twice."""
        super().close()
        self._survey = None
        self._orders.clear()


def _facts(survey: Survey) -> list[str]:
    return [f"{len(survey)} layers", f"{survey.seen:,} inputs"]
