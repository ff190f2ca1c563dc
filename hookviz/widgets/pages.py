"""What leaves an explorer as a page, which needs no kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from IPython.display import HTML

from ..draw.document import IN_NOTEBOOK, in_frame
from ..export.page import write_page
from ..files import page_to
from ..hooking.interrupts import allow_interrupts
from ..hooking.select import Layers
from ..run.progress import Progress
from ..view.difference import seen
from .editing import EditedWidget


class PageMaker(EditedWidget):
    """A `ViewWidget` that can be handed on as one HTML file."""

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        layers: Layers = None,
        max_bytes: float = 10e6,
        title: str | None = None,
    ) -> str | None:
        """Write this explorer as one file that needs no kernel and no network.

        It begins where the explorer is, and has its layers and channels, tiles, exact values,
        heatmaps of all methods for the shown target, and Grad-CAM for the top five classes: for
        these the model runs again.

        Parameters
        ----------
        path : str or Path, optional
            Where to write; left out, the page is returned.
        layers : optional
            As in `hookviz.capture`, of those that were captured; None is all.
        max_bytes : float
            What the page may take. Where all numbers do not fit, they are rounded, averaged and
            left out, gradients first; the page says so.
        title : str, optional
            Of the page.

        Returns
        -------
        str or None
            The page, where no path is given.

        Raises
        ------
        ValueError
            No such layer, or too few bytes for any page.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(
        ...     hookviz.demo_model(), hookviz.demo_images()[6], layers="layer3.*"
        ... )
        >>> page = explorer.to_html(layers="layer3.1.conv2", max_bytes=1e6)
        >>> page[:15], len(page) < 1e6
        ('<!doctype html>', True)
        >>> explorer.close()
        """
        view, run = seen(self._now), self._run
        assert run is not None  # a closed one has no view either
        with Progress() as bar:
            page = allow_interrupts(
                write_page,
                view,
                partial(run, view.session),
                layers=layers,
                max_bytes=max_bytes,
                title=title,
                tick=bar.tick,
            )
        return page_to(path, page)

    def page(
        self, *, layers: Layers = None, max_bytes: float = IN_NOTEBOOK, title: str | None = None
    ) -> HTML:
        """The same in the notebook's output: it moves in a saved notebook, too, without a kernel.

        Parameters
        ----------
        layers, max_bytes, title
            As for `to_html`.

        Returns
        -------
        IPython.display.HTML
        """
        page = self.to_html(layers=layers, max_bytes=max_bytes, title=title) or ""
        return HTML(in_frame(page, title or self.frame.description))

    def _page(self, max_bytes: float) -> str | None:
        return self.to_html(max_bytes=max_bytes)
