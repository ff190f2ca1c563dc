"""Boxes of ultralytics and transformers models, if these are installed."""

import pytest
import torch

import hookviz
from hookviz.run.output import read_output
from hookviz.view.predictions import output_of

try:
    import transformers
    from ultralytics.nn import tasks
except ImportError:
    transformers = None

pytestmark = [
    pytest.mark.skipif(transformers is None, reason="transformers or ultralytics is not installed"),
    pytest.mark.filterwarnings("ignore"),
]

NAMES = ["cat", "dog", "cow", "hen", "fox"]
STAGES = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SIZES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}


def yolo(name):
    return tasks.DetectionModel(f"{name}.yaml", verbose=False)


def detr(name):
    backbone = transformers.ResNetConfig(**STAGES, out_features=["stage4"])
    own = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    config = transformers.DetrConfig(
        **own, **HEADS, **SIZES, backbone_config=backbone, d_model=32, num_queries=12,
        id2label=dict(enumerate(NAMES)),
    )  # fmt: skip
    return transformers.DetrForObjectDetection(config)


def yolos(name):
    config = transformers.YolosConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        image_size=[64, 96], num_detection_tokens=10, num_labels=5,
    )  # fmt: skip
    return transformers.YolosForObjectDetection(config)


MODELS = {"yolov8n": yolo, "yolo11n": yolo, "yolov8n-seg": yolo, "detr": detr, "yolos": yolos}


@pytest.mark.parametrize("name", MODELS)
def test_boxes_of_other_libraries_can_be_targets(name):
    """The gradient is bit-identical to that of plain PyTorch."""
    make = MODELS[name]
    model = make(name).eval()
    picture = torch.rand(1, 3, 64, 96)
    convolutions = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    # For YOLO, use a layer of the backbone, on which boxes of every size depend.
    layer = convolutions[len(convolutions) // 4 if make is yolo else -1]
    if name == "detr":
        layer = convolutions[-2]  # the last call is the projection
    explorer = hookviz.explore(model, picture, layer=layer)
    best = output_of(explorer.displayed()).boxes[0]
    explorer.target = best.target
    kept = []
    hook = model.get_submodule(layer).register_forward_hook(lambda *given: kept.append(given[2]))
    score = read_output(best.target)(model(picture.clone().requires_grad_()))
    hook.remove()
    (slopes,) = torch.autograd.grad(score, kept[-1:])
    assert slopes.any() and torch.equal(explorer.cache[layer].gradient, slopes)
