"""A layer's weights in a step: how large they are, what gradient came, how far they went."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.tensors import at_least_float32
from .measured import off_device

NORMS = ("weight_norm", "weight_gradient_norm", "update_ratio")
"""Of all parameters that a layer itself has, as one vector: the norm when the step begins, the
norm of what ``.grad`` is when backward has reached it, and the norm of the update, divided by the
first. The update is what has become of the weights when the next step begins, whoever did it."""


class Weights:
    """The parameters of layers during one recorded step."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers = {
            name: own
            for name, module in layers.items()
            if (own := [p for p in module.parameters(recurse=False) if _is_plain(p)])
        }
        self._gradients: dict[int, Tensor] = {}
        self._standing: dict[int, tuple[int, int]] = {}  # .grad of before: address and version
        self._came = {True: 0, False: 0}  # to gradients that were there before, and not
        self._before: list[list[Tensor]] = []
        self._norms: list[Tensor] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The layers that have any."""
        return tuple(self._layers)

    def begin(self) -> None:
        """Keep the weights as they are now, which takes as much memory as they do."""
        with torch.no_grad():
            self._before = [[p.detach().clone() for p in own] for own in self._layers.values()]
            self._norms = [_norm(own) for own in self._before]
        every = [p for own in self._layers.values() for p in own]
        self._standing = {
            id(p): (p.grad.data_ptr(), p.grad._version)
            for p in every
            if p.grad is not None and not p.grad.is_inference() and bool(p.grad.any())
        }

    def hooks(self) -> list[Hook]:
        """Hooks that see each parameter's gradient when backward has added its own to it."""
        every = [p for own in self._layers.values() for p in own if p.requires_grad]
        return [(p, "accumulated", partial(self._arrived, p)) for p in every]

    def _arrived(self, parameter: Tensor, *_: object) -> None:
        if parameter.grad is not None:  # an optimizer within backward has taken it already
            # zero_grad() would have made a new tensor, or written the zeros as one more version.
            place, version = self._standing.pop(id(parameter), (0, 0))
            added = place == parameter.grad.data_ptr()
            self._came[added and parameter.grad._version == version + 1] += 1
            with torch.no_grad():
                self._gradients[id(parameter)] = _norm([parameter.grad])

    @property
    def carried(self) -> bool:
        """Whether backward added most gradients to those that were there before."""
        return self._came[True] > self._came[False]

    def rows(self) -> list[Tensor]:
        """Norm and gradient's norm of each layer, on its device; NaN where no gradient came."""
        found = []
        for norm, own in zip(self._norms, self._layers.values(), strict=True):
            came = [self._gradients[id(p)] for p in own if id(p) in self._gradients]
            gradient = _norm(came) if came else norm.new_full((), torch.nan)
            found.append(torch.stack([norm, gradient.to(norm)]))
        return found

    def updates(self) -> np.ndarray:
        """The update of each layer, divided by its norm."""
        if not self._before:
            return np.zeros(0, np.float32)
        with torch.no_grad():
            pairs = zip(self._before, self._layers.values(), strict=True)
            away = [
                _norm([p.detach().to(b.device) - b for p, b in zip(own, before, strict=True)])
                for before, own in pairs
            ]
        ratios = [one / norm for one, norm in zip(away, self._norms, strict=True)]
        return np.concatenate(off_device(ratios))


def _norm(tensors: list[Tensor]) -> Tensor:
    """Of all of them as one vector, in single precision at least, ``()``."""
    norms = [torch.linalg.vector_norm(at_least_float32(each)) for each in tensors]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


def _is_plain(parameter: Tensor) -> bool:
    """Whether all of it is here: shards of one are not, nor are weights yet to be made."""
    kinds = nn.Parameter, Tensor
    return type(parameter) in kinds and not parameter.is_meta and parameter.numel() > 0
