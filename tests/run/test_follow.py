"""Following tensors through a run: their sources, and the norm and activation after a layer."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hookviz.run.inputs import prepare_input
from hookviz.run.recorder import OperationRecorder
from hookviz.run.session import Session
from hookviz.studies.graph.kernels import layer_weights
from hookviz.studies.graph.listener import GraphListener
from hookviz.studies.graph.stages import ACTIVATED, NORMALIZED, stages_of


def sources(function, *tensors):
    """Return the names of the arguments that the result of a function depends on."""
    listener = GraphListener([])
    for name, tensor in zip("abc", tensors, strict=False):
        listener.add((name, 0), "input", [], [tensor])
    with torch.no_grad(), OperationRecorder(listener):
        result = function(*tensors)
    node = listener.marks.get(result)
    found = () if node is None else listener.sources_of([node])
    return "".join(sorted(listener.nodes[each].layer for each in found))


def written(a, b, index):
    a = a.clone()
    a[index] = b[index]
    return a


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: a.relu() + 1, "a"),
        (lambda a, b: a - b, "ab"),
        (lambda a, b: torch.cat([a, b])[:2], "ab"),
        (lambda a, b: a[b.argsort(0)], "ab"),
        (lambda a, b: torch.where(a > 0, b, 0), "ab"),
        (lambda a, b: torch.zeros_like(a) + b, "b"),
        (lambda a, b: a.new_full(b.shape, 2.0), ""),
        (lambda a, b: torch.rand_like(a), ""),
        (lambda a, b: torch.bernoulli(a.sigmoid()), "a"),
        (lambda a, b: a.clone().copy_(b), "b"),
        (lambda a, b: a.clone().fill_(3), ""),
        (lambda a, b: a.clone().normal_(), ""),
        (lambda a, b: a.clone().add_(b), "ab"),
        (lambda a, b: torch.add(a, a, out=b.clone()), "a"),
        (lambda a, b: a.detach().half().mT, "a"),
        (lambda a, b: written(a, b, slice(0, 1)), "ab"),
        (lambda a, b: written(a, b, slice(None)), "b"),
        (lambda a, b: torch.linspace(a[0, 0], 3, 4), "a"),
        (lambda a, b: F.rrelu(a), "a"),  # also writes into a tensor of noise
        (lambda a, b: b.resolve_conj().contiguous(), "b"),
    ],
)
def test_a_results_sources_are_those_its_values_depend_on(function, expected):
    assert sources(function, torch.rand(4, 4), torch.rand(4, 4)) == expected


def test_memory_that_is_partly_overwritten_keeps_its_first_source():
    def function(a, b, c):
        whole = c.clone()
        torch.add(a[:1], b[:1], out=whole[:1])
        return whole

    assert sources(function, torch.rand(4), torch.rand(4), torch.rand(4)) == "abc"


def test_following_keeps_no_tensor_alive():
    listener = GraphListener([])

    with OperationRecorder(listener):
        tensor = torch.zeros(4)
        listener.add(("tensor", 0), "input", [], [tensor])
        result = tensor + 1
        ends = weakref.ref(tensor), weakref.ref(result)
        del tensor, result
        gc.collect()
        assert [end() for end in ends] == [None, None]
    assert not list(listener.marks.values())


class ConvolutionAndFunction(nn.Module):
    """A convolution and the function that takes its output."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 1), function

    def forward(self, x):
        return self.function(self.conv(x)).sum()


def followed(function):
    model = ConvolutionAndFunction(function).eval()
    return model, Session(model, prepare_input(torch.rand(2, 3, 4, 4), model))


norm = nn.BatchNorm2d(4)
nn.init.uniform_(norm.running_var, 0.5, 2)
slopes = torch.full((4,), 0.1)


def overwritten(y):
    y[:1] = 0
    return norm(y).relu()


@pytest.mark.parametrize(
    ("function", "steps"),
    [
        (lambda y: norm(y).relu(), {NORMALIZED, ACTIVATED}),
        (lambda y: F.group_norm(y, 2), {NORMALIZED}),
        (F.instance_norm, {NORMALIZED}),
        (lambda y: F.layer_norm(y, [4]), {NORMALIZED}),
        (lambda y: F.prelu(y, slopes), {ACTIVATED}),  # torch runs it as prelu_kernel
        (F.logsigmoid, {ACTIVATED}),
        (F.softshrink, {ACTIVATED}),
        (F.rrelu, {ACTIVATED}),
        (lambda y: y * y.sigmoid(), {ACTIVATED}),
        (lambda y: y.mul_(y.sigmoid()), {ACTIVATED}),
        (lambda y: norm(y.double().float()).relu_(), {NORMALIZED, ACTIVATED}),
        (lambda y: norm(y.permute(0, 1, 3, 2).contiguous()), {NORMALIZED}),
        (lambda y: y + 1, set()),
        (lambda y: y.softmax(1), set()),
        (lambda y: F.dropout(y, training=True).relu(), set()),
        (lambda y: y[:1].relu(), set()),
        (overwritten, set()),
    ],
)
def test_a_direct_norm_and_activation_are_found(function, steps):
    model, session = followed(function)
    (found,) = stages_of(session, model.conv)
    assert set(found) == steps
    if steps == {ACTIVATED}:
        torch.testing.assert_close(
            found[ACTIVATED], function(model.conv(session.inputs.args[0])).detach()
        )


@pytest.mark.parametrize(
    ("function", "follows"),
    [
        (norm, True),
        (lambda y: F.batch_norm(y, norm.running_mean, norm.running_var), True),
        (lambda y: norm(y.double().float()), True),
        (lambda y: norm(F.dropout(y, training=True)), False),  # dropout changes the values
        (lambda y: norm(y.relu()), False),
        (lambda y: norm(y + 1), False),
        (nn.BatchNorm2d(4, track_running_stats=False), False),
        (lambda y: F.batch_norm(y, None, None, training=True), False),
        (lambda y: F.group_norm(y, 2), False),
        (overwritten, False),
    ],
)
def test_only_a_direct_batch_norm_is_folded(function, follows):
    norm.eval()
    _, session = followed(function)
    assert (layer_weights(session, "conv").scale is not None) == follows
