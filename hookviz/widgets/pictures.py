"""The widget's pictures and tables: a frame becomes HTML, sent only where it changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import ipywidgets as widgets
import numpy as np

from ..draw import html, pieces
from ..draw.arrays import shown_size
from ..draw.colours import levels_png, map_png, on_dark, picture_png, scale_png
from ..draw.overlay import strip_box
from ..studies.survey.layer_survey import channel_words
from ..studies.survey.patches import SHOWN
from ..studies.survey.survey import Survey
from ..view.frame import Frame, ImagePanel, Panel
from ..view.settings import Settings


class Pictures:
    """The input, the maps, the mosaic, the strip, the numbers; where they stand others say.

    Attributes
    ----------
    input, map, gradient, heatmap, mosaic, mosaic_caption, strip, readings : ipywidgets.HTML
    marks : ipywidgets.HTML
        A style sheet: which tile is the chosen one, how many have room.
    """

    def __init__(self) -> None:
        names = ("input", "map", "gradient", "heatmap", "mosaic", "mosaic_caption", "strip")
        for name in (*names, "readings", "marks", "grid"):
            setattr(self, name, widgets.HTML())
        self.strip.add_class("hookviz-strip")
        self._css = f"hookviz-{uuid4().hex[:8]}"  # several explorers may be on one page
        self._shown: Frame | None = None
        self._drawn: tuple[Any, ...] = ()  # what the picture of the tiles depends on

    input: widgets.HTML
    map: widgets.HTML
    gradient: widgets.HTML
    heatmap: widgets.HTML
    mosaic: widgets.HTML
    mosaic_caption: widgets.HTML
    strip: widgets.HTML
    readings: widgets.HTML
    marks: widgets.HTML
    grid: widgets.HTML

    def show(self, frame: Frame) -> None:
        """Bring the page to this frame."""
        before = self._shown
        panels = {panel.role: panel for panel in frame.panels}
        for role in ("map", "gradient"):
            widget = getattr(self, role)
            visible(widget, role in panels)
            if role in panels:
                widget.value = panel_html(panels[role])
        visible(self.input, frame.input is not None)
        if frame.input is not None and (before is None or _changed(frame.input, before.input)):
            self.input.value = _sheet_html(frame.input)
        if "heatmap" in panels:
            self.heatmap.value = panel_html(panels["heatmap"])
        elif frame.overlay is None:
            self.heatmap.value = html.plain(f"no {frame.settings.heatmap} here: no gradient came")
        elif before is None or _changed(frame.overlay, before.overlay):
            self.heatmap.value = _sheet_html(frame.overlay)
        self._show_tiles(frame)
        self._show_strip(frame)
        self.readings.value = html.table(frame.readings)
        self._shown = frame

    def _show_tiles(self, frame: Frame) -> None:
        tiles = frame.tiles
        marks = html.mark(self._css, tiles.place)
        if frame.strip is not None and frame.strip.place is not None:
            marks += html.mark(f"{self._css}-strip", frame.strip.place)
        self.marks.value = marks
        self.mosaic_caption.value = html.plain(tiles.caption)
        drawn = tiles.mosaic, tiles.cmap, _shares(tiles.drops)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        png, count = levels_png(tiles.mosaic.levels, tiles.cmap), len(tiles.channels)
        boxes = [tiles.mosaic.box(place) for place in range(count)]
        names, dark = list(map(str, tiles.channels)), on_dark(png, tiles.cmap)
        self.mosaic.value = html.tiles(self._css, png, dark, boxes, names, tiles.alt, drawn[-1])
        aspect = tiles.mosaic.tile_height / tiles.mosaic.tile_width
        self.grid.value = html.columns(self._css, count, aspect)

    def _show_strip(self, frame: Frame) -> None:
        strip, before = frame.strip, None if self._shown is None else self._shown.strip
        visible(self.strip, strip is not None)
        if strip is None:
            return
        if before is not None and (strip.pixels is before.pixels, strip.alt) == (True, before.alt):
            return
        count = len(strip.names)
        boxes = [strip_box(place, count) for place in range(count)]
        css, names = f"{self._css}-strip", [name or "(model)" for name in strip.names]
        png = picture_png(strip.pixels)
        made = html.tiles(css, png, None, boxes, names, strip.alt)
        self.strip.value = html.plain(strip.caption) + made


class Tops(widgets.VBox):
    """What the shown channel answers to in a data set, below the explorer; nothing without one.

    Parameters
    ----------
    at : callable
        The explorer's settings as they are now; the canvas may be ahead of any frame.
    """

    def __init__(self, at: Callable[[], Settings]) -> None:
        self._at, self.survey = at, None
        self._facts, self._row = widgets.HTML(), widgets.HTML()
        self._whole = widgets.ToggleButton(description="whole pictures")
        self._whole.layout.width = "auto"
        self._whole.observe(lambda change: self.show(), "value")
        self._drawn: tuple[Any, ...] = ()  # what the row is of
        line = widgets.Box([self._facts, self._whole])
        super().__init__([line, self._row])
        self.layout.margin = "8px 0 0"
        line.add_class("hookviz-line")
        self._facts.add_class("hookviz-grow")

    survey: Survey | None

    def show(self, frame: Frame | None = None) -> None:
        """Bring the row to the explorer's channel."""
        visible(self, self.survey is not None)
        if self.survey is None:
            return
        at, whole = self._at(), self._whole.value
        now = id(self.survey), at.layer, at.call, at.channel, whole
        if now != self._drawn:
            self._drawn = now
            made = tops_html(self.survey, (at.layer, at.call), at.channel, whole)
            self._facts.value, self._row.value = made
            visible(self._whole, bool(self._row.value))

    def close(self) -> None:
        """Release the survey."""
        self.survey = None
        super().close()


def tops_html(survey: Survey, key: tuple[str, int], channel: int, whole: bool) -> tuple[str, str]:
    """What is known of the channel, or why nothing is; and a row of its top patches."""
    try:
        layer = survey[key]
        row = pieces.row(survey.patches(key, channel, SHOWN), whole=whole)
    except (KeyError, ValueError) as error:
        return html.plain(str(error.args[0])), ""
    told = f"in {survey.seen:,} inputs channel {channel} answers most to"
    return pieces.STYLE + pieces.facts(told, channel_words(layer, channel)), row


def _shares(drops: np.ndarray | None) -> list[float]:
    """How long the tiles' bars are: what the score loses, as a share of the most that it does."""
    if drops is None:
        return []
    most = float(np.abs(drops).max())
    return [float(drop) / most if most else 0.0 for drop in drops]


def _changed(sheet: ImagePanel, before: ImagePanel | None) -> bool:
    """Whether another picture is to be sent."""
    said = [(each.caption, each.alt, each.box, id(each.pixels)) for each in (sheet, before) if each]
    return len({*said}) > 1 or before is None


def _sheet_html(sheet: ImagePanel) -> str:
    below = ""
    if sheet.colours is not None:
        cmap, low, high = sheet.colours
        below = html.scale(scale_png(cmap), low, high)
    png, note = picture_png(sheet.pixels), sheet.note
    height, width = sheet.pixels.shape[:2]
    return html.picture(
        png,
        sheet.alt,
        sheet.name,
        detail=sheet.detail,
        note=note,
        below=below,
        smooth=True,
        wide=width > 3 * height,
        box=sheet.box,
    )


def panel_html(panel: Panel) -> str:
    """A map, with the colours' range below it."""
    values = shown_size(panel.values[None])[0]
    png, bar = map_png(values, panel.cmap, panel.low, panel.high), scale_png(panel.cmap)
    averaged = html.shown_at(panel.values.shape, values.shape)
    return html.picture(
        png,
        panel.alt,
        panel.name,
        detail=panel.detail,
        note="; ".join(filter(None, (panel.note, averaged))),
        below=html.scale(bar, panel.low, panel.high, on_dark(bar, panel.cmap)),
        dark=on_dark(png, panel.cmap),
        wide=len(panel.values) == 1,
        box=panel.box,
    )


def column(least: str, most: str) -> widgets.HTML:
    """A picture's place: as wide as there is room for, within bounds."""
    layout = widgets.Layout(flex=f"1 1 {least}", max_width=most, margin="4px 6px")
    return widgets.HTML(layout=layout)


def wrapping(parts: list[widgets.Widget]) -> widgets.HBox:
    """Parts beside each other, or below where there is no room."""
    layout = widgets.Layout(flex_flow="row wrap", align_items="flex-start")
    return widgets.HBox(parts, layout=layout)


def visible(widget: widgets.Widget, shown: bool) -> None:
    """Show a widget, or take it out of the page."""
    widget.layout.display = None if shown else "none"
