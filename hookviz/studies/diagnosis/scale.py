"""The input: on another scale than in training, or one number throughout."""

from __future__ import annotations

from collections.abc import Iterator

from ...hooking.tables import number
from .findings import Finding
from .observation import Observation

SHIFT, SPREAD = 5.0, 10.0
"""By so many deviations, and so many times, the first BatchNorm's batch is away from what it has
seen in training: the right input is within 0.2 of it, pictures from 0 to 255 are away by 47 and
more."""


def input_scale(seen: Observation) -> Iterator[Finding]:
    """Whether the batch is what the first BatchNorm has seen in training, by its statistics."""
    for operation in seen.operations:
        if "shift" not in operation.facts:
            continue
        shift, spread = operation.facts["shift"], operation.facts["spread"]
        small = 0 < spread < 1 / 30 and seen.samples > 1
        if shift <= SHIFT and spread <= SPREAD and not small:
            return
        given = next((s.made[0] for s in seen.sources if s.name == "input" and s.made), None)
        said = f" The input goes from {given}." if given is not None else ""
        yield Finding(
            "input scale",
            "warning",
            f"At the first BatchNorm, {operation.layer!r}, the batch is {number(shift)} standard "
            f"deviations away from what it was in training, and its spread {number(spread)} times "
            f"that of training.{said}",
            "Prepare the input as in training: pictures from 0 to 1 (x / 255), then the same mean "
            "and standard deviation.",
            operation.layer,
            operation.call,
            evidence={"shift": shift, "spread": spread},
        )
        return
