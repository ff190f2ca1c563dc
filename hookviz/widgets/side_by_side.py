"""Two explorers that move together, and two runs side by side: with their difference."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from ..attribution.heads import AttentionRecord
from ..draw.document import in_frame
from ..draw.figures import ShownFigure, no_formula, small_png
from ..draw.html import ROOT_CLASS, STYLE
from ..export.figure import draw_panel, set_caption
from ..hooking.records import FeatureCache
from ..hooking.select import Layers
from ..run.session import Session
from ..run.target import Target
from ..studies.compare.comparison import Comparison
from ..studies.compare.difference import HEADER, SPARE
from ..tables import aligned, escape
from ..view.frame import Frame
from ..view.runs import runner
from ..view.settings import SETTINGS, WRITTEN
from .explorer import Explorer
from .gallery import Given
from .lifecycle import LiveWidget, close_earlier, close_tree, register
from .linked import Link


def link(left: Explorer, right: Explorer) -> Link:
    """Synchronize the settings of two explorers.

    A setting that the other cannot take, such as a layer that only one network has, stays unchanged
    there, with a note above its pictures; nothing is raised. At first the right explorer gets the
    settings of the left one.

    Parameters
    ----------
    left, right : Explorer

    Returns
    -------
    Link
        ``unlink()`` ends it, as does closing either explorer.

    Raises
    ------
    TypeError
        One of them is not an explorer.
    ValueError
        They are the same one, or one is closed.

    Examples
    --------
    >>> import hookviz
    >>> model, pictures = hookviz.demo_model(), hookviz.demo_images()
    >>> left, right = (hookviz.explore(model, picture) for picture in pictures[:2])
    >>> linked = hookviz.widgets.link(left, right)
    >>> left.layer, left.channel = "layer3.1.conv2", 17
    >>> right.layer, right.channel
    ('layer3.1.conv2', 17)
    >>> left.close(), right.close()
    (None, None)
    """
    for each in (left, right):
        if not isinstance(each, Explorer):
            raise TypeError(
                f"hookviz.widgets.link takes two explorers, not a {type(each).__name__}: give "
                "results of hookviz.explore()."
            )
        if each.closed:
            raise ValueError(each.closed_message)
    if left is right:
        raise ValueError("An explorer cannot be linked with itself: make a second one.")
    return Link(left, right)


def beside(explorer: Explorer, image: Any) -> SideBySide:
    """Show an explorer's view of two pictures side by side, under one layer and channel.

    Parameters
    ----------
    explorer : Explorer
        Its picture is on the left; layer, channel, target and edits are taken over.
    image
        The picture on the right, as for `hookviz.explore`; of the same size to the network.

    Returns
    -------
    SideBySide

    Raises
    ------
    ValueError
        The explorer is closed, or the network's maps of the two are of different sizes.

    Examples
    --------
    >>> import hookviz
    >>> pictures = hookviz.demo_images()
    >>> explorer = hookviz.explore(
    ...     hookviz.demo_model(), pictures[6], layer="layer3.1.conv2", channel=17
    ... )
    >>> both = hookviz.widgets.beside(explorer, pictures[9])
    >>> both.layer, both.channel, both.left.channel
    ('layer3.1.conv2', 17, 17)
    >>> both.close(), explorer.close()
    (None, None)
    """
    if explorer.closed:
        raise ValueError(explorer.closed_message)
    view, second = explorer.displayed(), explorer.session_for(image)
    both = SideBySide(view.session, second, _modules(view.cache), target=view.settings.target)
    for name in SETTINGS:  # the layer first: it sets the other ranges
        value = getattr(view.settings, name)
        known = name != "layer" or value in both.cache
        if known and name not in ("target", "shown_run", "order", "sample"):
            setattr(both, name, value)
    return both


def _modules(cache: FeatureCache) -> list[str]:
    """Return the names to capture again; attention comes along with its module."""
    return [name for name, each in cache.items() if not isinstance(each, AttentionRecord)]


def _list_of_rows(comparison: Comparison) -> widgets.Select:
    """Return the rows of a comparison's table as a list to choose from."""
    cells = zip(HEADER, zip(*comparison.table(), strict=True), strict=True)
    columns = {name: column for name, column in cells if name not in SPARE[2:4]}
    heading, lines = aligned(columns)
    # A browser would draw several spaces as one.
    options = [(line.replace(" ", "\u00a0"), n) for n, line in enumerate(lines)]
    shown = widgets.Select(
        options=options, value=None, rows=min(len(lines), 7), description="\n".join(heading)
    )
    shown.add_class("hookviz-rows")
    return shown


SIDES = {"original": "a", "edited": "b", "difference": "b − a"}
"""The setting ``shown_run`` of the right explorer -> what it shows."""


class SideBySide(LiveWidget):
    """The widget that `Comparison.show` returns: the runs of a and b, side by side.

    The left explorer shows a; the right one b, a, or b − a, by its setting ``shown_run``. Their
    settings are linked; ``both.layer = ...`` sets both. Where the browser draws, the right one is
    shown alone, with a, b and b − a in three columns under one set of controls. Above them are the
    rows of the comparison's table, if there is one: a click on a row goes to its layer.

    Parameters
    ----------
    a, b : Session
        Only common layers, with maps of the same size, are shown.
    layers : optional
        A selection of them, as in `hookviz.capture`.
    target : optional
        The score whose gradients are shown.
    comparison : Comparison, optional
        The differences of the layers.

    Attributes
    ----------
    left, right : Explorer

    Raises
    ------
    ValueError
        They have no such layer.
    """

    closed_message = "This comparison is closed: call its show() again."

    def __init__(
        self,
        a: Session,
        b: Session,
        layers: Layers = None,
        target: Target = None,
        comparison: Comparison | None = None,
    ) -> None:
        close_earlier()
        super().__init__()
        self.left = self.right = None
        try:
            right = Explorer(b, Given(b.inputs), runner(layers), target=target, beside=a)
            self.right = right
            left = Explorer(a, Given(a.inputs), runner(list(right.cache)), target=target)
            self.left = left
            right.shown_run = "difference"
            Link(right, left)
        except BaseException:
            self.close()
            raise
        columns = "repeat(2, minmax(0, 1fr))"
        layout = widgets.Layout(display="grid", grid_template_columns=columns, grid_gap="0 20px")
        halves = [self._named("a", a, left), self._named("b", b, right)]
        self._halves = widgets.Box(halves, layout=layout)
        shown: list[widgets.Widget] = [self._halves]
        if comparison is not None:
            self._rows = _list_of_rows(comparison)
            self._calls = [[(r.layer, r.call) for r in rows] for rows in comparison.row_groups()]
            self._rows.observe(self._row_chosen, "index")
            right.observe(self._mark_row, ["layer", "call"])
            self._mark_row()
            shown.insert(0, self._rows)
        self.children = shown
        right.observe(self._show_one, "children")
        self._show_one()
        self.add_class(ROOT_CLASS)
        register(self)

    left: Explorer | None
    right: Explorer | None

    def _show_one(self, _: Any = None) -> None:
        """Show b's explorer alone, once the browser draws it: it has both runs, level."""
        left, right, halves = self.left, self.right, self._halves
        if left is None or right is None or right in self.children or not right.is_canvas:
            return
        left._take_place({})  # it is not shown, and need not draw
        heads = [half.children[0] for half in halves.children]
        names = widgets.HBox(heads, layout=widgets.Layout(grid_gap="0 20px"))
        self.set_trait("children", (*self.children[:-1], names, right))
        for half in halves.children:
            half.children = ()
        close_tree(halves)

    def go_to(self, layer: str, call: int = -1) -> None:
        """Show a call of a layer; if the layer is not among those that are shown, it joins them.

        Raises
        ------
        ValueError
            Not both models have this layer, with maps of one size.
        """
        right, left = self._shown, self.left
        assert left is not None  # not closed
        if layer not in right.cache:
            before = right._run
            right._run = runner([*_modules(right.cache), layer])
            try:
                right.refresh()
                if layer not in right.cache:
                    raise ValueError(f"The outputs of {layer} have different shapes in a and b.")
            except BaseException:
                right._run = before
                raise
            left._run = right._run
            left.refresh()
        right.layer = layer
        right.call = call % len(right.cache[layer].calls)

    def _row_chosen(self, change: dict[str, Any]) -> None:
        row = change["new"]
        if row is not None and (self.layer, self.call) not in self._calls[row]:
            self._shown._try(lambda: self.go_to(*self._calls[row][0]))
            self._mark_row()  # if it cannot be shown, the list goes back

    def _mark_row(self, _: Any = None) -> None:
        """Select a row of the shown layer in the list."""
        now = self.layer, self.call
        found = [n for n, calls in enumerate(self._calls) if now in calls]
        if self._rows.index not in found:
            self._rows.index = found[0] if found else None

    @staticmethod
    def _named(side: str, session: Session, explorer: Explorer) -> widgets.VBox:
        # The style stays when the browser draws, and the plain faces with theirs are closed.
        head = widgets.HTML(f"{STYLE}<b>{side}: {escape(session.name)}</b>")
        column = widgets.VBox([head, explorer])
        column.add_class(f"hookviz-side-{side}")
        return column

    def __getattr__(self, name: str) -> Any:
        if name in (*WRITTEN, "cache"):
            return getattr(self._shown, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in WRITTEN:
            setattr(self._shown, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def _shown(self) -> Explorer:
        if self.right is None:
            raise RuntimeError(self.closed_message)
        return self.right

    def _frames(self) -> list[Frame]:
        """Return a frame for each of `SIDES`."""
        return [self._shown.frame_of(run) for run in SIDES]

    def figure(self) -> Figure:
        """Return the three maps as a matplotlib figure, each with its colourbar."""
        return self._figure(self._frames())

    def _figure(self, frames: list[Frame]) -> Figure:
        figure = ShownFigure(figsize=(10.5, 3.8), layout="constrained")
        axes = figure.subplots(1, len(SIDES))
        for side, frame, each in zip(SIDES.values(), frames, axes, strict=True):
            panel = replace(frame.panels[0], name=f"{side}: {frame.panels[0].name}")
            draw_panel(panel, each)
            set_caption(panel.caption, each)
        figure.suptitle(no_formula(self.layer), fontsize="medium")
        return figure

    def _alt(self) -> str:
        sides = zip(SIDES.values(), self._frames(), strict=True)
        return "; ".join(f"{side}: {frame.description}" for side, frame in sides)

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return this view in words, and a picture for places without a kernel."""
        frames, alt = self._frames(), self._alt()
        png = base64.b64encode(small_png(self._figure(frames))).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    def _page(self, max_bytes: float) -> str | None:
        """Return both explorers' pages in frames."""
        pages = [each._page(max_bytes / 2) or "" for each in (self.left, self.right) if each]
        frames = "".join(
            f'<div style="flex: 1 1 50%">{in_frame(page, side)}</div>'
            for side, page in zip("ab", pages, strict=True)
        )
        return f'<!doctype html><div style="display: flex; gap: 8px">{frames}</div>'

    def close(self) -> None:
        """Close both explorers; may be called twice."""
        for each in (self.left, self.right):
            if each is not None:
                each.close()
                close_tree(each)
        super().close()
        self.left = self.right = None
