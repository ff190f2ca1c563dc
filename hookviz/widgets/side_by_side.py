"""Two runs side by side, with their difference: an explorer of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from ..attribution.heads import AttentionRecord
from ..draw.figures import ShownFigure, no_formula, small_png
from ..draw.html import STYLE
from ..export.figure import draw_panel, set_caption
from ..hooking.records import FeatureCache
from ..hooking.select import Layers
from ..run.session import Session
from ..run.target import Target
from ..studies.compare.comparison import Comparison
from ..studies.compare.difference import HEADER, SPARE
from ..tables import aligned, escape
from ..view.runs import runner
from ..view.written import written_settings
from .explorer import Explorer
from .gallery import Given


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
    >>> both.layer, both.channel, both.shown_run
    ('layer3.1.conv2', 17, 'difference')
    >>> both.close(), explorer.close()
    (None, None)
    """
    if explorer.closed:
        raise ValueError(explorer.closed_message)
    view = explorer.displayed()
    settings = written_settings(view)
    for name in ("target", "shown_run", "order", "sample"):
        settings.pop(name, None)
    second, layers = explorer.session_for(image), _modules(view.cache)
    return SideBySide(view.session, second, layers, view.settings.target, **settings)


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
"""The side that each value of the setting ``shown_run`` shows."""


class SideBySide(Explorer):
    """The widget that `Comparison.show` returns: an explorer of two runs, a and b.

    The browser draws a, b and b − a in three columns under one set of controls. The setting
    ``shown_run`` chooses one of them for the other pictures: ``"original"`` is a, ``"edited"`` b,
    and ``"difference"`` b − a. Above them are the rows of the comparison's table, if there is one:
    a click on a row goes to its layer.

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
    **settings
        Those of an explorer.

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
        **settings: Any,
    ) -> None:
        names = widgets.HTML(f"{STYLE}<b>a: {escape(a.name)} · b: {escape(b.name)}</b>")
        self._above = (names,)
        if comparison is not None:
            self._rows = _list_of_rows(comparison)
            self._above = (self._rows, names)
        settings = {"shown_run": "difference", **settings}
        super().__init__(b, Given(b.inputs), runner(layers), target=target, beside=a, **settings)
        if comparison is not None:
            self._calls = [[(r.layer, r.call) for r in rows] for rows in comparison.row_groups()]
            self._rows.observe(self._row_chosen, "index")
            self.observe(self._mark_row, ["layer", "call"])
            self._mark_row()

    def go_to(self, layer: str, call: int = -1) -> None:
        """Show a call of a layer; if the layer is not among those that are shown, it joins them.

        Raises
        ------
        ValueError
            Not both models have this layer, with maps of one size.
        """
        if layer not in self.cache:
            before = self._run
            self._run = runner([*_modules(self.cache), layer])
            try:
                self.refresh()
                if layer not in self.cache:
                    raise ValueError(f"The outputs of {layer} have different shapes in a and b.")
            except BaseException:
                self._run = before
                raise
        self.layer = layer
        self.call = call % len(self.cache[layer].calls)

    def _row_chosen(self, change: dict[str, Any]) -> None:
        row = change["new"]
        if row is not None and (self.layer, self.call) not in self._calls[row]:
            self._try(lambda: self.go_to(*self._calls[row][0]))
            self._mark_row()  # if it cannot be shown, the list goes back

    def _mark_row(self, _: Any = None) -> None:
        """Select a row of the shown layer in the list."""
        now = self.layer, self.call
        found = [n for n, calls in enumerate(self._calls) if now in calls]
        if self._rows.index not in found:
            self._rows.index = found[0] if found else None

    def figure(self) -> Figure:
        """Return the three maps as a matplotlib figure, each with its colourbar."""
        figure = ShownFigure(figsize=(10.5, 3.8), layout="constrained")
        axes = figure.subplots(1, len(SIDES))
        for (run, side), each in zip(SIDES.items(), axes, strict=True):
            panel = self.frame_of(run).panels[0]
            panel = replace(panel, name=f"{side}: {panel.name}")
            draw_panel(panel, each)
            set_caption(panel.caption, each)
        figure.suptitle(no_formula(self.layer), fontsize="medium")
        return figure

    def _png(self) -> bytes:
        return small_png(self.figure())
