"""The top inputs of a survey, below either face of the explorer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from ..draw import html, mosaic
from ..studies.survey.layer import channel_words
from ..studies.survey.survey import SHOWN, Survey
from ..view.settings import Settings
from .lifecycle import visible


class TopInputs(widgets.VBox):
    """The inputs of a data set that excite the shown channel most; hidden without a survey.

    Parameters
    ----------
    at : callable
        Returns the explorer's present settings; the canvas may be ahead of any frame.
    """

    survey: Survey | None

    def __init__(self, at: Callable[[], Settings]) -> None:
        self._at, self.survey = at, None
        self._facts, self._row = widgets.HTML(), widgets.HTML()
        self._whole = widgets.ToggleButton(description="whole pictures")
        self._whole.layout.width = "auto"
        self._whole.observe(lambda change: self.show(), "value")
        self._drawn: tuple[Any, ...] = ()  # the key of the row
        line = widgets.Box([self._facts, self._whole])
        super().__init__([line, self._row])
        self.layout.margin = "8px 0 0"
        line.add_class("hookviz-line")
        self._facts.add_class("hookviz-grow")

    def show(self) -> None:
        """Update the row to the explorer's channel."""
        visible(self, self.survey is not None)
        if self.survey is None:
            return
        at, whole = self._at(), self._whole.value
        now = id(self.survey), at.layer, at.call, at.channel, whole
        if now != self._drawn:
            self._drawn = now
            self._facts.value, self._row.value = _tops_html(self.survey, at, whole)
            visible(self._whole, bool(self._row.value))

    def close(self) -> None:
        """Release the survey."""
        self.survey = None
        super().close()


def _tops_html(survey: Survey, at: Settings, whole: bool) -> tuple[str, str]:
    """Return facts about the channel, or the reason for having none; and its top patches."""
    key = at.layer, at.call
    try:
        layer = survey[key]
        row = mosaic.row(survey.patches(key, at.channel, SHOWN), whole=whole)
    except (KeyError, ValueError) as error:
        return html.plain(str(error.args[0])), ""
    message = f"Of {survey.seen:,} inputs, channel {at.channel} responds most to"
    return mosaic.STYLE + mosaic.facts(message, channel_words(layer, at.channel)), row
