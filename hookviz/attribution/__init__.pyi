# Where the names live; `__init__.py` reads this file.
from .cam import ATTENTION_HEATMAPS, HEATMAPS
from .gradients import ATTRIBUTIONS, picture_map, prepare_input
from .perturbation import ablationcam, occlusion, scorecam

__all__ = [
    "ATTENTION_HEATMAPS",
    "ATTRIBUTIONS",
    "HEATMAPS",
    "ablationcam",
    "occlusion",
    "picture_map",
    "prepare_input",
    "scorecam",
]
