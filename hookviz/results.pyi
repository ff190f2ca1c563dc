# Where the classes live; `results.py` reads this file.
from .attribution.attention import Attention
from .attribution.flip import Flip
from .attribution.metrics import Curve
from .attribution.sanity import SanityCheck
from .export.lesson import Grades
from .hooking.capture import Capture
from .hooking.edit import Edit
from .hooking.records import Call, CapturedTensor, FeatureCache, LayerRecord, Statistics
from .studies.compare.comparison import Comparison
from .studies.compare.difference import LayerDifference
from .studies.compare.similarity import Similarity
from .studies.diagnosis.findings import Diagnosis, Finding
from .studies.feature_visualization import FeatureVisualization
from .studies.graph.contributions import Contributions
from .studies.graph.graph import Graph
from .studies.graph.kernels import LayerWeights
from .studies.graph.listener import Node
from .studies.hook_table import HookInfo, HookTable, RemovedHooks
from .studies.receptive_field.field import ReceptiveField
from .studies.survey.layer import LayerSurvey
from .studies.survey.survey import Survey
from .studies.trace.events import Event
from .studies.trace.trace import Trace
from .studies.watch.training import Training
from .studies.watch.watch import Watch
from .view.heatmaps import Sides

__all__ = [
    "Attention",
    "Call",
    "Capture",
    "CapturedTensor",
    "Comparison",
    "Contributions",
    "Curve",
    "Diagnosis",
    "Edit",
    "Event",
    "FeatureCache",
    "FeatureVisualization",
    "Finding",
    "Flip",
    "Grades",
    "Graph",
    "HookInfo",
    "HookTable",
    "LayerDifference",
    "LayerRecord",
    "LayerSurvey",
    "LayerWeights",
    "Node",
    "ReceptiveField",
    "RemovedHooks",
    "SanityCheck",
    "Sides",
    "Similarity",
    "Statistics",
    "Survey",
    "Trace",
    "Training",
    "Watch",
]
