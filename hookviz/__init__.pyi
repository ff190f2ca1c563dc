# The public names and where they live. `__init__.py` reads this file, so this is the only list.
from .analysis.standing import hooks, remove_hooks
from .analysis.trace import Trace, trace
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
from .browsers.channels import ChannelBrowser, browse
from .browsers.link import Link, link
from .browsers.player import Player
from .browsers.side_by_side import SideBySide
from .browsers.steps import LiveTraining
from .comparison.comparison import Comparison
from .comparison.likeness import Similarity, similarity
from .comparison.row import LayerDifference
from .comparison.two_runs import compare
from .dataset.layer_survey import LayerSurvey
from .dataset.survey_file import load_survey
from .dataset.survey_run import survey
from .dataset.surveyed import Survey
from .diagnosis.doctor import diagnose
from .diagnosis.findings import Diagnosis, Finding
from .fields.field import ReceptiveField, receptive_field, receptive_fields
from .hooking.capture import capture
from .hooking.changes import clip_norm, noise
from .hooking.edit import edit
from .hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, Statistics
from .models import demo_images, demo_model, pretrained
from .run.inputs import prepare_input
from .training.training import Training
from .training.watch import Watch, watch
from .training.watch_file import load_watch
from .widgets.explorer import Explorer, explore

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
