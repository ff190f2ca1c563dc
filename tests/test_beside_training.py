"""Using hookviz between or around training steps does not change the training."""

import random
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import hookviz

STEPS, BATCH = 4, 8
PICTURES = torch.rand(32, 3, 12, 12, generator=torch.Generator().manual_seed(1))
LABELS = torch.randint(0, 4, (32,), generator=torch.Generator().manual_seed(2))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout2d(0.2),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8, 4),
    )


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def augmented(x):
    """Shift and mirror with numpy's and Python's random generators."""
    x = torch.roll(x, tuple(np.random.randint(-2, 3, 2)), (2, 3))
    return x.flip(3) if random.random() < 0.5 else x


def train(optimizer, look, autocast=False):
    """Return the losses and the final weights, buffers, optimizer state and generators."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    model = network().train()
    steps = OPTIMIZERS[optimizer](model.parameters())
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(steps, STEPS)
    losses = []

    def step():
        order = torch.randperm(len(PICTURES))[:BATCH]
        steps.zero_grad(set_to_none=not autocast)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = nn.functional.cross_entropy(model(augmented(PICTURES[order])), LABELS[order])
        loss.backward()
        look(model, "with gradients", lambda: None)
        steps.step()
        rate.step()
        losses.append(loss.item())

    for _ in range(STEPS):
        look(model, "around", step)
        look(model, "between", lambda: None)
    left = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    for state in steps.state.values():
        left += [value for value in state.values() if isinstance(value, torch.Tensor)]
    drawn = torch.rand(1).item(), np.random.rand(), random.random()
    return [*losses, *drawn], left


@cache
def alone(optimizer, autocast=False):
    """Train without hookviz."""
    return train(optimizer, nothing, autocast)


def nothing(model, when, step):
    step()


def explored(model, when, step):
    step()
    if when != "around":
        explorer = hookviz.explore(model, PICTURES[:2], target=1)
        explorer.layer, explorer.target = "4", 2
        explorer.close()


def captured(model, when, step):
    """Capture the training step itself, with its gradients."""
    with hookviz.capture(model, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU), inputs=True) as cache:
        step()
    if when == "around":
        assert cache["0"].gradient is not None
        assert len(cache["4"].calls) == 1


def guarded(model, when, step):
    with hookviz.diagnose(model) if when == "around" else nullcontext():
        step()


def forward_captured(model, when, step):
    """Run a forward and a backward to the input by hand, in eval mode."""
    step()
    if when == "between":
        with hookviz.capture(model.eval()):
            x = PICTURES[:2].clone().requires_grad_()
            torch.autograd.grad(model(x).sum(), x)
        model.train()


def explained(model, when, step):
    step()
    if when == "around":
        return
    hookviz.attribution.scorecam(model, PICTURES[:1], "4")
    hookviz.attribution.ablationcam(model, PICTURES[:1], "4")
    for method in hookviz.attribution.ATTRIBUTIONS:
        few = {"smoothgrad": {"nt_samples": 2}, "integrated_gradients": {"n_steps": 2}}
        hookviz.attribute(model, PICTURES[:1], method=method, **few.get(method, {}))
    explorer = hookviz.explore(model, PICTURES[:1])
    explorer.heatmaps("layercam")
    explorer.close()


@pytest.mark.parametrize("look", [explored, captured, guarded, forward_captured, explained])
@pytest.mark.parametrize(("optimizer", "autocast"), [("sgd", False), ("adam", True)])
def test_training_beside_hookviz_is_bit_identical(optimizer, look, autocast):
    curve, left = alone(optimizer, autocast)
    seen_curve, seen_left = train(optimizer, look, autocast)
    assert curve == seen_curve
    assert len(left) == len(seen_left)
    for one, other in zip(left, seen_left, strict=True):
        assert torch.equal(one, other)


def test_a_changed_training_would_be_detected():
    """Drawing a random number, or running a batch in train mode, changes the losses."""
    curve, left = alone("sgd")

    def draws(model, when, step):
        step()
        torch.rand(1)

    def runs(model, when, step):
        step()
        with torch.random.fork_rng([]), torch.no_grad():
            model(PICTURES[:2])

    assert train("sgd", draws)[0] != curve
    statistics = train("sgd", runs)[1][3]  # the running mean
    assert not torch.equal(statistics, left[3])
