"""Everything that a user takes out of an explorer: numbers, code, figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from IPython.display import HTML
from matplotlib.figure import Figure
from torch import Tensor

from ..draw.document import IN_NOTEBOOK, in_frame
from ..export import write_network_page
from ..export.code import write_source
from ..export.figure import draw_figure, figure_content, save_figure
from ..export.lesson import Step
from ..export.page import write_page
from ..files import check_folder, page_to
from ..hooking.interrupts import allow_interrupts
from ..hooking.select import Layers
from ..run.progress import Progress
from ..studies.graph.contributions import Contributions
from ..studies.graph.kernels import LayerWeights, layer_weights
from ..view.attending import refuse_weights_of_attention
from ..view.heatmaps import Sides, heatmaps, shown_sides
from ..view.maps import fitted
from ..view.reason import contributions_of
from ..view.runs import RunSession, displayed_view
from .faces import FacedWidget
from .gallery import Given


class ViewResults(FacedWidget):
    """A widget whose view can be had as numbers, as code, as a figure and as a page."""

    _given: Given
    _run: RunSession | None = None  # None once closed

    def weights(
        self,
        layer: str | None = None,
        *,
        channel: int | None = None,
        position: Sequence[int] | None = None,
    ) -> LayerWeights:
        """Return a layer's weights: kernels, norms, bias, and all of it with BatchNorm folded in.

        Parameters
        ----------
        layer : str, optional
            A convolution or a linear layer; the shown one if left out.
        channel : int, optional
            The output channel that is taken apart by input channel; of a linear layer the row,
            such as a class. If left out, the shown channel of the shown layer.
        position : sequence of int, optional
            Row and column: the input channels are sorted by what they add to the value there, see
            `hookviz.contributions`, of the shown sample and without edits. ``()`` for a linear
            layer of one row a sample. Left out, they are sorted by the norms of their slices.

        Returns
        -------
        hookviz.results.LayerWeights

        Raises
        ------
        ValueError
            The layer is unknown, has no kernels, or no such channel or position.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> found = explorer.weights("layer3.1.conv2", channel=17, position=(5, 8))
        >>> sorted(found.slices()[0])
        ['channel', 'contribution', 'kernel', 'norm']
        >>> explorer.close()
        """
        settings, session = self._now.settings, self._now.session
        shown = layer is None or layer == settings.layer
        layer = settings.layer if layer is None else layer
        refuse_weights_of_attention(self._now, layer)
        if channel is None and shown:
            channel = settings.channel
        if position is None:
            return layer_weights(session, layer, channel=channel)
        if channel is None:
            raise ValueError("position= is of one channel's value: give channel=, too.")
        call = settings.call if shown else -1
        plain = self._now.original or self._now
        why = contributions_of(plain, layer, channel, position, settings.sample, call)
        return layer_weights(
            session, layer, channel=channel, contributions=why.by_channel, position=position
        )

    def contributions(
        self,
        layer: str | None = None,
        *,
        channel: int | None = None,
        position: Sequence[int] | None = None,
        sample: int | None = None,
        call: int | None = None,
    ) -> Contributions:
        """Take one value of the explored run apart, as `hookviz.contributions` does.

        The first time the model runs once more, with what its layers were given kept; after that
        nothing runs for any layer, channel or position.

        Parameters
        ----------
        layer, channel, sample, call : optional
            The shown ones if left out. Any convolution or linear layer that ran, shown or not.
        position : sequence of int, optional
            The chosen place if left out.

        Returns
        -------
        Contributions

        Raises
        ------
        ValueError
            As `hookviz.contributions`; or the position is left out, and no place is chosen.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> why = explorer.contributions("layer3.1.conv2", channel=17, position=(5, 8))
        >>> why.by_channel.shape, why.sources
        (torch.Size([96]), [('layer3.1.conv1', 0)])
        >>> explorer.close()
        """
        view = displayed_view(self._now)
        return contributions_of(view, layer, channel, position, sample, call)

    def heatmaps(self, method: str | None = None) -> dict[str, Tensor]:
        """Return every layer's heatmap, in the order in which the layers ran.

        Parameters
        ----------
        method : str, optional
            One of ``hookviz.attribution.HEATMAPS``; the explorer's own if left out.

        Returns
        -------
        dict of str to torch.Tensor
            ``(N, *spatial)`` each, of the layer's last call. Layers that no gradient reached, that
            went over the budget or cannot be arranged as maps are left out.

        Raises
        ------
        ValueError
            No such method.
        """
        return heatmaps(self.cache, method or self.heatmap)

    def sides(self) -> Sides:
        """Return the shown layer's heatmaps of both sides of a target that is a difference.

        Returns
        -------
        hookviz.view.heatmaps.Sides
            With ``names``, ``heats`` and ``difference``. The model runs twice for each layer.

        Raises
        ------
        ValueError
            The target is not a difference of two, or no gradient arrives.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(
        ...     hookviz.demo_model(), hookviz.demo_images()[6], ("moon", "fish")
        ... )
        >>> sides = explorer.sides()
        >>> sides.names, sides.difference.shape
        (('moon', 'fish'), (14, 14))
        >>> explorer.close()
        """
        return shown_sides(displayed_view(self._now))

    def code(self) -> str:
        """Return this view as PyTorch code without hookviz: hook, gradient, heatmap and figure.

        The tab *Code* shows it. It gives the numbers of the view.

        Returns
        -------
        str
            Python source. Comments at the top name the variables that you define: ``model``, ``x``,
            the input of the network, and, for a function as target, ``target``.

        Raises
        ------
        ValueError
            The code cannot express the view, such as one with edits, of a signal or a volume, or
            with a heatmap outside Grad-CAM's family; the message says what to do instead.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(
        ...     hookviz.demo_model(), hookviz.demo_images()[6], layer="layer3.1.conv2"
        ... )
        >>> print(explorer.code())
        # model: your DemoNet
        # x: the input, shape (1, 3, 112, 112): explorer.inputs.args[0]
        import matplotlib.pyplot as plt
        ...
        with model.get_submodule("layer3.1.conv2").register_forward_hook(keep):
        ...
        >>> explorer.close()
        """
        return write_source(displayed_view(fitted(self._now)))

    def figure(self) -> Figure:
        """Return this view as a matplotlib figure, with axes and colourbars.

        Returns
        -------
        matplotlib.figure.Figure
            Not registered with pyplot, so it need not be closed.
        """
        return draw_figure(self.frame)

    def save(self, path: str | Path, **options: Any) -> None:
        """Write `figure` to a file.

        Parameters
        ----------
        path : str or Path
            Ends in .png, .svg or .pdf.
        **options
            For ``Figure.savefig``, such as ``dpi=200``.

        Raises
        ------
        ValueError
            Another suffix.
        """
        save_figure(self.figure(), path, **options)

    def file(self, ending: str) -> bytes:
        """Return what `save` or `to_html` writes into a file with this ending, such as "pdf".

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> explorer.file("pdf")[:4]
        b'%PDF'
        >>> explorer.close()
        """
        if ending == "html":
            return (self.to_html() or "").encode()
        return figure_content(self.figure(), f".{ending}")

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        layers: Layers = None,
        max_bytes: float = 10e6,
        title: str | None = None,
        steps: Sequence[Step] = (),
        network: bool = False,
        precision: Literal["float32", "float16", "int8"] = "float32",
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
            The most bytes of the page. If the exact numbers do not fit, maps and gradients come in
            half precision, or rounded to 252 levels with large layers averaged; the page says so.
        title : str, optional
            Of the page.
        steps : sequence of hookviz.classroom.Step
            Questions above the view, answered and checked in the page, see `hookviz.grade`.
        network : bool
            If true, the page has the network itself and runs it: for other pictures, any class's
            gradients and silenced channels. Needs ``pip install 'hookviz[network]'``;
            ``max_bytes`` has no effect.
        precision : str
            Of the weights in such a page: ``"float32"``, ``"float16"`` or ``"int8"``. The page says
            how far its maps are from the notebook's.

        Returns
        -------
        str or None
            The page, where no path is given.

        Raises
        ------
        ValueError
            No such layer, too few bytes for any page, a step's state or answer that the page
            cannot show, or a network that cannot be exported: the message names the operation.
        ImportError, FileNotFoundError
            Something that ``network=True`` needs is missing.

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
        view, run = self.displayed(), self._run
        assert run is not None  # otherwise it is closed
        if not isinstance(network, bool):
            raise TypeError(f"network= must be True or False, not {network!r}; see precision=.")
        options: dict[str, Any] = {"layers": layers, "title": title, "steps": steps}
        check_folder(path)
        with Progress() as bar:
            if network:
                written = partial(write_network_page, precision=precision)
            else:
                written = partial(write_page, run=partial(run, view.session), max_bytes=max_bytes)
            page = allow_interrupts(written, view, on_progress=bar.update, **options)
        return page_to(path, page)

    def page(
        self, *, layers: Layers = None, max_bytes: float = IN_NOTEBOOK, title: str | None = None
    ) -> HTML:
        """Return the page of `to_html` for a notebook's output; it also works in a saved notebook.

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
        try:
            return self.to_html(max_bytes=max_bytes)
        except ValueError:  # too large for a notebook's output: its picture is shown instead
            return None
