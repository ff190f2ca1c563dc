"""Captured values equal the layers' outputs and gradients, also with in-place operations."""

import pytest
import torch
from architectures import model_of
from reference import assert_exact, true_outputs
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookviz


def score(output):
    output = output if isinstance(output, torch.Tensor) else output[0]
    return (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()


class Slice(nn.Module):
    """Returns a part of its result, as a view."""

    def forward(self, x):
        return x.sin()[:, 1:]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(Slice(), nn.ReLU(inplace=True)), (3, 4, 6)),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True)), (2, 6, 6)),
        (nn.Sequential(nn.Conv1d(2, 4, 3), nn.SiLU(inplace=True)), (2, 9)),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Identity()), (3, 2, 6, 6)),
    ],
)
def test_views_that_are_overwritten_keep_value_and_gradient(model, shape):
    """A convolution of one sample returns a view, and so does a Flatten."""
    x = torch.randn(shape, requires_grad=True)
    kinds = (nn.Conv1d, nn.Conv2d, nn.Flatten, Slice)
    with true_outputs(model, lambda module: isinstance(module, kinds)) as truths:
        score(model(x)).backward()
    with hookviz.capture(model, kinds) as cache:
        score(model(x)).backward()
    assert assert_exact(cache, truths) == sum(map(len, truths.values()))
    assert all(record.gradient is not None for record in cache.values())


@pytest.mark.parametrize("of_a_view", [False, True])
def test_an_overwritten_view_of_an_input_gets_no_wrong_gradient(of_a_view):
    """The view's base has other uses, whose gradient is not the layer's."""
    model = nn.Flatten()
    w = torch.rand(2, 2, 3, requires_grad=True)
    with hookviz.capture(model, "") as cache:
        x = w - 0.3
        x = x[:] if of_a_view else x
        skip = x.sigmoid()  # a second use that bypasses the layer
        y = torch.relu_(model(x))
        (10 * skip.flatten(1) + 3 * y).sum().backward()
    assert cache[""].gradient is None


def test_a_recursive_layer_has_the_inputs_of_each_call():
    model = model_of(
        lambda m, x, deep=2: m(m.conv(x), deep - 1) if deep else x, conv=nn.Conv2d(1, 1, 1)
    )
    with hookviz.capture(model, "", inputs=True) as cache:
        model(torch.ones(1, 1, 2, 2))
    assert [len(call.inputs) for call in cache[""].calls] == [1, 1, 1]


def test_sparse_tensors_are_captured():
    """In test_others.py, quantized and complex ones are."""
    model, x = model_of(lambda m, x: x.relu().to_sparse()), torch.randn(2, 3, 4, 4)
    with hookviz.capture(model, "") as cache:
        out = model(x)
    assert torch.equal(cache[""].activation.to_dense(), out.to_dense())
    assert cache[""].calls[0].outputs[0].statistics.nans == 0
    assert "2×3×4×4" in repr(cache)


def test_a_shared_module_has_one_record_under_all_names():
    shared = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
    with hookviz.capture(model) as cache:
        model["b"](model["a"](torch.randn(1, 3, 5, 5)))
    assert cache["a"] is cache["b.0"]
    assert len(cache["a"].calls) == 2
    assert list(cache) == ["a"] and cache["a"].aliases == ("b.0",)
    assert "b.0" in cache


def test_inputs_and_their_gradients_are_captured():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
    x = torch.randn(1, 3, 8, 8, requires_grad=True)
    with hookviz.capture(model, (nn.Conv2d, nn.ReLU), inputs=True) as cache:
        model(x).square().sum().backward()
    # Reference: the same network without in-place operations.
    y = x.detach().clone().requires_grad_()
    first = model[0](y)
    middle = first.relu()
    result = model[2](middle)
    truths = [y, first, middle, result]
    gradients = torch.autograd.grad(result.square().sum(), truths)
    for index in range(3):
        record = cache[str(index)]
        assert torch.equal(record.input, truths[index])
        assert torch.equal(record.activation, truths[index + 1])
        assert torch.allclose(record.input_gradient, gradients[index])
        assert torch.allclose(record.gradient, gradients[index + 1])
    assert not x._backward_hooks  # the hook on the user's tensor was removed


def test_gradients_are_of_the_latest_backward():
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False))
    with hookviz.capture(model) as cache:
        out = model(torch.ones(1, 1, 2, 2))
        out[0, 0].sum().backward(retain_graph=True)
        first = cache["0"].gradient
        torch.autograd.grad(3 * out[0, 1].sum(), out)
    assert first[0, 0].eq(1).all()
    assert first[0, 1].eq(0).all()
    assert cache["0"].gradient[0, 0].eq(0).all()
    assert cache["0"].gradient[0, 1].eq(3).all()


def test_gradients_are_copied_before_other_hooks_change_them():
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    with hookviz.capture(model) as cache:
        out = model(torch.ones(1, 1, 2, 2))
        out.register_hook(lambda gradient: gradient.mul_(0))  # overwrites the gradient
        (out * torch.ones(1, 1, 2, 2)).sum().backward()
    assert cache["0"].gradient.eq(1).all()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("inputs", [False, True])
def test_reruns_of_checkpointing_do_not_count_as_calls(reentrant, inputs):
    def checkpointed(m, x):
        for block in m.blocks:
            step = lambda y, block=block: m.shared(block(y))  # noqa: E731
            x = checkpoint(step, x, use_reentrant=reentrant) if m.rerun else step(x)
        return x

    model = model_of(
        checkpointed,
        blocks=nn.ModuleList(
            nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(inplace=True)) for _ in range(2)
        ),
        shared=nn.Conv2d(3, 3, 1),
        rerun=True,
    )
    x = torch.randn(1, 3, 6, 6, requires_grad=True)
    model.rerun = False
    with true_outputs(model) as truths:
        score(model(x)).backward()
    model.rerun = True
    with hookviz.capture(model, inputs=inputs) as cache:
        score(model(x)).backward()
    assert assert_exact(cache, truths) == 4
    if inputs:
        assert all(call.input_gradient is not None for call in cache["shared"].calls)


def test_checkpointed_calls_of_equal_values_keep_their_gradients():
    def twice(m, x):
        first, second = (checkpoint(m.conv, x, use_reentrant=True) for _ in range(2))
        return first + 3 * second

    model, x = model_of(twice, conv=nn.Conv2d(3, 3, 1)), torch.rand(1, 3, 2, 2, requires_grad=True)
    with hookviz.capture(model) as cache:
        model(x).sum().backward()
    assert [call.gradient.unique().item() for call in cache["conv"].calls] == [1, 3]
