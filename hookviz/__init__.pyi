# The public names and where they live. `__init__.py` reads this file, so this is the only list.
from . import attribution, classroom, edits, metrics, models, results, widgets
from .attribution.attention import attention
from .attribution.cam import heatmap
from .attribution.gradients import attribute
from .export.lesson import grade
from .hooking.capture import capture
from .hooking.edit import edit
from .models import demo_images, demo_model, pretrained
from .run.output import output
from .studies.compare.compare import compare
from .studies.compare.similarity import similarity
from .studies.diagnosis.diagnose import diagnose
from .studies.feature_visualization import feature_visualization
from .studies.graph.contributions import contributions
from .studies.graph.graph import graph
from .studies.hook_table import hooks, remove_hooks
from .studies.load import load
from .studies.receptive_field.field import receptive_field
from .studies.survey.run import survey
from .studies.trace.trace import trace
from .studies.watch.watch import watch
from .widgets.explorer import explore

__all__ = [  # noqa: RUF022 (in the order of use)
    # What people come for.
    "explore",
    "capture",
    "heatmap",
    "edit",
    "trace",
    "diagnose",
    "watch",
    "survey",
    "compare",
    "graph",
    "contributions",
    # What they come to later.
    "attribute",
    "attention",
    "similarity",
    "receptive_field",
    "feature_visualization",
    "hooks",
    "remove_hooks",
    "output",
    "pretrained",
    "load",
    "grade",
    "demo_model",
    "demo_images",
    # Where the rest is.
    "attribution",
    "classroom",
    "edits",
    "metrics",
    "models",
    "results",
    "widgets",
]

__version__: str
