"""Healthy models, as their libraries initialise them: any finding is a false alarm."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import nn
from untouched import changes, snapshot

import hookviz

from ..check import said
from ..models import Case, classifiers
from ..running import seed
from .check import Diagnosed
from .fault import built, picture

HEALTHY = "healthy"
MODES = {True: "training", False: "eval"}


@dataclass(frozen=True)
class Healthy:
    """A classifier of the zoo, in one mode."""

    case: Case
    training: bool
    kind = HEALTHY

    @property
    def name(self) -> str:
        """Return the name of the model with the mode."""
        return f"{self.case.name} in {MODES[self.training]}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of a batch of two."""
        return (2, *self.case.shape[1:])

    def build(self) -> nn.Module:
        """Build the model with its default initialisation."""
        options = dict(self.case.options)
        if "init_weights" in options:
            options["init_weights"] = True
        return built(self.case.name, self.training, **options)


def healthy() -> dict[str, Healthy]:
    """Return every classifier in each mode."""
    cases = [Healthy(case, mode) for case in classifiers().values() for mode in MODES]
    return {each.name: each for each in cases}


def check_healthy(case: Healthy) -> Diagnosed:
    """Diagnose a healthy model; never raises."""
    result = Diagnosed(case.name, case.kind, case.shape, calls=1, model=case.case.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = case.build()
            seed()
            before = snapshot(model)
            findings = hookviz.diagnose(model, picture(*case.shape))
            result.touched = changes(model, before)
        except Exception as error:
            result.error = said(error)
            return result
    for each in findings:
        if each.severity != "note":
            result.alarms.append([each.severity, each.kind, each.where, each.message])
    return result
