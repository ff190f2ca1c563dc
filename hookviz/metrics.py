"""Measures of a heatmap: by an object's mask, by deleting or inserting pixels, by the weights."""

from .attribution.metrics import Curve, deletion_curve, insertion_curve, pointing_game
from .attribution.sanity import sanity_check

__all__ = ["Curve", "deletion_curve", "insertion_curve", "pointing_game", "sanity_check"]
