"""Models and pictures: the small trained network that ships, and torchvision's with weights."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from .hooking.select import close_names

CLASS_NAMES = "ball", "eye", "fish", "flower", "heart", "house", "moon", "mushroom", "ring", "star"


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut; ``(N, C, H, W)`` in, ``(N, D, H/s, W/s)`` out."""

    def __init__(self, channels_in: int, channels_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.downsample(x)
        return self.relu(out)


class DemoNet(nn.Module):
    """A residual network of 15 convolutions for pictures of 112×112 pixels, ten classes.

    Built like torchvision's ResNets: convolutions nested in Sequentials,
    in-place ReLUs, in-place additions. ``pretrained_cfg`` says, as timm's
    models do, how a picture becomes its input.
    """

    class_names = CLASS_NAMES
    pretrained_cfg = {
        "input_size": (3, 112, 112),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(inplace=True),
        )
        self.layer1 = nn.Sequential(ResidualBlock(24, 24), ResidualBlock(24, 24))
        self.layer2 = nn.Sequential(ResidualBlock(24, 48, stride=2), ResidualBlock(48, 48))
        self.layer3 = nn.Sequential(ResidualBlock(48, 96, stride=2), ResidualBlock(96, 96))
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, len(CLASS_NAMES))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer3(self.layer2(self.layer1(self.stem(x)))))


def demo_model() -> nn.Module:
    """Load the small trained network that ships with hookviz; needs no network access.

    ``assets/train_demo_model.py`` trained it on generated pictures of ten kinds
    of object; its held-out accuracy stands in ``assets/demo/card.json``.

    Returns
    -------
    DemoNet
        In eval mode, on the CPU, about 400,000 parameters. Takes
        ``(N, 3, 112, 112)``, gives logits ``(N, 10)``; ``class_names`` and
        ``pretrained_cfg`` (size, mean, std) are attributes of it.

    Examples
    --------
    >>> import hookviz
    >>> model = hookviz.demo_model()
    >>> model.class_names[:3]
    ('ball', 'eye', 'fish')
    """
    model = DemoNet()
    state = torch.load(_assets() / "weights.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(state)
    return model.eval()


def demo_images() -> list[Image.Image]:
    """Load the pictures that ship with hookviz: three of each class, none seen in training.

    Returns
    -------
    list of PIL.Image.Image
        RGB, 112×112. ``picture.info["label"]`` is the class name and
        ``picture.info["mask"]`` the object's mask (mode ``L``: 255 on the object).

    Examples
    --------
    >>> import hookviz
    >>> picture = hookviz.demo_images()[0]
    >>> picture.size, picture.info["label"]
    ((112, 112), 'ball')
    """
    pictures = []
    for path in sorted((_assets() / "pictures").glob("*.png")):
        picture = Image.open(path).convert("RGB")
        # Pillow may already have put what it read from the file into .info.
        picture.info = {
            "label": path.stem.partition("_")[2],
            "mask": Image.open(_assets() / "masks" / path.name).convert("L"),
        }
        pictures.append(picture)
    return pictures


def _assets() -> Path:
    """The folder with weights and pictures: in the wheel inside the package, else beside it."""
    package = Path(__file__).resolve().parent
    inside = package / "assets"
    return inside if inside.is_dir() else package.parent / "assets" / "demo"


def pretrained(name: str, weights: Any = None) -> tuple[nn.Module, Any]:
    """Build a torchvision model with trained weights, downloading them if need be.

    Parameters
    ----------
    name : str
        Such as ``"resnet34"``, see ``torchvision.models.list_models()``.
    weights : torchvision weights entry, optional
        The model's default weights if left out.

    Returns
    -------
    model : torch.nn.Module
        In eval mode.
    weights
        The entry that was loaded, with ``transforms()`` and ``meta["categories"]``.

    Raises
    ------
    ValueError
        No such model, or weights of another model.
    RuntimeError
        The weights could not be downloaded, the message names the model that needs none; or
        their file holds more than weights.

    Examples
    --------
    >>> import hookviz
    >>> hookviz.pretrained("resnet3")
    Traceback (most recent call last):
    ...
    ValueError: torchvision has no model 'resnet3'; close to it: 'resnet34', 'resnet50', 'resnet18'.
    """
    import torchvision  # the demo model has no need of it

    names = torchvision.models.list_models()
    if name not in names:
        raise ValueError(f"torchvision has no model {name!r}; {close_names(name, names)}.")
    kinds = torchvision.models.get_model_weights(name)
    weights = weights or kinds["DEFAULT"]
    if not isinstance(weights, kinds):
        raise ValueError(
            f"{weights!r} are no weights of {name!r}: take one of {kinds.__name__}: "
            f"{', '.join(kind.name for kind in kinds)}."
        )
    try:
        with _weights_only():
            model = torchvision.models.get_model(name, weights=weights)
    except OSError as error:  # urllib's errors, time-outs and a full disk among them
        raise RuntimeError(
            f"The weights {weights} could not be downloaded ({error}): try again with a network "
            "connection, or use hookviz.demo_model(), which ships with its weights."
        ) from error
    except pickle.UnpicklingError as error:
        raise RuntimeError(
            f"The downloaded weights {weights} hold more than weights and were not read: delete "
            f"the file in {torch.hub.get_dir()!r} and try again."
        ) from error
    return model.eval(), weights


@contextmanager
def _weights_only() -> Iterator[None]:
    """Within the block torch reads files as data: torchvision would let it run what is in them."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        del os.environ[names[0]]
        os.environ.update(before)
