"""Where the model's input came from, as the few lines of Python that make it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image, ImageOps
from torch import Tensor, nn

from ..hooking.select import unwrapped
from ..run.images import load_picture
from ..run.transforms import Transform, transform_for


@dataclass(frozen=True, eq=False)
class Given:
    """What the explorer was given.

    Attributes
    ----------
    image, weights, transform
        As in `hookviz.explore`.
    name : str or None
        The torchvision name of a model that was given by name.
    """

    image: Any
    weights: Any = None
    transform: Transform | None = None
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Origin:
    """How a picture becomes the tensor that went in.

    Attributes
    ----------
    imports, lines : tuple of str
        What comes before the last step.
    last : str
        The last step: an expression that gives ``(1, C, H, W)``.
    picture : str or None
        The variable with the PIL picture as the network sees it, cropped and not normalized.
    """

    imports: tuple[str, ...]
    lines: tuple[str, ...]
    last: str
    picture: str | None = None


def origin_of(given: Given, x: Tensor, model: nn.Module) -> Origin | None:
    """How ``x`` is made of the picture that was given.

    Returns
    -------
    Origin or None
        None if a few lines cannot say it: a tensor or a transform of the user's, a picture with
        transparency, a file that has changed. What is returned has been tried and gave ``x``.
    """
    if given.transform is not None:
        return None
    try:
        source = _source(given.image)
        if source is None:
            return None
        if given.weights is not None:
            return _by_weights(given.weights, source, x)
        return _by_steps(transform_for(unwrapped(model)[0], None), source, x)
    except (OSError, TypeError, ValueError):  # the file has gone, is no picture any more, ...
        return None


def quoted(text: str) -> str:
    r"""Any text as a string of Python source, in double quotes where these need no escape.

    Examples
    --------
    >>> print(quoted("layer1.conv"), quoted('a"b'), quoted("it's\n"))
    "layer1.conv" 'a"b' "it's\n"
    """
    written = repr(text)
    plain = written[0] == "'" and '"' not in written
    return f'"{written[1:-1]}"' if plain else written


def _source(image: Any) -> tuple[str, Image.Image] | None:
    """An expression for the RGB picture, and the picture."""
    if isinstance(image, Image.Image):
        return _way("image", image, load_picture(image))
    if isinstance(image, np.ndarray):
        return _way("Image.fromarray(image)", Image.fromarray(image), load_picture(image))
    if isinstance(image, (str, PathLike)):
        wanted = load_picture(image)
        with Image.open(image) as opened:
            return _way(f"Image.open({quoted(str(fspath(image)))})", opened, wanted)
    return None


def _way(text: str, opened: Image.Image, wanted: Image.Image) -> tuple[str, Image.Image] | None:
    """The shortest way from what was opened to the RGB picture that went in."""

    def upright() -> Image.Image:
        return ImageOps.exif_transpose(opened)

    ways: dict[str, Callable[[], Image.Image]] = {
        text: lambda: opened,
        f'{text}.convert("RGB")': lambda: opened.convert("RGB"),
        f"ImageOps.exif_transpose({text})": upright,
        f'ImageOps.exif_transpose({text}).convert("RGB")': lambda: upright().convert("RGB"),
    }
    return next(((way, wanted) for way, load in ways.items() if _same(load(), wanted)), None)


def _same(picture: Image.Image, other: Image.Image) -> bool:
    alike = picture.mode == other.mode and picture.size == other.size
    return alike and picture.tobytes() == other.tobytes()


def _named(source: str) -> tuple[tuple[str, ...], str]:
    """The line that gives the picture a name, where it has none, and the name."""
    return ((), source) if source == "image" else ((f"picture = {source}",), "picture")


def _pillow(source: str) -> tuple[str, ...]:
    names = [name for name in ("Image", "ImageOps") if f"{name}." in source]
    return (f"from PIL import {', '.join(names)}",) if names else ()


def _by_weights(weights: Any, source: tuple[str, Image.Image], x: Tensor) -> Origin | None:
    """By the preprocessing that belongs to torchvision's weights."""
    name = str(weights)
    if torchvision.models.get_weight(name) is not weights:
        return None
    text, picture = source
    made = weights.transforms()(picture)
    if not isinstance(made, Tensor) or made.ndim != 3:
        return None
    imports = ("from torchvision.models import get_weight", *_pillow(text))
    lines, of = _named(text)
    lines = (*lines, f"transform = get_weight({quoted(name)}).transforms()")
    return _checked(Origin(imports, lines, f"transform({of})[None]"), made, x)


_STEPS: dict[str, Callable[[Any, str], str]] = {
    "Grayscale": lambda step, of: f"F.rgb_to_grayscale({of})",
    "Resize": lambda step, of: f"F.resize({of}, {list(step.size)}{_how(step)})",
    "CenterCrop": lambda step, of: f"F.center_crop({of}, {list(step.size)})",
    "PILToTensor": lambda step, of: f"F.pil_to_tensor({of})",
    "ToDtype": lambda step, of: f"F.to_dtype({of}, {step.dtype}, scale={step.scale})",
    "Normalize": lambda step, of: f"F.normalize({of}, {list(step.mean)}, {list(step.std)})",
}


def _how(step: Any) -> str:
    kind = step.interpolation.name
    return "" if kind == "BILINEAR" else f", InterpolationMode.{kind}"


def _by_steps(transform: Any, source: tuple[str, Image.Image], x: Tensor) -> Origin | None:
    """By the steps of `hookviz.prepare_input`'s own transform, those left out that do nothing."""
    text, value = source
    imports = {"from torchvision.transforms.v2 import functional as F", *_pillow(text)}
    named, name = _named(text)
    lines, of = [*named], name
    for step in transform.transforms:
        made = step(value)
        if isinstance(made, Image.Image) and _same(made, value):
            continue
        if isinstance(made, Tensor) and isinstance(value, Image.Image) and of != name:
            name = "picture"
            lines.append(f"picture = {of}")
            of = name
        of = _STEPS[type(step).__name__](step, of)
        if "InterpolationMode" in of:
            imports.add("from torchvision.transforms import InterpolationMode")
        if type(step).__name__ == "ToDtype":
            imports.add("import torch")
            lines.append(f"x = {of}")
            of = "x"
        value = made
    return _checked(Origin(tuple(imports), tuple(lines), f"{of}[None]", name), value, x)


def _checked(origin: Origin, made: Any, x: Tensor) -> Origin | None:
    """The origin, moved to where x is, if what it made is x."""
    moves = [quoted(str(x.device))] if x.device.type != "cpu" else []
    moves += [str(x.dtype)] if x.dtype != torch.float32 else []
    if not torch.equal(made[None].to(x.device, x.dtype), x):
        return None
    move = f".to({', '.join(moves)})" if moves else ""
    imports = {*origin.imports, *(["import torch"] if "torch." in move else [])}
    return Origin(tuple(imports), origin.lines, origin.last + move, origin.picture)
