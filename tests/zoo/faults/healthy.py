"""Healthy models, as their libraries initialise them: any finding is a false alarm."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from untouched import changes, snapshot

import hookviz

from ..check import said
from ..models import Case, all_cases
from ..running import seed
from .check import Diagnosed
from .fault import built, picture
from .nested import all_losses, boxes

HEALTHY = "healthy"
MODES = {True: "training", False: "eval"}


@dataclass(frozen=True)
class Healthy:
    """A model of the zoo, in one mode."""

    case: Case
    training: bool
    kind = HEALTHY

    @property
    def name(self):
        """Return the name of the model with the mode."""
        return f"{self.case.name} in {MODES[self.training]}"

    @property
    def shape(self):
        """Return the shape of a batch of two, or of a detector's picture."""
        return self.case.shape if self.case.kind == "detection" else (2, *self.case.shape[1:])

    def given(self):
        """Return the input, with boxes and a loss for a detector in training."""
        if self.case.kind != "detection":
            return picture(*self.shape), None
        pictures, (target,) = boxes()
        if not self.training:
            return 2 * pictures, None
        mask = torch.zeros(1, *self.shape[1:], dtype=torch.uint8)
        mask[:, 20:60, 20:50] = 1
        target |= {"masks": mask, "keypoints": torch.tensor([[[20.0, 30.0, 1.0]] * 17])}
        return (2 * pictures, [target, target]), all_losses

    def build(self):
        """Build the model with its default initialisation."""
        options = dict(self.case.options)
        if "init_weights" in options:
            options["init_weights"] = True
        return built(self.case.name, self.training, **options)


def healthy():
    """Return every model in each mode."""
    cases = [Healthy(case, mode) for case in all_cases().values() for mode in MODES]
    return {each.name: each for each in cases}


def check_healthy(case):
    """Diagnose a healthy model; never raises."""
    result = Diagnosed(case.name, case.kind, case.shape, calls=1, model=case.case.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = case.build()
            seed()
            before = snapshot(model)
            findings = hookviz.diagnose(model, *case.given())
            result.touched = changes(model, before)
        except Exception as error:
            result.error = said(error)
            return result
    for each in findings:
        if each.severity != "note":
            result.alarms.append([each.severity, each.kind, each.where, each.message])
    return result
