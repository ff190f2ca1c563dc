"""A widget whose traits are the settings of a view: checked when set, and shown at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

import traitlets

from ..hooking.interrupts import defer_interrupts
from ..hooking.select import close_names
from ..run.session import alone
from ..view.checks import check
from ..view.runs import displayed_view
from ..view.settings import SETTINGS, WRITTEN, Settings
from ..view.view import View
from ..view.written import place_at, position_of, written_settings
from .lifecycle import LiveWidget


class SettingError(traitlets.TraitError, ValueError):
    """A value that a setting cannot have: of a trait, and of an argument."""


def _declare(namespace: dict[str, Any]) -> None:
    # Values are checked by `checks.check`, whose messages name what the layer or model has.
    # None is not checked where it is allowed; traitlets.Any allows it everywhere.
    for each in fields(Settings):
        default = "" if each.default is MISSING else each.default
        namespace[each.name] = traitlets.TraitType(default, allow_none=each.default is None)


class SettingsWidget(LiveWidget):
    """A widget with a trait for each of `Settings`, which always agree with its view."""

    _declare(locals())
    target: Any

    _quiet = True  # settings change without being checked or drawn
    _view: View | None = None  # None once closed

    def __getattr__(self, name: str) -> Any:  # for type checkers: traits are declared above
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _now(self) -> View:
        if self._view is None:
            raise RuntimeError(self.closed_message)
        return self._view

    def displayed(self) -> View:
        """Return the view that is shown: of the edited run, the original one, or the difference."""
        return displayed_view(self._now)

    @abstractmethod
    def _changed_to(self, name: str, value: Any) -> None:
        """Show the view in which a setting has a new, valid value."""

    @abstractmethod
    def _go_to(self, view: View) -> None:
        """Update settings, controls and pictures to a view."""

    @traitlets.validate(*SETTINGS)
    def _checked(self, proposal: dict) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if self._quiet:
            return value
        try:
            return check(name, value, self._now)
        except ValueError as error:
            raise SettingError(str(error)) from None

    @traitlets.observe(*SETTINGS)
    @alone
    @defer_interrupts
    def _changed(self, change: dict) -> None:
        if self._quiet:
            return
        try:
            self._changed_to(change["name"], change["new"])
        except BaseException:  # the model or a heatmap raised: go back to the shown setting
            with self._quietly():
                setattr(self, change["name"], change["old"])
            raise

    def notify_change(self, change: Any) -> None:
        """Restore a setting that a linked explorer rejects."""
        before = self._view
        try:
            super().notify_change(change)
        except BaseException:
            if before is not None and self._view not in (None, before) and not self._quiet:
                self._go_to(before)
            raise

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _take_settings(self, view: View) -> None:
        """Make a view the present one, and give the traits its settings."""
        self._view = view
        with self._quietly():
            for name in SETTINGS:
                setattr(self, name, getattr(view.settings, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self.__dict__ and not hasattr(type(self), name):
            near = close_names(name, (*WRITTEN, "image"))
            raise AttributeError(f"Unknown setting {name!r}; {near}.")
        super().__setattr__(name, value)

    @property
    def position(self) -> tuple[int, int] | None:
        """The chosen position, row and column of the shown layer's maps; None if none is chosen.

        May be set. The setting ``place`` has it as fractions, for maps of any size.

        Examples
        --------
        >>> import hookviz
        >>> explorer = hookviz.explore(
        ...     hookviz.demo_model(), hookviz.demo_images()[6], layer="layer3.1.conv2"
        ... )
        >>> explorer.position = 5, 8
        >>> explorer.place = (0.5, 0.25)  # the same setting, in fractions of height and width
        >>> explorer.position
        (7, 3)
        >>> explorer.close()
        """
        return position_of(self.displayed())

    @position.setter
    def position(self, position: Sequence[int] | None) -> None:
        try:
            self.place = place_at(self.displayed(), position)
        except ValueError as error:
            raise SettingError(str(error)) from None

    def settings(self) -> dict[str, Any]:
        """Return all settings as a dict of plain values: this view, to be shown or kept again.

        ``hookviz.explore(model, inputs, **settings)`` opens the same view. The dict is valid JSON;
        it is also the ``state`` of a `hookviz.classroom.Step`, and a link to a page has the same
        names. The chosen position is in it as ``position``, row and column. Edits, strokes and
        zoom are not in it.

        Returns
        -------
        dict
            A target that is a tuple or an expression of the output is a text, such as ``"3 - 5"``
            or ``"output[0, 3]"``, which ``target=`` takes, too. A target that is a function cannot
            be written: there is no ``"target"``, and you pass the function again.

        Examples
        --------
        >>> import hookviz
        >>> model, image = hookviz.demo_model(), hookviz.demo_images()[6]
        >>> explorer = hookviz.explore(model, image, layer="layer3.1.conv2", channel=17)
        >>> explorer.position, explorer.order = (5, 8), "gradcam weight"
        >>> settings = explorer.settings()
        >>> settings["layer"], settings["position"]
        ('layer3.1.conv2', [5, 8])
        >>> again = hookviz.explore(model, image, **settings)
        >>> again.settings() == settings
        True
        >>> explorer.close(), again.close()
        (None, None)
        """
        return written_settings(self.displayed())
