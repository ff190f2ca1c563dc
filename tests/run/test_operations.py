"""The table of torch's operations: models run no unknown ones, and the kinds hold in practice."""

import architectures
import pytest
import torch
import torch.nn.functional as F
from heavy import heavy_but
from torch import nn

from hookviz.hooking.storage import share_memory
from hookviz.hooking.tensors import map_tensors, tensors
from hookviz.run.operations import (
    BATCH_NORMS,
    CLAMPS,
    ELEMENTWISE_KINDS,
    FACTORS,
    OVERWRITING,
    PROBABILITIES,
    RECTIFIERS,
    STEPS,
    UNINITIALIZED,
    Kind,
    operation_type,
)
from hookviz.run.recorder import Listener, OperationRecorder

aten = torch.ops.aten


class Recorded(Listener):
    """Listener that copies the arguments of each operation's first run."""

    def __init__(self):
        self.runs = {}

    def before(self, operation):
        assert operation.kind is not Kind.UNKNOWN, operation.function
        small = sum(tensor.numel() for tensor in operation.inputs) < 1_000_000
        new = small and operation.function not in self.runs
        operation.notes[self] = clone((operation.args, operation.kwargs)) if new else None

    def after(self, operation):
        if operation.notes[self] is not None:
            shared = any(share_memory(a, b) for a in operation.inputs for b in operation.outputs)
            self.runs[operation.function] = (*operation.notes[self], shared)


def clone(value):
    return map_tensors(value, lambda tensor: tensor.detach().clone())


def recorded(function):
    listener = Recorded()
    torch.manual_seed(0)
    with torch.no_grad(), OperationRecorder(listener):
        function()
    return listener.runs


def result(function, args, kwargs, seed=0):
    torch.manual_seed(seed)
    return tensors(function(*clone(args), **clone(kwargs)))


def changed(before, after):
    """Return the mask of values that differ; NaN equals NaN."""
    return ~((before == after) | ((before != before) & (after != after)))


def assert_elementwise(function, args, kwargs):
    """Change one value of each floating-point input, and compare the positions that change."""
    before = result(function, args, kwargs)[0]
    inputs = [tensor for tensor in tensors(args, kwargs) if tensor.is_floating_point()]
    for number, tensor in enumerate(inputs):
        if tensor.shape != before.shape or not tensor.numel():
            continue  # a parameter, or broadcast
        index = tuple(size // 2 for size in tensor.shape)
        new_args, new_kwargs = clone((args, kwargs))
        changed_inputs = [
            tensor for tensor in tensors(new_args, new_kwargs) if tensor.is_floating_point()
        ]
        changed_inputs[number][index] = 0.3 - changed_inputs[number][index]
        where = changed(before, result(function, new_args, new_kwargs)[0])
        where[index] = False
        assert not where.any(), function


def assert_kind_holds(function, args, kwargs, shared):
    kind, outputs = operation_type(function).kind, result(function, args, kwargs)
    inputs = tensors(args, kwargs)
    if kind is Kind.VIEW:
        assert shared or not inputs, function
    elif kind in ELEMENTWISE_KINDS:
        assert_elementwise(function, args, kwargs)
    elif operation_type(function).of_shapes and kind is Kind.FACTORY:
        if operation_type(function).name not in UNINITIALIZED:
            other = result(function, *map_tensors((args, kwargs), torch.zeros_like))
            assert all(map(torch.equal, outputs, other)), function
    elif kind is Kind.SOFTMAX:
        probabilities = (
            outputs[0] if operation_type(function).name in PROBABILITIES else outputs[0].exp()
        )
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        torch.testing.assert_close(probabilities.sum(dim), torch.ones_like(probabilities.sum(dim)))
    elif kind in (Kind.SELECTION, Kind.REARRANGEMENT, Kind.CONCATENATION, Kind.SORTING):
        values = torch.cat([each.flatten().double() for each in inputs if not each.is_complex()])
        if operation_type(function).name not in _NEW_VALUES:
            assert torch.isin(outputs[0].double(), torch.cat([values, values.new_zeros(1)])).all()
    elif kind is Kind.RANDOM:
        first, second = result(function, args, kwargs, 1)[0], result(function, args, kwargs, 2)[0]
        assert changed(first, second).any(), function
    elif kind is Kind.POOLING:
        assert outputs[0].shape[:-3] == inputs[0].shape[:-3], function
    elif kind in (Kind.CONVOLUTION, Kind.PRODUCT):  # linear in the first argument
        name = FACTORS.get(operation_type(function).name, ("input",))[0]
        arguments = operation_type(function).defaults
        place = list(arguments).index(name)
        doubled = [2 * each if n == place else each for n, each in enumerate(args)]
        nothing = [0 * each if n == place else each for n, each in enumerate(args)]
        one, two, zero = (result(function, each, kwargs)[0] for each in (args, doubled, nothing))
        torch.testing.assert_close(two - one, one - zero, rtol=1e-3, atol=1e-4)
    elif kind is Kind.REDUCTION:
        assert outputs[0].numel() <= inputs[0].numel(), function
    elif kind is Kind.NORMALIZATION:
        assert outputs[0].shape == inputs[0].shape, function


_NEW_VALUES = {"glu", "col2im", "index_add", "scatter_add", "scatter_reduce", "embedding_bag"}
_NEW_VALUES |= {"index_put", "unique2", "index_reduce", "nonzero", "embedding_bag_forward_only"}


@pytest.mark.parametrize("name", heavy_but(architectures.QUICK, architectures.MODELS))
def test_models_run_no_operation_of_unknown_kind(name):
    model, x = architectures.built(name)
    runs = recorded(lambda: model(x))
    assert any(operation_type(function).kind is Kind.CONVOLUTION for function in runs)
    for function, (args, kwargs, shared) in runs.items():
        assert_kind_holds(function, args, kwargs, shared)


x = torch.linspace(-2.7, 3.1, 2 * 4 * 6 * 6).sin().mul(2).view(2, 4, 6, 6)
line, volume, rows = x.flatten(2), x.unflatten(2, (2, 3)), x[0, 0]
positive, index = x.abs() + 0.5, torch.tensor([1, 0, 3])
weight = torch.ones(4)
CALLS = {
    "activations": lambda: [
        function(x)
        for function in (
            *(F.relu, F.hardtanh, F.leaky_relu, F.elu, F.gelu, F.silu, F.mish, F.hardswish),
            *(F.hardsigmoid, F.softplus, F.logsigmoid, F.hardshrink, F.softshrink, torch.tanh),
            F.rrelu,
            lambda t: F.threshold(t, 0, 0),
            lambda t: F.prelu(t, weight * 0.1),
            lambda t: t.clamp(0, 1),
            lambda t: F.hardswish(t.clone(), inplace=True),
            lambda t: t.clone().clamp_min_(0).sigmoid_(),
        )
    ],
    "arithmetic": lambda: [
        *(x + x, x * x, positive**2, x // 2, 1 - x, x.exp(), x.round()),  # most have torch's tag
        *(torch.maximum(x, positive), torch.max(x, positive), x.lerp(positive, 0.5)),
        *(x > 0, (x > 0) & (x < 1), x.masked_fill(x > 0, 0.0), torch.where(x > 0, x, -x)),
        *(x.clone().mul_(x), x.addcmul(x, x), torch.complex(x, x), torch.special.erfcx(x)),
    ],
    "copies": lambda: [
        *(x.clone(), x.half(), x.to(torch.float64), x.mT.contiguous(), x.clone().copy_(x)),
        torch.tensor([1.0, 2.0]),
    ],
    "views": lambda: [
        *(x[:, 1:3], x.view(2, -1), x.detach(), x.chunk(2), x.expand(3, 2, 4, 6, 6)),
        *(x.unfold(2, 3, 1), x.unbind(0), x.squeeze()),
    ],
    "norms": lambda: [
        F.batch_norm(x, weight, weight, weight, weight),
        F.batch_norm(x, None, None, training=True),
        *(F.group_norm(x, 2), F.layer_norm(x, [6, 6]), F.rms_norm(x, [6])),
    ],
    "layers": lambda: [
        F.conv1d(line, torch.ones(2, 4, 3)),
        F.conv_transpose2d(x, torch.ones(4, 2, 3, 3)),
        F.conv3d(volume, torch.ones(2, 4, 1, 1, 1)),
        *(F.linear(x, rows, rows[0]), rows @ rows, x @ x, rows @ rows[0], rows[0] @ rows[0]),
        *(torch.einsum("nchw,ndhw->ncd", x, x), torch.baddbmm(x[0], x[0], x[0])),
    ],
    "attention": lambda: [
        F.scaled_dot_product_attention(x, x, x),
        nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()(x[0]),
        *(F.softmax(x, 1), F.log_softmax(x, 1), F.gumbel_softmax(x, dim=1)),
    ],
    "recurrence": lambda: [nn.LSTM(6, 3, batch_first=True)(x[0]), nn.GRUCell(6, 3)(rows)],
    "pools": lambda: [
        *(F.max_pool1d(line, 2), F.max_pool2d(x, 2), F.avg_pool3d(volume, (1, 1, 2))),
        *(F.adaptive_avg_pool2d(x, 2), F.adaptive_max_pool1d(line, 2), F.lp_pool2d(x**2, 2, 2)),
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    ],
    "resampling": lambda: [
        *(F.interpolate(line, scale_factor=2), F.interpolate(x, size=5, mode="bilinear")),
        *(F.interpolate(x, size=5, mode="bicubic"), F.interpolate(volume, size=(2, 3, 4))),
        F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False),
    ],
    "reductions": lambda: [
        *(x.sum(), x.mean((2, 3)), x.amax(1), x.max(), x.max(1), x.prod(), x.var(1), x.std()),
        *(torch.var_mean(x), x.norm(dim=1), x.argmax(1), x.any(), x.logsumexp(1), x.median()),
        *(x.aminmax(), F.normalize(x), x.count_nonzero(), rows.trace(), torch.histc(x)),
    ],
    "scans and sorting": lambda: [
        *(x.cumsum(1), x.cummax(1), x.sort(1), x.topk(2, 1), index.unique())
    ],
    "selections": lambda: [
        *(x[:, index], x[x > 0], x.index_select(1, index), rows.gather(1, index[None])),
        *(rows.take(index), F.embedding(index, rows), (x > 0).nonzero()),
        *(rows.index_add(0, index, rows[:3]), rows.scatter(1, index[None], 1.0)),
        rows.clone().index_put_((index,), rows[0]),
        *(rows.masked_scatter(rows > 0, rows), torch.select_scatter(rows, rows[0], 0, 1)),
    ],
    "rearrangements": lambda: [
        *(x.flip(3), x.roll(1, 2), x.repeat(1, 2, 1, 1), x.repeat_interleave(2, 1), x.tril()),
        *(F.pixel_shuffle(x, 2), F.channel_shuffle(x, 2), F.fold(F.unfold(x, 3), (6, 6), 3)),
        *(F.glu(x, 1), rows.diag_embed(), torch.block_diag(rows, rows)),
    ],
    "padding and joining": lambda: [
        *(F.pad(x, (1, 1)), F.pad(line, (1, 1), "reflect"), F.pad(line, (1, 1), "replicate")),
        *(torch.cat([x, x]), torch.stack([x, x])),
    ],
    "factories": lambda: [
        *(torch.zeros(2), torch.full((2,), 3.0), torch.eye(2), torch.arange(3), x.new_ones(2)),
        *(torch.linspace(0, 1, 3), torch.zeros_like(x), torch.full_like(x, 2)),
        *(x.new_zeros(2), torch.empty_like(x), x.clone().zero_(), torch.hann_window(3)),
    ],
    "random": lambda: [
        *(torch.rand(9), torch.randint(99, (9,)), torch.randperm(9), torch.rand_like(x)),
        *(torch.bernoulli(x.sigmoid()), x.clone().uniform_(), torch.normal(x, 1.0)),
        *(torch.multinomial(rows.abs(), 2), torch.poisson(9 * positive)),
    ],
    "dropout": lambda: [torch.native_dropout(x, 0.5, True), F.dropout2d(x), F.alpha_dropout(x)],
    "losses": lambda: [
        *(F.cross_entropy(rows, torch.arange(6)), F.mse_loss(x, -x), F.huber_loss(x, -x)),
        *(F.binary_cross_entropy(x.sigmoid(), x.sigmoid()), F.kl_div(x, positive, reduction="sum")),
        F.ctc_loss(F.log_softmax(x[0], -1), torch.ones(6, 1, dtype=torch.long), [4] * 6, [1] * 6),
    ],
    "transforms": lambda: [
        *(torch.fft.irfft(torch.fft.rfft(x)), torch.linalg.svd(rows), torch.cdist(x, x)),
        torch.linalg.solve(rows + 3 * torch.eye(6), rows),
    ],
    "queries": lambda: [x.sum().item(), torch.equal(x, x)],
    "sparse": lambda: [torch.sparse.mm(torch.eye(6).to_sparse(), rows).to_sparse().to_dense()],
}
KINDS = {  # kinds that each list of calls must contain
    "activations": {Kind.ACTIVATION},
    "copies": {Kind.COPY},
    "norms": {Kind.NORMALIZATION},
    "layers": {Kind.CONVOLUTION, Kind.PRODUCT},
    "attention": {Kind.ATTENTION, Kind.SOFTMAX},
    "pools": {Kind.POOLING, Kind.LOOKUP},
    "resampling": {Kind.RESAMPLING, Kind.LOOKUP},
    "losses": {Kind.LOSS},
    "dropout": {Kind.DROPOUT},
}


@pytest.mark.parametrize("name", CALLS)
def test_kinds_agree_with_the_operations_behaviour(name):
    runs = recorded(CALLS[name])
    assert KINDS.get(name, set()) <= {operation_type(function).kind for function in runs}
    for function, (args, kwargs, shared) in runs.items():
        if name not in ("sparse", "recurrence"):
            assert_kind_holds(function, args, kwargs, shared)


def test_gradients_are_backward_operations():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2))
    listener = Recorded()
    with OperationRecorder(listener):
        model(x).log_softmax(1).mean().backward()
    kinds = {kind.name: kind.kind for kind in map(operation_type, listener.runs)}
    assert kinds["convolution_backward"] is kinds["gelu_backward"] is Kind.BACKWARD


def test_sets_of_names_have_the_right_kinds():
    def kinds(names):
        packets = [getattr(aten, name, getattr(aten, f"{name}_", None)) for name in names]
        return {
            operation_type(getattr(packet, packet.overloads()[0])).kind
            for packet in packets
            if packet is not None
        }

    assert kinds(RECTIFIERS) == kinds(CLAMPS) == {Kind.ACTIVATION}
    assert kinds(STEPS) == {Kind.ELEMENTWISE}
    assert kinds(UNINITIALIZED) == {Kind.FACTORY}
    assert kinds(FACTORS) == {Kind.PRODUCT}
    assert kinds(OVERWRITING) == {Kind.COPY, Kind.FACTORY, Kind.RANDOM}
    assert "batch_norm" in BATCH_NORMS


@pytest.mark.parametrize("library", ["cudnn", "miopen"])
def test_a_batch_norm_has_the_same_name_and_arguments_on_each_device(library):
    plain = operation_type(aten.native_batch_norm.default)
    other = operation_type(getattr(aten, f"{library}_batch_norm").default)
    assert (other.name, other.kind, set(other.defaults)) == (
        plain.name,
        plain.kind,
        set(plain.defaults),
    )


def test_only_a_factory_is_independent_of_values():
    for factory in aten.zeros_like.default, aten.rand_like.default, aten.new_full.default:
        assert operation_type(factory).of_shapes
    # Their result depends on the values of a tensor.
    for other in aten.bernoulli.default, aten.fill_.Tensor, aten.affine_grid_generator.default:
        assert not operation_type(other).of_shapes
