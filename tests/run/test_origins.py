"""The input picture of each row of a layer's output, for models that join and reorder pictures."""

import pytest
import torch
import torch.nn.functional as F
from test_operations import CALLS, changed, clone, recorded
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz.run.origins as origins
from hookviz.run.inputs import prepare_input
from hookviz.run.operations import BATCH_NORMS
from hookviz.run.origins import (
    NO_PICTURE,
    SEVERAL,
    UNKNOWN,
    axis_kept,
    call_origins,
    single_picture,
)
from hookviz.run.recorder import Operation
from hookviz.run.session import Session


class Net(nn.Module):
    """A convolution, and a function that gets the network and the inputs and calls it."""

    def __init__(self, function, **modules):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 3, padding=1), function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args):
        out = self.function(self, *args)
        return out if out.ndim == 2 else out.flatten(2).mean(2)


def pictures(*batches):
    torch.manual_seed(0)
    return tuple(torch.rand(count, 3, 8, 8) for count in batches)


def found(model, *inputs, layer="conv"):
    """Return (input, sample) or a reason for each row of each call."""
    before = snapshot(model)
    session = Session(model.eval(), prepare_input(inputs, model))
    origins = call_origins(session, [layer])
    model.train()
    assert_untouched(model, before)
    return [
        [row if isinstance(row, str) else tuple(row) for row in rows] for rows in origins.values()
    ]


def samples(model, *inputs, layer="conv"):
    return [
        [row if isinstance(row, str) else row[1] for row in rows]
        for rows in found(model, *inputs, layer=layer)
    ]


@pytest.fixture
def no_noise(monkeypatch):
    """Fail if the model runs with noise: tracing the operations must suffice."""

    def measured(*args):
        raise AssertionError("the model ran with noise")

    monkeypatch.setattr(origins, "_measured", measured)


# Cases that follow from the operations

ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)
# By torch's default, the sequence is the first dimension.
SEQUENCES = nn.TransformerEncoderLayer(4, 2, 8)


def tokens(net, x):
    return net.conv(x).flatten(2).mT


@pytest.mark.parametrize(
    "function",
    [
        lambda net, x: net.conv(x),
        lambda net, x: net.conv(x.flip(3).roll(1, 2) * 2 + 1),
        lambda net, x: net.conv(torch.cat([x.amax(1, keepdim=True), x[:, :2]], 1)),
        lambda net, x: net.conv(F.interpolate(F.max_pool2d(x, 2), scale_factor=2)),
        lambda net, x: net.conv(F.batch_norm(x, None, None, training=True)),
        lambda net, x: net.conv(F.instance_norm(x)),
        lambda net, x: net.conv(F.group_norm(F.layer_norm(x, [8]), 3)),
        lambda net, x: net.conv(F.normalize(x, dim=1).softmax(2).cumsum(3)),
        lambda net, x: net.conv((x @ x.mT).to(memory_format=torch.channels_last)),
        lambda net, x: net.conv(F.pad(x, (1, 1, 1, 1), "reflect")[:, :, :, 1:]),
        lambda net, x: net.conv(torch.zeros_like(x).add_(x).relu_()),
    ],
)
def test_samples_are_followed_through_separate_operations(function, no_noise):
    assert samples(Net(function), *pictures(3)) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("function", "module"),
    [
        (lambda net, x: net.last(tokens(net, x)).mean(1), nn.Linear(4, 4)),
        (lambda net, x: net.last(*[tokens(net, x)] * 3)[0].mean(1), ATTENTION),
        (lambda net, x: net.last(net.conv(x).flatten(2).mean(2)), nn.BatchNorm1d(4)),
    ],
)
def test_tokens_stay_with_their_sample(function, module, no_noise):
    assert samples(Net(function, last=module), *pictures(3), layer="last") == [[0, 1, 2]]


def test_batches_in_the_second_dimension_are_followed(no_noise):
    def function(net, x):
        out = net.last(tokens(net, x).transpose(0, 1))  # (tokens, samples, channels)
        return net.head(out.mean(0))

    net = Net(function, last=SEQUENCES, head=nn.Linear(4, 2))
    assert samples(net, *pictures(3), layer="head") == [[0, 1, 2]]


def test_windows_belong_to_their_sample(no_noise):
    def windows(net, x):
        cut = x.unfold(2, 4, 4).unfold(3, 4, 4)  # (N, 3, 2, 2, 4, 4)
        return net.conv(cut.permute(0, 2, 3, 1, 4, 5).flatten(0, 2))

    assert samples(Net(windows), *pictures(2)) == [[0] * 4 + [1] * 4]


def test_two_inputs_are_distinguished(no_noise):
    def function(net, a, b):
        return (net.conv(a).relu().mean((2, 3)) - net.conv(b).relu().mean((2, 3))).abs()

    assert found(Net(function), *pictures(1, 1)) == [[(0, 0)], [(1, 0)]]
    assert found(Net(function), *pictures(2, 2)) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


def test_other_arguments_are_not_pictures(no_noise):
    net = Net(lambda net, mask, x, scale: net.conv(x * scale[0, 0] * mask[:, None]))
    (x,) = pictures(2)
    assert found(net, torch.ones(2, 8, 8, dtype=torch.bool), x, torch.ones(2, 1)) == [
        [(1, 0), (1, 1)]
    ]


def test_one_picture_needs_no_run():
    def single(inputs):
        model = nn.Conv2d(3, 1, 1)
        return single_picture(Session(model, prepare_input(inputs, model)))

    (x,) = pictures(1)
    assert single(x) == single(x[0]) == (0, 0)
    for inputs in (pictures(2), pictures(1, 1), (torch.rand(1, 9),), (x, torch.ones(1, 9))):
        assert single(inputs) is None


# Cases that need runs with noise


def squared(x):
    return torch.mm(x, x)[..., None, None]


def through_numpy(x):
    return torch.from_numpy(x.detach().numpy()[::-1].copy())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda net, x: net.conv(torch.cat([x, x.flip(3)])), [0, 1, 2, 0, 1, 2]),
        (lambda net, x: net.conv(x.flip(0)), [2, 1, 0]),
        (lambda net, x: net.conv(x[[1, 2, 0]]), [1, 2, 0]),
        (lambda net, x: net.conv(x.repeat_interleave(2, 0)), [0, 0, 1, 1, 2, 2]),
        (lambda net, x: net.conv(x[1:]), [1, 2]),
        (lambda net, x: net.conv(x[::2]), [0, 2]),
        (lambda net, x: net.conv(torch.stack([x[1], x[0]])), [1, 0]),
        (lambda net, x: net.conv(x[torch.tensor([True, False, True])]), [0, 2]),
        (lambda net, x: net.conv(through_numpy(x)), [2, 1, 0]),
        (lambda net, x: net.conv(x.detach().round().sign().flip(0)), [2, 1, 0]),
        (lambda net, x: net.conv(torch.cat([x, torch.zeros(1, 3, 8, 8)])), [0, 1, 2, NO_PICTURE]),
        (lambda net, x: net.conv(x - x.mean(0)), [SEVERAL] * 3),
        (lambda net, x: net.conv(x + x.detach().flip(0)), [SEVERAL, 1, SEVERAL]),
        (lambda net, x: net.conv(x + squared(x.mean((2, 3)))), [SEVERAL] * 3),
        (lambda net, x: net.conv(x + F.conv2d(x, x).mean((2, 3), keepdim=True)), [SEVERAL] * 3),
        (lambda net, x: net.conv(torch.ones(2, 3, 8, 8)) + 0 * x.mean(), [NO_PICTURE] * 2),
        (lambda net, x: net.conv(x * x[0].mean().item()), [0, SEVERAL, SEVERAL]),
        (lambda net, x: net.conv(F.batch_norm(x.flip(0), *[None] * 4, True)), [SEVERAL] * 3),
    ],
)
def test_rows_are_found_by_replacing_samples(function, expected):
    assert samples(Net(function), *pictures(3)) == [expected]


def test_rows_that_always_have_the_same_sum_are_distinguished():
    net = Net(lambda net, x: net.last(net.conv(x.flip(0)).mean((2, 3))), last=nn.Softmax(1))
    assert samples(net, *pictures(3), layer="last") == [[2, 1, 0]]


def test_two_inputs_joined_to_one_batch_are_distinguished():
    net = Net(lambda net, a, b: net.conv(torch.cat([b, a])))
    assert found(net, *pictures(2, 3)) == [[(1, 0), (1, 1), (1, 2), (0, 0), (0, 1)]]


def test_a_layer_after_two_inputs_meet_has_several_pictures():
    net = Net(lambda net, a, b: net.conv(a - b))
    assert found(net, *pictures(1, 1)) == [[SEVERAL]]


def test_inputs_without_influence_are_not_named():
    net = Net(lambda net, a, b: net.conv(b).mean((2, 3)) + a.mean())
    assert found(net, *pictures(1, 1)) == [[(1, 0)]]


def test_pictures_of_different_sizes_are_distinguished():
    def function(net, given):
        whole = given[0].new_zeros(2, 3, 9, 9)
        for row, picture in zip(whole, given, strict=True):
            row[:, : picture.shape[1], : picture.shape[2]].copy_(picture)
        return net.conv(whole)

    net = Net(function)
    session = Session(net, prepare_input([torch.rand(3, 8, 9), torch.rand(3, 9, 7)], net))
    assert call_origins(session, ["conv"])["conv", 0] == ((0, 0), (1, 0))


def test_a_recurrent_layer_keeps_samples_apart():
    def function(net, x):
        return net.last(tokens(net, x))[0].mean(1)

    net = Net(function, last=nn.LSTM(4, 4, batch_first=True))
    assert samples(net, *pictures(3), layer="last") == [[0, 1, 2]]


def test_many_samples_take_few_runs():
    runs = []
    net = Net(lambda net, x: runs.append(1) or net.conv(x.flip(0)))
    assert samples(net, *pictures(20)) == [[*range(19, -1, -1)]]
    assert len(runs) == 1 + 1 + 4 * 5


def test_a_model_that_raises_on_noise_has_unknown_pictures():
    expected = pictures(2)[0].sum()

    def function(net, x):
        assert torch.equal(x.sum(), expected)
        return net.conv(x.flip(0))

    assert samples(Net(function), *pictures(2)) == [[UNKNOWN, UNKNOWN]]


def test_rows_whose_number_depends_on_values_are_unknown():
    net = Net(lambda net, x: net.conv(x[x.mean((1, 2, 3)) > x.mean()]))
    (rows,) = samples(net, *pictures(4))
    assert set(rows) <= {UNKNOWN, SEVERAL}


# The rules for single operations


@pytest.mark.parametrize("name", CALLS)
def test_kept_dimensions_do_not_mix_values(name):
    """Change one index of a dimension: only the same index of the result may change."""
    checked = 0
    for function, (args, kwargs, _) in recorded(CALLS[name]).items():
        operation = Operation(function, clone(args), clone(kwargs), None)
        if operation.name in BATCH_NORMS or name in ("sparse", "recurrence", "random", "dropout"):
            continue  # statistics do not count; random numbers change
        operation.run()
        for place, tensor in enumerate(operation.inputs):
            axes = range(tensor.ndim) if tensor.is_floating_point() else ()
            for axis, (number, made) in (
                (a, m) for a in axes for m in enumerate(operation.outputs)
            ):
                new_axis = axis_kept(operation, made, tensor, axis)
                if new_axis is None or operation.is_view or tensor.shape[axis] < 2:
                    continue
                other = Operation(function, clone(args), clone(kwargs), None)
                before = Operation(function, clone(args), clone(kwargs), None)
                other.inputs[place].select(axis, 1).mul_(0.5).add_(0.1)
                before.run(), other.run()
                where = changed(before.outputs[number], other.outputs[number])
                where = where.movedim(new_axis, 0)
                where = where.reshape(len(where), -1).any(1)
                where[1] = False
                assert not where.any(), (function, axis)
                checked += 1
    known = {"activations", "arithmetic", "copies", "layers", "attention", "pools", "reductions"}
    assert checked or name not in known
