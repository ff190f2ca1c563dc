"""The explorer's view as plain PyTorch: one hook, one gradient, one heatmap, one figure.

The code is one template with blanks. A view that does not fit it is refused in one sentence.
Names of layers, classes and models reach the code only through `quoted`, as string literals.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from textwrap import wrap
from types import FunctionType
from typing import Any, NamedTuple

from torch import Tensor

from ..attribution import cam
from ..draw.colours import SEQUENTIAL
from ..draw.figures import no_formula
from ..draw.overlay import heat_colours
from ..hooking.maps import as_maps
from ..hooking.select import unwrapped
from ..run.output import Output
from ..run.target import class_index
from ..view.heatmaps import heatmap_of
from ..view.maps import call_of, is_attention, record_of, shown_after_words
from ..view.panels import map_panels
from ..view.settings import PRODUCT
from ..view.view import View

# An inset keeps the colour bar as high as the picture, which may be flatter than its axes.
TEMPLATE = """\
import matplotlib.pyplot as plt
import torch

calls = []


def keep(module, args, output):
    call = {{"activation": output.detach().clone()}}  # a later in-place ReLU would overwrite it
    if output.requires_grad:
        output.register_hook(lambda gradient: call.update(gradient=gradient))
    calls.append(call)


{run}

{maps}


def draw(axes, title, values, colours, low, high):
    shown = axes.imshow(values, colours, vmin=low, vmax=high)
    axes.set_title(title)
    axes.locator_params(nbins=4, integer=True)
    figure.colorbar(shown, cax=axes.inset_axes([1.04, 0, 0.05, 1]))


{figure}
plt.show()
"""


class ForwardCall(NamedTuple):
    """The model's call in the code: its only tensor, the path in `explorer.inputs`, the source."""

    x: Tensor
    path: str
    source: str


def write_source(view: View) -> str:
    """Write the code that computes and draws a view's maps and heatmap, without hookviz.

    Comments at its beginning list the names that the user defines. A ``ValueError`` names what the
    code cannot express, and what to do instead.
    """
    for feature, cure in refusals(view):
        raise ValueError(f"No short code exists for {feature}: {cure}.")
    path = unwrapped(view.session.given)[1]
    model = f"model.{path}" if path else "model"
    call = forward_call(view, model)
    assert call is not None  # otherwise it was refused
    kind = type(view.session.given).__name__
    needed = [
        f"# model: your {kind if kind.isidentifier() else quoted(kind)}",
        f"# x: the input, shape {tuple(call.x.shape)}: explorer.inputs.{call.path}",
    ]
    if callable(view.target) and not isinstance(view.target, Output):
        needed.append("# target: your function, explorer.target")
    blanks = {
        "run": run_lines(view, call, model),
        "maps": [*map_lines(view), *heatmap_lines(view)],
        "figure": figure_lines(view),
    }
    source = TEMPLATE.format(**{name: "\n".join(lines) for name, lines in blanks.items()})
    if "Tensor" in {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}:
        source = source.replace("import torch\n", "import torch\nfrom torch import Tensor\n", 1)
    return "\n".join([*needed, source])


def quoted(text: str) -> str:
    r"""Quote a text as Python source, in double quotes where these need no escape.

    >>> print(quoted("layer1.conv"), quoted('a"b'), quoted("it's\n"))
    "layer1.conv" 'a"b' "it's\n"
    """
    written = repr(text)
    plain = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if plain else written


def refusals(view: View) -> Iterator[tuple[str, str]]:
    """Yield what the code cannot express of a view, each with what to do instead."""
    record, call, method = record_of(view), call_of(view), view.settings.heatmap
    layer, capture = f"layer {record.name!r}", "hookviz.capture gives its numbers"
    if is_attention(view):
        yield "attention", "hookviz.attention(model, x) gives the weights of every head"
        return
    if view.difference:
        yield "a difference of two runs", "show one of them with shown_run="
        return
    if view.session.edits:
        count = len(view.session.edits)
        edits = f"a view with {count} edit{'s' * (count > 1)}"
        yield edits, "set shown_run='original', or make the edits with hookviz.edit"
    if shown_after_words(view):
        yield f"shown_after={view.settings.shown_after!r}", "set shown_after='output'"
    function = cam.HEATMAPS.get(method, PRODUCT)
    if method != PRODUCT and vars(cam).get(getattr(function, "__name__", "")) is not function:
        yield f"the heatmap {method!r}", "choose one of Grad-CAM's family, such as 'gradcam'"
    if isinstance(view.settings.target, list):
        yield "a target for each sample", "give one target for all of them"

    forward, output = forward_call(view, "model"), call.outputs[0]
    if forward is None:
        yield "a model with several arguments", "wrap the model so that it takes one tensor"
        return
    if type(forward.x) is not Tensor or not forward.x.is_floating_point():
        yield "an input that is not a plain tensor of floating-point numbers", capture
    maps = type(call.activation) is Tensor and not (output.path or output.dtype.is_complex)
    if not maps or arrangement(view) is None:
        yield f"{layer}, whose output is not a batch of real maps", "take a layer within it"
        return
    if call.activation.ndim != 2 and as_maps(call.activation, record.module, call.grid).ndim != 4:
        yield "signals and volumes", "explorer.figure() draws them"

    core = unwrapped(view.session.given)[0]
    if view.run.source == "everything":  # the backward of a reentrant checkpoint
        yield "layers that run again in backward", "switch checkpointing off"
    if beside_the_input(view) and any(not p.requires_grad for p in core.parameters()):
        yield "layers that the score or the input does not reach, and frozen weights", capture
    if any(hasattr(part, "_orig_mod") for part in core.modules()):
        yield "a model with compiled parts", "explore it before torch.compile"
    if dict(core.named_modules(remove_duplicate=False)).get(record.name) is not record.module:
        yield f"{layer}, which is not a submodule under this name", capture


# The run


def forward_call(view: View, model: str) -> ForwardCall | None:
    """Return the call of a model that takes one tensor; None for any other."""
    inputs = view.session.inputs
    if len(inputs.args) == 1 and not inputs.kwargs and isinstance(inputs.args[0], Tensor):
        return ForwardCall(inputs.args[0], "args[0]", f"{model}(x)")
    if len(inputs.kwargs) == 1 and not inputs.args:
        ((name, value),) = inputs.kwargs.items()
        if isinstance(value, Tensor) and name.isidentifier() and not iskeyword(name):
            return ForwardCall(value, f"kwargs[{quoted(name)}]", f"{model}({name}=x)")
    return None


def has_gradient(view: View) -> bool:
    """Return whether the code runs a backward."""
    return call_of(view).gradient is not None


def beside_the_input(view: View) -> bool:
    """Return whether some gradients reach no input, so that the backward goes to the weights."""
    return view.run.source == "parameters"


def run_lines(view: View, call: ForwardCall, model: str) -> list[str]:
    """Write the forward in eval mode under the hook, and the backward."""
    name = record_of(view).name
    layer = f"{model}.get_submodule({quoted(name)})" if name else model
    hook = f"{layer}.register_forward_hook(keep)"
    if not has_gradient(view):
        return [f"{model}.eval()", f"with torch.no_grad(), {hook}:", f"    {call.source}"]
    sources = "x"
    if beside_the_input(view):
        sources = f"[x, *{model}.parameters()], allow_unused=True"
    return [
        f"{model}.eval()",
        "x = x.clone().requires_grad_()",
        f"with {hook}:",
        *(f"    {line}" for line in score_lines(view, call)),
        f"torch.autograd.grad(score, {sources})  # calls the hooks and writes no .grad",
    ]


def score_lines(view: View, call: ForwardCall) -> list[str]:
    """Write ``score = ...``, a scalar: the sum over the batch, so each sample has its gradient."""
    target, logits = view.settings.target, view.run.logits
    if isinstance(target, Output):
        return [f"output = {call.source}", f"score = {target}"]
    if callable(target):
        return [f"score = target({call.source})"]
    assert logits is not None  # a class score needs them
    source, names = call.source, view.session.class_names
    if not issubclass(view.run.returned, Tensor):
        source += '["logits"]' if issubclass(view.run.returned, Mapping) else ".logits"
    if target is None:
        return [f"score = {source}.amax(1).sum()  # each sample's top class"]
    classes: Any = target if isinstance(target, tuple) else (target,)
    first, *others = (class_index(each, logits.shape[1], names) for each in classes)
    name = f"  # {quoted(names[first])}" if first < len(names) else ""
    if not others:
        return [f"score = {source}[:, {first}].sum(){name}"]
    whole = f"score = (logits[:, {first}] - logits[:, {others}].mean(1)).sum(){name}"
    return [f"logits = {source}", whole]


# The maps


def arrangement(view: View) -> str | None:
    """Return the calls that arrange the output as maps; None for an output without a batch."""
    given = call_of(view).activation
    maps = as_maps(given, record_of(view).module, call_of(view).grid)
    if maps is given:
        return ""
    if maps.shape == (1, *given.shape):
        return None
    if given.ndim == 2:
        return "[..., None, None]"
    if given.ndim == 4:
        return ".movedim(-1, 1)"
    patches = tuple(maps.shape[2:])
    before = given.shape[1] - math.prod(patches)
    return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {patches})"


def map_lines(view: View) -> list[str]:
    """Write ``activation`` and ``gradient``, arranged as ``(N, C, H, W)``."""
    names = ["activation", "gradient"][: 1 + has_gradient(view)]
    end = f"{arrangement(view)}.float().cpu()"  # matplotlib draws neither half precision nor a GPU
    return [f'{name} = calls[{view.settings.call}]["{name}"]{end}' for name in names]


def heatmap_lines(view: View) -> list[str]:
    """Write ``heatmap = ...`` with hookviz's own function, without its docstring."""
    at = view.settings
    if heatmap_of(view) is None:
        return []
    if at.heatmap == PRODUCT:
        return [f"heatmap = (activation * gradient)[{at.sample}, {at.channel}]"]
    function: Any = cam.HEATMAPS[at.heatmap]
    arguments = "activation, gradient" if has_gradient(view) else "activation"
    call = f"heatmap = {function.__name__}({arguments})[{at.sample}]"
    return ["", "", *_printed(function), "", "", call]


def _printed(function: Any) -> list[str]:
    """Return the source of a function of `cam` without its docstring, after its helpers."""
    used = (vars(cam).get(name) for name in function.__code__.co_names)
    helpers = [_printed(helper) for helper in used if isinstance(helper, FunctionType)]
    source = inspect.getsource(function)
    lines, (node,) = source.splitlines(), ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    docstring = node.body[0]
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return [*(line for helper in helpers for line in (*helper, "", "")), *lines]


def figure_lines(view: View) -> list[str]:
    """Write the code that draws the map, its gradient, and the heatmap, side by side."""
    at, panels, heatmap = view.settings, map_panels(view), heatmap_of(view)
    pictures = [  # title, expression, colours
        (panel.name, f"{name}[{at.sample}, {at.channel}]", (panel.cmap, panel.low, panel.high))
        for name, panel in zip(("activation", "gradient"), panels, strict=False)
    ]
    if heatmap is not None:
        colours = heat_colours(heatmap) or (SEQUENTIAL, 0.0, 1.0)
        pictures.append((at.heatmap, "heatmap", colours))
    count, (height, width) = len(pictures), panels[0].values.shape
    grid, size = f"1, {count}", (3.6 * count, 3.2)
    if width > 2 * height:  # one below the other
        grid, size = f"{count}, 1", (7.0, 2.0 * count)
    layout = f'figsize=({size[0]:.3g}, {size[1]:.3g}), layout="constrained", squeeze=False'
    lines = [f"figure, axes = plt.subplots({grid}, {layout})"]
    for place, (title, expression, (cmap, low, high)) in enumerate(pictures):
        # Lines as long as a picture is wide; ``$`` does not begin a formula.
        words = quoted("\n".join(no_formula(line) for line in wrap(title, 28)))
        ends = f"{quoted(cmap)}, {low:.7g}, {high:.7g}"
        lines.append(f"draw(axes.flat[{place}], {words}, {expression}, {ends})")
    return lines
