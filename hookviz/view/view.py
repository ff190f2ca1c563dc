"""A view: a run of a session at some settings. Everything else is a function of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..hooking.records import FeatureCache
from ..run.session import Run, Session
from ..run.target import Target
from .settings import Settings


class Memo:
    """A cache that holds one value for each name, with its key.

    So its size is bounded. A cached function would hold its view, and so a run with all its maps,
    as long as the program runs. The key is everything that the value depends on and that may change
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


class Opening(NamedTuple):
    """The layer, channel and sample at which an explorer has opened by itself, and why."""

    layer: str
    channel: int
    sample: int
    words: str

    @classmethod
    def at(cls, settings: Settings, words: str) -> Opening:
        """Return what is shown at these settings, and why."""
        return cls(settings.layer, settings.channel, settings.sample, words)


RUN_NAMES = ("original", "edited")
"""The names of two runs of one network, without and with edits."""


@dataclass(frozen=True, eq=False)
class View:
    """A session's run at some settings. Cheap to copy: results are cached.

    Attributes
    ----------
    session : Session
        The network, its input and its edits.
    run : Run
        One forward and backward of it.
    settings : Settings
    original : View, optional
        A view of the run without the session's edits, if it has any; or of the other of two runs.
    run_names : tuple of str
        The names of the two runs.
    edited : View, optional
        The edited run, if another one is shown in its place.
    difference : bool
        True for the maps, gradients and heatmaps of the edited run minus those of the original.
    which : str
        The name of the shown run, as it stands beside pictures, if there are two.
    opened : Opening, optional
        Where it opened by itself.
    drops : dict of str to numpy.ndarray
        By layer: what the score loses without each channel, ``(N, C)``, as far as it is known.
    memo : Memo
        Results of the run.
    input_memo : Memo
        Results of the input alone.
    """

    session: Session
    run: Run
    settings: Settings
    original: View | None = None
    run_names: tuple[str, str] = RUN_NAMES
    edited: View | None = None
    difference: bool = False
    which: str = ""
    opened: Opening | None = None
    drops: dict[str, np.ndarray] = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo)
    input_memo: Memo = field(default_factory=Memo)

    @property
    def cache(self) -> FeatureCache:
        """The captured tensors."""
        return self.run.cache

    def with_settings(self, settings: Settings | None = None, **changes: Any) -> View:
        """Return the same run at these settings, with these changes."""
        return replace(self, settings=replace(settings or self.settings, **changes))

    def with_run(self, run: Run) -> View:
        """Return a new run at the same settings."""
        drops = self.drops if run is self.run else {}
        return replace(self, run=run, memo=Memo(), drops=drops)

    @property
    def target(self) -> Target:
        """The target whose gradient is shown, see `kept_target`."""
        is_edited = self.session.edits and self.run_names == RUN_NAMES
        kept = self.original if is_edited else None
        return self.settings.target if kept is None else kept_target(kept, self.settings.target)

    @property
    def sides(self) -> tuple[View, View]:
        """The edited view and the original one, at the same settings, of a difference."""
        assert self.edited is not None and self.original is not None
        return tuple(each.with_settings(self.settings) for each in (self.edited, self.original))  # type: ignore[return-value]


def kept_target(original: View, target: Target) -> Target:
    """Return the target of an edited run: None is the top class before the edits.

    Otherwise the target would follow the top class through the edits, and the gradients before and
    after an edit would be those of different classes.
    """
    logits = original.run.logits
    if target is not None or logits is None or not logits.isfinite().all():
        return target
    return logits.argmax(1).tolist()


Value = TypeVar("Value")


def cached(
    *key: Callable[[View], Hashable], of_input: bool = False
) -> Callable[[Callable[[View], Value]], Callable[[View], Value]]:
    """Cache the result of a function of a view, per run or per input.

    Parameters
    ----------
    *key : callable
        View -> what the result depends on beside the run.
    of_input : bool
        True if the result depends on the input alone, so that it serves all of its runs.
    """

    def decorate(function: Callable[[View], Value]) -> Callable[[View], Value]:
        @wraps(function)
        def remembered(view: View) -> Value:
            memo = view.input_memo if of_input else view.memo
            now = tuple(part(view) for part in key)
            name = f"{function.__module__}.{function.__qualname__}"
            return memo.get_or_compute(name, now, lambda: function(view))

        return remembered

    return decorate
