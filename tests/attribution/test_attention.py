"""Attention weights equal those computed from the model's queries and keys."""

import math

import numpy as np
import pytest
import timm
import torch
import torchvision
from architectures import model_of
from torch import nn
from torch.nn import functional

import hookviz
from hookviz.attribution.attention_listener import attention_weights

F64 = torch.float64


def picture(n=1, side=32, dtype=torch.float32):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1)).to(dtype)


def scattered(model):
    """Initialise weights large enough that attention is not uniform."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=1.5 / math.sqrt(parameter[0].numel()))
    return model.eval()


def hooked(model, names, run):
    """Return the input and output of these modules, recorded by plain hooks."""
    seen = {}

    def hook(name):
        def keep(module, args, output):
            output = output[0] if isinstance(output, tuple) else output
            seen[name] = args[0].detach().clone(), output.detach().clone()

        return model.get_submodule(name).register_forward_hook(keep)

    handles = [hook(name) for name in names]
    with torch.no_grad():
        run()
    for each in handles:
        each.remove()
    return seen


def weights_from_qkv(qkv, heads):
    """Compute the weights of a timm attention from the output of its qkv projection."""
    n, t, _ = qkv.shape
    q, k, _ = qkv.reshape(n, t, 3, heads, -1).permute(2, 0, 3, 1, 4).double()
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)


SMALL = {"img_size": 32, "num_classes": 4}
TIMM = {
    "vit_tiny_patch16_224": {**SMALL, "patch_size": 8, "depth": 3},
    "vit_small_patch14_reg4_dinov2": {**SMALL, "patch_size": 8, "depth": 2},
}


def tiny():
    name = "vit_tiny_patch16_224"
    return scattered(timm.create_model(name, **TIMM[name]))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", TIMM)
def test_timm_weights_equal_those_of_queries_and_keys(name, fused):
    model = scattered(timm.create_model(name, **TIMM[name]))
    for block in model.blocks:
        block.attn.fused_attn = fused
    x = picture(2)
    names = [f"blocks.{n}.attn" for n in range(len(model.blocks))]
    seen = hooked(model, [f"{each}.qkv" for each in names], lambda: model(x))
    maps = hookviz.attention(model, x)
    assert list(maps) == names
    for each in names:
        expected = weights_from_qkv(seen[f"{each}.qkv"][1], model.get_submodule(each).num_heads)
        assert (maps[each] - expected).abs().max() < 1e-5
        assert maps.prefix(each) == model.num_prefix_tokens
        assert expected.std() > 1e-3  # otherwise any uniform weights would pass


class Attend(nn.Module):
    """Attention without parameters, called with queries, keys and values."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.softmax, self.dropout = kind, nn.Softmax(-1), nn.Dropout(0.0)

    def forward(self, q, k, v, mask=None):
        if self.kind == "softmax module":
            logits = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            return self.dropout(self.softmax(logits if mask is None else logits + mask)) @ v
        if self.kind == "in place":
            logits = torch.matmul(q, k.mT)
            logits *= q.shape[-1] ** -0.5
            for query in range(0 if mask is None else len(mask)):
                logits[..., query, query + 1 :] = -math.inf  # the same as the causal mask
            weights = logits.softmax(-1)
            out = weights @ v
            weights.zero_()  # overwritten because nothing else needs it
            return out
        if self.kind == "einsum":
            logits = torch.einsum("nhqd,nhkd->nhqk", q, k) * q.shape[-1] ** -0.5
            logits = logits if mask is None else logits.masked_fill(mask == -math.inf, -1e30)
            weights = functional.softmax(logits.float(), -1).to(v.dtype)
            return torch.einsum("nhqk,nhkd->nhqd", weights, v)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Attention(nn.Module):
    def __init__(self, kind, heads=2, width=8):
        super().__init__()
        self.num_heads, self.inner = heads, Attend(kind)
        self.q, self.kv, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )

    def split(self, x, other=None):
        q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        kv = self.kv(x if other is None else other)
        return q, *kv.unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x, other=None, mask=None):
        y = self.inner(*self.split(x, other), mask)
        return self.out(y.transpose(1, 2).flatten(2))

    def weights(self, x, other=None, mask=None):
        q, k, _ = self.split(x, other)
        logits = q @ k.mT / math.sqrt(q.shape[-1])
        return (logits if mask is None else logits + mask).softmax(-1)


class Block(nn.Module):
    def __init__(self, kind, heads=2):
        super().__init__()
        self.attn, self.head = Attention(kind, heads), nn.Linear(8, 3)

    def forward(self, x, other=None, mask=None):
        return self.head((x + self.attn(x, other, mask)).mean(1))


KINDS = ["softmax module", "in place", "einsum", "fused"]
CAUSAL = torch.full((4, 4), -math.inf).triu(1)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_write_attention_gives_its_weights_and_gradients(kind, heads):
    model, x = scattered(Block(kind, heads)), torch.randn(3, 4, 8)
    twin = Block("softmax module", heads).eval()
    twin.load_state_dict(model.state_dict())
    for given in ((x,), (x, torch.randn(3, 6, 8)), (x, None, CAUSAL)):
        maps = hookviz.attention(model, given)
        assert list(maps) == ["attn"]
        expected = model.attn.weights(*given)
        assert maps["attn"].shape == expected.shape == (3, heads, 4, expected.shape[-1])
        assert (maps["attn"] - expected).abs().max() < 1e-6
        if kind != "in place":  # its in-place writes break the graph
            found = hookviz.attention(model, given, target=1).gradients["attn"]
            wanted = by_autograd(twin.double(), given)
            twin.float()
            assert (found - wanted).abs().max() < 1e-5


def by_autograd(model, given):
    kept = []

    def hook(module, args, output):
        output.retain_grad()
        kept.append(output)

    handle = model.attn.inner.softmax.register_forward_hook(hook)
    model(*(each if each is None else each.double() for each in given))[:, 1].sum().backward()
    handle.remove()
    return kept[0].grad


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.tensor([True, False, True, True, False]).expand(5, 5)},
        {"attn_mask": torch.randn(2, 1, 5, 5, generator=torch.Generator().manual_seed(3))},
        {"attn_mask": torch.tensor([[False] * 5] + [[True] * 5] * 4)},
        {"enable_gqa": True},
        {"dropout_p": 0.5},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("dtype", [F64, torch.bfloat16])
def test_options_of_scaled_dot_product_attention_are_respected(options, dtype):
    class Model(nn.Module):
        def forward(self, q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, **options)

    if "enable_gqa" in options and torch.__version__ < (2, 5):
        pytest.skip("torch 2.4 has no grouped heads")
    heads = 2 if "enable_gqa" in options else 4
    torch.manual_seed(5)
    q = torch.randn(2, 4, 5, 8)
    k, v = torch.randn(2, heads, 5, 8), torch.randn(2, heads, 5, 8)
    (found,) = hookviz.attention(Model(), tuple(each.to(dtype) for each in (q, k, v))).values()
    q, k = (each.to(dtype).double() for each in (q, k))
    logits = q @ k.repeat_interleave(4 // heads, 1).mT * options.get("scale", 8**-0.5)
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -math.inf)
    elif mask is not None:
        logits = logits + mask.to(dtype)
    if "is_causal" in options:
        logits = logits + torch.full((5, 5), -math.inf, dtype=F64).triu(1)
    expected = logits.softmax(-1).nan_to_num(0)
    assert (found - expected).abs().max() < (1e-2 if dtype == torch.bfloat16 else 1e-5)


def test_boolean_masks_of_fused_kernels_are_applied():
    """On the CPU torch converts a boolean mask to floats, but other devices' kernels receive it."""
    query, key = (torch.randn(2, 3, 5, 4) for _ in range(2))
    mask = torch.rand(5, 5) > 0.5
    mask[2] = False
    expected = (query @ key.mT / 2).masked_fill(~mask, -math.inf).softmax(-1).nan_to_num(0)
    assert (attention_weights(query, key, mask) - expected).abs().max() < 1e-6


def test_a_transformer_has_weights_of_self_and_cross_attention():
    model = scattered(nn.Transformer(8, 2, 1, 1, 16, batch_first=True))
    maps = hookviz.attention(model, (torch.randn(2, 5, 8), torch.randn(2, 3, 8)))
    shapes = {name: tuple(each.shape) for name, each in maps.items()}
    assert shapes == {
        "encoder.layers.0.self_attn": (2, 2, 5, 5),
        "decoder.layers.0.self_attn": (2, 2, 3, 3),
        "decoder.layers.0.multihead_attn": (2, 2, 3, 5),
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"need_weights": False},
        {"average_attn_weights": False},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_weights_of_multihead_attention_with_every_option(options, first):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.mha = nn.MultiheadAttention(8, 4, batch_first=first, add_bias_kv=True)

        def forward(self, x):
            return self.mha(x, x, x, **options)[0]

    model, x = scattered(Model()), torch.randn(5, 5, 8)
    expected = model.mha(
        x, x, x, **options | {"need_weights": True, "average_attn_weights": False}
    )[1]
    maps = hookviz.attention(model, x)
    assert maps["mha"].shape == expected.shape  # add_bias_kv adds one learned key
    assert (maps["mha"] - expected).abs().max() < 1e-6


def other_softmaxes(m, x):
    """A gate, a table look-up, a router, a softmax over the queries, slots and class scores."""
    x = x * m.gate(x).softmax(-1)
    x = m.gate(x).softmax(-1) @ m.table
    x = torch.einsum(
        "nte,neto->nto", m.gate(x).softmax(-1), torch.stack([e(x) for e in m.expert], 1)
    )
    x = (x @ x.mT).softmax(1) @ x
    slots = (x @ x.mT).softmax(1)
    x = slots / slots.sum(-1, keepdim=True) @ x
    return m.gate(x.mean(1)).softmax(-1)


def test_softmaxes_other_than_attention_are_not_found():
    model = model_of(
        other_softmaxes,
        gate=nn.Linear(8, 8),
        table=nn.Parameter(torch.randn(8, 8)),
        expert=nn.ModuleList(nn.Linear(8, 8) for _ in range(8)),
    )
    assert dict(hookviz.attention(model, torch.randn(2, 4, 8))) == {}
    maps = hookviz.attention(torchvision.models.resnet18().eval(), picture(1, 64))
    assert not maps and maps.records() == [] and "no attention" in repr(maps)
    assert maps.gradients == {}
    assert "no attention" in maps.to_html()


class Layout(Attention):
    """Attention whose weights have their dimensions in an unusual order until the projection."""

    def __init__(self, layout):
        super().__init__("", heads=4)
        self.layout, self.heads = layout, 2 if layout == "grouped" else 4

    def split(self, x, other=None):
        q, k, v = super().split(x)
        if self.layout == "grouped":  # two heads of queries for each of keys and values
            k, v = (each[:, ::2].repeat_interleave(2, 1) for each in (k, v))
        if self.layout == "one for all":
            k, v = (each[:, :1].expand_as(q) for each in (k, v))
        return q, k, v

    def forward(self, x):
        q, k, v = self.split(x)
        q = q / math.sqrt(q.shape[-1])
        if self.layout == "heads first":
            q, k, v = (each.transpose(0, 1).flatten(0, 1) for each in (q, k, v))
            result = (torch.bmm(q, k.mT).softmax(-1) @ v).unflatten(0, (4, -1)).transpose(0, 1)
        elif self.layout == "heads last":
            weights = torch.einsum("nhqd,nhkd->nqkh", q, k).softmax(2)
            result = torch.einsum("nqkh,nhkd->nhqd", weights, v)
        elif self.layout == "heads between":
            weights = torch.einsum("nhqd,nhkd->nqhk", q, k).softmax(-1)
            result = torch.einsum("nqhk,nhkd->nhqd", weights, v)
        elif self.layout == "keys first":
            result = (v.mT @ (k @ q.mT).softmax(-2)).mT
        elif self.layout == "grouped":
            grouped = q.unflatten(1, (2, 2))
            weights = (grouped @ k[:, ::2, None].mT).softmax(-1)
            result = (weights @ v[:, ::2, None]).flatten(1, 2)
        else:
            weights = torch.einsum("nhqd,nkd->nhqk", q, k[:, 0]).softmax(-1)
            result = torch.einsum("nhqk,nkd->nhqd", weights, v[:, 0])
        return self.out(result.transpose(1, 2).flatten(2))


LAYOUTS = ["heads first", "heads last", "heads between", "keys first", "grouped", "one for all"]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_and_heads_are_told_apart_in_every_layout(layout, samples):
    model, x = scattered(nn.Sequential(Layout(layout))), torch.randn(samples, 5, 8)
    expected = model[0].weights(x)
    score = lambda y: y[:, 0, 1].sum()  # noqa: E731
    maps = hookviz.attention(model, x, target=score)
    assert list(maps) == ["0"] and maps["0"].shape == (samples, 4, 5, 5)
    assert (maps["0"] - expected).abs().max() < 1e-6
    twin = scattered(nn.Sequential(Attention("softmax module", heads=4)))
    twin.load_state_dict(model.state_dict())
    if layout not in ("grouped", "one for all"):  # the twin has as many keys as queries
        wanted = hookviz.attention(twin, x, target=score)
        assert (maps.gradients["0"] - wanted.gradients["0"]).abs().max() < 1e-6


class Blocks(Attention):
    """Two blocks of tokens that attend to themselves; the heads' values are interleaved after."""

    def __init__(self, merged):
        super().__init__("", heads=4)
        self.merged = merged

    def forward(self, x):
        q, k, v = (each.unflatten(2, (2, -1)) for each in self.split(x))  # (N, heads, 2, L, d)
        if self.merged:  # as in HaloNet; else as in NesT
            q, k, v = (each.flatten(0, 1) for each in (q, k, v))
        result = ((q @ k.mT).softmax(-1) @ v).view(len(x), 4, 2, -1, 2)
        return self.out(result.flatten(2, 3).movedim(1, -1).flatten(2))


@pytest.mark.parametrize("merged", [True, False])
def test_the_number_of_heads_tells_them_from_blocks_if_they_are_interleaved(merged):
    model, x = scattered(nn.Sequential(Blocks(merged))), torch.randn(3, 6, 8)
    (found,) = hookviz.attention(model, x).values()
    q, k, _ = (each.unflatten(2, (2, -1)) for each in model[0].split(x))
    expected = (q @ k.mT).softmax(-1).transpose(1, 2).flatten(0, 1)
    assert found.shape == expected.shape == (6, 4, 3, 3)
    assert (found - expected).abs().max() < 1e-6


class Banded(Attention):
    """Each query sees its five neighbours, which are cut out first."""

    def __init__(self):
        super().__init__("", heads=4)

    def forward(self, x):
        q, k, v = self.split(x)
        k, v = (functional.pad(each, (0, 0, 2, 2)).unfold(2, 5, 1) for each in (k, v))
        weights = (q[:, :, :, None] @ k).softmax(-1)  # (N, heads, queries, 1, 5)
        return self.out((weights @ v.mT)[:, :, :, 0].transpose(1, 2).flatten(2))


def test_neighbourhoods_of_queries_are_samples():
    model, x = scattered(Banded()), torch.randn(2, 6, 8)
    (found,) = hookviz.attention(model, x).values()
    q, k, _ = model.split(x)
    near = torch.cat([torch.zeros(2, 4, 2, 2), k, torch.zeros(2, 4, 2, 2)], 2)
    third = (q[1, :, None, 3] @ near[1, :, 3:8].mT).softmax(-1)
    assert found.shape == (12, 4, 1, 5)
    assert (found[6 + 3] - third).abs().max() < 1e-6


MIXED_WEIGHTS = []


class TalkingHeads(Attention):
    def __init__(self):
        super().__init__("fused")
        self.before, self.behind = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        q, k, v = self.split(x)
        logits = self.before((q @ k.mT).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = logits.softmax(-1)
        MIXED_WEIGHTS.append(weights.detach())
        weights = self.behind(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def test_weights_of_talking_heads_are_those_after_the_softmax():
    model = scattered(nn.Sequential(TalkingHeads()))
    maps = hookviz.attention(model, torch.randn(2, 5, 8))
    assert list(maps) == ["0"]
    assert torch.equal(maps["0"], MIXED_WEIGHTS[-1])


def test_layers_can_be_selected():
    model, x = tiny(), picture()
    assert list(hookviz.attention(model, x, "blocks.1.attn")) == ["blocks.1.attn"]
    with pytest.raises(ValueError, match="names no module that attends"):
        hookviz.attention(model, x, "blocks.1.mlp.fc1")
    with pytest.raises(KeyError, match=r"close to it.*blocks.0.attn"):
        hookviz.attention(model, x)["blocks.0.atn"]
    with pytest.raises(ValueError, match=r"layers=\[\] names no layers to draw; there are: 'blo"):
        hookviz.attention(model, x).figure([])
    assert len(hookviz.attention(model, x).figure("blocks.1.attn").axes) == 3


def test_a_model_without_attention_says_that_there_is_nothing_to_show():
    maps = hookviz.attention(nn.Sequential(nn.Conv2d(3, 4, 3)), picture())
    with pytest.raises(ValueError, match="no attention found, so there is nothing to draw"):
        maps.figure()
    with pytest.raises(KeyError, match="No module 'x' attends; there are none"):
        maps["x"]


def test_patches_arranges_the_weights_of_one_query():
    model, x = tiny(), picture()
    maps = hookviz.attention(model, x)
    name, tensor = "blocks.2.attn", maps["blocks.2.attn"]
    assert maps.grid == (4, 4)
    assert torch.equal(maps.patches(name), tensor[:, :, 0, 1:].unflatten(-1, (4, 4)))
    assert torch.equal(maps.patches(name, (1, 2)), tensor[:, :, 1 + 6, 1:].unflatten(-1, (4, 4)))
    with pytest.raises(ValueError, match="is not a patch"):
        maps.patches(name, (4, 0))
    with pytest.raises(ValueError, match="is not one of the"):
        maps.patches(name, 17)


def test_records_and_figure_of_the_result():
    uniform, sharp = torch.full((1, 2, 4, 4), 0.25), torch.zeros(1, 1, 4, 4)
    sharp[..., 2] = 1
    maps = hookviz.results.Attention({"even": uniform, "one": sharp}, model="M")
    rows = maps.records()
    assert [(each["layer"], each["head"]) for each in rows] == [
        ("even", 0),
        ("even", 1),
        ("one", 0),
    ]
    assert rows[0]["entropy"] == pytest.approx(1)
    assert rows[2]["entropy"] == 0 and rows[2]["peak"] == 1
    figure = maps.figure()
    assert len(figure.axes) == 4
    assert np.array_equal(figure.axes[2].images[0].get_array(), sharp[0, 0])


def test_the_figure_shows_the_selected_query_and_sample():
    """With patches, it is a map of the query's weights; otherwise the query-key matrix."""
    weights = torch.rand(2, 1, 5, 5)
    on_patches = hookviz.results.Attention({"a": weights}, model="M", grid=(2, 2))

    def drawn(maps, **options):
        (picture,) = maps.figure(["a"], **options).axes[0].images
        return torch.from_numpy(np.asarray(picture.get_array()))

    assert torch.equal(drawn(on_patches), weights[0, 0, 0, 1:].view(2, 2))
    assert torch.equal(drawn(on_patches, query=3, sample=1), weights[1, 0, 3, 1:].view(2, 2))
    assert torch.equal(drawn(on_patches, query=(1, 0)), drawn(on_patches, query=3))
    assert torch.equal(
        drawn(hookviz.results.Attention({"a": weights}, model="M"), sample=1), weights[1, 0]
    )
    with pytest.raises(ValueError, match="sample=2 is out of range: 'a' has 2"):
        on_patches.figure(sample=2)


def test_weights_of_a_model_that_uses_autocast():
    def cast(m, x):
        with torch.autocast("cpu", torch.bfloat16):
            return m.inner(x)

    model, x = scattered(model_of(cast, inner=Block("softmax module"))), torch.randn(2, 4, 8)
    maps = hookviz.attention(model, x)
    assert list(maps) == ["inner.attn"]
    assert (maps["inner.attn"] - model.inner.attn.weights(x)).abs().max() < 2e-2


class Padded(nn.Module):
    """An encoder that torch runs on nested tensors in eval mode without gradients."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, words):
        tokens = self.encoder(self.embedding(words), src_key_padding_mask=words == 0)
        return self.head(tokens[:, 0])


@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors"
)  # of the run without hookviz
def test_every_function_runs_an_encoder_with_padding():
    model, words = scattered(Padded()), torch.tensor([[4, 8, 9, 2], [7, 5, 0, 0]])
    attention = model.encoder.layers[0].self_attn
    maps = hookviz.attention(model, words)
    names = [f"encoder.layers.{n}.self_attn" for n in (0, 1)]
    assert list(maps) == list(maps.gradients) == names
    x = model.embedding(words)
    expected = attention.train()(x, x, x, words == 0, average_attn_weights=False)[1]
    attention.eval()
    assert (maps[names[0]] - expected).abs().max() < 1e-6
    assert (maps[names[1]][1, :, :, 2:] == 0).all()
    explorer = hookviz.explore(model, words, face="plain")
    assert [name for name in explorer.cache if "heads" in name] == [f"{n}.heads" for n in names]
    with torch.no_grad():
        assert torch.allclose(explorer.displayed().run.logits, model(words), atol=1e-6)
    layers = {node["layer"] for node in hookviz.graph(model, words).records()}
    assert {f"encoder.layers.{n}.linear1" for n in (0, 1)} <= layers
    assert hookviz.diagnose(model, words).healthy
    capture = hookviz.capture(model, "encoder.layers.*")
    with torch.no_grad(), capture as cache, hookviz.diagnose(model) as findings:
        model(words)
    assert cache["encoder.layers.0.linear1"].activation.shape == (2, 4, 16)
    assert findings.healthy
    assert torch.backends.mha.get_fastpath_enabled()


class OneHead(nn.Module):
    """Attention of one head, without a dimension for heads."""

    def __init__(self, fused):
        super().__init__()
        self.qkv, self.fused = nn.Linear(8, 24), fused

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v)
        return (q @ k.mT / math.sqrt(8)).softmax(-1) @ v


@pytest.mark.parametrize("num_heads", [None, 1, 3])
@pytest.mark.parametrize("fused", [True, False])
def test_attention_without_a_head_dimension_has_one_head(fused, num_heads):
    """The batch dimension is not mistaken for heads, even if num_heads equals its size."""
    model, x = scattered(OneHead(fused)), torch.randn(3, 6, 8)
    if num_heads:
        model.num_heads = num_heads
    q, k, _ = model.qkv(x).chunk(3, -1)
    (found,) = hookviz.attention(model, x).values()
    assert found.shape == (3, 1, 6, 6)
    assert (found[:, 0] - (q @ k.mT / math.sqrt(8)).softmax(-1)).abs().max() < 1e-6


def test_a_page_names_the_query_of_its_attention():
    model, digit = hookviz.models.demo_transformer(), hookviz.models.demo_digits()[7]
    explorer = hookviz.explore(model, digit, face="plain")
    page = explorer.to_html(layers="*encoder_layer_*")
    assert "The attention in this page has one query: the class token." in page
