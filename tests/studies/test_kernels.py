"""Weights of layers: kernels, norms, folded BatchNorm, and contributions to a value."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.fusion import fuse_conv_bn_eval
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.run.inputs import prepare_input
from hookviz.run.session import Session
from hookviz.studies.graph.kernels import layer_weights


def weights_of(model, x, layer="0", **options):
    return layer_weights(Session(model, prepare_input(x, model)), layer, **options)


def with_random_statistics(norm):
    """Give a BatchNorm random statistics and weights, as after training."""
    for tensor in (norm.running_mean, norm.weight, norm.bias):
        if tensor is not None:
            nn.init.normal_(tensor)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_folded_as_torch_does(bias, affine):
    conv, norm = (
        nn.Conv2d(4, 6, 3, bias=bias),
        with_random_statistics(nn.BatchNorm2d(6, affine=affine)),
    )
    model, x = nn.Sequential(conv, norm, nn.ReLU()), torch.rand(2, 4, 8, 8)
    before = snapshot(model)
    found = weights_of(model, x)
    assert_untouched(model, before)
    model.eval()
    assert torch.equal(found.kernels, conv.weight.detach().double())
    if affine:
        fused = fuse_conv_bn_eval(conv.double(), norm.double())
        torch.testing.assert_close(found.folded, fused.weight.detach())
        torch.testing.assert_close(found.folded_bias, fused.bias.detach())
    x = torch.rand(1, 4, 5, 5, dtype=torch.float64)
    made = F.conv2d(x, found.folded, found.folded_bias)
    torch.testing.assert_close(made, norm.double()(conv.double()(x)).detach())


def test_the_model_runs_no_further_than_the_batch_norm():
    ran = []
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.ReLU())
    for layer in model:
        layer.register_forward_hook(lambda module, *_: ran.append(type(module).__name__))
    found = weights_of(model, torch.rand(2, 3, 6, 6))
    assert found.scale is not None and ran == ["Conv2d", "BatchNorm2d"]
    ran.clear()
    assert weights_of(model, torch.rand(2, 3, 6, 6), "2").scale is None and len(ran) == 4


@pytest.mark.parametrize("groups", [1, 2])
def test_kernels_of_transposed_convolutions_are_ordered_by_output(groups):
    layer = nn.ConvTranspose2d(4, 6, 3, groups=groups, bias=False)
    found = weights_of(nn.Sequential(layer), torch.rand(1, 4, 5, 5))
    assert found.kernels.shape == (6, 4 // groups, 3, 3)
    x = torch.zeros(1, 4, 1, 1)
    x[0, 3] = 1  # one input channel gives its slice in each output
    made = layer(x)[0].detach().double()
    for channel in range(6):
        mine = {
            each["channel"]: torch.tensor(each["kernel"]).double() for each in found.slices(channel)
        }
        expected = mine.get(3, torch.zeros(3, 3).double())
        torch.testing.assert_close(made[channel], expected, rtol=0, atol=1e-6)


def test_parametrized_weights_are_the_computed_ones():
    layer = parametrizations.weight_norm(nn.Conv1d(3, 5, 4))
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(3)
    found = weights_of(nn.Sequential(layer), torch.rand(1, 3, 9))
    assert torch.equal(found.kernels, layer.weight.detach().double())
    found.figure()


def test_complex_kernels_are_absolute_values():
    layer = nn.Conv2d(2, 4, 3, dtype=torch.complex64)
    found = weights_of(nn.Sequential(layer), torch.rand(1, 2, 5, 5, dtype=torch.complex64))
    assert torch.equal(found.kernels, layer.weight.detach().abs().double())
    assert torch.equal(found.bias, layer.bias.detach().abs().double())
    assert found.verdict.endswith(", absolute values")


def test_records_are_sorted_by_norm():
    layer = nn.Conv2d(3, 3, 2)
    with torch.no_grad():
        for channel, size in enumerate((1.0, float("nan"), 2.0)):
            layer.weight[channel] = size
    found = weights_of(nn.Sequential(layer), torch.rand(1, 3, 4, 4), channel=0)
    records = found.records()
    assert [each["channel"] for each in records] == [1, 2, 0]
    assert records[1]["norm"] == pytest.approx(2 * 12**0.5) and records[0]["norm"] is None
    assert records[2]["folded_norm"] is None and records[2]["bias"] == layer.bias[0].item()
    found.figure()


def test_wrong_layers_and_channels_are_refused():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), torch.rand(1, 3, 4, 4)
    with pytest.raises(ValueError, match=r"Layer '1' \(ReLU\) has no kernels: name a convolution"):
        weights_of(model, x, "1")
    with pytest.raises(ValueError, match="has no channel 4: there are 4, counted from 0"):
        weights_of(model, x, channel=4)
    with pytest.raises(ValueError, match="has no channel None"):
        weights_of(model, x).slices()


@pytest.fixture(scope="module")
def explorer():
    explorer = hookviz.explore(hookviz.demo_model(), hookviz.demo_images()[6])
    yield explorer
    explorer.close()


def test_kernels_of_the_first_layer_are_drawn_in_colour(explorer, tmp_path):
    found = explorer.weights("stem.0", channel=2)
    assert found.in_colour and "BatchNorm" in found.verdict
    (axes,) = found.figure().axes
    picture = axes.images[0].get_array()
    assert picture.shape[2] == 3 and axes.get_title().startswith("kernels by norm")
    # Red, green and blue of a tile are the weights; zero is the middle of the scale.
    kernel, most = found.kernels[found.order[0]], found.kernels.abs().max()
    times, side = _pixels_per_weight(picture), kernel.shape[1]
    tile = torch.as_tensor(picture[: side * times : times, : side * times : times])
    torch.testing.assert_close(
        tile.double(), (0.5 + kernel / most / 2).permute(1, 2, 0), rtol=0, atol=0.01
    )
    found.to_html(tmp_path / "weights.html")
    page = (tmp_path / "weights.html").read_text(encoding="utf-8")
    assert "stem.0" in page and "data:image/png" in page and "<script" not in page


def _pixels_per_weight(picture):
    """Return how many equal pixels in a row draw one weight."""
    row = picture[0]
    return next(n for n in range(1, len(row)) if (row[n] != row[0]).any())


def test_slices_are_sorted_by_their_contribution_at_a_position(explorer):
    layer = "layer3.1.conv2"
    found = explorer.weights(layer, channel=17, position=(5, 8))
    model, image = hookviz.demo_model(), hookviz.demo_images()[6]
    why = hookviz.contributions(model, image, layer, channel=17, position=(5, 8))
    slices = found.slices()
    assert [each["channel"] for each in slices] == [each["channel"] for each in why.records()]
    terms = [each["contribution"] for each in slices]
    assert terms == [each["contribution"] for each in why.records()]
    assert sum(terms) + why.bias == pytest.approx(why.value, abs=1e-5)
    by_norm = explorer.weights(layer, channel=17).slices()
    norms = [each["norm"] for each in by_norm]
    assert norms == sorted(norms, reverse=True) and by_norm[0]["contribution"] is None
    assert found.figure().axes[0].get_title() == "channel 17: slices by contribution at (5, 8)"


def test_rows_of_the_last_linear_layer_have_class_names(explorer):
    name = next(n for n, m in hookviz.demo_model().named_modules() if isinstance(m, nn.Linear))
    found = explorer.weights(name, channel=1)
    assert found.class_names and found.records()[0]["name"] in found.class_names
    axes = found.figure().axes[0]
    assert found.class_names[1] in axes.get_title()
    widths = [bar.get_width() for bar in axes.patches][::-1]
    assert widths == [each["kernel"] for each in found.slices()][: len(widths)]
    assert abs(widths[0]) == pytest.approx(found.kernels[1].abs().max().item())


def test_the_default_is_the_shown_layer_and_channel(explorer):
    explorer.layer, explorer.channel = "layer2.0.conv1", 3
    found = explorer.weights()
    assert (found.layer, found.channel) == ("layer2.0.conv1", 3)


def test_contributions_at_a_position_need_one_more_run(explorer):
    """All positions use one cached forward; only finding the following BatchNorm runs the model."""
    explorer.contributions("layer3.1.conv2", channel=17, position=(5, 8))
    ran = []
    model = explorer.displayed().session.given
    handle = model.register_forward_pre_hook(lambda *given: ran.append(given))
    plain = explorer.weights("layer3.1.conv2", channel=17)
    once = len(ran)
    found = explorer.weights("layer3.1.conv2", channel=17, position=(2, 3))
    handle.remove()
    assert len(ran) == 2 * once
    assert plain.contributions is None
    why = explorer.contributions("layer3.1.conv2", channel=17, position=(2, 3))
    assert torch.equal(found.contributions, why.by_channel)
