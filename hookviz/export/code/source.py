"""The explorer's view as plain PyTorch: the shortest code that computes and draws it.

The code consists of parts, each present only if the view needs it: the input, the hook, the run,
the maps, the heatmap, the pictures. Names and texts are inserted by `quoted`, so that no layer's,
file's or class's name can become code.
"""

from __future__ import annotations

import symtable
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from ...attribution.gradients import ATTRIBUTIONS
from ...hooking.checkpoint import FORWARD
from ...view.difference import ViewDifference
from ...view.settings import EFFECTIVE
from ...view.view import View
from .context import CodeContext
from .drawing import drawing_lines, heatmap_lines
from .inputs import Given, quoted
from .run import edit_lines, hook_lines, input_lines, map_lines, run_lines


def write_source(view: View, given: Given) -> str:
    """Write the code that computes and draws a view's maps and heatmap, without hookviz.

    Comments at its beginning list the names that the user defines. A ``ValueError`` names an
    unsupported view, with a cure.
    """
    context = CodeContext(view, given)
    for rare in _rarities(context):
        raise ValueError(f"There is no short code for {rare}")
    edits = edit_lines(context)
    lines = [*input_lines(context), *([""] if edits else []), *edits, *hook_lines(context), ""]
    lines += [*run_lines(context), "", *map_lines(context), *heatmap_lines(context), ""]
    lines += drawing_lines(context)
    return "\n".join([*context.takes, *_imports("\n".join(lines)), "", *lines]) + "\n"


def _rarities(context: CodeContext) -> Iterator[str]:
    """Yield the unsupported features of a view, each with a cure."""
    view, name, x, call = context.view, context.record.name, context.x, context.call
    layer, method, run_tasks = f"layer {name!r}", context.settings.heatmap, (None, FORWARD)
    if view.attends:
        yield "attention: hookviz.attention(model, x) returns the weights of every head."
        return
    if isinstance(view, ViewDifference):
        yield "a difference: set version='edited'."
    if method == EFFECTIVE:
        yield (
            "this view, since the effective field takes more than a few lines: "
            f"hookviz.receptive_field(model, x, {quoted(name)}).effective([x]) computes it."
        )
    if method in ATTRIBUTIONS and method != "saliency":
        yield f"{method!r}: hookviz.attribute(model, image, {method!r}) computes it."
    if x is None:
        yield "a model with several arguments: wrap the model so that it takes one tensor."
        return
    if type(x) is not Tensor or type(call.activation) is not Tensor:
        yield "tensors of other classes: give x.as_subclass(torch.Tensor)."
    if any(hasattr(part, "_orig_mod") for part in context.core.modules()):
        yield (
            "a model of which parts are compiled, since hooks do not reach into those: explore the "
            "model before torch.compile."
        )
    if context.run.source == "everything":
        yield (
            "reentrant checkpointing, which runs each layer twice: give "
            "checkpoint(..., use_reentrant=False)."
        )
    if any(each.outputs[0].hooked_in_task not in run_tasks for each in context.record.calls):
        yield (
            f"{layer}: backward runs it again, and its gradient reaches only that run; take the "
            "layer before or after it."
        )
    if name and context.core.get_submodule(name) is not context.record.module:
        yield (
            f"{layer}: the model does not register it under this name; take a layer that "
            "get_submodule finds."
        )
    if call.outputs[0].path:
        yield f"{layer}, which returns more than a tensor: take a layer within it."
    if call.activation.is_complex():
        yield f"{layer}: its maps are complex; take a layer whose values are real."
    if context.arrangement is None:
        yield f"{layer}, whose maps have no batch dimension: take a layer that keeps it."
    if context.spatial == 3 or x.ndim == 5:
        yield "volumes: explorer.figure() draws this view."
    if context.scored and not x.is_floating_point():
        yield (
            "an input of whole numbers, which has no gradient: wrap the model so that it "
            "takes the embedded tensor."
        )
    target = context.settings.target
    if isinstance(target, list) and any(isinstance(each, tuple) for each in target):
        yield "one class against others in a list of targets: give a function as target."
    values = context.heatmap.values
    if values is not None and not np.isfinite(values).all():
        yield (
            "a heatmap with NaN or infinite values: hookviz.diagnose(model, image) finds where "
            "they begin."
        )


_IMPORTS = {  # in the order of the printed lines
    "import": ("matplotlib.pyplot as plt", "torch"),
    "from matplotlib.colors import": ("CenteredNorm",),
    "from PIL import": ("Image", "ImageOps"),
    "from torch import": ("Tensor",),
    "from torch.nn.functional import": ("interpolate",),
    "from torchvision.models import": ("get_model", "get_weight"),
    "from torchvision.transforms import": ("InterpolationMode",),
    "from torchvision.transforms.v2 import": ("functional as TF",),
}


def _imports(source: str) -> list[str]:
    """Return the imports of the names that the source uses."""
    tables, lines = [symtable.symtable(source, "", "exec")], []
    for table in tables:
        tables += table.get_children()
    used = {name for table in tables for name in table.get_identifiers()}
    for start, names in _IMPORTS.items():
        wanted = [name for name in names if name.split()[-1] in used]
        if start == "import":
            lines += [f"import {name}" for name in wanted]
        elif wanted:
            lines.append(f"{start} {', '.join(wanted)}")
    return lines
