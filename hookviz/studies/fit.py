"""A watch around each step that a trainer takes, and a guard around the first: for callbacks."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from .diagnosis.diagnose import diagnose
from .diagnosis.findings import Diagnosis
from .diagnosis.guard import Guard
from .watch.watch import Watch, watch


class WatchedFit:
    """Blocks around the steps of a trainer, which opens and closes them by its events.

    Parameters
    ----------
    layers, every, options
        As in `hookviz.watch`.
    examined : bool or str
        Whether a guard looks at the first step, and of which submodule.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        What is recorded; there from the beginning of a training on.
    findings : hookviz.results.Diagnosis or None
        What was found in the first step; None before it, and if nothing was to be looked at.
    """

    def __init__(self, layers: Any, every: int, examined: bool | str, options: Any) -> None:
        self._options: dict[str, Any] = {"layers": layers, "every": every, **options}
        self._examined = examined
        self._guard: Guard | None = None
        self.watch: Watch | None = None
        self.findings: Diagnosis | None = None

    def begin(self, model: nn.Module, called: nn.Module, scaler: Any = None) -> None:
        """Make the watch, and a guard of the module that a step calls; ``scaler`` is the trainer's.

        Raises
        ------
        AttributeError
            The model has no submodule of the name that was given.
        """
        self.leave()
        self.watch = watch(model, **{"scaler": scaler} | self._options)
        self.findings = self._guard = None
        if self._examined:
            name = self._examined
            examined = model.get_submodule(name) if isinstance(name, str) else called
            found = diagnose(examined, scaler=scaler)
            assert isinstance(found, Guard)
            self._guard = found

    def enter(self, *, training: bool = True) -> None:
        """Open the blocks before a step; the guard's only before one of training."""
        if training and self._guard is not None and not self._guard.active:
            self._guard.__enter__()
        if self.watch is not None and not self.watch.active:
            self.watch.__enter__()

    @property
    def examining(self) -> bool:
        """True while the first step runs, and is looked at."""
        return self._guard is not None and self._guard.active

    def leave(self, *error: Any) -> None:
        """Close the blocks after a step, with what it raised; they may be closed already.

        The guard comes last: what it runs again is not a step.
        """
        given = error or (None, None, None)
        if self.watch is not None and self.watch.active:
            self.watch.__exit__(*given)
        if self._guard is not None and self._guard.active:
            self.findings, self._guard = self._guard, None
            self.findings.__exit__(*given)
            if not self.findings.healthy:
                said = f"hookviz.diagnose of the first step: {self.findings.verdict}"
                warnings.warn(said, RuntimeWarning, stacklevel=2)


class FitResults:
    """A callback's results, as its `WatchedFit` has them."""

    _fit: WatchedFit

    @property
    def watch(self) -> Watch | None:
        return self._fit.watch

    @property
    def findings(self) -> Diagnosis | None:
        return self._fit.findings
