"""See every feature map of any PyTorch convnet, exactly, in one line, in any notebook."""

from .attributions import ATTRIBUTIONS, attribute, picture_map
from .cache import Call, CapturedTensor, FeatureCache, LayerRecord, Statistics
from .capture import capture
from .demo import demo_images, demo_model
from .explorer import Explorer, explore
from .heatmaps import HEATMAPS, heatmap
from .inputs import prepare_input
from .metrics import Curve, deletion_curve, energy_in_mask, insertion_curve, pointing_game
from .perturbation import ablationcam, scorecam
from .pretrained import pretrained
from .trace import Trace, trace

__version__ = "0.1.0"
__all__ = [
    "ATTRIBUTIONS",
    "HEATMAPS",
    "Call",
    "CapturedTensor",
    "Curve",
    "Explorer",
    "FeatureCache",
    "LayerRecord",
    "Statistics",
    "Trace",
    "ablationcam",
    "attribute",
    "capture",
    "deletion_curve",
    "demo_images",
    "demo_model",
    "energy_in_mask",
    "explore",
    "heatmap",
    "insertion_curve",
    "picture_map",
    "pointing_game",
    "prepare_input",
    "pretrained",
    "scorecam",
    "trace",
]
