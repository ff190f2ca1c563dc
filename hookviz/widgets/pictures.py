"""The widget's pictures and words: a frame becomes HTML, sent only where it changed."""

from __future__ import annotations

from itertools import zip_longest
from uuid import uuid4

import ipywidgets as widgets

from ..render import html
from ..render.arrays import shown_size
from ..render.colours import levels_png, map_png, picture_png, scale_png
from ..view.frame import Frame, Panel, Sheet

_PANELS = 3  # the feature map, the gradient, and a heatmap that stands alone


class Heading(widgets.VBox):
    """Who is explored, what a control could not do, and the predictions."""

    def __init__(self) -> None:
        super().__init__([widgets.HTML() for _ in range(3)])

    def show(self, frame: Frame) -> None:
        """Bring the page to this frame."""
        title, note, predictions = self.children
        title.value = html.title(frame.model, frame.facts)
        note.value = html.note(frame.note)
        ranked = [(each.name, each.words) for each in frame.predictions]
        predictions.value = html.readings([("predictions", ranked)]) if ranked else ""


class Pictures(widgets.VBox):
    """Input, feature map, gradient, heatmap, mosaic, readings. `show` draws a frame."""

    def __init__(self) -> None:
        self._input, self._overlay = column("150px", "210px"), column("150px", "210px")
        self._panels = [column("150px", "210px") for _ in range(_PANELS)]
        self._strip, self._strip_outline = column("100%", "850px"), widgets.HTML()
        self._tiles = column("300px", "420px")
        self._readings, self._outline = widgets.HTML(), widgets.HTML()
        self._css = f"hookviz-{uuid4().hex[:8]}"  # several explorers may be on one page
        self._shown: Frame | None = None
        row = wrapping([self._input, *self._panels, self._overlay])
        row.layout.flex, row.layout.max_width = "1 1 400px", "450px"
        both = wrapping([row, self._tiles])
        outlines = (self._outline, self._strip_outline)
        super().__init__([both, self._readings, self._strip, *outlines])

    def show(self, frame: Frame) -> None:
        """Bring the page to this frame."""
        sheets = (
            (self._input, "input", ""),
            (self._overlay, "overlay", ""),
            (self._strip, "strip", f"{self._css}-strip"),
        )
        for widget, name, css in sheets:
            _show_sheet(widget, getattr(frame, name), getattr(self._shown, name, None), css)
        for widget, panel in zip_longest(self._panels, frame.panels):
            _visible(widget, panel is not None)
            if panel is not None:
                widget.value = _panel_html(panel)
        if frame.strip is not None and frame.strip.box is not None:
            self._strip_outline.value = html.outline(f"{self._css}-strip", frame.strip.box)
        tiles, before = frame.tiles, None if self._shown is None else self._shown.tiles
        if before is None or (tiles.mosaic, tiles.cmap) != (before.mosaic, before.cmap):
            png = levels_png(tiles.mosaic.levels, tiles.cmap)
            self._tiles.value = html.picture(png, tiles.alt, tiles.caption, css=self._css)
        self._outline.value = html.outline(self._css, tiles.box)
        self._readings.value = html.readings(frame.readings)
        self._shown = frame


def _show_sheet(
    widget: widgets.HTML, sheet: Sheet | None, before: Sheet | None, css: str = ""
) -> None:
    _visible(widget, sheet is not None)
    if sheet is not None and (before is None or _drawn(sheet) != _drawn(before)):
        css = css if sheet.box else ""
        png = picture_png(sheet.pixels)
        widget.value = html.picture(png, sheet.alt, sheet.caption, css=css, smooth=True)


def _drawn(sheet: Sheet) -> tuple:
    """What a sheet's picture depends on; where its outline is does not matter."""
    return sheet.caption, sheet.alt, id(sheet.pixels), sheet.box is None


def _panel_html(panel: Panel) -> str:
    values = shown_size(panel.values[None])[0]
    return html.picture(
        map_png(values, panel.cmap, panel.low, panel.high),
        panel.alt,
        panel.caption + html.shown_at(panel.values.shape, values.shape),
        below=html.scale(scale_png(panel.cmap), panel.low, panel.high),
    )


def column(least: str, most: str) -> widgets.HTML:
    """A picture's place: as wide as there is room for, within bounds."""
    layout = widgets.Layout(flex=f"1 1 {least}", max_width=most, margin="4px 6px")
    return widgets.HTML(layout=layout)


def wrapping(parts: list[widgets.Widget]) -> widgets.HBox:
    """Parts beside each other, or below where there is no room."""
    layout = widgets.Layout(flex_flow="row wrap", align_items="flex-start")
    return widgets.HBox(parts, layout=layout)


def _visible(widget: widgets.Widget, visible: bool) -> None:
    widget.layout.display = None if visible else "none"
