"""The widget: what is shown is in traits, and one path redraws it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import matplotlib
import numpy as np
import traitlets
from IPython.display import display
from matplotlib.figure import Figure
from torch import nn

from . import panels
from .cache import Call, FeatureCache, megabytes
from .controls import Controls, Options
from .figure import draw_figure, small_png
from .frame import Frame, Panel
from .inputs import Transform, class_names_of, picture_of, prepare_input
from .layers import Layers, close_names
from .maps import ORDERS, ChannelStatistics, LayerView, channel_order, layer_view
from .mosaic import Mosaic, mosaic
from .pictures import Pictures
from .pretrained import pretrained
from .progress import Progress
from .render import DIVERGING, NORMALIZATIONS, SEQUENTIAL, colour_ranges
from .run import Run, run
from .targets import Target, check_target, class_index, probabilities

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
SUFFIXES = (".png", ".svg", ".pdf")
INDICES = ("channel", "call", "sample", "depth")
SETTINGS = ("layer", *INDICES, "order", "cmap", "normalize")


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
        takes, which goes in as it is. See `hookviz.inputs.prepare_input`.
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
        A widget. Its settings are traits: set them, observe them, link them.

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
    if isinstance(model, str):
        model, weights = pretrained(model, weights)
    return Explorer(
        model,
        image,
        layers=layers,
        target=target,
        weights=weights,
        transform=transform,
        class_names=class_names,
        **settings,
    )


class Explorer(widgets.VBox):
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
    normalize : {"channel", "layer", "percentile", "symmetric"}
        What the colours span, see `hookviz.render.colour_ranges`.
    order : {"index", "mean", "max", "zeros", "gradient"}
        The order of the channels on the slider and in the mosaic.
    cache : FeatureCache
        All that was captured.
    """

    layer = traitlets.Unicode()
    channel = traitlets.Int(0)
    call = traitlets.Int(0)
    sample = traitlets.Int(0)
    depth = traitlets.Int(0)
    target = traitlets.Any(None, allow_none=True)
    cmap = traitlets.Unicode("auto")
    normalize = traitlets.Enum(NORMALIZATIONS, "channel")
    order = traitlets.Enum(ORDERS, "index")

    def __init__(
        self,
        model: nn.Module,
        image: Any,
        *,
        layers: Layers = None,
        target: Target = None,
        weights: Any = None,
        transform: Transform | None = None,
        class_names: Sequence[str] | None = None,
        max_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in SETTINGS:
                raise TypeError(f"There is no setting {name!r}; {close_names(name, SETTINGS)}.")
        self._live = False  # nothing is drawn before all is there, nor after close()
        self._memo: dict[str, tuple[tuple, Any]] = {}
        self._model, self._layers, self._max_bytes = model, layers, max_bytes
        self._class_names = class_names_of(model, weights, class_names)
        self._inputs = prepare_input(image, model, weights=weights, transform=transform)
        self._run: Run | None = self._run_model(check_target(target))
        if not self.cache:
            raise ValueError(
                f"None of the layers ran: {', '.join(self.cache.missed[:5])}; name others with "
                "layers=."
            )
        super().__init__()
        self.target, self.layer = target, next(iter(self.cache))
        self._title, self._note = widgets.HTML(), widgets.HTML()
        self._predictions = widgets.HTML()
        self._controls = Controls(
            ["layer"],
            INDICES,
            ["target", "order", "cmap", "normalize"],
            {"cmap": "colours", "normalize": "range"},
            self._user_set,
        )
        self._pictures = Pictures()
        head = (self._title, self._note, self._predictions)
        self.children = (*head, self._controls, self._pictures)
        self.add_class(panels.ROOT_CLASS)
        self._live = True
        try:
            for name in SETTINGS:  # the layer first: it says what else is in range
                if name in settings:
                    setattr(self, name, settings[name])
            self._draw()
        except BaseException:
            self.close()
            raise

    # What is shown

    @property
    def cache(self) -> FeatureCache:
        """All that was captured by the latest forward and backward."""
        if self._run is None:
            raise RuntimeError("This explorer is closed: make a new one with hookviz.explore().")
        return self._run.cache

    @property
    def _view(self) -> LayerView:
        """The maps and gradients of the layer, call, sample and depth that are shown."""

        def make() -> LayerView:
            call, module = self._current_call(), self.cache[self.layer].module
            return layer_view(call.activation, call.gradient, module, self.sample, self.depth)

        key = (self.cache, self.layer, self.call, self.sample, self.depth)
        return self._once("view", key, make)

    @property
    def _channels(self) -> np.ndarray:
        """The channel numbers, in the order in which the slider and the mosaic have them."""
        view = self._view
        return self._once("order", (view, self.order), lambda: channel_order(view, self.order))

    def _once(self, name: str, key: tuple, make: Callable[[], Any]) -> Any:
        """What ``make`` returned for this key; made anew only when the key changes."""
        if name not in self._memo or self._memo[name][0] != key:
            self._memo[name] = (key, make())
        return self._memo[name][1]

    def _current_call(self) -> Call:
        """The shown call; a layer that went over the budget is fetched by running again."""
        record = self.cache[self.layer]
        if self.layer in self._once("dropped", (self.cache,), lambda: self.cache.dropped):
            key = (self.cache, self.layer)
            again = self._once("again", key, lambda: self._run_model(self.target, record.module))
            record = again.cache[self.layer]
        return record.calls[self.call]

    def _run_model(self, target: Target, only: nn.Module | None = None) -> Run:
        """One forward and backward; with ``only``, of one layer and without the budget."""
        with Progress() as progress:
            return run(
                self._model,
                self._inputs,
                target,
                layers=self._layers if only is None else only,
                class_names=self._class_names,
                max_bytes=self._max_bytes if only is None else None,
                tick=progress.tick,
            )

    # Settings

    @traitlets.validate("layer")
    def _known_layer(self, proposal: dict) -> str:
        name = proposal["value"]
        if name not in self.cache:
            raise traitlets.TraitError(
                f"layer={name!r} was not captured; {close_names(name, self.cache)}."
            )
        return self.cache[name].name

    @traitlets.validate(*INDICES)
    def _in_range(self, proposal: dict) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        count = self._counts()[name] if self._live else value + 1
        if not 0 <= value < count:
            raise traitlets.TraitError(
                f"{name}={value} is not in layer {self.layer!r}: give 0 to {count - 1}."
            )
        return value

    @traitlets.validate("cmap")
    def _known_cmap(self, proposal: dict) -> str:
        name = proposal["value"]
        if name != "auto" and name not in matplotlib.colormaps:
            raise traitlets.TraitError(
                f"cmap={name!r} is neither 'auto' nor a colormap of matplotlib's; "
                f"{close_names(name, ['auto', *matplotlib.colormaps])}."
            )
        return name

    @traitlets.validate("target")
    def _known_target(self, proposal: dict) -> Target:
        target = check_target(proposal["value"])
        if isinstance(target, (int, str)) and self._run and self._run.logits is not None:
            class_index(target, self._run.logits.shape[1], self._class_names)
        return target

    def _counts(self) -> dict[str, int]:
        """How many there are to choose from, for each index."""
        view = self._view
        calls = len(self.cache[self.layer].calls)
        counts = (len(view.maps), calls, view.samples, view.depths)
        return dict(zip(INDICES, counts, strict=True))

    @traitlets.observe("target")
    def _retarget(self, change: dict) -> None:
        if not self._live:
            return
        try:
            self._run = self._run_model(change["new"])
        except BaseException:
            with self._quietly():  # back to what is still shown
                self.target = change["old"]
            raise
        self._redraw(change)

    @traitlets.observe(*SETTINGS)
    def _redraw(self, change: dict) -> None:
        if not self._live:
            return
        if change["name"] not in ("channel", "cmap", "normalize", "order"):
            self._bring_into_range()
        self._draw()

    def _bring_into_range(self) -> None:
        """Another layer may have fewer calls, samples, slices or channels."""
        with self._quietly():
            self.call = min(self.call, len(self.cache[self.layer].calls) - 1)
            for name, count in self._counts().items():
                setattr(self, name, min(getattr(self, name), count - 1))

    def _quietly(self) -> _Quietly:
        return _Quietly(self)

    def _user_set(self, name: str, value: Any) -> None:
        """What a control does. An error is shown: a notebook hides what a callback raises."""
        try:
            setattr(self, name, int(self._channels[value]) if name == "channel" else value)
            self._note.value = ""
        except Exception as error:
            self._note.value = panels.note(str(error))
            self._draw()  # the control goes back to what is shown

    # Drawing

    def _draw(self) -> None:
        """The one path: bring controls and pictures to what the settings say."""
        with self.hold_sync():
            self._controls.show(self._values(), self._counts(), self._options())
            self._title.value = self._once("title", (self.cache,), self._title_html)
            self._predictions.value = panels.predictions(
                [(name, share) for _, name, share in self._ranked()]
            )
            self._pictures.show(self._frame())

    def _values(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("target", *SETTINGS)}
        return values | {"channel": self._position()}

    def _position(self) -> int:
        """Where the channel stands on its slider and in the mosaic."""
        return int(np.flatnonzero(self._channels == self.channel)[0])

    def _options(self) -> dict[str, Options]:
        layers = tuple((name or "(model)", name) for name in self.cache)
        cmaps = CMAPS if self.cmap in CMAPS else (*CMAPS, self.cmap)
        return {
            "layer": layers,
            "target": self._target_options(),
            "order": _plain_options(ORDERS),
            "cmap": _plain_options(cmaps),
            "normalize": _plain_options(NORMALIZATIONS),
        }

    def _target_options(self) -> Options:
        options: list[tuple[str, Any]] = [("top prediction", None)]
        options += [(f"{name} ({100 * share:.1f} %)", i) for i, name, share in self._ranked()]
        if not any(self.target == value for _, value in options):
            options.append((self._target_name(), self.target))
        return tuple(options)

    def _frame(self) -> Frame:
        view, channel = self._view, self.channel
        name, low, high = self._colours()
        tiles = self._tiles()
        dead = int(view.statistics.dead.sum())
        panel = self._panel(
            f"channel {channel}, {_size(view.maps)}", "", view.maps, name, low, high
        )
        shown = [panel]
        if view.gradients is not None:
            caption = f"gradient of {self._target_name()}"
            ranges = self._gradient_ranges()
            shown.append(self._panel(caption, f"{caption}: ", view.gradients, DIVERGING, *ranges))
        return Frame(
            title=f"{type(self._model).__name__} · {self.layer or '(model)'}",
            alt=self._describe(),
            picture=self._picture(),
            picture_alt=f"Input {self._inputs.name}, as the network saw it",
            panels=shown,
            tiles=tiles,
            tiles_cmap=name,
            tiles_caption=f"all {len(view.maps)} channels"
            + (f"; {dead} constant, crossed out" if dead else ""),
            tiles_alt=f"All {len(view.maps)} channels of layer {self.layer or '(model)'}",
            position=self._position(),
            readings=self._readings(panel),
        )

    def _panel(
        self,
        caption: str,
        prefix: str,
        maps: np.ndarray,
        cmap: str,
        low: np.ndarray,
        high: np.ndarray,
    ) -> Panel:
        here = self.channel
        alt = f"{prefix}{self._describe()}"
        return Panel(caption, alt, maps[here], cmap, float(low[here]), float(high[here]))

    def _colours(self) -> tuple[str, np.ndarray, np.ndarray]:
        """Colormap, and low and high for each channel."""
        view = self._view
        diverging = self.cmap == "auto" and view.signed
        name = (DIVERGING if diverging else SEQUENTIAL) if self.cmap == "auto" else self.cmap
        key = (view, self.normalize, diverging)
        limits = view.statistics.min, view.statistics.max
        return name, *self._once(
            "ranges",
            key,
            lambda: colour_ranges(view.maps, *limits, self.normalize, diverging=diverging),
        )

    def _gradient_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Low and high for each channel's gradient: zero is always in the middle."""
        view = self._view
        slopes = view.gradient_statistics
        assert view.gradients is not None and slopes is not None
        gradients = view.gradients
        return self._once(
            "gradient ranges",
            (view, self.normalize),
            lambda: colour_ranges(
                gradients, slopes.min, slopes.max, self.normalize, diverging=True
            ),
        )

    def _tiles(self) -> Mosaic:
        view, order = self._view, self._channels
        _, low, high = self._colours()
        dead = view.statistics.dead
        return self._once(
            "tiles",
            (view, self.order, self.normalize, self.cmap == "auto"),
            lambda: mosaic(view.maps[order], low[order], high[order], dead[order]),
        )

    def _picture(self) -> np.ndarray | None:
        """The input of the shown sample and, for a volume, of the same share of its depth."""
        view, main = self._view, self._inputs.main
        sample = self.sample if main is not None and len(main) == view.samples else 0
        depth = self.depth / (view.depths - 1) if view.depths > 1 else 0.0
        key = (sample, depth)
        return self._once("picture", key, lambda: picture_of(self._inputs, sample, depth))

    # Words

    def _ranked(self) -> list[tuple[int, str, float]]:
        """The shown sample's top five classes: number, name and probability."""
        logits = self._run.logits if self._run else None
        if logits is None:
            return []
        sample = min(self.sample, len(logits) - 1)

        def rank() -> list[tuple[int, str, float]]:
            best = probabilities(logits[sample : sample + 1])[0].topk(min(5, logits.shape[1]))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            return [(index, self._class_name(index), share) for index, share in pairs]

        return self._once("ranked", (self.cache, sample), rank)

    def _class_name(self, index: int) -> str:
        return self._class_names[index] if index < len(self._class_names) else f"class {index}"

    def _target_name(self) -> str:
        """What the gradient is of."""
        if callable(self.target):
            return getattr(self.target, "__name__", "a function")
        if self.target is None:
            ranked = self._ranked()
            return ranked[0][1] if ranked else "nothing"
        return self.target if isinstance(self.target, str) else self._class_name(self.target)

    def _describe(self) -> str:
        """This view in words: the alt text of pictures made of it."""
        kind = type(self.cache[self.layer].module).__name__
        return (
            f"channel {self.channel} of {len(self._view.maps)} of layer "
            f"{self.layer or '(model)'} ({kind}), a map of {_size(self._view.maps)}, in "
            f"{type(self._model).__name__}"
        )

    def _title_html(self) -> str:
        main = self._inputs.main
        parameter = next(self._model.parameters(), None)
        facts = [
            f"{len(self.cache)} layers",
            *(["input " + "×".join(map(str, main.shape))] if main is not None else []),
            *([str(parameter.device)] if parameter is not None else []),
            f"{megabytes(self.cache.nbytes)} kept",
        ]
        if self._run and not self._run.scored:
            facts.append("no class scores, so no gradient: give target=output -> scalar")
        return panels.title(type(self._model).__name__, facts)

    def _readings(self, panel: Panel) -> list[tuple[str, list[tuple[str, str]]]]:
        view, channel = self._view, self.channel
        outputs = self._current_call().outputs
        shape = "×".join(map(str, outputs[0].shape))
        dtype = str(outputs[0].dtype).removeprefix("torch.")
        heading = f"channel {channel}"
        if self.order != "index":
            heading += f" (no. {self._position() + 1} by {self.order})"
        span = f"{panels.number(panel.low)} to {panels.number(panel.high)}"
        rows = [(heading, [*_pairs(view.statistics, channel), ("colours", span)])]
        slopes = view.gradient_statistics
        if slopes is not None:
            norm = panels.number(float(slopes.norm[channel]))
            rows.append(("gradient", [("norm", norm), *_pairs(slopes, channel)]))
        kind = type(self.cache[self.layer].module).__name__
        whole = [("", kind), ("", shape), ("", dtype), *_pairs(view.statistics, None)]
        return [*rows, ("layer", whole)]

    # Out of the notebook

    def figure(self) -> Figure:
        """This very view as a matplotlib figure, with axes and colourbars.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot: there is nothing to close.
        """
        return draw_figure(self._frame())

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
        suffix = Path(path).suffix
        if suffix.lower() not in SUFFIXES:
            raise ValueError(f"Cannot save as {suffix!r}: end the name in {', '.join(SUFFIXES)}.")
        self.figure().savefig(path, **options)

    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        self._live = False
        self._run, self._memo = None, {}
        for child in self.children:
            _close_tree(child)
        self.layout.close()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        """The live widget, and a picture for places without a kernel, such as GitHub."""
        alt = self._describe()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        data = {
            "text/plain": alt,
            "image/png": base64.b64encode(small_png(self.figure())).decode(),
            "application/vnd.jupyter.widget-view+json": view,
        }
        return data, {"image/png": {"alt": alt}}

    if hasattr(widgets.VBox, "_ipython_display_"):  # ipywidgets 7 displays itself

        def _ipython_display_(self, **kwargs: Any) -> None:
            data, metadata = self._repr_mimebundle_()
            display(data, metadata=metadata, raw=True)


class _Quietly:
    """Within the block settings change without being checked or drawn."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def __enter__(self) -> None:
        self.explorer._live = False

    def __exit__(self, *error: object) -> None:
        self.explorer._live = True


def _close_tree(widget: widgets.Widget) -> None:
    """Close a widget with its children, layouts and styles: a VBox's close() leaves them."""
    for child in getattr(widget, "children", ()):
        _close_tree(child)
    for part in ("layout", "style"):
        if hasattr(widget, part):
            getattr(widget, part).close()
    widget.close()


def _plain_options(values: Sequence[str]) -> Options:
    return tuple((value, value) for value in values)


def _size(maps: np.ndarray) -> str:
    """Height and width of the maps, or a 1d layer's length."""
    _, height, width = maps.shape
    return f"{height}×{width}" if height > 1 else str(width)


def _pairs(values: ChannelStatistics, channel: int | None) -> list[tuple[str, str]]:
    """Readings of one channel, or of the whole layer."""
    here = slice(None) if channel is None else slice(channel, channel + 1)
    nans, infs = int(values.nans[here].sum()), int(values.infs[here].sum())
    known = values.mean[here][~np.isnan(values.mean[here])]
    return [
        ("min", panels.number(float(np.fmin.reduce(values.min[here])))),
        ("max", panels.number(float(np.fmax.reduce(values.max[here])))),
        ("mean", panels.number(float(known.mean()) if len(known) else float("nan"))),
        ("zeros", f"{100 * float(values.zeros[here].mean()):.1f} %"),
        ("NaN", f"{nans} (magenta)" if nans else "0"),
        ("Inf", f"{infs} (+ green, − cyan)" if infs else "0"),
    ]
