"""The explorer's view as plain PyTorch: the shortest code that computes and draws it.

The code is put together of pieces, each there only where the view needs it: the input, the hook,
the run, the maps, the heatmap, the pictures. Names and texts go in by `quoted`, so that no
layer's, file's or class's name can be read as code.
"""

from __future__ import annotations

import sys

from ...attribution.gradients import ATTRIBUTIONS
from ...hooking.checkpoint import FORWARD
from ...view.difference import ViewDifference
from ...view.view import View
from .draft import CodeContext
from .drawing import drawing_lines
from .edits import edit_lines
from .function_source import Source, names_in
from .heatmap import heatmap_lines, heatmap_source
from .inputs import Given
from .run import hook_lines, input_lines, map_lines, mode_back, run_lines


def write_source(view: View, given: Given) -> str:
    """What computes and draws a view's feature map, gradient and heatmap, without hookviz.

    What the source takes stands in comments at its beginning. ``ValueError`` says why, where a few
    lines cannot do it.
    """
    draft = CodeContext(view, given)
    _refuse(draft)
    back = mode_back(draft)
    again = draft.method in ATTRIBUTIONS and draft.method != "saliency"  # the model runs again
    edits = edit_lines(draft)
    hooks = [*([""] if edits else []), *edits, *hook_lines(draft)]
    before = [*input_lines(draft), *hooks, "", *run_lines(draft)]
    before += [*([] if again else back), "", *map_lines(draft)]
    after = [*(back if again else []), "", *drawing_lines(draft)]
    used = names_in("\n".join([*before, *after]))
    function = heatmap_source(draft)
    if function is not None and _clash(function, used):
        function = None
    heatmap = heatmap_lines(draft, function)
    imports = _imports(used | names_in("\n".join(heatmap)), function)
    if function is not None:
        heatmap = ["", *function.lines, "", *heatmap]
    return "\n".join([*draft.takes, *imports, "", *before, *heatmap, *after]) + "\n"


def _refuse(draft: CodeContext) -> None:
    """Raise for what would take more than a few lines."""
    name, core = draft.record.name, draft.core
    if isinstance(draft.view, ViewDifference):
        raise ValueError("There is no short code for a difference: set version='edited'.")
    if any(hasattr(part, "_orig_mod") for part in core.modules()):
        raise ValueError(
            "There is no short code for a model of which parts are compiled, since hooks do "
            "not reach into those: explore the model before torch.compile."
        )
    if name and core.get_submodule(name) is not draft.record.module:
        raise ValueError(f"There is no short code for layer {name!r}: the model hides it.")
    if draft.run.goal == "everything":
        raise ValueError(
            "There is no short code for reentrant checkpointing, which runs each layer twice: "
            "give checkpoint(..., use_reentrant=False)."
        )
    if any(call.outputs[0].hooked_in_task not in (None, FORWARD) for call in draft.record.calls):
        raise ValueError(
            f"There is no short code for layer {name!r}: backward runs it again, and its gradient "
            "reaches only that run."
        )
    if draft.call.activation.is_complex():
        raise ValueError(f"There is no short code for layer {name!r}: its maps are complex.")
    if draft.method in ATTRIBUTIONS and draft.x is None:
        raise ValueError(
            f"There is no short code for {draft.method!r} of a model with several arguments: "
            "wrap the model so that it takes one tensor."
        )


_IMPORTS = {
    "CenteredNorm": "from matplotlib.colors import CenteredNorm",
    "TF": "from torchvision.transforms.v2 import functional as TF",
    "Image": "from PIL import Image",
    "ImageOps": "from PIL import ImageOps",
    "IntegratedGradients": "from captum.attr import IntegratedGradients",
    "InterpolationMode": "from torchvision.transforms import InterpolationMode",
    "NoiseTunnel": "from captum.attr import NoiseTunnel",
    "Saliency": "from captum.attr import Saliency",
    "deepcopy": "from copy import deepcopy",
    "get_model": "from torchvision.models import get_model",
    "get_weight": "from torchvision.models import get_weight",
    "interpolate": "from torch.nn.functional import interpolate",
    "np": "import numpy as np",
    "plt": "import matplotlib.pyplot as plt",
    "torch": "import torch",
}


def _imports(used: set[str], function: Source | None) -> list[str]:
    """What the code imports: the standard library first, and one line for each module."""
    lines = {line for name, line in _IMPORTS.items() if name in used}
    lines |= function.imports if function else set()
    merged: dict[tuple, str] = {}
    for line in sorted(lines, key=_rank):
        place = _rank(line)[:3] if " as " not in line else _rank(line)
        name = line.partition(" import ")[2]
        merged[place] = f"{merged[place]}, {name}" if place in merged else line
    others = [line for place, line in merged.items() if place[0]]
    own = [line for place, line in merged.items() if not place[0]]
    return [*own, *([""] if own else []), *others]


def _rank(line: str) -> tuple:
    """Where an import stands: by section, ``import`` before ``from``, module and name."""
    kind, module, *names = line.replace(" import ", " ").split()
    section = module.partition(".")[0] not in sys.stdlib_module_names
    return section, kind == "from", module.lower(), not "".join(names)[:1].isupper(), *names


def _clash(function: Source, used: set[str]) -> bool:
    """Whether a name that the function brings along is another thing in the rest of the code."""
    return any(_IMPORTS.get(name) not in function.imports for name in used & set(function.names))
