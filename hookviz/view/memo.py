"""A cache of the latest value for each name."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any


class Memo:
    """A cache that holds one value for each name, with its key.

    So its size is bounded. A cached method would hold its view, and so a run with all its maps, for
    as long as the class lives. The key is everything that the value depends on and that may change
    while the memo lives.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def get(self, name: str, key: Hashable) -> Any:
        """Return the value for this key; None if it is not cached."""
        found = self._made.get(name)
        return found[1] if found is not None and found[0] == key else None

    def get_or_compute(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value for this key; call ``make`` only if the key has changed.

        >>> memo = Memo()
        >>> [memo.get_or_compute("square", x, lambda x=x: print("made") or x * x) for x in (2, 2)]
        made
        [4, 4]
        """
        if name not in self._made or self._made[name][0] != key:
            self._made[name] = (key, make())
        return self._made[name][1]
