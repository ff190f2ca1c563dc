"""Error messages of the installed PyTorch version are recognized and lead to a fix."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookviz
from hookviz.run.error_messages import (
    FIXES,
    LABELS,
    OVERWRITTEN,
    WRONG_ARGUMENTS,
    fix_of,
    kind_of,
)


def overwritten():
    x = torch.rand(3, requires_grad=True).sigmoid()
    loss = x.log().sum()
    x.add_(1)
    loss.backward()


def leaf_in_place():
    torch.zeros(3, requires_grad=True).add_(1)


def backward_twice():
    loss = torch.rand(3, requires_grad=True).square().sum()
    loss.backward()
    loss.backward()


def not_a_tensor():
    nn.Conv2d(3, 4, 3)([torch.rand(1, 3, 8, 8)])


X, TWO, HALVES = torch.rand(2, 4), torch.tensor([0, 1]), torch.full((2,), 0.5)
RAISED = {
    "overwritten": (overwritten, "in place", "Write a new tensor"),
    "a leaf": (leaf_in_place, "in place", "within torch.no_grad()"),
    "no graph": (lambda: X.sum().backward(), "no gradient", "detached from the model"),
    "no number": (lambda: X.clone().requires_grad_().exp().backward(), "error", "loss.mean()"),
    "twice": (backward_twice, "error", "Call backward() once"),
    "no batch": (lambda: nn.BatchNorm2d(3)(torch.rand(3, 8, 8)), "shape", "x[None]"),
    "a kernel larger than its input": (
        lambda: nn.Conv2d(3, 4, 5)(torch.rand(1, 3, 4, 4)), "shape", "larger one",
    ),
    "pooled to nothing": (
        lambda: nn.MaxPool2d(2)(torch.rand(1, 3, 1, 1)), "shape", "F.interpolate(x",
    ),
    "a list": (not_a_tensor, "error", "Give the tensor itself"),
    "one-hot labels": (
        lambda: F.multi_margin_loss(X, torch.ones(2, 4, dtype=torch.long)), "shape", "",
    ),
    "targets beyond 1": (
        lambda: F.binary_cross_entropy(HALVES, 255 * HALVES), "error", "divide a mask",
    ),
    "no probabilities": (
        lambda: F.binary_cross_entropy(3 * HALVES, HALVES), "error", "through a sigmoid",
    ),
    "sizes": (
        lambda: F.binary_cross_entropy_with_logits(X, HALVES), "shape", "the same shape",
    ),
    "no labels": (lambda: nn.CrossEntropyLoss()(X), "error", "Give the loss its labels"),
    "whole numbers": (
        lambda: F.binary_cross_entropy(HALVES.requires_grad_(), TWO), "error", "y.float()",
    ),
    "floats for classes": (lambda: F.nll_loss(X, HALVES), "error", "y.long()"),
    "double": (lambda: nn.Linear(4, 2)(X.double()), "error", "x.float()"),
    "other features": (lambda: nn.Linear(3, 2)(X), "shape", ""),
    "one value": (lambda: nn.BatchNorm1d(4)(X[:1]), "batchnorm", "model.eval()"),
    "bytes": (
        lambda: nn.Conv2d(3, 4, 3)(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)), "error", "/ 255",
    ),
    "an index": (lambda: nn.Embedding(3, 4)(TWO + 5), "error", "num_embeddings"),
    "an index of a dimension": (lambda: X[:, TWO + 9], "shape", "the dimension less 1"),
    "a label": (lambda: F.cross_entropy(X, TWO + 3), "error", "the number of classes less 1"),
}  # fmt: skip


def error_of(act):
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("name", RAISED)
def test_an_error_of_this_version_has_its_kind_and_fix(name):
    act, kind, fix = RAISED[name]
    error = error_of(act)
    assert kind_of(error) == kind, error
    assert fix in fix_of(error), error


def test_the_error_of_a_model_ends_with_the_fix():
    model = nn.Sequential(nn.Conv2d(3, 4, 7), nn.Conv2d(4, 4, 7))
    with pytest.raises(RuntimeError, match=r"layer '1' .*4 x 4.*size\. .* give a larger one"):
        hookviz.explore(model, torch.rand(1, 3, 10, 10))
    hookviz.explore(model, torch.rand(1, 3, 20, 20)).close()


@pytest.mark.parametrize(
    ("pattern", "act"),
    [
        (LABELS, lambda: F.cross_entropy(X, TWO + 3)),
        (OVERWRITTEN, overwritten),
        (WRONG_ARGUMENTS, lambda: nn.Linear(4, 2)(X, X)),
        (WRONG_ARGUMENTS, lambda: nn.Linear(4, 2)()),
        (WRONG_ARGUMENTS, lambda: nn.Linear(4, 2)(X, mask=X)),
    ],
)
def test_a_pattern_matches_an_error_of_this_version(pattern, act):
    assert pattern.search(str(error_of(act)))


def test_most_fixes_are_tested_above():
    """Untested are devices, a negative variance, and messages of older versions."""
    provoked = {fix_of(error_of(act)) for act, _, _ in RAISED.values()}
    assert len(set(FIXES.values()) - provoked) <= 5
