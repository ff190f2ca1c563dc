"""The explorer's view as plain PyTorch: one hook, one gradient, one heatmap, one figure.

The code is one template with blanks. A view that does not fit it is refused in one sentence.
Names of layers, classes, files and models reach the code only through `quoted`, as string literals.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from os import PathLike
from textwrap import wrap
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from ..attribution import cam
from ..draw.colours import SEQUENTIAL, to_numpy
from ..draw.figures import no_formula
from ..draw.overlay import heat_colours
from ..hooking.checkpoint import FORWARD
from ..hooking.maps import as_maps
from ..hooking.select import unwrapped
from ..run.output import Output
from ..run.pictures import expanded, is_url
from ..run.target import class_index
from ..run.transforms import Transform, transform_for
from ..view.heatmaps import heatmap_of, is_alone
from ..view.maps import call_of, is_attention, record_of, shown_after_words
from ..view.panels import map_panels
from ..view.settings import PRODUCT
from ..view.source import input_sample
from ..view.view import View


@dataclass(frozen=True, eq=False)
class Given:
    """The arguments of the explorer, as for `hookviz.explore`."""

    image: Any
    weights: Any = None
    transform: Transform | None = None
    name: str | None = None  # the model's name, if given by name, see `hookviz.pretrained`


HOOK = """\
calls = []


def keep(module, args, output):
    call = {"activation": output.detach().clone()}  # a later in-place ReLU would overwrite it
    if output.requires_grad:
        output.register_hook(lambda gradient: call.update(gradient=gradient))
    calls.append(call)
"""

# An inset keeps the colour bar as high as the picture, which may be flatter than its axes.
DRAW = """\
def draw(axes, title, values, colours, low, high, **options):
    shown = axes.imshow(values, colours, vmin=low, vmax=high, **options)
    axes.set_title(title)
    axes.locator_params(nbins=4, integer=True)
    axes.figure.colorbar(shown, cax=axes.inset_axes([1.04, 0, 0.05, 1]))
"""

PLOT = """\
def draw(axes, title, values):
    axes.plot(values, ".-")
    axes.set_title(title)
"""


class ForwardCall(NamedTuple):
    """The model's call in the code: its only tensor, the path in `explorer.inputs`, the source."""

    x: Tensor
    path: str
    source: str


def write_source(view: View, given: Given) -> str:
    """Write the code that computes and draws a view's maps and heatmap, without hookviz.

    Comments at its beginning list the names that the user defines. A ``ValueError`` names what the
    code cannot express, and what to do instead.
    """
    for feature, cure in refusals(view):
        raise ValueError(f"No short code exists for {feature}: {cure}.")
    core, path = unwrapped(view.session.given)
    model = f"model.{path}" if path else "model"
    call = forward_call(view, model)
    assert call is not None  # otherwise it was refused
    needed, before = input_lines(view, given, call)
    source = "\n".join(
        [
            *before,
            "",
            *HOOK.splitlines(),
            "",
            "",
            *run_lines(view, call, model, any(module.training for module in core.modules())),
            "",
            *map_lines(view),
            *heatmap_lines(view),
            "",
            "",
            *figure_lines(view, call.x),
        ]
    ).lstrip()
    return "\n".join([*needed, *import_lines(source), "", source]) + "\n"


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
    layer, method = f"layer {record_of(view).name!r}", view.settings.heatmap
    capture = "hookviz.capture gives its numbers"
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

    forward, call = forward_call(view, "model"), call_of(view)
    if forward is None:
        yield "a model with several arguments", "wrap the model so that it takes one tensor"
        return
    x = forward.x
    if type(x) is not Tensor:
        yield f"an input of class {type(x).__name__}", "give x.as_subclass(torch.Tensor)"
    if not x.is_floating_point():
        yield "an input of whole numbers", "wrap the model so that it takes the embedded tensor"
    output = call.outputs[0]
    maps = type(call.activation) is Tensor and not (output.path or output.dtype.is_complex)
    if not maps or arrangement(view) is None:
        yield f"{layer}, whose output is not a batch of real maps", "take a layer within it"
        return
    if x.ndim == 5 or as_maps(call.activation, record_of(view).module, call.grid).ndim == 5:
        yield "volumes", "explorer.figure() draws them"

    core = unwrapped(view.session.given)[0]
    recomputed = any(
        each.outputs[0].hooked_in_task not in (None, FORWARD) for each in record_of(view).calls
    )
    if recomputed or view.run.source == "everything":
        yield "layers that run again in backward", "switch checkpointing off"
    if view.run.source == "parameters":
        yield "layers that do not depend on the input", capture
    if any(hasattr(part, "_orig_mod") for part in core.modules()):
        yield "a model with compiled parts", "explore it before torch.compile"
    registered = dict(core.named_modules(remove_duplicate=False))
    if registered.get(record_of(view).name) is not record_of(view).module:
        yield f"{layer}, which is not a submodule under this name", capture
    if isinstance(view.settings.target, list):
        yield "a target for each sample", "give one target for all of them"


# The input


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


def input_lines(view: View, given: Given, call: ForwardCall) -> tuple[list[str], list[str]]:
    """Return comments on the names that the user defines, and the lines that make ``x``."""
    kind = type(view.session.given).__name__
    model = f"your {kind if kind.isidentifier() else quoted(kind)}"
    if given.name is not None:
        model = f"hookviz.pretrained({quoted(given.name)})[0]"
    needed, asking = [f"# model: {model}"], ".requires_grad_()" if has_gradient(view) else ""
    target = view.target
    if asking and callable(target) and not isinstance(target, Output):
        needed.append("# target: your function, explorer.target")
    make = lambda: preparation(given, call.x, view.session.given)  # noqa: E731
    prepared = view.memo.get_or_compute("preparation", (view.session.inputs, given), make)
    if prepared is None:
        needed.append(f"# x: the input, shape {tuple(call.x.shape)}: explorer.inputs.{call.path}")
        return needed, [f"x = x.clone(){asking}"] if asking else []
    if not isinstance(given.image, (str, PathLike)):
        needed.append("# image: the picture that you gave")
    return needed, [*prepared[:-1], prepared[-1] + asking]


def preparation(given: Given, x: Tensor, model: nn.Module) -> list[str] | None:
    """Return the lines that make ``x`` from the picture; None if they give anything but ``x``."""
    try:
        source, picture = _opened(given.image)
        if given.transform is not None or picture is None:
            return None
        if ImageOps.exif_transpose(picture).tobytes() != picture.tobytes():
            source, picture = f"ImageOps.exif_transpose({source})", ImageOps.exif_transpose(picture)
        transform = transform_for(unwrapped(model)[0], given.weights)
        made = transform(picture.convert("RGB"))
        written = _written_transform(transform, given.weights)
        if written is None or not torch.equal(made[None].to(x.device, x.dtype), x):
            return None
    except (OSError, TypeError, ValueError):  # the file is missing or has changed
        return None
    moves = [quoted(str(x.device))] if x.device.type != "cpu" else []
    moves += [str(x.dtype)] if x.dtype != torch.float32 else []
    moved = f".to({', '.join(moves)})" if moves else ""
    return [*written, f'x = transform({source}.convert("RGB"))[None]{moved}']


def _opened(image: Any) -> tuple[str, Image.Image | None]:
    """Return an expression for the picture, and the picture; None if it is not a picture."""
    if isinstance(image, Image.Image):
        return "image", image
    if isinstance(image, np.ndarray):
        return "Image.fromarray(image)", Image.fromarray(image)
    if isinstance(image, (str, PathLike)) and not is_url(image):
        with Image.open(expanded(image)) as opened:
            opened.load()
        return f"Image.open({quoted(expanded(image))})", opened
    return "", None


_STEPS: dict[str, Callable[[Any], str]] = {
    "Grayscale": lambda step: "",
    "Resize": lambda step: f"{list(step.size)}, v2.{step.interpolation}",
    "CenterCrop": lambda step: f"{list(step.size)}",
    "PILToTensor": lambda step: "",
    "ToDtype": lambda step: f"{step.dtype}, scale={step.scale}",
    "Normalize": lambda step: f"{list(step.mean)}, {list(step.std)}",
}


def _written_transform(transform: Any, weights: Any) -> list[str] | None:
    """Return the lines that define a transform: of torchvision's weights, or of known steps."""
    models = sys.modules.get("torchvision.models")  # not imported here, which takes seconds
    if models is not None and isinstance(weights, models.WeightsEnum):
        return [f"transform = get_weight({quoted(str(weights))}).transforms()"]
    steps = [(type(step).__name__, step) for step in getattr(transform, "transforms", ())]
    if not steps or not all(name in _STEPS for name, _ in steps):
        return None
    calls = [f"    v2.{name}({_STEPS[name](step)})," for name, step in steps]
    return ["transform = v2.Compose([", *calls, "])"]


# The run


def has_gradient(view: View) -> bool:
    """Return whether the code runs a backward."""
    return call_of(view).gradient is not None


def run_lines(view: View, call: ForwardCall, model: str, training: bool) -> list[str]:
    """Write the forward in eval mode under the hook, and the backward."""
    name = record_of(view).name
    layer = f"{model}.get_submodule({quoted(name)})" if name else model
    hook = f"{layer}.register_forward_hook(keep)"
    lines = [f"{model}.eval()"]
    if has_gradient(view):
        lines += [f"with {hook}:", *(f"    {line}" for line in score_lines(view, call))]
        lines.append("torch.autograd.grad(score, x)  # calls the hooks and writes no .grad")
    else:
        lines += [f"with torch.no_grad(), {hook}:", f"    {call.source}"]
    if not training:
        return lines
    start = f"training = [module for module in {model}.modules() if module.training]"
    return [start, *lines, "for module in training:", "    module.training = True"]


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
        return "[..., None]"
    if given.ndim == 4:
        return ".movedim(-1, 1)"
    patches = tuple(maps.shape[2:])
    before = given.shape[1] - math.prod(patches)
    return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {patches})"


def map_lines(view: View) -> list[str]:
    """Write ``activation`` and ``gradient``, arranged as ``(N, C, *spatial)``."""
    end = f"{arrangement(view)}{_drawable(call_of(view).activation)}"
    names = ["activation", "gradient"][: 1 + has_gradient(view)]
    return [f'{name} = calls[{view.settings.call}]["{name}"]{end}' for name in names]


def _drawable(tensor: Tensor) -> str:
    """Return the calls that move a tensor to the CPU, in a dtype that matplotlib draws."""
    text = ".float()" if tensor.element_size() < 4 else ""
    return text + (".cpu()" if tensor.device.type != "cpu" else "")


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


# The figure


def figure_lines(view: View, x: Tensor) -> list[str]:
    """Write the code that draws the map, its gradient, and the heatmap."""
    at, panels, heatmap = view.settings, map_panels(view), heatmap_of(view)
    height, width = panels[0].values.shape
    signals = height == 1
    pictures = [  # title, expression, colours
        (panel.name, f"{name}[{at.sample}, {at.channel}]", (panel.cmap, panel.low, panel.high))
        for name, panel in zip(("activation", "gradient"), panels, strict=False)
    ]
    before, options = [], ""
    if heatmap is not None:
        over = not (is_alone(view) or signals or x.ndim != 4)
        colours = heat_colours(heatmap) or (SEQUENTIAL, 0.0, 1.0)
        if over:
            before = picture_lines(view, x, f"axes[{len(pictures)}]")
            options = _over_the_input(at.alpha, heatmap, colours[2], x)
        pictures.append((f"{at.heatmap}{' over the input' * over}", "heatmap", colours))
    drawn = [
        f"draw(axes[{index}], {_title(title)}, {expression}"
        + ("" if signals else f", {quoted(cmap)}, {low:.7g}, {high:.7g}")
        for index, (title, expression, (cmap, low, high)) in enumerate(pictures)
    ]
    count, ratio = len(drawn), 3 if signals else width / height
    # Wide pictures stand one below the other.
    grid = f"{count}, 1" if ratio > 2 else f"1, {count}"
    size = (3.6 * count, 3.2 if ratio > 0.5 else 7.0)
    if ratio > 2:
        size = (7.0, count * (0.9 + 5 / ratio))
    return [
        *(PLOT if signals else DRAW).splitlines(),
        "",
        "",
        f"figure, axes = plt.subplots({grid}, figsize=({size[0]:.3g}, {size[1]:.3g}), "
        'layout="constrained", squeeze=False)',
        "axes = axes.ravel()",
        *(f"{line})" for line in drawn[:-1]),
        *before,
        f"{drawn[-1]}{options})",
        "plt.show()",
    ]


def _over_the_input(alpha: float, heat: np.ndarray, most: float, x: Tensor) -> str:
    """Return the arguments that blend a heatmap over the input: the larger, the more opaque."""
    height, width = x.shape[-2:]
    least = float(np.abs(heat[np.isfinite(heat)]).min())
    opacity = f"((heatmap.abs() - {least:.7g}) / {most - least:.7g}).clip(0, 1)"
    opacity = opacity if most > least else "0"
    return (
        f",\n    alpha={alpha:g} * {opacity}, "
        f'interpolation="bilinear",\n    extent=(-0.5, {width - 0.5}, {height - 0.5}, -0.5),\n'
    )


def _title(text: str) -> str:
    """Quote a title, in lines as long as a picture is wide; ``$`` does not begin a formula."""
    return quoted("\n".join(no_formula(line) for line in wrap(text, 28)))


def picture_lines(view: View, x: Tensor, axes: str) -> list[str]:
    """Write the code that draws the input, brought to 0..1 as in the explorer."""
    sample = input_sample(view)
    scale, offset, _ = view.session.inputs.undoing(to_numpy(x[sample]))
    lines = [f"picture = x[{sample}].detach(){_drawable(x)}.permute(1, 2, 0)"]
    if (scale != 1).any() or offset.any():
        std, mean = ([round(float(n), 6) for n in numbers.ravel()] for numbers in (scale, offset))
        lines.append(f"picture = picture * torch.tensor({std}) + torch.tensor({mean})")
    if x.shape[1] == 3:
        return [*lines, f"{axes}.imshow(picture.clip(0, 1))"]
    return [*lines, f'{axes}.imshow(picture.mean(2), "gray", vmin=0, vmax=1)']


_IMPORTS = {  # in the order of the printed lines
    "import": ("matplotlib.pyplot as plt",),
    "import ": ("torch",),
    "from PIL import": ("Image", "ImageOps"),
    "from torch import": ("Tensor",),
    "from torchvision.models import": ("get_weight",),
    "from torchvision.transforms import": ("v2",),
}


def import_lines(source: str) -> list[str]:
    """Return the imports of the names that the source uses."""
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    found = {
        start: [name for name in names if name.split()[-1] in used]
        for start, names in _IMPORTS.items()
    }
    return [f"{start.strip()} {', '.join(names)}" for start, names in found.items() if names]
