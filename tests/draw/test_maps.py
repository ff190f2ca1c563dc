"""Converting tensors of layers to maps, and statistics of the channels."""

import numpy as np
import pytest
import torch
import torchvision
from architectures import model_of
from torch import nn

import hookviz
from hookviz.draw.colours import to_numpy
from hookviz.hooking.maps import as_maps
from hookviz.hooking.records import statistics
from hookviz.view.layer import channel_order, channel_statistics, layer_view
from hookviz.view.payload import layer_payload


@pytest.mark.parametrize(
    ("shape", "module", "maps"),
    [
        ((2, 8, 5, 5), nn.Conv2d(3, 8, 3), (2, 8, 5, 5)),
        ((8, 5, 5), nn.Conv2d(3, 8, 3), (1, 8, 5, 5)),
        ((8, 9), nn.Conv1d(3, 8, 3), (1, 8, 9)),
        ((2, 8, 9), nn.Conv1d(3, 8, 3), (2, 8, 9)),
        ((8, 4, 5, 6), nn.ConvTranspose3d(3, 8, 3), (1, 8, 4, 5, 6)),
        ((2, 8, 4, 5, 6), nn.Conv3d(3, 8, 3), (2, 8, 4, 5, 6)),
        ((2, 10), nn.Linear(3, 10), (2, 10, 1)),
        ((2, 4, 5, 10), nn.Linear(3, 10), (2, 10, 4, 5)),
        ((2, 4, 5, 6, 10), nn.LayerNorm(10), (2, 10, 4, 5, 6)),  # the shape of a video transformer
        ((2, 7, 10), nn.Linear(3, 10), (2, 10, 7)),
        ((2, 7, 10), nn.Embedding(50, 10), (2, 10, 7)),
        ((2, 7, 10), nn.LSTM(3, 10, batch_first=True), (2, 10, 7)),
        ((2, 7, 10), nn.GRU(3, 5, batch_first=True, bidirectional=True), (2, 10, 7)),
        ((2, 7, 4), nn.LSTM(3, 10, batch_first=True, proj_size=4), (2, 4, 7)),
        ((2, 7, 8), nn.MultiheadAttention(8, 2, batch_first=True), (2, 8, 7)),
    ],
)
def test_as_maps_adds_or_moves_dimensions_by_the_type_of_layer(shape, module, maps):
    assert as_maps(torch.zeros(shape), module).shape == maps


class TextTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
        self.embedding, self.encoder = nn.Embedding(50, 16), nn.TransformerEncoder(layer, 2)

    def forward(self, words):
        return self.encoder(self.embedding(words)).mean(1)


@pytest.mark.parametrize("tokens", [5, 7, 9, 16, 17, 30])
def test_the_tokens_of_a_text_stay_a_sequence_and_none_is_left_out(tokens):
    """A count may well be a square, or a square and one token: no picture was cut here."""
    layers = [
        "embedding",
        "encoder.layers.1",
        "encoder.layers.0.dropout",
        "encoder.layers.1.linear1",
    ]
    model, words = TextTransformer().eval(), torch.randint(0, 50, (2, tokens))
    with hookviz.capture(model, layers) as cache:
        model(words)
    for name in layers:
        call = cache[name].last
        maps = layer_view(call.activation, None, call.module, 1, grid=call.grid).maps
        assert (maps[:, 0] == call.activation[1].mT.numpy()).all(), name
    explorer = hookviz.explore(model, words[:1], layers=layers, layer="encoder.layers.1")
    assert layer_payload(explorer.displayed())[0].extent == "whole layer"


def cut_without_convolution(m, x):
    """A vision transformer that cuts its patches by reshaping."""
    rows, columns = x.shape[2] // 4, x.shape[3] // 4
    cut = x.unflatten(3, (columns, 4)).unflatten(2, (rows, 4))
    patches = m.embed(cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))
    return m.drop(torch.cat([m.start.expand(len(x), -1, -1), patches], 1)).mean(1)


def test_patches_that_are_cut_without_a_convolution_are_arranged_as_in_the_picture():
    model = model_of(
        cut_without_convolution,
        embed=nn.Linear(48, 12),
        start=nn.Parameter(torch.zeros(1, 1, 12)),
        drop=nn.Dropout(),
    ).eval()
    with hookviz.capture(model, ["embed", "drop"]) as cache:
        model(torch.rand(2, 3, 24, 16))
    for name in cache:
        call = cache[name].last
        maps = as_maps(call.activation, call.module, call.grid)
        assert torch.equal(maps, call.activation[:, -24:].unflatten(1, (6, 4)).movedim(-1, 1))


def test_tokens_of_a_convolution_lie_as_its_positions_and_other_tokens_do_not():
    def detector(m, x):
        tokens = m.norm(m.stem(x).flatten(2).mT)
        return m.head(m.queries + tokens.mean(1, keepdim=True))

    model = model_of(
        detector,
        stem=nn.Conv2d(3, 8, 3, 2, 1),
        norm=nn.LayerNorm(8),
        queries=nn.Parameter(torch.rand(1, 9, 8)),
        head=nn.Linear(8, 5),
    ).eval()
    with hookviz.capture(model, ["norm", "head"]) as cache:
        model(torch.rand(1, 3, 12, 20))
    assert cache["norm"].last.grid == (6, 10)
    call = cache["head"].last  # nine queries, not 3×3 patches
    assert as_maps(call.activation, call.module, call.grid).shape == (1, 5, 9)


def test_the_numbers_of_a_layer_name_the_tokens_that_the_maps_leave_out():
    model = torchvision.models.VisionTransformer(64, 16, 1, 2, 16, 32, num_classes=5)
    explorer = hookviz.explore(model, torch.rand(1, 3, 64, 64), layers="*", layer="encoder.ln")
    header, _ = layer_payload(explorer.displayed())
    assert header.extent == "all patches, without 1 token"


def test_tensors_that_cannot_be_maps_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\) cannot be shown as maps"):
        as_maps(torch.zeros(3))
    with pytest.raises(ValueError, match="empty"):
        layer_view(torch.zeros(0, 3, 4, 4), None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_to_numpy_converts_every_dtype(dtype):
    assert to_numpy(torch.ones(2, dtype=dtype)).tolist() == [1.0, 1.0]


def test_the_view_of_a_volume_is_one_slice_of_one_sample():
    activation = torch.arange(2 * 3 * 4 * 5 * 6.0).view(2, 3, 4, 5, 6)
    view = layer_view(activation, -activation, nn.Conv3d(1, 3, 1), sample=1, depth=2)
    assert (view.maps == activation[1, :, 2].numpy()).all()
    assert (view.gradients == -activation[1, :, 2].numpy()).all()
    assert (view.samples, view.depths) == (2, 4)
    assert layer_view(activation, None, None, 9, 9).maps[0, 0, 0] == activation[1, 0, 3, 0, 0]


def test_channel_statistics_agree_with_the_tensors():
    tensor = torch.randn(5, 6, 7).relu()
    tensor[1] = 0
    tensor[2, 0, 0] = torch.nan
    tensor[3, 0, :2] = torch.tensor([torch.inf, -torch.inf])
    tensor[4] = torch.nan
    got = channel_statistics(tensor.numpy())
    for channel in range(5):
        exact = statistics(tensor[channel])
        for name in ("min", "max", "mean", "zeros", "nans", "infs", "norm"):
            value, wanted = getattr(got, name)[channel], getattr(exact, name)
            if channel == 4 and name == "norm":
                continue  # without finite values the norm is 0 here and NaN there
            assert value == pytest.approx(wanted, rel=1e-5, nan_ok=True), (channel, name)
    assert got.constant.tolist() == [False, True, False, False, False]
    assert got.silent.tolist() == got.constant.tolist() and got.still == "1 silent"
    one = channel_statistics(np.array([[[2.0]], [[0.0]], [[np.nan]]]))
    assert one.constant.tolist() == one.silent.tolist() == [False, True, False]
    assert one.still == "1 silent"


def test_channels_are_sorted_by_every_order():
    activation = torch.tensor([[[0.0, 4.0], [1.0, 2.0], [0.0, 0.0], [torch.nan, torch.nan]]])
    gradient = torch.tensor([[[0.0, 1.0], [0.0, 3.0], [2.0, 0.0], [0.0, 0.0]]])
    view = layer_view(activation, gradient)
    expected = {
        "index": [0, 1, 2, 3],
        "mean": [0, 1, 2, 3],
        "max": [0, 1, 2, 3],
        "zeros": [2, 0, 1, 3],
        "gradient": [1, 2, 0, 3],
    }
    for order, channels in expected.items():
        assert channel_order(view, order).tolist() == channels, order
    assert channel_order(layer_view(activation, None), "gradient").tolist() == [0, 1, 2, 3]


def test_statistics_of_values_near_the_largest_stay_finite():
    gradient = torch.full((1, 2, 3, 3), 1e300, dtype=torch.float64)
    gradient[0, 1] = -5e299
    view = layer_view(torch.ones(1, 2, 3, 3, dtype=torch.float64), gradient)
    assert view.weights.dtype == np.float64
    assert view.weights.tolist() == pytest.approx([1e300, -5e299])
    assert view.gradient_statistics.norm.tolist() == pytest.approx([3e300, 1.5e300])
    half = layer_view(torch.ones(1, 2, 3, 3), torch.full((1, 2, 3, 3), 6e4).half())
    assert half.weights.tolist() == pytest.approx([6e4, 6e4], rel=1e-3)
