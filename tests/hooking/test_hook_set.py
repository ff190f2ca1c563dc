"""The hook manager registers and removes all hooks together; copies of the model are not hooked."""

import copy
import io
import pickle
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.hooking.handles import HookManager


def empty_hook(*given):
    return None


def net():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True)).eval()


def test_hooks_run_in_the_given_order():
    fired, model = [], nn.ReLU()
    hooks = [(model, "forward", lambda *given, at=at: fired.append(at)) for at in range(3)]
    with HookManager(hooks):
        model(torch.zeros(1))
    model(torch.zeros(1))
    assert fired == [0, 1, 2]


def test_no_hook_stays_if_a_registration_raises():
    model = nn.Sequential(*[nn.ReLU() for _ in range(20)])
    before = snapshot(model)
    hooks = [(module, "forward", empty_hook) for module in model]
    hooks[10] = (model[10], "no such kind", empty_hook)
    with pytest.raises(AttributeError), HookManager(hooks):
        pass
    assert_untouched(model, before)


def test_a_hook_that_outlives_its_block_does_nothing():
    model, runs = nn.ReLU(), []
    with HookManager([(model, "forward", lambda *given: runs.append(1))]):
        remaining = model._forward_hooks.copy()  # a library may replace the dict like this
    model._forward_hooks = remaining
    model(torch.zeros(1))
    assert not runs


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "save", "averaged", "state_dict"])
def test_copies_made_within_the_block_are_not_captured(how):
    model, x = net(), torch.rand(1, 1, 6, 6)
    with hookviz.capture(model, inputs=True) as cache:
        model(x)
        if how == "deepcopy":
            copied = copy.deepcopy(model)
        elif how == "pickle":
            copied = pickle.loads(pickle.dumps(model))
        elif how == "save":
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            copied = torch.load(file, weights_only=False)
        elif how == "averaged":
            copied = torch.optim.swa_utils.AveragedModel(model)
        else:
            copied = net()
            copied.load_state_dict(copy.deepcopy(model.state_dict()))
        torch.testing.assert_close(copied(x), model(x))
        assert len(cache["0"].calls) == 2  # calls of the model, not of the copy
    hooks = [hook for module in copied.modules() for hook in module._forward_hooks.values()]
    assert all(
        hook.__self__.__class__ is nullcontext for hook in hooks
    )  # no reference to the cache
    held = cache.nbytes
    copied(x)
    assert cache.nbytes == held
    assert {hook.origin for hook in hookviz.hooks(copied)} <= {"hookviz"}
    kinds = [finding.kind for finding in hookviz.diagnose(copied, x)]
    assert "hooks left behind" not in kinds


def test_pickles_made_within_the_block_do_not_need_hookviz():
    with hookviz.capture(model := net(), inputs=True):
        pickled = pickle.dumps(model)
    assert b"hookviz" not in pickled


def test_shallow_copies_are_not_captured():
    model, x = nn.Conv2d(1, 2, 3), torch.rand(1, 1, 6, 6)
    with hookviz.capture(model) as cache:
        model(x)
        copy.copy(model)(x)
    assert len(cache[""].calls) == 1


class BackwardOfNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_a_backward_that_returns_none_gives_no_gradient():
    model = nn.Conv2d(1, 2, 3)
    with hookviz.capture(model, inputs=True) as cache:
        x = torch.rand(1, 1, 6, 6, requires_grad=True)
        out = model(x)
        (BackwardOfNone.apply(out).sum() + 0 * x.sum()).backward()
    assert cache[""].gradient is None
