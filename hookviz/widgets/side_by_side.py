"""Two runs beside each other, and what the second has more than the first: one set of controls."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import ipywidgets as widgets
from matplotlib.figure import Figure

from ..draw import html
from ..draw.shown import ShownFigure, no_formula, small_png
from ..draw.style import ROOT_CLASS
from ..export.figure import draw_panel
from ..hooking.interrupts import allow_interrupts
from ..hooking.records import FeatureCache
from ..hooking.select import Layers
from ..run.session import Session
from ..run.target import Target
from ..view.build import build_frame
from ..view.frame import Frame
from ..view.memo import Memo
from ..view.settings import Settings, first_layer
from ..view.view import View, run_session
from . import menus
from .controls import Controls
from .face import bar, box
from .lifecycle import close_earlier, made
from .pictures import Pictures, visible
from .state import ViewWidget

SIDES = {"original": "a", "edited": "b", "difference": "b − a"}
"""Whose pictures a column shows: to a view, b is what has become of a."""


ROLES = ("map", "heatmap", "gradient")
FOOT = ("heatmap", "overlay", "alpha", "cmap", "normalize")


class SideBySide(ViewWidget):
    """The widget that `Comparison.show` returns: a's run, b's, and the difference.

    Its settings are those of `Explorer`, for both; the difference has a scale of its own.

    Parameters
    ----------
    a, b : Session
        Only layers that both have, with maps of one size, are shown.
    layers : optional
        Which of them, as in `hookviz.capture`.
    target : optional
        What the gradients are of.

    Raises
    ------
    ValueError
        They have no such layer in common.
    """

    why_closed = "This comparison is closed: ask it to explore() again."

    def __init__(
        self, a: Session, b: Session, layers: Layers = None, target: Target = None
    ) -> None:
        close_earlier()
        self._first, self._layers = a, layers
        ask = partial(run_session, layers=layers)
        super().__init__(self._ran(b, Settings("", target=target), run=ask), ask)
        try:
            self.children = (Columns(self._user_set, self.say, self._frames),)
            self.add_class(ROOT_CLASS)
            self._go_to(self._now)
        except BaseException:
            self.close()
            raise
        made(self)

    def _ran(self, session: Session, at: Settings, *others: Any, run: Any = None) -> View:
        """Both runs, of which b's is the later one."""
        ask = run or self._run
        assert ask is not None  # not closed
        one = allow_interrupts(ask, self._first, at.target)
        two = allow_interrupts(ask, session, at.target)
        kept = _in_common(one.cache, two.cache)
        runs = [replace(each, cache=_only(each.cache, kept)) for each in (one, two)]
        at = replace(at, version="difference")
        if at.layer not in runs[1].cache:
            at = replace(at, layer=first_layer(runs[1].cache))
        original = View(at, self._first, runs[0])
        view = View(at, session, runs[1], Memo(), original)
        view.versions = original.versions = "a", "b"
        return view

    def _frames(self) -> list[Frame]:
        """One for each of `SIDES`."""
        shown = self.frame
        return [
            shown if version == self.version else build_frame(self._now.moved(version=version))
            for version in SIDES
        ]

    def figure(self) -> Figure:
        """The three maps as a matplotlib figure, each with its colourbar."""
        figure = ShownFigure(figsize=(10.5, 3.8), layout="constrained")
        axes = figure.subplots(1, len(SIDES))
        for side, frame, each in zip(SIDES.values(), self._frames(), axes, strict=True):
            draw_panel(replace(frame.panels[0], name=f"{side}: {frame.panels[0].name}"), each)
        figure.suptitle(no_formula(self._now.at.layer), fontsize="medium")
        return figure

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """This view in words, and a picture for places without a kernel."""
        told = zip(SIDES.values(), self._frames(), strict=True)
        alt = "; ".join(f"{side}: {frame.description}" for side, frame in told)
        png = base64.b64encode(small_png(self.figure())).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}


def _in_common(a: FeatureCache, b: FeatureCache) -> list[str]:
    kept = [name for name, record in b.items() if name in a and _shapes(record) == _shapes(a[name])]
    if not kept:
        raise ValueError(
            "The models have no layer in common, of one name and with maps of one size: see "
            "the comparison's table, and explore each by itself."
        )
    return kept


def _shapes(record: Any) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for call in record.calls for each in call.outputs]


def _only(cache: FeatureCache, names: list[str]) -> FeatureCache:
    records = [cache[name] for name in names]
    return FeatureCache(records, {record.name: record for record in records})


class Columns(widgets.VBox):
    """One set of controls, and a column of pictures for each of `SIDES`.

    Parameters
    ----------
    on_user, on_error : callable
        As for `hookviz.widgets.controls.Controls`.
    frames : callable
        What is to be shown, a frame for each column.
    """

    def __init__(
        self,
        on_user: Callable[[str, Any], None],
        on_error: Callable[[str], None],
        frames: Callable[[], list[Frame]],
    ) -> None:
        self._frames, self._controls = frames, Controls(on_user, on_error)
        self._pictures = [Pictures() for _ in SIDES]
        self._css = f"hookviz-{uuid4().hex[:8]}"
        self._title, self._note, self._bars, self._heading, self._place = (
            widgets.HTML() for _ in range(5)
        )
        self._names = [widgets.HTML() for _ in SIDES]
        of = self._controls.by_name
        for place, button in enumerate(self._controls.targets):
            button.add_class(f"{self._css}-{place}")
        of["find"].add_class("hookviz-find")
        for part in (of["channel"], self._heading):
            part.add_class("hookviz-grow")
        self._place.add_class("hookviz-said")
        rows = [self._names, *(self._row(each) for each in ("input", *ROLES, "mosaic"))]
        rows[1][2] = self._pictures[2].readings  # the input is not a third one
        for place, part in enumerate(rows[2]):
            part.add_class(f"hookviz-side-{place}")
        super().__init__(
            [
                self._title,
                self._note,
                box("hookviz-preds", *self._controls.targets, of["target"]),
                box("hookviz-line", self._heading, of["find"]),
                of["layer"],
                box("hookviz-line", of["channel"], self._place, of["order"], of["page"]),
                box("hookviz-line", *(of[name] for name in ("call", "sample", "depth"))),
                box("hookviz-foot", *(of[name] for name in FOOT)),
                box("hookviz-columns", *(part for row in rows for part in row)),
                self._bars,
                *(each.marks for each in self._pictures),
                *(each.grid for each in self._pictures),
                self._unseen(rows),
            ]
        )

    def _unseen(self, rows: list[list[widgets.HTML]]) -> widgets.Box:
        """What has no place here, and is closed with all else."""
        shown = {id(part) for row in rows for part in row}
        of = self._controls.by_name
        parts = [of[name] for name in ("version", "strip", "place")]
        for each in self._pictures:
            every = each.input, each.mosaic_caption, each.strip, each.readings
            parts += [part for part in every if id(part) not in shown]
        hidden = box("", *parts)
        visible(hidden, False)
        return hidden

    def _row(self, name: str) -> list[widgets.HTML]:
        made = [getattr(each, name) for each in self._pictures]
        for part in made:
            part.add_class("hookviz-panel")
            part.add_class(f"hookviz-of-{name}")
        return made

    def show(self, frame: Frame) -> None:
        """Bring the page to what the frames are now; what is said is of ``frame``, b's less a's."""
        shown = self._frames()
        at = frame.settings
        names = [f"{side}: {each.model}" for side, each in zip("ab", shown, strict=False)]
        self._title.value = html.title(" beside ".join(names), frame.facts[:2], ("", ""))
        self._note.value = html.note(frame.note)
        self._bars.value = html.bars(self._css, list(map(bar, shown[1].predictions)))
        words = frame.words[at.layer].line if at.layer in frame.words else ""
        self._heading.value = html.heading(at.layer or "(model)", words)
        self._place.value = html.plain(*menus.place_words(frame))
        self._controls.show(shown[1])
        sides = zip(SIDES.values(), self._names, self._pictures, shown, strict=True)
        for side, name, pictures, each in sides:
            name.value = html.heading(side, "on a scale of its own" if "−" in side else each.model)
            pictures.show(each)
