"""The widget's pictures and readings: a frame becomes HTML, sent only where it changed."""

from __future__ import annotations

from uuid import uuid4

import ipywidgets as widgets

from ..render import html as panels
from ..render.arrays import shown_size
from ..render.colours import levels_png, map_png, picture_png, scale_png
from ..view.frame import Frame, Panel, Sheet

_PANELS = 3  # the feature map, the gradient, and a heatmap that stands alone


class Pictures(widgets.VBox):
    """Input, feature map, gradient, heatmap, mosaic, readings. `show` draws a frame."""

    def __init__(self) -> None:
        self.input = _column("150px", "210px")
        self.panels = [_column("150px", "210px") for _ in range(_PANELS)]
        self.heat = _column("150px", "210px")
        self.strip, self.strip_outline = _column("100%", "850px"), widgets.HTML()
        self.mosaic = _column("300px", "420px")
        self.readings, self.outline = widgets.HTML(), widgets.HTML()
        self._css = f"hookviz-{uuid4().hex[:8]}"  # several explorers may be on one page
        self._shown: Frame | None = None
        row = widgets.HBox([self.input, *self.panels, self.heat], layout=_wrapping())
        row.layout.flex, row.layout.max_width = "1 1 400px", "450px"
        both = widgets.HBox([row, self.mosaic], layout=_wrapping())
        outlines = (self.outline, self.strip_outline)
        super().__init__([both, self.readings, self.strip, *outlines])

    def show(self, frame: Frame) -> None:
        """Bring the page to this frame."""
        before, self._shown = self._shown, frame
        if before is None or frame.picture is not before.picture:
            self._show_input(frame)
        for widget, panel in zip(
            self.panels, [*frame.panels, *[None] * (_PANELS - len(frame.panels))], strict=True
        ):
            _visible(widget, panel is not None)
            if panel is not None:
                widget.value = _panel_html(panel)
        self._show_sheet(self.heat, frame.heat, before.heat if before else None)
        strip = before.strip if before else None
        self._show_sheet(self.strip, frame.strip, strip, f"{self._css}-strip")
        if frame.strip is not None and frame.strip.box is not None:
            self.strip_outline.value = panels.outline(f"{self._css}-strip", frame.strip.box)
        if before is None or (frame.tiles, frame.tiles_cmap) != (before.tiles, before.tiles_cmap):
            png = levels_png(frame.tiles.levels, frame.tiles_cmap)
            self.mosaic.value = panels.picture(
                png, frame.tiles_alt, frame.tiles_caption, css=self._css
            )
        self.outline.value = panels.outline(self._css, frame.tiles.box(frame.position))
        self.readings.value = panels.readings(frame.readings)

    def _show_sheet(
        self, widget: widgets.HTML, sheet: Sheet | None, before: Sheet | None, css: str = ""
    ) -> None:
        _visible(widget, sheet is not None)
        if sheet is None:
            return
        if before is None or _drawn(sheet) != _drawn(before):
            css = css if sheet.box else ""
            png = picture_png(sheet.pixels)
            widget.value = panels.picture(png, sheet.alt, sheet.caption, css=css, smooth=True)

    def _show_input(self, frame: Frame) -> None:
        _visible(self.input, frame.picture is not None)
        if frame.picture is not None:
            self.input.value = panels.picture(
                picture_png(frame.picture), frame.picture_alt, frame.picture_caption, smooth=True
            )


def _drawn(sheet: Sheet) -> tuple:
    """What a sheet's picture depends on; where its outline is does not matter."""
    return sheet.caption, sheet.alt, id(sheet.pixels), sheet.box is None


def _panel_html(panel: Panel) -> str:
    values = shown_size(panel.values[None])[0]
    return panels.picture(
        map_png(values, panel.cmap, panel.low, panel.high),
        panel.alt,
        panel.caption + panels.shown_at(panel.values.shape, values.shape),
        below=panels.scale(scale_png(panel.cmap), panel.low, panel.high),
    )


def _column(least: str, most: str) -> widgets.HTML:
    """A picture's place: as wide as there is room for, within bounds."""
    layout = widgets.Layout(flex=f"1 1 {least}", max_width=most, margin="4px 6px")
    return widgets.HTML(layout=layout)


def _wrapping() -> widgets.Layout:
    return widgets.Layout(flex_flow="row wrap", align_items="flex-start")


def _visible(widget: widgets.Widget, visible: bool) -> None:
    widget.layout.display = None if visible else "none"
