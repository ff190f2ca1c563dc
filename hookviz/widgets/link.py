"""Two explorers that move together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..view.settings import SETTINGS
from .explorer import Explorer


def link(left: Explorer, right: Explorer) -> Link:
    """Let two explorers move together: what is set in one is set in the other.

    What the other cannot have, such as a layer that only one network has, stays as it is there, and
    the other says so above its pictures; nothing is raised. At first the right one goes to where
    the left one is.

    Parameters
    ----------
    left, right : Explorer

    Returns
    -------
    Link
        ``unlink()`` ends it; closing either does, too.

    Raises
    ------
    TypeError
        One of them is no explorer.
    ValueError
        They are the same one, or one is closed.

    Examples
    --------
    >>> import hookviz
    >>> model, pictures = hookviz.demo_model(), hookviz.demo_images()
    >>> left, right = (hookviz.explore(model, picture) for picture in pictures[:2])
    >>> linked = hookviz.widgets.link(left, right)
    >>> left.layer, left.channel = "layer3.1.conv2", 17
    >>> right.layer, right.channel
    ('layer3.1.conv2', 17)
    >>> left.close(), right.close()
    (None, None)
    """
    for each in (left, right):
        if not isinstance(each, Explorer):
            raise TypeError(
                f"hookviz.widgets.link takes two explorers, not a {type(each).__name__}: give what "
                "hookviz.explore() returned."
            )
        if each.closed:
            raise ValueError(each.why_closed)
    if left is right:
        raise ValueError("An explorer cannot be linked with itself: make a second one.")
    return Link(left, right)


class Link:
    """Two linked explorers; `link` makes it.

    Attributes
    ----------
    cannot : dict of str to str
        Settings that the two do not share now, and why.
    """

    def __init__(self, left: Explorer, right: Explorer) -> None:
        self.cannot: dict[str, str] = {}
        self._busy = False
        self._sides = left, right
        self._follows = [partial(self._follow, left, right), partial(self._follow, right, left)]
        for name in SETTINGS:  # the layer first: it says what is in range
            self._set(right, name, getattr(left, name))
        for why in self.cannot.values():  # what was set after it has taken the note away
            right.say(f"Not linked: {why}")
        for each, follow in zip(self._sides, self._follows, strict=True):
            each.observe(follow, list(SETTINGS))

    def unlink(self) -> None:
        """From now on each goes its own way."""
        for each, follow in zip(self._sides, self._follows, strict=True):
            if not each.closed:
                each.unobserve(follow, list(SETTINGS))

    def _follow(self, one: Explorer, other: Explorer, change: dict[str, Any]) -> None:
        if self._busy or other.closed:
            return
        self._set(other, change["name"], change["new"])
        if "layer" not in self.cannot:  # another order brings another channel, in each its own
            self._set(other, "channel", one.channel)

    def _set(self, other: Explorer, name: str, value: Any) -> None:
        with self._alone():
            if getattr(other, name) == value:
                self.cannot.pop(name, None)
                return
            try:
                setattr(other, name, value)
            except Exception as error:  # whatever it cannot have: a callback would hide it
                self.cannot[name] = str(error)
                other.say(f"Not linked: {error}")
            else:
                self.cannot.pop(name, None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within the block what is set does not come back."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def __repr__(self) -> str:
        told = [f"{name} ({why})" for name, why in self.cannot.items()]
        return f"Link({'not shared: ' + '; '.join(told) if told else 'all settings are shared'})"
