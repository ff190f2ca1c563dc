"""See every feature map of any PyTorch convnet, exactly, in one line, in any notebook."""

from .cache import Call, CapturedTensor, FeatureCache, LayerRecord, Statistics
from .capture import capture
from .demo import demo_images, demo_model
from .explorer import Explorer, explore
from .heatmaps import HEATMAPS, heatmap
from .inputs import prepare_input
from .pretrained import pretrained

__version__ = "0.1.0"
__all__ = [
    "HEATMAPS",
    "Call",
    "CapturedTensor",
    "Explorer",
    "FeatureCache",
    "LayerRecord",
    "Statistics",
    "capture",
    "demo_images",
    "demo_model",
    "explore",
    "heatmap",
    "prepare_input",
    "pretrained",
]
