"""Capture is exact for random networks, drawn by hypothesis.

Each network is a random list of common blocks. The captured values are compared, bit for bit,
with `reference.true_outputs`.
"""

from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from reference import assert_exact, true_outputs
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from untouched import assert_untouched, snapshot

import hookviz

CHANNELS = 4
CONVOLUTIONS = {
    1: (nn.Conv1d, nn.ConvTranspose1d),
    2: (nn.Conv2d, nn.ConvTranspose2d),
    3: (nn.Conv3d, nn.ConvTranspose3d),
}
NORMS = {
    1: (nn.BatchNorm1d, nn.InstanceNorm1d),
    2: (nn.BatchNorm2d, nn.InstanceNorm2d),
    3: (nn.BatchNorm3d, nn.InstanceNorm3d),
}

ACTIVATIONS = {
    "relu": lambda: nn.ReLU(),
    "relu in place": lambda: nn.ReLU(inplace=True),
    "silu in place": lambda: nn.SiLU(inplace=True),
    "leaky in place": lambda: nn.LeakyReLU(0.1, inplace=True),
    "hardswish in place": lambda: nn.Hardswish(inplace=True),
    "gelu": lambda: nn.GELU(),
    "dropout in place": lambda: nn.Dropout(0.5, inplace=True),
}

OVERWRITES = {
    "functional relu_": F.relu_,
    "mul_": lambda x: x.mul_(0.5),
    "a slice": lambda x: (x[:, :2].mul_(2.0), x)[1],
    "an item": lambda x: (x.__setitem__((0, 1), 0.25), x)[1],
    "a flattened view": lambda x: (x.flatten(1)[:, ::3].neg_(), x)[1],
    "view and back": lambda x: x.flatten(2).relu_().view_as(x),
    "transposed and back": lambda x: x.transpose(1, -1).add_(0.1).transpose(1, -1),
    "chunks": lambda x: torch.cat([part.tanh() for part in x.chunk(2, 1)], 1),
    "out of place": lambda x: x.sigmoid() * x,
    "+= its half": lambda x: x.__iadd__(x.detach() / 2),
}


class Block(nn.Module):
    """One convolution and operations on its output; keeps channels and size."""

    def __init__(self, spatial, recipe):
        super().__init__()
        plain, transposed = CONVOLUTIONS[spatial]
        groups, bias = recipe["groups"], recipe["bias"]
        kind = transposed if recipe["transposed"] else plain
        self.conv = kind(CHANNELS, CHANNELS, 3, padding=1, groups=groups, bias=bias)
        if recipe["strided"]:  # downsample and upsample again
            self.conv = plain(CHANNELS, CHANNELS, 2, stride=2, groups=groups, bias=bias)
            self.up = transposed(CHANNELS, CHANNELS, 2, stride=2)
        self.parts = nn.ModuleList()
        for name in recipe["after"]:
            if name == "norm":
                self.parts.append(NORMS[spatial][recipe["instance"]](CHANNELS))
            elif name in ACTIVATIONS:
                self.parts.append(ACTIVATIONS[name]())
            else:
                self.parts.append(Overwrite(name))
        self.times, self.residual = recipe["times"], recipe["residual"]
        self.checkpointed = recipe["checkpointed"]

    def once(self, x):
        out = self.conv(x)
        if hasattr(self, "up"):
            out = self.up(out)
        for part in self.parts:
            out = part(out)
        if self.residual == "+":
            return out + x
        if self.residual == "+=":
            out += x
        return out

    def forward(self, x):
        for _ in range(self.times):
            x = checkpoint(self.once, x, use_reentrant=False) if self.checkpointed else self.once(x)
        return x


class Overwrite(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return OVERWRITES[self.name](x)


class Net(nn.Module):
    """Randomly nested blocks, some of which run twice, with a random kind of output."""

    def __init__(self, spatial, recipes, nesting, again, returns):
        super().__init__()
        blocks = [Block(spatial, recipe) for recipe in recipes]
        if nesting == "Sequential":
            self.body = nn.Sequential(*blocks)
        elif nesting == "deep":
            self.body = nn.Identity()
            for block in blocks:
                self.body = nn.Sequential(self.body, nn.Sequential(block))
        elif nesting == "ModuleDict":
            self.body = nn.ModuleDict({f"block {i}": block for i, block in enumerate(blocks)})
        else:
            self.body = nn.ModuleList(blocks)
        self.again, self.returns = again, returns
        self.alias = blocks[0]  # a second name of the same module

    def forward(self, x):
        if isinstance(self.body, nn.Sequential):
            x = self.body(x)
        else:
            blocks = self.body.values() if isinstance(self.body, nn.ModuleDict) else self.body
            for block in blocks:
                x = block(x)
        if self.again:
            x = self.alias(x)
        pooled = x.flatten(2).mean(2)
        return {"tensor": x, "tuple": (pooled, x), "dict": {"out": x, "aux": pooled}}[self.returns]


@contextmanager
def without_checkpoints(model):
    """Disable checkpointing within the block, so that no layer runs again."""
    blocks = [block for block in model.modules() if isinstance(block, Block) and block.checkpointed]
    for block in blocks:
        block.checkpointed = False
    try:
        yield
    finally:
        for block in blocks:
            block.checkpointed = True


def assert_true(model, cache, once):
    try:
        with without_checkpoints(model), true_outputs(model) as truths:
            once()
    except RuntimeError:
        event("only differentiable by running again")
        return
    assert assert_exact(cache, truths) == sum(map(len, truths.values())) > 0


def score(output):
    tensors = [output] if isinstance(output, Tensor) else output
    tensors = list(tensors.values()) if isinstance(tensors, dict) else tensors
    return sum((t * torch.linspace(-1, 1, t.numel()).view_as(t)).sum() for t in tensors)


AFTER = st.lists(st.sampled_from(["norm", *ACTIVATIONS, *OVERWRITES]), max_size=3)
RECIPES = st.fixed_dictionaries(
    {
        "groups": st.sampled_from([1, 2, CHANNELS]),
        "bias": st.booleans(),
        "transposed": st.booleans(),
        "strided": st.booleans(),
        "instance": st.booleans(),
        "after": AFTER,
        "times": st.integers(1, 3),
        "residual": st.sampled_from(["", "+", "+="]),
        "checkpointed": st.sampled_from([False, False, True]),
    }
)
NETS = st.fixed_dictionaries(
    {
        "spatial": st.sampled_from([1, 2, 3]),
        "recipes": st.lists(RECIPES, min_size=1, max_size=4),
        "nesting": st.sampled_from(["Sequential", "deep", "ModuleDict", "ModuleList"]),
        "again": st.booleans(),
        "returns": st.sampled_from(["tensor", "tuple", "dict"]),
    }
)


PHASES = [phase for phase in Phase if phase is not Phase.explain]  # explaining takes minutes


NETWORKS = settings(
    derandomize=True, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck)
)
drawn = given(
    net=NETS,
    training=st.booleans(),
    frozen=st.lists(st.booleans(), min_size=3, max_size=3),
    batch=st.sampled_from([1, 2]),
    asks=st.booleans(),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize("count", [40, pytest.param(150, marks=pytest.mark.heavy)])
def test_random_networks_are_captured_exactly(count):
    settings(NETWORKS, max_examples=count)(drawn(check))()


def check(net, training, frozen, batch, asks, seed):
    torch.manual_seed(seed)
    model = Net(**net).train(training)
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(not frozen[number % len(frozen)])
    x = torch.randn(batch, CHANNELS, *(8, 8, 4)[: net["spatial"]])
    asks = asks or not any(parameter.requires_grad for parameter in model.parameters())
    buffers = [buffer.clone() for buffer in model.buffers()]

    def fresh():
        model.zero_grad()
        torch.manual_seed(seed)
        with torch.no_grad():
            for buffer, value in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(value)

    def once():
        """Run the model from the same state; return all values that training depends on."""
        fresh()
        own = x.clone().requires_grad_(asks)
        output = model(own * 1)  # a leaf could not be overwritten in place
        loss = score(output)
        loss.backward()
        gradients = [own.grad, *(parameter.grad for parameter in model.parameters())]
        seen = [loss.detach(), *gradients, *(buffer.clone() for buffer in model.buffers())]
        return [*seen, torch.get_rng_state()]

    fresh()
    before = snapshot(model)
    try:
        plain = once()
    except RuntimeError as error:  # torch cannot differentiate every order of in-place operations
        event("refused by torch")
        with pytest.raises(RuntimeError) as raised, hookviz.capture(model):
            once()
        assert str(raised.value) == str(error)
    else:
        with hookviz.capture(model) as cache:
            watched = once()
        for one, other in zip(plain, watched, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
        assert_true(model, cache, once)
    fresh()
    assert_untouched(model, before)
