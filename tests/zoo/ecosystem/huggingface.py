"""Hugging Face's libraries: transformers, diffusers, peft and accelerate; and open_clip."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from .cases import Foreign

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_PATCHES = _SMALL | {"image_size": 32, "patch_size": 8}
_FOUR = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
_SOUND = _SMALL | {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
_SOUND |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8}
_SOUND |= {"num_conv_pos_embedding_groups": 2}

PICTURES: dict[str, dict[str, Any]] = {
    "ViTForImageClassification": _PATCHES,
    "ConvNextV2Model": _FOUR,
    "SegformerForSemanticSegmentation": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
    | {"num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16},
    "SuperPointForKeypointDetection": {"encoder_hidden_sizes": [8, 8, 16, 16]}
    | {"decoder_hidden_size": 32, "keypoint_decoder_dim": 65, "descriptor_decoder_dim": 32},
}


def cases():
    """Yield all models of this file."""
    yield from _transformers()
    yield from _diffusers()
    yield from _others()


def _pretrained(name, **config):
    """Return a builder of a transformers model with a small configuration."""

    def make():
        import transformers

        kind = getattr(transformers, name)
        return kind(kind.config_class(**config))

    return make


def _as(name, **others):
    return lambda x: {name: x, **others}


def _transformers():
    for name, config in PICTURES.items():
        size = config.get("image_size", 64)
        shape = (1, 3, size, size)
        yield Foreign(
            f"transformers/{name}", shape, _pretrained(name, **config), _as("pixel_values")
        )
    sound = _pretrained("Wav2Vec2Model", **_SOUND)
    yield Foreign("transformers/Wav2Vec2Model", (1, 400), sound, _as("input_values"))
    small = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 32}
    small |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 32}
    whisper = small | {"num_mel_bins": 16, "max_source_positions": 20, "vocab_size": 64}
    whisper |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    whisper |= {"decoder_start_token_id": 1, "max_target_positions": 16}
    yield Foreign(
        "transformers/WhisperModel",
        (1, 16, 40),
        _pretrained("WhisperModel", **whisper),
        _as("input_features", decoder_input_ids=torch.tensor([[1, 5, 7]])),
    )
    yield Foreign(
        "transformers/DetrForObjectDetection",
        (1, 3, 64, 64),
        partial(_detr, small),
        _as("pixel_values"),
    )
    yield Foreign(
        "transformers/CLIPModel",
        (1, 3, 32, 32),
        _clip,
        _as("pixel_values", input_ids=torch.tensor([[1, 5, 2]])),
    )


def _resnet_config():
    from transformers import ResNetConfig

    return ResNetConfig(
        **_FOUR, embedding_size=8, layer_type="basic", out_features=["stage4"], num_channels=3
    )


def _detr(small):
    from transformers import DetrConfig, DetrForObjectDetection

    return DetrForObjectDetection(
        DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=_resnet_config(),
            num_queries=5,
            **small,
        )
    )


def _clip():
    from transformers import CLIPConfig, CLIPModel

    text = _SMALL | {"vocab_size": 16, "max_position_embeddings": 8, "eos_token_id": 2}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=_PATCHES, projection_dim=16))


_BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
_UP_DOWN = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
_CROSS = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
}
_ENCODED = {
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}


def _diffused(name, **options):
    def make():
        import diffusers

        return getattr(diffusers, name)(**options)

    return make


def _diffusers():
    text = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(7))
    shape = (1, 4, 16, 16)
    timed = _as("sample", timestep=10)
    told = _as("sample", timestep=10, encoder_hidden_states=text)

    def case(name, shape, given=lambda x: x, **options):
        return Foreign(f"diffusers/{name}", shape, _diffused(name, **options), given)

    yield case("UNet2DModel", (1, 3, 16, 16), timed, **_BLOCKS, **_UP_DOWN)
    yield case("UNet2DConditionModel", shape, told, **_BLOCKS, **_CROSS)
    yield case("AutoencoderKL", (1, 3, 16, 16), **_BLOCKS, **_ENCODED)
    cross = {k: v for k, v in _CROSS.items() if k != "up_block_types"}
    yield case(
        "ControlNetModel",
        shape,
        lambda x: (
            told(x) | {"controlnet_cond": x[:, :3].repeat_interleave(8, 2).repeat_interleave(8, 3)}
        ),
        **_BLOCKS,
        **cross,
        conditioning_embedding_out_channels=(8, 8, 16, 16),
    )


def _others():
    picture = (2, 3, 32, 32)
    yield Foreign("peft/LoRA on resnet18", picture, _lora)
    yield Foreign("peft/DoRA on resnet18", picture, partial(_lora, use_dora=True))
    for name in ("cpu_offload", "disk_offload", "dispatch_model", "prepare"):
        yield Foreign(f"accelerate/{name}", picture, _resnet, finish=partial(_offload, name))
    yield Foreign(
        "open_clip/ModifiedResNet",
        (1, 3, 64, 64),
        lambda: __import__("open_clip").model.ModifiedResNet([1, 1, 1, 1], 32, 4, 64, 8),
    )


def _resnet():
    from torchvision.models import resnet18

    return resnet18()


def _lora(**options):
    from peft import LoraConfig, get_peft_model

    model = _resnet()
    names = [name for name, each in model.named_modules() if isinstance(each, nn.Conv2d)]
    return get_peft_model(model, LoraConfig(r=2, target_modules=names, **options))


def _offload(name, model):
    import tempfile

    import accelerate

    if name == "prepare":
        return accelerate.Accelerator(cpu=True).prepare(model)
    if name == "dispatch_model":
        return accelerate.dispatch_model(model, {"": "cpu"}, main_device="cpu", force_hooks=True)
    if name == "disk_offload":
        return accelerate.disk_offload(model, tempfile.mkdtemp(), torch.device("cpu"))
    return accelerate.cpu_offload(model, torch.device("cpu"))
