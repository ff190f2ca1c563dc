"""Several threads use one model: their calls stay separate, and training continues."""

import threading

import pytest
import torch
from torch import nn

import hookviz
from hookviz.hooking import threads


class Meeting(nn.Module):
    """A layer that waits until the expected number of threads has reached it."""

    def __init__(self, parties):
        super().__init__()
        self.barrier = threading.Barrier(parties)

    def forward(self, x):
        self.barrier.wait(60)
        return x


def network(parties):
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), Meeting(parties), nn.ReLU(), nn.Conv2d(2, 3, 3), nn.Flatten()
    ).eval()


def in_threads(*works):
    """Run functions in parallel, and return their results or exceptions."""
    results = [None] * len(works)

    def run(place, work):
        try:
            results[place] = work()
        except BaseException as error:
            results[place] = error

    started = [threading.Thread(target=run, args=thread) for thread in enumerate(works)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return results


def test_captures_of_two_threads_stay_separate():
    model = network(2)

    def work(value):
        x = torch.full((1, 1, 8, 8), value)
        with hookviz.capture(model) as cache:
            (model(x).sum() * value).backward()
        return cache

    for value, cache in zip(
        (1.0, 2.0), in_threads(lambda: work(1.0), lambda: work(2.0)), strict=True
    ):
        assert [len(record.calls) for record in cache.values()] == [1, 1]
        assert torch.equal(cache["0"].activation, model[0](torch.full((1, 1, 8, 8), value)))
        assert torch.equal(cache["3"].gradient, torch.full((1, 3, 4, 4), value))


def test_a_run_in_a_thread_without_its_own_block_is_captured():
    model, x = network(1), torch.ones(1, 1, 8, 8)
    with hookviz.capture(model) as cache:
        in_threads(lambda: model(x))
    assert len(cache["0"].calls) == 1


def test_a_watched_training_continues_beside_explorers(monkeypatch):
    monkeypatch.setattr(threads, "PATIENCE", 300.0)  # after it, a thread goes on beside the other
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watch, over = hookviz.watch(model, every=1), threading.Event()
    messages = []

    def train():
        try:
            for _ in range(12):
                with watch:
                    optimizer.zero_grad()
                    output = model(torch.rand(4, 3, 8, 8))
                    nn.functional.cross_entropy(output, torch.arange(4)).backward()
                optimizer.step()
        finally:
            over.set()

    def look():
        while not over.is_set():
            try:
                hookviz.explore(model, torch.rand(1, 3, 8, 8)).close()
            except RuntimeError as error:  # the optimizer's step is outside the block
                messages.append(str(error))

    trained, looked = in_threads(train, look)
    assert trained is None and looked is None
    assert all("look at the model between two steps" in message for message in messages)
    assert int(model[1].num_batches_tracked) == 12
    assert len({record["step"] for record in watch.records()}) == 12
    assert {record["call"] for record in watch.records()} == {0}
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("own_block", [False, True])
def test_a_model_in_use_is_refused(own_block, monkeypatch):
    monkeypatch.setattr(threads, "PATIENCE", 1e-3)
    model, x = network(1), torch.ones(1, 1, 8, 8)
    begun, ended = threading.Event(), threading.Event()

    def hold():
        with hookviz.capture(model):
            begun.set()
            ended.wait(60)

    def look():
        begun.wait(60)
        try:
            with pytest.raises(
                RuntimeError, match="Another thread uses this model in a block"
            ) as error:
                if own_block:
                    with hookviz.capture(model):
                        hookviz.trace(model, x)
                else:
                    hookviz.trace(model, x)
        finally:
            ended.set()
        return str(error.value)

    holder, message = in_threads(hold, look)
    assert holder is None and isinstance(message, str) and "\n" not in message
    assert len(hookviz.trace(model, x))  # the model is free again


class NestedBackward(torch.autograd.Function):
    """The identity; its backward runs a function inside ``depth`` more backward passes."""

    @staticmethod
    def forward(ctx, x, function, depth):
        ctx.function, ctx.depth = function, depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.depth:
            run_nested(ctx.function, ctx.depth - 1)
        else:
            ctx.function()
        return gradient, None, None


def run_nested(function, depth):
    """Run a function inside nested backward passes; beyond 60, torch starts a new thread."""
    with torch.enable_grad():
        NestedBackward.apply(torch.zeros((), requires_grad=True), function, depth).backward()


@pytest.mark.parametrize("planted", [False, True])
def test_a_backward_in_a_thread_started_by_torch_is_examined(planted):
    """On an accelerator, every backward runs in such a thread, without Python frames below it."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    x, labels = torch.randn(2, 1, 8, 8), torch.tensor([0, 2])
    ran_in = []

    def backward():
        ran_in.append(threading.get_ident())
        loss.backward()

    with hookviz.diagnose(model) as findings:
        loss = nn.functional.cross_entropy(model(x), labels)
        if planted:  # sqrt has an infinite slope at 0, so only the backward has a fault
            loss = (loss - loss.detach()).sqrt()
        run_nested(backward, 70)
    assert ran_in != [threading.get_ident()]
    assert findings.healthy is not planted
    assert {finding.phase for finding in findings} == ({"backward"} if planted else set())
