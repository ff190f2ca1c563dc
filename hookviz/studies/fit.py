"""Callbacks: a watch around each step that a trainer takes, and a guard around the first.

`hookviz.lightning` and `hookviz.transformers` connect it with the events of their trainers.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from .diagnosis.diagnose import diagnose
from .diagnosis.findings import Diagnosis
from .diagnosis.guard import Guard
from .watch.watch import Watch, watch


class TrainingCallback:
    """The part of a callback that does not depend on the trainer, which calls its events.

    Attributes
    ----------
    watch : hookviz.results.Watch or None
        The recorded steps; None before the training begins.
    findings : hookviz.results.Diagnosis or None
        The findings in the first step; None before it has ended, and without ``diagnose``.
    """

    _library = ""  # what to install, where that is missing

    def __init__(
        self, layers: Any = None, every: int = 50, *, diagnose: bool | str = False, **options: Any
    ) -> None:
        if self._library:
            raise ImportError(
                f"{type(self).__module__} needs {self._library}, which is not installed: pip "
                f"install {self._library}. In your own loop, put `with hookviz.watch(model):` "
                "around each step."
            )
        self._options: dict[str, Any] = {"layers": layers, "every": every, **options}
        self._examined = diagnose
        self._guard: Guard | None = None
        self.watch: Watch | None = None
        self.findings: Diagnosis | None = None

    def _start(self, model: nn.Module, called: nn.Module, scaler: Any) -> None:
        """Make the watch, and a guard of the module that a step calls.

        Raises
        ------
        AttributeError
            The model has no submodule with the name that ``diagnose`` gives.
        """
        self._leave()
        self.watch = watch(model, **{"scaler": scaler} | self._options)
        self.findings = self._guard = None
        if self._examined:
            name = self._examined
            examined = model.get_submodule(name) if isinstance(name, str) else called
            guard = diagnose(examined, scaler=scaler)
            assert isinstance(guard, Guard)
            self._guard = guard

    def _enter(self, *, training: bool = True) -> None:
        """Open the blocks before a step; the guard's only before a step of training."""
        if training and self._guard is not None and not self._guard.active:
            self._guard.__enter__()
        if self.watch is not None and not self.watch.active:
            self.watch.__enter__()

    def _leave(self, *error: Any) -> None:
        """Close the blocks that are open after a step, with the error that it raised.

        The guard comes last: what it runs again is not a step.
        """
        raised = error or (None, None, None)
        if self.watch is not None and self.watch.active:
            self.watch.__exit__(*raised)
        if self._guard is not None and self._guard.active:
            self.findings, self._guard = self._guard, None
            self.findings.__exit__(*raised)
            if not self.findings.healthy:
                message = f"hookviz.diagnose of the first step: {self.findings.verdict}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
