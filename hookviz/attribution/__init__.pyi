# Where the names live; `__init__.py` reads this file.
from .attention import ATTENTION_HEATMAPS
from .cam import HEATMAPS
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
