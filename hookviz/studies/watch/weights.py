"""The weights of layers during a recorded step: their norms, gradients and updates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import torch
import torch.optim.optimizer as optimizers
from torch import Tensor, nn

from ...hooking.handles import Hook
from ...hooking.tensors import at_least_float32, on_cpu, version_of
from ..diagnosis.checks.optimizer import ids_held_by

NORMS = ("weight_norm", "weight_gradient_norm", "update_ratio")
"""Norms of a layer's own parameters as a vector: of the weights when the step begins, of ``.grad``
after backward has reached it, before the optimizer's step, and of the update, divided by the first.
The update is the difference between the weights of this step and of the next, whatever changed
them."""


class Weights:
    """The parameters of layers during one recorded step.

    Parameters
    ----------
    layers : mapping of str to torch.nn.Module
    before : mapping of int to int, optional
        The `versions` of parameters when the step before this one began.
    """

    def __init__(
        self, layers: Mapping[str, nn.Module], before: Mapping[int, int] | None = None
    ) -> None:
        self._layers = {
            name: own
            for name, module in layers.items()
            if (own := [p for p in module.parameters(recurse=False) if _is_plain(p)])
        }
        self._parameters = [p for own in self._layers.values() for p in own]
        self._before: list[Tensor] = []
        self._sizes: list[Tensor] = []  # norms
        self._gradients: dict[int, Tensor] = {}  # norms, by the parameters' ids
        self._versions, self._earlier = versions(self._parameters), before or {}
        # Address and version of each .grad with which the step before has changed its parameter.
        self._standing: dict[int, tuple[int, int]] = {}
        self._added: dict[int, bool] = {}  # whether backward added to such a gradient
        self._steps: Counter[int] = Counter()  # of each optimizer, by its id
        self._stepped: set[int] = set()  # parameters that an optimizer has changed in this step

    def begin(self) -> None:
        """Copy the weights, which takes as much memory as they do."""
        grads = {
            id(p): p.grad.detach()
            for p in self._parameters
            if p.grad is not None
            and p.grad.layout is torch.strided
            and self._changed(p, self._earlier)
        }
        # Without torch.no_grad(): an interrupt at its end would leave it on.
        self._before = [p.detach().clone() for p in self._parameters]
        self._sizes, sizes = _norms(self._before), on_cpu(_norms(grads.values()))
        self._standing = {
            key: (grad.data_ptr(), grad._version)
            for (key, grad), size in zip(grads.items(), sizes, strict=True)
            if size
        }

    def hooks(self) -> list[Hook]:
        """Return hooks that run when backward has added to a gradient, and after a step."""
        learning = [p for p in self._parameters if p.requires_grad]
        hooks: list[Hook] = [(p, "accumulated", partial(self._arrived, p)) for p in learning]
        return [*hooks, (optimizers, "any step", self._step_taken)]

    def _step_taken(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        own = set(map(id, self._parameters)).intersection(ids_held_by(optimizer))
        self._steps[id(optimizer)] += bool(own)
        self._stepped |= own

    def _arrived(self, parameter: Tensor, *_: object) -> None:
        # An optimizer within backward has taken the gradient already; what comes after a step, as
        # from the generator's loss to the critic of a GAN, is not what the step used.
        if parameter.grad is None or id(parameter) in self._stepped:
            return
        gradient = parameter.grad.detach()
        if gradient.layout is torch.strided:
            # zero_grad() would have made a new tensor, or written the zeros as one more version.
            address, version = self._standing.pop(id(parameter), (0, 0))
            added = address == gradient.data_ptr() and gradient._version == version + 1
            self._added.setdefault(id(parameter), added)
        else:  # of an embedding
            gradient = gradient.coalesce().values()
        (self._gradients[id(parameter)],) = _norms([gradient])

    @property
    def carried(self) -> bool:
        """True if most parameters were changed by gradients that hold those of the step before."""
        added = [
            self._added.get(id(p)) for p in self._parameters if self._changed(p, self._versions)
        ]
        return added.count(True) > added.count(False)

    @staticmethod
    def _changed(parameter: Tensor, before: Mapping[int, int]) -> bool:
        now = version_of(parameter)
        return before.get(id(parameter), now) != now

    @property
    def reached(self) -> bool:
        """True if a gradient came."""
        return bool(self._gradients)

    @property
    def steps(self) -> int:
        """The number of steps that an optimizer of these parameters took, the most of any."""
        return max(self._steps.values(), default=0)

    def norms(self) -> list[tuple[str, float, float]]:
        """Return each layer, its norm and its gradient's norm, which is NaN if no gradient came."""
        self._sizes = on_cpu(self._sizes)  # `updates` needs them once more
        came = [self._gradients.get(id(p)) for p in self._parameters]
        sides = self._by_layer(self._sizes), self._by_layer(came)
        return [*zip(self._layers, *sides, strict=True)]

    def lost(self) -> list[str]:
        """Return the layers whose weights now hold NaN or Inf."""
        layers, finite = self._layers.items(), lambda p: bool(p.detach().isfinite().all())
        return [name for name, own in layers if not all(map(finite, own))]

    def updates(self) -> list[float]:
        """Return the update of each layer, divided by its norm."""
        pairs = zip(self._parameters, self._before, strict=False)
        moves = _norms(p.detach().to(before.device) - before for p, before in pairs)
        moved, sizes = self._by_layer(moves), self._by_layer(self._sizes)
        return [
            move / size if size else (math.inf if move else math.nan)
            for move, size in zip(moved, sizes, strict=True)
        ]

    def _by_layer(self, norms: Sequence[Tensor | None]) -> list[float]:
        """Return the norm of each layer's parameters as one vector; NaN if all are None."""
        found = iter(on_cpu([norm for norm in norms if norm is not None]))
        each = (norm if norm is None else next(found) for norm in norms)
        layers = [
            [float(norm) for _ in own if (norm := next(each)) is not None]
            for own in self._layers.values()
        ]
        return [math.hypot(*own) if own else math.nan for own in layers]


def versions(parameters: Iterable[Tensor]) -> dict[int, int]:
    """Return the version of each parameter by its id; a step of an optimizer makes it larger."""
    return {id(each): version_of(each) for each in parameters}


def _norms(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [torch.linalg.vector_norm(at_least_float32(each)) for each in tensors]


def _is_plain(parameter: Tensor) -> bool:
    """Return True if a tensor is complete: neither a shard nor an uninitialised weight."""
    kinds = nn.Parameter, Tensor
    return type(parameter) in kinds and not parameter.is_meta and parameter.numel() > 0
