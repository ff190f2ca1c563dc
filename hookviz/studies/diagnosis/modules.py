"""Facts about a model's modules: weights that are zero, plain attributes, whole subtrees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ...hooking.weights import stored_tensor

LINEAR = (nn.modules.conv._ConvNd, nn.Linear)


def has_weights(module: nn.Module) -> bool:
    """Return True if a module has parameters itself, which are not read here."""
    return any(each is not None for each in module._parameters.values())


def is_zero(module: nn.Module) -> bool:
    """Return True if a layer's weight is 0 throughout."""
    weight = stored_tensor(module, "weight")
    if weight is None or weight.is_meta or not weight.numel():
        return False
    first = weight.detach().flatten()[:1]
    return not bool(first.any()) and not bool(weight.detach().any())


def zeroed(model: nn.Module) -> list[str]:
    """Return the names of a model's convolutions and linear layers whose weights are all zero."""
    found = model.named_modules()
    return [name for name, each in found if isinstance(each, LINEAR) and is_zero(each)]


SMALL = 1e-2
"""A channel's weights are next to zero below this fraction of the largest channel's."""


def next_to_zero(weight: Tensor) -> Tensor:
    """Return the mask of channels whose weights are next to zero: trained away, or pruned.

    Examples
    --------
    >>> import torch
    >>> next_to_zero(torch.tensor([[3.0, 4.0], [1e-9, 0.0]]))
    tensor([False,  True])
    """
    strength = weight.detach().flatten(1).norm(dim=1) if weight.ndim > 1 else weight.detach().abs()
    strength = strength.float()
    return strength < SMALL * strength.max()


def outermost(names: Iterable[str]) -> list[str]:
    """Return the names that are in none of the others."""
    every = list(names)
    return [n for n in every if not any(n != o and (not o or n.startswith(o + ".")) for o in every)]


def untrained_norms(modules: Iterable[nn.Module]) -> str:
    """Advise on BatchNorm layers in eval mode that have seen no batch, or too few."""
    norms = [m for m in modules if isinstance(m, _BatchNorm) and not m.training]
    counts = [int(m.num_batches_tracked) for m in norms if m.num_batches_tracked is not None]
    new = [count for count in counts if count < BEGUN]
    if not new:
        return ""
    seen = f"{max(new)} batches" if any(new) else "no batch"
    return (
        f"{len(new)} BatchNorm layers in eval mode have seen {seen} and do not normalize yet: load "
        "trained weights, or examine the model in training mode."
    )


BEGUN = 20
"""After this many batches a BatchNorm's statistics are those of the data: 0.9²⁰ of them, an eighth,
are still what they began with."""


def plain_values(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield plain attributes of a module, and what they hold if they are a list or dict."""
    for name, value in vars(module).items():
        if name in _TORCHS:
            continue
        several = list(value.values()) if type(value) is dict else value
        for each in several if isinstance(several, (list, tuple)) else (value,):
            yield name, each


_TORCHS = {"_parameters", "_buffers", "_modules", "_flat_weights"}
