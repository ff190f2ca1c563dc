"""The explorer's view as plain PyTorch: the shortest code that computes and draws it.

The code consists of parts, each present only if the view needs it: the input, the hook, the run,
the maps, the heatmap, the pictures. Names and texts are inserted by `quoted`, so that no layer's,
file's or class's name can become code.
"""

from __future__ import annotations

import ast
import inspect
import math
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword
from os import PathLike
from types import FunctionType
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

from ..attribution import cam
from ..attribution.attention import ATTENTION_HEATMAPS
from ..attribution.gradients import ATTRIBUTIONS
from ..draw.overlay import GAMMA, LUMINANCE, heat_colours, undoing
from ..hooking.checkpoint import FORWARD
from ..hooking.edit import LayerEdit, index_words
from ..hooking.select import unwrapped
from ..hooking.tensors import as_maps, channel_dimension
from ..run.inputs import ModelInput, Transform, expanded, is_url, load_picture, transform_for
from ..run.output import Output
from ..run.target import class_index
from ..view.exploration import ViewDifference
from ..view.frame import Panel
from ..view.heatmaps import ShownHeatmap
from ..view.settings import EFFECTIVE, NORM, PRODUCT
from ..view.view import ShownMaps, View

WIDTH = 88
"""The length at which lines are broken where that is easy."""


class CodeContext:
    """A view, and the source text of its model, layer, input and maps."""

    def __init__(self, view: View, given: Given) -> None:
        self.view, self.given, self.settings = view, given, view.settings
        self.record, self.call, self.run = view.record, view.call, view.run
        self.user_model, self.inputs = view.session.given, view.session.inputs
        self.class_names = view.session.class_names
        self.core, path = unwrapped(self.user_model)
        self.model = f"model.{path}" if path else "model"  # how the code reaches `core`
        # The only input tensor (None if there are other arguments), and its path.
        self.x, self.x_at, self.calling = _call_of(self.inputs, self.model)
        self.maps = as_maps(self.call.activation, self.record.module, self.call.grid)
        self.spatial = self.maps.ndim - 2  # the dimensions of a map
        self.graded = self.call.gradient is not None
        self.takes: list[str] = []  # comments on names that the user has to define

    @cached_property
    def heatmap(self) -> ShownHeatmap:
        return ShownHeatmap(self.view)

    @cached_property
    def method(self) -> str | None:
        """The heatmap's name, if it is drawn."""
        return self.settings.heatmap if self.heatmap.values is not None else None

    @property
    def scored(self) -> bool:
        """True if the code runs a backward."""
        return self.graded or self.method == "saliency"

    def layer(self, name: str) -> str:
        """Return the expression for a layer."""
        return f"{self.model}.get_submodule({quoted(name)})" if name else self.model

    def take(self, name: str, meaning: str) -> None:
        """Add a name that the user has to define, and its meaning."""
        if (line := f"# {name}: {meaning}") not in self.takes:
            self.takes.append(line)

    @cached_property
    def preparation(self) -> Preparation | None:
        """The lines that make the input from the picture; None if they are too complex."""
        x, given = self.x, self.given
        if x is None or len(x) != 1 or not self.inputs.args:
            return None
        make = lambda: preparation_of(given, x, self.user_model)  # noqa: E731
        return self.view.memo.get_or_compute("preparation", (self.inputs, given), make)

    @property
    def logits(self) -> str:
        """The expression for the model's class scores."""
        if issubclass(self.run.returned, Tensor):
            return self.calling
        end = '["logits"]' if issubclass(self.run.returned, Mapping) else ".logits"
        return self.calling + end

    @property
    def arrangement(self) -> str | None:
        """The calls that arrange the output as maps; None for an output without a batch."""
        given, maps = self.call.activation, self.maps
        if maps is given:
            return ""
        if maps.shape == (1, *given.shape):
            return None
        if given.ndim == 2:
            return "[..., None]"
        if given.ndim == 4:
            return ".movedim(-1, 1)"
        places = tuple(maps.shape[2:])
        before = given.shape[1] - math.prod(places)
        return f"{f'[:, {before}:]' if before else ''}.mT.unflatten(2, {places})"


def as_drawn(tensor: Tensor) -> str:
    """Return the calls that move a tensor to the CPU in a dtype that matplotlib can draw."""
    text = ".float()" if tensor.element_size() < 4 else ""
    return text + (".cpu()" if tensor.device.type != "cpu" else "")


def _call_of(inputs: ModelInput, model: str) -> tuple[Tensor | None, str, str]:
    """Return the only input tensor, its path in the inputs, and the model's call as source."""
    if len(inputs.args) == 1 and not inputs.kwargs and isinstance(inputs.args[0], Tensor):
        return inputs.args[0], "args[0]", f"{model}(x)"
    if len(inputs.kwargs) == 1 and not inputs.args:
        ((name, value),) = inputs.kwargs.items()
        if isinstance(value, Tensor) and name.isidentifier() and not iskeyword(name):
            return value, f"kwargs[{quoted(name)}]", f"{model}({name}=x)"
    return None, "", ""


@dataclass(frozen=True, eq=False)
class Given:
    """The arguments of the explorer, as for `hookviz.explore`."""

    image: Any
    weights: Any = None
    transform: Transform | None = None
    name: str | None = None  # the model's name, if given by name, see `hookviz.pretrained`


Preparation = tuple[str, ...]
"""The lines that turn a picture into the input, and an expression for it, (1, C, H, W)."""


def preparation_of(given: Given, x: Tensor, model: nn.Module) -> Preparation | None:
    """Return the lines that make ``x`` from the picture, tested to give exactly ``x``.

    None if that takes more than a few lines: a tensor or a transform of the user's, a picture with
    transparency, a file that has changed.
    """
    if given.transform is not None:
        return None
    try:
        found = _picture(given.image)
        if found is None:
            return None
        if _of_torchvision(given.weights):
            return _by_weights(given.weights, *found, x)
        return _by_steps(transform_for(unwrapped(model)[0], given.weights), *found, x)
    except (OSError, TypeError, ValueError):  # the file is missing, or not a picture any more
        return None


def _of_torchvision(weights: Any) -> bool:
    """Return whether these are weights of torchvision's; it is not imported, for two seconds."""
    models = sys.modules.get("torchvision.models")
    return models is not None and isinstance(weights, models.WeightsEnum)


def quoted(text: str) -> str:
    r"""Quote a text as Python source, in double quotes where these need no escape.

    >>> print(quoted("layer1.conv"), quoted('a"b'), quoted("it's\n"))
    "layer1.conv" 'a"b' "it's\n"
    """
    written = repr(text)
    plain = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if plain else written


def _picture(image: Any) -> tuple[str, Image.Image] | None:
    """Return an expression for the RGB picture, and the picture."""
    if isinstance(image, Image.Image):
        return _way("image", image, load_picture(image))
    if isinstance(image, np.ndarray):
        return _way("Image.fromarray(image)", Image.fromarray(image), load_picture(image))
    if isinstance(image, (str, PathLike)) and not is_url(image):
        path, wanted = expanded(image), load_picture(image)
        with Image.open(path) as opened:
            return _way(f"Image.open({quoted(path)})", opened, wanted)
    return None


def _way(text: str, opened: Image.Image, wanted: Image.Image) -> tuple[str, Image.Image] | None:
    """Return the shortest expression for the RGB picture, from the opened one."""
    turned = f"ImageOps.exif_transpose({text})", ImageOps.exif_transpose(opened)
    for way, made in ((text, opened), turned):
        if _same(made, wanted):
            return way, wanted
        if _same(made.convert("RGB"), wanted):
            return f'{way}.convert("RGB")', wanted
    return None


def _same(made: Any, picture: Any) -> bool:
    if not isinstance(made, Image.Image) or not isinstance(picture, Image.Image):
        return False
    alike = made.mode == picture.mode and made.size == picture.size
    return alike and made.tobytes() == picture.tobytes()


def _by_weights(weights: Any, text: str, picture: Image.Image, x: Tensor) -> Preparation | None:
    """Return the preprocessing by the transforms of torchvision's weights."""
    from torchvision.models import get_weight

    name = str(weights)
    if get_weight(name) is not weights:
        return None
    made = weights.transforms()(picture)
    if not isinstance(made, Tensor) or made.ndim != 3:
        return None
    lines = [f"transform = get_weight({quoted(name)}).transforms()"]
    if text != "image":
        lines.insert(0, f"picture = {text}")
    return _moved(
        tuple(lines), "transform(image)" if text == "image" else "transform(picture)", made, x
    )


_STEPS: dict[str, Callable[[Any, str], str]] = {
    "Grayscale": lambda step, of: f"TF.rgb_to_grayscale({of})",
    "Resize": lambda step, of: f"TF.resize({of}, {list(step.size)}{_how(step)})",
    "CenterCrop": lambda step, of: f"TF.center_crop({of}, {list(step.size)})",
    "PILToTensor": lambda step, of: f"TF.pil_to_tensor({of})",
    "ToDtype": lambda step, of: f"TF.to_dtype({of}, {step.dtype}, scale={step.scale})",
    "Normalize": lambda step, of: f"TF.normalize({of}, {_single(step.mean)}, {_single(step.std)})",
}


def _single(numbers: Iterable[float]) -> str:
    """Write numbers in no more digits than tell them apart in single precision, as used.

    >>> _single([127 / 255, 0.485])
    '[0.49803922, 0.485]'
    """
    return f"[{', '.join(min(repr(n), str(np.float32(n)), key=len) for n in map(float, numbers))}]"


def _how(step: Any) -> str:
    kind = step.interpolation.name
    return "" if kind == "BILINEAR" else f", InterpolationMode.{kind}"


def _by_steps(transform: Any, text: str, value: Any, x: Tensor) -> Preparation | None:
    """Return the preprocessing by the steps of `prepare_input`, without steps of no effect."""
    lines = [] if text == "image" else [f"picture = {text}"]
    of = "picture" if lines else "image"
    for step in transform.transforms:
        made = step(value)
        if _same(made, value):
            continue
        of, value = _STEPS[type(step).__name__](step, of), made
        kind = type(step).__name__
        if kind in ("CenterCrop", "ToDtype"):
            lines.append(f"{'x' if kind == 'ToDtype' else 'picture'} = {of}")
            of = "x" if kind == "ToDtype" else "picture"
    return _moved(tuple(lines), of, value, x)


def _moved(lines: tuple[str, ...], of: str, made: Tensor, x: Tensor) -> Preparation | None:
    """Append ``.to(device)`` if needed; return None unless the result equals x."""
    if not torch.equal(made[None].to(x.device, x.dtype), x):
        return None
    moves = [quoted(str(x.device))] if x.device.type != "cpu" else []
    moves += [str(x.dtype)] if x.dtype != torch.float32 else []
    move = f".to({', '.join(moves)})" if moves else ""
    return (*lines, f"{of}[None]{move}")


def input_lines(context: CodeContext) -> list[str]:
    """Write ``model`` and ``x``, made or to be defined by the user."""
    asking = ".requires_grad_()" if context.scored else ""
    name, weights, x = context.given.name, context.given.weights, context.x
    lines = []
    if name is None:
        context.take("model", f"your {type(context.user_model).__name__}")
    elif _of_torchvision(weights):
        lines.append(f"model = get_model({quoted(name)}, weights={quoted(weights.name)})")
    else:
        context.take("model", f"hookviz.pretrained({quoted(name)})[0]")
    if context.preparation is not None:
        if not isinstance(context.given.image, (str, PathLike)):
            context.take("image", "the picture that you gave")
        *before, made = context.preparation
        return [*lines, *before, f"x = {made}{asking}"]
    assert x is not None
    context.take("x", f"the input, shape {tuple(x.shape)}: explorer.inputs.{context.x_at}")
    return [*lines, *([f"x = x.clone(){asking}"] if asking else [])]


def edit_lines(context: CodeContext) -> list[str]:
    """Write the explorer's edits as plain forward hooks, ``edit_0`` and so on."""
    lines: list[str] = []
    for number, edit in enumerate(context.view.session.edits):
        chosen, old = _chosen(context, edit), ""
        if edit.factor:
            old = f"output[{chosen}] * "
        lines += [
            f"def edit_{number}(module, args, output):  # {_said(edit)}",
            "    output = output.clone()  # a new tensor, or backward may break",
            f"    output[{chosen}] = {old}{edit.factor!r}",
            "    return output",
            "",
        ]
    return lines


def _chosen(context: CodeContext, edit: LayerEdit) -> str:
    """Return the index of the channels that an edit scales."""
    if edit.factor is None or edit.where is not None or edit.of_input or edit.of_heads:
        raise _refusal(edit, "it does more than scale channels; use hookviz.edit")
    record = context.view.cache.get(edit.layer)
    if record is None:
        raise _refusal(edit, "its layer is not captured; add it to layers=")
    call = record.last
    plain = [each.path for each in call.outputs] == [""]
    if not plain or channel_dimension(call.activation, record.module, call.grid) != 1:
        raise _refusal(edit, "the layer's output is not a batch of maps; edit a layer within it")
    channels: Any = edit.channels
    if channels is None:
        return ":"
    if isinstance(channels, (int, slice)):
        return f":, {index_words(channels)}"
    return f":, {channels.tolist() if isinstance(channels, Tensor) else list(channels)}"


def _said(edit: LayerEdit) -> str:
    return quoted(str(edit))[1:-1]


def _refusal(edit: LayerEdit, why: str) -> ValueError:
    return ValueError(f"No short code exists for the edit of {_said(edit)}: {why}.")


def hook_lines(context: CodeContext) -> list[str]:
    """Write ``keep``, the forward hook, and the lists that it fills."""
    calls, kept = context.record.calls, "output.detach().clone()"
    why = "  # before in-place ReLUs overwrite it"
    if len(calls) > 1:
        lines = ["calls = []", "", "def keep(module, args, output):"]
        lines += [f'    call = {{"activation": {kept}}}{why}', "    calls.append(call)"]
        register = "output.register_hook(lambda gradient: call.update(gradient=gradient))"
    else:
        lists = "activations, gradients = [], []" if context.graded else "activations = []"
        lines = [lists, "", "def keep(module, args, output):"]
        lines += [f"    activations.append({kept}){why}"]
        register = "output.register_hook(gradients.append)"
    if not context.graded:
        return lines
    if any(call.outputs[0].hooked_in_task is None for call in calls):
        return [*lines, "    if output.requires_grad:", f"        {register}"]
    return [*lines, f"    {register}"]


def run_lines(context: CodeContext) -> list[str]:
    """Write eval mode, the forward under the hooks, the backward, and the restored mode."""
    model, edits = context.model, context.view.session.edits
    flags = {module.training for module in context.core.modules()}
    lines, back = [f"{model}.eval()"], [f"{model}.train()"] if flags == {True} else []
    if len(flags) > 1:
        lines.insert(0, f"training = {{module: module.training for module in {model}.modules()}}")
        back = ["for module, was in training.items():", "    module.training = was"]
    # The handle removes the hook at the end of the block, also if the model raises.
    hooked = [(each.layer, f"edit_{number}") for number, each in enumerate(edits)]
    blocks = [] if context.scored else ["torch.no_grad()"]
    for name, hook in [*hooked, (context.record.name, "keep")]:
        blocks.append(f"{context.layer(name)}.register_forward_hook({hook})")
    start = [f"with {', '.join(blocks)}:"]
    if len(start[0]) > WIDTH and len(blocks) > 1:
        start = ["with (", *(f"    {block}," for block in blocks), "):"]
    if not context.scored:
        return [*lines, *start, f"    {context.calling}", *back]
    scored = [f"    {line}" for line in _score_lines(context)]
    return [*lines, *start, *scored, *_backward(context), *back]


def _backward(context: CodeContext) -> list[str]:
    why = "  # runs the hook; no .grad is written" if context.graded else ""
    saliency = context.method == "saliency"
    if context.run.source == "inputs":
        return [f"{'(input_gradient,) = ' * saliency}torch.autograd.grad(score, x){why}"]
    return [  # not every layer depends on the input
        f"sources = [x, *(p for p in {context.model}.parameters() if p.requires_grad)]",
        f"{'input_gradient, *_ = ' * saliency}"
        f"torch.autograd.grad(score, sources, allow_unused=True){why}",
    ]


def _score_lines(context: CodeContext) -> list[str]:
    """Write ``score = ...``, a scalar."""
    target, logits, names = context.settings.target, context.run.logits, context.class_names
    if isinstance(target, Output):
        return [f"output = {context.calling}", f"score = {target}"]
    if callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        context.take("target", f"your function {quoted(name)}: explorer.target")
        return [f"score = target({context.calling})"]
    assert logits is not None  # a class score needs them
    one, count = len(logits) == 1, logits.shape[1]
    if target is None:
        top = "[0].max()  # the top class" if one else ".amax(1).sum()  # each sample's top class"
        return [f"score = {context.logits}{top}"]
    if isinstance(target, list):
        tops = logits.argmax(1).tolist()
        every = [top if t is None else class_index(t, count, names)
                 for t, top in zip(target, tops, strict=True)]  # fmt: skip
        classes = textwrap.wrap(f"classes = {every}", WIDTH - 4, subsequent_indent="    ")
        return [*classes, f"score = {context.logits}[range({len(every)}), classes].sum()"]
    if isinstance(target, tuple):
        first, *others = (class_index(each, count, names) for each in target)
        against = f" - logits[:, {others}].mean(1)" if others else ""
        whole = f"score = (logits[:, {first}]{against}).sum()"
        return [f"logits = {context.logits}", whole]
    index = class_index(target, count, names)
    comment = f"  # {quoted(names[index])}" if index < len(names) else ""
    line = f"score = {context.logits}" + (f"[0, {index}]" if one else f"[:, {index}].sum()")
    return [line + comment * (len(line + comment) <= WIDTH - 4)]


def map_lines(context: CodeContext) -> list[str]:
    """Write ``activation`` and ``gradient``, arranged as ``(N, C, *spatial)``."""
    arranged = f"{context.arrangement}{as_drawn(context.call.activation)}"
    names = ["activation", *(["gradient"] if context.graded else [])]
    several = len(context.record.calls) > 1
    place = f'calls[{context.settings.call}]["{{}}"]' if several else "{}s[0]"
    values = [place.format(name) + arranged for name in names]
    whole = f"{', '.join(names)} = {', '.join(values)}"
    if not arranged and len(whole) <= WIDTH:
        return [whole]
    return [f"{name} = {value}" for name, value in zip(names, values, strict=True)]


def heatmap_lines(context: CodeContext) -> list[str]:
    """Write ``heatmap = ...``, with hookviz's function printed, or with the user's by name."""
    method, at = context.method, context.settings
    if method is None:
        return []
    if method == "saliency":
        assert context.x is not None
        end = f"[{context.view.input_sample}]{as_drawn(context.x)}"
        return [f"heatmap = input_gradient.abs().amax(1){end}"]
    if method == PRODUCT:
        return [f"heatmap = (activation * gradient)[{at.sample}, {at.channel}]"]
    function: Any = cam.HEATMAPS[method]
    name, lines = getattr(function, "__name__", ""), []
    if vars(cam).get(name) is function:
        lines = ["", *_printed(function), ""]
    else:
        name = "method"
        context.take("method", f"your function: hookviz.attribution.HEATMAPS[{quoted(method)}]")
    alone = len(inspect.signature(function).parameters) == 1
    given = "activation" if alone else f"activation, {'gradient' if context.graded else None}"
    return [*lines, f"heatmap = {name}({given})[{at.sample}]"]


def _printed(function: Any) -> list[str]:
    """Return the source of a function of `cam` without its docstring, after its helpers."""
    used = (vars(cam).get(name) for name in function.__code__.co_names)
    helpers = [_printed(each) for each in used if isinstance(each, FunctionType)]
    source = inspect.getsource(function)
    lines, (node,) = source.splitlines(), ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    docstring = node.body[0]
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return [*(line for helper in helpers for line in (*helper, "")), *lines]


def drawing_lines(context: CodeContext) -> list[str]:
    """Write the code that draws a row of pictures."""
    panels = ShownMaps(context.view).panels()
    if len(panels) == 1 and context.method is None:
        return [f"plt.{_panel(context, 'activation', panels[0])}", "plt.show()"]
    named = zip(("activation", "gradient"), panels, strict=False)
    lines = [f"axes[{i}].{_panel(context, *each)}" for i, each in enumerate(named)]
    count = len(panels)
    if context.heatmap.values is not None:
        lines += _heatmap(context, context.heatmap.values, f"axes[{count}]")
        count += 1
    return [f"_, axes = plt.subplots(1, {count})", *lines, "plt.show()"]


def _panel(context: CodeContext, name: str, panel: Panel) -> str:
    values = f"{name}[{context.settings.sample}, {context.settings.channel}]"
    if context.spatial == 1:
        return f"plot({values})"
    colours = _colours(panel.values, panel.low, panel.high)
    return f"imshow({values}, {quoted(panel.cmap)}{colours})"


def _colours(values: np.ndarray, low: float, high: float) -> str:
    """Return the colour range as arguments; empty if it is matplotlib's default."""
    if np.isfinite(values).all() and low < high:
        if high == -low == np.abs(values).max():
            return ", norm=CenteredNorm()"
        if (low, high) == (values.min(), values.max()):
            return ""
    return f", vmin={low:.7g}, vmax={high:.7g}"


def _heatmap(context: CodeContext, values: np.ndarray, axes: str) -> list[str]:
    x, alpha, colours = context.x, context.settings.alpha, heat_colours(values)
    assert x is not None
    if len(values) == 1 and (context.spatial == 1 or x.ndim == 3):
        return [f"{axes}.plot(heatmap)"]
    if context.heatmap.alone or x.ndim < 4:
        name, low, high = colours or ("viridis", 0.0, 1.0)
        return [f"{axes}.imshow(heatmap, {quoted(name)}{_colours(values, low, high)})"]
    lines = picture_lines(context, axes, muted=colours is not None)
    if colours is None:
        return [*lines, f'{axes}.set_title("heatmap: zero everywhere")']
    name, low, _ = colours
    shown = "heatmap"
    if values.shape != tuple(x.shape[-2:]):
        shown = "large"
        enlarged = 'interpolate(heatmap[None, None], x.shape[-2:], mode="bilinear")[0, 0]'
        lines.append(f"large = {enlarged}")
    # The larger the value, the more opaque; the range is that of the heatmap before resizing.
    sign = "" if low == 0 else ".abs()"
    limits = "vmin=0, vmax=top" if low == 0 else "norm=CenteredNorm(halfrange=top)"
    return [
        *lines,
        f"top = heatmap{sign}.max()",
        f"opacity = {alpha:g} * ({shown}{sign} / top).clip(0, 1)",
        f"{axes}.imshow({shown}, {quoted(name)}, {limits}, alpha=opacity)",
    ]


def picture_lines(context: CodeContext, axes: str, muted: bool) -> list[str]:
    """Write the code for the input's picture, with less colour if ``muted``."""
    x, sample, alpha = context.x, context.view.input_sample, context.settings.alpha
    assert x is not None
    own = (".detach()" if context.scored else "") + as_drawn(x)
    lines = [f"picture = x[{sample}]{own}.permute(1, 2, 0)"]
    lines += _undone(context, x[sample].detach().float().cpu().numpy())
    if x.shape[1] != 3:
        return [*lines, f'{axes}.imshow(picture.mean(2), "gray", vmin=0, vmax=1)']
    if not muted:
        return [*lines, f"{axes}.imshow(picture)"]
    luminance = np.round(LUMINANCE.astype(float), 4).tolist()
    return [
        *lines,
        f"light = picture.numpy() ** {GAMMA}",
        f"gray = (light @ {luminance})[..., None]  # luminance",
        f"{axes}.imshow((light + {alpha:g} * (gray - light)) ** (1 / {GAMMA}))",
    ]


def _undone(context: CodeContext, values: np.ndarray) -> list[str]:
    """Write the lines that bring one sample ``(C, H, W)`` to 0..1."""
    scale, offset, words = undoing(values, context.inputs)
    if not words:
        return []
    if words.startswith("stretched"):
        return ["picture = (picture - picture.min()) / (picture.max() - picture.min())"]
    std, mean = ([round(float(each), 6) for each in both.ravel()] for both in (scale, offset))
    if len({*std}) == len({*mean}) == 1:
        return [f"picture = (picture * {std[0]} + {mean[0]}).clip(0, 1)"]
    return [
        f"mean, std = torch.tensor([{mean}, {std}])",
        "picture = (picture * std + mean).clip(0, 1)",
    ]


def write_source(view: View, given: Given) -> str:
    """Write the code that computes and draws a view's maps and heatmap, without hookviz.

    Comments at its beginning list the names that the user defines. A ``ValueError`` names an
    unsupported view, with a cure.
    """
    context = CodeContext(view, given)
    for rare in _rarities(context):
        raise ValueError(f"No short code exists for {rare}")
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
    if view.attends:
        yield "attention: hookviz.attention(model, x) returns the weights of every head."
        return
    if isinstance(view, ViewDifference):
        yield "a difference: set shown_run='edited'."
    if view.shown_after_words:
        yield f"shown_after={context.settings.shown_after!r}: set shown_after='output'."
    if method == EFFECTIVE:
        yield (
            "this view, since the effective field takes more than a few lines: "
            f"hookviz.receptive_field(model, x, {quoted(name)}).effective([x]) computes it."
        )
    if method in (NORM, *ATTENTION_HEATMAPS):
        attended = f"hookviz.heatmap(hookviz.attention(model, x), {method!r})"
        how = "hookviz.capture(...)[layer].activation.norm(dim=-1)" if method == NORM else attended
        yield f"{method!r}: {how} computes it."
        return
    if method in cam.HEATMAPS and cam.runs_model(method):
        function = f"hookviz.attribution.HEATMAPS[{quoted(method)}]"
        yield f"{method!r}: {function}(model, image, {quoted(name)}) computes it."
        return
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
