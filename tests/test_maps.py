"""Converting tensors of layers to maps, and statistics of the channels."""

import numpy as np
import pytest
import torch
from torch import nn

from hookviz.draw.colours import to_numpy
from hookviz.hooking.maps import as_maps
from hookviz.hooking.records import statistics
from hookviz.view.layer import channel_order, channel_statistics, layer_view


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
    ],
)
def test_as_maps_adds_or_moves_dimensions_by_the_type_of_layer(shape, module, maps):
    assert as_maps(torch.zeros(shape), module).shape == maps


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
    torch.manual_seed(0)
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
