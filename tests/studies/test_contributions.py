"""Contributions: bias and products agree with autograd, whatever pads or crops the input."""

import itertools
import warnings

import pytest
import torch
from architectures import MODELS, QUICK, built, model_of
from heavy import heavy_but
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from untouched import assert_untouched, snapshot

import hookviz

KINDS = {
    1: (nn.Conv1d, nn.ConvTranspose1d),
    2: (nn.Conv2d, nn.ConvTranspose2d),
    3: (nn.Conv3d, nn.ConvTranspose3d),
}


def check_terms(why, layer, given, index):
    """Compare terms with gradient times input; return the value and its gradient by the weights."""
    given = given.clone().requires_grad_()
    value = layer(given)[index]
    slope, by_weight = torch.autograd.grad(value, (given, *layer.parameters()))[:2]
    terms = (slope * given).detach()[index[0]]
    last = isinstance(layer, nn.Linear)
    by_channel = terms.view(-1, terms.shape[-1]).sum(0) if last else terms.flatten(1).sum(1)
    close = {"rtol": 1e-9, "atol": 1e-11 * (1 + why.products.abs().sum().item())}
    torch.testing.assert_close(why.by_channel, by_channel, **close)
    torch.testing.assert_close(why.bias + why.products.sum().item(), why.value, **close)
    assert why.remainder == why.value - (why.bias + float(why.products.sum()))
    assert torch.equal(why.products, why.kernel * why.patch)
    return value.item(), by_weight


def check_against_autograd(layer, x, channel, position, sample=0):
    """Compare a layer's value and terms with autograd's."""
    model, x = nn.Sequential(layer, nn.ReLU()).double().eval(), x.double()
    why = hookviz.contributions(model, x, "0", channel=channel, position=position, sample=sample)
    inner = (*position, channel) if isinstance(layer, nn.Linear) else (channel, *position)
    value, _ = check_terms(why, layer, x, (sample, *inner))
    assert why.value == value
    return why


@pytest.mark.parametrize("dimensions", KINDS)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_terms_of_every_convolution_equal_gradient_times_input(dimensions, groups, transposed):
    torch.manual_seed(0)
    kind = KINDS[dimensions][transposed]
    x = torch.randn(2, 4, *(7, 6, 5)[:dimensions])
    for stride, padding, dilation in itertools.product((1, 2), (0, 2), (1, 2)):
        options = {"output_padding": stride - 1} if transposed and stride > 1 else {}
        layer = kind(4, 8, 2, stride, padding, dilation=dilation, groups=groups, **options)
        size = layer.double()(x.double()).shape[2:]
        for position in (tuple(n - 1 for n in size), (0,) * dimensions):
            why = check_against_autograd(layer, x, 5, position, sample=1)
        own = {0, 1, 2, 3} if groups == 1 else {2, 3} if groups == 2 else {2}
        others = [n for n in range(4) if n not in own]
        assert not why.kernel[others].any()


@pytest.mark.parametrize("name", heavy_but(QUICK, MODELS))
def test_terms_in_torchvision_models_equal_gradient_times_input_and_weight(name):
    model, x = built(name)
    runs = {}  # the input and output of each layer in its last call
    for layer, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(
                lambda module, args, output, layer=layer: runs.update(
                    {layer: (args[0].clone(), output.clone())}
                )
            )
    with torch.no_grad():
        model(x)
    hookviz.remove_hooks(model)
    for layer in list(runs)[:: -(-len(runs) // 6)]:  # six of them, evenly spaced
        module, (given, output) = model.get_submodule(layer), runs[layer]
        _, *sizes = output.movedim(-1, 1).shape if isinstance(module, nn.Linear) else output.shape
        channel, *position = (int(torch.randint(size, ())) for size in sizes)
        where = {"channel": channel, "position": position}
        why = hookviz.contributions(model, x, layer, sample=1, **where)
        inner = (*position, channel) if isinstance(module, nn.Linear) else (channel, *position)
        value, by_weight = check_terms(why, module, given, (1, *inner))
        # hookviz disables torch's fast path for attention, which adds up in another order.
        assert why.value == pytest.approx(value, rel=1e-9)
        groups = getattr(module, "groups", 1)
        group = channel * groups // sizes[0]
        first, *others = why.products.chunk(groups)[group:] + why.products.chunk(groups)[:group]
        torch.testing.assert_close(first, (by_weight * module.weight)[channel].detach())
        assert not any(each.any() for each in others)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", 2])
def test_padding_of_every_kind_is_part_of_the_input(mode, padding):
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 4, (4, 3), padding=padding, padding_mode=mode, dilation=(1, 2))
    x = torch.randn(1, 3, 9, 8)
    for position in ((0, 0), (4, 5), tuple(n - 1 for n in layer(x).shape[2:])):
        check_against_autograd(layer, x, 2, position)


class SamePadded(nn.Conv2d):
    """Pads as TensorFlow does: in its forward, with more padding at the end."""

    def forward(self, x):
        pads = []
        for axis in (1, 0):
            size, stride = x.shape[axis + 2], self.stride[axis]
            more = max((-(-size // stride) - 1) * stride + self.kernel_size[axis] - size, 0)
            pads += [more // 2, more - more // 2]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride, 0)


class Causal(nn.Conv1d):
    """Crops the end of a symmetrically padded output."""

    def forward(self, x):
        return super().forward(x)[..., : -self.padding[0]]


def test_layers_whose_own_code_pads_or_crops():
    check_against_autograd(SamePadded(3, 4, 3, stride=2), torch.randn(1, 3, 8, 8), 1, (3, 3))
    check_against_autograd(Causal(3, 4, 3, padding=2), torch.randn(2, 3, 8), 1, (6,), sample=1)


def test_terms_of_parametrized_weights():
    layer = parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    check_against_autograd(layer, torch.randn(1, 3, 6, 6), 3, (1, 2))
    check_against_autograd(
        parametrizations.spectral_norm(nn.Linear(5, 3)), torch.randn(2, 5), 2, (), sample=1
    )


def test_terms_of_linear_layers_with_and_without_bias():
    check_against_autograd(nn.Linear(5, 3), torch.randn(2, 5), 1, (), sample=1)
    check_against_autograd(nn.Linear(5, 3, bias=False), torch.randn(2, 7, 5), 1, (6,), sample=1)


def test_an_input_without_a_batch_dimension():
    layer = nn.Conv2d(2, 3, 3)
    x = torch.randn(2, 6, 6)
    why = hookviz.contributions(layer, x, layer, channel=1, position=(2, 3))
    assert why.value == pytest.approx(layer(x[None])[0, 1, 2, 3].item(), rel=1e-5)


def residual(m, x):
    y = m.one(x)
    z = F.relu_(m.norm(y))
    return m.two(torch.cat([x, z], 1))


def test_the_value_is_followed_through_norm_and_activation():
    model, x = (
        model_of(
            residual, one=nn.Conv2d(2, 2, 1), norm=nn.BatchNorm2d(2), two=nn.Conv2d(4, 2, 1)
        ).eval(),
        torch.randn(1, 2, 4, 4),
    )
    nn.init.constant_(model.norm.bias, -10)
    before = snapshot(model)
    why = hookviz.contributions(model, x, "one", channel=1, position=(2, 3))
    assert_untouched(model, before)
    normed = model.norm(model.one(x))[0, 1, 2, 3].item()
    assert why.after == [("batch_norm", normed), ("relu", 0)] and normed < 0
    two = hookviz.contributions(model, x, "two", channel=0, position=(0, 0))
    assert two.sources == [("input", 0), ("one", 0)]
    assert two.after == []


def test_one_of_several_calls_can_be_selected():
    layer = nn.Conv2d(2, 2, 1)
    model, x = nn.Sequential(layer, nn.Tanh(), layer), torch.randn(1, 2, 3, 3)
    first, last = (
        hookviz.contributions(model, x, layer, channel=0, position=(1, 1), call=call)
        for call in (0, -1)
    )
    assert first.value == layer(x)[0, 0, 1, 1].item()
    assert last.value == model(x)[0, 0, 1, 1].item()
    assert (first.call, last.call, last.sources) == (0, 1, [("0", 0)])


class Squared(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) ** 2


class Rectified(nn.Conv2d):
    def forward(self, x):
        return super().forward(x).relu_()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(2), "is neither a convolution nor a linear layer"),
        (Squared(2, 2, 1), "does more than a convolution"),
        (Rectified(2, 2, 1), "overwrites what its convolution made"),
    ],
)
def test_layers_other_than_plain_convolutions_are_refused(layer, message):
    model = nn.Sequential(layer)
    with pytest.raises(ValueError, match=message):
        hookviz.contributions(model, torch.randn(1, 2, 3, 3), "0", channel=0, position=(1, 1))


def test_wrong_arguments_are_refused():
    model, x = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)), torch.randn(1, 2, 3, 3)
    for options, message in [
        ({"channel": 2, "position": (0, 0)}, "has no channel 2"),
        ({"channel": "a", "position": (0, 0)}, "has no channel 'a': give a whole number"),
        ({"channel": 0, "position": (1.5, 0)}, "has no position 1.5: give a whole number"),
        ({"channel": 0, "position": (0, 3)}, "has no position 3"),
        ({"channel": 0, "position": (0, 0), "sample": 1}, "has no sample 1"),
        ({"channel": 0, "position": (0,)}, "is none of its map"),
        ({"channel": 0, "position": (0, 0, 0)}, "is none of its map"),
        ({"channel": True, "position": (0, 0)}, "has no channel True: give a whole number"),
        ({"channel": 0, "position": 3}, "has no position 3: give a tuple"),
        ({"channel": 0}, r"has 3 × 3 positions: pass position=\(row, column\)"),
        ({"channel": 0, "position": (0, 0), "call": 1}, "ran 1 time: call=1 is out of range"),
    ]:
        with pytest.raises(ValueError, match=message):
            hookviz.contributions(model, x, "0", **options)
    with pytest.raises(ValueError, match="names 2 layers"):
        hookviz.contributions(model, x, "?", channel=0, position=(0, 0))


def test_a_value_is_found_by_the_numbers_of_torch():
    model, x = nn.Sequential(nn.Conv2d(2, 2, 1)), torch.randn(1, 2, 3, 3)
    returned = model(x).detach()
    _, channel, *position = torch.unravel_index(returned.argmax(), returned.shape)
    found = hookviz.contributions(model, x, "0", channel=channel, position=position)
    assert found.value == pytest.approx(float(returned.max()))
    assert found.position == tuple(map(int, position)) and "tensor" not in str(found)


def mixed_channels(x):
    weights = torch.einsum("bchw,bdhw->bcd", x, x).softmax(-1)
    return torch.einsum("bcd,bdhw->bchw", weights, x)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "between",
    [mixed_channels, torch.jit.script(nn.ReLU())],
    ids=["einsum", "script"],
)
def test_the_sum_is_exact_after_any_function_and_in_any_dtype(between, kind):
    torch.manual_seed(0)
    model = model_of(
        lambda m, x: m.last(m.between(m.first(x))),
        first=nn.Conv2d(3, 4, 3, padding=1),
        last=nn.Conv2d(4, 4, 3, padding=1),
        between=between,
    ).to(kind, memory_format=torch.channels_last)
    x = torch.randn(1, 3, 12, 12).to(kind, memory_format=torch.channels_last)
    why = hookviz.contributions(model, x, "last", channel=1, position=(5, 6))
    with torch.no_grad():
        given = model.between(model.first(x)).double()
        patch = given[0, :, 4:7, 5:8]
        weight, bias = (each[1].detach().double() for each in model.last.parameters())
        assert why.value == model(x)[0, 1, 5, 6].item()
    assert torch.equal(why.patch.double(), patch)
    assert torch.equal(why.products.double(), weight * patch)
    whole = float(bias + (weight * patch).sum())
    most = float(bias.abs() + (weight * patch).abs().sum())
    assert why.bias + float(why.by_channel.double().sum()) == pytest.approx(whole, rel=1e-12)
    assert abs(why.value - whole) <= 40 * torch.finfo(kind).eps * most
    assert why.sources == [("first", 0)]


def run_inference_mode(m, x):
    """A model that runs its layers in inference mode, in which torch reports other operations."""
    with torch.inference_mode():
        x = m.two(m.norm(m.one(x)).relu_())
        return m.last(x.mean((2, 3)))


def test_layers_that_run_in_inference_mode_are_taken_apart():
    torch.manual_seed(0)
    model, x = (
        model_of(
            run_inference_mode,
            one=nn.Conv2d(2, 3, 3, padding=1),
            norm=nn.BatchNorm2d(3),
            two=nn.Conv2d(3, 4, 1),
            last=nn.Linear(4, 2),
        ).eval(),
        torch.randn(1, 2, 5, 5),
    )
    with torch.no_grad():
        made = model.one(x)[0, 1, 2, 3]
        wanted = model(x)[0, 1]
    why = hookviz.contributions(model, x, "one", channel=1, position=(2, 3))
    assert why.value == pytest.approx(made.item())
    assert why.value == pytest.approx(why.bias + float(why.products.sum()))
    assert [name for name, _ in why.after] == ["batch_norm", "relu"]
    why = hookviz.contributions(model, x, "last", channel=1)
    assert why.value == pytest.approx(wanted.item()) and len(why.by_channel) == 4
    assert hookviz.graph(model, x).after("two") == ["mean"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused(layout):
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    x = torch.nested.nested_tensor(parts, layout=layout)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="'0' .* returned a nested tensor: contributions need"):
        hookviz.contributions(model, x, "0", channel=1, position=(1,))


def test_complex_and_quantized_linear_layers_are_refused():
    x = torch.randn(1, 3, 6, 6)
    rows = nn.Sequential(nn.Flatten(), nn.Linear(108, 4, dtype=torch.cfloat))
    with pytest.raises(ValueError, match=r"'1' \(Linear\) computes with complex numbers"):
        hookviz.contributions(rows, x.to(torch.cfloat), "1", channel=0)
    float_one = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates its quantization
        small = torch.ao.quantization.quantize_dynamic(float_one, {nn.Linear}, torch.qint8)
        with pytest.raises(ValueError, match=r"'1' \(Linear\) is quantized: it rounds in between"):
            hookviz.contributions(small, x, "1", channel=0)
