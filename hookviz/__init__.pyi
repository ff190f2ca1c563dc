# The public names and where they live. `__init__.py` reads this file, so this is the only list.
from .attribution.cam import HEATMAPS, heatmap
from .attribution.gradients import ATTRIBUTIONS, attribute, picture_map
from .attribution.metrics import (
    Curve,
    deletion_curve,
    energy_in_mask,
    insertion_curve,
    pointing_game,
)
from .attribution.perturbation import ablationcam, scorecam
from .hooking.capture import capture
from .hooking.edit import clip_norm, edit, noise
from .hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, Statistics
from .models import demo_images, demo_model, pretrained
from .run.inputs import prepare_input
from .studies.compare.compare import compare
from .studies.compare.comparison import Comparison, LayerDifference
from .studies.compare.similarity import Similarity, similarity
from .studies.diagnosis.diagnose import diagnose
from .studies.diagnosis.findings import Diagnosis, Finding
from .studies.hook_table import hooks, remove_hooks
from .studies.receptive_field.field import ReceptiveField, receptive_field, receptive_fields
from .studies.survey.file import load_survey
from .studies.survey.layer_survey import LayerSurvey
from .studies.survey.run import survey
from .studies.survey.survey import Survey
from .studies.trace.trace import Trace, trace
from .studies.watch.file import load_watch
from .studies.watch.training import Training
from .studies.watch.watch import Watch, watch
from .widgets.channels import ChannelBrowser, browse
from .widgets.explorer import Explorer, explore
from .widgets.link import Link, link
from .widgets.live_training import LiveTraining
from .widgets.player import Player
from .widgets.side_by_side import SideBySide

__all__ = [
    "ATTRIBUTIONS",
    "HEATMAPS",
    "Call",
    "CapturedTensor",
    "ChannelBrowser",
    "Comparison",
    "Curve",
    "Diagnosis",
    "Explorer",
    "FeatureCache",
    "Finding",
    "LayerDifference",
    "LayerRecord",
    "LayerSurvey",
    "Link",
    "LiveTraining",
    "Player",
    "ReceptiveField",
    "SideBySide",
    "Similarity",
    "Statistics",
    "Survey",
    "Trace",
    "Training",
    "Watch",
    "ablationcam",
    "attribute",
    "browse",
    "capture",
    "clip_norm",
    "compare",
    "deletion_curve",
    "demo_images",
    "demo_model",
    "diagnose",
    "edit",
    "energy_in_mask",
    "explore",
    "heatmap",
    "hooks",
    "insertion_curve",
    "link",
    "load_survey",
    "load_watch",
    "noise",
    "picture_map",
    "pointing_game",
    "prepare_input",
    "pretrained",
    "receptive_field",
    "receptive_fields",
    "remove_hooks",
    "scorecam",
    "similarity",
    "survey",
    "trace",
    "watch",
]

__version__: str
