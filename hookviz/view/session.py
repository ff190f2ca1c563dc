"""A stand-in for ``run.session.Session``, to be deleted when that is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..hooking.select import Layers
from ..run.inputs import Transform, class_names_of, prepare_input
from ..run.session import Run, Tick, run
from ..run.targets import Target


class Session:
    """A model and what it is called with."""

    def __init__(
        self,
        model: nn.Module,
        image: Any,
        *,
        weights: Any = None,
        transform: Transform | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.given = self.model = model
        self.class_names = class_names_of(model, weights, class_names)
        self.inputs = prepare_input(image, model, weights=weights, transform=transform)
        self.name = type(getattr(model, "_orig_mod", model)).__name__

    def run(
        self,
        target: Target = None,
        *,
        layers: Layers = None,
        max_bytes: int | None = None,
        tick: Tick | None = None,
    ) -> Run:
        """One forward and one backward."""
        names, most = self.class_names, max_bytes
        return run(
            self.given,
            self.inputs,
            target,
            layers=layers,
            class_names=names,
            max_bytes=most,
            tick=tick,
        )
