"""The plain face, where the canvas cannot run: core widgets and a matplotlib picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets

from ..attribution.cam import method_name
from ..draw import html
from ..files import without_half_characters
from ..run.target import read_target
from ..view.frame import Frame, Panel
from ..view.layer import ORDER_NAMES
from ..view.predictions import Prediction
from ..view.settings import DECLARED, INDICES
from .lifecycle import in_front_end, visible
from .pictures import Pictures

TEXTS = ("title", "note", "predictions", "heading", "place", "opened", "still")
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
    still : callable, optional
        Frame -> a quick picture, used until the first use of a control if the canvas may replace
        this face; from then on matplotlib draws. None is made where nobody can see it.
    """

    def __init__(
        self,
        on_user: Callable[[str, Any], None],
        on_error: Callable[[str], None],
        still: Callable[[Frame], bytes] | None,
    ) -> None:
        self._on_user, self._on_error, self._still = on_user, on_error, still
        self._frame: Frame | None = None  # None while controls are being set
        self._drawn: list[Panel] = []  # the panels in the picture
        self._pictures = Pictures()
        self._texts = texts = {name: widgets.HTML() for name in TEXTS}
        names = (*SLIDERS, *MENUS, "target")
        self._controls = controls = {name: _control(name) for name in names}
        for name, control in controls.items():
            control.add_class(f"hookviz-by-{name}")
            control.observe(partial(self._moved, name), "value")
        super().__init__(
            [
                *(texts[name] for name in ("title", "note", "predictions")),
                _line(controls["target"], controls["shown_run"]),
                _line(controls["layer"], texts["heading"]),
                _line(controls["channel"], texts["place"], controls["order"]),
                _line(*(controls[name] for name in ("call", "sample", "depth"))),
                _line(*(controls[name] for name in ("shown_after", "heatmap", "alpha"))),
                *(texts["opened"], texts["still"], self._pictures),
            ]
        )

    # From the user

    def _moved(self, name: str, change: dict[str, Any]) -> None:
        frame, value = self._frame, change["new"]
        if frame is None or (name == "target" and not value):
            return
        self._still = None
        if name == "layer":
            value = frame.layers[value]
        elif name == "channel":
            value = int(frame.channels[value - _first(frame)])
        elif name == "alpha":
            value = value / 100
        elif name == "target":
            try:
                value = _target_in(frame, value)
            except ValueError as error:
                self._on_error(str(error))
                return
        self._on_user(name, value)

    # To the user

    def show(self, frame: Frame) -> None:
        """Update controls, words and picture to this frame."""
        self._frame = None
        try:
            self._show_controls(frame)
        finally:
            self._frame = frame
        at, health = frame.settings, frame.verdict
        words = frame.words[at.layer].line if at.layer in frame.words else ""
        chip = health.text, health.kind, health.details
        texts = {
            "title": html.title(frame.model, frame.summary, chip),
            "note": html.note(frame.note),
            "predictions": html.bars([_bar(each, frame.target) for each in frame.predictions])
            if frame.predictions
            else "",
            "heading": html.heading(at.layer or "(model)", f"{words} · {frame.dtype}"),
            "place": _place(frame),
            "opened": html.plain(frame.opened) if frame.opened else "",
        }
        for name, text in texts.items():
            self._texts[name].value = text
            visible(self._texts[name], bool(text))
        if self._drawn is not frame.panels and in_front_end(self):  # frames may share panels
            still = self._still and html.image(self._still(frame), frame.description)
            if not still:
                self._pictures.show(frame)
            self._texts["still"].value = still or ""
            visible(self._texts["still"], bool(still))
            visible(self._pictures, not still)
            self._drawn = frame.panels

    def _show_controls(self, frame: Frame) -> None:
        at, first, controls = frame.settings, _first(frame), self._controls
        ends = {name: (0, frame.counts[name] - 1, getattr(at, name)) for name in INDICES}
        last = frame.counts["channel"] - 1
        ends["channel"] = (first, last + first, frame.position + first)
        layers = frame.layers
        ends["layer"] = (0, len(layers) - 1, layers.index(at.layer) if at.layer in layers else 0)
        ends["alpha"] = (0, 100 * (frame.overlay is not None), round(100 * at.alpha))
        for name, (least, most, value) in ends.items():
            _show_slider(controls[name], least, most, value)
        controls["channel"].description = "rank" if first else "channel"
        for name in MENUS:
            values = list(dict.fromkeys([*frame.choices[name], getattr(at, name)]))
            names = [ORDER_NAMES.get(each) or method_name(each) for each in values]
            if name == "shown_run" and frame.run_names:
                original, edited, difference = frame.run_names
                names = [edited, original, difference]
            _set(controls[name], "options", tuple(zip(names, values, strict=True)))
            controls[name].value = getattr(at, name)
        visible(controls["shown_run"], bool(frame.run_names))
        _set(controls["target"], "options", tuple(_targets(frame)))
        controls["target"].value = ""
        controls["target"].placeholder = without_half_characters(frame.target)


def _first(frame: Frame) -> int:
    """Return the number of the first channel on the slider: ranks count from 1."""
    return int(frame.settings.order != "index")


def _place(frame: Frame) -> str:
    """Return the channel's rank as HTML."""
    count, order, here = frame.counts["channel"], frame.settings.order, frame.settings.channel
    if order == "index":
        return html.plain(f"of {count}", "place", f"channel {here} of {count}")
    text = f"rank {frame.position + 1} of {count} by {ORDER_NAMES[order]}: channel {here}"
    return html.plain(text, "place", text)


def _bar(prediction: Prediction, target: str) -> tuple[str, str, float, bool]:
    """Return a prediction's name, value, share of its bar, and whether it is the target."""
    is_share = prediction.words.endswith("%") and 0 <= prediction.value <= 1
    words = prediction.words + f" ({prediction.change})" * bool(prediction.change)
    share = prediction.value if is_share else 0.0
    return prediction.name, words, share, prediction.name == target


def _targets(frame: Frame) -> dict[str, Any]:
    """Return the target's list: the top predictions with their scores, then all classes."""
    found: dict[str, Any] = {TOP: None}
    found |= {f"{each.name} · {each.words}": each.number for each in frame.predictions}
    found |= {name: number for number, name in enumerate(frame.classes)}
    return {without_half_characters(name): number for name, number in found.items()}


def _target_in(frame: Frame, text: str) -> Any:
    """Return the target that a text means: an entry of the list, or a class's name or number."""
    listed = _targets(frame)
    return listed[text] if text in listed else read_target(text, frame.classes)


def _control(name: str) -> Any:
    shown: dict[str, Any] = {"description": DECLARED[name].label or name}
    shown |= {"layout": {"width": "auto"}, "style": {"description_width": "initial"}}
    if name == "target":
        return widgets.Combobox(continuous_update=False, **shown)
    if name in MENUS:
        return widgets.Dropdown(**shown)
    return widgets.IntSlider(min=0, max=0, readout=name != "layer", **shown)


def _line(*parts: widgets.Widget) -> widgets.Box:
    line = widgets.Box(parts)
    line.add_class("hookviz-line")
    return line


def _show_slider(slider: Any, least: int, most: int, value: int) -> None:
    visible(slider, most > least)
    if most > least:
        # The range together with the value, in one message, so that the value is never clipped.
        with slider.hold_sync(), slider.hold_trait_notifications():
            slider.min, slider.max, slider.value = least, most, value


def _set(widget: widgets.Widget, name: str, value: Any) -> None:
    """Set a trait if it differs: setting the same options again would reset a menu's value."""
    if getattr(widget, name) != value:
        setattr(widget, name, value)
