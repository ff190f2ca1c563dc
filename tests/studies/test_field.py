"""Receptive fields computed from the structure equal those found by perturbing pixels."""

import pytest
import torch
import torchvision
from architectures import model_of
from perturbed import Perturbed, all_boxes
from registered import cudnn_rnn, strange
from torch import nn
from torch.nn import functional as F

import hookviz

ROUNDS = 20


class Net(nn.Module):
    """Two convolutions with a test's function between them."""

    def __init__(self, between, *, dimensions=2, channels=4, inner=None, parts=None, **options):
        super().__init__()
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
        options = {"padding": 1} | options
        self.first = kind(3, channels, 3, padding=1)
        self.last = kind(inner or channels, 4, 3, **options)
        self.parts = nn.ModuleList(parts or [])
        self.between = between

    def forward(self, x):
        y = F.relu_(self.first(x))
        return self.last(self.between(y, *self.parts))


def equal_to_perturbed(model, x, layers=("last",), status="exact"):
    """Check the fields of layers against perturbed pixels; return the last one."""
    model, x = model.double().eval(), x.double()
    fields = hookviz.receptive_field(model, x, list(layers))
    assert {field.status for field in fields.values()} == {status}, fields
    truth = Perturbed(model, layers, x)
    boxes = {layer: all_boxes(field) for layer, field in fields.items()}
    for seed in range(ROUNDS):
        truth.round(seed)
        if all(torch.equal(box, boxes[layer]) for layer, box in truth.boxes.items()):
            return fields[layers[-1]]
    for layer, box in truth.boxes.items():
        assert box.tolist() == boxes[layer].tolist()
    raise AssertionError


# Convolutions: the closed formula (Dumoulin & Visin 2016; Araujo et al. 2019)


def chain(dimensions, settings):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    layers = [
        kind(2, 2, kernel, stride=stride, padding=padding, dilation=dilation)
        for kernel, stride, padding, dilation in settings
    ]
    return nn.Sequential(*layers)


def formula(settings):
    size, stride, start = 1, 1, 0
    for kernel, step, padding, dilation in settings:
        size += (kernel - 1) * dilation * stride
        start -= padding * stride
        stride *= step
    return size, stride, start


CHAINS = [
    [(3, 1, 1, 1)] * 3,
    [(7, 2, 3, 1), (3, 2, 1, 1), (3, 1, 1, 1), (1, 1, 0, 1)],
    [(3, 1, 2, 2), (3, 1, 4, 4), (5, 3, 0, 1)],
    [(2, 2, 0, 1), (4, 2, 1, 1), (3, 1, 0, 2)],
    [(1, 2, 0, 1), (3, 1, 1, 1)],
]


@pytest.mark.parametrize(
    ("dimensions", "settings"), [*((1, each) for each in CHAINS), (2, CHAINS[2]), (3, CHAINS[1])]
)
def test_chains_of_convolutions_follow_the_closed_formula(dimensions, settings):
    size = {1: 90, 2: 48, 3: 26}[dimensions]
    model = chain(dimensions, settings)
    fields = hookviz.receptive_field(model, torch.zeros(1, 2, *[size] * dimensions))
    for count, field in enumerate(fields.values(), 1):
        wanted = [(each,) * dimensions for each in formula(settings[:count])]
        assert [field.size, field.stride, field.start] == wanted
        assert field.status == "exact"


def test_a_box_at_the_border_reports_its_padding():
    model = chain(2, [(3, 1, 1, 1), (3, 2, 1, 1)])
    field = hookviz.receptive_field(model, torch.zeros(1, 2, 12, 9), "1")
    assert field.size == (5, 5) and field.start == (-2, -2) and field.map_size == (6, 5)
    assert field.box(0, 0) == (0, 0, 3, 3)
    assert field.box(0, 0).padding == ((2, 0), (2, 0))
    assert field.box(5, 4) == (8, 6, 12, 9)
    assert field.box(5, 4).padding == ((0, 1), (0, 2))
    assert field.box(2, 2) == (2, 2, 7, 7) and field.box(2, 2).padding == ((0, 0), (0, 0))
    assert torch.zeros(1, 2, 12, 9)[(..., *field.box(5, 4).slices)].shape == (1, 2, 4, 3)


def test_size_stride_and_start_may_differ_by_dimension():
    model = nn.Conv2d(1, 1, (1, 5), stride=(2, 3), padding=(0, 4), dilation=(1, 2))
    field = hookviz.receptive_field(nn.Sequential(model), torch.zeros(1, 1, 20, 30), "0")
    assert (field.size, field.stride, field.start) == ((1, 9), (2, 3), (0, -4))


def test_fields_of_a_resnet_on_a_small_picture():
    """The field of a 1×1 map is computed on a larger input."""
    model, x = torchvision.models.resnet18(), torch.zeros(1, 3, 32, 32)
    fields = hookviz.receptive_field(model, x)
    assert len(fields) == 20
    field = fields["layer4.1.conv2"]
    assert field.map_size == (1, 1) and field.box(0, 0) == (0, 0, 32, 32)
    assert (field.size, field.stride, field.start) == ((435, 435), (32, 32), (-217, -217))
    assert field.box(0, 0).padding == ((217, 186), (217, 186))
    alone = hookviz.receptive_field(model, x, "layer2.1.conv1")
    assert fields["layer2.1.conv1"].size == alone.size == (83, 83)
    assert repr(alone) == (
        "ReceptiveField('layer2.1.conv1' exact, sees 83×83, stride 8×8, start −41×−41,\n"
        "4×4 positions on 32×32)"
    )


# Operations between two convolutions, compared with perturbing single pixels


def squeezed(y, small, large):
    return y * torch.sigmoid(large(F.relu(small(F.adaptive_avg_pool2d(y, 1)))))


def windows_of(y, size):
    n, c, h, w = y.shape
    return y.reshape(n, c, h // size, size, w // size, size)


def windowed_attention(y):
    tokens = windows_of(y, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, y.shape[1])
    seen = torch.softmax(tokens @ tokens.mT, -1) @ tokens
    n, c, h, w = y.shape
    return seen.view(n, h // 4, w // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)


def added_in_place(y):
    y[:, :2, 3:] += y[:, 2:, :-3]
    return y


def unfolded_convolution(y):
    """Apply a convolution by unfolding its windows."""
    columns = F.unfold(y, 3, dilation=2, padding=2)
    return (columns * torch.arange(1.0, columns.shape[1] + 1, dtype=y.dtype)[:, None]).view(
        y.shape[0], -1, *y.shape[2:]
    )


def padded_by_hand(y):
    wide = y.new_zeros(*y.shape[:2], y.shape[2] + 2, y.shape[3] + 2)
    wide[:, :, 1:-1, 1:-1] = y
    return F.max_pool2d(wide, 3, 1)


def sobel(y):
    kernel = torch.tensor([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=y.dtype)
    return F.conv2d(y, kernel.expand(y.shape[1], 1, 3, 3), groups=y.shape[1])


BETWEEN = {
    "nothing": lambda y: y,
    "residual": lambda y: y + F.avg_pool2d(y, 3, 1, 1),
    "concatenated": lambda y: torch.cat([y[:, :2], F.max_pool2d(y, 7, 1, 3)[:, 2:]], 1),
    "max pooling": lambda y: F.max_pool2d(y, 3, 2, 1),
    "max pooling, dilated": lambda y: F.max_pool2d(y, 2, 1, 1, dilation=2),
    "average pooling": lambda y: F.avg_pool2d(y, (2, 4), (2, 1)),
    "adaptive pooling": lambda y: F.adaptive_avg_pool2d(y, (5, 3)),
    "strided slice": lambda y: y[..., ::2, 1::3],
    "nearest": lambda y: F.interpolate(y, scale_factor=2),
    "bilinear": lambda y: F.interpolate(y, size=(9, 17), mode="bilinear"),
    "bilinear, corners": lambda y: F.interpolate(
        y, scale_factor=1.5, mode="bilinear", align_corners=True
    ),
    "antialiased": lambda y: F.interpolate(y, size=(5, 6), mode="bilinear", antialias=True),
    "reflection": lambda y: F.pad(y, (3, 1, 2, 0), mode="reflect"),
    "flipped": lambda y: y.flip(-1),
    "transposed": lambda y: y.transpose(2, 3).contiguous(),
    "layer norm": lambda y: F.layer_norm(y.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2),
    "local response": lambda y: F.local_response_norm(y, 3),
    "gated": lambda y: y * torch.sigmoid(y.flip(1)) + F.gelu(y),
    "in place": added_in_place,
    "channels last": lambda y: y.contiguous(memory_format=torch.channels_last).clone().relu_(),
    "complex": lambda y: torch.view_as_real(1j * torch.view_as_complex(
        torch.stack([y, y.roll(2, -1)], -1))).sum(-1),
    "computed kernel": lambda y: F.conv2d(y.flatten(0, 1)[None],
        y[..., :1, :1].flatten(0, 1)[:, None], groups=y.shape[:2].numel()).view_as(y),
    "masked places": lambda y: torch.where(torch.arange(y.shape[-1]) % 5 < 3, y, 0.0),
    "triangle": lambda y: torch.tril(y, 2),
    "cumulative": lambda y: y.cumsum(-1),
    "sobel": sobel,
    "windows of attention": windowed_attention,
    "padded by hand": padded_by_hand,
    "matrix of zeros": lambda y: y @ torch.eye(y.shape[-1], dtype=y.dtype).roll(2, 0)[:, ::2],
    "einsum": lambda y: torch.einsum("nchw,wv->nchv", y, torch.ones(y.shape[-1], 3, dtype=y.dtype)),
    "fourier, one way": lambda y: torch.fft.irfft(torch.fft.rfft(y, dim=-1), dim=-1),
    "indexed": lambda y: y[..., torch.tensor([3, 0, 5, 5, 2])],
    "standardized rows": lambda y: (y - y.mean(-1, keepdim=True)) / (1 + y.std(-1, keepdim=True)),
}  # fmt: skip


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_fields_through_other_operations_equal_perturbation(between):
    equal_to_perturbed(Net(between), torch.zeros(1, 3, 16, 12))


@pytest.mark.parametrize(
    ("between", "most"),
    [
        (lambda y: y * (torch.arange(y.shape[-1]) != 1), 5),
        (lambda y: F.pad(y, (1, 1, 0, 0), mode="circular"), 8),
    ],
)
def test_a_field_has_no_stride_where_some_positions_see_less_or_more(between, most):
    field = equal_to_perturbed(Net(between), torch.zeros(1, 3, 9, 8))
    assert (field.size, field.stride, field.start) == ((5, most), (1, None), (-2, None))


def test_fields_through_operations_that_change_the_channels():
    equal_to_perturbed(Net(unfolded_convolution, inner=36), torch.zeros(1, 3, 9, 8))
    shuffled = Net(lambda y: F.pixel_shuffle(y, 2), channels=8, inner=2)
    equal_to_perturbed(shuffled, torch.zeros(1, 3, 8, 7))
    unshuffled = Net(lambda y: F.pixel_unshuffle(y, 2), inner=16)
    equal_to_perturbed(unshuffled, torch.zeros(1, 3, 12, 10))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 4, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 3, "padding": 2, "output_padding": 1, "dilation": 2},
        {"kernel_size": 3, "stride": 2, "groups": 2},
        {"kernel_size": 2, "stride": 3},
    ],
)
def test_fields_of_transposed_convolutions_equal_perturbation(options):
    up = nn.ConvTranspose2d(4, 4, **options)
    equal_to_perturbed(Net(lambda y, up: up(y), parts=[up]), torch.zeros(1, 3, 7, 6))


def test_upsampling_and_pooling_back_has_a_size_and_stride():
    up, down = nn.ConvTranspose2d(4, 4, 2, 2), nn.MaxPool2d(2)
    net = Net(lambda y, up, down: down(up(y)), parts=[up, down])
    field = equal_to_perturbed(net, torch.zeros(1, 3, 12, 12), ("first", "parts.0", "last"))
    assert (field.size, field.stride, field.start) == ((5, 5), (1, 1), (-2, -2))
    finer = hookviz.receptive_field(net, torch.zeros(1, 3, 12, 12).double(), "parts.0")
    assert finer.size == (3, 3) and finer.stride == finer.start == (None, None)
    assert finer.box(4, 5) == (1, 1, 4, 4) and finer.box(4, 5).padding is None


ONE_AND_THREE = [
    (1, lambda y: F.max_pool1d(y, 3, 2)),
    (1, lambda y: F.interpolate(y, scale_factor=2, mode="linear")),
    (1, lambda y: F.avg_pool1d(F.pad(y, (4, 0)), 5, 1)),
    (1, lambda y: y + y.cumsum(-1)),
    (3, lambda y: F.max_pool3d(y, 2)),
    (3, lambda y: F.avg_pool3d(y, 3, 2, 1)),
]


@pytest.mark.parametrize(("dimensions", "between"), ONE_AND_THREE)
def test_fields_in_one_and_three_dimensions_equal_perturbation(dimensions, between):
    sizes = (20,) if dimensions == 1 else (6, 8, 7)
    equal_to_perturbed(Net(between, dimensions=dimensions), torch.zeros(1, 3, *sizes))


def masked(tokens, value):
    count = tokens.shape[1]
    later = torch.ones(count, count, dtype=torch.bool).triu(1)
    return torch.softmax((tokens @ tokens.mT).masked_fill(later, value), -1) @ tokens


def mask_added(tokens):
    least, count = torch.finfo(tokens.dtype).min, tokens.shape[1]
    later = torch.full((count, count), least, dtype=tokens.dtype).triu(1)
    return torch.softmax(tokens @ tokens.mT + later, -1) @ tokens


def attention(query, key=None, **options):
    """Attend with a contiguous query, for which torch has a fused operation."""
    query = query.contiguous()
    key = query if key is None else key
    return F.scaled_dot_product_attention(query, key, key, **options)


def mask_of(tokens):
    """Return scores for two keys, each computed from a token."""
    return tokens.roll(1, 1)[..., :1] * torch.arange(2)


def shared_heads(tokens):
    """Return what two heads with one key see: the first two tokens. Others see the last ones."""
    query = tokens.mT[..., None]
    keys = torch.stack([query[:, 0, :2], query[:, 0, -2:]], 1)
    seen = attention(torch.ones_like(query), keys, enable_gqa=True)
    return seen[:, :2, :, 0].repeat(1, 2, 1).mT + tokens


TO_ITSELF = [(0, n + 1) for n in range(9)]
AND_FIRST_TWO = [(0, max(2, n + 1)) for n in range(9)]
ATTENTION = {
    "masked": (lambda tokens: masked(tokens, -torch.inf), TO_ITSELF),
    "mask added": (mask_added, TO_ITSELF),
    "causal": (lambda tokens: attention(tokens, is_causal=True), TO_ITSELF),
    "boolean mask": (
        lambda tokens: attention(tokens, attn_mask=torch.ones(9, 9).tril().bool()),
        TO_ITSELF,
    ),
    "two keys": (lambda tokens: attention(tokens, tokens[:, :2]), AND_FIRST_TWO),
    "computed mask": (
        lambda tokens: attention(tokens * 0 + 1, tokens[:, :2], attn_mask=mask_of(tokens)),
        [(0, 9)] + [(0, max(2, n)) for n in range(1, 9)],
    ),
}
if torch.__version__ >= (2, 5):
    ATTENTION["shared heads"] = (shared_heads, AND_FIRST_TWO)


@pytest.mark.parametrize(("attend", "boxes"), ATTENTION.values(), ids=ATTENTION)
def test_attention_sees_the_query_and_the_keys_that_are_not_masked(attend, boxes):
    model = model_of(
        lambda m, x: m.last(attend(m.query(x).mT).mT),
        query=nn.Conv1d(3, 4, 1),
        last=nn.Conv1d(4, 4, 1),
    )
    field = equal_to_perturbed(model, torch.zeros(1, 3, 9))
    assert [field.box(n) for n in range(9)] == boxes


class Recurrent(nn.Module):
    """A recurrent layer between two convolutions, of which features in ``part`` go on."""

    def __init__(self, recurrent, part=slice(None), run=None):
        super().__init__()
        self.first, self.recurrent, self.last = nn.Conv1d(3, 3, 1), recurrent, nn.Conv1d(1, 4, 1)
        self.part, self.run = part, run or recurrent

    def forward(self, x):
        axes = (0, 2, 1) if self.recurrent.batch_first else (2, 0, 1)
        steps = self.run(self.first(x).permute(axes))[0].permute([axes.index(n) for n in range(3)])
        return self.last(steps[:, self.part].sum(1, keepdim=True))


BEFORE, BEHIND = [(0, n + 1) for n in range(6)], [(n, 6) for n in range(6)]


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])  # many operations; one for each direction
@pytest.mark.parametrize(
    ("options", "part", "boxes"),
    [
        ({"num_layers": 2}, slice(None), BEFORE),
        ({"batch_first": True}, slice(None), BEFORE),
        ({"bidirectional": True, "batch_first": True}, slice(4), BEFORE),
        ({"bidirectional": True}, slice(4, 8), BEHIND),
        ({"bidirectional": True}, slice(None), [(0, 6)] * 6),
    ],
)
def test_a_step_of_a_recurrent_layer_sees_the_steps_before_it(kind, options, part, boxes):
    model = Recurrent(kind(3, 4, **options), part)
    field = hookviz.receptive_field(model, torch.rand(1, 3, 6), "last")
    assert field.known and [field.box(n) for n in range(6)] == boxes


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_an_lstm_that_is_one_operation_equals_perturbation(both, batch_first, with_state):
    lstm = nn.LSTM(3, 4, 2, batch_first=batch_first, bidirectional=both)

    def on_gpu(steps):
        batch = steps if batch_first else steps.transpose(0, 1)
        state = batch.new_zeros(4 if both else 2, len(batch), 4)
        state = state + batch[:, 4, :1] if with_state else state  # computed from step 4
        numbers = 2, 4, 0, 2, batch_first, 0.0, False, both, [], None
        return cudnn_rnn(steps, lstm._flat_weights, 4, None, state, state, *numbers)

    model = Recurrent(lstm, run=on_gpu)
    status = "whole input" if both else "exact"
    field = equal_to_perturbed(model, torch.zeros(1, 3, 6), status=status)
    assert field.box(1) == ((0, 6) if both else (0, 5 if with_state else 2))


class PixelCnnConvolution(nn.Conv2d):
    """A PixelCNN convolution, which sees the pixels above and to the left."""

    def __init__(self, *given, in_place, **options):
        super().__init__(*given, **options)
        kept = torch.ones_like(self.weight)
        kept[:, :, 1, 1:], kept[:, :, 2:] = 0, 0
        self.register_buffer("kept", kept)
        self.in_place = in_place

    def forward(self, x):
        if self.in_place:
            self.weight.data *= self.kept
            return super().forward(x)
        return F.conv2d(x, self.weight * self.kept, self.bias, padding=1)


@pytest.mark.parametrize("in_place", [True, False])
def test_masked_weights_reduce_the_field(in_place):
    model = nn.Sequential(
        *(PixelCnnConvolution(3, 3, 3, padding=1, in_place=in_place) for _ in range(2))
    )
    field = equal_to_perturbed(model, torch.zeros(1, 3, 9, 8), ("0", "1"))
    assert field.box(4, 4) == (2, 2, 5, 7) and field.size == (3, 5)


class MaskedTransposed(nn.ConvTranspose1d):
    """A transposed convolution whose mask hides other taps from each of its two groups."""

    def __init__(self):
        super().__init__(4, 4, 3, groups=2)
        kept = torch.ones_like(self.weight)
        kept[0, 0, 1:], kept[1, :, 1:] = 0, 0  # the first group's channels use the first tap,
        kept[0, 1, :2] = 0  # but one of its channels also the last tap of another
        kept[2:, :, :2] = 0  # the second group's use the last tap
        self.register_buffer("kept", kept)

    def forward(self, x):
        masked = self.weight * self.kept
        return F.conv_transpose1d(x, masked, self.bias, groups=self.groups)


@pytest.mark.parametrize("channels", [[0], [1], [2, 3], [0, 1, 2, 3]])
def test_a_masked_transposed_convolution_sees_the_taps_of_its_group(channels):
    net = Net(
        lambda y, part: part(torch.cat([y[:, :2], y[:, 2:].roll(2, 2)], 1))[:, channels],
        dimensions=1,
        inner=len(channels),
        parts=[MaskedTransposed()],
    )
    equal_to_perturbed(net, torch.zeros(1, 3, 9))


def test_weights_that_happen_to_be_zero_count():
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1), nn.Conv2d(1, 1, 3))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert hookviz.receptive_field(model, torch.zeros(1, 1, 9, 9), "2").size == (5, 5)


# The whole input


WHOLE_INPUT = {
    "squeeze and excitation": Net(squeezed, parts=[nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)]),
    "group norm": Net(lambda y, norm: norm(y), parts=[nn.GroupNorm(2, 4)]),
    "attention": Net(lambda y: (lambda t: (torch.softmax(t.mT @ t, -1) @ t.mT).mT)(
        y.flatten(2)).view_as(y)),
    "mean": Net(lambda y: y - y.mean((2, 3), keepdim=True)),
    "maximum": Net(lambda y: y / (1 + y.amax((2, 3), keepdim=True))),
    "fourier": Net(lambda y: torch.fft.ifft2(torch.fft.fft2(y)).real),
}  # fmt: skip


@pytest.mark.parametrize("model", WHOLE_INPUT.values(), ids=WHOLE_INPUT)
def test_operations_that_see_the_whole_input(model):
    field = equal_to_perturbed(model, torch.zeros(1, 3, 8, 6), status="whole input")
    assert field.box(0, 0) == (0, 0, 8, 6) and field.box(0, 0).padding == ((0, 0), (0, 0))
    assert (field.size, field.stride, field.start) == ((8, 6), (0, 0), (0, 0))


def test_a_large_field_is_not_the_whole_input():
    """On a small input each position sees all of it, but the field still has a size."""
    field = hookviz.receptive_field(chain(2, [(9, 1, 4, 1)] * 3), torch.zeros(1, 2, 6, 6), "2")
    assert field.status == "exact" and field.size == (25, 25)
    assert field.box(3, 3) == (0, 0, 6, 6) and field.box(3, 3).padding == ((9, 10), (9, 10))


def test_a_vision_transformer_sees_patches_then_the_whole_input():
    model = torchvision.models.VisionTransformer(16, 4, 2, 2, 8, 16)
    layers = ("conv_proj", "encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1.mlp")
    fields = hookviz.receptive_field(model, torch.zeros(2, 3, 16, 16), list(layers))
    assert [field.status for field in fields.values()] == ["exact", "whole input", "whole input"]
    assert (fields["conv_proj"].size, fields["conv_proj"].stride) == ((4, 4), (4, 4))
    assert {field.map_size for field in fields.values()} == {(4, 4)}


# Fields that cannot be determined


def where_it_is_largest(y):
    best = y.flatten(2).argmax(-1, keepdim=True)
    return y + y.flatten(2).gather(2, best)[..., None]


def warped(y):
    n, _, h, w = y.shape
    grid = torch.stack([torch.tanh(y[:, 0]), torch.tanh(y[:, 1])], -1)
    return F.grid_sample(y, grid.view(n, h, w, 2), align_corners=False)


def deformed(y):
    offset = y[:, :1].expand(-1, 18, -1, -1)
    return torchvision.ops.deform_conv2d(y, offset, torch.ones(4, 4, 3, 3), padding=1)


def branched(y):
    return y if y.mean() > 0 else F.max_pool2d(y, 3, 1, 1)


def pooled_boxes(y):
    boxes = torch.cat([torch.zeros(1, 1), y[0, 0, :1, :4].abs()], 1)
    return torchvision.ops.roi_align(y, boxes, 7)


@pytest.mark.parametrize("between", [where_it_is_largest, warped, deformed, branched, pooled_boxes])
def test_data_dependent_operations_have_no_field(between):
    field = hookviz.receptive_field(Net(between), torch.rand(1, 3, 8, 6), "last")
    assert field.status == "data-dependent" and field.why
    assert field.size == field.stride == field.start == (None, None)
    assert field.box(0, 0) == (0, 0, 8, 6) and field.box(0, 0).padding is None


def with_a_part_left_out(y):
    """A masked autoencoder: only some columns go on, another choice in each run."""
    kept = torch.rand(y.shape[3]).argsort()[:4]
    return y.gather(3, kept.expand(*y.shape[:3], -1))


def with_a_part_by_a_mask(y):
    return y[..., torch.rand(y.shape[3]).argsort() < 4]


@pytest.mark.parametrize("between", [with_a_part_left_out, with_a_part_by_a_mask])
def test_a_field_of_random_positions_is_not_called_exact(between):
    field = hookviz.receptive_field(Net(between), torch.rand(1, 3, 8, 6), "last")
    assert field.status == "data-dependent" and "at random positions" in field.why


def with_a_random_mask(y):
    """Replace half of the pixels by a constant, as SimMIM does."""
    mask = (torch.rand(y.shape[2:]) < 0.5).to(y.dtype)
    return y * (1 - mask) + mask


def with_a_random_choice(y):
    return torch.where(torch.rand(y.shape[2:]) < 0.5, y, torch.zeros(()))


@pytest.mark.parametrize("between", [with_a_random_mask, with_a_random_choice])
def test_pixels_that_a_random_mask_removes_belong_to_the_field(between):
    x = torch.rand(1, 3, 8, 6)
    masked = hookviz.receptive_field(Net(between), x, "last")
    plain = hookviz.receptive_field(Net(lambda y: y), x, "last")
    assert masked.status == "exact" and torch.equal(masked.boxes, plain.boxes)


def test_layers_before_a_data_dependent_operation_are_exact():
    net = Net(where_it_is_largest)
    assert hookviz.receptive_field(net, torch.rand(1, 3, 8, 6), "first").status == "exact"


def test_grid_sampling_with_a_constant_grid_is_exact():
    grid = torch.tensor([[-0.75, -0.75], [0.25, 0.25]]).double().view(1, 1, 2, 2)
    net = Net(lambda y: F.grid_sample(y, grid.expand(len(y), -1, -1, -1), align_corners=False))
    equal_to_perturbed(net, torch.zeros(1, 3, 8, 8))


def through_numpy(y):
    return y + torch.from_numpy(y.numpy() * 1)


def folded(y):
    return F.fold(F.unfold(y, 3, stride=2), y.shape[2:], 3, stride=2)


def scattered(y):
    where = torch.arange(y.shape[-1]) // 3
    return torch.zeros_like(y).scatter_add(3, where.expand_as(y), y)


def overwritten_in_part(y):
    made = strange(y)
    torch.add(y[..., 0], 1, out=made[..., 0])
    return made


def drawn(y):
    return y.exp().flatten(0, 2).multinomial(y.shape[-1], replacement=True).view_as(y) * 1.0


@pytest.mark.parametrize(
    ("between", "operation"),
    [
        (through_numpy, "numpy"),
        (strange, "strange"),
        (overwritten_in_part, "strange"),
        (lambda y: y.to_sparse().to_dense(), "sparse"),
        (folded, "index_put"),
        (scattered, "scatter"),
        (drawn, "multinomial"),
    ],
)
def test_an_operation_that_is_not_followed_is_named_and_the_box_is_the_whole_input(
    between, operation
):
    field = hookviz.receptive_field(Net(between), torch.rand(1, 3, 9, 7), "last")
    assert field.status == "unknown" and field.box(8, 6) == (0, 0, 9, 7)
    assert operation in field.why and field.why in " ".join(repr(field).split())


# Selections depend on all candidates and on the condition


SELECTIONS = {
    "maximum of two": lambda y: torch.max(y, y.roll(3, -1)),
    "largest": lambda y: y.topk(4, dim=-1).values,
    "median": lambda y: y - y.median(-1, keepdim=True).values,
    "computed condition": lambda y: torch.where(y.roll(4, -1) > 0, y, y.roll(2, -2)),
    "computed mask": lambda y: y.masked_fill(y.roll(3, -2) > 0, 0.5),
    "clamped": lambda y: y.clamp(max=y.roll(3, -1)),
}


@pytest.mark.parametrize("between", SELECTIONS.values(), ids=SELECTIONS)
def test_selections_depend_on_all_candidates_and_the_condition(between):
    equal_to_perturbed(Net(between), torch.zeros(1, 3, 12, 10))


def test_a_selection_by_a_computed_mask_is_data_dependent():
    net = Net(lambda y: y.masked_scatter(y > 0, y.flip(-1)))
    field = hookviz.receptive_field(net, torch.rand(1, 3, 8, 6), "last")
    assert field.status == "data-dependent" and field.box(0, 0) == (0, 0, 8, 6)


def test_an_operation_that_overwrites_an_argument_and_returns_another_tensor_is_followed():
    mean, variance = torch.zeros(4), torch.ones(4)

    def normalized(y):
        # Its schema marks the statistics as overwritten.
        return torch.ops.aten._native_batch_norm_legit(
            y, None, None, mean.to(y), variance.to(y), False, 0.1, 1e-5
        )[0]

    equal_to_perturbed(Net(normalized), torch.zeros(1, 3, 8, 6))


# Several inputs


def siamese():
    """Return a model with one convolution of both pictures, and one of their product."""
    return model_of(
        lambda m, one, other: m.last(m.conv(one).mean((2, 3), keepdim=True) * m.conv(other)),
        conv=nn.Conv2d(3, 4, 3),
        last=nn.Conv2d(4, 2, 3),
    )


def test_each_call_of_a_shared_layer_has_the_field_of_its_own_input():
    model, inputs = siamese(), (torch.rand(1, 3, 9, 7), torch.rand(1, 3, 12, 10))
    first, second = (hookviz.receptive_field(model, inputs, "conv", call=n) for n in (0, 1))
    assert [field.input for field in (first, second)] == [0, 1]
    assert [field.input_size for field in (first, second)] == [(9, 7), (12, 10)]
    assert first.status == second.status == "exact" and first.box(1, 2) == second.box(1, 2)
    both = hookviz.receptive_field(model, inputs, "last")
    assert both.input == 0 and both.status == "whole input" and both.map_size == (8, 6)

    found = second.effective([inputs], position=(1, 2), channel=3)
    x = inputs[1].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.conv(x)[0, 3, 1, 2], x)
    torch.testing.assert_close(found, gradient[0].abs().mean(0))


def test_a_layer_that_does_not_depend_on_the_input_is_unknown():
    net = Net(lambda y, part: y + part(torch.ones(1, 4, 8, 6)), parts=[nn.Conv2d(4, 4, 1)])
    field = hookviz.receptive_field(net, torch.rand(1, 3, 8, 6), "parts.0")
    assert field.status == "unknown" and "nothing leads" in field.why


# The model, and several layers at once


def test_the_field_does_not_depend_on_input_values():
    net, x = Net(BETWEEN["gated"]), torch.rand(3, 3, 9, 8) * 1e6
    one, other = (hookviz.receptive_field(net, each, "last") for each in (x[:1] * 0, x))
    assert torch.equal(all_boxes(one), all_boxes(other)) and one.size == other.size


def test_each_call_of_a_reused_layer_has_its_own_field():
    shared = nn.Conv2d(2, 2, 3)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    x = torch.rand(1, 2, 9, 9)
    sizes = [hookviz.receptive_field(model, x, "0", call=call).size for call in (0, 1, -1)]
    assert sizes == [(3, 3), (5, 5), (5, 5)]
    with pytest.raises(ValueError, match=r"Layer '0' ran 2 times: call=2 is out of range\."):
        hookviz.receptive_field(model, x, "0", call=2)


# The effective field


def test_the_effective_field_is_the_mean_absolute_gradient():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 5, 3))
    images = torch.rand(10, 3, 9, 8)
    field = hookviz.receptive_field(model, images, "2")
    found = field.effective(images, position=(2, 3), channel=1)
    wanted = torch.zeros(9, 8)
    for image in images:
        x = image[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x)[0, 1, 2, 3], x)
        wanted += gradient[0].abs().mean(0) / 10
    torch.testing.assert_close(found, wanted)
    top, left, bottom, right = field.box(2, 3)
    assert found[top:bottom, left:right].sum() == found.sum() > 0
    assert torch.equal(field.effective(images), field.effective(images, position=(3, 3)))
    torch.testing.assert_close(field.effective(images), field.effective(list(images.split(1))))


def test_the_effective_field_is_that_of_the_picture_after_a_complex_input():
    model = model_of(lambda m, other, x: m.conv(x), conv=nn.Conv2d(3, 4, 3))
    inputs = torch.ones(3, dtype=torch.complex64), torch.rand(1, 3, 9, 7)
    field = hookviz.receptive_field(model, inputs, "conv")
    assert field.input == 1 and field.effective([inputs]).shape == (9, 7)


def test_wrong_arguments_of_effective_are_refused():
    model = chain(2, [(3, 1, 1, 1)])
    field = hookviz.receptive_field(model, torch.rand(1, 2, 9, 8), "0")
    with pytest.raises(ValueError, match=r"inputs=\[\] holds no input"):
        field.effective([])
    with pytest.raises(ValueError, match="resize it"):
        field.effective(torch.rand(1, 2, 7, 8))
    with pytest.raises(ValueError, match="resize it"):  # its map lacks the centre of the field
        field.effective(torch.rand(1, 2, 4, 4))
    with pytest.raises(ValueError, match=r"Layer '0' has no channel 2: 0 to 1\."):
        field.effective(torch.rand(1, 2, 9, 8), channel=2)


# Errors


def test_wrong_layers_positions_and_inputs_are_refused():
    model, x = chain(2, [(3, 2, 1, 1), (3, 1, 1, 1)]), torch.rand(1, 2, 9, 8)
    with pytest.raises(ValueError, match="called '2'"):
        hookviz.receptive_field(model, x, "2")
    assert [*hookviz.receptive_field(model, x, "[01]")] == ["0", "1"]
    field = hookviz.receptive_field(model, x, "0")
    for place in ((5, 0), (0, -1), (1,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"Layer '0' has no position .* map is 5×4"):
            field.box(*place)
    with pytest.raises(ValueError, match="no floating-point input"):
        text = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 4))
        hookviz.receptive_field(text, torch.tensor([[0, 1]]), "1")


def test_layers_without_positions_are_refused_or_left_out():
    inner = model_of(lambda m, x: x.shape)
    odd = model_of(lambda m, x: x.view(m.inner(x)), idle=nn.Conv2d(1, 1, 1), inner=inner)
    x = torch.rand(1, 1, 4, 4)
    with pytest.raises(ValueError, match="Layer 'inner' returned Size and no tensor: it has no"):
        hookviz.receptive_field(odd, x, "inner")
    with pytest.raises(ValueError, match="Layer 'idle' did not run"):
        hookviz.receptive_field(odd, x, "idle")
    assert hookviz.receptive_field(odd, x, ["idle", "inner"]) == {}


def test_a_linear_layer_has_one_position():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 5))
    field = hookviz.receptive_field(model, torch.rand(1, 1, 8, 8), "2")
    assert field.status == "whole input" and field.map_size == (1,)
    assert field.box(0) == (0, 0, 8, 8)


def test_a_forgotten_input_is_named_and_fields_are_printed_as_a_table():
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 1, 3)), torch.zeros(1, 1, 9, 9)
    with pytest.raises(ValueError, match=r"'1' is a layer.*receptive_field\(model, image, '1'\)"):
        hookviz.receptive_field(model, "1")
    lines = repr(hookviz.receptive_field(model, x)).splitlines()
    assert lines[0] == "Receptive fields of 2 layers, in pixels"
    assert lines[-1].split() == ["1", "exact", "5×5", "1×1", "0,", "0", "5×5", "9×9"]
    page = hookviz.receptive_field(model, x, "1")._repr_html_()
    assert "<th>starts at</th>" in page and "map_size" not in page
