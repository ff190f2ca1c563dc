"""Measures of a heatmap: by an object's mask, and by deleting or inserting pixels."""

from .attribution.metrics import (
    Curve,
    deletion_curve,
    energy_in_mask,
    insertion_curve,
    pointing_game,
)

__all__ = ["Curve", "deletion_curve", "energy_in_mask", "insertion_curve", "pointing_game"]
