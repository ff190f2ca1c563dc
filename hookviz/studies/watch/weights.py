"""The weights of layers during a recorded step: their norms, gradients and updates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.tensors import at_least_float32

NORMS = ("weight_norm", "weight_gradient_norm", "update_ratio")
"""Norms of a layer's own parameters as a vector: of the weights when the step begins, of ``.grad``
after backward has reached it, and of the update, divided by the first. The update is the difference
between the weights of this step and of the next, whatever changed them."""


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
        """The layers that have parameters."""
        return tuple(self._layers)

    def begin(self) -> None:
        """Copy the weights, which takes as much memory as they do."""
        every = [p for own in self._layers.values() for p in own]
        with torch.no_grad():
            self._before = [[p.detach().clone() for p in own] for own in self._layers.values()]
            self._norms = _norms(self._before)
            given = {id(p): p.grad for p in every if p.grad is not None}
            grads = {
                key: each
                for key, each in given.items()
                if each.layout is torch.strided and not each.is_inference()
            }
            largest = _each_norm([*grads.values()], math.inf)
        self._standing = {
            key: (each.data_ptr(), each._version)
            for (key, each), most in zip(grads.items(), largest, strict=True)
            if most
        }

    def hooks(self) -> list[Hook]:
        """Return hooks that run when backward has added to a parameter's gradient."""
        every = [p for own in self._layers.values() for p in own if p.requires_grad]
        return [(p, "accumulated", partial(self._arrived, p)) for p in every]

    def _arrived(self, parameter: Tensor, *_: object) -> None:
        if parameter.grad is None:  # an optimizer within backward has taken it already
            return
        gradient = parameter.grad.detach()
        if gradient.layout is torch.strided:
            # zero_grad() would have made a new tensor, or written the zeros as one more version.
            place, version = self._standing.pop(id(parameter), (0, 0))
            added = place == gradient.data_ptr()
            self._came[added and gradient._version == version + 1] += 1
        else:  # of an embedding
            gradient = gradient.coalesce().values()
        self._gradients[id(parameter)] = torch.linalg.vector_norm(at_least_float32(gradient))

    @property
    def carried(self) -> bool:
        """True if backward added most gradients to existing ones."""
        return self._came[True] > self._came[False]

    def norms(self) -> list[Tensor]:
        """Norms of all layers, then their gradients' norms; NaN where no gradient came."""
        came = [
            [self._gradients[id(p)] for p in own if id(p) in self._gradients]
            for own in self._layers.values()
        ]
        norms = iter(_as_one([each for each in came if each]))
        nothing = torch.tensor(torch.nan)
        return [*self._norms, *(next(norms) if each else nothing for each in came)]

    def updates(self) -> np.ndarray:
        """Return the update of each layer, divided by its norm."""
        if not self._before:
            return np.zeros(0, np.float32)
        away: list[Tensor] = []
        with torch.no_grad():
            for before, own in zip(self._before, self._layers.values(), strict=True):
                moves = [p.detach().to(b.device) - b for p, b in zip(own, before, strict=True)]
                away += _as_one([_each_norm(moves)])
        moved = np.concatenate(off_device([*away, *self._norms])).reshape(2, -1)
        with np.errstate(all="ignore"):
            return moved[0] / moved[1]


def _norms(several: Iterable[list[Tensor]]) -> list[Tensor]:
    """Return the norm of each list of tensors, as one vector, in single precision at least."""
    lists = list(several)
    norms = iter(_each_norm([each for own in lists for each in own]))
    return _as_one([[next(norms) for _ in own] for own in lists])


def _as_one(norms: list[list[Tensor]]) -> list[Tensor]:
    """Return the norm of each list of norms."""
    several = iter(_each_norm([torch.stack(own) for own in norms if len(own) > 1]))
    return [next(several) if len(own) > 1 else own[0] for own in norms]


def _each_norm(tensors: list[Tensor], order: float = 2.0) -> list[Tensor]:
    """Return the norm of each tensor, ``()``; in one call if all have one type and device."""
    if any(each.dtype != torch.float32 or each.device != tensors[0].device for each in tensors):
        return [torch.linalg.vector_norm(at_least_float32(each), order) for each in tensors]
    foreach_norm = torch._foreach_norm  # pyright: ignore[reportPrivateImportUsage]
    return list(foreach_norm(tensors, order)) if tensors else []


def _is_plain(parameter: Tensor) -> bool:
    """Return True if a tensor is complete: neither a shard nor an uninitialised weight."""
    kinds = nn.Parameter, Tensor
    return type(parameter) in kinds and not parameter.is_meta and parameter.numel() > 0


def off_device(rows: Iterable[Tensor | np.ndarray]) -> list[np.ndarray]:
    """Return rows of float32 as arrays, with one transfer for each device."""
    found: list[Any] = list(rows)
    places: dict[torch.device, list[int]] = {}
    for place, row in enumerate(found):
        if isinstance(row, Tensor):
            places.setdefault(row.device, []).append(place)
    for here in places.values():
        every = [found[place].detach().float().reshape(-1) for place in here]
        moved, end = torch.cat(every).cpu().numpy(), 0
        for place, each in zip(here, every, strict=True):
            begin, end = end, end + len(each)
            found[place] = moved[begin:end]
    return found
