"""Two explorers that share their settings: what moves in one moves in the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..view.settings import SETTINGS


class Link:
    """Two linked explorers; `hookviz.widgets.link` makes it.

    Attributes
    ----------
    cannot : dict of str to str
        Settings that the two do not share now, and why.
    """

    def __init__(self, left: Any, right: Any, shared: Sequence[str] = SETTINGS) -> None:
        self.cannot: dict[str, str] = {}
        self._busy = False
        self._sides = left, right
        self._follows = [partial(self._follow, left, right), partial(self._follow, right, left)]
        self._shared = list(shared)
        for name in shared:  # the layer first: it sets the other ranges
            self._set(right, name, getattr(left, name))
        if "layer" not in self.cannot:  # the order has chosen a channel of its own
            self._set(right, "channel", left.channel)
        for why in self.cannot.values():  # what was set after it has taken the note away
            right.say(f"Not linked: {why}")
        for each, follow in zip(self._sides, self._follows, strict=True):
            each.observe(follow, self._shared)

    def unlink(self) -> None:
        """Stop synchronizing."""
        for each, follow in zip(self._sides, self._follows, strict=True):
            if not each.closed:
                each.unobserve(follow, self._shared)

    def _follow(self, one: Any, other: Any, change: dict[str, Any]) -> None:
        if self._busy or other.closed:
            return
        self._set(other, change["name"], change["new"])
        if "layer" not in self.cannot:  # a new order chooses a new channel, in each its own
            self._set(other, "channel", one.channel)

    def _set(self, other: Any, name: str, value: Any) -> None:
        with self._without_echo():
            if getattr(other, name) == value:
                self.cannot.pop(name, None)
                return
            try:
                setattr(other, name, value)
            except Exception as error:  # any error: a callback would hide it
                self.cannot[name] = str(error)
                other.say(f"Not linked: {error}")
            else:
                self.cannot.pop(name, None)

    @contextmanager
    def _without_echo(self) -> Iterator[None]:
        """Suppress echo events while synchronizing."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def __repr__(self) -> str:
        told = [f"{name} ({why})" for name, why in self.cannot.items()]
        return f"Link({'not shared: ' + '; '.join(told) if told else 'all settings are shared'})"
