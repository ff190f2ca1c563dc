"""Replays skip the modules before a changed layer only if the result is bitwise the same."""

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from untouched import assert_untouched, snapshot

import hookviz
from hookviz.run.replay import Replay

X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def runs(model, layer="second"):
    """Silence three channels, with and without replay; return the counts of both."""
    before, replay = snapshot(model), Replay(model, [model.get_submodule(layer)])

    def silenced(channel):
        with hookviz.edit(model, layer, 0, channels=channel):
            return model(X.clone())

    with torch.no_grad():
        for channel in range(3):
            made = replay.run(lambda c=channel: silenced(c), lambda: model(X.clone()))
            assert torch.equal(made, silenced(channel))
    assert_untouched(model, before)
    return replay.replayed, replay.whole


class Net(nn.Module):
    """Two convolutions with functions of the test between and after them."""

    def __init__(self, between=lambda y: y, after=lambda z, y: z):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.between, self.after = nn.BatchNorm2d(4).eval(), between, after

    def forward(self, x):
        y = self.between(self.norm(self.first(x)))
        return self.after(self.second(y), y)


@pytest.mark.parametrize("layer", ["conv1", "layer2.0.conv1", "layer4.1.conv2"])
def test_replays_equal_full_runs(layer):
    assert runs(torchvision.models.resnet18(num_classes=7).eval(), layer) == (3, 0)


@pytest.mark.parametrize(
    ("between", "after"),
    [
        (lambda y: F.relu(y, inplace=True) + y, lambda z, y: z),
        (lambda y: y.add_(1).mul_(y[:, :1]), lambda z, y: z + y[:, :1]),
        (lambda y: y * (2.0 if float(y.sum()) > 0 else 3.0), lambda z, y: F.relu_(z) * y),
        (lambda y: y.to(memory_format=torch.channels_last), lambda z, y: z),
        (lambda y: torch.from_numpy(y.numpy()[:, ::-1].copy()), lambda z, y: z),
    ],
)
def test_functions_around_the_layer_run_again(between, after):
    assert runs(Net(between, after)) == (3, 0)


def test_a_layer_that_runs_twice_is_replayed_from_its_first_call():
    model = Net()
    model.second = model.first = nn.Conv2d(3, 3, 3)
    model.norm = nn.ReLU()
    assert runs(model) == (3, 0)


def test_in_a_sequential_only_the_last_output_is_recorded():
    model = nn.Sequential(*(nn.Conv2d(3, 3, 3) for _ in range(5)))
    assert runs(model, "4") == (3, 0)
    replay = Replay(model, [model[4]])
    with torch.no_grad():
        replay.run(lambda: model(X), lambda: model(X))
    ((_, *others, last),) = (recording for recording in replay._recordings.values())
    assert last[1].isfinite().all() and all(value.isnan().all() for _, value in others)


def test_hooks_within_a_skipped_module_still_run():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), nn.ReLU())
    replay, shapes = Replay(model, [model[1]]), []

    def hooked():
        with hookviz.capture(model, "0.0") as cache:
            output = model(X)
        shapes.append(cache["0.0"].activation.shape)
        return output

    with torch.no_grad():
        assert torch.equal(replay.run(hooked, lambda: model(X)), model(X))
    assert shapes == [(2, 4, 30, 30)]
    assert replay.replayed == 1


def test_a_module_that_writes_to_an_input_in_use_is_not_skipped():
    model = Net(lambda y: (model.writes(y), y)[1])
    model.writes = nn.ReLU(inplace=True)
    assert runs(model) == (0, 3)


@pytest.mark.parametrize("case", ["another order", "random numbers", "a layer that never runs"])
def test_models_that_cannot_be_replayed_run_in_full(case):
    model, calls = Net(), []

    def run():
        calls.append(0)
        if case == "another order" and len(calls) % 2:
            return model.second(model.first(X))
        return model(X) + (torch.rand(()) if case == "random numbers" else 0)

    replay = Replay(model, [nn.ReLU() if case == "a layer that never runs" else model.second])
    with torch.no_grad():
        for _ in range(3):
            replay.run(run, run)
    assert (replay.replayed, replay.whole) == (0, 3)


def test_a_run_that_omits_modules_is_not_replayed():
    model = Net()
    replay = Replay(model, [model.second])
    with torch.no_grad():
        made = replay.run(lambda: model.second(model.first(X)), lambda: model(X))
    assert torch.equal(made, model.second(model.first(X)))
    assert (replay.replayed, replay.whole) == (0, 1)


def test_errors_of_the_model_are_raised_unchanged():
    model = Net()
    before, replay = snapshot(model), Replay(model, [model.second])

    def failing():
        with hookviz.edit(model, "second", lambda y: 1 / 0):
            model(X)

    with torch.no_grad(), pytest.raises(RuntimeError, match="ZeroDivisionError"):
        replay.run(failing, lambda: model(X))
    assert_untouched(model, before)


def test_each_batch_size_is_recorded_separately():
    model = Net()
    replay = Replay(model, [model.second])
    with torch.no_grad():
        for batch in (X, X[:1], X):
            run = lambda batch=batch: model(batch)  # noqa: E731
            assert torch.equal(replay.run(run, run, len(batch)), model(batch))
    assert replay.replayed == 3
