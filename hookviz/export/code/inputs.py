"""The lines of Python that make the model's input from the user's picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image, ImageOps
from torch import Tensor, nn

from ...hooking.select import unwrapped
from ...run.inputs import Transform, transform_for
from ...run.pictures import expanded, is_url, load_picture


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
