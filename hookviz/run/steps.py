"""The steps from a picture to a tensor, as torchvision's, which takes two seconds to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


class InterpolationMode(Enum):
    """The filters of torchvision."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class TransformStep:
    """A callable, named and described as torchvision's."""

    def __repr__(self) -> str:
        """Return the text that files of surveys hold."""
        told = (f"{k}={v}" for k, v in vars(self).items() if not isinstance(v, torch.dtype))
        return f"{type(self).__name__}({', '.join(told)})"


@dataclass(repr=False)
class Grayscale(TransformStep):
    """A picture in grey."""

    num_output_channels: int = 1

    def __call__(self, picture: Image.Image) -> Image.Image:
        return picture.convert("L")


@dataclass(repr=False)
class Resize(TransformStep):
    """A picture whose shorter side is ``size[0]``."""

    size: list[int]
    interpolation: InterpolationMode
    antialias: bool = True

    def __call__(self, picture: Image.Image) -> Image.Image:
        shorter = min(picture.size)
        wanted = [int(self.size[0] * side / shorter) for side in picture.size]
        if wanted == list(picture.size):
            return picture
        name = self.interpolation.name.partition("_")[0]
        return picture.resize(wanted, Image.Resampling[name])


@dataclass(repr=False)
class CenterCrop(TransformStep):
    """The middle of a picture, or the picture within black margins; ``size`` is height, width."""

    size: list[int]

    def __call__(self, picture: Image.Image) -> Image.Image:
        corner = [
            -((wanted - side) // 2) if wanted > side else round((side - wanted) / 2)
            for side, wanted in zip(picture.size, self.size[::-1], strict=True)
        ]
        (left, top), (height, width) = corner, self.size
        return picture.crop((left, top, left + width, top + height))


@dataclass(repr=False)
class PILToTensor(TransformStep):
    """A picture as a tensor of bytes ``(C, H, W)``."""

    def __call__(self, picture: Image.Image) -> Tensor:
        array = torch.as_tensor(np.array(picture))
        return array.view(picture.height, picture.width, -1).permute(2, 0, 1)


@dataclass(repr=False)
class ToDtype(TransformStep):
    """Bytes as numbers from 0 to 1."""

    dtype: torch.dtype = torch.float32
    scale: bool = True

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype).mul_(1.0 / 255)


@dataclass(repr=False)
class Normalize(TransformStep):
    """Each channel without its mean, divided by its standard deviation."""

    mean: list[float]
    std: list[float]
    inplace: bool = False

    def __call__(self, tensor: Tensor) -> Tensor:
        kind: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
        mean, std = (torch.as_tensor(each, **kind) for each in (self.mean, self.std))
        return tensor.sub(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


class Compose:
    """All steps, one after the other; what is not a picture goes through torchvision's.

    Examples
    --------
    >>> Compose([Resize([8], InterpolationMode.BILINEAR), CenterCrop([6, 6]), PILToTensor()])(
    ...     Image.new("RGB", (40, 20))
    ... ).shape
    torch.Size([3, 6, 6])
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = transforms

    def __call__(self, *given: Any) -> Any:
        if len(given) != 1 or not isinstance(given[0], Image.Image):
            return self._torchvisions()(*given)
        made = given[0]
        for step in self.transforms:
            made = step(made)
        return made

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *(f"      {step}" for step in self.transforms), ")"])

    def _torchvisions(self) -> Any:
        from torchvision.transforms import v2

        def alike(step: Any) -> Any:
            own = dict(vars(step))
            if "interpolation" in own:
                own["interpolation"] = v2.InterpolationMode(step.interpolation.value)
            return getattr(v2, type(step).__name__)(**own)

        return v2.Compose([alike(step) for step in self.transforms])
