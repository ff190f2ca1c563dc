"""The explorer: a view of a user's network, the face that shows it, and its edits."""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from IPython.display import HTML
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..attribution.flip import Flip
from ..attribution.heads import check_token_names, with_attention
from ..draw import html
from ..draw.document import IN_NOTEBOOK, in_frame
from ..draw.html import ROOT_CLASS
from ..export.code import Given, write_source
from ..export.figure import draw_figure, save_figure, still_png
from ..export.lesson import Step
from ..export.network.onnx_graph import Precision, check_precision
from ..export.network.page import write_network_page
from ..export.page import write_page
from ..files import check_folder, page_to
from ..hooking.changes import Change, Channels, Where
from ..hooking.edit import LayerEdit
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..hooking.records import FeatureCache
from ..hooking.select import Layers, close_names, select_layers
from ..models import pretrained
from ..run.inputs import ModelInput, Transform, prepare_input
from ..run.progress import Progress, shown_by
from ..run.session import Session, alone
from ..run.target import Target, check_target, named_target
from ..studies.graph.contributions import Contributions
from ..studies.graph.kernels import LayerWeights, layer_weights
from ..studies.survey.survey import Survey, check_survey
from ..view.attending import edit_in
from ..view.build import build_frame
from ..view.frame import Frame
from ..view.heatmaps import Sides, heatmap_of, heatmaps, shown_sides
from ..view.layer import SCORE_DROP, SIMILARITY
from ..view.maps import counts_of, fitted
from ..view.messages import BesideRequest, Request, TargetRequest, Thumbnail
from ..view.opening import first_shown
from ..view.orders import ablate, channels_of, flip_of
from ..view.predictions import prediction_moved, predictions_of
from ..view.reason import contributions_of
from ..view.runs import (
    RunSession,
    displayed_view,
    quick_preview,
    run_pair,
    run_view,
    runner,
    with_order,
)
from ..view.settings import WRITTEN, Settings, documented, name_settings
from ..view.view import View
from ..view.written import at_browsed, at_written
from .below import TopInputs, Unfolding
from .canvas import Canvas
from .gallery import Gallery
from .lifecycle import close_earlier, close_tree, register
from .pair import PictureBeside
from .plain import PlainFace
from .requests import HANDLERS
from .setting_traits import SettingError, SettingsWidget

FaceName = Literal["canvas", "plain"]


@name_settings
def explore(
    model: nn.Module | str,
    inputs: Any,
    target: Target = None,
    *,
    layers: Layers = None,
    weights: Any = None,
    transform: Transform | None = None,
    class_names: Sequence[str] | None = None,
    token_names: Sequence[str] | None = None,
    max_bytes: int | None = None,
    face: FaceName | None = None,
    **settings: Any,
) -> Explorer:
    """Show every layer's feature maps and gradients, with sliders.

    Runs one forward and one backward; after that, moving a slider only redraws.

    Parameters
    ----------
    model : torch.nn.Module or str
        Any convnet; or the name of a trained one, see `hookviz.pretrained`, which is loaded with
        ``weights`` (its default weights if left out).
    inputs
        A path, PIL image or array ``(H, W)`` or ``(H, W, 3)``, which goes through
        ``transform``; or a tensor ``(C, H, W)`` or ``(N, C, H, W)`` or whatever the model
        takes, which goes in as it is. See `hookviz.attribution.prepare_input`.
    target : optional
        The score whose gradient is shown: None is each picture's top prediction; or a class
        number or name, a tuple of classes (the first against the others), a number in the
        output, written ``hookviz.output[1][0, 1, 48, 26]``, or a function ``output -> scalar``;
        or one of these as a text, ``"moon - fish"``, ``"output[1][0, 1, 48, 26]"``.
    layers : optional
        As in `hookviz.capture`; None is every convolution and, of a transformer, every block.
        Attention of these is a layer, too: in ``"blocks.3.attn.heads"`` a channel is a head, and
        its map is what the chosen patch looks at, or the class token while none is chosen.
    weights : torchvision weights entry, optional
        Says how pictures are transformed and what the classes are called.
    transform : callable, optional
        PIL image -> tensor. It gets the picture upright and in its own mode, a gray file as ``L``.
    class_names : sequence of str, optional
    token_names : sequence of str, optional
        The words, one for each token, for the matrices of attention of a model of text.
    max_bytes : int, optional
        A budget for the captured tensors, in bytes.
    face : {"canvas", "plain"}, optional
        The canvas is drawn by the browser; the plain face is core widgets and a matplotlib
        picture. Left out, the canvas takes the plain face's place where it can run.
    layer, call, sample, depth, channel, order, reference_channel, cmap, normalize, heatmap, \
alpha, over_input, all_layers, shown_after, place, position, shown_run : optional
        Where to begin: the explorer's settings, see `hookviz.widgets.Explorer`; or all that
        `Explorer.settings` returned, ``**settings``.

    Returns
    -------
    Explorer
        A widget. Its settings are traits: set them, observe them, link them. When the cell that
        made it runs again and makes another, it is closed, unless it is shown elsewhere, too.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError, RuntimeError
        The image cannot be read, the input does not fit, a layer or class is unknown, the model
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
        if name not in WRITTEN:
            raise TypeError(f"Unknown setting {name!r}; {close_names(name, WRITTEN)}.")
    if face not in ("canvas", "plain", None):
        raise ValueError(f"face={face!r} is unknown: give 'canvas', 'plain' or None.")
    known = None
    if isinstance(model, str):
        known, (model, weights) = model, pretrained(model, weights)
    select_layers(model, with_attention(model, layers))
    target = check_target(target)
    prepared = prepare_input(inputs, model, weights=weights, transform=transform)
    session = Session(
        model, prepared, weights=weights, class_names=class_names, token_names=token_names
    )
    target = named_target(target, session.class_names)
    given = Given(inputs, weights, transform, known)
    make = defer_interrupts(Explorer, undo=Explorer.close)
    made = make(session, given, runner(layers, max_bytes), target=target, face=face, **settings)
    try:
        check_token_names(made.cache, session.token_names)
    except ValueError:
        made.close()
        raise
    return made


class Explorer(SettingsWidget):
    """The widget that `explore` returns.

    Attributes
    ----------
    SETTINGS
    edits : tuple of hookviz.hooking.edit.LayerEdit
        The edits of the network; see `edit`, `undo`, `reset`.
    image
        The user's inputs; setting them runs the model again and keeps all settings.
    survey : Survey or None
        If set, the inputs of a data set that excite the channel most are displayed.
    cache : FeatureCache
        The captured tensors of the latest forward and backward.
    inputs : ModelInput
        The model is called with ``model(*inputs.args, **inputs.kwargs)``.
    frame : hookviz.view.frame.Frame
        All that is on the screen, in numbers and words.
    closed : bool
    """

    closed_message = "This explorer is closed: make a new one with hookviz.explore()."

    _still: tuple[Frame, bytes] | None = None  # the last frame and its picture
    _code: Unfolding | None = None
    _face: PlainFace | None = None
    gallery: Gallery = Gallery()
    _note = ""  # the reason why a control failed, or progress

    def __init__(
        self,
        session: Session,
        given: Given,
        run: RunSession,
        *,
        target: Target = None,
        face: FaceName | None = None,
        beside: Session | None = None,
        **settings: Any,
    ) -> None:
        close_earlier()  # first, so that memory never holds both
        super().__init__()
        self._run: RunSession | None = run
        self._beside, self._given = beside, given  # `beside`: the session of the original run
        self._frame: Frame | None = None
        self._channels: dict[str, int] = {}  # by layer: the channel that was shown last
        self.gallery = Gallery()
        self._pair = PictureBeside(self)
        self._tops = TopInputs(lambda: self._now.settings)
        try:
            self._begin(session, target, settings, face)
        except BaseException:
            self.close()
            raise
        register(self)

    def _begin(
        self, session: Session, target: Target, settings: dict[str, Any], face: FaceName | None
    ) -> None:
        self._set_view(self._view_of(session, Settings("", target=target)), None)
        self._quiet = False
        try:
            view = at_written(self._now, settings)
        except ValueError as error:
            raise SettingError(str(error)) from None
        if view.settings.order == SCORE_DROP:
            allow_interrupts(ablate, view)
        if view.settings.order == SIMILARITY and "reference_channel" not in settings:
            view = view.with_settings(reference_channel=view.settings.channel)
        if "channel" not in settings and {"layer", "order", "sample"} & settings.keys():
            view = view.with_settings(channel=int(channels_of(view)[0]))
        self._set_view(view, None)
        self._code = Unfolding("code for this view", self._code_html)
        below = (self._tops, self._code)
        if face != "plain" and os.environ.get("HOOKVIZ_CANVAS") != "off":
            self._canvas = Canvas(self)
            self._canvas.observe(self._take_place, "alive")
        if face == "canvas":
            self.children = (self._canvas, *below)
        else:
            self._face = PlainFace(self._on_control, self.say, self._still_png)
            self.children = (self._face, *below)
        self.add_class(ROOT_CLASS)
        self._go_to(self._now)

    # What is shown

    @property
    def frame(self) -> Frame:
        """Everything on the screen, in numbers and words."""
        if self._frame is None:  # the canvas draws without it
            self._frame = replace(build_frame(self._now), note=self._note)
        return self._frame

    def frame_of(self, run: str) -> Frame:
        """Return the frame of the same view with another ``shown_run``."""
        return build_frame(self._now.with_settings(shown_run=run))

    @property
    def cache(self) -> FeatureCache:
        return self._now.cache

    @property
    def inputs(self) -> ModelInput:
        return self._now.session.inputs

    # One path from a view to the screen

    def _view_of(
        self, session: Session, at: Settings, before: View | None = None, *, same: bool = False
    ) -> View:
        """Run a session; ``same`` is True if its network and input are those of `before`."""
        assert self._run is not None  # not closed
        if self._beside is not None:
            return run_pair(self._run, self._beside, session, at)
        original = before.original or before if same and before else None
        memo = before.input_memo if before and before.session is session else None
        return run_view(self._run, session, at, input_memo=memo, original=original)

    def _changed_to(self, name: str, value: Any) -> None:
        before = self._now
        view = before.with_settings(**{name: value})
        if name == "target":
            view = self._view_of(view.session, view.settings, view)
            view = view.remembering(before, "the change of target")
        if (name, value, view.settings.order) == ("shown_run", "original", SCORE_DROP):
            view = view.with_settings(order="index")  # the score drop is of the edited run
        if name == "order" and self.children:
            view = with_order(view)
        view = fitted(view)
        if name == "layer":
            view = first_shown(before, view, self._channels)
        self._go_to(view)

    def _go_to(self, view: View) -> None:
        """Update settings, controls and pictures to this view."""
        frame = None
        if self.children and self._face is not None:
            frame = allow_interrupts(build_frame, view)
        elif self.children:  # the browser draws; what a user's own code may break is tried here
            shown = displayed_view(view)
            if view is self._now or view.settings.heatmap != self._now.settings.heatmap:
                allow_interrupts(heatmap_of, shown)
            allow_interrupts(counts_of, shown)
        self._set_view(view, frame)
        self._show()

    def _set_view(self, view: View, frame: Frame | None) -> None:
        self._frame, self._note, self._still = frame, "", None
        self._take_settings(view)
        self._channels[view.settings.layer] = view.settings.channel

    def _show(self) -> None:
        if not self.children:  # an observer has closed it
            return
        if self._face is None:
            self._canvas.show(self._note)
        else:
            self._face.show(self.frame)
        self._show_below()

    def _show_below(self) -> None:
        self._tops.show()
        if self._code is not None:
            self._code.show()

    def say(self, note: str) -> None:
        """Show a note until the next use of a control; an empty note removes it."""
        if note or self._note:
            self._note = note
            self._frame = self._frame and replace(self._frame, note=note)
            self._show()  # controls go back to the shown settings

    def _say_share(self, share: float | None) -> None:
        """Show the progress of a control's work; a callback has no output for a bar."""
        self.say("" if share is None else f"{100 * share:.0f} % done; interrupt the kernel to stop")

    def _try(self, act: Callable[[], object]) -> None:
        """Do what a control asks for; show errors, since a notebook hides those of callbacks."""
        before, note = self._now, ""
        try:
            with shown_by(self._say_share):
                act()
        except Exception as error:
            note = str(error)
        if note or self._now is before:  # a change has its own note, or none
            self.say(note)

    def _on_control(self, name: str, value: Any) -> None:
        self._try(lambda: setattr(self, name, value))

    # The canvas, see `canvas.Explored`

    @alone
    def _take_place(self, change: dict[str, Any]) -> None:
        """Replace the plain face by the canvas, now that the browser can draw it."""
        if self.closed or self._canvas is None or self._face is None:
            return
        self._canvas.show(self._note)  # settings may have changed since it was made
        plain, *below = self.children
        self.set_trait("children", (self._canvas, *below))
        close_tree(plain)
        self._face = None

    def thumbnails(self) -> list[Thumbnail]:
        """Return small pictures of the inputs."""
        return self.gallery.thumbnails(self._given.image, self.inputs)

    @alone
    @defer_interrupts
    def follow(self, settings: Mapping[str, Any]) -> None:
        """Take over the settings of the browser, which has moved by itself."""
        view = self._now
        for name in ("order", "shown_run"):  # the browser cannot do these by itself
            wanted = settings.get(name, getattr(view.settings, name))
            if wanted == getattr(view.settings, name):
                continue
            layer = settings.get("layer", view.settings.layer)
            known = wanted != SCORE_DROP or layer in {**view.drops, **view.old_drops}
            if name == "order" and known:
                continue
            self._on_control(name, wanted)
            view = self._now
            settings = {**settings, "channel": view.settings.channel}  # the first of an order
        self._set_view(at_browsed(view, settings), None)
        self._show_below()

    @alone
    def handle(self, request: Request, data: Sequence[Any]) -> None:
        """Do what a request of the browser says."""
        if request.settings:
            self.follow(request.settings)
        if not isinstance(request, (TargetRequest, BesideRequest)):
            self._pair.end()
        self._try(lambda: HANDLERS[type(request)](self, request, data))

    def edit_named(self, key: int) -> LayerEdit | None:
        """Return the edit that the browser names by a number."""
        return None if self._canvas is None else self._canvas.edit_named(key)

    def show_beside(self, key: int, sample: int) -> None:
        """Show a picture of the gallery beside this one; the same one again ends it."""
        self._pair.toggle(key, sample)

    # Another run

    @property
    def image(self) -> Any:
        """The user's inputs; setting them runs the model again and keeps all settings.

        Edits of layers stay; edits of the input belong to the picture and go with it.
        """
        return self._given.image

    @image.setter
    @alone
    def image(self, image: Any) -> None:
        before = predictions_of(self._now)[:1]
        self._rerun(self.session_for(image))
        self._given = replace(self._given, image=image)
        self._show()  # the code names the picture
        self.say(prediction_moved(before, predictions_of(self._now)[:1]))

    def session_for(self, image: Any) -> Session:
        """Return a session of this network, with its edits of layers, for another input."""
        given, old = self._given, self._now.session
        inputs = prepare_input(image, old.given, weights=given.weights, transform=given.transform)
        names = old.class_names or None
        session = Session(old.given, inputs, class_names=names, token_names=old.token_names)
        return session.edited([edit for edit in old.edits if not edit.of_input])

    def refresh(self) -> None:
        """Run the model again, for example after its weights have changed; all settings stay.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> explorer.channel = 5
        >>> explorer.refresh()  # after a training step
        >>> explorer.image = hookviz.demo_images()[2]  # the same view of another
        >>> explorer.channel
        5
        >>> explorer.close()
        """
        self._rerun(self._now.session)

    @alone
    @defer_interrupts
    def _rerun(self, session: Session) -> None:
        view = self._view_of(session, self._now.settings)
        self._go_to(fitted(view.remembering(self._now, "this one")))

    @property
    def survey(self) -> Survey | None:
        """A survey of a data set, whose top inputs of the shown channel are displayed below."""
        return self._tops.survey

    @survey.setter
    def survey(self, survey: Survey | None) -> None:
        if survey is not None:
            check_survey(survey, self._now.session.model)
        self._tops.survey = survey
        self._tops.show()

    # The edits

    def edit(
        self,
        layer: str | None = None,
        change: Change = 0,
        *,
        channels: Channels = None,
        where: Where = None,
    ) -> None:
        """Change a layer's output, and show the effect on the network.

        The model runs again with all `edits`; then maps, gradients, heatmaps and predictions are
        of that run. The setting ``shown_run`` shows the original run, or the difference.

        Parameters
        ----------
        layer : str, optional
            The shown one if left out. In attention, ``"blocks.3.attn.heads"``, channels are heads:
            ``change`` is a number, by which the weights are multiplied.
        change, where
            As for `hookviz.edit`; 0 is off.
        channels : optional
            As for `hookviz.edit`. The shown one if left out, or, where ``layer`` is given, all.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As `hookviz.edit` does; then all is as before.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> explorer.edit("layer3.1.conv2", 0, channels=[3, 17])
        >>> [str(each) for each in explorer.edits]
        ['layer3.1.conv2, channels [3, 17]: off']
        >>> explorer.shown_run = "difference"
        >>> explorer.undo()
        >>> explorer.edits
        ()
        >>> explorer.close()
        """
        at = self._now.settings
        if layer is None and channels is None:
            channels = at.channel
        layer = at.layer if layer is None else layer
        self.edits = (*self.edits, edit_in(self._now, layer, change, channels, where))

    def flip(self) -> Flip:
        """Switch channels of the shown layer off, in the shown order, until the answer changes.

        Those that are not needed for it are switched on again. The others are one edit: `undo`
        takes it out.

        Returns
        -------
        hookviz.attribution.flip.Flip
            With ``channels``, the smallest set found, and ``curve``, the probability of the answer
            by the number of channels off.

        Raises
        ------
        ValueError
            The model gives no scores for two or more classes.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(
        ...     hookviz.demo_model(), hookviz.demo_images()[6], layer="layer3.1.conv2"
        ... )
        >>> explorer.order = "score drop"
        >>> flip = explorer.flip()
        >>> len(flip.channels) < len(flip.curve), len(explorer.edits)
        (True, 1)
        >>> explorer.close()
        """
        view = self._now
        flip = flip_of(view, channels_of(displayed_view(view)).tolist())
        with Progress() as bar:
            share = 0.0
            while share < 1:
                share = allow_interrupts(flip.work, 1.0)
                bar.update(share)
        if flip.channels:
            self.edits = (*self.edits, edit_in(view, view.settings.layer, 0, flip.channels))
        return flip

    @property
    def edits(self) -> tuple[LayerEdit, ...]:
        """All edits, in order; may be set."""
        return self._now.session.edits

    @edits.setter
    @alone
    @defer_interrupts
    def edits(self, edits: Sequence[LayerEdit]) -> None:
        view, edits = self._now, tuple(edits)
        if edits == view.session.edits:
            return
        session = view.session.edited(edits)
        if edits and self._face is not None and self._frame is not None:
            preview = quick_preview(session, view.original or view)
            if preview is not None:  # the bars move before the pictures are ready
                self._frame = replace(self._frame, predictions=predictions_of(preview))
                self._show()
        after = self._view_of(session, view.settings, view, same=True)
        self._go_to(fitted(after.remembering(view, "the edit")))

    def undo(self) -> None:
        """Undo the latest edit, if any."""
        self.edits = self.edits[:-1]

    def reset(self) -> None:
        """Undo all edits."""
        self.edits = ()

    # Numbers

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

    # Export

    def code(self) -> str:
        """Return this view as PyTorch code without hookviz: hook, gradient, heatmap and figure.

        The widget shows it at the button "code for this view". It runs as it stands and gives the
        numbers of the view.

        Returns
        -------
        str
            Python source. Comments at the top name the variables that you define, such as
            ``model``, ``image`` or, for a function as target, ``target``.

        Raises
        ------
        ValueError
            The code cannot express the view, such as one with edits, of a volume, or with a heatmap
            outside Grad-CAM's family; the message says what to do instead.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
        >>> print(explorer.code())
        # model: your DemoNet
        # image: the picture that you gave
        import matplotlib.pyplot as plt
        ...
        with model.get_submodule("layer3.1.conv2").register_forward_hook(keep):
        ...
        >>> explorer.close()
        """
        return write_source(displayed_view(fitted(self._now)), self._given)

    def _code_html(self) -> str:
        try:
            return html.code(self.code())
        except ValueError as error:
            return html.note(str(error))

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
        save_figure(self.frame, path, **options)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        layers: Layers = None,
        max_bytes: float = 10e6,
        title: str | None = None,
        steps: Sequence[Step] = (),
        network: bool = False,
        precision: Precision = "float32",
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
            half precision, or rounded to 252 steps with large layers averaged; the page says so.
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
        options: dict[str, Any] = {"layers": layers, "max_bytes": max_bytes, "title": title}
        options["steps"] = steps
        check_folder(path)
        with Progress() as bar:
            if network:
                del options["max_bytes"]
                written = partial(write_network_page, precision=check_precision(precision))
                page = allow_interrupts(written, view, on_progress=bar.update, **options)
                return page_to(path, page)
            again = partial(run, view.session)
            page = allow_interrupts(write_page, view, again, on_progress=bar.update, **options)
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

    def _alt(self) -> str:
        return self.frame.description

    def _output(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return this view in words, and a picture for places without a kernel."""
        alt, png = self._alt(), base64.b64encode(self._still_png(self.frame)).decode()
        return {"text/plain": alt, "image/png": png}, {"image/png": {"alt": alt}}

    def _still_png(self, frame: Frame) -> bytes:
        """Return a frame's still picture, composed once."""
        if self._still is None or self._still[0] is not frame:
            self._still = frame, still_png(frame)
        return self._still[1]

    def view(self) -> dict[str, Any]:
        """Return the live widget's part of a notebook's output; mark it as displayed there."""
        if self._face is not None and self._canvas is None:
            self._face.use(self.frame)
        return super().view()

    # Closing

    @defer_interrupts
    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        attributes = vars(self)
        if "_pair" in attributes:
            self._pair.end()
        for part in (self._canvas, attributes.get("_tops")):
            if part is not None and part not in self.children:
                close_tree(part)
        super().close()
        self._view = self._frame = self._run = self._canvas = self._still = self._beside = None
        self._given, self._face, self._code = Given(None), None, None
        self._channels, self.gallery = {}, Gallery()


Explorer.__doc__ = inspect.cleandoc(Explorer.__doc__ or "").replace("SETTINGS", documented(""))
