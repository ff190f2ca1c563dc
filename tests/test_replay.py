"""Replays skip the operations before a changed layer only if the result is the same to the bit."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

import hookviz
from hookviz.run.replay import Replay

X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def runs(model, layer, x=X, changes=(0, 1, 2)):
    """Run with each channel silenced, replayed and whole; also return the replay."""
    replay = Replay([model.get_submodule(layer)])

    def silenced(channel):
        with hookviz.edit(model, layer, 0, channels=channel):
            return model(x.clone())

    with torch.no_grad():
        found = [replay.run(lambda c=c: silenced(c), lambda: model(x.clone())) for c in changes]
        wanted = [silenced(channel) for channel in changes]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    return replay


class Net(nn.Module):
    """Two convolutions, and a test's functions before, between and after them."""

    def __init__(self, before=lambda x: x, between=lambda y, x: y, after=lambda z, y: z):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.parts = before, between, after

    def forward(self, x):
        before, between, after = self.parts
        x = before(x)
        y = between(self.first(x), x)
        return after(self.second(y), y)


def assert_replayed(model, layer="second"):
    replay = runs(model, layer)
    assert (replay.replayed, replay.whole) == (3, 0)


def assert_whole(model, layer="second"):
    replay = runs(model, layer)
    assert (replay.replayed, replay.whole) == (0, 3)


@pytest.mark.parametrize("layer", ["conv1", "layer2.0.conv1", "layer4.1.conv2"])
def test_replays_equal_whole_runs(layer):
    torch.manual_seed(0)
    assert_replayed(torchvision.models.resnet18(num_classes=7).eval(), layer)


@pytest.mark.parametrize(
    "between",
    [
        lambda y, x: F.relu_(y),
        lambda y, x: F.relu(y, inplace=True) + y,
        lambda y, x: y.add_(1).mul_(y[:, :1]),
        lambda y, x: torch.cat([y[:, 2:], y[:, :2]], 1),
        lambda y, x: y * (2.0 if float(y.sum()) > 0 else 3.0),
        lambda y, x: y[:, torch.arange(3, -1, -1)],
        lambda y, x: y.to(memory_format=torch.channels_last),
        lambda y, x: torch.stack(y.split(1, 1)).squeeze(2).movedim(0, 1),
        lambda y, x: y.clone().unsqueeze_(0).squeeze_(0),
    ],
)
def test_in_place_operations_before_the_layer_are_replayed(between):
    assert_replayed(Net(between=between))


def test_values_that_are_read_after_the_layer_are_restored():
    assert_replayed(Net(between=lambda y, x: F.relu_(y), after=lambda z, y: z + y))
    assert_replayed(Net(after=lambda z, y: z + y[:, :1]))
    squares = []
    assert_replayed(
        Net(
            between=lambda y, x: squares.append(y.square()) or y,
            after=lambda z, y: F.relu_(z) * squares.pop(),
        )
    )


def test_a_layer_that_runs_twice_is_replayed_from_its_first_call():
    model = Net()
    model.second = model.first = nn.Conv2d(3, 3, 3)
    assert_replayed(model)


def test_models_that_draw_random_numbers_run_whole():
    noisy = Net(between=lambda y, x: y + torch.rand(y.shape, generator=torch.manual_seed(0)))
    assert_whole(noisy)


def test_models_that_write_to_other_memory_run_whole():
    count = torch.zeros(())
    counting = Net(between=lambda y, x: y + count.add_(1) * 0)
    assert_whole(counting)
    assert count == 6  # three runs each: the recording was discarded


@pytest.mark.parametrize("read", [lambda y: float(y.numpy().sum()), lambda y: y.flatten().tolist()])
def test_models_that_read_values_outside_torch_run_whole(read):
    values = []
    assert_replayed(Net(between=lambda y, x: y * torch.tensor(read(y)).sum()))  # skipped with y
    model = Net(
        between=lambda y, x: values.append(read(y)) or y,
        after=lambda z, y: z * torch.tensor(values.pop()).sum(),
    )
    assert_whole(model)


def test_runs_that_differ_from_the_recording_run_whole():
    calls = []

    def between(y, x):
        calls.append(0)
        return y.sin() if len(calls) % 2 else y.cos()

    model = Net(between=between)
    replay = Replay([model.second])
    with torch.no_grad():
        for _ in range(3):
            replay.run(lambda: model(X), lambda: model(X))
    assert (replay.replayed, replay.whole) == (0, 3)


def test_models_that_skip_the_layer_run_whole():
    model, other = Net(), nn.ReLU()
    replay = Replay([other])
    with torch.no_grad():
        assert torch.equal(replay.run(lambda: model(X), lambda: model(X)), model(X))
    assert replay.whole == 1


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return operation(*args, **(kwargs or {}))


def test_dispatch_modes_of_the_model_are_respected():
    def between(y, x):
        modes.append(Counting())
        modes[-1].__enter__()
        return y

    def after(z, y):
        modes.pop().__exit__(None, None, None)
        return z

    modes = []
    assert_replayed(Net(between=between, after=after))
    assert _get_current_dispatch_mode() is None


def test_errors_of_the_model_are_raised_unchanged():
    model = Net()
    replay = Replay([model.second])

    def failing():
        with hookviz.edit(model, "second", lambda y: 1 / 0):
            model(X)

    with torch.no_grad(), pytest.raises(RuntimeError, match="ZeroDivisionError"):
        replay.run(failing, lambda: model(X))
    assert not model.second._forward_hooks


def test_each_batch_size_is_recorded():
    model = Net()
    replay = Replay([model.second])
    with torch.no_grad():
        for batch in (X, X[:1], X):
            run = lambda batch=batch: model(batch)  # noqa: E731
            assert torch.equal(replay.run(run, run, len(batch)), model(batch))
    assert replay.replayed == 3
