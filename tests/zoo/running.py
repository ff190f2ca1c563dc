"""Run models of the zoo without hookviz; `zoo.against` also uses this beside hookviz 0.3."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map


def seed():
    """Seed all random generators, the same for every run."""
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)


def call(model, inputs):
    """Call the model with a tuple or dict of its arguments, or with its one argument."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def ask(model, inputs):
    """Run the model; return a score and the tensors that it may be differentiated by."""
    sources = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def leaf(value):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        sources.append(value.clone().requires_grad_())
        return sources[-1]

    inputs = tree_map(leaf, inputs)
    return score(call(model, inputs)), sources


def score(output):
    """Return the sum of a model's floating-point outputs with random weights.

    A plain sum would be constant for a softmax.
    """
    generator = torch.Generator().manual_seed(2)
    tensors = [t for t in _tensors(output) if t.is_floating_point()]
    scored = [t for t in tensors if t.requires_grad or not torch.is_grad_enabled()]
    weighted = [(t * torch.randn(t.shape, generator=generator)).sum() for t in scored]
    return torch.stack(weighted).sum()


def _tensors(value):
    """Yield the tensors in mappings, sequences and dataclasses, at any depth."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from _tensors(getattr(value, item.name))
