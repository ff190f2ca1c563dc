"""The explorer: a view of a user's network, the face that shows it, and its edits."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from ..attribution.flip import Flip
from ..attribution.heads import with_attention
from ..draw.html import ROOT_CLASS
from ..hooking.changes import Change, Channels, Where
from ..hooking.edit import LayerEdit
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..hooking.records import FeatureCache
from ..hooking.select import Layers, close_names, select_layers
from ..models import pretrained
from ..run.inputs import ModelInput, Transform, prepare_input
from ..run.output import Output
from ..run.progress import Progress
from ..run.session import Session, alone
from ..run.target import Target, check_target, named_target
from ..studies.survey.survey import Survey, check_survey
from ..view.attending import edit_in
from ..view.frame import Frame
from ..view.layer import SCORE_DROP, SIMILARITY
from ..view.maps import fitted
from ..view.messages import BesideRequest, Request, TargetRequest
from ..view.opening import first_shown, where_the_gradient_arrives, without_silence
from ..view.orders import ablate, channels_of, flip_of, flip_order
from ..view.predictions import prediction_moved, predictions_of
from ..view.runs import (
    RunSession,
    displayed_view,
    run_pair,
    run_view,
    runner,
    with_order,
)
from ..view.settings import WRITTEN, Settings, documented, name_settings
from ..view.view import View
from ..view.written import at_written
from .below import TopInputs
from .canvas import Canvas
from .gallery import Gallery, Given, sample_of, with_sample
from .lifecycle import close_tree
from .plain import PlainFace
from .requests import HANDLERS
from .results import ViewResults
from .setting_traits import SettingError

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
        takes, which goes in unchanged; bytes (uint8) on which the model raises are read as
        pictures. See `hookviz.attribution.prepare_input`.
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
    if isinstance(model, str):
        model, weights = pretrained(model, weights)
    select_layers(model, with_attention(model, layers))
    target = check_target(target)
    prepared = prepare_input(inputs, model, weights=weights, transform=transform)
    session = Session(model, prepared, weights=weights, class_names=class_names)
    target = named_target(target, session.class_names)
    given = Given(inputs, weights, transform)
    make = defer_interrupts(Explorer, undo=Explorer.close)
    return make(session, given, runner(layers, max_bytes), target=target, face=face, **settings)


class Explorer(ViewResults):
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
        super().__init__()
        self._run: RunSession | None = run
        self._beside, self._given = beside, given  # `beside`: the session of the original run
        self._frame: Frame | None = None
        self._channels: dict[str, int] = {}  # by layer: the channel that was shown last
        self.gallery = Gallery()
        self._other: tuple[int, int] | None = None  # the gallery's picture that is shown beside
        self._tops = TopInputs(lambda: self._now.settings)
        try:
            self._begin(session, target, settings, face)
        except BaseException:
            self.close()
            raise

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
        if face != "plain" and os.environ.get("HOOKVIZ_CANVAS") != "off":
            self._canvas = Canvas(self)
            self._canvas.observe(self._take_place, "alive")
        if face != "canvas":
            still = None if face == "plain" else self._still_png
            self._face = PlainFace(self._on_control, self.say, still)
        self.children = (*self._above, self._face or self._canvas, self._tops)
        self.add_class(ROOT_CLASS)
        self._go_to(self._now)

    @property
    def cache(self) -> FeatureCache:
        return self._now.cache

    @property
    def inputs(self) -> ModelInput:
        return self._now.session.inputs

    def _view_of(
        self, session: Session, at: Settings, before: View | None = None, *, same: bool = False
    ) -> View:
        """Run a session; ``same`` is True if its network and input are those of `before`."""
        assert self._run is not None  # not closed
        if self._beside is not None:
            names = ("a", "b")
            if self._other is not None:
                names = self.gallery.pair_names(self._other, self._given.image, at.sample)
            return run_pair(self._run, self._beside, session, at, names)
        original = before.original or before if same and before else None
        memo = before.input_memo if before and before.session is session else None
        return run_view(
            self._run,
            session,
            at,
            input_memo=memo,
            original=original,
            show_first=self._show_first if self._canvas is not None else None,
        )

    def _show_first(self, view: View) -> None:
        """Show a layer in the browser while backward goes on to the others."""
        before, self._view = self._view, fitted(view)
        try:
            self._canvas.show_first()
        finally:
            self._view = before

    def _changed_to(self, name: str, value: Any) -> None:
        before = self._now
        view = before.with_settings(**{name: value})
        if name == "target":
            view = self._view_of(view.session, view.settings, view)
        if name == "sample" and self._other is not None:
            self._beside = self._other = None  # another picture ends the comparison of two
            view = self._view_of(view.session, view.settings)
        if (name, value, view.settings.order) == ("shown_run", "original", SCORE_DROP):
            view = view.with_settings(order="index")  # the score drop is of the edited run
        if name == "order" and self.children:
            view = with_order(view)
        view = fitted(view)
        if name == "target" and isinstance(view.target, Output):
            view = where_the_gradient_arrives(view)
        if name == "layer":
            view = first_shown(before, view, self._channels)
        self._go_to(view)

    @alone
    def handle(self, request: Request, data: Sequence[Any]) -> None:
        """Carry out a request of the browser."""
        if request.settings:
            self.follow(request.settings)

        def act() -> None:
            if self._other is not None and not isinstance(request, (TargetRequest, BesideRequest)):
                self._pair_with(None, None)
            HANDLERS[type(request)](self, request, bytes(data[0]) if data else b"")

        self._try(act)

    def show_beside(self, key: int, sample: int) -> None:
        """Show a picture of the gallery beside this one; the same one again ends it."""
        other = (key, sample)
        if self._other == other:
            self._pair_with(None, None)
        else:
            # In the place of the shown sample: runs are compared at the same one of equal batches.
            picture, shown = sample_of(self.gallery.given(key), sample), self._now.settings.sample
            image = with_sample(self._given.image, shown, picture)
            self._pair_with(self.session_for(image), other)

    def _pair_with(self, session: Session | None, other: tuple[int, int] | None) -> None:
        before = self._beside, self._other
        self._beside, self._other = session, other
        try:
            self._rerun(self._now.session)
        except BaseException:
            self._beside, self._other = before
            raise

    # Another run

    @property
    def image(self) -> Any:
        """The user's inputs; setting them runs the model again and keeps all settings.

        A channel that is silent on the new input gives way to the one that contributes most to the
        target. Edits of layers stay; edits of the input belong to the picture and go with it.
        """
        return self._given.image

    @image.setter
    def image(self, image: Any) -> None:
        self.show_image(image)

    @alone
    @defer_interrupts
    def show_image(self, image: Any, sample: int | None = None, *, is_frame: bool = False) -> None:
        """Explore another input.

        ``sample`` is the one to show, None for the present number. ``is_frame`` is True for a
        camera's next frame, which keeps its channel: it may be silent for a moment.
        """
        now = self._now
        before = predictions_of(now)[:1]
        at = now.settings if sample is None else replace(now.settings, sample=sample)
        view = fitted(self._view_of(self.session_for(image), at))
        self._go_to(view if is_frame else without_silence(now, view))
        self._given = replace(self._given, image=image)
        self._show()  # the code names the picture
        self.say(prediction_moved(before, predictions_of(self._now)[:1]))

    def session_for(self, image: Any) -> Session:
        """Return a session of this network, with its edits of layers, for another input."""
        given, old = self._given, self._now.session
        inputs = prepare_input(image, old.given, weights=given.weights, transform=given.transform)
        names = old.class_names or None
        session = Session(old.given, inputs, class_names=names)
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
        self._go_to(fitted(self._view_of(session, self._now.settings)))

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
        ['layer3.1.conv2, channels 3, 17: off']
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
        """Switch channels of the shown layer off until the answer changes.

        They go off in the shown order; if that is by number, those first that contribute most to
        the target. Those that are not needed are switched on again. The others are one edit: `undo`
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
        >>> flip = explorer.flip()
        >>> len(flip.channels) < len(flip.curve), len(explorer.edits)
        (True, 1)
        >>> explorer.close()
        """
        view = self._now
        flip = flip_of(view, flip_order(displayed_view(view)))
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
        edits = tuple(edits) if isinstance(edits, Iterable) else (edits,)
        for each in edits:
            if not isinstance(each, LayerEdit):
                raise TypeError(
                    f"edits= holds {each!r}, which is not an edit: give a list of those in "
                    "explorer.edits; explorer.edit(layer, change) adds another."
                )
        view = self._now
        if edits == view.session.edits:
            return
        session = view.session.edited(edits)
        self._go_to(fitted(self._view_of(session, view.settings, view, same=True)))

    def undo(self) -> None:
        """Undo the latest edit, if any."""
        self.edits = self.edits[:-1]

    def reset(self) -> None:
        """Undo all edits."""
        self.edits = ()

    # Closing

    @defer_interrupts
    def close(self) -> None:
        """Release tensors and every widget that belongs to this one; may be called twice."""
        tops = vars(self).get("_tops")
        if tops is not None and tops not in self.children:  # not all has been made
            close_tree(tops)
        super().close()
        self._view = self._frame = self._run = self._still = self._beside = None
        self._given, self._face = Given(None), None
        self._channels, self.gallery = {}, Gallery()


Explorer.__doc__ = inspect.cleandoc(Explorer.__doc__ or "").replace("SETTINGS", documented(""))
