"""Libraries for pictures and volumes: ultralytics, segmentation-models-pytorch, MONAI and more."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from .cases import Foreign

YOLO = "yolov8n-cls", "yolov8n-seg", "yolo11n-pose"
SEGMENTATION = {"Unet": "resnet18", "PSPNet": "resnet18"}

_3D = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
MONAI: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "UNet": ((1, 1, 16, 16, 16), _3D | {"channels": (4, 8, 16), "strides": (2, 2)}),
    "DenseNet121": ((1, 1, 32, 32), {"spatial_dims": 2, "in_channels": 1, "out_channels": 3}),
    "UNETR": (
        (1, 1, 32, 32, 32),
        {"in_channels": 1, "out_channels": 2, "img_size": 32, "hidden_size": 24, "num_heads": 4}
        | {"mlp_dim": 48, "feature_size": 4},
    ),
}


def cases():
    """Yield all models of this file."""
    for name in YOLO:
        yield Foreign(f"ultralytics/{name}", (1, 3, 64, 64), partial(_yolo, name))
    for name, encoder in SEGMENTATION.items():
        options = {"encoder_name": encoder, "encoder_weights": None, "classes": 3}
        made = _of("segmentation_models_pytorch", name, **options)
        yield Foreign(f"segmentation_models_pytorch/{name}, {encoder}", (2, 3, 64, 64), made)
    for name, (shape, options) in MONAI.items():
        yield Foreign(f"monai/{name}", shape, _of("monai.networks.nets", name, **options))
    yield Foreign(
        "kornia/HardNet", (2, 1, 32, 32), _of("kornia.feature", "HardNet", pretrained=False)
    )
    yield Foreign(
        "kornia/KeyNet", (1, 1, 64, 64), _of("kornia.feature", "KeyNet", pretrained=False)
    )
    yield from _videos()
    yield Foreign(
        "torchvision/raft_small",
        (1, 3, 128, 128),
        _of("torchvision.models.optical_flow", "raft_small", weights=None),
        lambda x: (x, x.flip(-1), 2),
    )
    yield Foreign("fastai/unet, resnet18", (1, 3, 64, 64), _fastai_unet)
    yield Foreign("fastai/vision_learner", (2, 3, 64, 64), _fastai_learner)


def _of(module, name, **options):
    return lambda: getattr(import_module(module), name)(**options)


def _yolo(name):
    from ultralytics import YOLO as Yolo

    return Yolo(f"{name}.yaml").model


def _videos():
    module = "pytorchvideo.models"
    yield Foreign(
        "pytorchvideo/x3d",
        (1, 3, 4, 160, 160),
        _of(f"{module}.x3d", "create_x3d", input_clip_length=4, input_crop_size=160),
    )
    yield Foreign(
        "pytorchvideo/slowfast",
        (1, 3, 8, 64, 64),
        _of(f"{module}.slowfast", "create_slowfast", head_pool_kernel_sizes=((2, 2, 2), (8, 2, 2))),
        lambda x: [x[:, :, ::4], x],
    )


def _fastai_unet():
    from fastai.vision.all import create_unet_model
    from torchvision.models import resnet18

    return create_unet_model(resnet18, 2, (64, 64), pretrained=False)


def _fastai_learner():
    from fastai.vision.all import DataLoaders, vision_learner
    from torchvision.models import resnet18

    items = [(torch.randn(3, 64, 64), torch.tensor(0)) for _ in range(2)]
    loaders = DataLoaders.from_dsets(items, items, bs=2)
    learner = vision_learner(
        loaders,
        resnet18,
        pretrained=False,
        n_out=3,
        normalize=False,
        loss_func=nn.CrossEntropyLoss(),
    )
    return learner.model
