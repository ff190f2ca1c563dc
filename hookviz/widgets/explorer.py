"""The explorer: its settings, and what it hands on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn

from ..draw import html
from ..draw.style import ROOT_CLASS
from ..export.code.inputs import Given
from ..export.code.source import write_source
from ..export.figure import draw_figure, save_figure
from ..export.still import still_png
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..hooking.records import FeatureCache
from ..hooking.select import Layers, close_names, select_layers
from ..models import pretrained
from ..run.inputs import ModelInput, Transform, prepare_input
from ..run.session import Session
from ..run.target import Target, check_target
from ..view.difference import seen
from ..view.frame import Frame
from ..view.heatmaps import heatmaps
from ..view.settings import SETTINGS, Settings, first_layer
from ..view.view import View, run_session
from .controls import Unfolding
from .face import Face
from .lifecycle import close_earlier, made
from .pages import PageMaker
from .pictures import Tops


def explore(
    model: nn.Module | str,
    image: Any,
    layers: Layers = None,
    target: Target = None,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    **settings: Any,
) -> Explorer:
    """Look at every layer's feature maps and gradients, with sliders.

    Runs one forward and one backward; from then on a slider only draws.

    Parameters
    ----------
    model : torch.nn.Module or str
        Any convnet; or the name of a torchvision model, which is loaded with ``weights``
        (its default weights if left out).
    image
        A path, PIL image or array ``(H, W)`` or ``(H, W, 3)``, which goes through
        ``transform``; or a tensor ``(C, H, W)`` or ``(N, C, H, W)`` or whatever the model
        takes, which goes in as it is. See `hookviz.attribution.prepare_input`.
    layers : optional
        As in `hookviz.capture`; None is every convolution.
    target : optional
        What the gradient is of: None is each picture's top prediction; or a class number, a
        class name, or a function ``output -> scalar``.
    weights : torchvision weights entry, optional
        Says how pictures are transformed and what the classes are called.
    transform : callable, optional
        PIL image -> tensor.
    class_names : sequence of str, optional
    **settings
        Where to begin: any of the explorer's settings, such as ``layer=``, ``channel=``,
        ``cmap=``; and ``max_bytes=``, a budget for what is kept.

    Returns
    -------
    Explorer
        A widget. Its settings are traits: set them, observe them, link them. When the cell that
        made it runs again and makes another, it is closed, unless it is shown elsewhere, too.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        The image is no image, the input does not fit, no such layer or class, the model
        raised: each in one sentence that says what to do. The model is as before.

    Examples
    --------
    >>> import hookviz
    >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    >>> explorer.layer = "layer3.1.conv2"
    >>> explorer.channel = 17
    >>> explorer.figure().axes[1].get_title()
    'channel 17, 14×14'
    >>> explorer.close()
    """
    for name in settings:
        if name not in (*SETTINGS, "max_bytes"):
            raise TypeError(f"There is no setting {name!r}; {close_names(name, SETTINGS)}.")
    known = None
    if isinstance(model, str):
        known, (model, weights) = model, pretrained(model, weights)
    select_layers(model, layers)
    settings |= {"target": check_target(target), "layers": layers}
    inputs = prepare_input(image, model, weights=weights, transform=transform)
    session = Session(model, inputs, weights=weights, class_names=class_names)
    given = Given(image, weights, transform, known)
    return defer_interrupts(Explorer, undo=Explorer.close)(session, given, **settings)


class Explorer(PageMaker):
    """The widget that `explore` returns.

    Attributes
    ----------
    layer : str
        One of the captured layers.
    channel, call, sample, depth : int
        Which map of the layer; brought into range when the layer changes.
    target : None, int, str or callable
        What the gradient is of; setting it runs the model again.
    cmap : str
        ``"auto"`` (viridis, or for signed data RdBu with zero in the middle), or any colormap
        that matplotlib knows.
    normalize : {"channel", "layer", "network", "percentile", "symmetric"}
        What the colours span, see `hookviz.draw.colours.colour_ranges`.
    order : {"index", "mean", "max", "zeros", "gradient", "weight", "ablation"}
        The order of the channels on the slider and in the mosaic; the first of a new one is shown.
        For ``"ablation"``, what the target's score loses without each, the model runs again.
    heatmap : str
        One of ``hookviz.attribution.HEATMAPS``, or ``"activation × gradient"`` of the chosen
        channel alone; or, running the model again, ``"effective field"`` or, by captum,
        ``hookviz.attribution.ATTRIBUTIONS``.
    alpha : float
        How much of the heatmap is seen over the input where it is largest, 0 to 1.
    overlay : bool
        Whether the heatmap is over the input, or alone, at its own size.
    strip : bool
        Whether the heatmaps of all layers are shown in a row.
    place : tuple of (float, float), or None
        A place of the maps: how far down and right, 0 to 1. The input shows what it sees.
    version : {"edited", "original", "difference"}
        Whose pictures are shown, where there are `edits`.
    edits : tuple of hookviz.hooking.edit.LayerEdit
        What is changed in the network; see `edit`, `undo`, `reset`.
    image
        What was given; setting another runs the model on it, and keeps all settings.
    survey : Survey or None
        Set, it shows what the channel answers to in a data set.
    cache : FeatureCache
        All that was captured by the latest forward and backward.
    inputs : ModelInput
        What the model is called with: ``model(*inputs.args, **inputs.kwargs)``.
    frame : hookviz.view.frame.Frame
        All that is on the screen, in numbers and words.
    closed : bool
    """

    why_closed = "This explorer is closed: make a new one with hookviz.explore()."

    def __init__(
        self,
        session: Session,
        given: Given,
        *,
        layers: Layers = None,
        target: Target = None,
        max_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        close_earlier()  # first of all, so that memory never holds both
        ask = partial(run_session, layers=layers, max_bytes=max_bytes)
        run = allow_interrupts(ask, session, target)
        super().__init__(View(Settings(first_layer(run.cache), target=target), session, run), ask)
        try:
            for name in sorted(settings, key=SETTINGS.index):  # the layer says what is in range
                setattr(self, name, settings[name])
            self._given, view = given, self._now
            self._tops = Tops(lambda: self._now.at)
            face = Face(self._user_set, self._user_edit, self.say)
            self.children = (face, self._tops, Unfolding("the hooks", self._code_html))
            self.add_class(ROOT_CLASS)
            first = {} if "channel" in settings else {"channel": int(view.channels[0])}
            self._go_to(view.moved(**first))
            self._offer_canvas()
        except BaseException:
            self.close()
            raise
        made(self)

    _still: tuple[Frame, str] | None = None  # the last frame and its picture, in base64

    @property
    def cache(self) -> FeatureCache:
        return self._now.cache

    @property
    def inputs(self) -> ModelInput:
        return self._now.session.inputs

    # Out of the notebook

    def code(self) -> str:
        """This view without hookviz: the shortest PyTorch code that computes and draws it.

        Shown in the widget by the button "show the hooks". Paste it into the next cell, or read
        it: it is what `hookviz.capture` does, for one layer.

        Returns
        -------
        str
            Python source; comments at its beginning say what it takes, such as ``model``. A
            heatmap that you have put into ``hookviz.attribution.HEATMAPS`` is taken as ``method``,
            a function that is the target as ``target``.

        Raises
        ------
        ValueError
            The view is of a rare kind, as of a volume or of a model with several arguments; the
            message names it and says what to do.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> print(explorer.code())
        # model: your DemoNet
        # image: the picture that you gave
        import matplotlib.pyplot as plt
        ...
        with model.get_submodule("stem.0").register_forward_hook(keep):
        ...
        >>> explorer.close()
        """
        return write_source(seen(self._now.fitted()), self._given)

    def _code_html(self) -> str:
        try:
            return html.code(self.code())
        except ValueError as error:
            return html.note(str(error))

    def figure(self) -> Figure:
        """This very view as a matplotlib figure, with axes and colourbars.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot: there is nothing to close.
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
        save_figure(self.frame, path, **options)

    def heatmaps(self, method: str | None = None) -> dict[str, Tensor]:
        """Every layer's heatmap, in the order in which the layers ran.

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

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """This view in words, and a picture for places without a kernel, such as GitHub."""
        alt = self.frame.description
        if self._still is None or self._still[0] is not self.frame:
            self._still = self.frame, base64.b64encode(still_png(self.frame)).decode()
        png = self._still[1]
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    @defer_interrupts
    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        super().close()
        self.__dict__.pop("_given", None)
        self._still = None  # a closed explorer that is kept somewhere holds no tensors
