"""The facts that the code of a view is written from, and the lines that read the user's picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from keyword import iskeyword
from os import PathLike
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image, ImageOps
from torch import Tensor, nn

from ...hooking.select import unwrapped
from ...hooking.tensors import as_maps
from ...run.inputs import ModelInput, Transform, expanded, is_url, load_picture, transform_for
from ...view.heatmaps import ShownHeatmap
from ...view.view import View

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
        if isinstance(given.weights, torchvision.models.WeightsEnum):
            return _by_weights(given.weights, *found, x)
        return _by_steps(transform_for(unwrapped(model)[0], given.weights), *found, x)
    except (OSError, TypeError, ValueError):  # the file is missing, or not a picture any more
        return None


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
    name = str(weights)
    if torchvision.models.get_weight(name) is not weights:
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
    "Normalize": lambda step, of: f"TF.normalize({of}, {list(step.mean)}, {list(step.std)})",
}


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
