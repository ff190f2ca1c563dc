"""Libraries for pictures and volumes: ultralytics, segmentation-models-pytorch, MONAI and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from .cases import Foreign

YOLO = (
    *("yolov5n", "yolov8n", "yolov8n-cls", "yolov8n-seg", "yolov8n-p6", "yolov9t", "yolov10n"),
    *("yolo11n", "yolo11n-obb", "yolo11n-pose", "yolo12n"),
)

SEGMENTATION = {
    "Unet": "resnet18",
    "UnetPlusPlus": "efficientnet-b0",
    "MAnet": "resnet18",
    "Linknet": "mobilenet_v2",
    "FPN": "timm-mobilenetv3_small_100",
    "PSPNet": "resnet18",
    "PAN": "resnet18",
    "DeepLabV3Plus": "resnet18",
    "UPerNet": "resnet18",
    "Segformer": "mit_b0",
}

_3D = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2}
MONAI: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "UNet": ((1, 1, 16, 16, 16), _3D | {"channels": (4, 8, 16), "strides": (2, 2)}),
    "AttentionUnet": ((1, 1, 16, 16, 16), _3D | {"channels": (4, 8, 16), "strides": (2, 2)}),
    "BasicUNet": ((1, 1, 32, 32, 32), _3D | {"features": (4, 4, 8, 8, 16, 4)}),
    "SegResNet": ((1, 1, 16, 16, 16), _3D | {"init_filters": 8}),
    "DenseNet121": ((1, 1, 32, 32), {"spatial_dims": 2, "in_channels": 1, "out_channels": 3}),
    "SEResNet50": ((1, 1, 32, 32), {"spatial_dims": 2, "in_channels": 1, "num_classes": 3}),
    "VNet": ((1, 1, 16, 16, 16), {}),
    "UNETR": (
        (1, 1, 32, 32, 32),
        {"in_channels": 1, "out_channels": 2, "img_size": 32, "hidden_size": 24, "num_heads": 4}
        | {"mlp_dim": 48, "feature_size": 4},
    ),
    "SwinUNETR": (
        (1, 1, 64, 64),
        {"in_channels": 1, "out_channels": 2, "feature_size": 12, "spatial_dims": 2},
    ),
    "DynUNet": (
        (1, 1, 16, 16, 16),
        _3D | {"kernel_size": (3, 3, 3), "strides": (1, 2, 2), "upsample_kernel_size": (2, 2)},
    ),
    "AutoencoderKL": (
        (1, 1, 16, 16),
        {"spatial_dims": 2, "in_channels": 1, "out_channels": 1, "channels": (8, 16)}
        | {"attention_levels": (False, True), "num_res_blocks": 1, "norm_num_groups": 4}
        | {"latent_channels": 4},
    ),
}


def cases() -> Iterator[Foreign]:
    """Yield all models of this file."""
    for name in YOLO:
        yield Foreign(f"ultralytics/{name}", (1, 3, 64, 64), partial(_yolo, name))
    for name, encoder in SEGMENTATION.items():
        options = {"encoder_name": encoder, "encoder_weights": None, "classes": 3}
        made = _of("segmentation_models_pytorch", name, **options)
        size = 256 if name == "PAN" else 64
        shape = (2, 3, size, size)
        yield Foreign(f"segmentation_models_pytorch/{name}, {encoder}", shape, made)
    for name, (shape, options) in MONAI.items():
        yield Foreign(f"monai/{name}", shape, _of("monai.networks.nets", name, **options))
    shape = (1, 1, 64, 64)
    yield Foreign(
        "kornia/HardNet", (2, 1, 32, 32), _of("kornia.feature", "HardNet", pretrained=False)
    )
    yield Foreign("kornia/TFeat", (2, 1, 32, 32), _of("kornia.feature", "TFeat", pretrained=False))
    yield Foreign("kornia/DISK", (1, 3, 64, 64), _of("kornia.feature", "DISK"))
    yield Foreign("kornia/DexiNed", (1, 3, 64, 64), _dexined)
    yield Foreign("kornia/KeyNet", shape, _of("kornia.feature", "KeyNet", pretrained=False))
    matching = _of("kornia.feature", "LoFTR", pretrained=None)
    # With random weights the matcher finds no matches, so only its feature network is tested.
    yield Foreign("kornia/LoFTR", (1, 1, 64, 64), lambda: matching().backbone)
    yield from _videos()
    for name in ("fasterrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn", "retinanet_resnet50_fpn"):
        yield Foreign(f"torchvision/{name}", (3, 64, 96), partial(_detector, name), lambda x: [x])
    yield Foreign(
        "torchvision/raft_small",
        (1, 3, 128, 128),
        _of("torchvision.models.optical_flow", "raft_small", weights=None),
        lambda x: (x, x.flip(-1), 2),
    )
    yield Foreign(
        "escnn/R2Conv", (1, 3, 16, 16), _of("escnn.nn", "R2Conv")
    )  # its dependency lie_learn cannot be built
    for name in ("resnet18", "resnet34"):
        yield Foreign(f"fastai/unet, {name}", (1, 3, 64, 64), partial(_fastai_unet, name))
    yield Foreign("fastai/vision_learner", (2, 3, 64, 64), _fastai_learner)
    yield Foreign("fastai/xresnet18", (2, 3, 64, 64), _of("fastai.vision.all", "xresnet18"))


def _of(module: str, name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(import_module(module), name)(**options)


def _yolo(name: str) -> nn.Module:
    from ultralytics import YOLO as Yolo

    return Yolo(f"{name}.yaml").model


def _dexined() -> nn.Module:
    try:
        from kornia.filters.dexined import DexiNed
    except ImportError:
        from kornia.models import DexiNed
    return DexiNed(pretrained=False)


def _videos() -> Iterator[Foreign]:
    module = "pytorchvideo.models"
    yield Foreign(
        "pytorchvideo/x3d",
        (1, 3, 4, 160, 160),
        _of(f"{module}.x3d", "create_x3d", input_clip_length=4, input_crop_size=160),
    )
    yield Foreign(
        "pytorchvideo/slow",
        (1, 3, 4, 64, 64),
        _of(
            f"{module}.resnet",
            "create_resnet",
            model_depth=50,
            head_pool_kernel_size=(4, 2, 2),
        ),
    )
    yield Foreign(
        "pytorchvideo/slowfast",
        (1, 3, 8, 64, 64),
        _of(f"{module}.slowfast", "create_slowfast", head_pool_kernel_sizes=((2, 2, 2), (8, 2, 2))),
        lambda x: [x[:, :, ::4], x],
    )


def _detector(name: str) -> nn.Module:
    from torchvision.models import get_model

    from ..models import _BOXES, _SCORES, _SMALL

    options = _SMALL | (_BOXES if "rcnn" in name else _SCORES)
    return get_model(name, weights=None, weights_backbone=None, **options)


def _fastai_unet(name: str) -> nn.Module:
    import torchvision
    from fastai.vision.all import create_unet_model

    return create_unet_model(getattr(torchvision.models, name), 2, (64, 64), pretrained=False)


def _fastai_learner() -> nn.Module:
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
