"""What was made last is not made again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any


class Memo:
    """Remembers, for each name, what was made last and for which key.

    So what it holds is bounded, however much was looked at: one thing a name. A cached method would
    hold its view, and so a run with all its maps, for as long as the class lives. The key is all
    that the made thing depends on and that may change while the memo lives.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Hashable, Any]] = {}

    def known(self, name: str, key: Hashable) -> Any:
        """What is remembered for this key; None if nothing is."""
        found = self._made.get(name)
        return found[1] if found is not None and found[0] == key else None

    def once(self, name: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` returned for this key; made anew only when the key changes.

        >>> memo = Memo()
        >>> [memo.once("square", x, lambda x=x: print("made") or x * x) for x in (2, 2)]
        made
        [4, 4]
        """
        if name not in self._made or self._made[name][0] != key:
            self._made[name] = (key, make())
        return self._made[name][1]
