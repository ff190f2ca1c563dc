"""The models of the zoo, their builders and inputs: all offline, with random weights."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision

from .weights import fill, unfilled

TORCHVISION = {
    "classification": torchvision.models,
    "segmentation": torchvision.models.segmentation,
    "detection": torchvision.models.detection,
    "video": torchvision.models.video,
}

SHAPES = {  # the smallest possible input, or nearly, by model or else by kind
    "classification": (2, 3, 64, 64),
    "inception_v3": (2, 3, 96, 96),
    "maxvit_t": (1, 3, 224, 224),
    "vit_h_14": (1, 3, 56, 56),
    "segmentation": (2, 3, 64, 64),
    "detection": (3, 96, 128),
    "video": (1, 3, 8, 64, 64),
    "mvit_*": (1, 3, 16, 224, 224),
    "s3d": (1, 3, 16, 224, 224),
}

# A random detector finds nothing, which has no gradient: let it return its best boxes. One with
# several scales returns enough boxes to include all scales.
_BOXES = {"box_score_thresh": -1.0, "box_detections_per_img": 5, "rpn_post_nms_top_n_test": 50}
_SCORES = {"score_thresh": -1.0, "detections_per_img": 5000, "topk_candidates": 100}
_SMALL = {"min_size": 96, "max_size": 128}

OPTIONS: dict[str, dict[str, Any]] = {
    "*": {"weights": None},
    "segmentation/*": {"weights_backbone": None},
    "detection/*": {"weights_backbone": None},
    "classification/googlenet": {"init_weights": False},
    "classification/inception_v3": {"init_weights": False},
    "classification/vit_?_[13]?": {"image_size": 64},
    "classification/vit_h_14": {"image_size": 56},
    "detection/*rcnn*": {**_BOXES, **_SMALL},
    "detection/fcos*": {**_SCORES, **_SMALL},
    "detection/retinanet*": {**_SCORES, **_SMALL},
    "detection/ssd*": _SCORES,
}


@dataclass(frozen=True)
class Case:
    """A model of the zoo.

    Attributes
    ----------
    name : str
        ``"torchvision/resnet18"``, ``"timm/resnet10t"``.
    kind : str
        For torchvision the task; for timm the module in which the model is defined.
    shape : tuple of int
        The shape of the input, or of one picture for a detector, which takes a list of them.
    options : dict
        Options of the function that builds the model.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    refused = ""

    def build(self, gain=1.0):
        """Build the model with random weights, see `fill`, in eval mode."""
        source, name = self.name.split("/")
        with unfilled():
            if source == "timm":
                model = timm.create_model(name, pretrained=False, **self.options)
            else:
                model = torchvision.models.get_model(name, **self.options)
        fill(model, gain)
        return model.eval()

    def input(self):
        """Return the model's input, the same each time."""
        generator = torch.Generator().manual_seed(1)
        if self.kind == "detection":
            taller = (self.shape[0], self.shape[1] + 16, self.shape[2])
            return [torch.rand(shape, generator=generator) for shape in (self.shape, taller)]
        return torch.randn(self.shape, generator=generator)


def all_cases():
    """Return every model of the zoo by its name."""
    return {case.name: case for case in (*_torchvision_cases(), *_timm_cases())}


def classifiers():
    """Return the models that return logits."""
    other = {"detection", "segmentation"}
    return {name: case for name, case in all_cases().items() if case.kind not in other}


def _torchvision_cases():
    for kind, module in TORCHVISION.items():
        for name in torchvision.models.list_models(module):
            options: dict[str, Any] = {}
            for pattern, some in OPTIONS.items():
                if fnmatchcase(f"{kind}/{name}", pattern):
                    options |= some
            shape = next((s for p, s in SHAPES.items() if fnmatchcase(name, p)), SHAPES[kind])
            yield Case(f"torchvision/{name}", kind, shape, options)


def _timm_cases():
    families = tomllib.loads(Path(__file__).with_name("timm_families.toml").read_text())
    for name in families["names"]:
        family = timm.model_entrypoint(name).__module__.rpartition(".")[2]
        side = families["sides"].get(name, 64)
        options = {"img_size": side} if name in families["resized"] else {}
        yield Case(f"timm/{name}", family, (2, 3, side, side), options)
