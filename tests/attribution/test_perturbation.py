"""Score-CAM, Ablation-CAM and occlusion against computations by hand and other libraries."""

import math
from contextlib import contextmanager

import pytest
import torch
from architectures import model_of
from torch import nn
from torch.nn import functional

from hookviz.attribution.perturbation import ablationcam, occlusion, scorecam

METHODS = [scorecam, ablationcam]
CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
POOL = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}


def small_net(spatial=2):
    """Two convolutions, each followed by an in-place ReLU."""
    torch.manual_seed(spatial)
    convolution = CONVOLUTION[spatial]
    return nn.Sequential(
        convolution(2, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        convolution(4, 5, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        POOL[spatial](2),
        nn.Flatten(),
        nn.Linear(5 * 2**spatial, 3),
    ).double()


def small_batch(spatial=2):
    torch.manual_seed(7)
    return torch.randn(2, 2, *(8, 6, 5)[:spatial], dtype=torch.float64)


# By hand


class ByHand(nn.Module):
    """Channels x and 4 - x; the score is 3 times the mean of the first plus that of the second."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1, 1))
            self.conv.bias.copy_(torch.tensor([0.0, 4.0]))

    def forward(self, x):
        one, other = self.conv(x).mean((2, 3)).unbind(1)
        return torch.stack([3 * one + other, -3 * one - other], 1)


X = torch.tensor([[[[0.0, 2.0], [2.0, 4.0]]]])


def test_ablationcam_by_hand():
    # Both means are 2, so the score is 8. Without x it is 2, without 4 - x it is 6.
    expected = 6 / 8 * X[0] + 2 / 8 * (4 - X[0])
    torch.testing.assert_close(ablationcam(ByHand(), X, "conv"), expected)
    # The other class scores -8: both channels lower it.
    assert ablationcam(ByHand(), X, "conv", 1).count_nonzero() == 0


def test_scorecam_by_hand():
    # x * x/4 has mean 1.5, x * (4-x)/4 has mean 0.5; a picture of mean p scores 4 + 2p.
    first = math.exp(7) / (math.exp(7) + math.exp(5))
    expected = first * X[0] + (1 - first) * (4 - X[0])
    torch.testing.assert_close(scorecam(ByHand(), X, "conv"), expected)


def test_occlusion_by_hand():
    # With mean p the score is 4 + 2 p; covering a pixel lowers the mean by a quarter of its value.
    torch.testing.assert_close(occlusion(ByHand(), X, window=1, stride=1), X[0] / 2)
    torch.testing.assert_close(occlusion(ByHand(), X, window=2), torch.full((1, 2, 2), 4.0))
    with pytest.raises(ValueError, match="window=0 cannot be used: give a whole number"):
        occlusion(ByHand(), X, window=0, stride=1)
    with pytest.raises(ValueError, match=r"shape \(2, 4\) has none: use hookviz.attribute"):
        occlusion(torch.nn.Linear(4, 3), torch.rand(2, 4))


@pytest.mark.parametrize(("window", "stride"), [(3, 2), (4, 4), (None, None), (9, 1)])
def test_occlusion_equals_captum(window, stride):
    occlusions = pytest.importorskip("captum.attr").Occlusion
    model, x = small_net(), small_batch()
    found = occlusion(model, x, 2, window=window, stride=stride, value=0.25)
    side, step = window or 1, stride or 1
    size = tuple(min(side, each) for each in x.shape[2:])
    wanted = occlusions(model.eval()).attribute(
        x, (2, *size), (2, step, step), baselines=0.25, target=2
    )
    torch.testing.assert_close(found.float(), wanted[:, 0])  # captum rounds drops to float32


# Against a slow loop that replaces forward methods and uses no hooks


@contextmanager
def output_changed(module, change):
    forward = module.forward
    module.forward = lambda x: change(forward(x))
    try:
        yield
    finally:
        del module.forward


@torch.no_grad()
def slowly(method, model, x, layer, classes):
    module, maps = model.get_submodule(layer), []
    for sample, wanted in zip(x.split(1), classes, strict=True):
        seen = []
        with output_changed(module, lambda out, seen=seen: seen.append(out.clone()) or out):
            whole = model(sample.clone())[0, wanted]
        activation, scores = seen[-1][0], []
        for channel in range(len(activation)):
            if method is ablationcam:

                def ablate(out, channel=channel):
                    out = out.clone()
                    out[:, channel] = 0
                    return out

                with output_changed(module, ablate):
                    scores.append(model(sample.clone())[0, wanted])
            else:
                mode = ("linear", "bilinear", "trilinear")[x.ndim - 3]
                mask = activation[None, None, channel]
                mask = functional.interpolate(mask, x.shape[2:], mode=mode)
                mask = (mask - mask.min()) / ((mask.max() - mask.min()) or 1)
                scores.append(model(sample * mask)[0, wanted])
        weights = torch.stack(scores) - whole
        weights = weights.softmax(0) if method is scorecam else -weights / whole.abs()
        maps.append(sum(w * a for w, a in zip(weights, activation, strict=True)).clamp(min=0))
    return torch.stack(maps)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer", ["0", "3"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_maps_equal_those_of_a_slow_loop(method, layer, spatial):
    model, x = small_net(spatial), small_batch(spatial)
    tops = model.eval()(x.clone()).argmax(1).tolist()
    model.train()
    found = method(model, x, layer, batch_size=3)
    assert found.dtype == torch.float64
    assert found.count_nonzero()
    model.eval()
    torch.testing.assert_close(found, slowly(method, model, x, layer, tops))
    torch.testing.assert_close(method(model, x, layer, 1), slowly(method, model, x, layer, [1, 1]))


# Targets, layers and inputs


@pytest.mark.parametrize("method", METHODS)
def test_targets_may_be_numbers_names_functions_or_lists(method):
    model, x = small_net().eval(), small_batch()
    model.class_names = ["ant", "bee", "cat"]
    each = [method(model, x, "0", number) for number in range(3)]
    assert not torch.allclose(each[0], each[2])
    names = {"class_names": ["x", "y", "z"]}
    for target, number, options in (("z", 2, names), (lambda out: float(out[0, 2]), 2, {})):
        torch.testing.assert_close(method(model, x, "0", target, **options), each[number])
    top = model(x.clone()).argmax(1)[1]
    listed = method(model, x, model[0], ["bee", None])
    torch.testing.assert_close(listed, torch.stack([each[1][0], each[top][1]]))
    contrast = method(model, x, "0", lambda out: out[0, 0] - out[0, 1])
    torch.testing.assert_close(method(model, x, "0", (0, 1)), contrast)


@pytest.mark.parametrize("method", METHODS)
def test_a_function_as_target_gets_one_picture_at_a_time(method):
    shapes = set()

    def score(output):
        shapes.add(output["out"].shape)
        return output["out"][0, 1].sum()

    found = method(
        model_of(lambda m, x: {"out": m.conv(x), "aux": None}, conv=nn.Conv2d(2, 3, 3)),
        small_batch().float(),
        "conv",
        score,
    )
    assert found.shape == (2, 6, 4)
    assert shapes == {(1, 3, 6, 4)}


def test_ablationcam_switches_channels_off_in_the_last_call_only():
    model, x = (
        model_of(lambda m, x: m.conv(m.conv(x)).mean((2, 3)), conv=nn.Conv2d(2, 2, 1)),
        small_batch().float(),
    )
    with torch.no_grad():
        first, _ = model.conv(model.conv(x)).unbind(1)
    # The score is the mean of the first channel, to which the second one contributes nothing.
    sign = first.mean((1, 2), keepdim=True).sign()
    torch.testing.assert_close(ablationcam(model, x, "conv", 0), (sign * first).relu())


@pytest.mark.parametrize(("less", "divisor"), [(20, 12), (8, 1)])
def test_ablationcam_divides_by_the_absolute_score_unless_it_is_zero(less, divisor):
    # The score is 8 minus this number; the drops are those of the test by hand.
    found = ablationcam(ByHand(), X, "conv", lambda out: out[0, 0] - less)
    torch.testing.assert_close(found, 6 / divisor * X[0] + 2 / divisor * (4 - X[0]))


def test_a_constant_channel_gives_a_mask_of_zeros():
    conv = nn.Conv2d(1, 2, 1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, 0.0]).view(2, 1, 1, 1))
        conv.bias.copy_(torch.tensor([0.0, 0.1]))  # 0.1 and its interpolations are rounded
    model = nn.Sequential(nn.AvgPool2d(3), conv, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.rand(1, 1, 21, 21)
    found = scorecam(model, x, "1", 0)
    activation = conv(nn.AvgPool2d(3)(x))[0]
    mask = functional.interpolate(activation[:1, None], (21, 21), mode="bilinear")
    mask = (mask - mask.min()) / (mask.max() - mask.min())
    weights = torch.stack([model(x * mask)[0, 0], model(x * 0)[0, 0]]).softmax(0)
    torch.testing.assert_close(found[0], (weights.view(2, 1, 1) * activation).sum(0).detach())


class Tokens(nn.Module):
    """The patches of a picture after a class token."""

    def __init__(self, channels):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.norm = nn.Conv2d(2, channels, 2, stride=2), nn.LayerNorm(channels)
        self.norm.bias.data += 3  # the class token's values matter too

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        return self.norm(torch.cat([tokens.mean(1, keepdim=True), tokens], 1)).sum(1)


@pytest.mark.parametrize("method", METHODS)
def test_patch_tokens_are_treated_as_maps(method):
    model, x = Tokens(6), torch.rand(2, 2, 8, 6)
    found = method(model, x, "norm")
    assert found.shape == (2, 4, 3)


def test_ablation_leaves_the_class_token_unchanged():
    model, x = Tokens(2), torch.rand(1, 2, 4, 4)
    tokens = model.patches(x).flatten(2).mT
    maps = model.norm(tokens).mT.unflatten(2, (2, 2))[0].detach()
    expected = (maps[0] * maps[0].sum() / model(x)[0, 0]).relu().detach()
    torch.testing.assert_close(ablationcam(model, x, "norm", 0)[0], expected)


@pytest.mark.parametrize("method", METHODS)
def test_several_inputs_and_half_precision_are_supported(method):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)

        def forward(self, x, bias, scale=1.0):
            return self.conv(x).relu_().mean((2, 3)) * scale + bias

    x, bias = small_batch().float(), torch.tensor([[0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    model = Two()
    found = method(model, (x, bias), "conv")
    for number in range(2):
        alone = method(model, (x[number, None], bias[number, None]), "conv")
        torch.testing.assert_close(found[number], alone[0])
    named = method(model, {"x": x, "bias": bias, "scale": 1.0}, "conv")
    torch.testing.assert_close(named, found)
    half = method(model.bfloat16(), (x.bfloat16(), bias.bfloat16()), "conv")
    assert half.dtype == torch.float32
    assert half.isfinite().all()


class Streams(nn.Module):
    """A picture, its flow and a pose, each with a layer."""

    def __init__(self):
        super().__init__()
        self.rgb, self.flow = nn.Conv2d(3, 4, 3), nn.Conv2d(2, 4, 3)
        self.pose = nn.Linear(5, 36)

    def forward(self, image, flow, pose):
        pose = self.pose(pose).view(-1, 4, 3, 3)
        maps = (self.rgb(image), self.flow(flow), pose)
        return sum(each.relu().mean((2, 3)) for each in maps)


def test_scorecam_masks_the_input_that_the_layer_sees():
    model = Streams()
    image, flow, pose = torch.rand(2, 3, 9, 9), torch.rand(2, 2, 7, 8), torch.rand(2, 5)

    class FlowAlone(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = model.flow

        def forward(self, flow):
            rows = [0] * len(flow)
            return model(image[rows], flow, pose[rows])

    expected = scorecam(FlowAlone(), flow[:1], "flow", 1)
    found = scorecam(model, {"image": image, "flow": flow, "pose": pose}, "flow", 1)
    torch.testing.assert_close(found[:1], expected)
    torch.testing.assert_close(scorecam(model, (image, flow, pose), "flow", 1), found)
    assert scorecam(nn.DataParallel(model), (image, flow, pose), model.rgb, 1).shape == (2, 7, 7)


def test_scorecam_refuses_a_layer_that_sees_no_picture():
    given = torch.rand(1, 3, 9, 9), torch.rand(1, 2, 9, 9), torch.rand(1, 5)
    with pytest.raises(ValueError, match="'pose' depends on no input picture .* or ablationcam"):
        scorecam(Streams(), given, "pose", 1)


@pytest.mark.parametrize("method", METHODS)
def test_maps_made_in_inference_mode_are_plain_tensors(method):
    model, x = small_net().float(), small_batch().float()
    with torch.inference_mode():
        found = method(model, x, "2")
    assert not found.requires_grad and not found.is_inference()
    torch.testing.assert_close(method(model, x, model[2]), found)


# Errors


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": "conv9"}, "No layer of Sequential is called 'conv9'"),
        ({"layer": "[02]"}, "names 2 layers: name one"),
        ({"target": 3}, "classes are 0 to 2"),
        ({"target": lambda out: out}, "returned shape"),
        ({"target": lambda out: "much"}, "'much', not one number"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"image": [torch.rand(2, 8, 6)]}, "no floating-point tensor"),
    ],
)
def test_errors_are_one_clear_sentence(method, arguments, message):
    given = {"image": small_batch().float(), "layer": "0", **arguments}
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        method(small_net().float(), given.pop("image"), given.pop("layer"), **given)


@pytest.mark.parametrize("method", METHODS)
def test_models_without_class_scores_or_layers_that_do_not_run_are_refused(method):
    x = small_batch().float()
    with pytest.raises(ValueError, match="needs class scores"):
        method(nn.Sequential(nn.Conv2d(2, 3, 3)), x, "0")
    model = small_net().float()
    model.unused = nn.Identity()
    model.forward = lambda x: nn.Sequential.forward(model[:8], x)
    with pytest.raises(ValueError, match="'unused' did not run"):
        method(model, x, "unused")


def test_scorecam_needs_maps_and_ablationcam_needs_a_tensor():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.fc = Pair(), nn.Linear(2, 3)

        def forward(self, x):
            return self.fc(self.pair(x)[0].mean((2, 3)))

    x = small_batch().float()
    assert scorecam(Net(), x, "pair").shape == (2, 8, 6)
    with pytest.raises(ValueError, match="'pair' does not return a tensor"):
        ablationcam(Net(), x, "pair")
    with pytest.raises(ValueError, match="'7' gives maps in 1d"):
        scorecam(small_net().float(), x, "7")
    assert ablationcam(small_net().float(), x, "7").shape == (2, 1)
