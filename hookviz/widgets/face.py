"""The explorer's face in core widgets: what is asked first stands first, and all in one screen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import ipywidgets as widgets

from ..draw import html
from ..draw.colours import scale_png
from ..hooking.tables import number
from ..view.frame import Frame
from ..view.predictions import Prediction
from ..view.ribbon import Cell, magnitudes
from . import menus
from .controls import Controls
from .hands import Hands
from .pictures import Pictures, visible


class Face(widgets.VBox):
    """Model, predictions, ribbon, layer, channel, pictures, numbers. `show` draws a frame.

    Parameters
    ----------
    on_user : callable
        Called with a setting's name and its new value when the user asks for it.
    on_edit : callable
        Called when the user edits the network, see `Hands`.
    on_error : callable
        Called with what was wrong with words that the user has typed.
    """

    def __init__(
        self,
        on_user: Callable[[str, Any], None],
        on_edit: Callable[[str, Any], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._controls, self._pictures = Controls(on_user, on_error), Pictures()
        self._there, self._layer_there = widgets.Button(description="go there"), ""
        self._there.add_class("hookviz-there")
        self._there.on_click(lambda _: on_user("layer", self._layer_there))
        self._css = f"hookviz-{uuid4().hex[:8]}"  # several explorers may be on one page
        self._ribbon_of: object = None  # the cells that are on the page
        self._title, self._note, self._bars, self._heading, self._place = (
            widgets.HTML() for _ in range(5)
        )
        self._ribbon, self._legend, self._here = (widgets.HTML() for _ in range(3))
        of, shown = self._controls.by_name, self._pictures
        self._hands = hands = Hands(on_edit, of["version"])
        for place, button in enumerate(self._controls.targets):
            button.add_class(f"{self._css}-{place}")
        of["find"].add_class("hookviz-find")
        self._legend.add_class("hookviz-legend")
        self._place.add_class("hookviz-said")
        of["channel"].add_class("hookviz-grow")
        self._heading.add_class("hookviz-grow")
        colours = box("hookviz-foot", of["cmap"], of["normalize"])
        heading = box("hookviz-foot hookviz-head", of["heatmap"], of["overlay"])
        opacity = box("hookviz-foot", of["alpha"])
        shown.heatmap.add_class("hookviz-bare")
        caption = box("hookviz-line", shown.mosaic_caption, of["order"], of["page"])
        stand = widgets.VBox([self._ribbon, of["layer"]])
        super().__init__(
            [
                box("hookviz-first", self._title, self._there),
                self._note,
                box("hookviz-preds", *self._controls.targets, of["target"]),
                box("hookviz-stand", stand, self._legend),
                box("hookviz-line", self._heading, of["find"]),
                box("hookviz-line", of["channel"], self._place, hands.factor, hands.off),
                hands,
                box("hookviz-line", *(of[name] for name in ("call", "sample", "depth"))),
                box(
                    "hookviz-grid",
                    box("hookviz-panel", shown.input, box("hookviz-foot", of["place"])),
                    box("hookviz-panel", shown.map, colours),
                    box("hookviz-panel", shown.gradient),
                    box("hookviz-panel", heading, shown.heatmap, opacity),
                    box("hookviz-mosaic", caption, shown.mosaic),
                ),
                shown.readings,
                box("hookviz-line hookviz-bottom", of["strip"]),
                shown.strip,
                *(self._bars, self._here, shown.marks, shown.grid),
            ]
        )

    def show(self, frame: Frame) -> None:
        """Bring the page to this frame."""
        at = frame.settings
        self._title.value = html.title(frame.model, frame.facts, frame.verdict[:2])
        self._layer_there = frame.verdict.layer or ""
        visible(self._there, frame.verdict.layer is not None)
        self._note.value = html.note(frame.note)
        visible(self._note, bool(frame.note))
        self._bars.value = html.bars(self._css, list(map(bar, frame.predictions)))
        self._show_ribbon(frame)
        words = frame.words[at.layer].line if at.layer in frame.words else ""
        dtype = frame.dtype if frame.dtype != "float32" else ""
        line = " · ".join(filter(None, (words, dtype)))
        self._heading.value = html.heading(at.layer or "(model)", line)
        self._place.value = html.plain(*menus.place_words(frame))
        self._controls.show(frame)
        self._hands.show(frame)
        self._pictures.show(frame)

    def _show_ribbon(self, frame: Frame) -> None:
        if at := [p for p, name in enumerate(frame.layers) if name == frame.settings.layer]:
            self._here.value = html.mark_cell(self._css, at[0])
        if frame.ribbon is self._ribbon_of:
            return
        self._ribbon_of, cells = frame.ribbon, frame.ribbon
        what, sizes = magnitudes(cells)
        known = [size for size in sizes if size > 0 and math.isfinite(size)]
        low, high = (min(known), max(known)) if known else (1.0, 1.0)
        shares = [_share(size, low, high) for size in sizes]
        words = [_cell_words(each) for each in cells]
        largest = max(math.log2(cell.side + 1) for cell in cells)
        made = [
            html.cell(
                place,
                words[place],
                0.25 + 0.75 * math.log2(cell.side + 1) / largest,
                "transparent" if shares[place] is None else html.colour_of(shares[place] or 0.0),
                cell.zeros,
                f"{'unknown' * (shares[place] is None)} {'wrong' * cell.wrong}".strip(),
            )
            for place, cell in enumerate(cells)
        ]
        pairs = zip((cell.block for cell in cells), zip(words, made, strict=True), strict=True)
        groups = [
            (block, [each for _, each in group])
            for block, group in itertools.groupby(pairs, key=lambda pair: pair[0])
        ]
        alt = f"{len(cells)} layers in order, coloured by their {what}: {frame.verdict.text}"
        self._ribbon.value = html.ribbon(self._css, groups, alt)
        self._legend.value = html.legend(f"colour: {what}", low, high, scale_png("viridis"))


def box(classes: str, *parts: widgets.Widget) -> widgets.Box:
    """Parts whose place is for the style sheet to say."""
    upright = classes in ("hookviz-panel", "hookviz-mosaic")
    made = widgets.VBox(parts) if upright else widgets.Box(parts)
    for css in classes.split():
        made.add_class(css)
    return made


def bar(prediction: Prediction) -> tuple[float, str, float | None, str]:
    """How long a prediction's bar is, and what is at its end; and was, and what has changed."""
    words = prediction.words.removeprefix("score ")
    if words != prediction.words:  # no share of anything
        return 0.0, words, None, prediction.change
    return prediction.value, words, prediction.before, prediction.change


def _share(size: float, low: float, high: float) -> float | None:
    """Where a magnitude lies between the ends, by its logarithm; None for none."""
    if not size > 0 or not math.isfinite(size):
        return None
    return math.log(size / low) / math.log(high / low) if high > low else 0.5


def _cell_words(cell: Cell) -> str:
    """What the pointer is told of one layer."""
    parts = [f"activation {number(cell.activation)}"]
    parts += ["no gradient" if cell.gradient is None else f"gradient {number(cell.gradient)}"]
    parts += [f"zeros {100 * cell.zeros:.3g} %"] if cell.zeros else []
    parts += [f"{cell.silent} of {cell.channels} channels silent"] if cell.silent else []
    counts = [
        (cell.nans, "NaN"),
        (cell.infs, "Inf"),
        (cell.gradient_nans, "NaN in the gradient"),
        (cell.gradient_infs, "Inf in the gradient"),
    ]
    parts += [f"{count:,} {what}" for count, what in counts if count]
    return f"{cell.name or '(model)'}: {', '.join(parts)}"
