"""The widget: its settings are traits, and one path redraws what they say."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import matplotlib
import traitlets
from IPython.display import display
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..export.figure import draw_figure, small_png
from ..export.source import write_source
from ..export.source_input import Given
from ..hooking.interrupts import breakable, unbroken
from ..hooking.records import FeatureCache
from ..hooking.select import Layers, close_names, select_layers
from ..models import pretrained
from ..render import html as panels
from ..render.colours import NORMALIZATIONS
from ..run.inputs import ModelInput, Transform, class_names_of, prepare_input
from ..run.progress import Progress
from ..run.session import Run, run
from ..run.targets import Target, check_target, sample_scores
from ..view.frame import Frame
from ..view.heatmaps import Heat, heatmap_names, heatmaps
from ..view.layer import ORDERS
from ..view.subject import Memo, Subject
from ..view.view import Scene, Settings, showable, why_not_shown
from . import lifecycle as cells
from .controls import Controls, Options, Unfolding, close_tree
from .pictures import Pictures

CMAPS = ("auto", "viridis", "magma", "cividis", "gray", "RdBu_r", "PuOr_r", "coolwarm")
SUFFIXES = (".png", ".svg", ".pdf")
INDICES = ("channel", "call", "sample", "depth")
SETTINGS = tuple(setting.name for setting in fields(Settings) if setting.name != "target")


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
        takes, which goes in as it is. See `hookviz.prepare_input`.
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
    name = None
    if isinstance(model, str):
        name, (model, weights) = model, pretrained(model, weights)
    explorer = unbroken(Explorer, undo=Explorer.close)(
        model,
        image,
        layers=layers,
        target=target,
        weights=weights,
        transform=transform,
        class_names=class_names,
        **settings,
    )
    explorer._given = replace(explorer._given, name=name)
    return explorer


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
        What the colours span, see `hookviz.render.colours.colour_ranges`.
    order : {"index", "mean", "max", "zeros", "gradient", "weight"}
        The order of the channels on the slider and in the mosaic.
    heatmap : str
        One of ``hookviz.HEATMAPS``, or ``"activation × gradient"`` of the chosen channel alone, or,
        with captum installed, one of ``hookviz.ATTRIBUTIONS``, which run the model again.
    alpha : float
        How much of the heatmap is seen over the input, 0 to 1.
    overlay : bool
        Whether the heatmap is over the input, or alone, at its own size.
    strip : bool
        Whether the heatmaps of all layers are shown in a row.
    cache : FeatureCache
        All that was captured.
    inputs : ModelInput
        What the model is called with.
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
    heatmap = traitlets.Unicode("gradcam")
    alpha = traitlets.Float(0.5, min=0.0, max=1.0)
    overlay = traitlets.Bool(True)
    strip = traitlets.Bool(False)

    _closed = "This explorer is closed: make a new one with hookviz.explore()."

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
        select_layers(model, layers)
        check_target(target)
        self._live = False  # nothing is checked or drawn before all is there, nor after close()
        self._memo = Memo()
        self._model, self._layers, self._max_bytes = model, layers, max_bytes
        self._class_names = class_names_of(model, weights, class_names)
        self._inputs = breakable(prepare_input, image, model, weights=weights, transform=transform)
        self._given = Given(image, weights, transform)  # what the code begins with
        cells.close_earlier()  # first of all, so that memory never holds both
        self._run: Run | None = self._run_model(target)
        if not self.cache:
            raise ValueError(
                f"None of the layers ran: {', '.join(self.cache.missed[:5])}; name others with "
                "layers=."
            )
        shown = showable(self.cache)
        if not shown:
            first, record = next(iter(self.cache.items()))
            raise ValueError(f"Layer {first!r} cannot be shown: {why_not_shown(record)}")
        super().__init__()
        self.target, self.layer = target, shown[0]
        self._lay_out()
        self._live = True
        try:
            for name in SETTINGS:  # the layer first: it says what else is in range
                if name in settings:
                    setattr(self, name, settings[name])
            if "channel" not in settings:
                self.channel = int(self._scene().channels[0])
            self._draw()
        except BaseException:
            self.close()
            raise
        cells.made(self)

    def _lay_out(self) -> None:
        self._title, self._note = widgets.HTML(), widgets.HTML()
        self._predictions = widgets.HTML()
        labels = {
            "alpha": "opacity",
            "overlay": "shown",
            "strip": "all layers",
            "cmap": "colours",
            "normalize": "range",
        }
        self._controls = Controls(
            ("layer",),
            (*INDICES, "alpha"),
            ("target", "heatmap", "overlay", "strip", "order", "cmap", "normalize"),
            labels,
            self._user_set,
        )
        self._pictures = Pictures()
        self._code = Unfolding("the hooks", self._code_html)
        head = (self._title, self._note, self._predictions)
        self.children = (*head, self._controls, self._pictures, self._code)
        self.add_class(panels.ROOT_CLASS)

    # The model

    @property
    def cache(self) -> FeatureCache:
        """All that was captured by the latest forward and backward."""
        return self._subject.run.cache

    @property
    def inputs(self) -> ModelInput:
        """What the model is called with: ``model(*inputs.args, **inputs.kwargs)``."""
        if self._run is None:
            raise RuntimeError(self._closed)
        return self._inputs

    @property
    def _subject(self) -> Subject:
        if self._run is None:
            raise RuntimeError(self._closed)
        names = self._class_names
        return Subject(self._model, self._inputs, names, self._run, self._run_again)

    def _run_model(self, target: Target) -> Run:
        return self._run_layers(target, self._layers, self._max_bytes)

    def _run_again(self, module: nn.Module) -> Run:
        """For one layer that went over the budget."""
        return self._run_layers(self.target, module, None)

    def _run_layers(self, target: Target, layers: Layers, max_bytes: int | None) -> Run:
        with Progress() as progress:
            return run(
                self._model,
                self._inputs,
                target,
                layers=layers,
                class_names=self._class_names,
                max_bytes=max_bytes,
                tick=progress.tick,
            )

    # Settings

    def _scene(self) -> Scene:
        """What is to be seen at the present settings."""
        if self.heatmap not in heatmap_names():  # the user has taken it out of HEATMAPS
            with _Quietly(self):
                self.heatmap = "gradcam"
        values = {name: getattr(self, name) for name in ("target", *SETTINGS)}
        return Scene(self._subject, Settings(**values), self._memo)

    @traitlets.validate("layer")
    def _known_layer(self, proposal: dict) -> str:
        name = proposal["value"]
        if name not in self.cache:
            raise traitlets.TraitError(
                f"layer={name!r} was not captured; {close_names(name, self.cache)}."
            )
        record = self.cache[name]
        if self._live and record.name not in self._scene().layers:
            raise traitlets.TraitError(f"layer={name!r} cannot be shown: {why_not_shown(record)}")
        return record.name

    @traitlets.validate(*INDICES)
    def _in_range(self, proposal: dict) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        count = self._scene().counts()[name] if self._live else value + 1
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

    @traitlets.validate("alpha")
    def _not_nan(self, proposal: dict) -> float:
        if math.isnan(proposal["value"]):
            raise traitlets.TraitError("alpha=nan is no opacity: give 0 to 1.")
        return proposal["value"]

    @traitlets.validate("heatmap")
    def _known_heatmap(self, proposal: dict) -> str:
        name, names = proposal["value"], heatmap_names()
        if self._live and name not in names:
            raise traitlets.TraitError(
                f"heatmap={name!r} is no heatmap; {close_names(name, names)}; all are "
                f"{', '.join(names)}."
            )
        return name

    @traitlets.validate("target")
    def _known_target(self, proposal: dict) -> Target:
        target = check_target(proposal["value"])
        if not callable(target) and self._run and self._run.logits is not None:
            sample_scores(self._run.logits, target, self._class_names)
        return target

    @traitlets.observe("target")
    @unbroken
    def _retarget(self, change: dict) -> None:
        if not self._is_live():
            return
        before = self._run
        try:
            self._run = self._run_model(change["new"])
            self._memo.keep("picture")
            self._redraw(change)
        except BaseException:
            if self._run is not None:  # nobody has closed it meanwhile
                self._run = before
            with _Quietly(self):  # back to what is still shown
                self.target = change["old"]
            raise

    @traitlets.observe(*SETTINGS)
    def _redraw(self, change: dict) -> None:
        if not self._is_live():
            return
        before = {name: getattr(self, name) for name in INDICES} | {change["name"]: change["old"]}
        try:
            if change["name"] in ("layer", "call", "sample", "target"):
                self._bring_into_range()
            self._draw()
        except Exception:
            # A heatmap that raises, say: back to what could be shown.
            with _Quietly(self):
                for name, value in before.items():
                    setattr(self, name, value)
            raise

    def _is_live(self) -> bool:
        """Whether settings are drawn; says so if they never will be again."""
        if self._run is None:
            raise RuntimeError(self._closed)
        return self._live

    def _bring_into_range(self) -> None:
        """Another layer may have fewer calls, samples, slices or channels."""
        with _Quietly(self):
            self.call = min(self.call, len(self.cache[self.layer].calls) - 1)
            for name, count in self._scene().counts().items():
                setattr(self, name, min(getattr(self, name), count - 1))

    def _user_set(self, name: str, value: Any) -> None:
        """What a control does. An error is shown: a notebook hides what a callback raises."""
        try:
            if name == "channel":
                value = int(self._scene().channels[value])
            setattr(self, name, value / 100 if name == "alpha" else value)
            self._note.value = ""
        except Exception as error:
            self._note.value = panels.note(str(error))
            self._draw()  # the control goes back to what is shown

    # Drawing

    def _draw(self) -> None:
        """The one path: bring controls and pictures to what the settings say."""
        scene = self._scene()
        frame = self._frame(scene)
        self._show_controls(scene, frame)
        subject, cache = scene.subject, scene.cache
        self._title.value = self._memo.once(
            "title", (cache,), lambda: panels.title(subject.name, subject.facts())
        )
        ranked = [(name, share) for _, name, share in self._ranked(scene)]
        self._predictions.value = panels.predictions(ranked)
        self._pictures.show(frame)
        self._code.update()

    def _frame(self, scene: Scene | None = None) -> Frame:
        scene = scene or self._scene()
        heat = Heat(scene)
        return Frame(
            title=f"{scene.subject.name} · {scene.layer_name}",
            picture=scene.picture,
            picture_alt=f"Input {self._inputs.name}, as the network saw it",
            picture_caption=scene.picture_caption,
            panels=[*scene.panels(), *heat.panels()],
            heat=heat.sheet(),
            strip=heat.strip(),
            tiles=scene.tiles(),
            tiles_cmap=scene.colours()[0],
            tiles_caption=scene.tiles_caption(),
            tiles_alt=f"All {len(scene.view.maps)} channels of layer {scene.layer_name}",
            position=scene.position,
            readings=[*scene.readings(), *heat.readings()],
        )

    def _show_controls(self, scene: Scene, frame: Frame) -> None:
        at = scene.at
        values = {name: getattr(at, name) for name in ("target", *SETTINGS)}
        values |= {"channel": frame.position, "alpha": round(100 * at.alpha)}
        blended = frame.heat is not None or frame.strip is not None
        counts = scene.counts() | {"alpha": 101 if blended else 0}  # per cent
        slider = self._controls.by_name["channel"]
        slider.description = "channel" if at.order == "index" else "rank"
        self._controls.show(values, counts, self._options(scene))

    def _options(self, scene: Scene) -> dict[str, Options]:
        cmap = self.cmap
        return {
            "layer": tuple((name or "(model)", name) for name in scene.layers),
            "target": self._target_options(scene),
            "heatmap": _same(heatmap_names()),
            "overlay": (("over the input", True), ("heatmap alone", False)),
            "strip": (("hidden", False), ("in a strip", True)),
            "order": _same(ORDERS),
            "cmap": _same(CMAPS if cmap in CMAPS else (*CMAPS, cmap)),
            "normalize": _same(NORMALIZATIONS),
        }

    def _ranked(self, scene: Scene) -> list[tuple[int, str, float]]:
        sample = scene.input_sample
        key = (scene.cache, sample)
        return self._memo.once("ranked", key, lambda: scene.subject.ranked(sample))

    def _target_options(self, scene: Scene) -> Options:
        options: list[tuple[str, Any]] = [("top prediction", None)]
        options += [(f"{name} ({100 * share:.1f} %)", i) for i, name, share in self._ranked(scene)]
        if not any(self.target == value for _, value in options):
            options.append((scene.target_name, self.target))
        return tuple(options)

    # Out of the notebook

    def code(self) -> str:
        """This view without hookviz: the shortest PyTorch code that computes and draws it.

        Shown in the widget by the button "show the hooks". Paste it into the next cell, or read
        it: it is what `hookviz.capture` does, for one layer.

        Returns
        -------
        str
            Python source; comments at its beginning say what it takes, such as ``model``, and
            ``target`` where that is a function. The heatmap's function is printed, also one that
            you have put into ``hookviz.HEATMAPS``; if it has no source it is taken as ``method``.

        Raises
        ------
        ValueError
            A few lines cannot do it, as for compiled parts of a model; the message says why.

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
        return write_source(self._scene(), self._given)

    def _code_html(self) -> str:
        try:
            return panels.code(self.code())
        except ValueError as error:
            return panels.note(str(error))

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

    def heatmaps(self, method: str | None = None) -> dict[str, Tensor]:
        """Every layer's heatmap, in the order in which the layers ran.

        Parameters
        ----------
        method : str, optional
            One of ``hookviz.HEATMAPS``; the explorer's own if left out.

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
        return heatmaps(self._subject, method or self.heatmap)

    @unbroken
    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        self._live = False
        self._run, self._memo = None, Memo()
        for child in self.children:
            close_tree(child)
        self.layout.close()
        super().close()
        _unlink(self)
        # IPython's Out may keep it for ever: then without model, input and pictures.
        self.set_trait("children", ())
        data, shown = ("_model", "_inputs", "_layers", "_given"), ("_title", "_predictions")
        for name in (*data, *shown, "_controls", "_pictures", "_code"):
            self.__dict__.pop(name, None)

    def __repr__(self) -> str:
        return super().__repr__() if self.__dict__.get("_run") else self._closed

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        """The live widget, and a picture for places without a kernel, such as GitHub."""
        cells.shown(self)
        alt = self._scene().describe()
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
        self.before, self.explorer._live = self.explorer._live, False

    def __exit__(self, *error: object) -> None:
        # Within the block somebody who observes a setting may have closed the explorer.
        self.explorer._live = self.before and self.explorer._run is not None


def _unlink(explorer: Explorer) -> None:
    """Undo its links: another explorer would go on setting what is closed."""
    named = [kinds.values() for kinds in explorer._trait_notifiers.values()]
    for notify in [each for lists in named for several in lists for each in several]:
        link = getattr(notify, "__self__", None)
        if isinstance(link, (traitlets.link, traitlets.dlink)):
            link.unlink()


def _same(values: Sequence[str]) -> Options:
    """Options that are called what they are."""
    return tuple((value, value) for value in values)
