"""What an explorer is of: its picture, its network, what is changed in that, and a survey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..hooking.edit import Change, Channels, LayerEdit, Where
from ..hooking.interrupts import allow_interrupts, defer_interrupts
from ..run.inputs import prepare_input
from ..run.replay import Replay
from ..run.session import Session
from ..run.target import logits_of
from ..studies.survey.survey import Survey, check_survey
from ..view.view import View
from .pictures import Tops
from .state import ViewWidget


class EditedWidget(ViewWidget):
    """A `ViewWidget` that runs again: on another picture, with other weights, or edited."""

    _tops: Tops

    @property
    def image(self) -> Any:
        """What was given; setting another runs the model on it, and keeps all settings."""
        return self._given.image

    @image.setter
    def image(self, image: Any) -> None:
        given, old = replace(self._given, image=image), self._now.session
        how = {"weights": given.weights, "transform": given.transform}
        inputs = prepare_input(image, old.given, **how)
        session = Session(old.given, inputs, class_names=old.class_names or None)
        self._rerun(session.edited(old.edits))
        self._given = given
        self._show()  # the code says which picture

    @property
    def survey(self) -> Survey | None:
        """What the network's channels answer to in a data set: the shown one's are below."""
        return self._tops.survey

    @survey.setter
    def survey(self, survey: Survey | None) -> None:
        model = self._now.session.model
        if survey is not None:
            check_survey(survey, model)
        self._tops.survey = survey
        self._tops.show()

    def refresh(self) -> None:
        """Run the model again, whose weights may be others by now; all settings stay.

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

    @defer_interrupts
    def _rerun(self, session: Session) -> None:
        """Another run, of another picture or of other weights, at the same settings."""
        self._go_to(self._ran(session, self._now.at).fitted())

    def edit(
        self,
        layer: str | None = None,
        change: Change = 0,
        *,
        channels: Channels = None,
        where: Where = None,
    ) -> None:
        """Change what a layer returns, and show what the network makes of it.

        The model runs again with all `edits`; then all that is shown is of that run: maps,
        gradients, heatmaps, predictions. The setting ``version`` shows the original run, or the
        difference.

        Parameters
        ----------
        layer : str, optional
            The shown one if left out.
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
        >>> explorer.version = "difference"
        >>> explorer.undo()
        >>> explorer.edits
        ()
        >>> explorer.close()
        """
        at = self._now.at
        if layer is None and channels is None:
            channels = at.channel
        layer = at.layer if layer is None else layer
        self.edits = (*self.edits, LayerEdit(layer, change, channels, where))

    @property
    def edits(self) -> tuple[LayerEdit, ...]:
        """All edits, in the order in which they are made; may be set."""
        return self._now.session.edits

    @edits.setter
    def edits(self, edits: Sequence[LayerEdit]) -> None:
        self._edit_all(tuple(edits))

    def undo(self) -> None:
        """Take back the latest edit; nothing happens where there is none."""
        self.edits = self.edits[:-1]

    def reset(self) -> None:
        """Take back all edits."""
        self.edits = ()

    @defer_interrupts
    def _edit_all(self, edits: tuple[LayerEdit, ...]) -> None:
        view = self._now
        if edits == view.session.edits:
            return
        session, original = view.session.edited(edits), view.original or view
        if edits and self.children:
            self._foretell(session, original)
        self._go_to(self._ran(session, view.at, original=original).fitted())

    def _foretell(self, session: Session, original: View) -> None:
        """Move the bars before the pictures are there: what came before the edits is skipped.

        Only from the second edit of the same layers on, since a recording takes longer than a run.
        """
        layers = frozenset(each.layer for each in session.edits)
        again = original.memo.known("edited", layers)
        original.memo.once("edited", layers, lambda: True)
        if not again or self._frame is None:
            return

        def make() -> Replay:
            return Replay(session.given.get_submodule(name) for name in layers)

        replay = original.memo.once("replay", layers, make)
        logits = logits_of(allow_interrupts(session.replayed, replay))
        if logits is not None:
            soon = original.of_run(replace(original.run, logits=logits))
            soon.original = original
            self._frame = replace(self._frame, predictions=soon.predictions)
            self._show()

    def _user_edit(self, what: str, value: Any) -> None:
        """What a control does: a factor for the shown channel, or an edit that goes."""
        at, edits = self._now.at, list(self.edits)
        if what == "drop":
            del edits[value]
        else:
            own = [place for place, each in enumerate(edits) if each.is_of(at.layer, at.channel)]
            place = own[-1] if own else len(edits)
            edits[place : place + 1] = (
                [] if value == 1 else [LayerEdit(at.layer, value, at.channel)]
            )
        self._user_set("edits", tuple(edits))
