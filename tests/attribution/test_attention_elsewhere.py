"""Attention of transformers and open_clip models, if these libraries are installed."""

import math

import pytest
import torch
from test_attention import hooked, scattered

import hookviz

try:
    import open_clip
    import transformers
except ImportError:
    transformers = None

pytestmark = [
    pytest.mark.skipif(transformers is None, reason="transformers or open_clip is not installed"),
    pytest.mark.filterwarnings("ignore"),
]

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
PATCHES = SMALL | {"image_size": 32, "patch_size": 8}
WORDS = SMALL | {"vocab_size": 50, "max_position_embeddings": 16}
# Class -> settings, and the name of the attention module in the first block.
MODELS = {
    "BertModel": (WORDS, "encoder.layer.0.attention.self"),
    "ViTModel": (PATCHES, None),
    "Dinov2WithRegistersModel": (PATCHES | {"num_register_tokens": 3}, None),
    "CLIPVisionModel": (PATCHES, None),
    "SiglipVisionModel": (PATCHES, None),
    "LlamaModel": (WORDS | {"num_key_value_heads": 2, "head_dim": 8}, "layers.0.self_attn"),
    "GPT2Model": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}, "h.0.attn"),
    "DistilBertModel": (
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 50},
        "transformer.layer.0.attention",
    ),
    "SwinModel": (
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "window_size": 4}
        | {"depths": [1, 1], "num_heads": [2, 4]},
        None,
    ),
    "T5Model": (
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50},
        "encoder.block.0.layer.0.SelfAttention",
    ),
}


def build_model(name, way):
    settings, attends = MODELS[name]
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    config = kind.config_class(**settings)
    config._attn_implementation = way
    return scattered(kind(config)), attends


def inputs_for(name, model):
    draw = torch.Generator().manual_seed(2)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.rand(2, 3, 32, 32, generator=draw)}
    words = torch.randint(1, 50, (2, 7), generator=draw)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    found = {"input_ids": words, "attention_mask": mask}
    return found | ({"decoder_input_ids": words[:, :4]} if name == "T5Model" else {})


@pytest.mark.parametrize("way", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_equal_those_that_the_model_returns(name, way):
    """The model returns its eager weights in the order of execution."""
    try:
        model, attends = build_model(name, way)
    except ValueError:  # the model has only one implementation
        pytest.skip(f"{name} has no {way}")
    inputs = inputs_for(name, model)
    twin, _ = build_model(name, "eager")
    with torch.no_grad():
        own = twin(**inputs, output_attentions=True)
    if name == "T5Model":
        expected = [*own.encoder_attentions]
        for pair in zip(own.decoder_attentions, own.cross_attentions, strict=True):
            expected += pair
    else:
        expected = own.attentions
    maps = hookviz.attention(model, inputs)
    pooling = [
        key for key in maps if key.startswith("head.")
    ]  # Siglip does not return the weights of its pooling
    assert pooling == ["head.attention"] * (name == "SiglipVisionModel")
    maps = {key: each for key, each in maps.items() if key not in pooling}
    assert len(maps) == len(expected)
    assert attends is None or attends in maps
    hidden = inputs.get("attention_mask")
    for key, wanted in zip(maps, expected, strict=True):
        found = maps[key]
        assert found.shape == wanted.shape
        if hidden is not None and found.shape[-2] == 7:  # queries at padding are undefined
            kept = hidden.bool()[:, None, :, None].expand_as(found)
            found, wanted = found[kept], wanted[kept]
        assert (found - wanted).abs().max() < 1e-5


def test_weights_of_open_clip_equal_those_of_queries_and_keys():
    model = open_clip.CLIP(
        16,
        {"layers": 2, "width": 32, "head_width": 8, "patch_size": 8, "image_size": 32},
        {"context_length": 8, "vocab_size": 50, "width": 32, "heads": 4, "layers": 2},
    )
    scattered(model)
    inputs = {"image": torch.rand(2, 3, 32, 32), "text": torch.randint(1, 50, (2, 8))}
    maps = hookviz.attention(model, inputs)
    names = [f"{side}transformer.resblocks.{n}.attn" for side in ("visual.", "") for n in (0, 1)]
    assert list(maps) == names
    for name in names:
        module = model.get_submodule(name)
        x = hooked(model, [name.replace("attn", "ln_1")], lambda: model(**inputs))
        x = next(iter(x.values()))[1].double()
        q, k, _ = (
            (x @ module.in_proj_weight.double().T + module.in_proj_bias.double())
            .unflatten(-1, (3, 4, 8))
            .permute(2, 0, 3, 1, 4)
        )
        logits = q @ k.mT / math.sqrt(8)
        if not name.startswith("visual"):
            logits = logits + torch.full((8, 8), -math.inf).triu(1)
        assert (maps[name] - logits.softmax(-1)).abs().max() < 1e-5
