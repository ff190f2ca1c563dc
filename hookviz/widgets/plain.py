"""The plain face, where the canvas cannot run, and the parts below either face: core widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from ..attribution.cam import method_name
from ..draw import html
from ..draw.figures import drawn, quick_png
from ..export.figure import draw_figure
from ..run.target import read_target
from ..view.frame import Frame, Panel
from ..view.settings import DECLARED, INDICES
from .lifecycle import in_front_end, visible

SLIDERS = ("layer", *INDICES, "alpha")
MENUS = ("order", "heatmap", "shown_after", "shown_run")
TOP = "top prediction"
"""The menu's entry for the target None."""


class PlainFace(widgets.VBox):
    """The sliders, menus and picture; `show` updates them to a frame.

    Parameters
    ----------
    on_user : callable
        Called with a setting's name and its new value when the user moves a control; not when
        `show` does.
    on_error : callable
        Called with a message about invalid text that the user has typed.
    still : callable
        Frame -> a quick picture, used until the first use of a control, since the canvas may
        replace this face; from then on matplotlib draws. None is made where nobody can see it.
    """

    def __init__(
        self,
        on_user: Callable[[str, Any], None],
        on_error: Callable[[str], None],
        still: Callable[[Frame], bytes],
    ) -> None:
        self._on_user, self._on_error, self._still = on_user, on_error, still
        self._used = False
        self._frame: Frame | None = None  # None while controls are being set
        self._drawn: list[Panel] = []  # the panels in the picture
        self._note = note = widgets.HTML()
        # Each layout and style is a widget of its own: those that never differ are one.
        fixed = {"layout": widgets.Layout(), "style": note.style}
        self._title, self._heading, self._place, self._picture, self._readings = (
            widgets.HTML(**fixed) for _ in range(5)
        )
        # These are hidden at times, so that their layouts are their own.
        self._predictions, self._opened = (widgets.HTML(style=note.style) for _ in range(2))
        self._sliders = _controls(SLIDERS, widgets.IntSlider, min=0, max=0)
        self._menus = _controls(MENUS, widgets.Dropdown)
        target = _controls(
            ("target",), widgets.Combobox, continuous_update=False, placeholder="any class …"
        )
        self._target = target["target"]
        for name, control in (self._sliders | self._menus | target).items():
            control.add_class(f"hookviz-by-{name}")
            control.observe(lambda change, name=name: self._moved(name, change["new"]), "value")
        self._sliders["layer"].readout = False
        lines = [
            (self._target, self._menus["shown_run"]),
            (self._sliders["layer"], self._heading),
            (self._sliders["channel"], self._place, self._menus["order"]),
            [self._sliders[name] for name in ("call", "sample", "depth")],
            (self._menus["shown_after"], self._menus["heatmap"], self._sliders["alpha"]),
        ]
        super().__init__(
            [
                self._title,
                self._note,
                self._predictions,
                *(_line(*parts, layout=self._title.layout) for parts in lines),
                self._opened,
                self._picture,
                self._readings,
            ]
        )

    # From the user

    def _moved(self, name: str, value: Any) -> None:
        frame = self._frame
        if frame is None:
            return None
        self._used = True
        if name == "layer":
            value = frame.layers[value]
        elif name == "channel":
            value = int(frame.channels[value - int(frame.settings.order != "index")])
        elif name == "alpha":
            value = value / 100
        elif name == "target":
            return self._typed(value, frame)
        return self._on_user(name, value)

    def _typed(self, text: str, frame: Frame) -> None:
        """Set the target from typed text: a class's name or number, or an entry of the list."""
        if not text:
            return None
        listed = _targets(frame)
        if text in listed:
            return self._on_user("target", listed[text])
        try:
            target = read_target(text, frame.classes)
        except ValueError as error:
            return self._on_error(str(error))
        return self._on_user("target", target)

    # To the user

    def show(self, frame: Frame) -> None:
        """Update controls, words and picture to this frame."""
        self._frame = None
        try:
            self._show_controls(frame)
        finally:
            self._frame = frame
        at = frame.settings
        health = frame.verdict
        chip = health.text, health.kind, health.details
        self._title.value = html.title(frame.model, frame.summary, chip)
        self._note.value = html.note(frame.note)
        visible(self._note, bool(frame.note))
        words = frame.words[at.layer].line if at.layer in frame.words else ""
        self._heading.value = html.heading(at.layer or "(model)", f"{words} · {frame.dtype}")
        self._place.value = html.plain(*place_words(frame))
        self._predictions.value = html.bars(_prediction_bars(frame))
        visible(self._predictions, bool(frame.predictions))
        self._opened.value = html.plain(frame.opened)
        visible(self._opened, bool(frame.opened))
        self._readings.value = html.table(frame.readings)
        if self._drawn is not frame.panels:  # two frames may share their panels
            if self._used or in_front_end(self):
                png = _png(draw_figure(frame, titled=False)) if self._used else self._still(frame)
                self._picture.value = html.image(png, frame.description)
            self._drawn = frame.panels

    def use(self, frame: Frame) -> None:
        """Draw with matplotlib from now on."""
        if not self._used:
            self._used, self._drawn = True, []
            self.show(frame)

    def _show_controls(self, frame: Frame) -> None:
        at, first = frame.settings, int(frame.settings.order != "index")
        counts = frame.counts
        ends = {name: (0, counts[name] - 1, getattr(at, name)) for name in INDICES}
        ends["channel"] = (first, counts["channel"] - 1 + first, frame.position + first)
        layers = frame.layers
        ends["layer"] = (0, len(layers) - 1, layers.index(at.layer) if at.layer in layers else 0)
        ends["alpha"] = (0, 100 * (frame.overlay is not None), round(100 * at.alpha))
        for name, (least, most, value) in ends.items():
            _show_slider(self._sliders[name], least, most, value)
        self._sliders["channel"].description = "rank" if first else "channel"
        for name, values in frame.choices.items():
            if name in self._menus:
                _show_menu(self._menus[name], values, getattr(at, name))
        visible(self._menus["shown_run"], bool(frame.run_names))
        _set(self._target, "options", tuple(_targets(frame)))
        self._target.value = ""
        self._target.placeholder = frame.target


def place_words(frame: Frame) -> tuple[str, str, str]:
    """Return the channel's rank as a short text, a CSS class, and a text for screen readers."""
    count, order, here = frame.counts["channel"], frame.settings.order, frame.settings.channel
    if order == "index":
        return f"of {count}", "place", f"channel {here} of {count}"
    text = f"rank {frame.position + 1} of {count} by {order}: channel {here}"
    return text, "place", text


def _prediction_bars(frame: Frame) -> list[tuple[str, str, float, bool]]:
    """Return each prediction's name, value, share of its bar, and whether it is the target."""
    bars = []
    for prediction in frame.predictions:
        is_share = prediction.words.endswith("%") and 0 <= prediction.value <= 1
        words = (
            f"{prediction.words} ({prediction.change})" if prediction.change else prediction.words
        )
        share = prediction.value if is_share else 0.0
        bars.append((prediction.name, words, share, prediction.name == frame.target))
    return bars


def _targets(frame: Frame) -> dict[str, Any]:
    """Return the target's list: the top predictions with their scores, then all classes."""
    found: dict[str, Any] = {TOP: None}
    found |= {f"{each.name} · {each.words}": each.number for each in frame.predictions}
    return found | {name: number for number, name in enumerate(frame.classes)}


def _png(figure: Figure) -> bytes:
    """Encode a figure as PNG with little compression, since it is sent once."""
    return quick_png(drawn(figure, figure.dpi).convert("RGB"), compress_level=1)


def _controls(names: Sequence[str], kind: Any, **given: Any) -> dict[str, Any]:
    """Return controls that share a style."""
    controls: dict[str, Any] = {}
    for name in names:
        layout = widgets.Layout(width="auto")
        described = {"description": DECLARED[name].label or name, "layout": layout}
        controls[name] = kind(**described, **given)
        given["style"] = controls[name].style
    given["style"].description_width = "initial"
    return controls


def _line(*parts: widgets.Widget, layout: widgets.Layout) -> widgets.Box:
    line = widgets.Box(parts, layout=layout)
    line.add_class("hookviz-line")
    return line


def _show_slider(slider: Any, least: int, most: int, value: int) -> None:
    visible(slider, most > least)
    if most <= least:
        return
    # The range together with the value, so that the value is never clipped.
    if (slider.min, slider.max) != (least, most):
        with slider.hold_trait_notifications():
            slider.min, slider.max, slider.value = least, most, value
    slider.value = value


def _show_menu(menu: Any, values: list[str], value: str) -> None:
    shown = values if value in values else [*values, value]
    _set(menu, "options", tuple((method_name(each), each) for each in shown))
    menu.value = value


def _set(widget: widgets.Widget, name: str, value: Any) -> None:
    """Set a trait if it differs: setting the same options again would reset a menu's value."""
    if getattr(widget, name) != value:
        setattr(widget, name, value)
